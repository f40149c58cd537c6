"""Compares the masks of a recipe's or an artifact's rows with independent derivations of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.preprocessing import (
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TextPreprocessing,
)
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.plain.tokenized import IGNORED_LABEL
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.tokenizers.limits import STOPPED, TimeLimit
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import ConfigError, DataError, RowError
from bridgepack.proof.masks.chats import EVERYTHING, ChatJudge
from bridgepack.proof.masks.documents import JudgeOfKinds, TextJudge
from bridgepack.proof.masks.records import DerivationCount, MaskFinding, MaskReport, RowVerdict
from bridgepack.proof.masks.votes import TRAINED, TokenCase, VoteArray, no_votes, tokens_differ, without_tokens
from bridgepack.proof.packs import drawn_of_each, opened_artifact, recorded_recipe
from bridgepack.proof.sources import encoded_rows, found_sources, stage_tokenizer
from bridgepack.records import LOSS_CURES, TRAIN, VALIDATION

PARTS, DECODED, COLUMNS = "separate parts", "decoded text", "source columns"
_LOSSY = "the tokenizer does not preserve the completion's text"
_OURS = "Report it: bridgepack made this mask."


class PairJudge:
    """Judges prompts with completions: encodes both separately, and decodes the trained tokens."""

    def __init__(self, settings: PromptCompletionPreprocessing, tokenizer: ChatTokenizer) -> None:
        self._settings, self._tokenizer = settings, tokenizer
        self._never = tokenizer.never_trained_ids if settings.masks_control_tokens else frozenset()
        self.names: tuple[str, ...] = (EVERYTHING,) if settings.loss_mode == "full" else (PARTS, DECODED)

    def judge(self, columns: Mapping[str, Any], encoded: Encoded) -> RowVerdict:
        """Return the derivations' verdict on a row's tokens and mask."""
        prompt, completion = self._texts(columns)
        before = [*self._special("bos"), *self._tokenizer.encode(prompt), *self._special("sep")]
        end = self._special("eos")
        expected_ids = np.array([*before, *self._tokenizer.encode(completion), *end], dtype=np.int32)
        ids, mask = np.array(encoded.ids, dtype=np.int32), np.array(encoded.mask, dtype=np.int8)
        if not np.array_equal(ids, expected_ids):
            return tokens_differ(self.names, ids, expected_ids, self._tokenizer.decode)
        reasons: dict[str, tuple[str, ...]] = dict.fromkeys(self.names, ())
        if self._settings.loss_mode == "full":
            votes = {EVERYTHING: _trained_from(len(ids), 0)}
        else:
            first_token = self._first_completion_token(ids.tolist(), completion, len(end))
            reasons[DECODED] = () if first_token is not None else (_LOSSY,)
            votes = {
                PARTS: _trained_from(len(ids), len(before)),
                DECODED: no_votes(len(ids)) if first_token is None else _trained_from(len(ids), first_token),
            }
        case = TokenCase(
            input_ids=ids,
            mask=mask,
            votes={name: without_tokens(item, ids, self._never) for name, item in votes.items()},
            decode=self._tokenizer.decode,
            advice=_OURS,
        )
        silent = frozenset(name for name, texts in reasons.items() if texts)
        return RowVerdict(reasons=reasons, silent=silent, findings=tuple(case.findings()))

    def _texts(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        """Return a row's (prompt, completion) in the form that gets encoded."""
        separator = self._settings.separator
        if separator[:1] == " " and not self._tokenizer.is_space_sensitive:
            separator = separator[1:]
        return columns["prompt"], separator + columns["completion"]

    def _special(self, name: str) -> list[int]:
        index = self._tokenizer.special_token_id(name)
        return [index] if getattr(self._settings, f"add_{name}") and index is not None else []

    def _first_completion_token(self, ids: list[int], completion: str, num_end: int) -> int | None:
        """Return the first token of the completion's text; None if the tokenizer does not preserve the text."""
        low, high = 0, len(ids) - num_end
        while low < high:
            middle = (low + high) // 2
            if len(self._tokenizer.decode(ids[middle : len(ids) - num_end])) > len(completion):
                low = middle + 1
            else:
                high = middle
        is_found = self._tokenizer.decode(ids[low : len(ids) - num_end]) == completion
        return low if is_found and completion else None


class TokenizedJudge:
    """Judges rows that hold tokens and a mask or labels, by reading the columns independently."""

    names: tuple[str, ...] = (COLUMNS,)

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer

    def judge(self, columns: Mapping[str, Any], encoded: Encoded) -> RowVerdict:
        """Return the columns' verdict on a row's tokens and mask."""
        ids, mask = np.array(encoded.ids, dtype=np.int32), np.array(encoded.mask, dtype=np.int8)
        kept_tokens = self._kept_tokens(columns)
        expected_ids = np.asarray(columns["input_ids"], dtype=np.int64)[kept_tokens]
        if not np.array_equal(ids, expected_ids):
            return tokens_differ(self.names, ids, expected_ids.astype(np.int32), self._tokenizer.decode)
        votes = np.asarray(self._is_trained(columns))[kept_tokens].astype(np.int8)
        case = TokenCase(input_ids=ids, mask=mask, votes={COLUMNS: votes}, decode=self._tokenizer.decode, advice=_OURS)
        return RowVerdict(reasons={COLUMNS: ()}, findings=tuple(case.findings()))

    def _kept_tokens(self, columns: Mapping[str, Any]) -> Any:
        """Return which tokens a row's attention mask keeps; shape [num_tokens]."""
        attention_mask = columns.get("attention_mask")
        return slice(None) if attention_mask is None else np.asarray(attention_mask) != 0

    def _is_trained(self, columns: Mapping[str, Any]) -> Any:
        """Return whether each token is trained according to its column; shape [num_tokens]."""
        if columns.get("labels") is not None:
            return np.asarray(columns["labels"]) != IGNORED_LABEL
        return np.asarray(columns["loss_mask"]) != 0


#: Judges rows of one recipe; `names` are its derivations' names.
Judge = ChatJudge | PairJudge | TextJudge | TokenizedJudge | JudgeOfKinds


def judge_of(recipe: SFTRecipe, tokenizer: ChatTokenizer) -> Judge:
    """Return the judge for a recipe's rows."""
    judges = {kind: _judge_of_kind(kind, recipe, tokenizer) for kind in recipe.kinds}
    return next(iter(judges.values())) if len(judges) == 1 else JudgeOfKinds(judges)


def _judge_of_kind(
    kind: str, recipe: SFTRecipe, tokenizer: ChatTokenizer
) -> ChatJudge | PairJudge | TextJudge | TokenizedJudge:
    settings = recipe.applied_preprocessing.of_kind(kind)
    if isinstance(settings, ChatPreprocessing):
        return ChatJudge(recipe, settings, tokenizer)
    if isinstance(settings, PromptCompletionPreprocessing):
        return PairJudge(settings, tokenizer)
    if isinstance(settings, TextPreprocessing):
        return TextJudge(settings, tokenizer, _OURS)
    return TokenizedJudge(tokenizer)


def _trained_from(num_tokens: int, first: int) -> VoteArray:
    """Return votes that train every token from `first`: (4, 3) -> [0, 0, 0, 1]."""
    votes = np.zeros(num_tokens, dtype=np.int8)
    votes[first:] = TRAINED
    return votes


_PROMPTS = (
    "what the server writes before an answer is trained in {:,} sequences, e.g. {}; set "
    "preprocessing.mask_generation_prompt to true (`prove served` shows the tokens)"
)
_EMPTY_THOUGHTS = (
    "an empty reasoning block is trained in {:,} sequences, e.g. {}; where the prompt gives it to the model, set "
    "preprocessing.reasoning_loss to mask_empty"
)
DEFAULT_SAMPLE, DEFAULT_SEED, DEFAULT_LIMIT = 1000, 0, 10
_MADE_ANEW = (
    "masks were computed again from the sources; `bridgepack prove sources` compares them with those in the artifact"
)


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

    `target` is a recipe, its location, or the folder of an artifact, whose own recipe is used.

    Raises:
        ConfigError: the recipe does not exist, an override is invalid, or the chat template does not read a variable.
        ArtifactError: the folder is not an artifact.
        DataError: a source is missing or cannot be read, or many rows take too much time or memory.
        TokenizerError: the tokenizer cannot be loaded, or cannot do what the recipe asks.
    """
    options = options or MaskOptions()
    is_artifact = not isinstance(target, SFTRecipe) and bool(str(target)) and Path(target).is_dir()
    if not isinstance(target, SFTRecipe) and is_artifact:
        artifact = opened_artifact(Path(target))
        recipe, manifest = recorded_recipe(artifact, options.overrides), artifact.manifest
    else:
        recipe, manifest = load_recipe(target, options.overrides), None
    tokenizer = stage_tokenizer(recipe, is_built=is_artifact)
    comparison = _Comparison(recipe, judge_of(recipe, tokenizer), options)
    with found_sources(recipe, manifest) as sources:
        if sources.gone:
            raise DataError("; ".join(sources.gone))
        comparison.run(input_files(recipe, sources.files, options.split))
    name = target.name if isinstance(target, SFTRecipe) else str(target)
    return comparison.report(name, (_MADE_ANEW,) if is_artifact else ())


def input_files(
    recipe: SFTRecipe, files: Mapping[str, tuple[InputFile, ...]], split: str | None
) -> list[tuple[str, InputFile]]:
    """Return (split, file) of each file of a split, or of both; raises ConfigError if the split has no files."""
    names = [TRAIN, *([VALIDATION] if recipe.data.validation is not None else [])]
    if split is not None and split not in names:
        hint = "its rows are among those of training" if recipe.data.validation_fraction else "it is not set"
        raise ConfigError(f"--split is {split!r}; data.validation has no files: {hint}. Omit --split.")
    return [(name, file) for name in names if split in (None, name) for file in files[name]]


def choose_rows(
    inputs: Sequence[tuple[str, InputFile]], options: MaskOptions, max_row_bytes: int
) -> tuple[list[set[int] | None], int]:
    """Return the rows to read of each file, from 1 (None for all), and the number of all rows; 0 if all are read."""
    if options.num_rows is None:
        return [None] * len(inputs), 0
    ranges = (iter_ranges(file, sha256="", max_row_bytes=max_row_bytes) for _, file in inputs)
    sizes = [sum(part.num_rows for part in parts) for parts in ranges]
    indices_of_files = drawn_of_each(sizes, options.num_rows, options.seed)
    return [{index + 1 for index in indices} for indices in indices_of_files], sum(sizes)


class _Comparison:
    def __init__(self, recipe: SFTRecipe, judge: Judge, options: MaskOptions) -> None:
        self._recipe, self._judge, self._options = recipe, judge, options
        self._num_rows = self._num_read = 0
        self._drops: Counter[str] = Counter()
        self._judged_by: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = {name: Counter() for name in judge.names}
        self._findings: list[MaskFinding] = []
        self._lost: Counter[str] = Counter()
        self._first_lost: dict[str, str] = {}
        self._empty_thoughts: list[str] = []
        self._prompts: list[str] = []

    def run(self, inputs: list[tuple[str, InputFile]]) -> None:
        """Judge every row, or the rows of the sample."""
        progress = self._options.progress
        rows_of_files, self._num_rows = choose_rows(inputs, self._options, self._recipe.data.max_row_bytes)
        total = None if self._options.num_rows is None else min(self._options.num_rows, self._num_rows)
        progress.start("Comparing masks", total, "rows")
        with TimeLimit() as limit:
            for (split, file), rows in zip(inputs, rows_of_files, strict=True):
                if rows is None or rows:
                    self._judge_file(split, file, rows, limit)
        progress.finish()

    def _verdict(self, columns: Mapping[str, Any], sequence: Encoded, limit: TimeLimit) -> RowVerdict:
        try:
            return limit(partial(self._judge.judge, columns), sequence)
        except RowError as error:
            if error.reason not in STOPPED:
                raise
            return RowVerdict.unjudged(self._judge.names, f"{error.detail} for the conversation's parts")

    def _judge_file(self, split: str, file: InputFile, rows: set[int] | None, limit: TimeLimit) -> None:
        before = 0
        for row, columns, sequence in encoded_rows(self._recipe, file, rows):
            is_next, before = row != before, row  # a row may have several sequences
            self._num_read += is_next
            self._options.progress.advance(int(is_next))
            if isinstance(sequence, RowError):
                self._drops[str(sequence.reason)] += 1
            else:
                for kind, detail in sequence.losses if is_next else ():
                    self._lost[kind] += 1
                    self._first_lost.setdefault(kind, f"{file.label} row {row}: {detail}; {LOSS_CURES[kind]}")
                verdict = self._verdict(columns, sequence, limit)
                self._empty_thoughts += [f"{file.label} row {row}"] if verdict.trains_empty_thoughts else []
                self._prompts += [f"{file.label} row {row}"] if verdict.trains_prompt else []
                self._note(split, file.label, row, verdict)

    def _note(self, split: str, file: str, row: int, verdict: RowVerdict) -> None:
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
                    num_in_part=self._asked[name] - self._whole[name] - self._silent[name],
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
                *(_PROMPTS.format(len(rows), rows[0]) for rows in [self._prompts] if rows),
                *(_EMPTY_THOUGHTS.format(len(rows), rows[0]) for rows in [self._empty_thoughts] if rows),
            ),
        )
