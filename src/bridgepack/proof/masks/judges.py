"""Judges of the kinds of rows: conversations, prompts with completions, documents, and tokens."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bridgepack.config.recipe.layout import AnyLayout
from bridgepack.config.recipe.preprocessing import (
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TextPreprocessing,
)
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.proof.masks.chats import EVERYTHING, ChatJudge
from bridgepack.proof.masks.documents import TextJudge
from bridgepack.proof.masks.records import BuiltSequence, RowVerdict
from bridgepack.proof.masks.rows.conversation import Conversation, UnreadableRowError
from bridgepack.proof.masks.rows.reader import Pair, SourceReader, TokenColumns
from bridgepack.proof.masks.votes import TRAINED, TokenCase, VoteArray, no_votes, tokens_differ, without_tokens

PARTS, DECODED, COLUMNS = "separate parts", "decoded text", "source columns"
#: Label of a token that is not trained.
#: Source: transformers, docs of data collators, and torch.nn.CrossEntropyLoss (`ignore_index`).
_IGNORED_LABEL = -100
_LOSSY = "the tokenizer does not preserve the completion's text"
_OURS = "Report it: bridgepack made this mask."
_UNREAD = "the proof does not read this row: {}"
_OTHER_COLUMNS = "the row has columns that no document of its format describes, and its recipe has no layout: {}"


class RowJudge(Protocol):
    """Judges rows of one kind."""

    names: tuple[str, ...]  #: names of its derivations

    def judge(self, content: Any, sequence: BuiltSequence) -> RowVerdict:
        """Return the derivations' verdict on the tokens and mask of what a row says."""
        ...


class SourceJudge:
    """Reads the rows of one source, and judges what a build makes of them."""

    def __init__(self, reader: SourceReader, judge: RowJudge, template: str) -> None:
        """Take the chat template that thoughts are moved for, empty if they stay in their fields."""
        self.reader, self._judge, self._template = reader, judge, template

    def judge(self, row: Mapping[str, Any], sequence: BuiltSequence) -> RowVerdict:
        """Return the verdict on a sequence of a row; on one that the proof does not read, why it judges nothing."""
        try:
            content = self.reader.read(row)
        except UnreadableRowError as error:
            return RowVerdict.without_judgement(self._judge.names, _UNREAD.format(error))
        if self._template and isinstance(content, Conversation):
            content = content.with_thoughts_for(self._template)
        verdict = self._judge.judge(content, sequence)
        if _is_of_another_text(verdict):
            unread = self.reader.unread(row)
            if unread:
                return RowVerdict.without_judgement(self._judge.names, _OTHER_COLUMNS.format(", ".join(unread)))
        return verdict


def _is_of_another_text(verdict: RowVerdict) -> bool:
    return any(finding.kind == "tokens-differ" for finding in verdict.findings)


class RecipeJudges:
    """The judges of a recipe's sources."""

    def __init__(self, recipe: SFTRecipe, tokenizer: ChatTokenizer, claims: Mapping[str, Any]) -> None:
        """Take what a build claims of the forms in which turns are given to the chat template, as in its manifest.

        Raises:
            TokenizerError: learning what the chat template writes takes too much.
        """
        self._recipe, self._claims = recipe, claims
        #: where the host reads the data itself, thoughts stay in their fields
        self._template = (tokenizer.chat_template or "") if recipe.packing.mode == "offline" else ""
        self._judges = {kind: _judge_of_kind(kind, recipe, tokenizer) for kind in recipe.kinds}
        names = (name for judge in self._judges.values() for name in judge.names)
        self.names: tuple[str, ...] = tuple(dict.fromkeys(names))  #: names of their derivations

    def of_source(self, kind: str, layouts: Sequence[AnyLayout]) -> SourceJudge:
        """Return the judge of a source by the kind of its rows, and the layouts that the recipe writes for it."""
        reader = SourceReader(self._recipe, kind, layouts, self._claims)
        return SourceJudge(reader, self._judges[kind], self._template)


def _judge_of_kind(kind: str, recipe: SFTRecipe, tokenizer: ChatTokenizer) -> RowJudge:
    settings = recipe.applied_preprocessing.of_kind(kind)
    if isinstance(settings, ChatPreprocessing):
        return ChatJudge(recipe, settings, tokenizer)
    if isinstance(settings, PromptCompletionPreprocessing):
        return PairJudge(settings, tokenizer)
    if isinstance(settings, TextPreprocessing):
        return TextJudge(settings, tokenizer, _OURS)
    return TokenizedJudge(tokenizer)


class PairJudge:
    """Judges prompts with completions: encodes both separately, and decodes the trained tokens."""

    def __init__(self, settings: PromptCompletionPreprocessing, tokenizer: ChatTokenizer) -> None:
        self._settings, self._tokenizer = settings, tokenizer
        self._never = tokenizer.never_trained_ids if settings.masks_control_tokens else frozenset()
        #: text between prompt and completion; a tokenizer that ignores leading spaces gets none
        self._separator = settings.separator.removeprefix("" if tokenizer.is_space_sensitive else " ")
        self.names: tuple[str, ...] = (EVERYTHING,) if settings.loss_mode == "full" else (PARTS, DECODED)

    def judge(self, content: Pair, sequence: BuiltSequence) -> RowVerdict:
        """Return the derivations' verdict on the tokens and mask of a pair."""
        prompt, completion = content.prompt, self._separator + content.completion
        before = [*self._special("bos"), *self._tokenizer.encode(prompt), *self._special("sep")]
        end = self._special("eos")
        expected_ids = np.array([*before, *self._tokenizer.encode(completion), *end], dtype=np.int32)
        ids, mask = sequence.input_ids, sequence.loss_mask
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

    def judge(self, content: TokenColumns, sequence: BuiltSequence) -> RowVerdict:
        """Return the columns' verdict on a row's tokens and mask."""
        ids, mask = sequence.input_ids, sequence.loss_mask
        is_kept = slice(None) if content.attention_mask is None else np.asarray(content.attention_mask) != 0
        expected_ids = np.asarray(content.input_ids, dtype=np.int64)[is_kept]
        if not np.array_equal(ids, expected_ids):
            return tokens_differ(self.names, ids, expected_ids.astype(np.int32), self._tokenizer.decode)
        is_trained = np.asarray(content.loss_mask) != 0
        if content.labels is not None:
            is_trained = np.asarray(content.labels) != _IGNORED_LABEL
        votes = is_trained[is_kept].astype(np.int8)
        case = TokenCase(input_ids=ids, mask=mask, votes={COLUMNS: votes}, decode=self._tokenizer.decode, advice=_OURS)
        return RowVerdict(reasons={COLUMNS: ()}, findings=tuple(case.findings()))


def _trained_from(num_tokens: int, first: int) -> VoteArray:
    """Return votes that train every token from `first`: (4, 3) -> [0, 0, 0, 1]."""
    votes = np.zeros(num_tokens, dtype=np.int8)
    votes[first:] = TRAINED
    return votes
