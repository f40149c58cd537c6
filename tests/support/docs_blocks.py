"""Fenced blocks of the documentation's pages."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
#: Pages whose commands run in tests, one after the other, and print what the page shows.
RUN_PAGES = tuple(
    f"docs/{name}.md"
    for name in (
        *("dropped-rows", "last-turn", "thoughts", "tool-calls"),
        *(f"tutorials/{name}" for name in ("128k", "gsm8k", "losses", "moving", "reasoning", "slurm", "tools")),
    )
)
_HEADING_OR_BLOCK = re.compile(
    r"^(?P<heading>#+ [^\n]*)$|^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One fenced block."""

    page: str
    heading: str
    #: Titles of the headings that it stands below, the page's first.
    sections: tuple[str, ...]
    language: str
    text: str
    #: Text of the `text` block that follows with no heading between; None where there is none.
    output: str | None


def pages() -> list[Path]:
    docs = PROJECT / "docs"
    tutorials = sorted((docs / "tutorials").glob("*.md"))
    return [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(docs.glob("*.md")), *tutorials]


def blocks(*languages: str, page: str | None = None, section: str | None = None) -> list[Block]:
    chosen = [path for path in pages() if page is None or path.name == page]
    return [
        block
        for path in chosen
        for block in _blocks_of(path)
        if block.language in languages and (section is None or section in block.sections)
    ]


def run_snippets(page: str, section: str | None = None) -> int:
    """Run the Python of a page or section, block after block; return how many blocks printed what the page says."""
    names: dict[str, Any] = {"__name__": "snippet"}
    num_outputs = 0
    for block in blocks("python", page=page, section=section):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, block.page, "exec"), names)
        if block.output is not None:
            assert printed.getvalue() == block.output
            num_outputs += 1
    return num_outputs


def _blocks_of(path: Path) -> Iterator[Block]:
    matches = list(_HEADING_OR_BLOCK.finditer(path.read_text(encoding="utf-8")))
    heading = ""
    sections: tuple[str, ...] = ()
    for match, following in zip_longest(matches, matches[1:]):
        if match["heading"]:
            heading = match["heading"]
            level, _, title = heading.partition(" ")
            sections = (*sections[: len(level) - 1], title)
            continue
        is_output = following is not None and following["language"] == "text"
        yield Block(
            page=str(path.relative_to(PROJECT)),
            heading=heading,
            sections=sections,
            language=match["language"],
            text=match["text"],
            output=following["text"] if is_output and following is not None else None,
        )
