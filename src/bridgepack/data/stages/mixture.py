"""Computes how often each row of a split is used, from its sources' limits, epochs and weights."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from bridgepack.config.recipe.data import DataSource, MixtureConfig, Source, amounts_of, label_of, sets_amount
from bridgepack.data.packing.order import seeded_hash
from bridgepack.data.stages.finish import FILE_BITS
from bridgepack.data.stages.split import TokenizedSplit, begins_row, with_piece_counts
from bridgepack.errors import DataError
from bridgepack.geometry import IntArray
from bridgepack.records import DropReason, SourceRecord
from bridgepack.records.words import count_text

#: Added to the seed, so that this choice is independent of the choice of validation rows.
_SEED_OFFSET = 2
#: Maximum sequences of a split; more are a typing error, which would fill the memory.
_MOST_SEQUENCES = 1 << 31

#: Rows of a source that are used: all in order, or some in the order in which they are chosen.
type _Members = slice | IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Node:
    """A source, or a nested mixture."""

    settings: str  #: its settings for how often it is used, for messages; empty if it has none
    name: tuple[str, ...]  #: its name, after those of the mixtures around it
    parts: tuple[_Node, ...]  #: members of a mixture; empty for a source with rows
    weight: Fraction | None  #: exactly as written; None if not set
    epochs: Fraction  #: how often it is used if no weight applies
    size: Fraction  #: tokens or rows that its epochs give, without repetition beyond them
    first_drop: str  #: why one of its rows was dropped, for messages; empty if unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class _Amount:
    node: _Node
    target: Fraction | None  #: tokens or rows that weights ask for; None without weights
    epochs: Fraction  #: how often its sequences are used without weights


def mix_sources(
    split: TokenizedSplit,
    sources: Sequence[Source],
    mixture: MixtureConfig,
    *,
    seed: int,
    aside: tuple[float, bool] = (0.0, False),
) -> TokenizedSplit:
    """Return a split with the sequences that its sources' settings ask for, and a record of each source.

    Repeated sequences occur repeatedly, one pass after the other. The choice in a source depends only on the seed and
    its own rows, which are chosen whole, with all their pieces. Rows that are not chosen are drops, `not_sampled`.

    `aside` is (fraction of the rows, 0-1, that is set aside for validation; whether this split is that part). That part
    gets its share of `max_rows`, and every other sequence once.

    Raises:
        DataError: a source with such a setting gives no sequences.
    """
    firsts = np.flatnonzero(begins_row(split))
    bounds = _bounds(split, firsts)
    units = _units(split, firsts, mixture.by)
    hashes = _hashes(split, firsts, seed) if any(map(sets_amount, sources)) else None
    first_drops = _first_drops(split)
    members: list[_Members] = []

    def members_of(source: Source) -> tuple[int, str]:
        index = len(members)
        rows_of_source = slice(bounds[index], bounds[index + 1])
        if hashes is None:
            members.append(rows_of_source)
        else:
            members.append(
                rows_of_source.start + np.argsort(hashes[rows_of_source], kind="stable")[: _most_rows(source, aside)]
            )
        return int(units[members[-1]].sum()), first_drops.get(index, "")

    tree = [_node(source, (), members_of, is_whole=aside[1]) for source in sources]
    amounts = list(_amounts(tree, mixture.total))
    counts = _counts(split, amounts, members, units, mixture.by)
    records = _records(split, amounts, (bounds, firsts), counts, units)
    return replace(_take_rows(split, firsts, counts), sources=tuple(records))


def _bounds(split: TokenizedSplit, firsts: IntArray) -> list[int]:
    """Return where the rows of each source begin, and the last end; `firsts` are the rows' first sequences."""
    of_inputs = [record.source for record in split.inputs]
    sources, files = np.array(of_inputs)[split.file_indices], split.sequences["store_file"]
    rows, indices = range(len(firsts)), range(of_inputs[-1] + 2)
    return [bisect_left(rows, index, key=lambda row: sources[files[firsts[row]]]) for index in indices]


def _units(split: TokenizedSplit, firsts: IntArray, unit: str) -> IntArray:
    """Return each row's size in the mixture's unit, with all its pieces; shape [num_rows], int64."""
    if unit == "rows":
        return np.ones_like(firsts)
    lengths = split.sequences["stored_length"] - np.int32(1)
    return np.add.reduceat(lengths, firsts, dtype=np.int64)


def _first_drops(split: TokenizedSplit) -> dict[int, str]:
    """Return source -> why its first row was dropped, for messages."""
    reasons: dict[int, str] = {}
    for drop in split.drops.examples:
        reasons.setdefault(split.inputs[drop.file_index].source, f"row {drop.row}: {drop.detail}")
    return reasons


def _counts(
    split: TokenizedSplit, amounts: Sequence[_Amount], members: Sequence[_Members], units: IntArray, unit: str
) -> IntArray:
    counts = np.zeros(len(units), dtype=np.int64)
    for amount, rows in zip(amounts, members, strict=True):
        uses = counts[rows] = _uses(amount, units[rows])
        if amount.node.settings and not uses.any():
            amount_text = (
                f"{float(amount.target):.1f} {unit}" if amount.target is not None else f"{float(amount.epochs)} epochs"
            )
            why = f"gives no sequences: its settings ask for {amount_text} of its {len(uses)}"
            raise _nothing_of(amount.node, f"{why}. Raise its weight or epochs, or data.mixture.total")
    if not counts.any():
        raise DataError(
            f"the {split.name} split has no sequences left: its sources' settings select none of its "
            f"{count_text(split.num_sequences, 'sequence')}. Raise max_rows, epochs or weight."
        )
    if counts.sum() > _MOST_SEQUENCES:
        raise DataError(
            f"the {split.name} split would have {counts.sum():,} sequences, most of them repeated; allowed: at most "
            f"{_MOST_SEQUENCES:,}. Lower data.mixture.total or the epochs of its sources."
        )
    return counts


def _hashes(split: TokenizedSplit, firsts: IntArray, seed: int) -> npt.NDArray[np.uint64]:
    """Return a hash of the position of each row in its source; `firsts` are the rows' first sequences."""
    sources = np.array([record.source for record in split.inputs])
    files_in_source = np.arange(len(sources)) - np.searchsorted(sources, sources)
    begins = split.first_rows + (files_in_source[split.file_indices] << FILE_BITS)
    keys = begins[split.sequences["store_file"][firsts]]
    keys += split.sequences["row_offset"][firsts]
    return seeded_hash(keys.view(np.uint64), seed + _SEED_OFFSET)


def _node(
    source: Source, above: tuple[str, ...], members_of: Callable[[Source], tuple[int, str]], *, is_whole: bool
) -> _Node:
    """Return a source's node; calls `members_of` for each source with rows, in order.

    `is_whole`: the source is used once, whatever its settings.
    """
    name = (*above, label_of(source))
    section = source if isinstance(source, DataSource) else DataSource(path=source)
    parts = tuple(_node(part, name, members_of, is_whole=is_whole) for part in section.sources or ())
    size, first_drop = (0, "") if parts else members_of(source)
    epochs = Fraction(1 if is_whole else str(section.epochs or 1))
    return _Node(
        settings="" if is_whole else ", ".join(f"{name} {value}" for name, value in amounts_of(section).items()),
        name=name,
        parts=parts,
        weight=None if is_whole or section.weight is None else Fraction(str(section.weight)),
        epochs=epochs,
        size=epochs * (_natural(parts) if parts else size),
        first_drop=first_drop or next((part.first_drop for part in parts if part.first_drop), ""),
    )


def _most_rows(source: Source, aside: tuple[float, bool]) -> int | None:
    max_rows = source.max_rows if isinstance(source, DataSource) else None
    if max_rows is None:
        return None
    fraction, is_aside = aside
    num_aside = int(max_rows * fraction)
    return num_aside if is_aside else max_rows - num_aside


def _natural(nodes: Sequence[_Node]) -> Fraction:
    """Return the largest total that weighted nodes give without repetition: 30 and 10 at 1:1 -> 20."""
    weights = [node.weight for node in nodes if node.weight is not None]
    if not weights:
        return sum((node.size for node in nodes), Fraction(0))
    return sum(weights) * min(node.size / node.weight for node in nodes if node.weight is not None)


def _amounts(nodes: Sequence[_Node], total: int | None) -> Iterator[_Amount]:
    nodes_with_weight = [node for node in nodes if node.weight is not None]
    shared_total = (
        (Fraction(total) if total is not None else _natural(nodes_with_weight)) if nodes_with_weight else Fraction(0)
    )
    sum_of_weights = sum((node.weight or Fraction(0) for node in nodes_with_weight), Fraction(0))
    for node in nodes:
        target = None if node.weight is None else shared_total * node.weight / sum_of_weights
        yield from _spread(node, target, Fraction(1))


def _spread(node: _Node, target: Fraction | None, epochs: Fraction) -> Iterator[_Amount]:
    """Yield the amounts of a node's sources with rows; `epochs` are those of the mixtures around it."""
    epochs *= node.epochs
    if node.settings and not node.size:
        why = f": all its rows were dropped, e.g. {node.first_drop}" if node.first_drop else ""
        raise _nothing_of(node, f"has no sequences{why}. Correct its columns or rows")
    if not node.parts:
        yield _Amount(node=node, target=target, epochs=epochs)
        return
    weights = [part.weight for part in node.parts]
    if target is None and weights[0] is not None:
        target = epochs * _natural(node.parts)
    shares = [part.size if weight is None else weight for part, weight in zip(node.parts, weights, strict=True)]
    sum_of_shares = sum(shares) or 1
    for part, share in zip(node.parts, shares, strict=True):
        yield from _spread(part, None if target is None else target * share / sum_of_shares, epochs)


def _uses(amount: _Amount, units: IntArray) -> IntArray:
    """Return how often each sequence is used, as evenly as possible: [4, 4, 4], target 16 tokens -> [2, 1, 1]."""
    sums = np.cumsum(units) if amount.target is not None else np.arange(1, len(units) + 1)
    if not len(sums):
        return sums
    num_units = int(sums[-1])
    passes, remainder = divmod(amount.target if amount.target is not None else amount.epochs * num_units, num_units)
    num_more = int(np.searchsorted(sums, float(remainder)))
    before, after = (int(sums[num_more - 1]) if num_more else 0), int(sums[min(num_more, len(sums) - 1)])
    num_more += after - remainder <= remainder - before and remainder > 0
    uses = sums  # reuses its memory
    uses[:] = int(passes)
    uses[:num_more] += 1
    return uses


def _nothing_of(node: _Node, why: str) -> DataError:
    return DataError(f"the source {'/'.join(node.name)!r} ({node.settings}) {why}, or remove it.")


def _take_rows(split: TokenizedSplit, firsts: IntArray, uses: IntArray) -> TokenizedSplit:
    """Return a split in which each row occurs as often as it is used; `firsts` are the rows' first sequences."""
    if (uses == 1).all():
        return split
    counts = _of_sequences(split, firsts, uses)
    num_left_out, num_kept = int((uses == 0).sum()), int((counts > 0).sum())
    drops = dict(split.drops.counts) | ({DropReason.NOT_SAMPLED: num_left_out} if num_left_out else {})
    indices = _in_passes(counts)
    return replace(
        with_piece_counts(split, firsts, uses > 0),
        sequences=split.sequences[indices],
        num_repeated=len(indices) - num_kept,
        drops=replace(split.drops, counts=dict(sorted(drops.items(), key=lambda item: -item[1]))),
    )


def _in_passes(counts: IntArray) -> IntArray:
    """Return sequence indices, each as often as its count, one pass after the other: [2 0 1] -> [0 2 0]."""
    indices = np.repeat(np.arange(len(counts)), counts)
    if counts.max(initial=0) <= 1:
        return indices
    passes = np.arange(len(indices))
    passes -= np.repeat(np.cumsum(counts) - counts, counts)
    return indices[np.argsort(passes, kind="stable")]


def _of_sequences(split: TokenizedSplit, firsts: IntArray, values: IntArray) -> IntArray:
    """Return a value of each row as a value of each of its sequences."""
    if len(firsts) == split.num_sequences:
        return values
    values_of_sequences: IntArray = np.repeat(values, np.diff(firsts, append=split.num_sequences))
    return values_of_sequences


def _records(
    split: TokenizedSplit,
    amounts: Sequence[_Amount],
    places: tuple[Sequence[int], IntArray],
    counts: IntArray,
    units: IntArray,
) -> Iterator[SourceRecord]:
    """Yield the totals of each source; `places` are the sources' bounds in rows, and the rows' first sequences."""
    bounds, firsts = places
    uses_of = _of_sequences(split, firsts, counts)
    starts = [int(firsts[row]) if row < len(firsts) else split.num_sequences for row in bounds]
    rows = np.bincount([record.source for record in split.inputs], split.num_rows_of_files, len(amounts))
    targets = [
        item.epochs * item.node.size / item.node.epochs if item.target is None else item.target for item in amounts
    ]
    has_weights, num_units, sum_of_targets = (
        any(item.target is not None for item in amounts),
        int((counts * units).sum()),
        sum(targets),
    )
    for index, amount in enumerate(amounts):
        rows_of_source = slice(bounds[index], bounds[index + 1])
        sequences = slice(starts[index], starts[index + 1])
        uses = uses_of[sequences]
        yield SourceRecord(
            name=amount.node.name,
            num_rows_in=int(rows[index]),
            num_sequences=int(uses.sum()),
            num_repeated=int(np.maximum(uses - 1, 0).sum()),
            num_tokens=int((uses * (split.sequences["stored_length"][sequences] - 1)).sum()),
            num_trained_tokens=int((uses * split.sequences["num_trained"][sequences]).sum()),
            share_asked=float(targets[index] / sum_of_targets) if has_weights else None,
            share_got=int((counts[rows_of_source] * units[rows_of_source]).sum()) / num_units,
        )
