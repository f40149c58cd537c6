"""Encodes plain documents: the tokens of a text, all of them trained, and EOS."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from bridgepack.config.layouts.rendered import turn_marker
from bridgepack.config.recipe.preprocessing import TextPreprocessing
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.sequences.encoding import FlatBatch, Loss, Prepared
from bridgepack.data.sequences.findings.doubled_tokens import leading, special_text, trailing, without_ends
from bridgepack.data.sequences.unread import losses_of, unread_fields
from bridgepack.data.tokenizers.special import special_ids
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason, LostKind, TokenArray
from bridgepack.records.rows import ReadRow

#: A question and an answer that show what a chat template writes between a user's turn and the assistant's.
_ASKED, _ANSWERED = "questionqvx", "answerqvx"
#: Characters of such a text that tell it from prose.
_TELLING = 4


class TextEncoder:
    """Turns documents into ids and token-aligned masks.

    `a b` with EOS 2 -> ids [11, 12, 2], mask [1, 1, 1]; nothing predicts the first token, whose mask is ignored.
    """

    def __init__(self, tokenizer: ChatTokenizer, settings: TextPreprocessing) -> None:
        """Look up the special tokens that the settings ask for.

        Raises:
            TokenizerError: the tokenizer lacks a special token.
        """
        self._tokenizer, self._settings = tokenizer, settings
        special_tokens = {"bos": settings.add_bos, "eos": settings.add_eos}
        self._bos, self._eos = (special_ids(tokenizer, name, is_wanted) for name, is_wanted in special_tokens.items())
        self._bos_text, self._eos_text = special_text(tokenizer, "bos"), special_text(tokenizer, "eos")
        self._between_turns = text_between_turns(tokenizer)

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row's text; raises RowError if it is missing or holds nothing."""
        columns = row.columns
        text = columns.get("text")
        if not isinstance(text, str):
            raise RowError(DropReason.MISSING_FIELD, f"text is missing; it has: {names_of(columns)}")
        if not text or text.isspace():
            raise RowError(DropReason.MISSING_FIELD, "the text is empty, so there is nothing to train")
        unread = tuple(unread_fields(row.unread, (text,)))
        return Prepared(len(text), (text,), (*losses_of(unread), *self._losses(text)), unread)

    def encode(self, rows: Sequence[tuple[str]]) -> FlatBatch:
        """Return the tokens and masks of documents."""
        flat = self._tokenizer.engine.encode_flat([text for (text,) in rows])
        offsets = flat.offsets + np.arange(len(rows) + 1) * (len(self._bos) + len(self._eos))
        ids = self._with_ends(flat.input_ids, flat.offsets.tolist())
        mask = np.ones(len(ids), dtype=np.int8)
        return FlatBatch(ids, mask, offsets, np.full(len(rows), -1, dtype=np.int32))

    def _with_ends(self, input_ids: TokenArray, bounds: Sequence[int]) -> TokenArray:
        """Return documents, each after BOS and before EOS, if these are added; all shapes [num_tokens]."""
        if not self._bos and not self._eos:
            return input_ids
        bos, eos = (np.array(ids, dtype=np.int32) for ids in (self._bos, self._eos))
        parts = [part for start, stop in pairwise(bounds) for part in (bos, input_ids[start:stop], eos)]
        return np.concatenate(parts) if parts else input_ids

    def _losses(self, text: str) -> Iterator[Loss]:
        """Yield what is told of a document: special tokens in its text, and turns of a chat."""
        ends = (
            ("begins", "add_bos", self._bos_text, leading(text, self._bos_text), self._settings.add_bos),
            ("ends", "add_eos", self._eos_text, trailing(text, self._eos_text), self._settings.add_eos),
        )
        for how, field, token, count, is_added in ends:
            if count > 1:
                yield Loss(LostKind.DOUBLED_TOKEN, f"the text {how} with {count} times {token!r}")
                break
            if count and is_added:
                yield Loss(LostKind.DOUBLED_TOKEN, f"the text {how} with {token!r}, which {field} adds again")
                break
        marker = turn_marker(text)
        if marker is None and self._between_turns and self._between_turns in text:
            marker = self._between_turns
        if marker is not None:
            yield Loss(LostKind.RENDERED_CHAT, f"the text has turns of a chat, {marker!r}; all of them are trained")
            return
        inner = without_ends(text, self._bos_text, self._eos_text)
        tokens = [token for token in (self._eos_text, self._bos_text) if token and token in inner]
        if tokens:
            yield Loss(LostKind.INJECTED_TURN, f"the text contains {tokens[0]!r}, and goes on")


def text_between_turns(tokenizer: ChatTokenizer) -> str:
    """Return what the chat template writes between a question and its answer, without white space around it.

    ChatML: `<|im_end|>`, a newline and `<|im_start|>assistant`. Empty without a template, or if it could be prose.
    """
    turns = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _ANSWERED}]
    if tokenizer.chat_template is None:
        return ""
    try:
        text = tokenizer.render_text(turns, None)
    except (RowError, TokenizerError):
        return ""
    between = text.partition(_ASKED)[2].partition(_ANSWERED)
    gap = between[0].strip() if between[1] else ""
    return gap if sum(not letter.isalnum() and not letter.isspace() for letter in gap) >= _TELLING else ""
