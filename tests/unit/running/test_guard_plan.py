"""What packs say about a step: which are due, their boundaries, the tokens that they train."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig
from bridgepack.running.guard.facts import Boundaries, digest_of
from bridgepack.running.guard.plan import Planner
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines

START: dict[str, Any] = {"world_size": 2, "version": "0.6.2", "num_steps_done": 0, "num_packs_read": 0}
DATASET = "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig"


@pytest.fixture
def packs(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return an artifact of 8 packs of 16: sequences of 9 and 7 runtime tokens, one prompt token in each."""
    rows = []
    for index in range(8):
        rows += [tokenized_row(*range(20 + index, 30 + index)), tokenized_row(*range(120 + index, 128 + index))]
    recipe = tokenized_recipe(write_json_lines(tmp_path / "rows.jsonl", rows), chatml_tokenizer)
    return build(recipe, tmp_path / "packs").output


def _config(packs: Path, **changes: Any) -> RunConfig:
    specs = {"packed_sequence_size": 16, "pad_seq_to_mult": 1, "pad_cu_seqlens": False}
    dataset: dict[str, Any] = {
        "_target_": DATASET,
        "enable_offline_packing": True,
        "offline_packing_specs": {**specs, "packed_train_data_path": str(packs / "training")},
        "dataset_kwargs": {"pad_to_max_length": True},
        "seed": 1234,
        "dataloader_type": "batch",
        **changes,
    }
    train = {"micro_batch_size": 1, "global_batch_size": 4, "train_iters": 10}
    return RunConfig(values={"model": {}, "dataset": dataset, "train": train}, is_complete=True, place="the run")


def test_a_step_is_predicted_for_every_replica(packs: Path) -> None:
    """Over an epoch every label of every sequence is trained: all but its first token."""
    planner = Planner(_config(packs), packs, **START)
    steps = [planner.plan_step(step, rank) for step in (1, 2) for rank in (0, 1)]

    assert sorted(pack for step in steps for pack in step.packs) == [str(pack) for pack in range(8)]
    assert all(step.boundaries == (Boundaries(physical=(0, 9, 16), logical=(0, 9, 16)),) * 2 for step in steps)
    assert all(step.trained == (16, 16) for step in steps)
    labels = [*range(21, 30), *range(121, 128)]
    assert sum(step.labels for step in steps) == sum(label + index for index in range(8) for label in labels)
    resumed = Planner(_config(packs), packs, **START | {"num_steps_done": 1, "num_packs_read": 4})
    assert resumed.plan_step(2, 1) == planner.plan_step(2, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"enable_offline_packing": False}, "packs of an artifact"),
        ({"_target_": "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig"}, "DirectHFSFTDataset"),
        ({"offline_packing_specs": {"packed_train_data_path": "/elsewhere"}}, "the run reads /elsewhere"),
        ({"dataset_kwargs": {"answer_only_loss": False}}, "dataset_kwargs.answer_only_loss"),
        ({"dataloader_type": "external"}, "dataloader_type is 'external'"),
    ],
)
def test_what_cannot_be_predicted_is_said(packs: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Planner(_config(packs, **changes), packs, **START)


def test_offsets_end_with_the_first_of_equal_last_ones() -> None:
    import numpy as np

    found = Boundaries.from_offsets(np.array([0, 5, 8, 16, 16, 16]), np.array([0, 4, 7, 7, 7, 7]))

    assert found == Boundaries(physical=(0, 5, 8, 16), logical=(0, 4, 7))
    assert found.describe() == "3 sequences, cu_seqlens [0, 5, 8, 16], without padding [0, 4, 7]"


def test_a_digest_tells_order_and_number_of_micro_batches() -> None:
    first, second = Boundaries(physical=(0, 8), logical=(0, 8)), Boundaries(physical=(0, 5, 8), logical=(0, 5, 8))
    digests = {digest_of(batches) for batches in ([first], [first, first], [first, second], [second, first])}

    assert len(digests) == 4
    assert all(0 < digest < 2**62 for digest in digests)
