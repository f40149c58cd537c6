"""The tokens of turn markers as rendered texts have them, and what to say of markers that no text has.

A text has the tokens of a marker alone, or other ones: a SentencePiece tokenizer puts a blank before every text. The
tokens in renders of short conversations are then taken, if they are always the same.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from bridgepack.data.templates.probe import render_chat
from bridgepack.data.templates.written import around_answer
from bridgepack.data.tokenizers.places import TokenPlaces
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError

_QUESTION, _ANSWER, _NEXT, _LAST = "Qoneq", "Qtwoq", "Qthreeq", "Qfourq"
_SHOWN = 40
Ids = tuple[int, ...]


class MarkerTokens:
    """Finds the tokens of markers of one tokenizer and its chat template."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        #: Tokens of markers alone, where rendered texts have others: a turn's own text may have these.
        self.alone: list[Ids] = []

    def of(self, text: str) -> Ids:
        """Return the tokens of a marker: those of the text alone, unless a render has only others, always the same."""
        alone = tuple(self._tokenizer.encode(text))
        if not alone or alone[0] in self._tokenizer.isolated_token_ids or not self._probes:
            return alone
        probe = self._probes[0]
        variants = set() if _contains(probe.ids, alone) else set(tokens_in(probe.places, probe.ids, text))
        if len(variants) != 1 or None in variants:
            return alone
        (ids,) = variants
        assert ids is not None
        self.alone.append(alone)
        return ids

    def are_rendered(self, marker: Sequence[int]) -> bool:
        """Return whether a render of a short conversation has these tokens."""
        return any(_contains(probe.ids, marker) for probe in self._probes)

    @cached_property
    def _probes(self) -> list["_Probe"]:
        if self._tokenizer.backend is None:
            return []
        texts = dict.fromkeys(text for text in map(self._render, _conversations()) if text is not None)
        encode, places = self._tokenizer.encode, TokenPlaces.of
        return [_Probe(encode(text), places(self._tokenizer, text)) for text in texts]

    def _render(self, turns: list[dict[str, Any]]) -> str | None:
        return render_chat(self._tokenizer, turns)

    @property
    def has_probes(self) -> bool:
        """Whether the template renders any of the short conversations."""
        return bool(self._probes)


class _Probe(NamedTuple):
    ids: list[int]
    places: TokenPlaces


def tokens_in(places: TokenPlaces, ids: Sequence[int], text: str) -> Iterator[Ids | None]:
    """Yield the tokens of each occurrence of a text; None where a token holds an end of it and what is beside it."""
    place = places.text.find(text)
    while place >= 0:
        try:
            first, stop = places.token_from(place), places.token_from(place + len(text))
            yield tuple(ids[first:stop]) or None
        except RowError:
            yield None
        place = places.text.find(text, place + 1)


def why_missing(tokenizer: ChatTokenizer, texts: Sequence[str], starts: Sequence[Ids], row: str) -> str:
    """Return why a row's text has none of the assistant's starts, given as texts and as tokens, and what to do."""
    start_texts = " or ".join(map(repr, texts))
    token_texts = [tokenizer.decode([token]) for token in starts[0]]
    start_text = next((text for text in texts if text in row), None)
    subject = f"assistant_start, {start_texts}, occurs in the row's text"
    if start_text is None:
        return (
            f"{subject} nowhere; set preprocessing.assistant_markers.assistant_start to the text that the chat "
            "template writes right before an answer"
        )
    cure = (
        "Set preprocessing.assistant_markers.assistant_start to a text right before the answer that begins and ends "
        "where tokens do, without white space at its ends, or use a tokenizer that has the marker as a token"
    )
    if tokenizer.backend is None:
        return f"{subject}, but not as these tokens, {token_texts}. {cure}"
    row_ids = next(tokens_in(TokenPlaces.of(tokenizer, row), tokenizer.encode(row), start_text), None)
    if row_ids is None:
        return f"{subject}, but one token spans its edge and the text beside it. {cure}"
    row_texts = [tokenizer.decode([token]) for token in row_ids]
    return f"{subject}, but not as these tokens, {token_texts}; there it is {row_texts}. {cure}"


def check_appended_turn(tokenizer: ChatTokenizer, start_texts: Sequence[str]) -> None:
    """Check that the template writes no turn of the assistant behind the last one.

    Raises:
        TokenizerError: it does, without being asked for a generation prompt, so that the last answer cannot be told.
    """
    turns = [_turn("user", _QUESTION), _turn("assistant", _ANSWER)]
    text, longer = render_chat(tokenizer, turns), render_chat(tokenizer, [*turns, _turn("user", _NEXT)])
    behind = "" if text is None else text.rpartition(_ANSWER)[2]
    start = next((start for start in start_texts if start in behind), None)
    next_turn = "" if start is None else behind[behind.index(start) :]
    if start is None and not (longer or "").partition(_ANSWER)[2].startswith(behind.rstrip()):
        next_turn = around_answer(tokenizer).next_turn
    if next_turn:
        raise TokenizerError(
            f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}; its chat template writes "
            f"{next_turn!r} after the last answer of every conversation, as if another followed. "
            "Set tokenizer.chat_template to a template that writes it only if add_generation_prompt is true.",
            field="tokenizer.name_or_path",
        )


def check_family(
    tokenizer: ChatTokenizer, tokens: MarkerTokens, starts: Sequence[Ids], start_texts: Sequence[str]
) -> None:
    """Check that renders of short conversations have the start of the family that the template seems to be of.

    Raises:
        TokenizerError: none has, so that no row would; the message has the markers that the template writes.
    """
    if not tokens.has_probes or any(map(tokens.are_rendered, starts)):
        return
    gap, end, _ = around_answer(tokenizer)
    raise TokenizerError(
        f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}; its chat template has the markers of a family "
        f"whose answers begin with {' or '.join(map(repr, start_texts))}, but it writes {gap[-_SHOWN:]!r} before an "
        f"answer and {end[:_SHOWN]!r} after it. Set preprocessing.assistant_markers, with assistant_start and "
        "assistant_end as the template writes them.",
        field="tokenizer.name_or_path",
    )


def _conversations() -> Iterator[list[dict[str, Any]]]:
    question, answer = _turn("user", _QUESTION), _turn("assistant", _ANSWER)
    yield [question, answer, _turn("user", _NEXT), _turn("assistant", _LAST)]
    yield [_turn("system", _NEXT), question, answer]
    for content, arguments in product(("", None), ({"key": _NEXT}, f'{{"key": "{_NEXT}"}}')):
        call = {"id": "call00001", "type": "function", "function": {"name": "qcallq", "arguments": arguments}}
        result = {"role": "tool", "name": "qcallq", "tool_call_id": "call00001", "content": _LAST}
        yield [question, {"role": "assistant", "content": content, "tool_calls": [call]}, result, answer]


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _contains(ids: Sequence[int], marker: Sequence[int]) -> bool:
    marker_ids, size = list(marker), len(marker)
    return any(list(ids[at : at + size]) == marker_ids for at, token in enumerate(ids) if token == marker_ids[0])
