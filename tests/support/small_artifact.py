"""A packed artifact and a tokenizer, small enough for a training run on two CPU cores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

Row = dict[str, list[int]]


def write_small_tokenizer(folder: Path, *, vocab_size: int = 320) -> int:
    """Write a byte-level BPE tokenizer as Hugging Face lays it out; return its end-of-sequence id."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["a small text of small words, and words of text"], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    fast.save_pretrained(folder)
    return int(fast.eos_token_id)


def write_small_artifact(
    folder: Path, *, packed_sequence_size: int, pad_seq_to_mult: int, eos_id: int, num_packs: int = 16
) -> None:
    """Write training (`num_packs` rows), validation (4 rows) and bridge_metadata.json."""
    sequences = [_sequence(index, eos_id) for index in range(num_packs * 8)]
    metadata = []
    for split, num_rows in (("training", num_packs), ("validation", 4)):
        rows = _pack(sequences, packed_sequence_size, pad_seq_to_mult, eos_id)[:num_rows]
        (folder / split).mkdir(parents=True)
        pq.write_table(_table(rows), folder / split / "shard-00000-of-00001.idx.parquet", row_group_size=8)
        metadata.append(_metadata(rows, packed_sequence_size))
    (folder / "bridge_metadata.json").write_text(json.dumps(metadata))


def _sequence(index: int, eos_id: int) -> list[int]:
    """Return stored tokens: a prompt of 3, then an ascending answer of 5 to 17 tokens, then the end."""
    answer = [40 + (index + position) % 12 for position in range(5 + index * 7 % 13)]
    return [30 + index % 5, 36, 37, *answer, eos_id]


def _pack(sequences: Iterable[Sequence[int]], size: int, multiple: int, eos_id: int) -> list[Row]:
    """Return rows, next fit; each sequence's runtime length is padded to `multiple`."""
    rows: list[Row] = []
    free_tokens = 0
    for tokens in sequences:
        padding = -(len(tokens) - 1) % multiple
        needed_tokens = len(tokens) - 1 + padding
        if needed_tokens > free_tokens:
            rows.append({"input_ids": [], "loss_mask": [], "seq_start_id": []})
            free_tokens = size
        free_tokens -= needed_tokens
        row = rows[-1]
        row["seq_start_id"].append(len(row["input_ids"]))
        row["input_ids"] += [*tokens, *[eos_id] * padding]
        row["loss_mask"] += [0, 0, *[1] * (len(tokens) - 3), 0, *[0] * padding]
    return rows


def _table(rows: list[Row]) -> pa.Table:
    types = {"input_ids": pa.int32(), "loss_mask": pa.int8(), "seq_start_id": pa.int32()}
    return pa.table({name: pa.array([row[name] for row in rows], pa.list_(kind)) for name, kind in types.items()})


def _metadata(rows: list[Row], size: int) -> dict[str, float]:
    widths = [len(row["input_ids"]) - len(row["seq_start_id"]) for row in rows]
    counts = [len(row["seq_start_id"]) for row in rows]
    lengths = [
        end - start - 1
        for row in rows
        for start, end in zip(row["seq_start_id"], [*row["seq_start_id"][1:], len(row["input_ids"])], strict=True)
    ]
    return {
        "dataset_max_seqlen": max(lengths),
        "max_samples_per_bin": max(counts),
        "packing_factor": round(sum(counts) / len(rows), 2),
        "packing_efficiency": round(100 * sum(widths) / (len(rows) * size), 2),
        "pack_size": size,
        "min_packed_seqlen": min(widths),
    }
