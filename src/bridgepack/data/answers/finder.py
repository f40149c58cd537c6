"""Finds the answers of conversations by rendering them once more, with marks around what their turns say."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any

from bridgepack.data.answers.marking import Calls, Marking, Spot, Text, free_letters, texts_within
from bridgepack.data.answers.parts import TurnParts
from bridgepack.data.answers.regions import Region, RegionFinder, UnplaceableError
from bridgepack.data.templates.facts import constants_of
from bridgepack.data.templates.markers import TurnTexts
from bridgepack.data.tokenizers.limits import STOPPED
from bridgepack.data.tokenizers.templates import Messages, Tools
from bridgepack.data.tokenizers.texts import common_prefix, without_open_tag
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT, THOUGHT_MARKERS

_SHOWN = 40
#: Words that no turn has.
_OTHER_WORDS = "Qzeroq"


class AnswerFinder:
    """Finds answers in the renders of one chat template."""

    def __init__(self, tokenizer: ChatTokenizer, around: TurnTexts) -> None:
        self._tokenizer, self._around = tokenizer, around
        texts = (*around.headers, *around.ends, *around.openers)
        self._has_turn_text = _pattern(text.strip() for text in texts).search
        self._thoughts = _pattern(text for opening, closing, _ in THOUGHT_MARKERS for text in (opening, closing))

    def regions(self, messages: Messages, tools: Tools, kwargs: Mapping[str, Any], render: str) -> list[Region]:
        """Return where each of the assistant's messages is in the render of a conversation, ascending.

        Raises:
            UnplaceableError: that is unknown.
            RowError: a render takes too much time or memory.
        """
        texts, spots = self.place(messages, tools, kwargs, render)
        turns = TurnParts.of(messages, texts, spots, self._tokenizer.chat_template or "")
        roles, texts = turns.roles, turns.texts
        render_of_turns = cache(lambda num_turns: self._render_changed(turns.first(num_turns), tools, kwargs))
        end_of_turns = partial(self._end_of_turns, turns, tools, kwargs, render, spots, render_of_turns)
        renders = end_of_turns, render_of_turns
        finder = RegionFinder(render, roles, texts, spots, self._around, *renders)
        last = _last_of_joined(len(roles), finder.joined_messages())
        if last != list(range(len(roles))):
            texts = [text._replace(message=[*last, len(roles)][text.message]) for text in texts]
            roles = [role if last[index] == index else "" for index, role in enumerate(roles)]
            finder = RegionFinder(render, roles, texts, spots, self._around, *renders)
        return [region._replace(message=turns.parts[region.message].message) for region in finder.find()]

    def place(
        self, messages: Messages, tools: Tools, kwargs: Mapping[str, Any], render: str
    ) -> tuple[list[Text], list[Spot]]:
        """Return the texts of a conversation's turns, and where their pieces stand in its render, ascending.

        Raises:
            UnplaceableError: the template writes other text with marks, or a text without marks has a marker of turns.
            RowError: a render takes too much time or memory.
        """
        letters = free_letters([render, *texts_within([*messages, tools, kwargs])])
        if not letters:
            raise UnplaceableError("its texts have all letters that could mark them")
        why = ""
        for marking in self._markings(letters):
            copies = marking.messages(messages)
            # behind all messages: texts that are no turn's, of which only those with markers could do harm
            inputs = marking.context([tools, kwargs], len(messages), self._has_turn_text)
            if any(map(self._has_turn_text, marking.bare)):
                why = why or "a field that is no text of a turn contains a marker of turns"
                continue
            try:
                plain, spots = marking.spots(self._tokenizer.render_text(copies, *inputs)) or ("", [])
            except RowError as error:
                _raise_if_stopped(error)
                why = why or error.detail
                continue
            if plain == render:
                return marking.texts, spots
            why = why or _difference(plain, render)
        raise UnplaceableError(why)

    def _end_of_turns(
        self,
        turns: TurnParts,
        tools: Tools,
        kwargs: Mapping[str, Any],
        render: str,
        spots: Sequence[Spot],
        render_of_turns: Callable[[int], str | None],
        num_turns: int,
    ) -> int:
        first_render = render_of_turns(num_turns)
        if first_render is not None and render.startswith(first_render):
            return len(first_render)
        if not turns.cuts_message(num_turns):
            return -1
        if turns.parts[num_turns].role == ASSISTANT:
            return turns.words_start(num_turns, spots)
        # what the answer says before a result stands in the text without results, too
        without = self._render_changed(turns.without_results(num_turns, _OTHER_WORDS), tools, kwargs)
        return -1 if without is None else len(without_open_tag(render[: common_prefix(render, without)]))

    def _render_changed(self, messages: Messages, tools: Tools, kwargs: Mapping[str, Any]) -> str | None:
        try:
            return self._tokenizer.render_text(messages, tools, kwargs)
        except RowError as error:
            _raise_if_stopped(error)
            return None

    def _markings(self, letters: str) -> Iterator[Marking]:
        """Yield ways of marking: cut at thoughts, at all that the template may look for, and without arguments."""
        yield Marking(cuts=self._thoughts, calls=Calls.DEEP, letters=letters)
        yield Marking(cuts=self._constants, calls=Calls.DEEP, letters=letters)
        yield Marking(cuts=self._constants, calls=Calls.NAMES, letters=letters)

    @cached_property
    def _constants(self) -> re.Pattern[str]:
        thoughts = [text for opening, closing, _ in THOUGHT_MARKERS for text in (opening, closing)]
        return _pattern(sorted({*constants_of(self._tokenizer.template), *thoughts}, key=len, reverse=True))


def _pattern(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, filter(None, texts))) or "(?!)")


def _raise_if_stopped(error: RowError) -> None:
    """Raise the error of a render that took too much time or memory, which is no rejection."""
    if error.reason in STOPPED:
        raise error


def _difference(plain: str, render: str) -> str:
    place = common_prefix(plain, render)
    with_letters, without = plain[place : place + _SHOWN], render[place : place + _SHOWN]
    return f"with letters around its texts the template writes {with_letters!r} for {without!r}"


def _last_of_joined(num_messages: int, joined_messages: Iterable[int]) -> list[int]:
    """Return for each message itself, or the last of those that go on with it: [1], 4 messages -> [0, 2, 2, 3]."""
    last = list(range(num_messages))
    for message in sorted(joined_messages, reverse=True):
        last[message] = last[message + 1]
    return last
