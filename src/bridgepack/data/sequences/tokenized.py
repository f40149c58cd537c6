"""Encodes rows of tokens, with a loss mask or labels."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from bridgepack.config.recipe.preprocessing import TokenizedPreprocessing
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.sequences.encoding import FlatBatch, Prepared
from bridgepack.data.tokenizers.engines import joined
from bridgepack.errors import RowError
from bridgepack.records import SEQ_START_ID, DropReason

#: Label of an untrained token in Hugging Face data sets.
IGNORED_LABEL = -100
#: Types of token ids and labels; masks may also hold true and false.
_NUMBERS = frozenset({int, float})


class TokenizedEncoder:
    """Reads ids and masks from rows that already hold them."""

    def __init__(self, settings: TokenizedPreprocessing, vocab_size: int) -> None:
        self._settings, self._vocab_size = settings, vocab_size

    def prepare(self, columns: Mapping[str, Any]) -> Prepared:
        """Return a row's ids and mask.

        Raises:
            RowError: they are missing, of the wrong type or inconsistent, or the row is a pack of several sequences.
        """
        if columns.get(SEQ_START_ID) is not None:
            detail = f"the row has {SEQ_START_ID}, so it is a pack; give its unpacked rows, or use `repack`"
            raise RowError(DropReason.INVALID_FIELD, detail)
        ids = _integers(columns, self._settings.input_ids_column)
        outside = next((token for token in ids if not 0 <= token < self._vocab_size), None)
        if outside is not None:
            detail = f"a token id is {outside}; the tokenizer has ids 0 to {self._vocab_size - 1}"
            raise RowError(DropReason.TOKEN_OUT_OF_VOCABULARY, detail)
        mask_column, labels_column = self._mask_columns(columns)
        if labels_column:
            mask = _mask_from_labels(columns, labels_column, ids)
        else:
            mask = _integers(columns, mask_column, {bool, *_NUMBERS})
        if len(mask) != len(ids):
            detail = f"{labels_column or mask_column} has {len(mask)} entries for {len(ids)} ids"
            raise RowError(DropReason.INVALID_FIELD, detail)
        if any(bit not in (0, 1) for bit in mask):
            raise RowError(DropReason.INVALID_FIELD, f"{mask_column} must hold only 0 and 1")
        return Prepared(len(ids), (ids, mask))

    def encode(self, rows: Sequence[tuple[list[int], list[int]]]) -> FlatBatch:
        """Return the ids and masks of rows as flat arrays."""
        ids, offsets = joined([ids for ids, _ in rows])
        mask = np.fromiter((bit for _, bits in rows for bit in bits), dtype=np.int8, count=len(ids))
        return FlatBatch(ids, mask, offsets, np.full(len(rows), -1, dtype=np.int32))

    def _mask_columns(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        if self._settings.labels_column is not None:
            return "", self._settings.labels_column
        wanted = self._settings.loss_mask_column
        if wanted is None and columns.get("loss_mask") is None and columns.get("labels") is not None:
            return "", "labels"
        return wanted or "loss_mask", ""


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


def _mask_from_labels(columns: Mapping[str, Any], name: str, ids: list[int]) -> list[int]:
    labels = _integers(columns, name)
    for index, (label, token) in enumerate(zip(labels, ids, strict=False)):
        if label not in (token, IGNORED_LABEL):
            detail = (
                f"{name}[{index}] is {label}; it must be input_ids[{index}], {token}, or {IGNORED_LABEL}: "
                "labels are not shifted"
            )
            raise RowError(DropReason.INVALID_FIELD, detail)
    return [int(label != IGNORED_LABEL) for label in labels]
