"""Measures how Megatron-Bridge tokenises chats: one after the other, as its preparation does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchlib.digests import digest_of
from benchlib.settings import LOSS_MODE, PAD_SEQ_TO_MULT, SEED
from benchlib.side import timed
from benchlib.upstream_modules import install

#: Runtime tokens that no chat has, so that none is dropped.
_NO_LIMIT = 1 << 20


def upstream(data: str, tokenizer: str) -> dict[str, Any]:
    """Return what a file of chats takes; loading the tokenizer and the line index is measured apart.

    Source: Megatron-Bridge 0.6.2, data/packing/offline.py, tokenize_dataset.
    """
    install()
    from megatron.bridge.data.builders.gpt_sft import build_gpt_sft_split
    from megatron.bridge.data.packing.offline import tokenize_dataset
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer

    found: dict[str, Any] = {}
    host = build_tokenizer(TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=tokenizer))
    chat = {"chat": True, "use_hf_tokenizer_chat_template": True, "chat_loss_mode": LOSS_MODE}
    builder = {"dataset_builder": build_gpt_sft_split, "num_tokenizer_workers": 1}
    with timed(found):
        rows = tokenize_dataset(Path(data), host, _NO_LIMIT, SEED, chat, pad_seq_to_mult=PAD_SEQ_TO_MULT, **builder)
    ids, masks = (np.concatenate([np.asarray(row[name]) for row in rows]) for name in ("input_ids", "loss_mask"))
    lengths = [len(row["input_ids"]) for row in rows]
    about = {"num": len(ids)}
    return {**found, **about, "digest": digest_of(ids, masks, lengths)}
