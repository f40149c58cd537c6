"""Derives what the assistant wrote from renders of a conversation's beginnings: what each turn adds to them.

The text that a generation prompt gives is not the assistant's; what its turn adds after that is. Templates need not be
stable: Qwen3's writes the thoughts of the last answer alone, so that a conversation does not begin with the render of
its beginning. Where the difference is understood (a turn lost its beginning) it is allowed for; elsewhere the turn is
not judged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bridgepack.proof.masks.votes import (
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    common_prefix,
    leave_blanks,
    no_votes,
    without_open_tag,
)

Messages = Sequence[Mapping[str, Any]]
#: Returns the text of messages, with a generation prompt behind them where it `has_prompt`; None where the template
#: refuses them.
Render = Callable[..., str | None]
ASSISTANT = "assistant"
#: Words put in place of a message's own; they have no character in common.
_OTHER_WORDS = ("Qzeroq", "8888")

REFUSED = "the template refuses a part of the conversation"
UNSTABLE = "the template renders a turn in another way once the conversation goes on"
NO_PROMPT = "the template has no generation prompt before a turn, so the turn's header is not judged"
OTHER_PROMPT = "the template's generation prompt is not how it begins a turn, so the turn's header is not judged"
PROMPT_GOES_ON = "the template's generation prompt begins the answer, too, so the turn's header is not judged"
MOVED = "the template writes another message behind the turn, so the turn's end is not judged"
NOTHING_WRITTEN = "the template writes nothing of an assistant turn"


class Renders:
    """Renders of one conversation's beginnings; None where the template refuses."""

    def __init__(self, render: Render, messages: Messages, text: str, *, prompt_goes_on: bool) -> None:
        """Take a conversation with its text.

        Args:
            render: the template.
            messages: of the conversation.
            text: of it.
            prompt_goes_on: the generation prompt is more than the header of a turn: it begins the answer, too.
        """
        self.prompt_goes_on = prompt_goes_on
        self._render, self._messages = render, messages
        self._before: dict[int, str | None] = {len(messages): text}

    def before(self, index: int) -> str | None:
        """Return the text of the messages before one; of all where there is none of that index."""
        if index not in self._before:
            self._before[index] = self._render(self._messages[:index])
        return self._before[index]

    def prompted(self, index: int) -> str | None:
        """Return the text of the messages before one, with the generation prompt."""
        return self._render(self._messages[:index], has_prompt=True)

    def opened(self, index: int) -> str | None:
        """Return the text up to a message's own words."""
        return opening_of(self._render, self._messages[: index + 1], index)

    def num_closing(self, index: int) -> int:
        """Return how many characters follow a message's own words, where it is the last; 0 where that is not known."""
        found = _with_other_words(self._render, self._messages[: index + 1], index)
        return 0 if found is None else common_prefix(found[0][::-1], found[1][::-1])

    def num_moved(self, index: int) -> int:
        """Return how many characters follow a message's own words where another one's are among them; 0 elsewhere."""
        messages, text, closing = self._messages[: index + 1], self.before(index + 1) or "", self.num_closing(index)
        tail = text[len(text) - closing :]
        for place, message in enumerate(messages[:-1]):
            words = message.get("content")
            if isinstance(words, str) and words.strip() and words.strip() in tail:
                changed = {**message, "content": _OTHER_WORDS[0]}
                other = self._render([*messages[:place], changed, *messages[place + 1 :]])
                if other is not None and not other.endswith(tail):
                    return closing
        return 0


def opening_of(render: Render, messages: Messages, index: int) -> str | None:
    """Return the text up to a message's own words: what renders with other words there have in common."""
    found = _with_other_words(render, messages, index)
    return None if found is None else found[0][: common_prefix(*found)]


def _with_other_words(render: Render, messages: Messages, index: int) -> tuple[str, str] | None:
    """Return two renders of other words in one message; None where they are refused, or the words are not written."""
    before, message, behind = messages[:index], messages[index], messages[index + 1 :]
    first, second = (render([*before, {**message, "content": words}, *behind]) for words in _OTHER_WORDS)
    return None if first is None or second is None or first == second else (first, second)


class _Start(NamedTuple):
    """Where a turn begins."""

    floor: int | None  #: what comes before is not of this turn; None where not even that is known
    first: int | None  #: first character of the assistant; what lies between is not judged. None where it is not known.


def derive_from_prefixes(text: str, roles: Sequence[str], renders: Renders) -> Derivation:
    """Return what the assistant wrote of a rendered conversation."""
    return _Walk(text, roles, renders).derivation()


class _Walk:
    """One walk through the assistant's turns, in order; everything before `_known_to` is decided or given up."""

    def __init__(self, text: str, roles: Sequence[str], renders: Renders) -> None:
        self._text, self._roles, self._renders = text, roles, renders
        self._votes = no_votes(len(text))
        self._known_to: int | None = 0
        self._reasons: dict[str, None] = {}

    def derivation(self) -> Derivation:
        turns: list[Span | None] = []
        for index in (index for index, role in enumerate(self._roles) if role == ASSISTANT):
            turns.append(self._turn(index))
        if self._known_to is not None:
            self._votes[self._known_to :] = NOT_TRAINED
        leave_blanks(self._votes, self._text, turns)
        return Derivation(votes=self._votes, turns=tuple(turns), reasons=tuple(self._reasons))

    def _turn(self, index: int) -> Span | None:
        start = self._start(index)
        if self._known_to is None:
            self._known_to = self._length(index)
        if start.floor is not None and start.floor < (self._known_to or 0):
            self._reasons[UNSTABLE] = None
            start = _Start(None, None)
        if start.floor is not None and self._known_to is not None:
            self._votes[self._known_to : start.floor] = NOT_TRAINED
        self._known_to = None
        if start.first is None:
            self._known_to = self._length(index + 1)
            return None
        stop = self._stop(index, start.first)
        if stop is None:
            self._open_ended(index, start.first)
            return None
        if stop < start.first:
            self._reasons[NOTHING_WRITTEN] = None
            self._known_to = self._length(index + 1)
            return None
        self._votes[start.first : stop] = TRAINED
        self._known_to = stop
        return start.first, stop

    def _start(self, index: int) -> _Start:
        before, prompted = self._renders.before(index), self._renders.prompted(index)
        if prompted is not None and prompted != before and self._text.startswith(prompted):
            if not self._renders.prompt_goes_on:
                return _Start(len(prompted), len(prompted))
            self._reasons[PROMPT_GOES_ON] = None
            return _Start(self._length(index), len(prompted))
        floor = self._length(index)
        opened = self._renders.opened(index)
        if opened is None or not self._text.startswith(opened) or len(opened) < (floor or 0):
            self._reasons[REFUSED if opened is None else UNSTABLE] = None
            return _Start(floor, None)
        if len(opened) != floor:
            self._reasons[NO_PROMPT if prompted in (None, before) else OTHER_PROMPT] = None
        return _Start(floor, len(opened))

    def _length(self, index: int) -> int | None:
        """Return the length of the text of the messages before one, where the whole begins with that text."""
        before = self._renders.before(index)
        return len(before) if before is not None and self._text.startswith(before) else None

    def _stop(self, index: int, first: int) -> int | None:
        """Return where a turn ends: where the conversation up to it does, or what that has lost since does."""
        through = self._renders.before(index + 1)
        if through is None or not through.startswith(self._text[:first]):
            return None
        if self._text.startswith(through):
            return None if self._renders.num_moved(index) else len(through)
        added = through[first:]
        # What is left holds all that follows the words: of "><|return|>", ">" is no turn that lost its beginning.
        for lost in range(1, len(added) - max(self._renders.num_closing(index), 1) + 1):
            if self._text.startswith(added[lost:], first):
                return first + len(added) - lost if added[lost:].strip() else None
        return None

    def _open_ended(self, index: int, first: int) -> None:
        """Judge what can be judged of a turn whose end is not known: its words, and from the next message's on."""
        through = self._renders.before(index + 1)
        num_moved = 0 if through is None else self._renders.num_moved(index)
        self._reasons[REFUSED if through is None else MOVED if num_moved else UNSTABLE] = None
        through = through and through[: len(through) - num_moved]
        if through is not None and through.startswith(self._text[:first]):
            length = len(
                without_open_tag(self._text[first : first + common_prefix(through[first:], self._text[first:])])
            )
            self._votes[first : first + length] = TRAINED
            leave_blanks(self._votes, self._text, [(first, first + length)])
        following = self._renders.opened(index + 1) if index + 1 < len(self._roles) else None
        if following is not None and self._roles[index + 1] != ASSISTANT:
            shared = common_prefix(following, self._text)
            self._known_to = shared if shared == len(following) and shared >= first else None
