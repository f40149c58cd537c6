"""Compares the masks that a build makes of rows with independent derivations of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.tokenizers.limits import STOPPED, TimeLimit
from bridgepack.errors import RowError
from bridgepack.proof.masks.judges import SourceJudge
from bridgepack.proof.masks.records import (
    BuiltRow,
    BuiltSequence,
    DerivationCount,
    MaskFinding,
    MaskReport,
    RowVerdict,
)
from bridgepack.records import LOSS_CURES

_PROMPTS = (
    "what the server writes before an answer is trained in {:,} sequences, e.g. {}; set "
    "preprocessing.mask_generation_prompt to true (`prove served` shows the tokens)"
)
_EMPTY_THOUGHTS = (
    "an empty reasoning block is trained in {:,} sequences, e.g. {}; where the prompt gives it to the model, set "
    "preprocessing.reasoning_loss to mask_empty"
)
DEFAULT_SAMPLE, DEFAULT_SEED, DEFAULT_LIMIT = 1000, 0, 10


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """How masks are compared."""

    num_rows: int | None = DEFAULT_SAMPLE  #: size of the sample over all files; None for every row
    seed: int = DEFAULT_SEED
    split: str | None = None  #: `training` or `validation`; None for both
    #: overrides of the recipe; for an artifact's recipe, only the locations of its sources
    overrides: Mapping[str, Any] = field(default_factory=dict)
    #: maximum findings to keep, besides the first of each kind; all are counted. 0 keeps none.
    limit: int = DEFAULT_LIMIT
    trust_remote_code: bool = False  #: run code that comes with the tokenizer, if the recipe names such a one
    progress: Progress = field(default_factory=SilentProgress)  #: is told about progress


class MaskComparison:
    """Counts verdicts on rows, and keeps some of their findings."""

    def __init__(self, names: Sequence[str], options: MaskOptions, num_rows: int) -> None:
        """Take the names of derivations, and the number of all rows; 0 if all are read."""
        self._names, self._options = names, options
        self._num_rows, self._num_read = num_rows, 0
        self._drops: Counter[str] = Counter()
        self._judged_by: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._findings: list[MaskFinding] = []
        self._lost: Counter[str] = Counter()
        self._first_lost: dict[str, str] = {}
        self._empty_thoughts: list[str] = []
        self._prompts: list[str] = []

    def add(self, row: BuiltRow, judge: SourceJudge, limit: TimeLimit) -> None:
        """Judge what a build makes of a row.

        Raises:
            DataError: many rows take too much time or memory.
        """
        self._num_read += 1
        if row.drop:
            self._drops[row.drop] += 1
        name = f"{row.file} row {row.row}"
        for kind, detail in row.losses:
            self._lost[kind] += 1
            self._first_lost.setdefault(kind, f"{name}: {detail}; {LOSS_CURES[kind]}")
        for sequence in row.sequences:
            verdict = self._verdict(row, sequence, judge, limit)
            self._empty_thoughts += [name] if verdict.trains_empty_thoughts else []
            self._prompts += [name] if verdict.trains_prompt else []
            self._note(row, verdict)

    def _verdict(self, row: BuiltRow, sequence: BuiltSequence, judge: SourceJudge, limit: TimeLimit) -> RowVerdict:
        try:
            return limit(partial(judge.judge, row.columns), sequence)
        except RowError as error:
            if error.reason not in STOPPED:
                raise
            return RowVerdict.without_judgement(self._names, f"{error.detail} for the conversation's parts")

    def _note(self, row: BuiltRow, verdict: RowVerdict) -> None:
        """Count a verdict; keep its findings while there is room, and always one of each kind."""
        self._sequences["all"] += 1
        self._judged_by[verdict.num_judges] += 1
        self._sequences["found" if verdict.findings else "agreed" if verdict.num_judges else "unjudged"] += 1
        self._asked.update(verdict.reasons.keys())
        for name, reasons in verdict.reasons.items():
            self._silent[name] += name in verdict.silent
            self._whole[name] += not reasons
            self._reasons[name].update(dict.fromkeys(reasons, 1))
        for finding in verdict.findings:
            if len(self._findings) < self._options.limit or (self._options.limit and not self._kinds[finding.kind]):
                self._findings.append(MaskFinding(split=row.split, file=row.file, row=row.row, finding=finding))
            self._kinds[finding.kind] += 1

    def report(self, target: str, notes: tuple[str, ...]) -> MaskReport:
        """Return the findings."""
        num_sequences = self._sequences["all"]
        is_sample = self._options.num_rows is not None
        return MaskReport(
            target=target,
            mode="sample" if is_sample else "all",
            seed=self._options.seed if is_sample else None,
            num_rows=self._num_rows if is_sample else self._num_read,
            num_rows_read=self._num_read,
            num_sequences=num_sequences,
            num_agreed=self._sequences["agreed"],
            num_with_findings=self._sequences["found"],
            num_not_judged=self._sequences["unjudged"],
            judged_by=dict(sorted(self._judged_by.items())),
            drops=dict(sorted(self._drops.items())),
            derivations=tuple(
                DerivationCount(
                    name=name,
                    num_judged=self._whole[name],
                    num_in_part=self._asked[name] - self._whole[name] - self._silent[name],
                    num_not_judged=self._silent[name],
                    reasons=dict(self._reasons[name].most_common()),
                )
                for name in self._names
            ),
            kinds=dict(sorted(self._kinds.items())),
            findings=tuple(self._findings),
            notes=(
                *notes,
                # Content that the chat template loses does not affect masks.
                *(
                    f"lost content, {kind} of {count:,} sequences, e.g. {self._first_lost[kind]}"
                    for kind, count in self._lost.most_common()
                ),
                *(_PROMPTS.format(len(rows), rows[0]) for rows in [self._prompts] if rows),
                *(_EMPTY_THOUGHTS.format(len(rows), rows[0]) for rows in [self._empty_thoughts] if rows),
            ),
        )
