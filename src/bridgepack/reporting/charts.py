"""Histograms of lengths and packs as bars: their geometry.

Bars, marks and ticks are at percentages of the chart's width, so it fits every screen and its text keeps its size.
Bars need no library: altair with vl-convert are 34 MB of wheels, matplotlib with what it needs 24 MB without numpy, and
both draw text and colours that neither follow the reader's font size and dark mode nor fit a phone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.lengths import SplitLengths
from bridgepack.geometry import IntArray
from bridgepack.reporting.blocks import Picture, PictureBar, PictureMark

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


def picture_of(chart: Chart, *, title: str, description: str, amount: str, axis: str) -> Picture:
    """Return a histogram as a picture; `amount` and `axis` are as of `Picture`."""
    bars = (
        PictureBar(
            label=_number(bar.low) + (f" to {_number(bar.high)}" if bar.high > bar.low else ""),
            value=f"{bar.count:,}",
            height=bar.height,
            x=bar.x,
            width=bar.width,
        )
        for bar in chart.bars
    )
    return Picture(
        title=title,
        description=description,
        amount=amount,
        axis=axis,
        bars=tuple(bars),
        marks=tuple(PictureMark(text=f"{mark.label} {_number(mark.value)}", x=mark.x) for mark in chart.marks),
        ticks=tuple(PictureMark(text=_number(tick.value), x=tick.x) for tick in chart.ticks),
    )


def _number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackBar:
    """One pack as a bar."""

    index: int  #: row of the split, from 0
    num_sequences: int
    num_tokens: int  #: runtime tokens with alignment padding
    boxes: tuple[tuple[float, float], ...]  #: left edge and width of its sequences, percent of the pack's size


def length_chart(lengths: SplitLengths, packed_sequence_size: int | None) -> Chart:
    """Return the histogram of a split's lengths over a logarithmic axis, with p50, p95, p99, maximum and pack size."""
    quantities = {name: float(lengths.quantile(fraction)) for name, fraction in _QUANTILES.items()}
    quantities["longest"] = float(lengths.lengths[-1])
    quantities |= {} if packed_sequence_size is None else {"pack size": float(packed_sequence_size)}
    low, high = max(int(lengths.lengths[0]), 1), int(max(quantities.values())) + 1
    edges = np.unique(np.geomspace(low, max(high, low + 1), _NUM_BARS + 1).round())
    powers = [2.0**power for power in range(32) if low <= 2**power <= high]
    return _chart(edges, np.maximum(lengths.lengths, 1), lengths.counts, quantities, powers, is_logarithmic=True)


def value_chart(values: npt.NDArray[np.floating] | IntArray) -> Chart:
    """Return the histogram of one value per pack, with minimum, median and maximum."""
    low, high = float(values.min()), float(values.max())
    quantities = {"least": low, "median": float(np.median(values)), "most": high}
    if values.dtype.kind in "iu":
        step = -(-(high - low + 1) // _NUM_BARS)
        edges = np.minimum(np.arange(low, high + 1 + step, step), high + 1)
    else:
        edges = np.linspace(low, high if high > low else low + 1, _NUM_BARS + 1)
    return _chart(edges, values, np.ones(len(values), dtype=np.int64), quantities, [low, high], is_logarithmic=False)


def _chart(
    edges: npt.NDArray[np.float64],
    values: npt.NDArray[np.floating] | IntArray,
    counts: IntArray,
    quantities: dict[str, float],
    ticks: Sequence[float],
    *,
    is_logarithmic: bool,
) -> Chart:
    heights = np.histogram(values, bins=edges, weights=counts)[0].astype(np.int64)
    first, *_, last = scale = np.log(edges) if is_logarithmic else edges
    places = (scale - first) / (last - first) * 100

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
        marks=tuple(mark(label, value) for label, value in sorted(quantities.items(), key=lambda item: item[1])),
        ticks=tuple(mark("", value) for value in ticks),
    )


def pack_bars(lengths: SplitLengths, packed_sequence_size: int | None) -> tuple[PackBar, ...]:
    """Return evenly spaced packs of a split as bars; without a pack size the fullest pack has the full width."""
    width = packed_sequence_size or int(lengths.pack_tokens.max())
    return tuple(
        PackBar(index=pack, num_sequences=len(runs), num_tokens=int(runs.sum()), boxes=tuple(_boxes(runs, width)))
        for pack, runs in lengths.samples.items()
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
