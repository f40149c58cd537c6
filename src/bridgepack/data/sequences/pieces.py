"""Splits a conversation into as few sequences as show each trained answer as a server shows it.

A server renders the turns before an answer, and the model writes the answer. The render that ends with the answer
shows both. In a longer render the answer may look other: many templates take the reasoning out of earlier answers. An
answer belongs to a longer sequence only if that begins with the answer's own render; otherwise it gets its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.masks import RenderedChat
from bridgepack.errors import RowError


class ConversationSplitter:
    """Splits conversations for one chat template."""

    def __init__(
        self,
        render: Callable[[Conversation], RenderedChat],
        *,
        end_texts: Sequence[str],
        added_tokens: Collection[str],
    ) -> None:
        """Take the function that renders a conversation.

        Args:
            render: raises RowError if the template refuses the conversation.
            end_texts: texts that can end an answer.
            added_tokens: texts of the tokenizer's added tokens.
        """
        self._render, self._ends = render, tuple(end_texts)
        self._added = sorted(filter(None, added_tokens), key=len, reverse=True)

    def pieces(self, conversation: Conversation) -> list[RenderedChat]:
        """Return the sequences of a conversation, rendered, in the order of their last answers.

        Every trained answer is trained in one of them. A conversation without a trained answer stays whole.

        Raises:
            RowError: the template refuses the conversation up to one of its trained answers.
        """
        answers = conversation.trained
        if not answers:
            return [self._render(conversation)]
        found: list[tuple[RenderedChat, list[int]]] = []  # the last sequence first
        for answer in reversed(answers):
            chat = self._rendered(conversation, answer)
            own = chat.text[: self._stop(chat)]
            home = next((members for longer, members in reversed(found) if longer.text.startswith(own)), None)
            if home is None:
                found.append((chat, [answer]))
            else:
                home.append(answer)
        return [chat._replace(conversation=conversation.piece(members)) for chat, members in reversed(found)]

    def _rendered(self, conversation: Conversation, answer: int) -> RenderedChat:
        """Return the render of the turns up to an answer."""
        try:
            return self._render(conversation.through(answer + 1))
        except RowError as error:
            if answer == conversation.trained[-1]:
                raise
            detail = f"{error.detail}; the turns up to turn {answer + 1} alone, which split_conversations needs"
            raise RowError(error.reason, detail) from None

    def _stop(self, chat: RenderedChat) -> int:
        """Return where the last answer ends: before white space and tokens that the template writes after its end."""
        text = chat.text
        marked = max((stop for _, stop in chat.spans or ()), default=0)
        ended = max((place + len(end) for end in self._ends if (place := text.rfind(end)) >= 0), default=0)
        stop = max(marked, ended)
        rest = text[stop:]
        for token in self._added:
            rest = rest.replace(token, "")
        return stop if stop and not rest.strip() else len(text)
