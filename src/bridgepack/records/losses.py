"""Losses of a run by source and by row, and the files in its folder that hold them."""

from dataclasses import dataclass

#: Below a run's folder.
LOSSES_FOLDER = "losses"
BY_SOURCE_FILE = "by-source.jsonl"
ROWS_FOLDER = "rows"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLoss:
    """The loss of one source of a split over the steps of an interval.

    Attributes:
        step: last step, as the host logs it; for validation, the step after which it ran.
        first_step: first step of the interval.
        split: `training` or `validation`.
        source: its name; None for what belongs to none.
        loss_sum: sum of the losses of its trained tokens.
        num_trained_tokens: trained tokens of the interval.
        unattributed: trained tokens of the interval that belong to no source.
        start: which start of the run, from 1; a start goes on where a checkpoint of an earlier one is.
    """

    step: int
    first_step: int
    split: str
    source: str | None
    loss_sum: float
    num_trained_tokens: int
    unattributed: int = 0
    start: int = 1

    @property
    def loss(self) -> float:
        """Mean loss of a trained token."""
        return self.loss_sum / self.num_trained_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsPart:
    """What a file with losses by row says of itself: one rank's micro batches of some steps of one start of a run."""

    fingerprint: str  #: of the artifact
    start: int  #: which start of the run, from 1; a start goes on where a checkpoint of an earlier one is
    first_step: int  #: first step of that start, as the host logs it
    ranks: tuple[int, ...]  #: global ranks that write files of the same steps
    rank: int  #: the one that wrote this file
    part: int  #: which of its files of this start, from 1
