"""Blocks as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator

from bridgepack.records import Change, Finding
from bridgepack.records.words import value_text
from bridgepack.reporting.blocks import (
    Bar,
    Block,
    Cell,
    Code,
    Figures,
    Findings,
    Legend,
    Line,
    MarkedText,
    Picture,
    Section,
    Strip,
    Table,
    Title,
    Verdict,
)
from bridgepack.reporting.text import caught_text, printable, terminal_width

_RESET, _BOLD, _DIM, _GREEN = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m"
_COLOURS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "advice": "\x1b[1;36m"}
#: Characters of the longest bar of a picture, of a table, and of a strip.
_PICTURE, _BAR, _STRIP = 40, 22, 72
#: In place of a blank line; several are one.
_GAP = "\0"

#: Paints a text in a colour, or leaves it as it is.
Paint = Callable[[str, str], str]


def screen(blocks: Iterable[Block], *, has_colour: bool = False) -> str:
    """Return blocks as lines of text, verdicts last; nothing in them can take over a terminal."""

    def paint(text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if has_colour else text

    lines: list[str] = []
    for block in sorted(blocks, key=lambda block: isinstance(block, Verdict)):
        lines += _lines(block, paint)
    return "\n".join(_without_double_gaps(lines))


def _without_double_gaps(lines: Iterable[str]) -> Iterator[str]:
    has_text = is_gap_due = False
    for line in lines:
        if line == _GAP:
            is_gap_due = has_text
            continue
        if is_gap_due:
            yield ""
        has_text, is_gap_due = True, False
        yield line


def _lines(block: Block, paint: Paint) -> Iterator[str]:
    match block:
        case Title() | Code():
            yield printable(block.text)
        case Verdict():
            yield from (_GAP, *map(printable, (block.text, *block.details)))
        case Line():
            indents = (0, *(block.indent for _ in block.items))
            for text, indent in zip((block.text, *block.items), indents, strict=True):
                yield from _wrap(text, indent) if block.is_wrapped else [_indent(printable(text), indent)]
        case Figures():
            yield from _figure_lines(block)
        case Table():
            yield from _table_lines(block)
        case Strip():
            yield _strip(block)
        case Legend():
            yield f"{block.name:<20}{_legend(paint)}" if block.name else _legend(paint)
        case Findings():
            for finding in block.findings:
                yield from (_GAP, *_finding_lines(finding, paint), _GAP)
        case MarkedText():
            yield from (_GAP, *_marked_lines(block, paint), _GAP)
        case Picture():
            yield from (_GAP, *_picture_lines(block), _GAP)
        case Section():
            yield from (_GAP, *_section_lines(block, paint), _GAP)


def _section_lines(section: Section, paint: Paint) -> Iterator[str]:
    """Yield the title and the blocks below it, indented; texts with a heading of their own keep the whole width."""
    if section.title:
        yield printable(section.title)
    for block in section.blocks:
        indent = 0 if isinstance(block, MarkedText | Findings) or not section.title else 2
        yield from (line if line == _GAP else _indent(line, indent) for line in _lines(block, paint))


def _indent(text: str, indent: int) -> str:
    return "\n".join(f"{' ' * indent}{line}" if line else "" for line in text.split("\n"))


def _wrap(text: str, indent: int, subsequent_indent: int = 4) -> list[str]:
    return textwrap.wrap(
        printable(text),
        terminal_width(),
        initial_indent=" " * indent,
        subsequent_indent=" " * subsequent_indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _figure_lines(block: Figures) -> Iterator[str]:
    for figure in block.figures:
        margin = " " * block.width
        lines = printable(f"{figure.value}{figure.note}").split("\n")
        if block.is_wrapped:
            lines = [
                text.removeprefix(margin) for line in lines for text in _wrap(line, block.width, block.width) or [""]
            ]
        first, *further = lines
        yield f"{printable(figure.name):<{block.width}}{first}"
        yield from (f"{margin}{text}" for text in further)


def _legend(paint: Paint) -> str:
    return f"trained text is {'green, ' if paint('', _GREEN) else ''}between ⟦ and ⟧"


def _table_lines(table: Table) -> Iterator[str]:
    rows = list(_rows(table))
    if table.head:
        yield printable(table.head)
    yield from rows[: table.most_rows]
    if table.most_rows is not None and len(rows) > table.most_rows:
        yield _indent(f"... and {len(rows) - table.most_rows:,} more: {table.remainder}", table.indent)


def _rows(table: Table) -> Iterator[str]:
    columns = [(place, column) for place, column in enumerate(table.columns) if column.screen]
    for row in table.rows if columns else ():
        cells = [(column, column.screen.format(_cell_text(row[place]))) for place, column in columns if row[place]]
        lines = ["".join(text for column, text in cells if not column.is_below).rstrip()]
        lines += [text for column, text in cells if column.is_below]
        yield "\n".join(_indent(line, table.indent) for line in lines)


def _cell_text(cell: Cell) -> str:
    if isinstance(cell, Bar):
        return "#" * max(round(_BAR * cell.fraction), 1)
    return _strip(cell) if isinstance(cell, Strip) else printable(cell)


def _strip(strip: Strip) -> str:
    """Return a strip with a letter per box: `|aaaaabbbcc··|`."""
    cells = ["·"] * _STRIP
    for place, (edge, width) in enumerate(strip.boxes):
        first = int(edge * _STRIP / 100 + 1e-9)
        stop = min(max(int((edge + width) * _STRIP / 100 + 1e-9), first + 1), _STRIP)
        cells[first:stop] = "abcdefghijklmnopqrstuvwxyz"[place % 26] * (stop - first)
    return f"|{''.join(cells)}|"


def _finding_lines(finding: Finding, paint: Paint) -> Iterator[str]:
    line = f":{finding.line}" if finding.line else ""
    place = f"{finding.file}{line}: " if finding.file else ""
    details = {
        "found": finding.found,
        "allowed": finding.allowed,
        "why": finding.why,
        "caught": caught_text(finding.noticed),
        "fix": finding.fix,
        "--fix": "; ".join(map(_change_text, finding.changes)),
        "places": _places(finding) if finding.num_occurrences > 1 else "",
    }
    head = paint(f"{finding.severity}[{finding.code}]", _COLOURS[finding.severity])
    yield f"{head}: {paint(finding.name, _BOLD)}"
    yield f"  --> {printable(place)}{printable(finding.where)}"
    for label, text in details.items():
        if text:
            yield f"   {paint(f'{label:7}', _DIM)} {printable(text)}"


def _change_text(change: Change) -> str:
    repack = " (needs a re-pack)" if change.needs_repack else ""
    return f"{change.path} = {value_text(change.value)}{repack}"


def _places(finding: Finding) -> str:
    num_more = finding.num_occurrences - len(finding.examples)
    more = f"; and {num_more:,} more" if num_more > 0 else ""
    return f"{finding.num_occurrences:,} in all: {'; '.join(finding.examples)}{more}"


def _marked_lines(block: MarkedText, paint: Paint) -> Iterator[str]:
    parts = [(printable(span.text), span.is_trained) for span in block.spans]
    yield printable(f"--- {block.heading}")
    yield "".join(paint(f"⟦{text}⟧", _GREEN) if is_trained else text for text, is_trained in parts)


def _picture_lines(block: Picture) -> Iterator[str]:
    yield printable(block.title)
    labels = max((len(bar.label) for bar in block.bars), default=0)
    values = max((len(bar.value) for bar in block.bars), default=0)
    for bar in block.bars:
        drawing = "█" * round(_PICTURE * bar.height / 100)
        yield printable(f"  {bar.label:<{labels}} {bar.value:>{values}} {drawing}").rstrip()
