"""Renders conversations with transformers and encodes their text with the tokenizer's own backend.

Shares no code with the build's tokenisation: neither the compiled template nor its engines.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from jinja2.exceptions import TemplateError

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer, is_unicode
from bridgepack.geometry import IntArray
from bridgepack.proof.masks.prefixes import Messages, opening_of
from bridgepack.proof.masks.votes import Span, token_bounds
from bridgepack.records import TokenArray

Kwargs = Mapping[str, Any]
_BLANKS = "a b\nc"
#: Errors that a template raises for a conversation that it rejects.
_REFUSALS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)


class Rendering:
    """A tokenizer and its chat template, used only through transformers and `tokenizers`."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        from transformers.utils.chat_template_utils import render_jinja_template

        self._render: Callable[..., Any] = render_jinja_template
        self._template = tokenizer.chat_template
        self._variables = tokenizer.template_variables
        self._backend = tokenizer.backend
        #: The tokenizer reports tokens' character positions.
        self.knows_places = self._backend is not None
        self._keeps_blanks = tokenizer.decode(tokenizer.encode(_BLANKS)) == _BLANKS

    @cached_property
    def prompt_goes_on(self) -> bool:
        """Whether the template's generation prompt also begins the answer, after the turn's header.

        Then some answer begins differently: the last, or one before a user turn.
        """
        asked = [{"role": "user", "content": "Qoneq"}]
        prompted = self.text(asked, has_prompt=True)
        if prompted is None:
            return False
        answered = [*asked, {"role": "assistant", "content": ""}]
        opened = [opening_of(self.text, [*answered, *following], 1) for following in ([], asked)]
        return any(text is not None and not text.startswith(prompted) for text in opened)

    def tokens(self, text: str) -> tuple[TokenArray, IntArray]:
        """Return a text's tokens, without adding special tokens.

        Returns:
            Ids, shape [num_tokens], int32; (start, stop) in characters, shape [num_tokens, 2], int64.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        bounds = token_bounds(encoding.offsets, closes_gaps=self._keeps_blanks)
        return np.array(encoding.ids, dtype=np.int32), bounds

    def text(
        self, messages: Messages, *, tools: Any = None, has_prompt: bool = False, kwargs: Kwargs = MappingProxyType({})
    ) -> str | None:
        """Return the text of a conversation with its own variables, or None if the template rejects it."""
        found = self._rendered(messages, tools, kwargs, add_generation_prompt=has_prompt)
        return None if found is None else found[0]

    def marked(self, messages: Messages, tools: Any, kwargs: Kwargs) -> tuple[str, list[Span]] | None:
        """Return (text of a conversation, positions of the template's generation blocks), both from transformers."""
        return self._rendered(messages, tools, kwargs, return_assistant_tokens_mask=True)

    def _rendered(
        self, messages: Messages, tools: Any, kwargs: Kwargs, **options: Any
    ) -> tuple[str, list[Span]] | None:
        arguments = {**self._variables, **kwargs, "chat_template": self._template, "tools": tools, **options}
        try:
            (text,), places = self._render([list(messages)], **arguments)
        except _REFUSALS:
            return None
        return (text, places[0] if places else []) if isinstance(text, str) and is_unicode(text) else None
