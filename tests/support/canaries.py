"""Artifacts and recipes for the canary, and comparisons that share one process with the host in it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.api import build
from bridgepack.canaries.comparison import Comparison
from bridgepack.canaries.inputs import PackedInput
from bridgepack.canaries.packs import chosen_packs
from bridgepack.canaries.processes import HostProcess
from bridgepack.canaries.records import (
    CanaryOptions,
    CanaryReport,
    HostFacts,
    Precision,
    SeenBatch,
    SeenRank,
    topology_of,
)
from bridgepack.canaries.targets import open_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations
from bridgepack.host import TARGET
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.settings import Topology
from bridgepack.replay.slicing import slice_row
from tests.support.small_builds import small_recipe
from tests.support.tiny_recipes import write_model

#: Of a dense recipe on a machine without a GPU.
FACTS = HostFacts(
    provider="GPTModelProvider",
    model={"num_attention_heads": 8, "num_query_groups": 4},
    is_moe=False,
    sequence_parallel=False,
    pad_to_max_length=True,
    pad_cu_seqlens=False,
    notes=(),
    versions={},
    bridge_version=TARGET.bridge,
    num_gpus=0,
    has_transformer_engine=False,
)


def seen_rank(rank: int = 0, **facts: Any) -> SeenRank:
    """Return what a rank of its own saw of pack 0, with these facts of it."""
    places = dict.fromkeys(("tensor", "pipeline", "context", "data"), 0)
    numbers: dict[str, Any] = {"batches": (), "loss": 6.0, "num_trained": 3, "gradients": {}, "cuts": {}}
    return SeenRank(**{"rank": rank, "rows": (0,), **places, **numbers, **facts})


def packed_row(input_ids: Iterable[int], loss_mask: Sequence[int], seq_start_id: Sequence[int]) -> PackedRow:
    return PackedRow(
        input_ids=np.array([*input_ids], dtype=np.int32),
        loss_mask=np.array(loss_mask, dtype=np.int8),
        seq_start_id=np.array(seq_start_id, dtype=np.int32),
    )


def seen_batch(row: PackedRow, settings: CollateSettings, *, context: tuple[int, int] = (0, 1), **facts: Any) -> Any:
    """Return the batch that one of so many context ranks should see of a pack, with other facts of it."""
    expected = predict_batch([row], settings)
    slices = slice_row(expected, 0, context[1])
    names = ("tokens", "position_ids", "labels", "loss_mask")
    seen = {name: getattr(slices, name)[context[0]] for name in names}
    offsets, longest = expected.physical_offsets[0].astype(np.int64), int(expected.max_seqlen.max())
    return SeenBatch(**{"row": 0, **seen, "offsets": offsets, "max_seqlen": longest, "was_called": True, **facts})


def packed_input(row: PackedRow, *others: PackedRow, size: int, topology: Topology | None = None) -> PackedInput:
    """Return packs 7, 9, ... in rows of a size, as they are given to a topology."""
    rows = (row, *others)
    return PackedInput(
        topology=topology or topology_of(),
        numbers=tuple(range(7, 7 + 2 * len(rows), 2)),
        rows=rows,
        intended=rows,
        settings=CollateSettings(
            release=TARGET, packed_sequence_size=size, pad_seq_to_mult=1, eos_token_id=0, pad_to_max_length=True
        ),
        is_laid_out_anew=False,
        entries=(),
    )


def canary_recipe(work: Path, model: str | None = "dense", **changes: Any) -> SFTRecipe:
    """Return a recipe of small packs; `changes` are sections."""
    sections = {
        "name": f"canary-{model}",
        "packing": {"packed_sequence_size": 256, "max_sequence_length": 128},
        "preprocessing": {"kind": "chat", "over_long": "truncate"},
        **({"model": {"name": str(work / model)}} if model else {}),
    }
    return small_recipe(work / "training.jsonl", work / "tokenizer", **{**sections, **changes})


def write_inputs(work: Path) -> None:
    write_docstring_conversations(work / "training.jsonl", limit=120)
    train_chatml_tokenizer(work / "tokenizer", iter_texts(work / "training.jsonl"), vocab_size=512)
    for model in ("dense", "moe"):
        write_model(work / model, model)


def build_artifact(work: Path, name: str, recipe: SFTRecipe) -> Path:
    return Path(build(recipe, output=work / name).output)


def compare(
    host: HostProcess,
    folder: Path,
    target: Path,
    topologies: list[Topology],
    *,
    keeps_boundaries: bool = False,
    precisions: tuple[Precision, ...] = ("float64",),
    **overrides: Any,
) -> CanaryReport:
    """Return what layouts compute, as `run_canary` does."""
    compared = comparison(host, folder, target, precisions=precisions, **overrides)
    return compared.report(topologies, fault=None, keeps_boundaries=keeps_boundaries, notes=[])


def comparison(
    host: HostProcess,
    folder: Path,
    target: Path,
    *,
    precisions: tuple[Precision, ...] = ("float64",),
    num_packs: int = 2,
    **overrides: Any,
) -> Comparison:
    """Return what compares, until another recipe is opened; `overrides` change the recipe, dots as `__`.

    Two packs are a micro batch for each of two replicas, and two for one; a rank takes 0.2 CPU seconds for each.
    """
    changes = {path.replace("__", "."): value for path, value in overrides.items()}
    options = CanaryOptions(timeout_s=600, overrides=changes, num_packs=num_packs)
    opened = open_target(str(target), options)
    folder.mkdir(parents=True)
    facts = host.open(opened.recipe.model_dump(mode="json", exclude_unset=True), opened.artifact, folder)
    chosen = chosen_packs(
        opened.rows, eos_token_id=opened.eos_token_id, max_tokens=options.max_tokens, release=facts.release
    )
    return Comparison(host, facts, opened, chosen, options, folder=folder, kernel="reference", precisions=precisions)
