"""The builds that are compared, and the command of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchlib.settings import BEST_FIT_DECREASING, FIRST_FIT_SHUFFLE

BRIDGEPACK, UPSTREAM = "bridgepack", "upstream"


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to build.

    Attributes:
        side: `bridgepack` or `upstream`.
        algorithm: of packing.
        num_workers: processes that tokenise, at most.
    """

    side: str
    algorithm: str
    num_workers: int

    @property
    def name(self) -> str:
        """What tables and JSON call it."""
        return f"{self.side} {self.algorithm}, {self.num_workers} worker{'s' if self.num_workers > 1 else ''}"

    def command(self, folder: Path, data: Path, tokenizer: Path) -> list[str]:
        """Return the command that builds from `data` into `folder`."""
        arguments = [str(folder), str(data), str(tokenizer), self.algorithm, str(self.num_workers)]
        return [sys.executable, "-m", f"benchlib.{self.side}_side", *arguments]

    def packed(self, folder: Path) -> Path:
        """Return where the Parquet files are after the build."""
        return folder / "artifact" / "training" if self.side == BRIDGEPACK else folder / "packed"


def variants_for(num_workers: int, upstream_workers: Sequence[int]) -> tuple[Variant, ...]:
    """Return upstream's builds, one per number of workers, then bridgepack's, with upstream's algorithm and its own."""
    algorithms = (FIRST_FIT_SHUFFLE, BEST_FIT_DECREASING)
    return (
        *(Variant(side=UPSTREAM, algorithm=FIRST_FIT_SHUFFLE, num_workers=count) for count in upstream_workers),
        *(Variant(side=BRIDGEPACK, algorithm=algorithm, num_workers=num_workers) for algorithm in algorithms),
    )
