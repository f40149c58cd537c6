"""Moves the beginning of each turn to where the server stops writing: `mask_generation_prompt`.

Where the conversation begins with the text that a server sends before a turn, the turn begins there, whatever marks
begin it. Elsewhere its beginning is not judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bridgepack.data.tokenizers.texts import common_prefix
from bridgepack.geometry import IntArray
from bridgepack.proof.masks.renders import Renders
from bridgepack.proof.masks.votes import (
    NOT_JUDGED,
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    VoteArray,
)
from bridgepack.records import MaskArray

NOT_AS_SERVED = "the text before a turn is not what a server sends, so the turn's beginning is not judged"


def as_served(derivation: Derivation, text: str, answers: Sequence[int], renders: Renders) -> Derivation:
    """Return a derivation whose turns begin where what is served before them ends.

    `answers` are the positions of the assistant's messages. Of blocks that leave out a part of a turn, the turn counts.
    """
    votes, reasons, turns = derivation.votes.copy(), dict.fromkeys(derivation.reasons), list[Span | None]()
    for index, turn in zip(answers, derivation.turns, strict=False):
        served_text = renders.with_prompt(index)
        turns.append(turn)
        if turn is None:
            continue
        first, stop = turn
        turn_votes = votes[first : first + len(text[first:stop].rstrip())]
        prompt = renders.prompt(index)
        if served_text is not None and text.startswith(served_text) and len(served_text) <= stop:
            turns[-1] = len(served_text), stop
            turn_votes[turn_votes == NOT_TRAINED] = TRAINED
            votes[min(first, len(served_text) - len(prompt)) : len(served_text)] = NOT_TRAINED
            votes[len(served_text) : first] = TRAINED
        else:
            votes[slice(*_shared_characters(text, first, prompt))] = NOT_JUDGED
            turn_votes[turn_votes == NOT_TRAINED] = NOT_JUDGED
            reasons[NOT_AS_SERVED] = None
    return replace(derivation, votes=votes, turns=tuple(turns), reasons=tuple(reasons))


def trained_prompt(
    text: str,
    answers: Mapping[int, Sequence[Span | None]],
    renders: Renders,
    bounds: IntArray,
    mask: MaskArray,
    starts: Sequence[str],
    blocks: VoteArray | None,
) -> IntArray:
    """Return the trained tokens that begin in what a server writes before a turn, its generation prompt; ascending.

    `answers` are the positions of trained messages with their characters as each derivation has them, `bounds` each
    token's characters, and `mask` is token-aligned. Only tokens right before what the model writes count, and if there
    are `starts`, only those right behind one of them: a mask that begins within the marker of a turn is wrong, unless
    the template's own `blocks` hold that, whose votes have shape [num_tokens].
    """
    tokens: list[int] = []
    usual = next((prompt for prompt in map(partial(_prompt, renders), answers) if prompt), "")
    for index, turns in answers.items():
        first, stop = _prompt_before(text, index, turns, renders, usual)
        is_within = (bounds[:, 0] >= first) & (bounds[:, 0] < stop)
        within = np.flatnonzero(is_within & (bounds[:, 0] < bounds[:, 1]))
        untrained_tokens = np.flatnonzero(mask[within] == 0)
        trained_tokens = within[int(untrained_tokens[-1]) + 1 if len(untrained_tokens) else 0 :].tolist()
        is_own = blocks is not None and bool((blocks[trained_tokens] == TRAINED).all())
        if not starts or is_own or (trained_tokens and _follows(text[: bounds[trained_tokens[0], 0]], starts)):
            tokens += trained_tokens
    return np.array(sorted(set(tokens)), dtype=np.int64)


def _prompt(renders: Renders, index: int) -> str:
    """Return what a server's text before a message has behind the turns before it; empty if that is unknown."""
    before, served_text = renders.before(index), renders.with_prompt(index)
    return served_text[len(before) :] if before and served_text and served_text.startswith(before) else ""


def _prompt_before(text: str, index: int, turns: Sequence[Span | None], renders: Renders, usual: str) -> Span:
    """Return the characters of the generation prompt before a message; none if the text has another or none.

    Where earlier turns look otherwise in what a server sends, the prompt is looked for right before the turn; it is the
    `usual` one where it also ends the turn before, as gpt-oss's of two answers in a row.
    """
    served_text = renders.with_prompt(index)
    prompt = _prompt(renders, index) or (usual if (served_text or "").endswith(usual) else "")
    if not prompt or served_text is None:
        return 0, 0
    if text.startswith(served_text):
        return len(served_text) - len(prompt), len(served_text)
    stops = (turn[0] for turn in turns if turn is not None)
    stop = next((place for place in stops if text.endswith(prompt, 0, place)), None)
    return (0, 0) if stop is None else (stop - len(prompt), stop)


def _follows(text: str, starts: Sequence[str]) -> bool:
    """Return whether a text ends with one of the starts, and white space at most behind it."""
    blanks = text[len(text.rstrip()) :]
    return any(text[: len(text) - size].endswith(start) for start in starts for size in range(len(blanks) + 1))


def leave_ends(derivation: Derivation, text: str, ends: Sequence[str]) -> Derivation:
    """Return a derivation that does not judge an end right behind a turn, for templates that write none in the turn.

    What the next turn begins with may be what the recipe trains the model to stop with.
    """
    votes = derivation.votes.copy()
    for _, stop in (turn for turn in derivation.turns if turn is not None):
        votes[stop : stop + max((len(end) for end in ends if text.startswith(end, stop)), default=0)] = NOT_JUDGED
    return replace(derivation, votes=votes)


def _shared_characters(text: str, first: int, prompt: str) -> Span:
    """Return the characters around a turn's beginning that are those of the generation prompt."""
    num_before = next((size for size in range(len(prompt), 0, -1) if text.endswith(prompt[:size], 0, first)), 0)
    remainder = prompt[num_before:]
    return first - num_before, first + common_prefix(remainder, text[first : first + len(remainder)])
