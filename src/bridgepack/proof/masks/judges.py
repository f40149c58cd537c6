"""Judges masks of all kinds of preprocessing: chats, prompts with completions, and tokenised rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bridgepack.config.recipe.preprocessing import (
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TokenizedPreprocessing,
)
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.sequences.encoder import IGNORED_LABEL, STANDARD_COLUMNS
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.proof.masks.chats import EVERYTHING, ChatJudge
from bridgepack.proof.masks.records import RowVerdict
from bridgepack.proof.masks.tokens import TokenCase, tokens_differ
from bridgepack.proof.masks.votes import NOT_TRAINED, TRAINED, VoteArray, no_votes, without_tokens

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
        wanted = np.array([*before, *self._tokenizer.encode(completion), *end], dtype=np.int32)
        ids, mask = np.array(encoded.ids, dtype=np.int32), np.array(encoded.mask, dtype=np.int8)
        if not np.array_equal(ids, wanted):
            return tokens_differ(self.names, ids, wanted, self._tokenizer.decode)
        reasons: dict[str, tuple[str, ...]] = dict.fromkeys(self.names, ())
        if self._settings.loss_mode == "full":
            votes = {EVERYTHING: _trained_from(len(ids), 0)}
        else:
            decoded = self._decoded(ids.tolist(), completion, len(end))
            reasons[DECODED] = () if decoded is not None else (_LOSSY,)
            votes = {
                PARTS: _trained_from(len(ids), len(before)),
                DECODED: no_votes(len(ids)) if decoded is None else _trained_from(len(ids), decoded),
            }
        case = TokenCase(
            input_ids=ids,
            mask=mask,
            votes={name: without_tokens(item, ids, self._never) for name, item in votes.items()},
            decode=self._tokenizer.decode,
            advice=_OURS,
        )
        silent = frozenset(name for name, found in reasons.items() if found)
        return RowVerdict(reasons=reasons, silent=silent, findings=tuple(case.findings()))

    def _texts(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        """Return a row's (prompt, completion) in the form that gets encoded."""
        settings = self._settings
        names = (settings.prompt_column, settings.completion_column)
        if not all(name in columns for name in names) and all(name in columns for name in STANDARD_COLUMNS):
            names = STANDARD_COLUMNS
        prompt, completion = (columns[name] for name in names)
        if settings.strip_whitespace:
            prompt, completion = prompt.strip(" "), completion.strip(" ")
        separator = settings.separator
        if separator[:1] == " " and not self._tokenizer.is_space_sensitive:
            separator = separator[1:]
        return settings.prompt_template.format(prompt=prompt), separator + completion

    def _special(self, name: str) -> list[int]:
        index = self._tokenizer.special_token_id(name)
        return [index] if getattr(self._settings, f"add_{name}") and index is not None else []

    def _decoded(self, ids: list[int], completion: str, num_end: int) -> int | None:
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

    def __init__(self, settings: TokenizedPreprocessing, tokenizer: ChatTokenizer) -> None:
        self._settings, self._tokenizer = settings, tokenizer

    def judge(self, columns: Mapping[str, Any], encoded: Encoded) -> RowVerdict:
        """Return the columns' verdict on a row's tokens and mask."""
        ids, mask = np.array(encoded.ids, dtype=np.int32), np.array(encoded.mask, dtype=np.int8)
        wanted = np.asarray(columns[self._settings.input_ids_column], dtype=np.int64)
        if not np.array_equal(ids, wanted):
            return tokens_differ(self.names, ids, wanted.astype(np.int32), self._tokenizer.decode)
        votes = np.where(self._is_trained(columns), np.int8(TRAINED), np.int8(NOT_TRAINED))
        case = TokenCase(input_ids=ids, mask=mask, votes={COLUMNS: votes}, decode=self._tokenizer.decode, advice=_OURS)
        return RowVerdict(reasons={COLUMNS: ()}, findings=tuple(case.findings()))

    def _is_trained(self, columns: Mapping[str, Any]) -> Any:
        """Return whether each token is trained according to its column; shape [num_tokens]."""
        labels, mask = self._settings.labels_column, self._settings.loss_mask_column
        if labels is None and mask is None:
            labels, mask = (None, "loss_mask") if columns.get("loss_mask") is not None else ("labels", None)
        if labels is not None:
            return np.asarray(columns[labels]) != IGNORED_LABEL
        return np.asarray(columns[mask or ""]) != 0


#: Judges rows of one recipe; `names` are its derivations' names.
Judge = ChatJudge | PairJudge | TokenizedJudge


def judge_of(recipe: SFTRecipe, tokenizer: ChatTokenizer) -> Judge:
    """Return the judge for a recipe's rows."""
    settings = recipe.preprocessing
    if isinstance(settings, ChatPreprocessing):
        return ChatJudge(recipe, settings, tokenizer)
    if isinstance(settings, PromptCompletionPreprocessing):
        return PairJudge(settings, tokenizer)
    return TokenizedJudge(settings, tokenizer)


def _trained_from(num_tokens: int, first: int) -> VoteArray:
    """Return votes that train every token from `first`: (4, 3) -> [0, 0, 0, 1]."""
    votes = np.full(num_tokens, NOT_TRAINED, dtype=np.int8)
    votes[first:] = TRAINED
    return votes
