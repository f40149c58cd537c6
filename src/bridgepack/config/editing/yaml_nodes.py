"""Where the entries of a YAML document lie in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bridgepack.config.editing.edits import CannotEditError, Edit, refuse
from bridgepack.config.editing.splicing import indentation, line_end

_COLON = re.compile(r"\s*:")
_ALIAS = re.compile(r"\s*:\s*\*[^\s,\[\]{}]+")
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)
MERGE_TAG = "tag:yaml.org,2002:merge"

Entry = tuple[Node, Node]


def parse(text: str) -> Any:
    """Return the plain values of a document.

    Raises:
        CannotEditError: when it is not one YAML document.
    """
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, KeyError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise CannotEditError(f"the file is not one YAML document: {message[:300]}. Edit it by hand.") from None


def compose(text: str) -> Node | None:
    """Return the root node of a document that `parse` accepts; None when it is empty."""
    root: Node | None = YAML(typ="safe", pure=True).compose(text)
    return root


def shared_nodes(root: Node | None) -> frozenset[int]:
    """Return the ids of the nodes that an alias leads to."""
    seen: set[int] = set()
    shared: set[int] = set()
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        if id(node) in seen:
            shared.add(id(node))
            continue
        seen.add(id(node))
        todo += _children(node)
    return frozenset(shared)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for entry in node.value:
            yield from entry
    elif isinstance(node, SequenceNode):
        yield from node.value


def find_entry(mapping: MappingNode, name: str, edit: Edit) -> int | None:
    """Return the index of an entry by its key; None when the mapping does not spell it out.

    Raises:
        CannotEditError: when the key looks the same but is no text, e.g. a number.
    """
    for index, (key, _) in enumerate(mapping.value):
        if isinstance(key, ScalarNode) and key.value == name:
            if key.tag != "tag:yaml.org,2002:str":
                refuse(edit, f"the key {name} is not text there")
            return index
    return None


def has_merge(mapping: MappingNode) -> bool:
    """Say whether a mapping takes entries from another with `<<`."""
    return any(key.tag == MERGE_TAG for key, _ in mapping.value)


def is_empty(node: Node) -> bool:
    """Say whether a value is left out: `key:`."""
    return isinstance(node, ScalarNode) and not node.style and node.start_mark.index == node.end_mark.index


def after_colon(text: str, key: Node) -> int | None:
    """Return the offset after the colon that follows a key; None when there is no colon."""
    match = _COLON.match(text, key.end_mark.index)
    return match.end() if match else None


def entry_end(text: str, entry: Entry) -> int:
    """Return the offset after the last character of an entry, comments after it left out."""
    key, value = entry
    if value.start_mark.index < key.start_mark.index:
        alias = _ALIAS.match(text, key.end_mark.index)
        return alias.end() if alias else key.end_mark.index
    if is_empty(value):
        return after_colon(text, key) or key.end_mark.index
    return node_end(text, value)


def node_end(text: str, node: Node) -> int:
    """Return the offset after the last character of a value; a block scalar that keeps its line ends has them."""
    end: int = node.end_mark.index
    if isinstance(node, ScalarNode):
        if node.style in {"|", ">"} and "+" not in _first_line(text, node):
            return len(text[:end].rstrip())
        return end
    assert isinstance(node, MappingNode | SequenceNode)
    if node.flow_style or not node.value:
        return end
    if isinstance(node, MappingNode):
        return entry_end(text, node.value[-1])
    last = node.value[-1]
    if last.start_mark.index < node.start_mark.index or is_empty(last):
        return len(text[:end].rstrip())
    return node_end(text, last)


def _first_line(text: str, node: Node) -> str:
    return text[node.start_mark.index : line_end(text, node.start_mark.index)]


def has_comment(stretch: str) -> bool:
    """Say whether a stretch of text may hold a comment; a string with ` #` in it counts as one."""
    return bool(_COMMENT.search(stretch))


def flow_has_comment(stretch: str) -> bool:
    """Say whether a stretch inside one flow collection may hold a comment, which would end with a line."""
    return "\n" in stretch and has_comment(stretch)


def nested_step(text: str, root: Node | None) -> str:
    """Return the white space that the first nested block mapping is indented by; two spaces when there is none."""
    if isinstance(root, MappingNode) and not root.flow_style:
        for _, value in root.value:
            if isinstance(value, MappingNode) and not value.flow_style and value.value:
                return indentation(text, value.value[0][0].start_mark.index) or "  "
    return "  "
