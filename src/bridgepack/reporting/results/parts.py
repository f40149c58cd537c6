"""The blocks of a proof: one table of its parts."""

from collections.abc import Iterator

from bridgepack.proof.parts import Proof
from bridgepack.reporting.blocks import Block, Column, Table
from bridgepack.reporting.results import shows

_COLUMNS = (Column("Part", "{:<10}"), Column("Outcome", "{:<15}"), Column("What came out", "{}"))


@shows
def proof_blocks(proof: Proof) -> Iterator[Block]:
    """Yield the table of the parts, those that were not asked among them."""
    rows = [
        (name, part.outcome, f"because {part.detail}" if part.outcome == "not asked" else part.detail)
        for name, part in proof.parts.items()
    ]
    yield Table(title="Parts", columns=_COLUMNS, rows=rows, head=f"{proof.target}: {proof.outcome}")
