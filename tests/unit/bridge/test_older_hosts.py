"""A recipe's settings in the host, where each comes from, and what has no place in releases before 0.6."""

from typing import Any

import pytest

from bridgepack.bridge.wiring import Packs, Setting, host_settings
from bridgepack.bridge.writing.older_hosts import older_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host.release import RELEASES, release_of
from tests.support.catalogue import SMALL
from tests.support.small_builds import with_changes

OLDER = ("0.3.1", "0.4.2", "0.5.1")
FEWER_CONTEXT_RANKS = {"parallelism__context_parallel_size": 4, "parallelism__eval_context_parallel_size": 2}
PACKS = Packs(folder="packs", num_packs={"training": 64, "validation": 8})


def _settings(version: str, *, packs: Packs | None = PACKS, **changes: Any) -> dict[str, Setting]:
    recipe = {
        **SMALL,
        "data": {"train": "a.jsonl", "validation": "b.jsonl"},
        "tokenizer": {"name_or_path": "tokenizer", "chat_template": "chat.jinja"},
        "packing": {"packed_sequence_size": 4096, "max_sequence_length": 2048},
        "batch": {"global_batch_size": 8, "eval_global_batch_size": 8},
    }
    changed = with_changes(SFTRecipe.from_mapping(recipe), changes)
    return {one.path: one for one in older_settings(host_settings(changed, packs=packs), release_of(version))}


@pytest.mark.parametrize(
    ("changes", "field", "refusing"),
    [
        ({"batch__eval_global_batch_size": 4}, "batch.eval_global_batch_size", ("0.3.1", "0.4.2")),
        (FEWER_CONTEXT_RANKS, "parallelism.eval_context_parallel_size", ("0.3.1", "0.4.2")),
        ({"environment": {"NCCL_DEBUG": "INFO"}}, "environment.NCCL_DEBUG", OLDER),
        ({"packs": None}, "schedule.num_epochs", OLDER),
        ({"packing__mode": "in_batch", "packing__max_sequence_length": None}, "packing.mode", OLDER),
    ],
)
def test_what_would_change_the_run_is_refused(changes: dict[str, Any], field: str, refusing: tuple[str, ...]) -> None:
    for version in OLDER:
        if version in refusing:
            with pytest.raises(ConfigError, match=f"^{field} is "):
                _settings(version, **changes)
        else:
            assert _settings(version, **changes)


def test_every_version_since_03_is_of_one_release() -> None:
    versions = ["0.3.0", "0.3.1", "0.4.0", "0.4.1", "0.4.2", "0.5.0", "0.5.1", "0.6.0", "0.6.2", "0.7.0", "1.0"]

    assert [sum(version in release for release in RELEASES) for version in versions] == [1] * len(versions)
    assert release_of("0.6.2rc1") is release_of("0.6.2+e6f2d1e") is release_of("0.6.2")
    assert release_of("0.5.0") is not release_of("0.5.1")
    for text in ("0.2.0", "nothing"):
        with pytest.raises(ConfigError, match="--bridge-version is"):
            release_of(text)


BASE: dict[str, Any] = {
    **SMALL,
    "packing": {"packed_sequence_size": 4096},
    "parallelism": {"context_parallel_size": 2, "num_gpus": 16},
    "batch": {"global_batch_size": 32},
}


def settings(changes: dict[str, Any] | None = None, **sections: Any) -> dict[str, Setting]:
    recipe = SFTRecipe.from_mapping({**BASE, **sections}).override(changes or {})
    return {setting.path: setting for setting in host_settings(recipe)}


def test_what_is_written_is_told_from_defaults_and_what_follows() -> None:
    found = settings({"cuda_graphs": {"implementation": "full_iteration"}})
    assert (found["model.context_parallel_size"].value, found["model.context_parallel_size"].origin) == (2, "recipe")
    assert (found["model.cuda_graph_impl"].value, found["model.cuda_graph_impl"].origin) == ("full_iteration", "recipe")
    assert found["model.tensor_model_parallel_size"].origin == found["optimizer.weight_decay"].origin == "default"
    multiple = found["dataset.offline_packing_specs.pad_seq_to_mult"]
    assert (multiple.value, multiple.origin, multiple.field) == (4, "derived", "packing.pad_seq_to_mult")
    assert multiple.because


def test_token_slots_become_packs_that_ranks_share_evenly() -> None:
    found = [settings(batch={"tokens_per_step": slots}) for slots in (131072, 4096, 150000)]
    assert [one["train.global_batch_size"].value for one in found] == [32, 8, 40]


def test_the_learning_rate_follows_the_method() -> None:
    assert settings()["optimizer.lr"].value == 5e-6
    assert settings(method={"kind": "lora"})["optimizer.lr"].value == 1e-4
    assert settings(optimizer={"lr": 2e-5})["optimizer.lr"].origin == "recipe"
