"""A row as its layout reads it: what encoders take, and what nobody reads."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ReadRow(NamedTuple):
    """A row as its layout reads it; a tuple, as every row makes one."""

    #: columns that encoders read, e.g. `messages` in OpenAI's form, `tools`, `system`
    columns: Mapping[str, Any]
    kind: str = "chat"  #: kind of the layout that read it
    layout: int = 0  #: position of the layout that read it, among those of its source
    is_plain: bool = False  #: each of its messages has only a role and a text
    #: column, or path inside it, that nobody reads -> its value; without empty ones
    unread: Mapping[str, Any] = _NOTHING
    #: path of a key that no call, schema or part has -> its value; a template may still write it
    other_keys: Mapping[str, Any] = _NOTHING
    #: columns and fields of turns, `messages.NAME`, that the layout ignores
    ignored_names: frozenset[str] = frozenset()
    system_name: str = "system"  #: column with the row's system text
    #: positions of messages whose role or content had another name in the data
    renamed: frozenset[int] = frozenset()
