"""Finds texts of BOS, EOS and ends of turns in a row that the template or the recipe writes a second time."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.config.recipe.preprocessing import PromptCompletionPreprocessing
from bridgepack.data.sequences.conversation import Conversation, texts_of
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.marked_text import TOOL
from bridgepack.data.templates.markers import TurnMarkers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import LostKind

_SPACES = " \n\t\r"
#: Maximum white space between two ends of one turn.
_REACH = 16


#: What a template, and some data sets, write around a tool's result.
_RESULT = "<tool_response>"
_DOUBLED_RESULT = re.compile(r"<tool_response>\s*<tool_response>")


class DoubledInChats:
    """Finds turns that begin with BOS or end with an end of turn, which their template writes too."""

    def __init__(self, tokenizer: ChatTokenizer, markers: TurnMarkers | None) -> None:
        self._bos = special_text(tokenizer, "bos")
        ends = {tokenizer.decode(ids).strip() for ids in markers.ends} if markers else set()
        self._ends = tuple(sorted({*ends, special_text(tokenizer, "eos")} - {""}))
        #: Characters that the text of such a turn begins or ends with.
        self._first = frozenset(_SPACES + self._bos[0] if self._bos else "")
        self._last = frozenset(_SPACES + "".join(end[-1] for end in self._ends))

    def find(self, case: ChatCase) -> tuple[Loss, ...]:
        """Return what a conversation and its render have twice; the first turn with it."""
        conversation, text = case.conversation, case.text
        first, last = self._first, self._last
        for message in conversation.messages:  # fast path for most rows
            content = message["content"]
            if type(content) is not str or not content or content[-1] in last or content[0] in first:
                return tuple(self._losses(conversation, text))[:1]
            if message["role"] == TOOL and content.startswith(_RESULT) and _DOUBLED_RESULT.search(text):
                return tuple(self._losses(conversation, text))[:1]
        return ()

    def _losses(self, conversation: Conversation, text: str) -> Iterator[Loss]:
        for index, message in enumerate(conversation.messages, 1):
            begin, end = _edges(message["content"])
            where = f"turn {index} ({message['role']})"
            if message["role"] == TOOL and begin.startswith(_RESULT) and _DOUBLED_RESULT.search(text):
                yield Loss(LostKind.DOUBLED_TOKEN, f"{where} begins with {_RESULT!r}, which the template writes too")
            if self._bos and begin.lstrip().startswith(self._bos) and self._is_written(conversation, text):
                yield Loss(LostKind.DOUBLED_TOKEN, f"{where} begins with {self._bos!r}, which the template writes too")
            if end.rstrip().endswith(self._ends):
                token = next(token for token in self._ends if end.rstrip().endswith(token))
                if _is_repeated(text, token):
                    yield Loss(LostKind.DOUBLED_TOKEN, f"{where} ends with {token!r}, which the template writes again")

    def _is_written(self, conversation: Conversation, text: str) -> bool:
        """Return whether the template writes BOS itself."""
        return text.count(self._bos) > sum(part.count(self._bos) for part in texts_of(conversation))


class DoubledInPairs:
    """Finds prompts and completions with a special token that the recipe adds too, or with one where a text goes on."""

    def __init__(self, tokenizer: ChatTokenizer, settings: PromptCompletionPreprocessing) -> None:
        self._settings = settings
        self._bos, self._eos = special_text(tokenizer, "bos"), special_text(tokenizer, "eos")
        self._sep = special_text(tokenizer, "sep") if settings.add_sep else ""
        self._tokens = sorted({self._bos, self._sep, self._eos} - {""})

    def find(self, prompt: str, completion: str) -> tuple[Loss, ...]:
        """Return what the texts of a row, with template and separator, hold of special tokens; the first of each."""
        for token in self._tokens:
            if token in completion or token in prompt:
                losses: dict[str, Loss] = {}
                for loss in (*self._find_doubled(prompt, completion), *self._within(prompt, completion)):
                    losses.setdefault(loss.kind, loss)
                return tuple(losses.values())
        return ()

    def _find_doubled(self, prompt: str, completion: str) -> Iterator[Loss]:
        settings = self._settings
        begin, first_column = (prompt, "prompt") if prompt or settings.add_sep else (completion, "completion")
        checks = (
            (first_column, "begins", "add_bos", self._bos, leading(begin, self._bos), settings.add_bos),
            ("completion", "ends", "add_eos", self._eos, trailing(completion, self._eos), settings.add_eos),
            ("prompt", "ends", "add_sep", self._sep, trailing(prompt, self._sep), settings.add_sep),
            ("completion", "begins", "add_sep", self._sep, leading(completion, self._sep), settings.add_sep),
        )
        for column, how, field, token, count, is_added in checks:
            if count > 1:
                yield Loss(LostKind.DOUBLED_TOKEN, f"the {column} {how} with {count} times {token!r}")
            elif count and is_added:
                detail = f"the {column} {how} with {token!r}, which preprocessing.{field} adds again"
                yield Loss(LostKind.DOUBLED_TOKEN, detail)

    def _within(self, prompt: str, completion: str) -> Iterator[Loss]:
        """Yield special tokens inside a completion, after which the model would go on, and EOS right before it."""
        inner = without_ends(completion, "" if prompt else self._bos, self._eos)
        token = next((token for token in (self._eos, self._bos) if token and token in inner), None)
        if token is not None:
            yield Loss(LostKind.INJECTED_TURN, f"the completion contains {token!r}, and goes on")
        if self._eos and prompt.endswith(self._eos) and not self._settings.add_sep:
            detail = f"the prompt ends with {self._eos!r}, and the token after it is not trained"
            yield Loss(LostKind.INJECTED_TURN, detail)


def special_text(tokenizer: ChatTokenizer, name: str) -> str:
    """Return the text of `bos`, `eos` or `sep`, without white space around it; empty if there is none."""
    text = tokenizer.special_tokens.get(f"{name}_token")
    return text.strip() if isinstance(text, str) else ""


def _edges(content: Any) -> tuple[str, str]:
    """Return the texts at the beginning and at the end of a turn, of parts too."""
    if isinstance(content, str):
        return content, content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content or ()]
    texts = [part for part in parts if isinstance(part, str)]
    return (texts[0], texts[-1]) if texts else ("", "")


def _is_repeated(text: str, token: str) -> bool:
    """Return whether a text has a token twice, with nothing but white space between."""
    size, place = len(token), text.find(token)
    while place >= 0:
        if text[place + size : place + 2 * size + _REACH].lstrip().startswith(token):
            return True
        place = text.find(token, place + size)
    return False


def leading(text: str, token: str) -> int:
    """Return how often a token begins a text, with nothing but white space between."""
    count, remainder = 0, text.lstrip()
    while token and remainder.startswith(token):
        count, remainder = count + 1, remainder[len(token) :].lstrip()
    return count


def trailing(text: str, token: str) -> int:
    """Return how often a token ends a text, with nothing but white space between."""
    count, remainder = 0, text.rstrip()
    while token and remainder.endswith(token):
        count, remainder = count + 1, remainder[: -len(token)].rstrip()
    return count


def without_ends(text: str, bos: str, eos: str) -> str:
    """Return a text without BOS at its beginning and EOS at its end."""
    text = text.strip()
    while bos and text.startswith(bos):
        text = text[len(bos) :].lstrip()
    while eos and text.endswith(eos):
        text = text[: -len(eos)].rstrip()
    return text
