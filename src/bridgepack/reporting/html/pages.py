"""Blocks as HTML: a page of their own, or a part of a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass

from bridgepack import __version__
from bridgepack.records.results import Result
from bridgepack.reporting.blocks import Block, Verdict
from bridgepack.reporting.html.render import Limits, render_template
from bridgepack.reporting.results import blocks_of

_PAGE = Limits(rows=300, findings=100, texts=500, span_characters=600, spans=40)
_NOTEBOOK = Limits(rows=40, findings=20, texts=10, span_characters=600, spans=40)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page."""

    kind: str  #: what kind of page it is, above the title
    title: str
    blocks: Sequence[Block]

    @property
    def name(self) -> str:
        """Name of the window."""
        return f"{self.title} - {self.kind}"


def page_html(page: Page) -> str:
    """Return a page; it needs no script and loads nothing."""
    return render_template("page.html.jinja", page=page, limits=_PAGE, version=__version__)


def result_html(result: Result) -> str:
    """Return a result as one HTML element with its own style; it needs no script and loads nothing."""
    blocks = sorted(blocks_of(result), key=lambda block: not isinstance(block, Verdict))
    return render_template("notebook.html.jinja", headline=result.headline(), blocks=blocks, limits=_NOTEBOOK)
