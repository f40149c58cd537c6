"""Uncut tokenised sequences of consecutive rows, as flat arrays."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.records.sequences import MaskArray, TokenArray


class RowDrop(NamedTuple):
    """A row that gave no sequence."""

    row_offset: int  #: 0-based row within its range
    reason: str  #: value of a `DropReason`
    detail: str


class RowLoss(NamedTuple):
    """Content of a row that its text lacks or garbles."""

    row_offset: int  #: 0-based row within its range
    kind: str  #: value of a `LostKind`
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBatch:
    """Uncut sequences of consecutive rows of a range, in row order."""

    input_ids: TokenArray  #: shape [num_tokens], int32, stored
    loss_mask: MaskArray  #: shape [num_tokens], int8, token-aligned: 1 where this token is trained as a target
    offsets: IntArray  #: shape [num_sequences + 1], int64: sequence `i` is `input_ids[offsets[i]:offsets[i + 1]]`
    row_offsets: IntArray  #: shape [num_sequences], int64, 0-based row within the range
    #: shape [num_sequences], int32, leading tokens before the completion; -1 if not applicable
    num_context: IntArray
    drops: tuple[RowDrop, ...]  #: rows that gave no sequence, independent of the recipe's sizes
    losses: tuple[RowLoss, ...]  #: losses in row order, one per kind and row; also of dropped rows
    num_rows: int  #: rows read, drops included
    num_blank_lines: int  #: blank lines

    @property
    def num_sequences(self) -> int:
        """Number of sequences."""
        return len(self.offsets) - 1


def token_counts(
    input_ids: TokenArray, loss_mask: MaskArray, offsets: IntArray, eos_token_id: int
) -> tuple[IntArray, IntArray]:
    """Return (trained labels per sequence, those of them that are trained at run time).

    The first token of a sequence is never a label; at run time the host skips labels whose input is EOS.

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py, collate_fn.
    """
    starts = offsets[:-1]
    if not len(starts):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    trained = loss_mask != 0
    trained[starts] = False
    learned = trained.copy()
    learned[1:] &= input_ids[:-1] != eos_token_id
    return np.add.reduceat(trained, starts, dtype=np.int64), np.add.reduceat(learned, starts, dtype=np.int64)
