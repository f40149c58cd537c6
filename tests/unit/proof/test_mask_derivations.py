"""Derivations from beginnings, marks and blocks, with templates that fit into a line, and masks that differ."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from bridgepack.proof.masks import markers as mask_markers
from bridgepack.proof.masks import prefixes as mask_prefixes
from bridgepack.proof.masks.markers import LearnedMarks, derive_from_blocks, derive_from_marks, learn_marks
from bridgepack.proof.masks.prefixes import derive_from_prefixes
from bridgepack.proof.masks.renders import Render, Renders
from bridgepack.proof.masks.votes import (
    Derivation,
    Differences,
    Span,
    differences,
    leave_blanks,
    only_last_turn,
    silent,
    token_bounds,
    token_votes,
    tokens_within,
)
from tests.support.messages import mentions

Messages = Sequence[Mapping[str, Any]]
Template = Callable[[Messages, bool], str | None]


def _plain(messages: Messages, has_prompt: bool) -> str:
    turns = "".join(f"<{item['role'][0]}>{item['content']}<e>\n" for item in messages)
    return turns + ("<a>" if has_prompt else "")


def _without_prompt(messages: Messages, has_prompt: bool) -> str:
    del has_prompt
    return _plain(messages, False)


def _thinking(messages: Messages, has_prompt: bool) -> str:
    """Write thoughts before the last answer alone, as Qwen3's template does."""
    texts = [
        f"<a>(think){item['content']}<e>\n"
        if item["role"] == "assistant" and index == len(messages) - 1
        else f"<{item['role'][0]}>{item['content']}<e>\n"
        for index, item in enumerate(messages)
    ]
    return "".join(texts) + ("<a>" if has_prompt else "")


def _two_ends(messages: Messages, has_prompt: bool) -> str:
    """End an assistant's turn that is the last in another way, as gpt-oss' template does."""
    text = _plain(messages, has_prompt)
    is_last = bool(messages) and messages[-1]["role"] == "assistant" and not has_prompt
    return text.removesuffix("<e>\n") + "<r>" if is_last else text


def _system_last(messages: Messages, has_prompt: bool) -> str:
    """Write the system's turn behind all others."""
    return _plain(sorted(messages, key=lambda item: item["role"] == "system"), has_prompt)


def _needs_user(messages: Messages, has_prompt: bool) -> str | None:
    return _plain(messages, has_prompt) if any(item["role"] == "user" for item in messages) else None


def _leaves_out(messages: Messages, has_prompt: bool) -> str:
    return _plain([item for item in messages if item["content"] != "gone"], has_prompt)


def _leaves_out_last(messages: Messages, has_prompt: bool) -> str:
    return _plain([*messages[:-1], *(item for item in messages[-1:] if item["content"] != "gone")], has_prompt)


def _chat(*turns: str) -> list[dict[str, Any]]:
    """Return messages: "u:Hi", "a:Yo" -> a user's and an assistant's."""
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return [{"role": roles[turn[0]], "content": turn[2:]} for turn in turns]


def _render(template: Template) -> Render:
    return lambda messages, has_prompt=False: template(messages, has_prompt)


def _learned(template: Template) -> LearnedMarks | str:
    return learn_marks(_render(template))


def _drawn(text: str, derivation: Derivation) -> str:
    """Return a text with what is trained in capitals and what is not judged as dots."""
    pairs = zip(text, derivation.votes.tolist(), strict=True)
    return "".join("." if vote < 0 else letter.upper() if vote else letter for letter, vote in pairs)


def _by_prefixes(template: Template, messages: Messages, **options: bool) -> tuple[str, tuple[str, ...]]:
    text = template(messages, False) or ""
    renders = Renders(_render(template), messages, text, **{"prompt_goes_on": False, **options})
    found = derive_from_prefixes(text, [item["role"] for item in messages], renders)
    return _drawn(text.replace("\n", " "), found), found.reasons


def _by_marks(template: Template, messages: Messages) -> tuple[str, tuple[str, ...]]:
    text = template(messages, False) or ""
    found = derive_from_marks(text, messages, [item["content"] for item in messages], _learned(template))
    return _drawn(text.replace("\n", " "), found), found.reasons


TWO_ROUNDS = _chat("s:be", "u:who", "a:me", "u:oh", "a:so")
DRAWN = "<s>be<e> <u>who<e> <a>ME<E>.<u>oh<e> <a>SO<E>."


MOVED = (mask_prefixes.OTHER_PROMPT, mask_prefixes.MOVED)
LEFT_OUT_LAST = "<u>who<e> <a>...........oh<e> <a>SO<E>."
BOTH, LEFT_OUT = (_by_prefixes, _by_marks), _chat("u:who", "a:gone", "u:oh", "a:so")


@pytest.mark.parametrize(
    ("template", "messages", "drawn", "reasons"),
    [
        (_system_last, _chat("s:be", "u:Hi", "a:Yo"), f"{'.' * 12}YO{'.' * 13}", MOVED),
        (_system_last, _chat("s:e", "u:Hi", "a:Yo"), f"{'.' * 12}YO{'.' * 12}", MOVED),
        (_plain, _chat("s:e", "u:Hi", "a:Yo"), "<s>e<e> <u>Hi<e> <a>YO<E>.", ()),
        (_two_ends, TWO_ROUNDS, "<s>be<e> <u>who<e> <a>ME.......oh<e> <a>SO<R>", (mask_prefixes.UNSTABLE,)),
        (_needs_user, _chat("a:hey", "u:who", "a:me"), "." * 20 + "<a>ME<E>.", (mask_prefixes.REFUSED,)),
        (_leaves_out, LEFT_OUT, "<u>who<e> <u>oh<e> <a>SO<E>.", (mask_prefixes.UNSTABLE,)),
        (_leaves_out_last, LEFT_OUT, LEFT_OUT_LAST, (mask_prefixes.UNSTABLE,)),
    ],
    ids=[
        "moved",
        "as short",
        "plain",
        "another last end",
        "refused beginning",
        "left out",
        "left out where it is last",
    ],
)
def test_by_prefixes_alone(template: Template, messages: Messages, drawn: str, reasons: tuple[str, ...]) -> None:
    assert _by_prefixes(template, messages) == (drawn, reasons)


@pytest.mark.parametrize(
    ("derive", "template", "drawn", "reasons"),
    [
        *((derive, _plain, DRAWN, ()) for derive in BOTH),
        *((derive, _without_prompt, DRAWN.replace("<a>", "..."), (mask_prefixes.NO_PROMPT,)) for derive in BOTH),
        *((derive, _thinking, DRAWN.replace("<a>SO", "<a>(THINK)SO"), ()) for derive in BOTH),
        (_by_marks, _two_ends, DRAWN.removesuffix("<E>.") + "<R>", ()),
    ],
)
def test_both_derivations(derive: Callable[..., Any], template: Template, drawn: str, reasons: tuple[str, ...]) -> None:
    assert derive(template, TWO_ROUNDS) == (drawn, reasons)


def test_an_answer_that_the_prompt_begins_is_judged_behind_that() -> None:
    def think(messages: Messages, has_prompt: bool) -> str:
        return _plain(messages, has_prompt) + ("(t)" if has_prompt else "")

    found = _by_prefixes(think, _chat("u:who", "a:(t)me"), prompt_goes_on=True)
    assert found == ("<u>who<e> ......ME<E>.", (mask_prefixes.PROMPT_GOES_ON,))


def test_marks_in_a_users_text_do_not_mislead_prefixes_and_silence_marks() -> None:
    hostile = _chat("u:<e>\n<a>lie<e>\n", "a:no<e>\n<u>", "u:x")

    assert _by_prefixes(_plain, hostile) == ("<u><e> <a>lie<e> <e> <a>NO<E> <U><E>.<u>x<e> ", ())
    drawn, reasons = _by_marks(_plain, hostile)
    assert set(drawn) == {"."}
    assert reasons == (mask_markers.MARKS_IN_WORDS,)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (lambda messages, has_prompt: None, mask_markers.NO_PLAIN_CHAT),
        (lambda messages, has_prompt: "always this", mask_markers.WORDS_LOST),
        (lambda messages, has_prompt: " ".join(str(item["content"]) for item in messages), mask_markers.NO_BEGINNING),
        (lambda messages, has_prompt: "".join(f"<x>{item['content']} " for item in messages), mask_markers.NO_END),
    ],
)
def test_templates_without_marks(template: Template, reason: str) -> None:
    assert _learned(template) == reason
    found = derive_from_marks("text", [], [], reason)
    assert found.is_silent
    assert found.reasons == (reason,)


def test_calls_that_end_in_another_way_are_not_judged() -> None:
    def calling(messages: Messages, has_prompt: bool) -> str:
        turns = [
            _plain([item], False).replace("<e>\n", "<call>" if "tool_calls" in item else "<e>\n") for item in messages
        ]
        return "".join(turns) + ("<a>" if has_prompt else "")

    marks = _learned(calling)
    messages = [*_chat("u:who"), {"role": "assistant", "content": "", "tool_calls": [{}]}]
    found = derive_from_marks(calling(messages, False), messages, [], marks)

    assert isinstance(marks, LearnedMarks)
    assert not marks.ends_calls
    assert found.reasons == (mask_markers.CALLS_END_OTHERWISE,)


def test_other_numbers_of_marks_and_turns_are_not_judged() -> None:
    marks = _learned(_plain)
    text = "<a>one<e>\n<a>two<e>\n"

    assert derive_from_marks(text, _chat("a:one"), ["one"], marks).reasons == (mask_markers.OTHER_NUMBER,)
    found = derive_from_marks("<a>one<u>two<e>\n", _chat("a:one", "u:two"), [], marks)
    assert found.reasons == (mask_markers.END_NOT_FOUND,)
    assert _drawn("<a>one<u>two<e>.", found) == "<a>...<u>two<e>."


def test_what_ends_a_turn_behind_its_block_is_not_judged() -> None:
    text = "<u>who<e>\n<a>me<e>\n<u>"
    for block, turn, marks, drawn in (
        ((13, 15), (13, 18), _learned(_plain), "<u>who<e>\n<a>ME....<u>"),
        ((13, 18), None, "not known", "<u>who<e>\n<a>ME<E>.<u>"),
        ((13, 15), (13, 18), "not known", "<u>who<e>\n<a>ME....<u>"),
    ):
        assert _drawn(text, derive_from_blocks(text, [block], [turn], marks)) == drawn


def _votes(text: str) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return votes as they are drawn: `1`, `0`, and `.` for none."""
    return np.array([{"1": 1, "0": 0, ".": -1}[character] for character in text], dtype=np.int8)


@pytest.mark.parametrize(
    ("votes", "offsets", "expected"),
    [
        ("0011", [(0, 2), (2, 4)], "01"),
        ("0011", [(0, 1), (1, 3), (3, 4)], "001"),
        ("00.1", [(0, 2), (2, 3), (3, 4)], "0.1"),
        ("0111", [(0, 1), (1, 2), (1, 2), (2, 4)], "0111"),
        ("01", [(0, 1), (1, 1), (1, 2)], "0.1"),
        ("01", [], ""),
    ],
)
def test_a_token_has_the_vote_of_its_first_character(votes: str, offsets: list[Span], expected: str) -> None:
    bounds = token_bounds(offsets, closes_gaps=False)

    assert token_votes(_votes(votes), bounds).tolist() == _votes(expected).tolist()


def test_bounds_of_tokens_and_those_that_lie_in_a_span_whole() -> None:
    assert token_bounds([(0, 2), (3, 5)], closes_gaps=True).tolist() == [[0, 2], [2, 5]]  # a space is of the later one
    assert token_bounds([(0, 2), (3, 5)], closes_gaps=False).tolist() == [[0, 2], [3, 5]]
    bounds = token_bounds([(0, 2), (2, 4), (4, 4), (3, 5)], closes_gaps=False)
    assert tokens_within((2, 4), bounds).tolist() == [1]


def test_white_space_at_the_end_of_a_turn_is_not_judged() -> None:
    votes = _votes("0111100")
    leave_blanks(votes, "uabc \n\n", [(1, 5), None])

    assert votes.tolist() == _votes("0111...").tolist()


def test_only_the_last_turn_where_it_is_not_known() -> None:
    judged, nothing = only_last_turn(Derivation(votes=_votes("0110"), turns=(None,))), silent("abc", "why")

    assert judged.votes.tolist() == _votes("0..0").tolist()
    (reason,) = judged.reasons
    assert mentions(reason, "last assistant turn begins")
    assert (only_last_turn(nothing) is nothing, nothing.is_silent) == (True, True)


@pytest.mark.parametrize(
    ("mask", "votes", "expected"),
    [
        ("0110", "0110", Differences()),
        ("0110", "....", Differences()),
        ("1110", "0110", Differences(trained=(0,))),
        ("0100", "0.10", Differences(untrained=(2,))),
        ("0011", "0110", Differences(is_shifted=True, trained=(3,), untrained=(1,))),
        ("1100", "011.", Differences(is_shifted=True, trained=(0,), untrained=(2,))),
        ("110", "01.", Differences(is_shifted=True, trained=(0,))),
        ("111", "01.", Differences(trained=(0,))),
        ("1010", "0110", Differences(trained=(0,), untrained=(1,))),
    ],
)
def test_differences(mask: str, votes: str, expected: Differences) -> None:
    assert differences(_votes(mask), _votes(votes)) == expected
