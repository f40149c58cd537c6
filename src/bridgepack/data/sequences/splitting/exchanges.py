"""Cuts conversations that are too long between exchanges, and renders each run of exchanges with the system prompt.

An exchange is as in `history`. Each trained answer is in one run. Turns that no run needs are left out and counted.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.over_long import HistoryCut
from bridgepack.data.sequences.splitting.history import KEPT_ROLES, exchange_starts


class ExchangeRun(NamedTuple):
    """Whole exchanges one after the other, rendered after the system prompt and the tools."""

    chat: RenderedChat
    trained: frozenset[int]  #: positions in the conversation of the answers that it trains
    removed: frozenset[int]  #: positions of earlier messages that it leaves out


class ExchangeSplitter:
    """Splits conversations at the maximum sequence length."""

    def __init__(self, render: Callable[[Conversation], RenderedChat], fits: Callable[[str], bool]) -> None:
        """Take functions that render a conversation and say whether a text fits; `render` raises RowError."""
        self._render, self._fits = render, fits

    def runs(self, conversation: Conversation) -> tuple[list[ExchangeRun], HistoryCut]:
        """Return the runs, each of as many exchanges as fit, at least one; and what is in none of them.

        Raises:
            RowError: the template refuses a run.
        """
        bounds = [0, *exchange_starts(conversation)[1:], len(conversation.messages)]
        runs: list[ExchangeRun] = []
        first, size = 0, 1
        while first < len(bounds) - 1:
            size, run = self._longest(conversation, bounds, first, size)
            first += size
            runs += [run] if run is not None else []
        return runs, _left_out(conversation, bounds, runs)

    def _longest(
        self, conversation: Conversation, bounds: list[int], first: int, guess: int
    ) -> tuple[int, ExchangeRun | None]:
        """Return the number of exchanges of the longest run from one on, and the run; None if it trains nothing."""
        maximum = len(bounds) - 1 - first
        good, longest = 1, self._run(conversation, bounds[first], bounds[first + 1])
        bad, attempt = maximum + 1, min(max(guess, 2), maximum)
        while bad - good > 1:
            run = self._run(conversation, bounds[first], bounds[first + attempt])
            if run is None or self._fits(run.chat.text):
                good, longest = attempt, run
            else:
                bad = attempt
            # twice as many while nothing is too long, so that no render is much longer than a sequence
            attempt = min(2 * good, maximum) if bad > maximum else (good + bad) // 2
        return good, longest

    def _run(self, conversation: Conversation, start: int, stop: int) -> ExchangeRun | None:
        """Return the run of the messages of a range, up to its last trained answer."""
        answers = frozenset(index for index in conversation.trained_positions if start <= index < stop)
        if not answers:
            return None
        earlier = enumerate(conversation.messages[:start])
        earlier_turns = frozenset(index for index, message in earlier if message["role"] not in KEPT_ROLES)
        return ExchangeRun(
            self._render(conversation.through(max(answers) + 1).without(earlier_turns)), answers, earlier_turns
        )


def _left_out(conversation: Conversation, bounds: list[int], runs: list[ExchangeRun]) -> HistoryCut:
    """Return how many turns are in no run, and how many exchanges whole."""
    read_indices = {index for run in runs for index in range(max(run.trained) + 1) if index not in run.removed}
    left_out = set(range(len(conversation.messages))) - read_indices
    exchanges = [set(range(start, stop)) for start, stop in pairwise(bounds)]
    return HistoryCut(sum(exchange <= left_out for exchange in exchanges), len(left_out))
