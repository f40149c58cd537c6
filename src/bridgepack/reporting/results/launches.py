"""The blocks of launches: what one will do, what it would submit, and how its tasks ended."""

from collections.abc import Iterator

from bridgepack.records.launches import DryRun, LaunchOutline, LaunchResult, TaskResult, TaskScript
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Code, Column, Figure, Figures, Line, Section, Table, Verdict
from bridgepack.reporting.results import shows

_LABEL = 12
_TASK_COLUMNS = (
    Column("Task", f"{{:<{_LABEL - 2}}}"),
    Column("State", "  {}"),
    Column("Seconds", "  after {} s", is_number=True),
    Column("Log", "  log {}"),
    Column("Job", "  job {}"),
)


def outline_blocks(outline: LaunchOutline) -> Iterator[Block]:
    """Yield what a launch will do: run, tasks, location of the packs, result of the check, notes."""
    tasks = ", ".join(f"{task} on {title}" for task, title in outline.executors.items())
    facts = {
        "run": outline.run_name,
        "recipe": outline.recipe,
        "cluster": outline.cluster,
        "tasks": tasks,
        "training": f"{outline.world_size} {'process' if outline.world_size == 1 else 'processes'}",
        "packs": outline.packs or f"none; packing.mode is {outline.packing_mode}",
        "run folder": outline.run_folder,
        "commit": _commit(outline),
        "check": _check(outline),
    }
    notes = [Figure(name="note", value=note) for note in outline.notes]
    yield Figures((*(Figure(name=name, value=value) for name, value in facts.items()), *notes), width=_LABEL)


def _commit(outline: LaunchOutline) -> str:
    if outline.git is None:
        return "none; this folder is in no git repository"
    dirty = {True: ", with changes that are not committed", False: "", None: ", which git did not compare in time"}
    return f"{outline.git['commit'][:12]}{dirty[outline.git['is_dirty']]}"


def _check(outline: LaunchOutline) -> str:
    codes = ", ".join(sorted(set(outline.warning_codes)))
    return (
        f"no errors, {count_text(len(outline.warning_codes), 'warning')}{f' ({codes})' if codes else ''}; "
        f"{outline.num_rules_run} rules run, {outline.num_rules_skipped} need the packs or the nodes"
    )


@shows
def dry_run_blocks(dry_run: DryRun) -> Iterator[Block]:
    """Yield what a launch will do, with the recipe and the scripts that would be submitted."""
    yield from outline_blocks(dry_run.outline)
    yield Section("", (Line("=== recipe"), Code(dry_run.recipe_text.strip())))
    for script in dry_run.scripts:
        yield Section("", tuple(_script(script)))
    yield Verdict(text="nothing was submitted or written")


def _script(script: TaskScript) -> Iterator[Block]:
    yield Line(f"=== {script.task}: {script.title}")
    if script.command:
        yield Line(script.command)
    yield Code(script.text.strip())


@shows
def launch_blocks(result: LaunchResult) -> Iterator[Block]:
    """Yield how a launch ended: a row for each task, what to do next, and the end of the log of one that failed."""
    yield Table(title="Tasks", columns=_TASK_COLUMNS, rows=[_cells(task) for task in result.tasks], indent=0)
    facts = {"run folder": result.run_folder}
    if any(task.job for task in result.tasks):
        facts["look again"] = f"nemo experiment status {result.run_name}"
    if result.is_detached and result.alive:
        facts["cancel"] = f"nemo experiment cancel {result.run_name} 0   (0 is the first task)"
    yield Figures(tuple(Figure(name=name, value=value) for name, value in facts.items()), width=_LABEL)
    for number, task in enumerate(result.tasks):
        if task.state in {"failed", "unknown"}:
            yield Section("", (_log_end(task, number, result.run_name),))


def _cells(task: TaskResult) -> tuple[str, ...]:
    log = task.log if task.state != "not started" else ""
    return (
        task.name,
        task.state,
        "" if task.seconds is None else f"{task.seconds:.1f}",
        log,
        "" if log else task.job,
    )


def _log_end(task: TaskResult, number: int, run_name: str) -> Line:
    if not task.log_end:
        return Line(f"{task.name}: `nemo experiment logs {run_name} {number}` shows its log")
    return Line(f"{task.name}: end of {task.log}", task.log_end)


def interrupt_blocks(result: LaunchResult) -> Iterator[Block]:
    """Yield what an interrupted launch leaves behind, and which tasks still run."""
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
    yield Line("; ".join(parts))
