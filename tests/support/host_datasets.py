"""The real host's tokenizers, packed datasets and dataset builder; its fixture `bridge` must be in use."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.records import TRAIN, VALIDATION, PackedRow
from bridgepack.replay.collate import CollateSettings, HostBatch, padding_row, predict_batch
from tests.support.packed_rows import EOS_TOKEN_ID, NUM_TOKEN_IDS

#: Each tensor of the host's batch, and the field of the prediction it equals.
TENSORS = {
    "tokens": "tokens",
    "labels": "labels",
    "loss_mask": "loss_mask",
    "position_ids": "position_ids",
    "cu_seqlens_q": "cu_seqlens",
    "cu_seqlens_kv": "cu_seqlens",
    "max_seqlen_q": "max_seqlen",
    "max_seqlen_kv": "max_seqlen",
}
PADDED_TENSORS = {"cu_seqlens_q_padded": "cu_seqlens_padded", "cu_seqlens_kv_padded": "cu_seqlens_padded"}


def load_host_tokenizer(directory: str | Path) -> Any:
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer

    return build_tokenizer(TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(directory)))


def build_word_tokenizer(directory: Path) -> Any:
    """Return the host's tokenizer over the token ids of `packed_rows`, saved to `directory`."""
    from transformers import PreTrainedTokenizerFast

    words = {f"word{index}": index for index in range(NUM_TOKEN_IDS)}
    eos = f"word{EOS_TOKEN_ID}"
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="word0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, pad_token=eos).save_pretrained(directory)
    host_tokenizer = load_host_tokenizer(directory)
    assert host_tokenizer.eos_id == EOS_TOKEN_ID
    return host_tokenizer


def open_host_dataset(
    spec: str | Path, tokenizer: Any, settings: CollateSettings, *, metadata_path: Path | None = None, **options: Any
) -> Any:
    """Return the host's dataset over a folder, a pattern or a file; `options` are further ones of its own."""
    from megatron.bridge.data.packing.gpt_sft import GPTSFTPackedDataset
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    kind = GPTSFTPackedDataset if str(spec).endswith(".npy") else GPTSFTPackedParquetDataset
    return kind(
        str(spec),
        tokenizer,
        max_seq_length=settings.packed_sequence_size,
        pad_seq_to_mult=settings.pad_seq_to_mult,
        pad_to_max_length=settings.pad_to_max_length,
        pad_seq_length_to_mult=settings.pad_seq_length_to_mult,
        pad_cu_seqlens=settings.pad_cu_seqlens,
        pack_metadata_file_path=metadata_path,
        prompt_template="{input} {output}",
        label_key="output",
        truncation_field="input",
        **options,
    )


def host_dataset_config(
    artifact: Path,
    *,
    dataset_root: Path,
    packed_sequence_size: int,
    shards: str = "",
    pad_to_max_length: bool = True,
    **specs: Any,
) -> Any:
    """Return the host's config over an artifact.

    `shards` is a pattern below each split's folder; `specs` stand in place of the artifact's.
    """
    from megatron.bridge.data.sft_processing import ChatSFTPreprocessingConfig

    artifact_specs = {
        "packed_train_data_path": f"{artifact / TRAIN}{shards}",
        "packed_val_data_path": f"{artifact / VALIDATION}{shards}",
        "packed_metadata_path": artifact / BRIDGE_METADATA_FILE,
    }
    return conversations_config(
        dataset_root,
        ChatSFTPreprocessingConfig(),
        size=packed_sequence_size,
        specs=artifact_specs | specs,
        dataset_kwargs={"pad_to_max_length": pad_to_max_length},
        dataloader_type="batch",
    )


def conversations_config(
    dataset_root: Path, preprocessing: Any, *, size: int, specs: Mapping[str, Any], **options: Any
) -> Any:
    """Return the host's config over a folder of conversations, which its builder packs to `size` as `specs` say."""
    from megatron.bridge.data.builders.gpt_sft import GPTSFTDatasetConfig
    from megatron.bridge.data.packing import PackedSequenceSpecs

    return GPTSFTDatasetConfig(
        dataset_root=str(dataset_root),
        seq_length=size,
        preprocessing=preprocessing,
        enable_offline_packing=True,
        offline_packing_specs=PackedSequenceSpecs(packed_sequence_size=size, **specs),
        do_test=False,
        num_workers=0,
        **options,
    )


def build_host_datasets(config: Any, tokenizer: Any) -> Any:
    """Return what the host's builder makes of a config: training, validation and test, None where there is none."""
    from megatron.bridge.data.builders.gpt_sft import GPTSFTDatasetBuilder

    return GPTSFTDatasetBuilder(config, tokenizer).build()


def snapshot(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Return every path below `directory`, itself included, with size, modification time and sha256."""
    state = {}
    for path in [directory, *directory.rglob("*")]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        state[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns, digest)
    return state


def assert_same_batches(host: Any, rows: Sequence[PackedRow], settings: CollateSettings, *, rows_per_batch: int) -> int:
    """Fail unless the host's dataset holds these rows and collates each, and each batch, as predicted.

    A last batch ends with the host's padding sample, index -1. Returns the number of batches compared.
    """
    assert len(host) == len(rows)
    batches = [[index] for index in range(len(rows))]
    batches += [list(range(first, len(rows)))[:rows_per_batch] for first in range(0, len(rows), rows_per_batch)]
    for indices in [*batches, [-1], [0, len(rows) - 1, -1, -1]]:
        own_rows = [rows[index] if index >= 0 else padding_row(rows[-1]) for index in indices]
        assert_same_batch(predict_batch(own_rows, settings), host.collate_fn([host[index] for index in indices]))
    return len(batches) + 2


def assert_same_batch(prediction: HostBatch, host_batch: dict[str, Any]) -> None:
    """Fail unless every value, shape and dtype is the host's, and the host gives nothing else."""
    tensors = TENSORS | ({} if prediction.cu_seqlens_padded is None else PADDED_TENSORS)
    tensors |= {} if prediction.padding_mask is None else {"padding_mask": "padding_mask"}
    assert set(host_batch) == {*tensors, "attention_mask", "token_count"}
    assert host_batch["attention_mask"] is None
    assert prediction.token_count.tolist() == host_batch["token_count"]
    for name, field in tensors.items():
        predicted, actual = getattr(prediction, field), host_batch[name].numpy()
        assert (predicted.dtype, predicted.shape) == (actual.dtype, actual.shape), name
        np.testing.assert_array_equal(predicted, actual, err_msg=name)
