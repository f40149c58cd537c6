"""Edits of YAML: each layout by hand."""

from typing import Any

import pytest

from bridgepack.config.editing import CannotEditError, edited_text
from bridgepack.records import Change

TEXT = """\
# head
name: "small"   # ours
packing:  # p
  packed_sequence_size: 4096  # tokens
  # packed_sequence_size: 8192

# data
data: {train: a.jsonl}
sources:
- a
- b # second
empty:
notes: |
  one
  two

last: 'q'
"""


def _edited(text: str, *edits: tuple[str, Any]) -> str:
    return edited_text(text, ".yaml", [Change(why="", path=path, value=value) for path, value in edits])


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("packing.packed_sequence_size", 8192, "size: 4096  # tokens", "size: 8192  # tokens"),
        ("name", "new", 'name: "small"   # ours', 'name: "new"   # ours'),
        ("last", "it's", "last: 'q'", "last: 'it''s'"),
        ("last", None, "last: 'q'", "last: null"),
        ("data.train", ["a", "b: c"], "{train: a.jsonl}", "{train: [a, 'b: c']}"),
        ("data.validation_fraction", 1e-5, "{train: a.jsonl}", "{train: a.jsonl, validation_fraction: 1.0e-05}"),
        ("packing.seed", 3, "4096  # tokens\n", "4096  # tokens\n  seed: 3\n"),
        ("packing.inner.x", True, "4096  # tokens\n", "4096  # tokens\n  inner:\n    x: true\n"),
        ("empty", "yes", "empty:\n", "empty: 'yes'\n"),
        ("empty.x", 1, "empty:\n", "empty: {x: 1}\n"),
        ("notes", "line\n", "|\n  one\n  two\n", '"line\\n"\n'),
        ("batch.micro_batch_size", 1, "last: 'q'\n", "last: 'q'\nbatch:\n  micro_batch_size: 1\n"),
        ("name", "small", "", ""),
    ],
)
def test_only_what_is_edited_changes(path: str, value: Any, old: str, new: str) -> None:
    assert old in TEXT

    assert _edited(TEXT, (path, value)) == TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        ("", ("a.b", 1), "a:\n  b: 1\n"),
        ("# only", ("a", 1), "# only\na: 1\n"),
        ("a: 1\r\nb:\r\n    c: 2", ("b.d", 1), "a: 1\r\nb:\r\n    c: 2\r\n    d: 1"),
        ("a:\n    b: 1\n", ("c.d", 1), "a:\n    b: 1\nc:\n    d: 1\n"),
        ("a: &x 1\nb: 2 # c\n", ("a", 3), "a: 3\nb: 2 # c\n"),
        ("a: &x {c: 2}\nb:\n  <<: *x # m\n", ("b.c", 1), "a: &x {c: 2}\nb:\n  <<: *x # m\n  c: 1\n"),
        ('{"a": 1,\n "b": "x"}\n', ("b", "y"), '{"a": 1,\n "b": "y"}\n'),
        ('{"a": {\n  "b": 1\n}}\n', ("a.c", 2), '{"a": {\n  "b": 1, c: 2\n}}\n'),
        ("---\na: 1\n...\n", ("b", 2), "---\na: 1\nb: 2\n...\n"),
        ("a: foo\n  bar # c\n", ("a", "x"), "a: x # c\n"),
        ("a:\n- 1\n- 2\nb: 1\n", ("a", [3]), "a: [3]\nb: 1\n"),
        ("a: [x] # c\n", ("a", None), "a: null # c\n"),
        ("---\n", ("a", 1), "---\na: 1\n"),
        ("a:\n-\n-\n# c\nb: 1\n", ("a", 2), "a: 2\n# c\nb: 1\n"),
    ],
)
def test_layouts(text: str, edit: tuple[str, Any], expected: str) -> None:
    assert _edited(text, edit) == expected


@pytest.mark.parametrize(
    ("text", "edit", "reason"),
    [
        ("a: 1\n", ("a.b", 1), "a is 1 in the file"),
        ("a: [1]\n", ("a.0", 1), r"a is \[1\] in the file"),
        ("a: &x {c: 1}\nb: *x\n", ("a.c", 2), "line 1: an anchor"),
        ("z: 1\na: &x 1\nb: *x\n", ("a", 2), "line 2: an anchor"),
        ("a: &x {c: 1, d: 1}\nb: *x\n", ("b.c", 2), "line 1: an anchor"),
        ("a: &x {c: {d: 1}}\nb:\n  <<: *x\n", ("b.c.e", 1), "line 4: an anchor"),
        ("---\n...\n", ("a", 1), "line 3: an anchor"),
        ("a:\n- 1 # c\n", ("a", 2), "old value contains comments"),
        ("a: [1, # c\n 2]\n", ("a", 2), "old value contains comments"),
        ("? a\n: b: 1\n", ("c", 1), "line 3"),
        ("? a\n: b: 1", ("a", 1), "line 2"),
        ("a: |+\n  x\n\n\n# c\n", ("b", 1), "line 3"),
        ("a: &x 1\nb: *x # c\n", ("b", 2), "an anchor"),
        ("a: {x, y: , }\n", ("a.x", 1), "key has no value"),
        ("a:\n  1: x\n", ("a.1", 2), "line 2: .* a non-text key"),
    ],
)
def test_refused(text: str, edit: tuple[str, Any], reason: str) -> None:
    with pytest.raises(CannotEditError, match=reason) as raised:
        _edited(text, edit)
    assert raised.value.edit == Change(why="", path=edit[0], value=edit[1])
    assert "by hand" in str(raised.value)
