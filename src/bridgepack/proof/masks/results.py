"""Where a text has what tools returned inside an assistant's turn: nobody trains that.

Gemma 4's template writes the field `tool_responses` of an answer into its turn, before the answer's words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bridgepack.data.tokenizers.texts import common_prefix
from bridgepack.proof.masks.renders import ASSISTANT, Render, Renders
from bridgepack.proof.masks.votes import NOT_JUDGED, NOT_TRAINED, TRAINED, Derivation, Span

#: Fields of turns with what tools returned, and keys of calls with the same.
_OF_TURNS = (
    *("tool_responses", "tool_response", "tool_results", "tool_result", "tool_outputs", "tool_output"),
    *("function_responses", "function_response", "observations", "observation"),
)
_OF_CALLS = ("result", "results", "response", "output", "observation")
#: Words that replace those of results; they have no character in common.
_OTHER_WORDS = ("Qoneq", "7777")


class Result(NamedTuple):
    """What tools returned in one message, in characters of the conversation's text."""

    words: Span  #: from its first word to its last
    #: with what the template may write around them, which is not judged
    frame: Span


def results_in(
    text: str, messages: Sequence[Mapping[str, Any]], render: Render, renders: Renders, turns: Sequence[Span | None]
) -> list[Result]:
    """Return the results inside the assistant's messages.

    `turns` are the characters of each of the assistant's messages.
    """
    results: list[Result] = []
    answers = [index for index, message in enumerate(messages) if message["role"] == ASSISTANT]
    stops = {index: turn[1] for index, turn in zip(answers, turns, strict=False) if turn is not None}
    for index in answers:
        first, second = (
            render([*messages[:index], _with_results(messages[index], words), *messages[index + 1 :]])
            for words in _OTHER_WORDS
        )
        if first is None or second is None or first == second:
            continue
        start, behind = common_prefix(first, second), common_prefix(first[::-1], second[::-1])
        if not text.startswith(first[:start]) or not text.endswith(first[len(first) - behind :]):
            continue
        stop = len(text) - behind
        without = render([*messages[:index], _with_results(messages[index], None), *messages[index + 1 :]])
        begin = start if without is None else min(common_prefix(text, without), start)
        place = renders.words(index)
        after = place[0] if place is not None and place[0] >= stop else stops.get(index, len(text))
        results.append(Result((start, stop), (begin, max(after, stop))))
    return results


def has_results(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an assistant's message has a field of results, or a call with such a key."""
    return any(message["role"] == ASSISTANT and _with_results(message, None) != message for message in messages)


def leave_results(derivation: Derivation, results: Sequence[Result]) -> Derivation:
    """Return a derivation that trains no words of results, and does not judge what stands around them in an answer."""
    votes = derivation.votes.copy()
    for result in results:
        for span, vote in ((result.frame, NOT_JUDGED), (result.words, NOT_TRAINED)):
            part = votes[slice(*span)]
            part[part == TRAINED] = vote
        words = votes[slice(*result.words)]
        words[words == NOT_JUDGED] = NOT_TRAINED
    return replace(derivation, votes=votes)


def _with_results(message: Mapping[str, Any], words: str | None) -> dict[str, Any]:
    """Return a message whose results say other words; without results if there are none."""
    copy = _with_values(message, _OF_TURNS, words)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        copy["tool_calls"] = [_call_with_results(call, words) for call in calls]
    return copy


def _call_with_results(call: Any, words: str | None) -> Any:
    if not isinstance(call, Mapping):
        return call
    copy, function = _with_values(call, _OF_CALLS, words), call.get("function")
    return {**copy, "function": _with_values(function, _OF_CALLS, words)} if isinstance(function, Mapping) else copy


def _with_values(item: Mapping[str, Any], names: Sequence[str], words: str | None) -> dict[str, Any]:
    values = {name: _with_words(value, words or "") if name in names else value for name, value in item.items()}
    return {name: value for name, value in values.items() if words is not None or name not in names}


def _with_words(value: Any, words: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_words(item, words) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_words(item, words) for item in value]
    return value if value is None or isinstance(value, bool) else words
