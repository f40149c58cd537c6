"""Conversations -> texts: one render each, or those of the sequences that the recipe makes of one."""

from collections.abc import Callable

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.mending import part_hint
from bridgepack.data.sequences.splitting.parts import PartMaker, Parts
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.forms import AS_GIVEN, Forms
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError


class ChatRenderer:
    """Renders conversations with one chat template."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        facts: TemplateFacts,
        max_runtime_length: int | None,
    ) -> None:
        """Take a recipe's settings; the length is needed where over-long conversations lose their history."""
        self._tokenizer, self._has_blocks = tokenizer, facts.has_blocks
        parts = PartMaker(tokenizer, settings, facts.markers, self.render, max_runtime_length)
        self._make: Callable[[Conversation], Parts] = parts.parts if parts.may_split else self._single
        self._null_hint = _null_hint(settings, facts.forms)

    def parts(self, conversation: Conversation) -> Parts:
        """Return the sequences of a conversation, rendered.

        Raises:
            RowError: the template refuses it, or a part that is needed.
        """
        try:
            return self._make(conversation)
        except RowError as error:
            is_null = any(message["content"] is None for message in conversation.messages)
            hint = (self._null_hint if is_null else "") or part_hint(conversation.messages)
            raise RowError(error.reason, error.detail + hint) from None

    def render(self, conversation: Conversation) -> RenderedChat:
        """Return a conversation with its text; raises RowError as `ChatTokenizer.render_text`."""
        inputs = conversation.messages, conversation.tools, conversation.template_kwargs
        if self._has_blocks:
            return RenderedChat(conversation, *self._tokenizer.render_marked(*inputs))
        return RenderedChat(conversation, self._tokenizer.render_text(*inputs), None)

    def _single(self, conversation: Conversation) -> Parts:
        return Parts([self.render(conversation)])


def _null_hint(settings: ChatPreprocessing, forms: Forms) -> str:
    """Return what to say of a row with null content that the template rejects."""
    if settings.null_content == "keep":
        return "; a turn's content is null: preprocessing.null_content: auto may help"
    shows_none = settings.null_content == "auto" and forms is not AS_GIVEN and forms.beside_calls == "given"
    return "; a turn's content is null, and the template does not write the turn's calls" if shows_none else ""
