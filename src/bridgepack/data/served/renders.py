"""Renders what a server sends before an answer, and the text that ends with the answer."""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.recipe.serving import ServingConfig
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

_PROMPT_ROLES = ("system", "developer")


class ServerRenders:
    """Renders conversations with the server's template variables and system prompt."""

    def __init__(self, tokenizer: ChatTokenizer, serving: ServingConfig) -> None:
        self.num_characters = 0  #: rendered so far
        self._system = serving.system
        kwargs = serving.chat_template_kwargs
        self._tokenizer = tokenizer if kwargs is None else tokenizer.with_template_kwargs(kwargs)

    def before(self, conversation: Conversation, turn: int) -> str:
        """Return what a server sends for the messages before an answer, the generation prompt included.

        Raises:
            RowError: the template rejects them.
        """
        messages = self._messages(conversation, turn)
        text = self._tokenizer.render_served(messages, conversation.tools, conversation.template_kwargs)
        self.num_characters += len(text)
        return text

    def through(self, conversation: Conversation, turn: int) -> str:
        """Return the text that ends with an answer.

        Raises:
            RowError: the template rejects it.
        """
        messages = self._messages(conversation, turn + 1)
        text = self._tokenizer.render_text(messages, conversation.tools, conversation.template_kwargs)
        self.num_characters += len(text)
        return text

    def _messages(self, conversation: Conversation, num_messages: int) -> list[Mapping[str, Any]]:
        """Return the first messages of a conversation with the server's system prompt."""
        messages: list[Mapping[str, Any]] = list(conversation.messages[:num_messages])
        if self._system is None:
            return messages
        role = "system"
        if messages and messages[0]["role"] in _PROMPT_ROLES:
            role = messages.pop(0)["role"]
        return [{"role": role, "content": self._system}, *messages] if self._system else messages
