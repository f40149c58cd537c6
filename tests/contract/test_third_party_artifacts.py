"""Packed files that megatron-bridge wrote, or that users write by hand, are judged as the host takes them."""

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.records import SPLITS
from bridgepack.replay.collate import CollateSettings
from bridgepack.rules.judging.context import CheckContext
from tests.support import host_datasets as host
from tests.support.installed_host import host_release
from tests.support.judging import check_artifact

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

SIZE = 512


@pytest.fixture
def dataset_root(conversations: Path, tmp_path: Path) -> Path:
    """Return a folder with training.jsonl and validation.jsonl."""
    for split in SPLITS:
        shutil.copy(conversations / f"{split}.jsonl", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def tokenizer(bridge: ModuleType, conversations: Path) -> Any:
    return host.load_host_tokenizer(conversations / "tokenizer")


def _packed_by_the_builder(dataset_root: Path, tokenizer: Any, pad_seq_to_mult: int) -> Path:
    """Return the folder that the host's builder packs training.jsonl and validation.jsonl into."""
    from megatron.bridge.data.sft_processing import ChatSFTPreprocessingConfig

    specs = {"pad_seq_to_mult": pad_seq_to_mult}
    config = host.conversations_config(dataset_root, ChatSFTPreprocessingConfig(), size=SIZE, specs=specs)
    host.build_host_datasets(config, tokenizer)
    (folder,) = (dataset_root / "packed").iterdir()
    return folder


def _packed_as_npy(dataset_root: Path, tokenizer: Any, pad_seq_to_mult: int) -> Path:
    """Return a folder as megatron-bridge 0.3 names it, packed by the host's code that still writes `.npy`."""
    from megatron.bridge.data.builders.gpt_sft import build_gpt_sft_split
    from megatron.bridge.data.packing.offline import prepare_gpt_sft_packed_data

    folder = dataset_root / "packed" / f"tokenizer_pad_seq_to_mult{pad_seq_to_mult}"
    folder.mkdir(parents=True)
    for split in SPLITS:
        prepare_gpt_sft_packed_data(
            input_path=dataset_root / f"{split}.jsonl",
            output_path=folder / f"{split}_{SIZE}.npy",
            output_metadata_path=folder / f"{SIZE}_metadata.jsonl",
            tokenizer=tokenizer,
            dataset_builder=build_gpt_sft_split,
            packed_sequence_size=SIZE,
            max_seq_length=SIZE,
            seed=1234,
            dataset_kwargs={"chat": True, "use_hf_tokenizer_chat_template": True},
            pad_seq_to_mult=pad_seq_to_mult,
            num_tokenizer_workers=1,
        )
    return folder


def _settings(tokenizer: Any, size: int, pad_seq_to_mult: int) -> CollateSettings:
    return CollateSettings(
        release=host_release(),
        packed_sequence_size=size,
        pad_seq_to_mult=pad_seq_to_mult,
        eos_token_id=tokenizer.eos_id,
        pad_to_max_length=True,
    )


@pytest.mark.parametrize("pad_seq_to_mult", [1, 8])
@pytest.mark.parametrize("pack", [_packed_by_the_builder, _packed_as_npy], ids=["parquet", "npy"])
def test_folder_of_the_host_is_clean(dataset_root: Path, tokenizer: Any, pack: Any, pad_seq_to_mult: int) -> None:
    artifact = ArtifactOnDisk(pack(dataset_root, tokenizer, pad_seq_to_mult))
    hints = artifact.name_hints
    context = CheckContext(eos_token_id=tokenizer.eos_id, vocab_size=tokenizer.vocab_size, **hints)
    report = check_artifact(artifact, context=context)

    assert artifact.manifest is None
    assert artifact.split_names == SPLITS
    assert hints == {"packed_sequence_size": SIZE, "pad_seq_to_mult": pad_seq_to_mult}
    assert len(artifact.metadata_facts().content) == 2
    assert report.findings == ()
    assert report.num_sound_rows == report.num_rows > 20
    assert {"BP330", "BP331", "BP405", "BP407", "BP412"} <= set(report.rules_run)


@pytest.mark.parametrize("pad_seq_to_mult", [1, 8])
def test_npy_rows_are_those_that_the_host_trains(dataset_root: Path, tokenizer: Any, pad_seq_to_mult: int) -> None:
    folder = _packed_as_npy(dataset_root, tokenizer, pad_seq_to_mult)
    settings, name = _settings(tokenizer, SIZE, pad_seq_to_mult), f"training_{SIZE}.npy"

    batches = list(ArtifactOnDisk(folder).parts.iter_batches(name, max_tokens=4000))
    metadata = folder / f"{SIZE}_metadata.jsonl"
    dataset = host.open_host_dataset(folder / name, tokenizer, settings, metadata_path=metadata)

    assert len(batches) > 1
    rows = [batch.row(index) for batch in batches for index in range(batch.num_rows)]
    assert host.assert_same_batches(dataset, rows, settings, rows_per_batch=4) > 2


#: Values as a user may leave them, what the host makes of the file, and the rules that report it.
VALUES = {
    "lists": (lambda values: values, "loaded", set()),
    "arrays": (np.asarray, "loaded", {"BP313"}),
    "tensors": (torch.tensor, "refused", {"BP313", "BP314"}),
    "tuples": (tuple, "loaded", {"BP313"}),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_are_no_lists(tmp_path: Path, tokenizer: Any, kind: str) -> None:
    convert, host_outcome, codes = VALUES[kind]
    row = {"input_ids": [11, 12, 13, 0, 21, 22, 0], "loss_mask": [0, 1, 1, 0, 1, 1, 0], "seq_start_id": [0, 4]}
    path, metadata = tmp_path / "training_8.npy", tmp_path / "8_metadata.jsonl"
    np.save(path, np.array([{key: convert(values) for key, values in row.items()}]))
    settings = _settings(tokenizer, 8, 1)

    report = check_artifact(ArtifactOnDisk(path))
    metadata.write_text("[]")

    assert {finding.code for finding in report.findings} == codes
    if host_outcome == "refused":
        with pytest.raises(SystemExit):
            host.open_host_dataset(path, tokenizer, settings, metadata_path=metadata)
    else:
        dataset = host.open_host_dataset(path, tokenizer, settings, metadata_path=metadata)
        if kind == "lists":
            assert dataset[0]["seq_boundaries"] == [0, 4, 7]
        elif kind == "arrays":
            assert dataset[0]["seq_boundaries"].tolist() == [7, 11]
        else:
            with pytest.raises(TypeError, match="can only concatenate tuple"):
                dataset[0]
