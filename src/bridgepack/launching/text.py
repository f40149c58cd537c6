"""Renders launches as text for a terminal: the plan and the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bridgepack.reporting.text import printable

if TYPE_CHECKING:
    from bridgepack.launching.dry_run import DryRun
    from bridgepack.launching.plan import LaunchPlan
    from bridgepack.launching.results import LaunchResult, TaskResult

_LABEL = 12
#: Number of log lines shown for a failed task, and bytes read from the log's end for them.
_LOG_LINES, _LOG_BYTES = 20, 50_000
_LINE_WIDTH = 400


def describe_launch(plan: LaunchPlan) -> str:
    """Return the text of a launch plan: run, tasks, location of the packs, result of the check, warnings."""
    lines = [
        _line("run", plan.run_name),
        _line("recipe", plan.target),
        _line("cluster", plan.cluster.title),
        _line("tasks", ", ".join(f"{task} on {plan.cluster.executor_for(task).title}" for task in plan.tasks)),
        _line("training", f"{plan.world_size} {'process' if plan.world_size == 1 else 'processes'}"),
        _line("packs", _packs(plan)),
        _line("run folder", plan.run_folder),
        _line("commit", _commit(plan)),
        _line("check", _check(plan)),
        *(_line("note", note) for note in plan.notes),
    ]
    return printable("\n".join(lines))


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _packs(plan: LaunchPlan) -> str:
    if plan.recipe.packing.mode != "offline":
        return f"none; packing.mode is {plan.recipe.packing.mode}"
    return plan.artifact or plan.recipe.artifact or f"{plan.artifacts}/{plan.recipe.name}-FINGERPRINT"


def _commit(plan: LaunchPlan) -> str:
    if plan.git is None:
        return "none; this folder is in no git repository"
    dirty = {True: ", with changes that are not committed", False: "", None: ", which git did not compare in time"}
    return f"{plan.git['commit'][:12]}{dirty[plan.git['is_dirty']]}"


def _check(plan: LaunchPlan) -> str:
    report = plan.report
    codes = ", ".join(sorted({finding.code for finding in report.findings if finding.severity == "warning"}))
    warnings = f"{report.num_warnings} {'warning' if report.num_warnings == 1 else 'warnings'}"
    return (
        f"no errors, {warnings}{f' ({codes})' if codes else ''}; {len(report.rules_run)} rules run, "
        f"{len(report.rules_skipped)} need the packs or the nodes"
    )


def describe_dry_run(dry_run: DryRun) -> str:
    """Return the text of a launch plan, with the scripts that would be submitted."""
    blocks = [describe_launch(dry_run.plan), printable(f"=== recipe\n{dry_run.recipe_text.strip()}")]
    for script in dry_run.scripts:
        command = f"\n{script.command}" if script.command else ""
        blocks.append(printable(f"=== {script.task}: {script.title}{command}\n{script.text.strip()}"))
    blocks.append("nothing was submitted or written")
    return "\n\n".join(blocks)


def describe_result(result: LaunchResult) -> str:
    """Return the result of a launch: one line per task with its log, and what to do next."""
    lines = [_task_line(task) for task in result.tasks]
    lines.append(_line("run folder", result.run_folder))
    if any(task.job for task in result.tasks):
        lines.append(_line("look again", f"nemo experiment status {result.run_name}"))
    if result.is_detached and result.alive:
        lines.append(_line("cancel", f"nemo experiment cancel {result.run_name} 0   (0 is the first task)"))
    for task in result.tasks:
        if task.state in {"failed", "unknown"}:
            lines += ["", *_log_lines(task, result)]
    return printable("\n".join(lines))


def _task_line(task: TaskResult) -> str:
    took = "" if task.seconds is None else f"after {task.seconds:.1f} s"
    log = f"log {task.log}" if task.log and task.state != "not started" else ""
    job = f"job {task.job}" if task.job and not log else ""
    return "  ".join(filter(None, [f"{task.name:<{_LABEL - 2}}", task.state, took, job, log]))


def _log_lines(task: TaskResult, result: LaunchResult) -> Iterator[str]:
    number = [item.name for item in result.tasks].index(task.name)
    tail = log_tail(task.log)
    if not tail:
        yield f"{task.name}: `nemo experiment logs {result.run_name} {number}` shows its log"
        return
    yield f"{task.name}: end of {task.log}"
    yield from (f"  {line}" for line in tail)


def log_tail(log: str) -> list[str]:
    """Return the last lines of a log; empty if the file is not on this machine."""
    path = Path(log)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            content = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    lines = content.splitlines()[-_LOG_LINES:]
    return [line if len(line) <= _LINE_WIDTH else f"{line[:_LINE_WIDTH]} ..." for line in lines]


def describe_interrupt(result: LaunchResult) -> str:
    """Return what an interrupted launch leaves behind, and which tasks still run."""
    cancellations = [task.name for task in result.tasks if task.state == "cancelled"]
    waiting = [task.name for task in result.tasks if task.state == "not started"]
    alive = [f"{task.name} (job {task.job})" for task in result.alive]
    parts = ["interrupted"]
    if cancellations:
        parts.append(f"{', '.join(cancellations)} was ended")
    if waiting:
        parts.append(f"{', '.join(waiting)} was not started")
    if alive:
        parts.append(
            f"still on the cluster: {', '.join(alive)}; cancel with `nemo experiment cancel {result.run_name} 0`, "
            "where 0 is the first task"
        )
    parts.append(f"left behind: the run folder {result.run_folder}, nemo-run's {result.experiment_folder}")
    return printable("; ".join(parts))
