"""Histograms of lengths and packs as bars: numbers from the plan or the rows, and their geometry.

Memory holds the distinct lengths, 24 bytes per pack, and the sequences of the few packs that are drawn.

Bars, marks and ticks are at percentages of the chart's width, so it fits every screen and its text keeps its size.
Bars need no library: altair with vl-convert are 34 MB of wheels, matplotlib with what it needs 24 MB without numpy, and
both draw text and colours that neither follow the reader's font size and dark mode nor fit a phone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray, aligned_runtime_lengths

#: Packs whose sequences are drawn.
_DRAWN_PACKS = 12
#: Stored tokens read at a time.
_BATCH_TOKENS = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitLengths:
    """The lengths of a split, in runtime tokens with alignment padding."""

    lengths: IntArray  #: distinct lengths of its sequences, ascending; shape [num_lengths], int64
    counts: IntArray  #: number of sequences of each length; shape [num_lengths], int64
    pack_tokens: IntArray  #: runtime tokens of each pack; shape [num_packs], int64
    pack_sequences: IntArray  #: number of sequences in each pack; shape [num_packs], int64
    #: attention work of each pack, the sum of its squared lengths; shape [num_packs], float64
    pack_costs: npt.NDArray[np.float64]
    drawn: dict[int, IntArray]  #: pack -> lengths of its sequences in row order, for evenly spaced packs

    @property
    def num_packs(self) -> int:
        """Number of packs."""
        return len(self.pack_tokens)

    @property
    def emptiest(self) -> int:
        """The first pack with the fewest tokens."""
        return int(np.argmin(self.pack_tokens))

    def quantile(self, fraction: float) -> int:
        """Return the smallest length that at least `fraction` (0-1) of the sequences do not exceed.

        Example: lengths 1, 2, 3, 4 with 0.5 -> 2.
        """
        rank = np.searchsorted(np.cumsum(self.counts), fraction * self.counts.sum())
        return int(self.lengths[min(int(rank), len(self.lengths) - 1)])


def lengths_of_plan(artifact: Artifact, split: str, num_packs: int) -> SplitLengths:
    """Return a split's lengths from the artifact's plan.

    Raises:
        ArtifactError: the plan is missing, cannot be read, or names other packs.
    """
    multiple = artifact.manifest.pad_seq_to_mult
    columns = iter_plan_columns(artifact, split, ("pack", "runtime_length"))
    return _sum_lengths(((packs, aligned_runtime_lengths(lengths, multiple)) for packs, lengths in columns), num_packs)


def lengths_of_rows(artifact: ArtifactOnDisk, split: str, num_packs: int) -> SplitLengths:
    """Return a split's lengths from its rows, which must be valid.

    Raises:
        ArtifactError: the rows cannot be read.
    """
    return _sum_lengths(_parts_of_rows(artifact, split), num_packs)


def _parts_of_rows(artifact: ArtifactOnDisk, split: str) -> Iterator[tuple[IntArray, IntArray]]:
    first = 0
    for shard in artifact.shard_facts(split):
        for batch in artifact.parts.iter_batches(shard.path, max_tokens=_BATCH_TOKENS):
            rows = np.repeat(np.arange(batch.num_rows), np.diff(batch.start_offsets))
            starts = batch.seq_start_id.astype(np.int64) + batch.token_offsets[rows]
            yield rows + first, np.diff(np.append(starts, batch.token_offsets[-1])) - 1
            first += batch.num_rows


def _sum_lengths(parts: Iterable[tuple[IntArray, IntArray]], num_packs: int) -> SplitLengths:
    """Return the combined lengths of parts; each part is (packs, lengths) of its sequences, in pack order."""
    histogram: Counter[int] = Counter()
    pack_tokens, pack_sequences = np.zeros(num_packs, dtype=np.int64), np.zeros(num_packs, dtype=np.int64)
    pack_costs = np.zeros(num_packs)
    wanted = np.unique(np.linspace(0, num_packs - 1, min(num_packs, _DRAWN_PACKS)).astype(np.int64))
    drawn: dict[int, list[IntArray]] = {int(pack): [] for pack in wanted}
    for packs, lengths in parts:
        if not len(packs):
            continue
        if packs.min() < 0 or packs.max() >= num_packs:
            raise ArtifactError(f"the plan has pack {packs.max()} of {num_packs} packs. Build the artifact again.")
        values, counts = np.unique(lengths, return_counts=True)
        histogram.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        for sums, addends in ((pack_tokens, lengths), (pack_sequences, 1), (pack_costs, lengths.astype(float) ** 2)):
            np.add.at(sums, packs, addends)
        for pack in np.intersect1d(packs, wanted).tolist():
            drawn[pack].append(lengths[packs == pack])
    if not histogram:
        raise ArtifactError("the split has no sequences. Build the artifact again.")
    found = sorted(histogram)
    return SplitLengths(
        lengths=np.array(found, dtype=np.int64),
        counts=np.array([histogram[length] for length in found], dtype=np.int64),
        pack_tokens=pack_tokens,
        pack_sequences=pack_sequences,
        pack_costs=pack_costs,
        drawn={pack: np.concatenate(chunks) for pack, chunks in drawn.items() if chunks},
    )


_NUM_BARS = 32
#: Maximum boxes per pack; short neighbours share a box.
_NUM_BOXES = 120
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One bar of a histogram."""

    low: float  #: smallest value in the bar
    high: float  #: largest value in the bar
    count: int
    x: float  #: left edge, percent of the chart's width
    width: float  #: percent
    height: float  #: percent of the tallest bar


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A value on the axis."""

    label: str
    value: float
    x: float  #: percent of the chart's width


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A histogram."""

    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]  #: labelled values, ascending
    ticks: tuple[Mark, ...]  #: ticks of the axis


@dataclass(frozen=True, kw_only=True, slots=True)
class PackBar:
    """One pack as a bar."""

    index: int  #: row of the split, from 0
    num_sequences: int
    num_tokens: int  #: runtime tokens with alignment padding
    boxes: tuple[tuple[float, float], ...]  #: left edge and width of its sequences, percent of the pack's size


def length_chart(lengths: SplitLengths, packed_sequence_size: int | None) -> Chart:
    """Return the histogram of a split's lengths over a logarithmic axis, with p50, p95, p99, maximum and pack size."""
    named = {name: float(lengths.quantile(fraction)) for name, fraction in _QUANTILES.items()}
    named["longest"] = float(lengths.lengths[-1])
    named |= {} if packed_sequence_size is None else {"pack size": float(packed_sequence_size)}
    low, high = max(int(lengths.lengths[0]), 1), int(max(named.values())) + 1
    edges = np.unique(np.geomspace(low, max(high, low + 1), _NUM_BARS + 1).round())
    powers = [2.0**power for power in range(32) if low <= 2**power <= high]
    return _chart(edges, np.maximum(lengths.lengths, 1), lengths.counts, named, powers, is_logarithmic=True)


def value_chart(values: npt.NDArray[np.floating] | IntArray) -> Chart:
    """Return the histogram of one value per pack, with minimum, median and maximum."""
    low, high = float(values.min()), float(values.max())
    named = {"least": low, "median": float(np.median(values)), "most": high}
    if values.dtype.kind in "iu":
        step = -(-(high - low + 1) // _NUM_BARS)
        edges = np.minimum(np.arange(low, high + 1 + step, step), high + 1)
    else:
        edges = np.linspace(low, high if high > low else low + 1, _NUM_BARS + 1)
    return _chart(edges, values, np.ones(len(values), dtype=np.int64), named, [low, high], is_logarithmic=False)


def _chart(
    edges: npt.NDArray[np.float64],
    values: npt.NDArray[np.floating] | IntArray,
    counts: IntArray,
    named: dict[str, float],
    ticks: Sequence[float],
    *,
    is_logarithmic: bool,
) -> Chart:
    heights = np.histogram(values, bins=edges, weights=counts)[0].astype(np.int64)
    first, *_, last = scaled = np.log(edges) if is_logarithmic else edges
    places = (scaled - first) / (last - first) * 100

    def mark(label: str, value: float) -> Mark:
        place = (np.log(max(value, 1)) if is_logarithmic else value) - first
        return Mark(label=label, value=value, x=round(float(np.clip(place / (last - first) * 100, 0, 100)), 2))

    is_whole = values.dtype.kind in "iu"
    bars = [
        Bar(
            low=float(edges[index]),
            high=float(edges[index + 1]) - is_whole,
            count=int(height),
            x=round(float(places[index]), 2),
            width=round(float(places[index + 1] - places[index]), 2),
            height=round(100 * int(height) / max(int(heights.max()), 1), 2),
        )
        for index, height in enumerate(heights)
    ]
    return Chart(
        bars=tuple(bar for bar in bars if bar.count),
        marks=tuple(mark(label, value) for label, value in sorted(named.items(), key=lambda item: item[1])),
        ticks=tuple(mark("", value) for value in ticks),
    )


def pack_bars(lengths: SplitLengths, packed_sequence_size: int | None) -> tuple[PackBar, ...]:
    """Return evenly spaced packs of a split as bars; without a pack size the fullest pack has the full width."""
    width = packed_sequence_size or int(lengths.pack_tokens.max())
    return tuple(
        PackBar(index=pack, num_sequences=len(found), num_tokens=int(found.sum()), boxes=tuple(_boxes(found, width)))
        for pack, found in lengths.drawn.items()
    )


def _boxes(lengths: IntArray, width: int) -> Iterator[tuple[float, float]]:
    start = stop = 0
    for length in lengths.tolist():
        stop += length
        if (stop - start) * _NUM_BOXES >= width:
            yield round(100 * start / width, 2), round(100 * (stop - start) / width, 2)
            start = stop
    if stop > start:
        yield round(100 * start / width, 2), round(100 * (stop - start) / width, 2)
