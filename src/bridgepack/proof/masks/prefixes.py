"""Derives what the assistant wrote from renders of a conversation's prefixes: the text that each turn adds.

The generation prompt is not the assistant's text; what its turn adds after it is. Templates can be unstable: Qwen3's
writes the thoughts of only the last answer, so that a conversation does not start with the render of its prefix. If
the difference is understood (a turn lost its beginning), it is taken into account; otherwise the turn is not judged.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bridgepack.data.tokenizers.texts import common_prefix, without_open_tag
from bridgepack.proof.masks.renders import ASSISTANT, Renders
from bridgepack.proof.masks.votes import (
    NOT_JUDGED,
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    leave_blanks,
    no_votes,
)

REFUSED = "the template refuses a part of the conversation"
UNSTABLE = "the template renders a turn differently once the conversation continues"
NO_PROMPT = "the template has no generation prompt before a turn, so the turn's header is not judged"
OTHER_PROMPT = "the template's generation prompt is not how it begins a turn, so the turn's header is not judged"
PROMPT_GOES_ON = "the template's generation prompt begins the answer, too, so the turn's header is not judged"
MOVED = "the template writes another message after the turn, so the turn's end is not judged"
INNER_END = "the template ends a turn only once the conversation goes on, so the turn's end is not judged"
NOTHING_WRITTEN = "the template writes nothing of an assistant turn"


class _Start(NamedTuple):
    floor: int | None  #: text before it is not part of this turn; None if unknown
    first: int | None  #: first character of the assistant; the text between is not judged. None if unknown.


def derive_from_prefixes(text: str, roles: Sequence[str], renders: Renders, inner_end: str = "") -> Derivation:
    """Return the derivation of a rendered conversation by prefixes.

    `inner_end` ends turns that the conversation goes on behind, and not the last, of templates that do so.
    """
    return _Walk(text, roles, renders, inner_end.rstrip()).derivation()


class _Walk:
    """One walk through the assistant's turns, in order; text before `_known_to` is decided or not judged."""

    def __init__(self, text: str, roles: Sequence[str], renders: Renders, inner_end: str) -> None:
        self._text, self._roles, self._renders = text, roles, renders
        self._inner_end = inner_end
        self._votes = no_votes(len(text))
        self._known_to: int | None = 0
        self._reasons: dict[str, None] = {}

    def derivation(self) -> Derivation:
        turns: list[Span | None] = []
        answers = [index for index, role in enumerate(self._roles) if role == ASSISTANT]
        for index in answers:
            turns.append(self._turn(index))
        if self._known_to is not None:
            self._votes[self._known_to :] = NOT_TRAINED
        turns = [
            None if self._has_words_elsewhere(index, turn) else turn for index, turn in zip(answers, turns, strict=True)
        ]
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
            self._known_to = self._length_through(index)
            return None
        stop = self._stop(index, start.first)
        if stop is None:
            self._open_ended(index, start.first)
            return None
        if stop < start.first:
            self._reasons[NOTHING_WRITTEN] = None
            self._known_to = self._length_through(index)
            return None
        self._votes[start.first : stop] = TRAINED
        if num_end := self._num_inner_end(stop):
            self._reasons[INNER_END] = None
            stop += num_end
        self._known_to = stop
        return start.first, stop

    def _has_words_elsewhere(self, index: int, turn: Span | None) -> bool:
        """Return whether a turn's words stand behind a later message's, and judge them there.

        So do Gemma 4's beside a call, behind its result. What follows them may end the turn, and is not judged.
        """
        through = self._renders.before(index + 1)
        is_stable = turn is not None and through is not None and self._text.startswith(through)
        if is_stable and turn is not None and self._renders.content(index) in self._text[slice(*turn)]:
            return False
        place = self._renders.words(index)
        if place is None or (turn is not None and turn[0] <= place[0] and place[1] <= turn[1]):
            return False
        starts = [self._renders.words_start(message) for message in range(len(self._roles))]
        begin = max((start for start in starts[:index] if start is not None), default=-1)
        later = [start for start in starts[index + 1 :] if start is not None]
        if not any(begin < start < place[0] for start in later):
            return False
        limit = min((start for start in later if start >= place[1]), default=len(self._text))
        behind = self._votes[place[1] : limit]
        behind[behind == NOT_TRAINED] = NOT_JUDGED
        self._votes[slice(*place)] = TRAINED
        return True

    def _start(self, index: int) -> _Start:
        before, with_prompt = self._renders.before(index), self._renders.with_prompt(index)
        is_shown = with_prompt is not None and with_prompt != before and self._text.startswith(with_prompt)
        if with_prompt is not None and is_shown and self._has_usual_prompt(index):
            if not self._renders.prompt_goes_on:
                return _Start(len(with_prompt), len(with_prompt))
            self._reasons[PROMPT_GOES_ON] = None
            return _Start(self._length(index), len(with_prompt))
        floor = self._length(index)
        opening = self._renders.up_to_words(index)
        if opening is None or not self._text.startswith(opening) or len(opening) < (floor or 0):
            self._reasons[REFUSED if opening is None else UNSTABLE] = None
            return _Start(floor, None)
        if len(opening) != floor:
            self._reasons[NO_PROMPT if with_prompt in (None, before) else OTHER_PROMPT] = None
        return _Start(floor, len(opening))

    def _has_usual_prompt(self, index: int) -> bool:
        """Return whether a turn has the generation prompt of the first; some templates write none behind an answer."""
        is_again = index > 0 and self._roles[index - 1] == ASSISTANT
        return not is_again or self._renders.prompt(index) == self._renders.prompt(self._roles.index(ASSISTANT))

    def _length(self, index: int) -> int | None:
        """Return the length of the text of the messages before one, or None if the whole does not begin with it.

        With the end of an answer that only the next message writes.
        """
        before = self._renders.before(index)
        if before is None or not self._text.startswith(before):
            return None
        is_answer = index > 0 and self._roles[index - 1] == ASSISTANT
        return len(before) + (self._num_inner_end(len(before)) if is_answer else 0)

    def _length_through(self, index: int) -> int | None:
        """Return the length of the text through a turn; None if unknown, or if it is left out only while it is last.

        So does Nemotron's template with an empty answer.
        """
        is_left_out = self._renders.before(index + 1) == self._renders.before(index)
        return None if is_left_out and self._renders.without(index) != self._text else self._length(index + 1)

    def _num_inner_end(self, place: int) -> int:
        """Return how many characters of an end stand at a place that only inner answers have."""
        return len(self._inner_end) if self._text.startswith(self._inner_end, place) else 0

    def _stop(self, index: int, first: int) -> int | None:
        """Return a turn's end: that of the conversation up to it, allowing for a beginning that it lost since."""
        through = self._renders.before(index + 1)
        if through is None or not through.startswith(self._text[:first]):
            return None
        if self._text.startswith(through):
            return None if self._renders.num_moved(index) else len(through)
        turn_text = through[first:]
        # The rest must contain all that follows the words: of "><|return|>", ">" is not a turn without its beginning.
        for num_lost in range(1, len(turn_text) - max(self._renders.num_closing(index), 1) + 1):
            if self._text.startswith(turn_text[num_lost:], first):
                return first + len(turn_text) - num_lost if turn_text[num_lost:].strip() else None
        return None

    def _open_ended(self, index: int, first: int) -> None:
        """Judge parts of a turn whose end is unknown: its own words, and the text from the next message's words."""
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
        following = self._renders.up_to_words(index + 1) if index + 1 < len(self._roles) else None
        if following is not None and self._roles[index + 1] != ASSISTANT:
            num_shared = common_prefix(following, self._text)
            self._known_to = num_shared if num_shared == len(following) and num_shared >= first else None
