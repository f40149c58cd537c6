"""Takes the oldest exchanges out of conversations that are too long, and renders what is left.

An exchange is a user's turn and all turns before the next one: calls with their results, and the answer. System and
developer turns stay, the tools too. Nothing is cut from tokens, because a template may write the tools or the system
prompt into the first user turn.
"""

from collections.abc import Callable
from typing import NamedTuple

from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.mending import OLD_CALL
from bridgepack.data.sequences.over_long import HistoryCut
from bridgepack.records import ASSISTANT

#: Roles of turns that stay when others are left out.
KEPT_ROLES = frozenset({"system", "developer"})


class FittedChat(NamedTuple):
    """A rendered conversation that fits, or of which only the last exchange is left."""

    chat: RenderedChat
    removed: frozenset[int] = frozenset()  #: positions of the messages that were taken out
    cut: HistoryCut | None = None  #: None if nothing was


class HistoryCutter:
    """Fits conversations to the maximum sequence length."""

    def __init__(
        self,
        render: Callable[[Conversation], RenderedChat],
        count_tokens: Callable[[str], int],
        max_runtime_length: int,
        *,
        keeps_bytes: bool,
        trains_all: bool,
    ) -> None:
        """Take functions that render a conversation and count a text's tokens.

        Args:
            render: raises RowError if the template refuses the conversation.
            count_tokens: returns the stored tokens of a text.
            max_runtime_length: maximum runtime length of a sequence, in tokens.
            keeps_bytes: a text has at most as many tokens as bytes.
            trains_all: turns after the last answer are trained, too, so they stay.
        """
        self._render, self._count_tokens = render, count_tokens
        self.max_runtime_length = max_runtime_length
        self._keeps_bytes, self._trains_all = keeps_bytes, trains_all

    def fit(self, chat: RenderedChat) -> FittedChat:
        """Return a conversation without as few of its oldest exchanges as make it fit.

        The exchange of the last trained answer always stays. Turns after that answer go first.

        Raises:
            RowError: the template refuses what is left.
        """
        uncut, answers = chat.conversation, chat.conversation.trained_positions
        if self.fits(chat.text) or not answers:
            return FittedChat(chat)
        conversation = uncut if self._trains_all else uncut.through(answers[-1] + 1)
        starts = exchange_starts(conversation)
        is_last = [start for start in starts if start <= answers[-1]]
        best = self._cut(conversation, starts, 0)
        low, high = 0, max(len(is_last) - 1, 0)  # fewer exchanges do not fit; so many are the most
        if not self.fits(best.chat.text):
            best = self._cut(conversation, starts, high)
            while high - low > 1:
                middle = (low + high) // 2
                attempt = self._cut(conversation, starts, middle)
                low, high = (low, middle) if self.fits(attempt.chat.text) else (middle, high)
                best = attempt if high == middle else best
        positions = best.removed | frozenset(range(len(conversation.messages), len(uncut.messages)))
        if not positions:
            return FittedChat(chat)
        num_exchanges = best.cut.num_exchanges if best.cut else 0
        return best._replace(removed=positions, cut=HistoryCut(num_exchanges, len(positions)))

    def _cut(self, conversation: Conversation, starts: list[int], num: int) -> FittedChat:
        """Return a conversation without its first `num` exchanges."""
        oldest = range(starts[0], starts[num]) if num else range(0)
        positions = frozenset(index for index in oldest if conversation.messages[index]["role"] not in KEPT_ROLES)
        return FittedChat(self._render(conversation.without(positions)), positions, HistoryCut(num, len(positions)))

    def fits(self, text: str) -> bool:
        """Return whether a text is at most as long as a sequence."""
        max_stored_length = self.max_runtime_length + 1
        return (self._keeps_bytes and len(text.encode()) <= max_stored_length) or self._count_tokens(
            text
        ) <= max_stored_length


def exchange_starts(conversation: Conversation) -> list[int]:
    """Return the positions of the user's turns that begin an exchange: not those that answer a call."""
    starts, answers_call = [], False
    for index, message in enumerate(conversation.messages):
        if message["role"] == "user" and not answers_call:
            starts.append(index)
        calls = message.get("tool_calls") or message.get(OLD_CALL)
        answers_call = message["role"] == ASSISTANT and bool(calls)
    return starts
