"""Settings under the names of each release before 0.6, what has no place there, and which release a version is of."""

from typing import Any

import pytest

from bridgepack.bridge.wiring import Packs, Setting, host_settings
from bridgepack.bridge.writing.older_hosts import older_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.releases import RELEASES, release_of

PACKS = Packs(folder="packs", num_packs={"training": 64, "validation": 8})
NEW, OLD = "dataset.offline_packing_specs", "dataset.packed_sequence_specs"
BEFORE_06 = ("0.3.0", "0.3.1", "0.4.0", "0.4.2", "0.5.0", "0.5.1")


def _settings(version: str, *, packs: Packs | None = PACKS, **changes: Any) -> dict[str, Setting]:
    recipe = {
        "name": "small",
        "data": {"train": "a.jsonl", "validation": "b.jsonl"},
        "tokenizer": {"name_or_path": "tokenizer", "chat_template": "chat.jinja"},
        "packing": {"packed_sequence_size": 4096, "max_sequence_length": 2048},
        "batch": {"global_batch_size": 8, "eval_global_batch_size": 8},
    }
    changed = SFTRecipe.from_mapping(recipe).override(
        {name.replace("__", "."): value for name, value in changes.items()}
    )
    return {one.path: one for one in older_settings(host_settings(changed, packs=packs), release_of(version))}


def _values(version: str, **changes: Any) -> dict[str, Any]:
    return {path: setting.value for path, setting in _settings(version, **changes).items()}


@pytest.mark.parametrize("version", BEFORE_06)
def test_packing(version: str) -> None:
    values = _values(version)

    assert not [path for path in values if path.startswith((NEW, "dataset.enable", "dataset.preprocessing"))]
    assert values[f"{OLD}.packed_sequence_size"] == 4096
    assert values[f"{OLD}.packed_metadata_path"] == "packs/bridge_metadata.json"
    is_npy = version.startswith("0.3")
    assert values[f"{OLD}.packed_train_data_path"] == f"packs/training{'/training_4096.npy' if is_npy else ''}"
    assert values[f"{OLD}.packed_val_data_path"] == f"packs/validation{'/validation_4096.npy' if is_npy else ''}"
    assert f"{OLD}.max_single_sequence_length" not in values


@pytest.mark.parametrize(
    ("version", "section", "modules"),
    [
        ("0.3.1", "train", "cuda_graph_scope"),
        ("0.4.2", "validation", "cuda_graph_scope"),
        ("0.5.1", "validation", "cuda_graph_modules"),
    ],
)
def test_evaluation_and_graphs_have_other_names(version: str, section: str, modules: str) -> None:
    values = _values(version, cuda_graphs__implementation="transformer_engine", cuda_graphs__modules=["mlp"])

    assert (values[f"{section}.eval_iters"], values[f"model.{modules}"]) == (1, ["mlp"])


@pytest.mark.parametrize(
    ("changes", "field", "refusing"),
    [
        ({"batch__eval_global_batch_size": 4}, "batch.eval_global_batch_size", ("0.3.1", "0.4.2")),
        (
            {"parallelism__context_parallel_size": 4, "parallelism__eval_context_parallel_size": 2},
            "parallelism.eval_context_parallel_size",
            ("0.3.1", "0.4.2"),
        ),
        ({"environment": {"NCCL_DEBUG": "INFO"}}, "environment.NCCL_DEBUG", ("0.3.1", "0.4.2", "0.5.1")),
        ({"packs": None}, "schedule.num_epochs", ("0.3.1", "0.4.2", "0.5.1")),
        (
            {"packing__mode": "in_batch", "packing__max_sequence_length": None},
            "packing.mode",
            ("0.3.1", "0.4.2", "0.5.1"),
        ),
    ],
)
def test_what_would_change_the_run_is_refused(changes: dict[str, Any], field: str, refusing: tuple[str, ...]) -> None:
    for version in ("0.3.1", "0.4.2", "0.5.1"):
        if version in refusing:
            with pytest.raises(ConfigError, match=f"^{field} is "):
                _settings(version, **changes)
        else:
            assert _settings(version, **changes)


@pytest.mark.parametrize(
    ("version", "pads", "multiple"), [("0.3.1", True, 1), ("0.4.2", True, 1), ("0.5.0", True, 1), ("0.5.1", False, 8)]
)
def test_context_parallelism_needs_offsets_of_one_length_before_051(version: str, pads: bool, multiple: int) -> None:
    found = _settings(version, parallelism__context_parallel_size=4)

    padded, aligned = found[f"{OLD}.pad_cu_seqlens"], found[f"{OLD}.pad_seq_to_mult"]
    assert (padded.value, aligned.value) == (pads, multiple)
    assert not pads or (padded.origin == aligned.origin == "derived" and padded.because)
    without = _values(version, packing__pad_seq_to_mult=8)
    assert (without[f"{OLD}.pad_cu_seqlens"], without[f"{OLD}.pad_seq_to_mult"]) == (False, 8)


@pytest.mark.parametrize("version", BEFORE_06)
def test_padded_offsets_are_physical_ones_only(version: str) -> None:
    assert _values(version, packing__pad_cu_seqlens=True, packing__pad_seq_to_mult=8)[f"{OLD}.pad_seq_to_mult"] == 1


def test_every_version_since_03_is_of_one_release() -> None:
    versions = ["0.3.0", "0.3.1", "0.4.0", "0.4.1", "0.4.2", "0.5.0", "0.5.1", "0.6.0", "0.6.2", "0.7.0", "1.0"]

    assert [sum(version in release for release in RELEASES) for version in versions] == [1] * len(versions)
    assert release_of("0.6.2rc1") is release_of("0.6.2+e6f2d1e") is release_of("0.6.2")
    assert release_of("0.5.0") is not release_of("0.5.1")
    for text in ("0.2.0", "nothing"):
        with pytest.raises(ConfigError, match="--bridge-version is"):
            release_of(text)
