"""Renders launches as text for a terminal: the plan, the result, and the list of executors."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bridgepack.config.cluster.listing import ExecutorListing, ListedField, ListedSection
from bridgepack.reporting.text import printable, terminal_width

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
    number = [one.name for one in result.tasks].index(task.name)
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
    ended = [task.name for task in result.tasks if task.state == "cancelled"]
    waiting = [task.name for task in result.tasks if task.state == "not started"]
    alive = [f"{task.name} (job {task.job})" for task in result.alive]
    parts = ["interrupted"]
    if ended:
        parts.append(f"{', '.join(ended)} was ended")
    if waiting:
        parts.append(f"{', '.join(waiting)} was not started")
    if alive:
        parts.append(
            f"still on the cluster: {', '.join(alive)}; cancel with `nemo experiment cancel {result.run_name} 0`, "
            "where 0 is the first task"
        )
    parts.append(f"left behind: the run folder {result.run_folder}, nemo-run's {result.experiment_folder}")
    return printable("; ".join(parts))


def describe_executors(listing: ExecutorListing) -> str:
    """Return all kinds of executors with their fields, then all kinds of their parts."""
    intro = "Executors of a cluster file. `*` marks a field that must be set; [...] is the default."
    blocks = [
        "\n".join(_wrapped(intro)),
        *(_section_block(section, "executor.kind") for section in listing.executors),
    ]
    if not listing.knows_classes:
        install = 'in a clone: pip install -e ".[launch]"'
        blocks.append("\n".join(_wrapped(f"nemo-run is not installed here; to see the classes of nemo_run, {install}")))
    for name, sections in listing.parts.items():
        blocks += [_section_block(section, f"executor.{name}.kind") for section in sections]
    return "\n\n".join(blocks)


def _section_block(section: ListedSection, path: str) -> str:
    head = f"{path}: {section.kind}" if section.kind else path.removesuffix(".kind")
    if section.kind == "nemo_run" and section.nemo_run_class:
        head += f", class: {section.nemo_run_class} - {section.title}"
    else:
        head += f" - {section.title}{f' (nemo_run.{section.nemo_run_class})' if section.nemo_run_class else ''}"
    lines = _wrapped(head, rest="  ")
    if section.needs:
        lines.append(f'  needs pip install "nemo-run[{section.needs}]"')
    if section.no_launch:
        lines += _wrapped(f"not for launches: {section.no_launch}", "  ", "    ")
    return "\n".join([*lines, *(line for field in section.fields for line in _field_lines(field))])


def _field_lines(field: ListedField) -> Iterator[str]:
    is_text = isinstance(field.default, str) and field.default
    value = field.default if is_text else json.dumps(field.default, ensure_ascii=False)
    default = "" if field.is_required or field.default is None else f" [{value}]"
    head = f"{field.name}{'*' if field.is_required else ''}: {field.type}{default}"
    for text, first in ((head, "  "), (field.meaning, "      ")):
        yield from _wrapped(text, first, "      ")


def _wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        terminal_width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
