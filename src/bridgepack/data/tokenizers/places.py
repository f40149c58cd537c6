"""Where a text's tokens lie in it, in characters."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.geometry import IntArray
from bridgepack.records import DropReason


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPlaces:
    """Positions of one text's tokens."""

    text: str
    starts: IntArray  #: first character of each token, shape [num_tokens], int64, ascending
    stops: IntArray  #: the character after each token, likewise
    #: texts of the tokens that may hold white space beside their text, by token
    control_texts: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tokenizer: ChatTokenizer, text: str) -> Self:
        """Return the places of a text's tokens, without special tokens added by the tokenizer."""
        (encoding,) = tokenizer.encode_with_places([text])
        bounds = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        if tokenizer.keeps_bytes:  # offsets may omit white space
            bounds[1:, 0] = np.minimum(bounds[1:, 0], np.maximum.accumulate(bounds[:-1, 1]))
        texts = tokenizer.texts_of_strippers
        controls = {index: texts[token] for index, token in enumerate(encoding.ids) if token in texts} if texts else {}
        return cls(text=text, starts=bounds[:, 0], stops=np.maximum.accumulate(bounds[:, 1]), control_texts=controls)

    def token_from(self, position: int) -> int:
        """Return the first token that begins at a character or after it; the number of tokens if none does.

        A control token that holds the white space behind it counts as ended where its own text ends: a server that is
        sent the text up to there has the same token.

        Raises:
            RowError: a token begins before the character and ends after it; reason `boundary_in_token`.
        """
        index = int(np.searchsorted(self.starts, position, side="left"))
        if index and self.stops[index - 1] > position:
            start, stop = int(self.starts[index - 1]), int(self.stops[index - 1])
            control_text = self.control_texts.get(index - 1)
            if control_text is None or self.text.find(control_text, start, position) < 0:
                token_text, before = self.text[start:stop], self.text[max(0, start - 20) : position]
                detail = (
                    f"the token {token_text!r} holds the end of {before!r} and what follows it, of which one is trained"
                )
                raise RowError(DropReason.BOUNDARY_IN_TOKEN, detail)
        return index


def require_places(tokenizer: ChatTokenizer, setting: str, cure: str) -> None:
    """Check that the tokenizer reports its tokens' character positions, which a setting needs.

    Raises:
        TokenizerError: it does not; `setting` says what needs them, and `cure` what to do.
    """
    if tokenizer.backend is None:
        raise TokenizerError(
            f"preprocessing.{setting} and tokenizer.name_or_path is {tokenizer.config.name_or_path!r}, a tokenizer "
            f"written in Python, which does not report tokens' positions. {cure}, or use a tokenizer with a "
            "tokenizer.json.",
            field=f"preprocessing.{setting}",
        )
