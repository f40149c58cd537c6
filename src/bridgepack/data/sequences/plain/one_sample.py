"""Where a tokenised row's only sample lies: without the pads at its ends; a row of several samples is refused."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from bridgepack.config.recipe.sample_columns import ENDS, LENGTHS, MASK, NUMBERS, POSITIONS, SAMPLE_COLUMNS
from bridgepack.errors import RowError
from bridgepack.records import SEQ_START_ID, DropReason
from bridgepack.records.words import kind_of

#: Pads without a mask are told by as many pad tokens: one may begin or end a text.
_MIN_PADS = 2
_SHOWN = 4
_ONE_EACH = "give one sample per row"


def sample_of(columns: Mapping[str, Any], ids: Sequence[int], pad_id: int | None, *, read: Sequence[str]) -> slice:
    """Return where the only sample of a row lies in its ids.

    `read` are the columns with ids, mask and labels, the ids' first, whatever their names.

    Raises:
        RowError: the row holds several samples, has pads inside or unmarked ones, or its columns contradict each other.
    """
    names = {name for name in SAMPLE_COLUMNS.intersection(columns).difference(read) if columns[name] is not None}
    if SEQ_START_ID in names:
        _refuse(f"the row has {SEQ_START_ID}, so it is a pack; give its unpacked rows, or use `repack`")
    sample = slice(0, len(ids))
    if MASK in names:
        sample = _without_pads(_numbers_of(columns[MASK], MASK, len(ids)))
    elif pad_id is not None:
        _check_no_pads(ids, pad_id, read[0])
    for name in sorted(names):
        if name in POSITIONS:
            _check_positions(_numbers_of(columns[name], name, len(ids)), name, sample)
        elif name in NUMBERS:
            _check_sample_numbers(columns[name], name, len(ids), sample)
        elif name in LENGTHS or name in ENDS:
            _check_lengths(columns[name], name, len(ids), sample)
    return sample


def _without_pads(mask: Sequence[int]) -> slice:
    """Return the tokens whose attention is 1, which must lie side by side: [0, 0, 1, 1, 0] -> 2 to 4."""
    if set(mask) <= {1}:
        return slice(0, len(mask))
    if not any(mask):
        _refuse(f"{MASK} is 0 everywhere, so the row is only padding")
    first = next(index for index, value in enumerate(mask) if value)
    stop = len(mask) - next(index for index, value in enumerate(reversed(mask)) if value)
    inside = next((index for index in range(first, stop) if not mask[index]), None)
    if inside is not None:
        _refuse(f"{MASK} is 0 at {inside}, between tokens with 1; only pads at the row's ends can be cut off")
    _check_is_one(mask, MASK, slice(first, stop))
    if mask[first] != 1:
        _refuse(f"{MASK} is {mask[first]} at {first}; it must hold only 0 and 1")
    return slice(first, stop)


def _check_no_pads(ids: Sequence[int], pad_id: int, name: str) -> None:
    for how, ids_in_order in (("begins", ids), ("ends", ids[::-1])):
        num_pads = next((index for index, token in enumerate(ids_in_order) if token != pad_id), len(ids))
        if num_pads >= _MIN_PADS:
            _refuse(
                f"{name} {how} with {num_pads} pad tokens ({pad_id}), and the row has no {MASK}; add it, with 0 at "
                "pads, or cut them off"
            )


def _check_positions(positions: Sequence[int], name: str, sample: slice) -> None:
    """Check that positions count from 0, in the sample or in the row with its pads."""
    sample_positions = positions[sample]
    if sample_positions == list(range(len(sample_positions))) or sample_positions == list(
        range(sample.start, sample.stop)
    ):
        return
    steps = [
        (index, before, after) for index, (before, after) in enumerate(pairwise(sample_positions), sample.start + 1)
    ]
    restarts = [index for index, before, after in steps if after <= before]
    if restarts:
        _refuse_several(len(restarts) + 1, f"{name} restart at {restarts[0]}")
    jump = next(((index, before, after) for index, before, after in steps if after != before + 1), None)
    if jump:
        _refuse(f"{name} go from {jump[1]} to {jump[2]} at {jump[0]}; they must count the tokens of one sample")
    _refuse(
        f"{name} begin with {sample_positions[0]}; the positions of a sample begin with 0, and others would be lost"
    )


def _check_sample_numbers(value: Any, name: str, num_ids: int, sample: slice) -> None:
    values = _to_list(value)
    if values is None or len(values) == 1:  # the row's own
        return
    _check_is_flat(values, name)
    if len(values) != num_ids:
        _refuse(f"{name} has {len(values)} entries for {num_ids} ids; {_ONE_EACH}")
    _check_is_one(values, name, sample)


def _check_is_one(values: Sequence[Any], name: str, sample: slice) -> None:
    pairs = enumerate(pairwise(values[sample]), sample.start + 1)
    changes = [(index, before, after) for index, (before, after) in pairs if before != after]
    if changes:
        index, before, after = changes[0]
        _refuse_several(len(changes) + 1, f"{name} changes from {before!r} to {after!r} at {index}")


def _check_lengths(value: Any, name: str, num_ids: int, sample: slice) -> None:
    values = _to_list(value)
    if values is None:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            return  # a name or a flag
        values = [value.item() if isinstance(value, np.number) else value]
    lengths = [number for number in _whole_numbers(values, name) if number > 0]
    lengths = sorted(set(lengths)) if name in ENDS else lengths
    if len(lengths) > 1:
        lengths_text = ", ".join(map(str, lengths[:_SHOWN])) + (", ..." if len(lengths) > _SHOWN else "")
        _refuse_several(len(lengths), f"{name} has {lengths_text}")
    length, num_kept = sum(lengths), sample.stop - sample.start
    if values and length not in (num_ids, num_kept):
        pads = f", {num_kept} without pads" if num_kept != num_ids else ""
        _refuse(f"{name} is {length}, but the row has {num_ids} ids{pads}; correct or remove the column")


def _numbers_of(value: Any, name: str, num_ids: int) -> list[int]:
    values = _to_list(value)
    if values is None:
        _refuse(f"{name} is {kind_of(value)}; it must be a list of whole numbers")
    numbers = _whole_numbers(values, name)
    if len(numbers) != num_ids:
        _refuse(f"{name} has {len(numbers)} entries for {num_ids} ids")
    return numbers


def _to_list(value: Any) -> list[Any] | None:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return list(value) if isinstance(value, (list, tuple)) else None


def _whole_numbers(values: Sequence[Any], name: str) -> list[int]:
    _check_is_flat(values, name)
    if set(map(type, values)) - {int, float, bool} or not all(value.is_integer() for value in values):
        _refuse(f"{name} must be a list of whole numbers")
    return [int(value) for value in values]


def _check_is_flat(values: Sequence[Any], name: str) -> None:
    if any(isinstance(value, (list, tuple, np.ndarray)) for value in values):
        _refuse(f"{name} is a list of lists, as packed rows have it; {_ONE_EACH}, with a flat list")


def _refuse_several(num_samples: int, evidence: str) -> NoReturn:
    _refuse(f"the row holds {num_samples} samples ({evidence}); {_ONE_EACH}")


def _refuse(detail: str) -> NoReturn:
    raise RowError(DropReason.INVALID_FIELD, detail)
