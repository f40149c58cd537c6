"""A conversation with its rendered text: whose its characters are, and what its messages say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.geometry import IntArray
from bridgepack.proof.masks.renders import ASSISTANT, Render, Renders
from bridgepack.proof.masks.results import Result, results_in
from bridgepack.proof.masks.rows.conversation import Conversation
from bridgepack.proof.masks.thoughts import leaves_of
from bridgepack.proof.masks.votes import Span


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation with its rendered text."""

    conversation: Conversation
    text: str
    render: Render
    renders: Renders
    bounds: IntArray  #: (start, stop) of each token in characters, shape [num_tokens, 2], int64

    @property
    def roles(self) -> list[str]:
        """Roles of its messages."""
        return [message["role"] for message in self.conversation.messages]

    @property
    def turns(self) -> list[int]:
        """Positions of the assistant's messages."""
        return [index for index, role in enumerate(self.roles) if role == ASSISTANT]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The assistant's messages."""
        return [message for message in self.conversation.messages if message["role"] == ASSISTANT]

    def trained_messages(self, loss_mode: str) -> list[int]:
        """Return the positions of the assistant's messages that the recipe trains."""
        turns = self.turns[-1:] if loss_mode == "last_turn" else self.turns
        return [turn for turn in turns if turn not in self.conversation.untrained_answers]

    def with_beginning(self, message: int, turn: Span | None) -> Span | None:
        """Return a turn from where its message begins: a template may write calls before the text, as Gemma 4's."""
        before = self.renders.before(message)
        if turn is None or before is None or not self.text.startswith(before):
            return turn
        return min(len(before), turn[0]), turn[1]

    def results(self, turns: Sequence[Span | None]) -> list[Result]:
        """Return what tools returned inside its answers, whose characters are `turns`."""
        return results_in(self.text, self.conversation.messages, self.render, self.renders, turns)

    def words(self) -> Iterator[str]:
        """Yield every text of its messages, calls and tool schemas."""
        turns = [{key: value for key, value in item.items() if key != "role"} for item in self.conversation.messages]
        leaves = leaves_of([turns, self.conversation.tools, self.conversation.template_kwargs])
        return (leaf for leaf in leaves if isinstance(leaf, str))

    def message_of(self, token: int) -> tuple[int, str] | None:
        """Return (message of a token, from 1; its role), or None if the renders of prefixes do not tell."""
        place, begin = int(self.bounds[token, 0]), 0
        for index, role in enumerate(self.roles):
            through = self.renders.before(index + 1)
            if through is None or not self.text.startswith(through):
                begin = len(self.text)
            elif place < len(through):
                return (index + 1, role) if begin <= place else None
            else:
                begin = len(through)
        return None
