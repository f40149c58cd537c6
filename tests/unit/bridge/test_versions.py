"""Settings under the names of each version, what is lost on the way, and which release a version belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from bridgepack.bridge.versions import RELEASES, VersionSettings, release_of, settings_for
from bridgepack.bridge.wiring import Packs, Setting, host_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

PACKS = Packs(folder="packs", num_packs={"training": 64, "validation": 8})
NEW, OLD = "dataset.offline_packing_specs", "dataset.packed_sequence_specs"
BEFORE_06 = ("0.3.0", "0.3.1", "0.4.0", "0.4.2", "0.5.0", "0.5.1")


def _settings(*, packs: Packs | None = PACKS, **changes: Any) -> tuple[Setting, ...]:
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
    return host_settings(changed, packs=packs)


def _lost(mapped: VersionSettings) -> dict[str, str]:
    return {item.setting.path: item.instead for item in mapped.lost}


def test_the_newest_version_has_the_settings_as_they_are() -> None:
    settings = _settings()

    for version in ("0.6.0", "0.6.2", "0.7.0"):
        mapped = settings_for(settings, version)
        assert (mapped.settings, mapped.lost) == (settings, ())


@pytest.mark.parametrize("version", BEFORE_06)
def test_packing_before_06(version: str) -> None:
    values = settings_for(_settings(), version).values()

    assert not [path for path in values if path.startswith((NEW, "dataset.enable", "dataset.preprocessing"))]
    assert values[f"{OLD}.packed_sequence_size"] == 4096
    assert values[f"{OLD}.packed_metadata_path"] == "packs/bridge_metadata.json"
    assert values[f"{OLD}.packed_train_data_path"] == (
        "packs/training/training_4096.npy" if version.startswith("0.3") else "packs/training"
    )
    assert values[f"{OLD}.packed_val_data_path"] == (
        "packs/validation/validation_4096.npy" if version.startswith("0.3") else "packs/validation"
    )
    assert f"{OLD}.max_single_sequence_length" not in values
    assert settings_for(_settings(), version).lost == ()


def test_evaluation_and_graphs_have_other_names() -> None:
    settings = _settings(cuda_graphs__implementation="transformer_engine", cuda_graphs__modules=["mlp"])
    num_checked = 0
    for version, section, modules in [
        ("0.3.1", "train", "cuda_graph_scope"),
        ("0.4.2", "validation", "cuda_graph_scope"),
        ("0.5.1", "validation", "cuda_graph_modules"),
        ("0.6.2", "validation", "cuda_graph_modules"),
    ]:
        values = settings_for(settings, version).values()
        assert values[f"{section}.eval_iters"] == 1
        assert values[f"model.{modules}"] == ["mlp"]
        num_checked += 1
    assert num_checked == 4


@pytest.mark.parametrize(
    ("changes", "path", "versions"),
    [
        ({"batch__eval_global_batch_size": 4}, "validation.eval_global_batch_size", ("0.3.1", "0.4.2")),
        (
            {"parallelism__context_parallel_size": 4, "parallelism__eval_context_parallel_size": 2},
            "dist.eval_context_parallel_size",
            ("0.3.1", "0.4.2"),
        ),
        ({"environment": {"NCCL_DEBUG": "INFO"}}, "env_vars.NCCL_DEBUG", ("0.3.1", "0.4.2", "0.5.1")),
    ],
)
def test_what_would_change_the_run_is_said(changes: dict[str, Any], path: str, versions: tuple[str, ...]) -> None:
    settings = _settings(**changes)

    lost = {version: _lost(settings_for(settings, version)) for version in ("0.3.1", "0.4.2", "0.5.1", "0.6.2")}

    assert [version for version in lost if path in lost[version]] == list(versions)
    assert all(found.keys() <= {path} for found in lost.values())


def test_without_packs_what_makes_them_and_how_long_a_run_is_are_lost() -> None:
    assert _lost(settings_for(_settings(packs=None), "0.5.1")).keys() == {
        "dataset.preprocessing",
        f"{NEW}.max_single_sequence_length",
        "tokenizer.chat_template_path",
        "train.num_epochs",
    }
    assert _lost(settings_for(_settings(packs=None), "0.6.2")) == {}


def test_packing_in_the_batch_has_no_place_before_06() -> None:
    settings = _settings(packing__mode="in_batch", packing__max_sequence_length=None)

    assert "dataset.enable_in_batch_packing" in _lost(settings_for(settings, "0.5.1"))


@pytest.mark.parametrize(
    ("version", "pads", "multiple"),
    [("0.3.1", True, 1), ("0.4.2", True, 1), ("0.5.0", True, 1), ("0.5.1", False, 8), ("0.6.2", False, 8)],
)
def test_context_parallelism_needs_offsets_of_one_length_before_051(version: str, pads: bool, multiple: int) -> None:
    mapped = settings_for(_settings(parallelism__context_parallel_size=4), version)

    found = {setting.path.rpartition(".")[2]: setting for setting in mapped.dataset}
    assert (found["pad_cu_seqlens"].value, found["pad_seq_to_mult"].value) == (pads, multiple)
    if pads:
        assert found["pad_cu_seqlens"].origin == found["pad_seq_to_mult"].origin == "derived"
        assert found["pad_cu_seqlens"].because
    without = settings_for(_settings(packing__pad_seq_to_mult=8), version).values()
    assert without[f"{mapped.release.specs_path}.pad_cu_seqlens"] is False
    assert without[f"{mapped.release.specs_path}.pad_seq_to_mult"] == 8


@pytest.mark.parametrize("version", BEFORE_06)
def test_padded_offsets_are_physical_ones_only_before_06(version: str) -> None:
    mapped = settings_for(_settings(packing__pad_cu_seqlens=True, packing__pad_seq_to_mult=8), version)

    assert mapped.values()[f"{OLD}.pad_seq_to_mult"] == 1


def test_every_version_since_03_is_of_one_release() -> None:
    versions = ["0.3.0", "0.3.1", "0.4.0", "0.4.1", "0.4.2", "0.5.0", "0.5.1", "0.6.0", "0.6.2", "0.7.0", "1.0"]

    assert [sum(version in release for release in RELEASES) for version in versions] == [1] * len(versions)
    assert release_of("0.6.2rc1") is release_of("0.6.2+e6f2d1e") is release_of("0.6.2")
    assert release_of("0.5.0") is not release_of("0.5.1")
    for text in ("0.2.0", "nothing"):
        with pytest.raises(ConfigError, match="--bridge-version is"):
            release_of(text)


def test_by_default_the_installed_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridgepack.releases.version", lambda name: "0.4.1")

    assert settings_for(_settings()).bridge_version == "0.4.1"
