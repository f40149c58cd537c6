"""From a plan to an artifact at its place, for builds and re-packs: where tasks run, what is kept, what is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bridgepack.data import output as staging
from bridgepack.data.build_errors import Kept, kept_on_errors
from bridgepack.data.files import make_folders
from bridgepack.data.results import ArtifactPlan, BuildOptions, BuildResult
from bridgepack.data.stages.range_tasks import RangeResult
from bridgepack.data.stages.write import ArtifactWriter
from bridgepack.data.store.records import write_build_record
from bridgepack.data.store.store import TokenStore, opened_store
from bridgepack.data.tasks import InThisProcess, Progress, Runner
from bridgepack.data.workers.memory import plan_memory
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_cluster import ray_runner
from bridgepack.data.workers.ray_tasks import WorkerSetup

#: What becomes of the ranges of each split's files, and what runs the tasks.
Tokens = tuple[Runner, Mapping[str, Sequence[RangeResult]]]


def produce(
    plan: ArtifactPlan,
    store_folder: Path,
    tokens: Callable[[Path, TokenStore, Kept], AbstractContextManager[Tokens]],
    progress: Progress,
) -> BuildResult:
    """Make the artifact of a plan from tokens in the store, and put it in its place once it is complete.

    Args:
        plan: what to make.
        store_folder: of the token store.
        tokens: makes sure of the tokens, given the working folder, the store and what takes note of what is kept.
        progress: told how far it is.

    Raises:
        BridgepackError: as `tokens` and `ArtifactWriter.write`; what cannot be written is an ArtifactError.
        BuildInterrupted: by Ctrl-C, saying what is kept.
    """
    kept = Kept(output=str(plan.output), store=str(store_folder))
    with (
        kept_on_errors(kept),
        staging.staging(plan.output, f"{plan.spec.fingerprint}-{plan.spec.build}") as folder,
        opened_store(store_folder) as store,
    ):
        make_folders(folder / staging.WORK)
        with tokens(folder, store, kept) as (runner, results):
            write_build_record(store, plan.output, plan.spec.fingerprint, results)
            writer = ArtifactWriter(
                spec=plan.spec, folder=folder, runner=runner, progress=progress, watch=kept.add_shard
            )
            manifest = writer.write(results)
        staging.move_into_place(folder / staging.ARTIFACT, plan.output)
    return BuildResult(
        output=plan.output,
        manifest=manifest,
        was_built_before=False,
        replaced_fingerprint=plan.existing.fingerprint if plan.existing is not None else None,
        kept=kept,
    )


@contextmanager
def tasks_runner(
    workers: WorkerPool | InThisProcess,
    options: BuildOptions,
    num_workers: int,
    shared: Sequence[Path],
    progress: Progress,
    *,
    load: Callable[[], dict[str, Any]] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Runner, int]]:
    """Give what runs the tasks, Ray or this machine, and how much text its workers tokenise together.

    Args:
        workers: of this machine; used where the options do not say Ray.
        options: how the build works.
        num_workers: processes of this machine that pay for their start.
        shared: folders that every node must see.
        progress: told how many nodes there are.
        load: what a process runs before its first task.
        identity: what that must give on every node.
    """
    if options.ray is not None:
        setup = WorkerSetup(folder=str(Path.cwd()), memory_bytes=options.memory_bytes, load=load, identity=identity)
        with ray_runner(options.ray, setup=setup, shared=shared, progress=progress) as runner:
            yield runner, plan_memory(options.memory_bytes, runner.slots_per_node).text_bytes
        return
    memory = plan_memory(options.memory_bytes, num_workers)
    if isinstance(workers, WorkerPool):
        workers.widen(memory.num_workers, memory.workers_bytes, load)
    yield workers, memory.text_bytes
