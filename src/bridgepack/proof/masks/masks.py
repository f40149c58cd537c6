"""Compares the masks of a recipe's or an artifact's rows with independent derivations of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.errors import ConfigError, DataError, RowError
from bridgepack.proof.masks.judges import Judge, judge_of
from bridgepack.proof.masks.records import DerivationCount, MaskFinding, MaskReport, RowVerdict
from bridgepack.proof.packs import drawn_of_each, opened_artifact
from bridgepack.proof.runs import recorded_recipe
from bridgepack.proof.sources import encoded_rows, found_sources, num_rows_of, stage_tokenizer
from bridgepack.records import LOSS_CURES, TRAIN, VALIDATION

_EMPTY_THOUGHTS = (
    "an empty reasoning block is trained in {:,} sequences, e.g. {}; where the prompt gives it to the model, set "
    "preprocessing.reasoning_loss to mask_empty"
)
DEFAULT_SAMPLE, DEFAULT_SEED, DEFAULT_LIMIT = 1000, 0, 10
_MADE_ANEW = "masks were computed again from the sources; `bridgepack verify` compares them with those in the artifact"


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
    progress: Progress = field(default_factory=SilentProgress)  #: is told about progress


def check_masks(target: str | Path | SFTRecipe, options: MaskOptions | None = None) -> MaskReport:
    """Return whether the masks of a recipe's rows equal those of independent derivations.

    Args:
        target: a recipe, its location, or the folder of an artifact, whose own recipe is used.
        options: which rows to compare, and where they are.

    Raises:
        ConfigError: the recipe does not exist, or an override is invalid.
        ArtifactError: the folder is not an artifact.
        DataError: a source is missing or cannot be read.
        TokenizerError: the tokenizer cannot be loaded, or cannot do what the recipe asks.
    """
    options = options or MaskOptions()
    is_artifact = not isinstance(target, SFTRecipe) and bool(str(target)) and Path(target).is_dir()
    if not isinstance(target, SFTRecipe) and is_artifact:
        recipe = recorded_recipe(opened_artifact(Path(target)), options.overrides)
    else:
        recipe = load_recipe(target, options.overrides)
    tokenizer = stage_tokenizer(recipe)
    comparison = _Comparison(recipe, judge_of(recipe, tokenizer), options)
    with found_sources(recipe) as found:
        if found.gone:
            raise DataError("; ".join(found.gone))
        comparison.run(_inputs(recipe, found.files, options.split))
    name = target.name if isinstance(target, SFTRecipe) else str(target)
    return comparison.report(name, (_MADE_ANEW,) if is_artifact else ())


def _inputs(
    recipe: SFTRecipe, files: Mapping[str, tuple[InputFile, ...]], split: str | None
) -> list[tuple[str, InputFile]]:
    """Return (split, file) of every input."""
    names = [TRAIN, *([VALIDATION] if recipe.data.validation is not None else [])]
    if split is not None and split not in names:
        hint = "its rows are among those of training" if recipe.data.validation_fraction else "it is not set"
        raise ConfigError(f"--split is {split!r}; data.validation has no files: {hint}. Omit --split.")
    return [(name, file) for name in names if split in (None, name) for file in files[name]]


class _Comparison:
    """One comparison and its findings so far."""

    def __init__(self, recipe: SFTRecipe, judge: Judge, options: MaskOptions) -> None:
        self._recipe, self._judge, self._options = recipe, judge, options
        self._num_rows = self._num_read = 0
        self._drops: Counter[str] = Counter()
        self._judged_by: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = {name: Counter() for name in judge.names}
        self._findings: list[MaskFinding] = []
        self._lost: Counter[str] = Counter()
        self._first_lost: dict[str, str] = {}
        self._empty_thoughts: list[str] = []

    def run(self, inputs: list[tuple[str, InputFile]]) -> None:
        """Judge every row, or the rows of the sample."""
        progress = self._options.progress
        most = self._recipe.data.max_row_bytes
        chosen: list[set[int] | None] = [None] * len(inputs)
        if self._options.num_rows is not None:
            sizes = [num_rows_of(file, most) for _, file in inputs]
            self._num_rows = sum(sizes)
            drawn = drawn_of_each(sizes, self._options.num_rows, self._options.seed)
            chosen = [{index + 1 for index in found} for found in drawn]
        total = None if self._options.num_rows is None else min(self._options.num_rows, self._num_rows)
        progress.start("Comparing masks", total, "rows")
        for (split, file), rows in zip(inputs, chosen, strict=True):
            if rows is None or rows:
                self._judge_file(split, file, rows)
        progress.finish()

    def _judge_file(self, split: str, file: InputFile, rows: set[int] | None) -> None:
        for row, columns, encoded in encoded_rows(self._recipe, file, rows):
            self._num_read += 1
            self._options.progress.advance(1)
            if isinstance(encoded, RowError):
                self._drops[str(encoded.reason)] += 1
            else:
                for kind, detail in encoded.losses:
                    self._lost[kind] += 1
                    self._first_lost.setdefault(kind, f"{file.label} row {row}: {detail}; {LOSS_CURES[kind]}")
                verdict = self._judge.judge(columns, encoded)
                self._empty_thoughts += [f"{file.label} row {row}"] if verdict.trains_empty_thoughts else []
                self._note(split, file.label, row, verdict)

    def _note(self, split: str, file: str, row: int, verdict: RowVerdict) -> None:
        """Count a verdict; keep its findings while there is room, and always one of each kind."""
        self._sequences["all"] += 1
        self._judged_by[verdict.num_judges] += 1
        self._sequences["found" if verdict.findings else "agreed" if verdict.num_judges else "unjudged"] += 1
        for name, reasons in verdict.reasons.items():
            self._silent[name] += name in verdict.silent
            self._whole[name] += not reasons
            self._reasons[name].update(dict.fromkeys(reasons, 1))
        for finding in verdict.findings:
            if len(self._findings) < self._options.limit or (self._options.limit and not self._kinds[finding.kind]):
                self._findings.append(MaskFinding(split=split, file=file, row=row, finding=finding))
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
                    num_in_part=num_sequences - self._whole[name] - self._silent[name],
                    num_not_judged=self._silent[name],
                    reasons=dict(self._reasons[name].most_common()),
                )
                for name in self._judge.names
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
                *(_EMPTY_THOUGHTS.format(len(rows), rows[0]) for rows in [self._empty_thoughts] if rows),
            ),
        )
