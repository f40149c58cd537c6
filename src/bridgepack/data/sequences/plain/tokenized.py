"""Encodes rows of tokens, with a loss mask or labels."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from bridgepack.data.reading.inputs import names_of
from bridgepack.data.sequences.encoding import FlatBatch, Prepared
from bridgepack.data.sequences.plain.one_sample import sample_of
from bridgepack.data.sequences.unread import losses_of, unread_fields
from bridgepack.data.tokenizers.engines import join_ids
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.rows import ReadRow

#: Label of an untrained token in Hugging Face data sets.
IGNORED_LABEL = -100
#: Types of token ids and labels; masks may also hold true and false.
_NUMBERS = frozenset({int, float})


class TokenizedEncoder:
    """Reads ids and masks from rows that already hold them."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._vocab_size = tokenizer.vocab_size
        self._pad_id = tokenizer.special_token_id("pad")

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row's ids and mask, without the pads at its ends.

        Raises:
            RowError: they are missing, of the wrong type or inconsistent, or the row is a pack of several sequences.
        """
        name, columns = "input_ids", row.columns
        mask_column, labels_column = ("loss_mask", "") if columns.get("labels") is None else ("", "labels")
        ids = _integers(columns, name)
        sample = sample_of(columns, ids, self._pad_id, read=(name, labels_column or mask_column))
        outside = next((token for token in ids[sample] if not 0 <= token < self._vocab_size), None)
        if outside is not None:
            detail = f"a token id is {outside}; the tokenizer has ids 0 to {self._vocab_size - 1}"
            raise RowError(DropReason.TOKEN_OUT_OF_VOCABULARY, detail)
        column, ignored_value = (labels_column, IGNORED_LABEL) if labels_column else (mask_column, 0)
        values = _integers(columns, column, _NUMBERS if labels_column else {bool, *_NUMBERS})
        if len(values) == len(ids):
            _check_pads(values, sample, column, ignored_value)
        mask = _mask_from_labels(values, column, ids, sample) if labels_column else values[sample]
        if len(values) != len(ids):
            raise RowError(DropReason.INVALID_FIELD, f"{column} has {len(values)} entries for {len(ids)} ids")
        if any(bit not in (0, 1) for bit in mask):
            raise RowError(DropReason.INVALID_FIELD, f"{mask_column} must hold only 0 and 1")
        unread = tuple(unread_fields(row.unread))
        return Prepared(len(mask), (ids[sample], mask), tuple(losses_of(unread)), unread)

    def encode(self, rows: Sequence[tuple[list[int], list[int]]]) -> FlatBatch:
        """Return the ids and masks of rows as flat arrays."""
        ids, offsets = join_ids([ids for ids, _ in rows])
        mask = np.fromiter((bit for _, bits in rows for bit in bits), dtype=np.int8, count=len(ids))
        return FlatBatch(ids, mask, offsets, np.full(len(rows), -1, dtype=np.int32))


def _integers(columns: Mapping[str, Any], name: str, kinds: Set[type] = _NUMBERS) -> list[int]:
    values = columns.get(name)
    if values is None:
        raise RowError(DropReason.MISSING_FIELD, f"{name} is missing; it has: {names_of(columns)}")
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if (
        not isinstance(values, (list, tuple))
        or set(map(type, values)) - kinds
        or not all(value.is_integer() for value in values)
    ):
        raise RowError(DropReason.INVALID_FIELD, f"{name} must be a list of whole numbers")
    return [int(value) for value in values]


def _check_pads(values: Sequence[int], sample: slice, name: str, ignored_value: int) -> None:
    for index, value in (*enumerate(values[: sample.start]), *enumerate(values[sample.stop :], sample.stop)):
        if value != ignored_value:
            detail = f"{name}[{index}] is {value} at a pad, where attention_mask is 0; it must be {ignored_value}"
            raise RowError(DropReason.INVALID_FIELD, detail)


def _mask_from_labels(labels: Sequence[int], name: str, ids: Sequence[int], sample: slice) -> list[int]:
    for index, (label, token) in enumerate(zip(labels[sample], ids[sample], strict=False), sample.start):
        if label not in (token, IGNORED_LABEL):
            detail = (
                f"{name}[{index}] is {label}; it must be input_ids[{index}], {token}, or {IGNORED_LABEL}: "
                "labels are not shifted"
            )
            raise RowError(DropReason.INVALID_FIELD, detail)
    return [int(label != IGNORED_LABEL) for label in labels[sample]]
