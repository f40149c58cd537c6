"""Every version of the host since 0.3 takes a recipe's settings and reads what was exported for it.

0.3.1, 0.4.0, 0.4.2, 0.5.0 and 0.5.1 run in processes of their own, with their packages in front of the test
environment's; 0.6.2 is that environment. 0.3.0, 0.4.1 and 0.6.0 have, byte for byte, the modules of another version.
"""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bridgepack.bridge.wiring import Setting
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, read_bridge_metadata
from bridgepack.data.export import export_artifact
from bridgepack.host import release_of
from bridgepack.records import SPLITS, PackedRow
from bridgepack.replay.collate import CollateMetadata, CollateSettings, predict_batch
from tests.support.older_host_probe import BASE, MODULES, answer, settings_of
from tests.support.older_hosts import INSTALLED, ask, host_package, locked_versions, overlay, positions_on_rank, zigzag
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge"), pytest.mark.full]

RUN = ("0.3.1", "0.4.0", "0.4.2", "0.5.0", "0.5.1")
VERSIONS = (*RUN, INSTALLED)
#: Version -> the one that it is equal to in every module that packs pass through.
TWINS = {"0.3.0": "0.3.1", "0.4.1": "0.4.2", "0.6.0": INSTALLED}
#: Dotted name of the dataset over packs of a version, where it is not that of most.
READERS = {
    "0.3.1": "megatron.bridge.data.datasets.sft.GPTSFTPackedDataset",
    INSTALLED: "megatron.bridge.data.packing.parquet.GPTSFTPackedParquetDataset",
}
READER = "megatron.bridge.data.datasets.packed_parquet.GPTSFTPackedParquetDataset"
#: Versions whose dataset is not told `pad_seq_to_mult`, so batches have no logical offsets.
WITHOUT_LOGICAL = ("0.4.0", "0.4.2", "0.5.0")
SIZE, MULTIPLE, CONTEXT_PARALLEL_SIZE, WORLD_SIZE = 64, 8, 4, 8
EOS_TOKEN_ID = 2
#: Name of a case -> multiple of its packs, and what its recipe says besides.
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (1, {}),
    "padded": (MULTIPLE, {}),
    "static": (MULTIPLE, {"packing": {"pad_cu_seqlens": True}}),
    "context_parallel": (MULTIPLE, {"parallelism": {"context_parallel_size": CONTEXT_PARALLEL_SIZE}}),
}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[int, Path]:
    """Return multiple -> artifact; EOS ends every sequence, and is content too."""
    folder = tmp_path_factory.mktemp("artifacts")
    rows = [tokenized_row(*(5 + (index + step) % 40 for step in range(1 + index % 23)), 2) for index in range(120)]
    data = write_json_lines(folder / "a.jsonl", [*rows, tokenized_row(7, 2, 8, 2, 2)])
    return {
        multiple: build(
            tokenized_recipe(
                data,
                chatml_tokenizer,
                data__validation_fraction=0.25,
                packing__packed_sequence_size=SIZE,
                packing__pad_seq_to_mult=multiple,
            ),
            folder / str(multiple),
        ).output
        for multiple in (1, MULTIPLE)
    }


@pytest.fixture(scope="module")
def requests(
    artifacts: dict[int, Path], chatml_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Return version -> what its process is asked, packs exported for it included."""
    folder = tmp_path_factory.mktemp("exports")
    texts = [{"input": "count " * (1 + index % 9), "output": "one two " * (1 + index % 5)} for index in range(60)]
    return {
        version: {
            "bridge_version": version,
            "overlay": str(overlay(version)) if version != INSTALLED else "",
            "tokenizer": str(chatml_tokenizer),
            "folder": str(tmp_path_factory.mktemp("work")),
            "world_size": WORLD_SIZE,
            "raw": str(write_json_lines(folder / "raw.jsonl", texts)),
            "packed_sequence_size": 256,
            "multiple": MULTIPLE,
            "cases": {name: _case(artifacts, folder / version, name, chatml_tokenizer, version) for name in CASES},
        }
        for version in VERSIONS
    }


def _case(artifacts: dict[int, Path], folder: Path, name: str, tokenizer: Path, version: str) -> dict[str, Any]:
    multiple, changes = CASES[name]
    packs = folder / f"multiple-{multiple}"
    if not packs.exists():
        export_artifact(artifacts[multiple], packs, version)
    recipe = {
        "name": name,
        "model": {"name": BASE},
        "data": {"train": "a.jsonl", "validation": "b.jsonl"},
        "tokenizer": {"name_or_path": str(tokenizer)},
        "preprocessing": {"kind": "tokenized"},
        "packing": {"packed_sequence_size": SIZE, "pad_seq_to_mult": multiple, **changes.get("packing", {})},
        "parallelism": {"num_gpus": WORLD_SIZE, **changes.get("parallelism", {})},
        "batch": {"global_batch_size": 8, "eval_global_batch_size": 8},
    }
    num_packs = {split.name: split.statistics.num_packs for split in Artifact(packs).manifest.splits}
    return {"recipe": recipe, "packs": str(packs), "num_packs": num_packs}


@pytest.fixture(scope="module")
def answers(
    requests: dict[str, dict[str, Any]], bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Return version -> what it made of the cases."""
    older = ask({version: requests[version] for version in RUN}, tmp_path_factory.mktemp("answers"))
    return {**older, INSTALLED: answer(requests[INSTALLED])}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _rows(artifact: Path, split: str) -> list[PackedRow]:
    return [batch.row(index) for batch in Artifact(artifact).iter_batches(split) for index in range(batch.num_rows)]


def test_every_version_of_the_index_is_here() -> None:
    assert sorted([*locked_versions(), INSTALLED]) == sorted([*VERSIONS, *TWINS])


def test_training_imports(version: str, answers: dict[str, dict[str, Any]]) -> None:
    """Nothing that training needs is missing on a machine without a GPU; what stops an import would be said here."""
    assert answers[version]["imports"] == dict.fromkeys(MODULES)


def test_objects_are_of_the_version_s_classes_and_hold_the_settings(
    version: str, case: str, answers: dict[str, dict[str, Any]], requests: dict[str, dict[str, Any]]
) -> None:
    found, release = answers[version]["cases"][case], release_of(version)

    assert found["specs"]["class"].rpartition(".")[2] == release.specs_class.rpartition(".")[2]
    assert found["dataset"]["class"].rpartition(".")[2] == release.dataset_class.rpartition(".")[2]
    settings = [
        item for item in settings_of(requests[version]["cases"][case], version) if item.path.startswith("dataset.")
    ]
    assert _num_held(settings, found) > 8


def _num_held(settings: list[Setting], values: Any) -> int:
    """Return how many settings are what values have at their paths; one that is not is an error."""
    num_checked = 0
    for setting in settings:
        value = values
        for name in setting.path.split("."):
            value = value[name]
        if not isinstance(value, dict) and setting.value is not None:
            assert str(value) == str(setting.value), setting.path
            num_checked += 1
    return num_checked


def test_rows_are_read_as_they_are(
    version: str, case: str, answers: dict[str, dict[str, Any]], artifacts: dict[int, Path]
) -> None:
    found = answers[version]["cases"][case]

    assert found["readers"] == [READERS.get(version, READER)] * 2
    for split, read in zip(SPLITS, found["splits"], strict=True):
        rows = _rows(artifacts[CASES[case][0]], split)
        assert len(read) == len(rows) > 0
        for row, item in zip(rows, read, strict=True):
            assert item == {
                "input_ids": row.input_ids.tolist(),
                "loss_mask": row.loss_mask.tolist(),
                "seq_boundaries": [*row.seq_start_id.tolist(), len(row.input_ids)],
            }


def test_batches_are_the_installed_version_s(version: str, case: str, answers: dict[str, dict[str, Any]]) -> None:
    """Tokens, labels, masks and positions are the same; so is where sequences lie."""
    num_checked = 0
    for split, expected in zip(
        answers[version]["cases"][case]["batches"], answers[INSTALLED]["cases"][case]["batches"], strict=True
    ):
        for batch, reference in zip(split, expected, strict=True):
            for name in ("tokens", "labels", "loss_mask", "position_ids", "token_count"):
                assert batch[name] == reference[name], name
            for row, wanted in zip(_physical(batch), _physical(reference), strict=True):
                assert row == wanted
                num_checked += 1
    assert num_checked > 20


def _physical(batch: dict[str, Any]) -> list[list[int]]:
    """Return offsets of each row, without -1 and without empty sequences at the end."""
    for name in ("cu_seqlens_q_padded", "cu_seqlens_q", "cu_seqlens"):
        if name in batch:
            return [sorted(set(row) - {-1}) for row in batch[name]]
    raise AssertionError(f"no offsets in {sorted(batch)}")


def test_logical_offsets(version: str, answers: dict[str, dict[str, Any]], artifacts: dict[int, Path]) -> None:
    has_logical = version not in WITHOUT_LOGICAL
    cases = answers[version]["cases"]
    settings = CollateSettings(
        packed_sequence_size=SIZE, pad_seq_to_mult=MULTIPLE, eos_token_id=EOS_TOKEN_ID, pad_to_max_length=True
    )
    num_checked = 0
    for split, batches in zip(SPLITS, cases["padded"]["batches"], strict=True):
        for row, batch in zip(_rows(artifacts[MULTIPLE], split), batches, strict=False):
            assert ("cu_seqlens_unpadded" in batch or "cu_seqlens_q_padded" in batch) == has_logical
            if has_logical:
                logical = batch.get("cu_seqlens_unpadded") or batch["cu_seqlens_q"]
                predicted = predict_batch([row], settings).cu_seqlens.tolist()
                assert [[offset for offset in item if offset >= 0] for item in logical] == predicted
                num_checked += 1
    assert num_checked > 0 or not has_logical
    for name in ("static", "context_parallel"):
        padded = [batch for split in cases[name]["batches"] for batch in split]
        assert (
            not any("cu_seqlens_unpadded" in batch for batch in padded)
            or not has_logical
            or (release_of(version).trims_offsets and name == "context_parallel")
        )


def test_static_offsets_have_the_length_of_the_metadata(
    version: str, answers: dict[str, dict[str, Any]], artifacts: dict[int, Path]
) -> None:
    metadata = CollateMetadata.from_entries(read_bridge_metadata(artifacts[MULTIPLE] / BRIDGE_METADATA_FILE))
    length = metadata.max_samples_per_bin + 2

    for split in answers[version]["cases"]["static"]["batches"]:
        for batch in split:
            offsets = batch.get("cu_seqlens") or batch["cu_seqlens_q_padded"]
            assert {len([offset for offset in row if offset >= 0]) for row in offsets} == {length}
            assert set(map(int, _flat(batch.get("max_seqlen") or batch["max_seqlen_q"]))) == {
                max(metadata.dataset_max_seqlen, SIZE - metadata.min_packed_seqlen)
            }


def _flat(value: Any) -> list[Any]:
    return [one for item in value for one in _flat(item)] if isinstance(value, list) else [value]


def _slices(batch: dict[str, Any], row: int, *, is_trimmed: bool) -> list[list[int]]:
    """Return, for each context-parallel rank, the tokens of a row that it gets."""
    name = next(name for name in ("cu_seqlens_q_padded", "cu_seqlens_q", "cu_seqlens") if name in batch)
    offsets = [offset for offset in batch[name][row] if offset >= 0 or not is_trimmed]
    return [
        positions_on_rank(offsets, SIZE, context_parallel_size=CONTEXT_PARALLEL_SIZE, rank=rank)
        for rank in range(CONTEXT_PARALLEL_SIZE)
    ]


def _wanted(batch: dict[str, Any], row: int) -> list[list[int]]:
    offsets = _physical(batch)[row]
    return [
        zigzag(offsets, context_parallel_size=CONTEXT_PARALLEL_SIZE, rank=rank) for rank in range(CONTEXT_PARALLEL_SIZE)
    ]


def test_context_ranks_get_their_chunks_of_every_sequence(version: str, answers: dict[str, dict[str, Any]]) -> None:
    """By TransformerEngine's arithmetic, on batches of rows with different numbers of sequences."""
    num_checked = 0
    for split in answers[version]["cases"]["context_parallel"]["batches"]:
        for batch in split:
            for row in range(len(batch["tokens"])):
                assert _slices(batch, row, is_trimmed=release_of(version).trims_offsets) == _wanted(batch, row)
                num_checked += 1
    assert num_checked > 20


@pytest.mark.parametrize("version", [version for version in RUN if not release_of(version).trims_offsets])
def test_without_static_offsets_ranks_get_wrong_tokens(version: str, answers: dict[str, dict[str, Any]]) -> None:
    """Why `older_settings` switches pad_cu_seqlens on: Megatron-Bridge pull request 4489, released with 0.5.1."""
    num_wrong = sum(
        _slices(batch, row, is_trimmed=False) != _wanted(batch, row)
        for split in answers[version]["cases"]["padded"]["batches"]
        for batch in split
        for row in range(len(batch["tokens"]))
    )

    assert num_wrong > 0


def test_a_whole_config_holds_the_settings_and_passes_the_version_s_own_checks(
    version: str, case: str, answers: dict[str, dict[str, Any]], requests: dict[str, dict[str, Any]]
) -> None:
    container = answers[version]["cases"][case]["container"]
    settings = settings_of(requests[version]["cases"][case], version)

    assert _num_held([item for item in settings if not item.path.startswith("dataset.")], container["values"]) > 25
    assert container["refusal"] is None


def test_versions_that_pack_to_a_multiple_align_runtime_lengths(answers: dict[str, dict[str, Any]]) -> None:
    """They round the stored length up, so up to a whole multiple is wasted, and store one token more."""
    num_checked = 0
    for version in RUN:
        packs = answers[version]["own_packs"]
        assert {(length - 1) % MULTIPLE for row in packs for length in row} == {0}
        num_checked += len(packs)
    assert num_checked > 0
    assert answers[INSTALLED]["own_packs"] is None


@pytest.mark.parametrize(("version", "twin"), TWINS.items())
def test_twins_have_the_same_modules(version: str, twin: str) -> None:
    ours, theirs = host_package(version), host_package(twin)
    names = {
        path.relative_to(ours)
        for pattern in ("data/datasets/*sft.py", "data/datasets/packed_*.py", "data/packing/*.py", "data/utils.py")
        for path in ours.glob(pattern)
    }
    names |= {
        Path("data/builders/finetuning_dataset.py"),
        Path("data/builders/gpt_sft.py"),
        Path("training/gpt_step.py"),
    }
    existing = [name for name in names if (ours / name).exists() or (theirs / name).exists()]

    assert len(existing) > 4
    assert {str(name) for name in existing if (ours / name).read_bytes() != (theirs / name).read_bytes()} == set()
    assert _classes(ours) == _classes(theirs)


def _classes(package: Path) -> dict[str, str]:
    """Return the configs of datasets, as code."""
    tree = ast.parse((package / "training" / "config.py").read_text())
    return {
        node.name: ast.dump(node)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in ("DataloaderConfig", "FinetuningDatasetConfig")
    }
