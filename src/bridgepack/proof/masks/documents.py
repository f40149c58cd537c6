"""Judges plain documents, and rows of several kinds, each by the judge of its kind."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from bridgepack.config.recipe.preprocessing import TextPreprocessing
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.proof.masks.chats import EVERYTHING
from bridgepack.proof.masks.records import RowVerdict
from bridgepack.proof.masks.votes import TRAINED, TokenCase, tokens_differ


class RowJudge(Protocol):
    """Judges rows of a recipe."""

    names: tuple[str, ...]  #: names of its derivations

    def judge(self, columns: Mapping[str, Any], encoded: Encoded) -> RowVerdict:
        """Return the derivations' verdict on a row's tokens and mask."""
        ...


class TextJudge:
    """Judges documents: encodes the text alone, and expects every token of it to be trained."""

    names: tuple[str, ...] = (EVERYTHING,)

    def __init__(self, settings: TextPreprocessing, tokenizer: ChatTokenizer, advice: str) -> None:
        """Take the settings for documents; `advice` is what a finding says to do."""
        self._settings, self._tokenizer, self._advice = settings, tokenizer, advice

    def judge(self, columns: Mapping[str, Any], encoded: Encoded) -> RowVerdict:
        """Return the verdict on a document's tokens and mask."""
        ids, mask = np.array(encoded.ids, dtype=np.int32), np.array(encoded.mask, dtype=np.int8)
        text = self._tokenizer.encode(columns["text"])
        wanted = np.array([*self._special("bos"), *text, *self._special("eos")], dtype=np.int32)
        if not np.array_equal(ids, wanted):
            return tokens_differ(self.names, ids, wanted, self._tokenizer.decode)
        votes = {EVERYTHING: np.full(len(ids), TRAINED, dtype=np.int8)}
        case = TokenCase(input_ids=ids, mask=mask, votes=votes, decode=self._tokenizer.decode, advice=self._advice)
        return RowVerdict(reasons={EVERYTHING: ()}, findings=tuple(case.findings()))

    def _special(self, name: str) -> list[int]:
        index = self._tokenizer.special_token_id(name)
        return [index] if getattr(self._settings, f"add_{name}") and index is not None else []


class JudgeOfKinds:
    """Judges each row by the judge of its kind, which the layout of its source says."""

    def __init__(self, judges: Mapping[str, RowJudge]) -> None:
        """Take kind -> judge."""
        self._judges = judges
        self.names: tuple[str, ...] = tuple(dict.fromkeys(name for judge in judges.values() for name in judge.names))

    def judge(self, columns: Mapping[str, Any], encoded: Encoded) -> RowVerdict:
        """Return the verdict of the judge of the row's kind."""
        kind: str = columns.kind  # type: ignore[attr-defined]
        return self._judges[kind].judge(columns, encoded)
