"""The result of `bridgepack losses`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bridgepack.data.artifact.inspection import SequenceView
from bridgepack.records.losses import SourceLoss
from bridgepack.records.results import Result
from bridgepack.records.words import count_text


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLoss:
    """The loss of a row, or of one of its sequences, beside that of its source at about the same steps.

    Attributes:
        split: `training` or `validation`.
        source: its name.
        file: input file, as the manifest names it.
        row: of that file, from 1.
        first_token: start in its row if the row became several sequences; otherwise 0.
        steps: at which the run read it, as the host logs them.
        loss: mean loss of its trained tokens.
        source_loss: mean loss of the trained tokens of its source at about these steps.
        num_trained_tokens: of the sequence.
        sequence: with its text; None if it was not asked for.
    """

    split: str
    source: str
    file: str
    row: int
    first_token: int
    steps: tuple[int, ...]
    loss: float
    source_loss: float
    num_trained_tokens: int
    sequence: SequenceView | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LossReport(Result):
    """The losses of a run.

    Attributes:
        run: its folder.
        intervals: the loss of each source over each interval, training before validation.
        rows: the rows that were asked for: those of a step, or those far above their source; highest first.
        step: the step whose rows they are; None for those of the whole run.
        num_rows: rows of which there are losses, or which the step read.
        notes: what is left out, and why.
        files: what was written: `output` -> the Parquet file.
    """

    TABLE: ClassVar = "intervals"

    run: str
    intervals: tuple[SourceLoss, ...]
    rows: tuple[RowLoss, ...] = ()
    step: int | None = None
    num_rows: int = 0
    notes: tuple[str, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)

    def headline(self) -> str:
        """Return what came out, in one line."""
        sources = {line.source for line in self.intervals if line.source is not None}
        steps = max((line.step for line in self.intervals), default=0)
        of_rows = f", {count_text(self.num_rows, 'row')} with losses" if self.num_rows else ""
        return f"{self.run}: {count_text(len(sources), 'source')} over {count_text(steps, 'step')}{of_rows}"

    def last_losses(self) -> dict[tuple[str, str | None], tuple[SourceLoss, SourceLoss]]:
        """Return (split, source) -> its first and its last interval."""
        spans: dict[tuple[str, str | None], tuple[SourceLoss, SourceLoss]] = {}
        for line in self.intervals:
            first, _ = spans.get((line.split, line.source), (line, line))
            spans[line.split, line.source] = first, line
        return spans

    def table(self) -> list[dict[str, Any]]:
        """Return the loss of each source over each interval."""
        return [
            {"split": line.split, "source": line.source, "first_step": line.first_step, "step": line.step,
             "loss": line.loss, "loss_sum": line.loss_sum, "num_trained_tokens": line.num_trained_tokens}
            for line in self.intervals
        ]  # fmt: skip
