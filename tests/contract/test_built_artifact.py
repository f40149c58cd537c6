"""Artifacts that `bridgepack.build` makes of conversations: the real host takes them and collates as predicted."""

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, read_bridge_metadata
from bridgepack.data.stages import split as splits
from bridgepack.geometry import CU_SEQLENS_EXTRA_ENTRIES
from bridgepack.host import RELEASES, V06
from bridgepack.records import SPLITS, TRAIN, VALIDATION
from bridgepack.replay.collate import CollateMetadata, CollateSettings, predict_batch
from tests.support.host_datasets import (
    assert_same_batches,
    build_host_datasets,
    host_dataset_config,
    load_host_tokenizer,
    snapshot,
)
from tests.support.installed_host import host_release
from tests.support.small_builds import (
    AS_HOST,
    conversations_recipe,
    small_recipe,
    write_conversations,
    write_json_lines,
)

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

PACKED_SEQUENCE_SIZE = 1024
#: The host takes the second only with the first.
PADDINGS = [
    {"pad_to_max_length": one, "pad_cu_seqlens": two} for one, two in ((False, False), (True, False), (True, True))
]
REFERENCE = {
    "gsm8k": (
        "gsm8k_train.jsonl",
        "deepseek_v3",
        {"kind": "prompt_completion"},
    ),
    "fastchat": ("fastchat_dummy_conversation.json", "qwen3", {"kind": "chat"}),
    "glaive": ("glaive_toolcall_demo.json", "qwen3", {"kind": "chat", **AS_HOST}),
}


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with training.jsonl, validation.jsonl and tokenizer."""
    return write_conversations(tmp_path_factory.mktemp("conversations"), limit=800)


@pytest.fixture(scope="module", params=[1, 4, 8, 64], ids="multiple-{}".format)
def artifact(request: pytest.FixtureRequest, conversations: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Return an artifact of several shards, each of several row groups, for each multiple."""
    recipe = conversations_recipe(conversations, packing=_packing(request.param))
    return _built(recipe, tmp_path_factory.mktemp("artifact") / "artifact")


def _packing(pad_seq_to_mult: int) -> dict[str, int]:
    return {"packed_sequence_size": PACKED_SEQUENCE_SIZE, "pad_seq_to_mult": pad_seq_to_mult}


def _built(recipe: SFTRecipe, output: Path) -> Artifact:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_SHARD_TOKENS", 1 << 16)
        return Artifact(bridgepack.build(recipe, output=output).output)


def _host_tokenizer(artifact: Artifact) -> Any:
    tokenizer = load_host_tokenizer(artifact.manifest.tokenizer["name_or_path"])
    assert tokenizer.eos_id == artifact.manifest.tokenizer["eos_token_id"]
    return tokenizer


def _config(artifact: Artifact, dataset_root: Path, **changes: Any) -> Any:
    return host_dataset_config(
        artifact.folder,
        dataset_root=dataset_root,
        packed_sequence_size=PACKED_SEQUENCE_SIZE,
        pad_seq_to_mult=artifact.manifest.pad_seq_to_mult,
        **changes,
    )


def _settings(artifact: Artifact, *, pad_to_max_length: bool, pad_cu_seqlens: bool) -> CollateSettings:
    entries = read_bridge_metadata(artifact.folder / BRIDGE_METADATA_FILE)
    return CollateSettings(
        release=host_release(),
        packed_sequence_size=artifact.manifest.packed_sequence_size,
        pad_seq_to_mult=artifact.manifest.pad_seq_to_mult,
        eos_token_id=artifact.manifest.tokenizer["eos_token_id"],
        pad_to_max_length=pad_to_max_length,
        pad_cu_seqlens=pad_cu_seqlens,
        metadata=CollateMetadata.from_entries(entries),
    )


def _assert_host_collates_as_predicted(artifact: Artifact, folder: Path, **padding: bool) -> None:
    datasets = build_host_datasets(_config(artifact, folder / "none", **padding), _host_tokenizer(artifact))
    num_checked = 0
    for split, dataset in zip(SPLITS, datasets, strict=False):
        rows = [batch.row(index) for batch in artifact.iter_batches(split) for index in range(batch.num_rows)]
        num_checked += assert_same_batches(dataset, rows, _settings(artifact, **padding), rows_per_batch=8)
    assert num_checked > sum(split.statistics.num_packs for split in artifact.manifest.splits)


@pytest.mark.parametrize("padding", PADDINGS, ids=str)
def test_every_row_and_batches_of_rows(tmp_path: Path, artifact: Artifact, padding: dict[str, bool]) -> None:
    _assert_host_collates_as_predicted(artifact, tmp_path, **padding)


@pytest.mark.parametrize("labels_after_eos", ["mask", "train"])
def test_one_artifact_trains_the_same_on_every_release(
    tmp_path: Path, conversations: Path, labels_after_eos: str
) -> None:
    """Every tensor that releases have in common; the installed release's are as predicted."""
    preprocessing = {"kind": "chat", "labels_after_eos": labels_after_eos}
    recipe = conversations_recipe(conversations, preprocessing=preprocessing, packing=_packing(8))
    artifact = _built(recipe, tmp_path / "artifact")
    settings = _settings(artifact, pad_to_max_length=True, pad_cu_seqlens=True)
    num_trained = []

    for release in RELEASES:
        predicted = [
            predict_batch([batch.row(index)], replace(settings, release=release))
            for batch in artifact.iter_batches(TRAIN)
            for index in range(batch.num_rows)
        ]
        num_trained.append(sum(int(one.loss_mask.sum()) for one in predicted))
        if release is V06:
            first = predicted
        for one, other in zip(first, predicted, strict=True):
            names = [item.name for item in fields(one) if item.name != "padding_mask"]
            differing = [name for name in names if not np.array_equal(getattr(one, name), getattr(other, name))]
            is_other = labels_after_eos == "train" and release is not V06
            assert differing == (["loss_mask"] if is_other else [])

    statistics = artifact.split(TRAIN).statistics
    assert num_trained[-1] == statistics.num_trained_tokens
    assert (num_trained[0] == num_trained[-1]) == (labels_after_eos == "mask")
    _assert_host_collates_as_predicted(artifact, tmp_path, pad_to_max_length=True, pad_cu_seqlens=True)


@pytest.mark.parametrize("shards", ["", "/", "/shard-*.idx.parquet"], ids=["directory", "slash", "glob"])
def test_builder_loads_the_artifact_and_writes_nothing(
    tmp_path: Path, artifact: Artifact, conversations: Path, shards: str
) -> None:
    """A folder of raw data is there for the first pattern, and none for the others."""
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    if not shards:
        for split in SPLITS:
            shutil.copy(conversations / f"{split}.jsonl", tmp_path)
    before = snapshot(artifact.folder), snapshot(tmp_path)

    config = _config(artifact, tmp_path if not shards else tmp_path / "none", shards=shards)
    training, validation, _ = build_host_datasets(config, _host_tokenizer(artifact))

    assert type(training) is type(validation) is GPTSFTPackedParquetDataset
    num_packs = [split.statistics.num_packs for split in artifact.manifest.splits]
    assert [len(training), len(validation)] == num_packs
    for dataset in (training, validation):
        for index in range(len(dataset)):
            row = dataset[index]
            dataset.validate_row(index, row["input_ids"], row["loss_mask"], row["seq_boundaries"][:-1])
    shard_paths = [artifact.folder / shard.path for shard in artifact.manifest.splits[0].shards]
    assert len(shard_paths) > 1
    assert all(pq.read_metadata(path).num_row_groups > 1 for path in shard_paths)
    assert (snapshot(artifact.folder), snapshot(tmp_path)) == before


def test_builder_makes_what_the_config_does_not_name(tmp_path: Path, artifact: Artifact) -> None:
    """Packs of a split, for which it wants conversations, and a folder for the metadata."""
    tokenizer, root = _host_tokenizer(artifact), tmp_path / "dataset_root"
    with pytest.raises(FileNotFoundError, match=r"validation\.jsonl"):
        build_host_datasets(_config(artifact, tmp_path / "none", packed_val_data_path=None), tokenizer)
    build_host_datasets(_config(artifact, root, packed_metadata_path=None), tokenizer)
    assert [path.name for path in root.iterdir()] == ["packed"]


def test_metadata_makes_every_batch_s_offsets_one_shape(tmp_path: Path, artifact: Artifact) -> None:
    config = _config(artifact, tmp_path / "none", pad_cu_seqlens=True)
    metadata = CollateMetadata.from_entries(read_bridge_metadata(artifact.folder / BRIDGE_METADATA_FILE))

    shapes, constants, longest = set(), set(), 0
    for dataset in build_host_datasets(config, _host_tokenizer(artifact))[:2]:
        for index in range(len(dataset)):
            batch = dataset.collate_fn([dataset[index]])
            physical = batch.get("cu_seqlens_q_padded", batch["cu_seqlens_q"])
            shapes.add(tuple(physical.shape))
            constants.add(int(batch["max_seqlen_q"]))
            longest = max(longest, int(physical.diff().max()))

    assert shapes == {(1, metadata.max_samples_per_bin + CU_SEQLENS_EXTRA_ENTRIES)}
    assert constants == {longest}


@pytest.mark.parametrize("pad_seq_to_mult", [1, 8])
@pytest.mark.parametrize("name", REFERENCE)
def test_reference_data(tmp_path: Path, reference_data: Path, name: str, pad_seq_to_mult: int) -> None:
    file, tokenizer, preprocessing = REFERENCE[name]
    rows = reference_data / "data" / file
    if name == "gsm8k":  # thousands of rows that are all alike
        lines = rows.read_text().splitlines(keepends=True)
        rows = tmp_path / file
        rows.write_text("".join(lines[::6]))
    sections = {"data": {"train": str(rows), "validation_fraction": 0.1}}
    sections |= {"preprocessing": preprocessing, "packing": _packing(pad_seq_to_mult)}
    recipe = small_recipe("", reference_data / "tokenizers" / tokenizer, **sections)
    artifact = _built(recipe, tmp_path / "artifact")

    _assert_host_collates_as_predicted(artifact, tmp_path, pad_to_max_length=True, pad_cu_seqlens=True)


@pytest.mark.parametrize("pad_seq_to_mult", [1, 8])
def test_chats_beside_split_documents(tmp_path: Path, conversations: Path, pad_seq_to_mult: int) -> None:
    """The host collates every pack as predicted, and trains every token of the documents."""
    texts = [{"text": "The wind rose in the night. Nobody slept. " * (1 + row % 9 * 60)} for row in range(60)]
    write_json_lines(tmp_path / "texts.jsonl", texts)
    documents = {"path": str(tmp_path / "texts.jsonl"), "layout": {"kind": "text"}}
    recipe = conversations_recipe(
        conversations,
        data={"train": [str(conversations / "training.jsonl"), documents], "validation": documents},
        preprocessing={"kind": "chat", "others": [{"kind": "text", "over_long": "split"}]},
        packing=_packing(pad_seq_to_mult),
    )
    artifact = _built(recipe, tmp_path / "artifact")

    alone = artifact.split(VALIDATION).statistics
    assert alone.num_trained_tokens == alone.num_tokens
    assert alone.num_split > 20
    _assert_host_collates_as_predicted(artifact, tmp_path, pad_to_max_length=True, pad_cu_seqlens=True)
