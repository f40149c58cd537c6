"""Judges plain documents."""

import numpy as np

from bridgepack.config.recipe.preprocessing import TextPreprocessing
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.proof.masks.chats import EVERYTHING
from bridgepack.proof.masks.records import BuiltSequence, RowVerdict
from bridgepack.proof.masks.rows.reader import Document
from bridgepack.proof.masks.votes import TRAINED, TokenCase, tokens_differ


class TextJudge:
    """Judges documents: encodes the text alone, and expects every token of it to be trained."""

    names: tuple[str, ...] = (EVERYTHING,)

    def __init__(self, settings: TextPreprocessing, tokenizer: ChatTokenizer, advice: str) -> None:
        """Take the settings for documents; `advice` is what a finding says to do."""
        self._settings, self._tokenizer, self._advice = settings, tokenizer, advice

    def judge(self, content: Document, sequence: BuiltSequence) -> RowVerdict:
        """Return the verdict on a document's tokens and mask."""
        ids, mask = sequence.input_ids, sequence.loss_mask
        text = self._tokenizer.encode(content.text)
        expected_ids = np.array([*self._special("bos"), *text, *self._special("eos")], dtype=np.int32)
        if not np.array_equal(ids, expected_ids):
            return tokens_differ(self.names, ids, expected_ids, self._tokenizer.decode)
        votes = {EVERYTHING: np.full(len(ids), TRAINED, dtype=np.int8)}
        case = TokenCase(input_ids=ids, mask=mask, votes=votes, decode=self._tokenizer.decode, advice=self._advice)
        return RowVerdict(reasons={EVERYTHING: ()}, findings=tuple(case.findings()))

    def _special(self, name: str) -> list[int]:
        index = self._tokenizer.special_token_id(name)
        return [index] if getattr(self._settings, f"add_{name}") and index is not None else []
