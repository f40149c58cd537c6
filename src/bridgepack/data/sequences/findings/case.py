"""What findings about chats are given: a row with its rendered conversation."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.encoding import Loss
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import UnreadCount


class ChatCase(NamedTuple):
    """One sequence of a row's conversation."""

    row: ReadRow
    chat: RenderedChat
    unread: tuple[UnreadCount, ...] = ()  #: columns and fields of turns that nobody reads
    stop: str = ""  #: text behind its render: the beginning of the next turn, which ends the last answer

    @property
    def conversation(self) -> Conversation:
        """The conversation, as read from the row."""
        return self.chat.conversation

    @property
    def text(self) -> str:
        """Output of the chat template."""
        return self.chat.text


#: Says what is lost or odd, at most one loss of each kind.
Finding = Callable[[ChatCase], Iterable[Loss]]
