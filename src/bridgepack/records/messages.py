"""Texts that know which of their parts are settings, so that a reader sees the names that the user's file has."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from string import Formatter
from typing import Any

from bridgepack.errors import BridgepackError

#: Between several settings of one reference in a template.
_AND = " & "
_REFERENCE = re.compile(r"\{(\w+(?:\.\w+)+(?: & \w+(?:\.\w+)+)*)\}")


@dataclass(frozen=True, slots=True)
class SettingNames:
    """Settings that a text names together, by their dotted paths in Megatron-Bridge's ConfigContainer."""

    paths: tuple[str, ...]

    def text(self, user_path: Callable[[str], str]) -> str:
        """Return their names, each once: settings of the host may be one field of a recipe."""
        *names, last = dict.fromkeys(map(user_path, self.paths))
        return f"{', '.join(names)} and {last}" if names else last


class Message(str):
    """A text of literal parts and of settings; as a `str` it has the host's paths.

    Whatever else turns it into another text, e.g. an f-string, gives a literal text with the host's paths.
    """

    parts: tuple[str | SettingNames, ...]

    def __new__(cls, *parts: str | SettingNames) -> "Message":
        """Return the message of some parts; the parts of a message among them are its own."""
        flat = tuple(
            piece for part in parts for piece in (part.parts if isinstance(part, Message) else (part,)) if piece
        )
        message = super().__new__(cls, _text(flat, str))
        message.parts = flat
        return message

    def __reduce__(self) -> tuple[type["Message"], tuple[str | SettingNames, ...]]:
        """Pickle and copy a message by its parts."""
        return Message, self.parts

    @property
    def paths(self) -> tuple[str, ...]:
        """The host's paths of the settings that it names."""
        return tuple(path for part in self.parts if isinstance(part, SettingNames) for path in part.paths)


def _text(parts: Iterable[str | SettingNames], user_path: Callable[[str], str]) -> str:
    return "".join(part if isinstance(part, str) else part.text(user_path) for part in parts)


def with_user_paths(text: str, user_path: Callable[[str], str]) -> str:
    """Return a text with the user's name of each setting that it names; a text that is no message stays as it is."""
    return _text(text.parts, user_path) if isinstance(text, Message) else text


@contextmanager
def user_paths_in_errors(user_path: Callable[[str], str]) -> Iterator[None]:
    """Name settings as the user does in errors that are raised inside."""
    try:
        yield
    except BridgepackError as error:
        error.args = tuple(with_user_paths(text, user_path) for text in error.args)
        raise


def paths_in(text: str) -> tuple[str, ...]:
    """Return the host's paths of the settings that a text names; a text that is no message names none."""
    return text.paths if isinstance(text, Message) else ()


def literals_in(text: str) -> list[str]:
    """Return the literal parts of a text, such as the places that `join` made one of."""
    return [part for part in text.parts if isinstance(part, str)] if isinstance(text, Message) else [text]


def setting(*paths: str) -> Message:
    """Return the message that is the name of a setting of the host, or of several."""
    return Message(SettingNames(paths)) if paths else Message()


def join(texts: Iterable[str], separator: str = ", ") -> Message:
    """Return texts as one message, with a separator between them."""
    parts: list[str] = []
    for text in texts:
        parts += [separator, text] if parts else [text]
    return Message(*parts)


def say(template: str, **values: Any) -> Message:
    """Return the message of a template: `{model.seq_length}` is a setting of the host, `{size:,}` a value by its name.

    `{model.seq_length & dataset.seq_length}` are several settings. A value that is a message keeps its settings; every
    other one is literal, whatever it says.
    """
    parts: list[str | SettingNames] = []
    for literal, name, form, conversion in Formatter().parse(template):
        parts.append(literal)
        if name is not None and "." in name:
            parts.append(SettingNames(tuple(name.split(_AND))))
        elif name is not None:
            value = repr(values[name]) if conversion == "r" else values[name]
            parts.append(value if isinstance(value, Message) else format(value, form or ""))
    return Message(*parts)


def read_references(text: str) -> str:
    """Return a text of a docstring with its references as settings; other braces stay as they are."""
    parts = [
        SettingNames(tuple(part.split(_AND))) if number % 2 else part
        for number, part in enumerate(_REFERENCE.split(text))
    ]
    return Message(*parts) if len(parts) > 1 else text
