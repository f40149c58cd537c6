"""The training task of a launch: checks again with the actual processes, then trains under the guard.

Every process of the job runs this. If one ends, all end at once, with one message and one exit code.
"""

from __future__ import annotations

import inspect
import logging
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bridgepack.bridge.forward_steps import forward_step_for
from bridgepack.bridge.imports import import_host
from bridgepack.config.installed import installed_root
from bridgepack.errors import BridgepackError, ConfigError, forget_interrupt
from bridgepack.records.losses import LOSSES_FOLDER
from bridgepack.reporting.formats import render_report
from bridgepack.reporting.text import printable
from bridgepack.running.assignment import (
    COULD_NOT_RUN,
    FINDINGS,
    INTERRUPTED,
    RUN_FILE,
    SUCCEEDED,
    RunFolder,
    assignment_of,
    message_of,
    record,
    say,
)
from bridgepack.running.guard.callback import Guard, GuardViolationError, Notice
from bridgepack.running.guard.report import findings_text
from bridgepack.running.guard.unchanged import CheckedFiles, FilesCallback, FilesChangedError
from bridgepack.running.job import Identity, Job, Stop
from bridgepack.running.losses.callback import Losses
from bridgepack.running.owning import claim_folder, fingerprint_of, release_folder, release_when_terminated, work_of
from bridgepack.running.starting import Start, check_start, checked_files, facts_of, resume_order, start_of, write_order

_FINETUNE = "training.finetune"
#: Logger of errors that end training, with traceback, on every rank: a module below the host's package.
_HOST_LOGGER = "training.pretrain"
#: Errors that the job has told before they are raised.
_TOLD = (GuardViolationError, FilesChangedError)
#: Time a communication error waits for the error on another rank that may have caused it.
_CAUSE_S = 5.0
_COMMUNICATION = ("Connection closed by peer", "Connection reset", "gloo", "NCCL", "Broken pipe")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and return the exit code: 0, 1 where the check or the guard refuses or training fails, 2 for mistakes."""
    try:
        identity = Identity.from_environment(os.environ)
    except BridgepackError as error:
        say(f"error: {message_of(error)}")
        return COULD_NOT_RUN
    records = _JobRecords()
    job = Job(identity, report=records.tell)
    try:
        return _in_job(job, records, arguments)
    except (BridgepackError, OSError) as error:
        return _end_for_mistake(job, f"error: {message_of(error)}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # any error in one process must end all
        _fail(job, error)
        return FINDINGS
    finally:
        release_folder(records.owner)
        forget_interrupt()


def _in_job(job: Job, records: _JobRecords, arguments: Sequence[str] | None) -> int:
    job.join()
    assignment = assignment_of(
        arguments,
        program="python -m bridgepack.running.train",
        description="Train a recipe with Megatron-Bridge under the guard; every process of the job runs this.",
    )
    records.folder = assignment.run_folder if job.is_first else None
    if job.is_first:
        record(assignment)
    start = start_of(assignment, job.identity.world_size)
    files = None
    if job.is_first:
        files = checked_files(start)  # before the check, so that a later change is seen
        refusal = _prepare(start, records)
        if refusal is not None:
            job.stop(refusal)
            return refusal.exit_code
        job.approve()
    job.await_approval()
    return _train(job, records, start, files)


def _prepare(start: Start, records: _JobRecords) -> Stop | None:
    report = check_start(start)
    file = start.run_folder.add_record("check", {"task": "train", **report.to_dict()})
    text = render_report(report).rstrip()
    if report.has_errors:
        return Stop(exit_code=FINDINGS, message=f"{text}\nrefused: the check fails; its report is {file}")
    say(f"{text}\nreport: {file}")
    packs = fingerprint_of(start.artifact)
    records.owner = claim_folder(start.config.checkpoint.save, work=work_of(start.recipe), fingerprint=packs)
    release_when_terminated(records.owner)
    resumption = resume_order(start)
    if resumption.findings:
        content = {"kind": "resume", "findings": [asdict(finding) for finding in resumption.findings]}
        return Stop(
            exit_code=FINDINGS,
            message=f"refused: the run cannot resume like this.\n{findings_text(resumption.findings)}",
            record=content,
        )
    if resumption.checkpoint is not None and resumption.before is None:
        say(f"{resumption.checkpoint}: the packs of its run are not recorded, so they are not compared.")
    start.run_folder.write(RUN_FILE, facts_of(start, resumption))
    checkpoints = start.config.checkpoint.save
    if checkpoints is not None and resumption.order is not None and "://" not in str(checkpoints):
        write_order(Path(checkpoints), resumption.order)
    return None


def _train(job: Job, records: _JobRecords, start: Start, files: CheckedFiles | None) -> int:
    guard = Guard(
        artifact=start.artifact,
        settings=start.recipe.guard,
        ignore=start.recipe.ignore,
        on_alarm=lambda alarm: job.stop(Stop(exit_code=FINDINGS, message=alarm.text(), record=alarm.record())),
        on_notice=records.notice,
        on_failure=lambda error: _fail(job, error),
    )
    # Such an error has already been reported, more clearly than a traceback would.
    logging.getLogger(f"{installed_root()}.{_HOST_LOGGER}").addFilter(
        lambda entry: not (entry.exc_info and isinstance(entry.exc_info[1], _TOLD))
    )
    finetune = import_host(_FINETUNE).finetune
    if "callbacks" not in inspect.signature(finetune).parameters:
        raise ConfigError(
            "this Megatron-Bridge has no callbacks, which the guard needs; install 0.6.0 or newer, or train with "
            "recipe.to_bridge() in a script of your own."
        )
    callbacks: list[Any] = [guard]
    if files is not None:
        callbacks.append(
            FilesCallback(files, start.recipe.guard, on_change=lambda error: job.stop(_files_changed(error)))
        )
    forward_step = forward_step_for(start.config)
    if start.artifact is not None:
        losses = _losses_of(start, records)
        forward_step = losses.watching(forward_step)
        callbacks.append(losses)
    try:
        finetune(start.config, guard.watching(forward_step), callbacks=callbacks)
    except _TOLD:
        return FINDINGS
    except SystemExit as exited:  # the host's own way to end at a step, a time or a signal
        job.finish()
        return exited.code if isinstance(exited.code, int) else int(exited.code is not None)
    except Exception as error:  # any error in one process must end all
        _fail(job, error, is_logged=True)
        return FINDINGS
    job.finish()
    return SUCCEEDED


def _losses_of(start: Start, records: _JobRecords) -> Losses:
    assert start.artifact is not None
    return Losses(
        artifact=start.artifact,
        folder=start.run_folder.path / LOSSES_FOLDER,
        settings=start.recipe.losses,
        on_notice=lambda notice: records.notice(notice, "losses"),
    )


def _files_changed(error: FilesChangedError) -> Stop:
    text = printable(str(error))
    return Stop(exit_code=FINDINGS, message=f"stopped: {text}", record={"kind": "changed", "message": text})


class _JobRecords:
    folder: RunFolder | None = None
    owner: Path | None = None  #: file that says that this run saves beside it

    def tell(self, stop: Stop) -> None:
        """Print and record why the job ends; it saves nothing from here on."""
        release_folder(self.owner)
        say(stop.message)
        if stop.record:
            self._keep(str(stop.record.get("kind", "stop")), stop.record)

    def notice(self, notice: Notice, name: str = "guard") -> None:
        """Print and record a notice of the guard, or of what else looks on."""
        say(notice.text)
        self._keep(name, {"kind": notice.kind, "text": notice.text, **notice.facts})

    def _keep(self, name: str, content: dict[str, Any]) -> None:
        if self.folder is not None:
            try:
                say(f"record: {self.folder.add_record(name, content)}")
            except BridgepackError as error:  # a full disk must not hide why the job ends
                say(f"error: {message_of(error)}")


def _fail(job: Job, error: Exception, *, is_logged: bool = False) -> None:
    """End all processes of the job because of an error in this one; returns only in a single-process job."""
    if not is_logged:
        traceback.print_exception(error)
    if any(text in str(error) for text in _COMMUNICATION):
        job.is_stopping(wait_s=_CAUSE_S)
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else "no text"
    message = f"rank {job.identity.rank} failed: {type(error).__name__}: {printable(str(error)) or place}"
    job.stop(Stop(exit_code=FINDINGS, message=message, record={"kind": "failure", "message": message}))


def _end_for_mistake(job: Job, message: str) -> int:
    """End all processes because of a user mistake; usually every process sees it and the first reports it."""
    if not job.is_first and not job.is_stopping(wait_s=_CAUSE_S):
        message += f" (seen by rank {job.identity.rank} on {platform.node()}, not by rank 0)"
    job.stop(Stop(exit_code=COULD_NOT_RUN, message=message))
    return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
