"""The blocks of a result on a screen, on a page and in a notebook: nothing that they say is missing on any of them."""

import dataclasses
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import pytest

from bridgepack.records import Finding
from bridgepack.records.results import Result
from bridgepack.reporting import blocks as model
from bridgepack.reporting.blocks import (
    Bar,
    Block,
    Code,
    Column,
    Figure,
    Figures,
    Findings,
    Legend,
    Line,
    MarkedText,
    Picture,
    PictureBar,
    Section,
    Span,
    Strip,
    Table,
    Title,
    Verdict,
)
from bridgepack.reporting.html.pages import Page, page_html
from bridgepack.reporting.results import blocks_of, shows
from bridgepack.reporting.screen import screen

TEXTS = dict.fromkeys(("where", "found", "allowed", "why", "fix"), "-")
FINDING = Finding(code="BP004", name="micro-batch-size-not-one", severity="error", **{**TEXTS, "found": "it is 7001"})
ADVICE = Finding(code="BP608", name="batch-of-many-sequences", severity="advice", **{**TEXTS, "found": "it is 7002"})
LOSSES = Picture(
    title="loss 7003",
    description="Steps by their loss.",
    amount="Loss",
    axis="Step",
    bars=(PictureBar(label="step 7004", value="7005", height=100, x=0, width=50),),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Losses(Result):
    """A result as a later room would add it."""

    last: float

    def headline(self) -> str:
        """Return the last loss."""
        return f"the last loss is {self.last}"


@shows
def losses_blocks(losses: Losses) -> Iterator[Block]:
    """Yield a block of every kind."""
    yield Title("title 7006")
    yield Figures((Figure(name="figure 7007", value=f"{losses.last}", note=", note 7008"),))
    columns = (Column("Name", "{:<9}"), Column("Rows", "{:>6}", is_number=True), Column("Bar", " {}"))
    fix = Column("Fix", "  fix: {}", is_below=True)
    yield Table(title="Table", columns=(*columns, fix), rows=[("row 7009", "7010", Bar(0.5), "cure 7011")])
    yield Findings((FINDING, ADVICE))
    yield Legend()
    yield Strip(((0, 50), (50, 25)))
    spans = (Span("prompt 7012", is_trained=False), Span("answer 7013", is_trained=True))
    yield MarkedText(heading="row 7014", spans=spans)
    yield LOSSES
    yield Section("section 7015", (Line("line 7016", ("item 7017",)), Section("inner 7018", (Code("code 7019"),))))
    yield Verdict(text="verdict 7020", details=("detail 7021",), tone="bad")


RESULT = Losses(last=7022.5)
PAGE = Page(kind="kind", title="title 7006", blocks=[*losses_blocks(RESULT)])
FACES = {"screen": screen(losses_blocks(RESULT)), "page": page_html(PAGE), "notebook": RESULT._repr_html_()}


@pytest.mark.parametrize("face", FACES)
def test_no_number_is_missing_on_a_face(face: str) -> None:
    text = html.unescape(FACES[face].replace(",", ""))
    assert [number for number in range(7001, 7023) if str(number) not in text] == []
    assert "⟦answer 7013⟧" in text


def test_a_screen_ends_with_the_verdict_and_pages_begin_with_it() -> None:
    assert FACES["screen"].splitlines()[-2:] == ["verdict 7020", "detail 7021"]
    for face in ("page", "notebook"):
        text = FACES[face]
        assert text.index("erdict 7020") < min(text.index(f"{number}") for number in range(7007, 7020)), face


def test_every_kind_of_block_is_drawn() -> None:
    def kinds(blocks: object) -> set[type]:
        below = (kinds(block.blocks) for block in blocks if isinstance(block, Section))  # type: ignore[attr-defined]
        return {type(block) for block in blocks}.union(*below)  # type: ignore[attr-defined]

    assert kinds(list(losses_blocks(RESULT))) == set(get_args(model.Block))
    assert blocks_of(RESULT) == tuple(losses_blocks(RESULT))


def test_colours_change_nothing_else_on_a_screen() -> None:
    coloured = screen(losses_blocks(RESULT), has_colour=True)
    plain = re.sub(r"\x1b\[[\d;]*m", "", coloured).replace("is green, between", "is between")
    assert (plain, coloured != plain) == (FACES["screen"], True)


def test_columns_may_be_for_one_face_and_rows_beyond_the_limit_are_counted() -> None:
    columns = (Column("", "screen {}"), Column("On pages"))
    table = Table(title="Many", columns=columns, rows=[(f"s{n}", f"p{n}") for n in range(400)], most_rows=2)
    text, page = screen([table]), page_html(Page(kind="k", title="t", blocks=[table]))
    assert text.splitlines() == ["  screen s0", "  screen s1", "  ... and 398 more: --json lists all"]
    assert (">p299<" in page, ">p300<" in page, "100 more: --json lists all" in page) == (True, False, True)
    assert "s0" not in page


def test_blank_lines_are_single_and_sections_are_indented() -> None:
    figures = Figures((Figure(name="rows", value="3", note=" of 4\nfurther"),), 8)
    text = MarkedText(heading="row", spans=(Span("a", is_trained=True),))
    told = screen([Section("", ()), Section("training", (figures, text, Line("end"))), Section("", (Line("last"),))])
    expected = ["training", "  rows    3 of 4", "          further", "", "--- row", "⟦a⟧", "", "  end", "", "last"]
    assert told.splitlines() == expected


def test_control_characters_and_markup_stay_text() -> None:
    hostile = "\x1b]0;x\x07<script>1</script>"
    blocks = [Title(hostile), Line(hostile, (hostile,)), dataclasses.replace(LOSSES, title=hostile)]
    table = Table(title=hostile, columns=(Column(hostile, "{}"),), rows=[(hostile,)])
    for text in (screen([*blocks, table]), page_html(Page(kind=hostile, title=hostile, blocks=[*blocks, table]))):
        assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert "<script" not in text
