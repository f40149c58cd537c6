"""Which validation sets a run's evaluations read, by the order in which the host's loader reads their packs."""

import numpy as np

from bridgepack.bridge.replay_settings import evaluation_schedule, replay_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.geometry import IntArray
from bridgepack.records import VALIDATION, RunConfig
from bridgepack.replay.order import PackOrder
from bridgepack.rules.judging.facts import EvaluatedSets

#: Evaluations that are looked at; a later one reads other packs of the same sets.
_MOST_EVALUATIONS = 100


def evaluated_sets(
    artifact: Artifact, source: SFTRecipe | RunConfig, *, world_size: int | None, version: str
) -> EvaluatedSets:
    """Return how many of a run's evaluations read each validation set of an artifact; no set where packs mix sources.

    Raises:
        ConfigError: a setting is missing, or the host does not run with it.
        ArtifactError: the plan cannot be read.
    """
    record = artifact.manifest.split(VALIDATION)
    if record is None or any(item.num_packs is None for item in record.sources):
        return EvaluatedSets(num_evaluations=0, num_of_set={})
    num_packs = {split.name: split.statistics.num_packs for split in artifact.manifest.splits}
    schedule = evaluation_schedule(source, num_packs=num_packs, version=version)
    settings = replay_settings(source, num_packs=num_packs, world_size=world_size, version=version, split=VALIDATION)
    order, source_of_pack = PackOrder(settings), _sources_of_packs(artifact)
    interval = schedule.eval_interval or 0
    end = interval * _MOST_EVALUATIONS if schedule.num_steps is None else schedule.num_steps
    steps = range(interval, end + 1, interval) if interval else range(0)
    evaluations = [batches for step in steps if (batches := schedule.batches_after(step))][:_MOST_EVALUATIONS]
    counts = np.zeros(len(record.sources), dtype=np.int64)
    for batches in evaluations:
        packs = [
            order.packs_at(batch, rank) for batch in batches for rank in range(settings.topology.data_parallel_size)
        ]
        evaluation = np.concatenate(packs)
        counts[np.unique(source_of_pack[evaluation[evaluation >= 0]])] += 1  # fillers are below 0
    names = ["/".join(item.name) for item in record.sources]
    has_packs = [bool(item.num_packs) for item in record.sources]
    return EvaluatedSets(
        num_evaluations=len(evaluations),
        num_of_set={
            name: count for name, count, is_there in zip(names, counts.tolist(), has_packs, strict=True) if is_there
        },
    )


def _sources_of_packs(artifact: Artifact) -> IntArray:
    """Return the source of each validation pack; shape [num_packs]."""
    columns = zip(*iter_plan_columns(artifact, VALIDATION, ("pack", "file_index")), strict=True)
    packs, files = (np.concatenate(parts) for parts in columns)
    record = artifact.split(VALIDATION)
    sources = np.zeros(record.statistics.num_packs, dtype=np.int64)
    sources[packs] = np.array([item.source for item in record.inputs], dtype=np.int64)[files]
    return sources
