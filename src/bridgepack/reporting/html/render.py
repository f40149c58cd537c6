"""Renders templates with untrusted values: escaped, without control characters, never as markup."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from bridgepack.records import Finding
from bridgepack.reporting.blocks import Bar, Block, Cell, Column, MarkedText, Section, Span, Table
from bridgepack.reporting.cards import FindingCard, cards_of
from bridgepack.reporting.text import printable, without_middle
from bridgepack.rules.judging.rule import rule_page

#: Maximum characters of a text from the data, except packs.
_LONGEST_TEXT = 400
#: Characters of a cell from which on it gets more room.
_WIDE = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much of a block is drawn; what is left out is counted."""

    rows: int
    findings: int
    texts: int
    span_characters: int
    spans: int


@dataclass(frozen=True, slots=True)
class Texts:
    """Marked texts one after the other, so that they are counted together."""

    texts: tuple[MarkedText, ...]


def render_template(template: str, **values: Any) -> str:
    """Return a rendered template of this room; in HTML all values are escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=select_autoescape(["html.jinja"]),
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": "{:,.0f}".format,
        "rule_page": rule_page,
        "short": _short,
        "advice_cards": _advice_cards,
        "anchor": _anchor,
        "aside": lambda note: note.strip(" ,;").replace("\n", "; "),
        "begun": lambda text: text[:1].upper() + text[1:],
        "cell_class": _cell_class,
        "depth_class": _depth_class,
        "grouped": lambda blocks: list(_in_groups(blocks)),
        "is_bar": lambda cell: isinstance(cell, Bar),
        "kind": _kind,
        "page_columns": _page_columns,
        "shortened": lambda spans, limits: list(_short_spans(spans, limits)),
        "top_sections": _top_sections,
        "urgent_cards": _urgent_cards,
    }
    return environment


def _safe(value: Any) -> Any:
    return value if isinstance(value, (Markup, int, float)) else printable(str(value))


def _short(text: Any) -> str:
    text = str(text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _in_groups(blocks: Iterable[Block]) -> Iterator[Block | Texts]:
    for is_text, group in groupby(blocks, key=lambda block: isinstance(block, MarkedText)):
        texts = tuple(group)
        yield from [Texts(texts)] if is_text else texts  # type: ignore[arg-type]


def _kind(block: object) -> str:
    return type(block).__name__


def _top_sections(blocks: Iterable[Block]) -> list[Section]:
    return [block for block in blocks if isinstance(block, Section) and block.title]


def _anchor(title: str) -> str:
    """Return a title as an id: `Rows: packed and dropped` -> `rows-packed-and-dropped`."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def _page_columns(table: Table) -> list[tuple[int, Column]]:
    return [(place, column) for place, column in enumerate(table.columns) if column.name]


def _cell_class(column: Column, cell: Cell) -> Markup:
    if column.is_number:
        return Markup(' class="n"')
    return Markup(' class="wide"') if not isinstance(cell, str) or len(cell) > _WIDE else Markup("")


def _depth_class(cell: Cell) -> Markup:
    """Return the class of a name that stands below others: two spaces are one step."""
    depth = (len(cell) - len(cell.lstrip())) // 2 if isinstance(cell, str) else 0
    return Markup(f' class="wide d{min(depth, 4)}"') if depth else Markup("")


def _short_spans(spans: Sequence[Span], limits: Limits) -> Iterator[Span]:
    for span in spans[: limits.spans]:
        yield replace(span, text=without_middle(span.text, limits.span_characters))
    if len(spans) > limits.spans:
        yield Span(f"[... {len(spans) - limits.spans:,} more stretches ...]", is_trained=False)


def _urgent_cards(findings: Iterable[Finding]) -> list[FindingCard]:
    return list(cards_of(finding for finding in findings if finding.severity != "advice"))


def _advice_cards(findings: Iterable[Finding]) -> list[FindingCard]:
    return list(cards_of(finding for finding in findings if finding.severity == "advice"))
