"""The real host's tokenizer and packed dataset for the rows of `packed_rows`; import the host only through `bridge`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from bridgepack.proof.collate import CollateSettings, HostBatch
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


def build_host_tokenizer(directory: Path) -> Any:
    """Return the host's tokenizer over a vocabulary of words, EOS among them, saved to `directory`."""
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer
    from transformers import PreTrainedTokenizerFast

    words = {f"word{index}": index for index in range(NUM_TOKEN_IDS)}
    eos = f"word{EOS_TOKEN_ID}"
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="word0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, pad_token=eos).save_pretrained(directory)
    config = TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(directory))
    host_tokenizer = build_tokenizer(config)
    assert host_tokenizer.eos_id == EOS_TOKEN_ID
    return host_tokenizer


def open_host_dataset(
    spec: str | Path, tokenizer: Any, settings: CollateSettings, *, metadata_path: Path | None = None
) -> Any:
    """Return the host's dataset over a file, directory or glob of shards."""
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    return GPTSFTPackedParquetDataset(
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
    )


def assert_same_batch(prediction: HostBatch, host_batch: dict[str, Any]) -> None:
    """Fail unless every value, shape and dtype is the host's, and the host gives nothing else."""
    tensors = TENSORS | ({} if prediction.cu_seqlens_padded is None else PADDED_TENSORS)
    assert set(host_batch) == {*tensors, "attention_mask", "token_count"}
    assert host_batch["attention_mask"] is None
    assert prediction.token_count.tolist() == host_batch["token_count"]
    for name, field in tensors.items():
        predicted, actual = getattr(prediction, field), host_batch[name].numpy()
        assert (predicted.dtype, predicted.shape) == (actual.dtype, actual.shape), name
        np.testing.assert_array_equal(predicted, actual, err_msg=name)
