"""The blocks that results are made of; each of the three faces (screen, page, notebook) draws all of them.

A block holds what is said; where a face writes a text in a way of its own, the block says both:
`Column("rows", "{:>8}")` is the head of a column on pages, and how a cell of it stands in a line of a screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bridgepack.records import Finding

#: How a result came out, in colours; empty for a statement without a verdict.
Tone = Literal["", "good", "warn", "bad"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A value with its name."""

    name: str
    value: str  #: each further line stands below the first
    note: str = ""  #: what a screen writes after the value, its comma or space included; small below it on pages


@dataclass(frozen=True, slots=True)
class Title:
    """What is shown: the first line of a screen, the heading of a page."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How the result came out: pages begin with it, and a screen ends with it, because its end stays in sight."""

    text: str
    details: tuple[str, ...] = ()  #: further sentences, a line each on a screen
    tone: Tone = ""
    figures: tuple[Figure, ...] = ()  #: numbers that the text has already, for pages alone


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence, and what is said about it: items below it, indented on a screen."""

    text: str
    items: tuple[str, ...] = ()
    indent: int = 2  #: spaces before an item on a screen
    is_wrapped: bool = False  #: whether a screen breaks it into lines at its width


@dataclass(frozen=True, slots=True)
class Figures:
    """Values with their names, one below the other on a screen."""

    figures: tuple[Figure, ...]
    width: int = 22  #: characters of a screen before the values
    is_wrapped: bool = False  #: whether a screen breaks the values into lines at its width


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell with a bar."""

    fraction: float  #: length of the bar (0-1)
    is_faint: bool = False


@dataclass(frozen=True, slots=True)
class Strip:
    """Boxes side by side, such as the sequences of a pack; alone or in a cell."""

    boxes: tuple[tuple[float, float], ...]  #: left edge and width of each, percent of the strip


Cell = str | Bar | Strip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str  #: head on pages; empty if pages leave the column out
    screen: str = ""  #: format of a cell in a line of a screen; empty if a screen leaves the column out
    is_number: bool = False
    is_long: bool = False  #: pages do not shorten its cells: their parts are short already
    is_below: bool = False  #: a screen writes its cells on lines of their own, below the rest of the row


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells."""

    title: str  #: caption on pages
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    head: str = ""  #: line above the rows on a screen; empty for none
    indent: int = 2  #: spaces before a row on a screen
    most_rows: int | None = None  #: of a screen; None for all
    remainder: str = "--json lists all"  #: where those are that a face leaves out


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of rules, worst first."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Legend:
    """How a face marks what is trained; before the first text."""

    name: str = ""  #: of the figure that it is; empty for a sentence


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text that is trained, or not."""

    text: str
    is_trained: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkedText:
    """A text of which some is trained, with the place that it comes from."""

    heading: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureBar:
    """One bar of a picture."""

    label: str  #: what it stands for: `17 - 32`
    value: str  #: its number: `1,204`
    height: float  #: percent of the tallest bar
    x: float  #: left edge, percent of the width
    width: float  #: percent of the width


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureMark:
    """A value on the axis of a picture."""

    text: str
    x: float  #: percent of the width


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """Numbers as bars over an axis."""

    title: str
    description: str  #: a sentence on what the bars are
    amount: str  #: what the height of a bar counts: `Sequences`
    axis: str  #: what the axis measures: `Runtime tokens`
    bars: tuple[PictureBar, ...]
    marks: tuple[PictureMark, ...] = ()  #: values with a line through the picture, ascending
    ticks: tuple[PictureMark, ...] = ()  #: values below the axis


@dataclass(frozen=True, slots=True)
class Code:
    """A text to copy: a recipe, commands."""

    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks that belong together; a blank line comes before them on a screen."""

    title: str  #: empty for none
    blocks: tuple[Block, ...]
    is_folded: bool = False  #: whether a page opens it on a click


Block = Title | Verdict | Line | Figures | Table | Findings | Strip | Legend | MarkedText | Picture | Code | Section
