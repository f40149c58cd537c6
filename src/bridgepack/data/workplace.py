"""Where an artifact is made: its locked working folder, the open token store, and the tasks' runner."""

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.data import output as staging
from bridgepack.data.files import make_folders
from bridgepack.data.identity import code_digest
from bridgepack.data.results import ArtifactPlan, BuildOptions, BuildResult, Kept
from bridgepack.data.stages.finish import RangeResult
from bridgepack.data.stages.write import ArtifactWriter
from bridgepack.data.store.builds import write_build_record
from bridgepack.data.store.store import TokenStore, opened_store
from bridgepack.data.tasks import InThisProcess, Progress, Runner
from bridgepack.data.workers.memory import plan_memory
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_runner import ray_runner
from bridgepack.data.workers.ray_tasks import WorkerSetup
from bridgepack.errors import ArtifactError
from bridgepack.records import ServedRecord

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class BuildInterrupted(KeyboardInterrupt):
    """Ctrl-C during a build; the text says what is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workplace:
    """Working folder and store for making one artifact."""

    plan: ArtifactPlan  #: the artifact to make
    folder: Path  #: working folder, locked
    store: TokenStore  #: open for reading and adding
    kept: Kept  #: record of finished work
    progress: Progress  #: is told about progress

    def finish(
        self, runner: Runner, results: dict[str, list[RangeResult]], served_record: ServedRecord | None = None
    ) -> BuildResult:
        """Return the result of the build, after writing the artifact from the results and moving it into place.

        Empties `results`, to free their memory. `served_record` compares a sample of the answers with what a server
        sends.
        """
        plan = self.plan
        write_build_record(self.store, plan.output, plan.spec.fingerprint, results)
        writer = ArtifactWriter(
            spec=plan.spec, folder=self.folder, runner=runner, progress=self.progress, watch=self.kept.add_shard
        )
        manifest = writer.write(results, served_record)
        staging.move_into_place(self.folder / staging.ARTIFACT, plan.output)
        return BuildResult(
            output=plan.output,
            manifest=manifest,
            was_built_before=False,
            replaced_fingerprint=plan.existing.fingerprint if plan.existing is not None else None,
            damage=plan.damage,
            kept=self.kept,
        )


@contextmanager
def workplace(plan: ArtifactPlan, store_folder: Path, progress: Progress) -> Iterator[Workplace]:
    """Yield the workplace of a plan's artifact; keeps finished work if the block is interrupted.

    Raises:
        ArtifactError: a file cannot be written.
        BuildInterrupted: on Ctrl-C; says what is kept.
    """
    kept_work = Kept(output=str(plan.output), store=str(store_folder))
    with (
        kept_on_errors(kept_work),
        staging.staging(plan.output, f"{plan.spec.fingerprint}-{code_digest()}") as folder,
        opened_store(store_folder) as store,
    ):
        make_folders(folder / staging.WORK)
        yield Workplace(plan=plan, folder=folder, store=store, kept=kept_work, progress=progress)


@contextmanager
def complete_on_interrupt(output: Path) -> Iterator[None]:
    """Turn Ctrl-C into a message that the artifact is complete."""
    try:
        yield
    except KeyboardInterrupt:
        raise BuildInterrupted(f"the artifact is complete at {str(output)!r}") from None


@contextmanager
def kept_on_errors(kept_work: Kept) -> Iterator[None]:
    """Turn Ctrl-C (BuildInterrupted) and failed writes (ArtifactError) into messages that say what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise BuildInterrupted(str(kept_work)) from None
    except OSError as error:
        place = str(error.filename) if error.filename else kept_work.output
        root = (
            kept_work.store
            if Path(place).absolute().is_relative_to(Path(kept_work.store).absolute())
            else kept_work.output
        )
        cure = "free space" if error.errno in _NO_SPACE else "make it writable"
        raise ArtifactError(
            f"{root!r} cannot be written: {error.strerror or error} ({place}). Kept: {kept_work}. First "
            f"{cure}, or choose another --output or --store."
        ) from error


@contextmanager
def tasks_runner(
    workers: WorkerPool | InThisProcess,
    options: BuildOptions,
    num_workers: int,
    place: Workplace,
    *,
    load: Callable[[], dict[str, Any]] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Runner, int]]:
    """Yield (runner of the tasks, maximum bytes of text per batch of rows).

    `num_workers` is the number of processes on this machine for which starting pays off; with Ray, `workers` run tasks
    that crash Ray's. A process first runs `load`, whose result must be `identity` on every node.
    """
    memory = plan_memory(options.memory_bytes, num_workers if options.ray is None else 1)
    try:
        if isinstance(workers, WorkerPool):
            workers.widen(memory.num_workers, memory.workers_bytes, load)
        if options.ray is None:
            yield workers, memory.text_bytes
            return
        folders = tuple(map(str, (Path.cwd(), place.folder, place.store.folder)))
        setup = WorkerSetup(folders=folders, memory_bytes=options.memory_bytes, load=load, identity=identity)
        with ray_runner(options.ray, setup, workers, place.progress) as runner:
            yield runner, plan_memory(options.memory_bytes, runner.slots_per_node).text_bytes
    except BaseException:
        if isinstance(workers, WorkerPool):
            workers.close()  # else they would still write while unfinished files are removed from the store
        raise
