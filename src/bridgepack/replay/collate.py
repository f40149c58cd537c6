"""Predicts in numpy the batch that the host's collate function makes of packs.

Source: megatron-bridge 0.6.2 and 0.7, `data/packing/gpt_sft.py` (GPTSFTPackedDataset.collate_fn), with the host's
defaults answer_only_loss true, return_cu_seqlen true, ceil_to_power_2 false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack import geometry
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.geometry import IntArray
from bridgepack.host import HostRelease
from bridgepack.records import PackedRow
from bridgepack.records.sequences import is_learned

OffsetTable = npt.NDArray[np.int32]

#: Host's default of `pad_seq_length_to_mult` (megatron-bridge 0.6.2, data/datasets/gpt_sft.py GPTSFTDataset).
DEFAULT_PAD_SEQ_LENGTH_TO_MULT = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CollateMetadata:
    """The values that the host reads from `bridge_metadata.json` if `pad_cu_seqlens` is true."""

    max_samples_per_bin: int  #: maximum sequences in one pack, over all entries of the file
    dataset_max_seqlen: int  #: longest sequence, runtime tokens, over all entries
    min_packed_seqlen: int  #: runtime tokens of the emptiest pack, over all entries

    @classmethod
    def from_entries(cls, entries: Iterable[Mapping[str, Any]]) -> CollateMetadata:
        """Return the extremes over the file's entries, one entry per split."""
        splits = list(entries)
        return cls(
            max_samples_per_bin=max(entry["max_samples_per_bin"] for entry in splits),
            dataset_max_seqlen=max(entry["dataset_max_seqlen"] for entry in splits),
            min_packed_seqlen=min(entry["min_packed_seqlen"] for entry in splits),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CollateSettings:
    """Settings of the host's packed dataset.

    Raises:
        ConfigError: pad_cu_seqlens without metadata or without pad_to_max_length.
    """

    release: HostRelease  #: of the host whose collate it is
    packed_sequence_size: int  #: runtime tokens a pack can hold
    pad_seq_to_mult: int  #: multiple of physical runtime lengths; above 1 the host returns two offset arrays
    eos_token_id: int  #: the host tokenizer's `eos_id`: fills tails
    pad_to_max_length: bool  #: every batch is packed_sequence_size wide
    #: otherwise a batch is as wide as its widest row, rounded up to this multiple
    pad_seq_length_to_mult: int = DEFAULT_PAD_SEQ_LENGTH_TO_MULT
    pad_cu_seqlens: bool = False  #: offset arrays have the static shape that `metadata` gives
    metadata: CollateMetadata | None = None  #: of the artifact; None unless pad_cu_seqlens

    def __post_init__(self) -> None:
        if self.pad_cu_seqlens and self.metadata is None:
            raise ConfigError(
                "metadata is None with pad_cu_seqlens true; Megatron-Bridge takes the static shape from it. "
                "Give the entries of the artifact's bridge_metadata.json."
            )
        if self.pad_cu_seqlens and not self.pad_to_max_length:
            raise ConfigError(
                "pad_to_max_length is false with pad_cu_seqlens true; Megatron-Bridge needs both. "
                "Set pad_to_max_length to true or pad_cu_seqlens to false."
            )

    @property
    def static_metadata(self) -> CollateMetadata | None:
        """The metadata that gives offset arrays their static shape, or None if shapes are dynamic."""
        return self.metadata if self.pad_cu_seqlens else None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostBatch:
    """A batch as the host's collate returns it, without attention_mask (always None) and the _kv twins."""

    tokens: IntArray  #: shape [num_rows, width], int64, runtime
    labels: IntArray  #: shape [num_rows, width], int64, runtime: the token after each of `tokens` in its sequence
    loss_mask: IntArray  #: shape [num_rows, width], int64, runtime: 1 where the host trains the label
    position_ids: IntArray  #: shape [num_rows, width], int64, runtime: from 0 in each physical sequence; tail 0
    #: shape [num_rows, num_boundaries], int32, runtime: logical offsets; with multiple 1 the physical ones
    cu_seqlens: OffsetTable
    #: shape [num_rows, num_boundaries], int32, runtime: physical offsets; with multiple 1 None
    cu_seqlens_padded: OffsetTable | None
    #: int32; shape [num_rows, 1], longest physical segment with the tail counted as one, or shape [num_rows], one
    #: constant from the metadata, with pad_cu_seqlens
    max_seqlen: npt.NDArray[np.int32]
    token_count: IntArray  #: shape [num_rows], int64: runtime tokens stored in each row, without the tail
    #: shape [num_rows, width], bool, runtime: tokens that the router of experts leaves out, which are alignment padding
    #: and the tail; None if the host's batches have none
    padding_mask: npt.NDArray[np.bool_] | None

    @property
    def physical_offsets(self) -> OffsetTable:
        """Offsets at which sequences lie in `tokens`; shape [num_rows, num_boundaries], int32, runtime."""
        return self.cu_seqlens if self.cu_seqlens_padded is None else self.cu_seqlens_padded


@dataclass(frozen=True, kw_only=True, slots=True)
class _RuntimeRow:
    """One row without its tail; all shapes [runtime tokens] or [num_sequences + 1], int64, runtime."""

    tokens: IntArray
    labels: IntArray
    loss_mask: IntArray
    position_ids: IntArray
    physical_offsets: IntArray
    logical_offsets: IntArray


def padding_row(row: PackedRow) -> PackedRow:
    """Return the row with an all-zero loss mask, which the host reads at index -1 for a split's last row."""
    return replace(row, loss_mask=np.zeros_like(row.loss_mask))


def predict_batch(rows: Sequence[PackedRow], settings: CollateSettings) -> HostBatch:
    """Return exactly the batch that the host's collate makes of `rows`.

    Example: inputs 5 6 7 8 | 5 6 9 with EOS 2 and packed_sequence_size 10, multiple 1 -> tokens
    [5 6 7 8 5 6 9 2 2 2], cu_seqlens [0 4 7 10], max_seqlen 4.

    Raises:
        ArtifactError: no rows, a malformed row, or one wider than packed_sequence_size.
    """
    if not rows:
        raise ArtifactError("rows is empty; a batch has at least one pack. Give the packs of one batch.")
    runtime_rows = [_runtime_row(row, index, settings) for index, row in enumerate(rows)]
    token_count = np.array([len(row.tokens) for row in runtime_rows], dtype=np.int64)
    width = settings.packed_sequence_size
    if not settings.pad_to_max_length:
        width = min(width, geometry.ceil_to_multiple(int(token_count.max()), settings.pad_seq_length_to_mult))
    tokens = _table([row.tokens for row in runtime_rows], width, settings.eos_token_id)
    loss_mask = _table([row.loss_mask for row in runtime_rows], width, 0)
    loss_mask[~is_learned(loss_mask, tokens, eos_token_id=settings.eos_token_id, release=settings.release)] = 0
    physical, logical = _offset_tables(runtime_rows, width, settings)
    return HostBatch(
        tokens=tokens,
        labels=_table([row.labels for row in runtime_rows], width, settings.eos_token_id),
        loss_mask=loss_mask,
        position_ids=_table([row.position_ids for row in runtime_rows], width, 0),
        cu_seqlens=physical if settings.pad_seq_to_mult == 1 else logical,
        cu_seqlens_padded=None if settings.pad_seq_to_mult == 1 else physical,
        max_seqlen=_max_seqlen(physical, width, settings),
        token_count=token_count,
        padding_mask=_padding_mask(physical, logical, token_count, width, settings),
    )


def _runtime_row(row: PackedRow, index: int, settings: CollateSettings) -> _RuntimeRow:
    _check_row(row, index, settings.packed_sequence_size)
    stored_row_length = len(row.input_ids)
    starts = row.seq_start_id.astype(np.int64)
    runtime_lengths = geometry.runtime_segment_lengths(starts, stored_row_length)
    is_input = np.ones(stored_row_length, dtype=bool)
    is_input[starts + runtime_lengths] = False
    is_label = np.ones(stored_row_length, dtype=bool)
    is_label[starts] = False
    tokens = row.input_ids[is_input].astype(np.int64)
    offsets = geometry.cu_seqlens(runtime_lengths)
    content_lengths = _content_lengths(tokens, offsets, settings.eos_token_id)
    return _RuntimeRow(
        tokens=tokens,
        labels=row.input_ids[is_label].astype(np.int64),
        loss_mask=row.loss_mask[is_input].astype(np.int64),
        position_ids=np.arange(len(tokens)) - np.repeat(offsets[:-1], runtime_lengths),
        physical_offsets=offsets,
        logical_offsets=geometry.cu_seqlens(content_lengths),
    )


def _check_row(row: PackedRow, index: int, packed_sequence_size: int) -> None:
    stored_row_length, starts = len(row.input_ids), row.seq_start_id.astype(np.int64)
    stored_lengths = np.diff(geometry.seq_boundaries(starts, stored_row_length))
    if not len(starts) or starts[0] != 0 or (stored_lengths < 1).any():
        raise ArtifactError(
            f"pack {index} of the batch: seq_start_id has {len(starts)} entries, first {starts[:8].tolist()}, for "
            f"{stored_row_length} stored tokens; it must begin with 0, ascend and stay below the pack's length. "
            "Rebuild the artifact."
        )
    if len(row.loss_mask) != stored_row_length:
        raise ArtifactError(
            f"pack {index} of the batch: loss_mask has {len(row.loss_mask)} entries for {stored_row_length} "
            "stored tokens; it must have one for each. Rebuild the artifact."
        )
    runtime_tokens = stored_row_length - len(starts)
    if runtime_tokens > packed_sequence_size:
        raise ArtifactError(
            f"pack {index} of the batch: {runtime_tokens} runtime tokens; packed_sequence_size is "
            f"{packed_sequence_size} and Megatron-Bridge stops at a wider pack. Set packed_sequence_size to "
            "the artifact's, or rebuild it."
        )


def _content_lengths(tokens: IntArray, offsets: IntArray, eos_token_id: int) -> IntArray:
    """Return each sequence's length up to its last non-EOS input; shape [num_sequences], int64, runtime.

    The host cannot tell alignment padding from content that is EOS, so it strips both:
    [5 6 2 2 | 2 2] with EOS 2 -> [2, 0].
    """
    content_ends = np.where(tokens != eos_token_id, np.arange(1, len(tokens) + 1), 0)
    last_content_end = np.concatenate(([0], np.maximum.accumulate(content_ends)))
    return np.maximum(last_content_end[offsets[1:]] - offsets[:-1], 0)


def _offset_tables(
    rows: Sequence[_RuntimeRow], width: int, settings: CollateSettings
) -> tuple[OffsetTable, OffsetTable]:
    """Return physical and logical offsets; shape [num_rows, num_boundaries] each, int32, runtime.

    A row that does not fill the width gets a tail segment of logical length 0 up to it. Rows with fewer
    boundaries repeat the last one: the width for physical offsets, the sum for logical ones.
    """
    num_boundaries = max(len(row.physical_offsets) + (row.physical_offsets[-1] != width) for row in rows)
    if settings.static_metadata is not None:
        static = settings.static_metadata.max_samples_per_bin + geometry.CU_SEQLENS_EXTRA_ENTRIES
        num_boundaries = max(num_boundaries, static)
    physical = _table([row.physical_offsets for row in rows], num_boundaries, width)
    logical = [np.pad(row.logical_offsets, (0, num_boundaries - len(row.logical_offsets)), mode="edge") for row in rows]
    return physical.astype(np.int32), np.stack(logical).astype(np.int32)


def _padding_mask(
    physical: OffsetTable, logical: OffsetTable, token_count: IntArray, width: int, settings: CollateSettings
) -> npt.NDArray[np.bool_] | None:
    """Return which tokens are padding; with multiple 1 that is the tail alone, and trailing EOS are content.

    Example: physical [0 4 8 12], logical [0 3 7 7] -> tokens 3 and 8 to 11.
    """
    if not settings.release.gives_padding_mask:
        return None
    places = np.arange(width)
    if settings.pad_seq_to_mult == 1:
        return places >= token_count[:, None]
    padding = np.zeros((len(physical), width), dtype=bool)
    for row, offsets, lengths in zip(padding, physical, np.diff(logical, axis=1), strict=True):
        segment = np.searchsorted(offsets, places, side="right") - 1
        row[:] = places - offsets[segment] >= lengths[segment]
    return padding


def _max_seqlen(physical: OffsetTable, width: int, settings: CollateSettings) -> npt.NDArray[np.int32]:
    metadata = settings.static_metadata
    if metadata is not None:
        constant = max(metadata.dataset_max_seqlen, width - metadata.min_packed_seqlen)
        return np.full(len(physical), constant, dtype=np.int32)
    return np.diff(physical, axis=1).max(axis=1, keepdims=True)


def _table(values: Sequence[IntArray], width: int, fill: int) -> IntArray:
    table = np.full((len(values), width), fill, dtype=np.int64)
    for row, row_values in zip(table, values, strict=True):
        row[: len(row_values)] = row_values
    return table
