"""Edits of YAML and TOML: each layout by hand."""

from typing import Any

import pytest

from bridgepack.config.editing import CannotEditError, edited_text
from bridgepack.records import Change

YAML, TOML = ".yaml", ".toml"
TEXTS = {
    YAML: """\
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
""",
    TOML: """\
# head
name = "small" # ours

[packing] # p
packed_sequence_size = 4096   # tokens
# packed_sequence_size = 8192

# data
[data]
train = 'a.jsonl'

[data.role_aliases]
bard = "assistant"
""",
}


def _edited(kind: str, text: str, *edits: tuple[str, Any]) -> str:
    return edited_text(text, kind, [Change(why="", path=path, value=value) for path, value in edits])


@pytest.mark.parametrize(
    ("kind", "path", "value", "old", "new"),
    [
        (YAML, "packing.packed_sequence_size", 8192, "size: 4096  # tokens", "size: 8192  # tokens"),
        (YAML, "name", "new", 'name: "small"   # ours', 'name: "new"   # ours'),
        (YAML, "last", "it's", "last: 'q'", "last: 'it''s'"),
        (YAML, "last", None, "last: 'q'", "last: null"),
        (YAML, "data.train", ["a", "b: c"], "{train: a.jsonl}", "{train: [a, 'b: c']}"),
        (YAML, "data.validation_fraction", 1e-5, "{train: a.jsonl}", "{train: a.jsonl, validation_fraction: 1.0e-05}"),
        (YAML, "packing.seed", 3, "4096  # tokens\n", "4096  # tokens\n  seed: 3\n"),
        (YAML, "packing.inner.x", True, "4096  # tokens\n", "4096  # tokens\n  inner:\n    x: true\n"),
        (YAML, "empty", "yes", "empty:\n", "empty: 'yes'\n"),
        (YAML, "empty.x", 1, "empty:\n", "empty: {x: 1}\n"),
        (YAML, "notes", "line\n", "|\n  one\n  two\n", '"line\\n"\n'),
        (YAML, "batch.micro_batch_size", 1, "last: 'q'\n", "last: 'q'\nbatch:\n  micro_batch_size: 1\n"),
        (YAML, "name", "small", "", ""),
        (TOML, "packing.packed_sequence_size", 8192, "4096   # tokens", "8192   # tokens"),
        (TOML, "packing.seed", 3, "# tokens\n", "# tokens\nseed = 3\n"),
        (TOML, "name", "new", 'name = "small" # ours', 'name = "new" # ours'),
        (TOML, "data.train", "b.jsonl", "'a.jsonl'", "'b.jsonl'"),
        (TOML, "data.train", ["a", {"dataset": "b"}], "'a.jsonl'", '["a", {dataset = "b"}]'),
        (TOML, "data.validation", "v", "'a.jsonl'\n", "'a.jsonl'\nvalidation = \"v\"\n"),
        (TOML, "data.role_aliases.x", "user", '"assistant"\n', '"assistant"\nx = "user"\n'),
        (TOML, "batch.micro_batch_size", 1, '"assistant"\n', '"assistant"\n\n[batch]\nmicro_batch_size = 1\n'),
        (TOML, "packing.inner.x", 1, "# tokens\n", "# tokens\ninner = {x = 1}\n"),
        (TOML, "name", "small", "", ""),
    ],
)
def test_only_what_is_edited_changes(kind: str, path: str, value: Any, old: str, new: str) -> None:
    assert old in TEXTS[kind]

    assert _edited(kind, TEXTS[kind], (path, value)) == TEXTS[kind].replace(old, new, 1)


@pytest.mark.parametrize(
    ("kind", "text", "edit", "expected"),
    [
        (YAML, "", ("a.b", 1), "a:\n  b: 1\n"),
        (YAML, "# only", ("a", 1), "# only\na: 1\n"),
        (YAML, "a: 1\r\nb:\r\n    c: 2", ("b.d", 1), "a: 1\r\nb:\r\n    c: 2\r\n    d: 1"),
        (YAML, "a:\n    b: 1\n", ("c.d", 1), "a:\n    b: 1\nc:\n    d: 1\n"),
        (YAML, "a: &x 1\nb: 2 # c\n", ("a", 3), "a: 3\nb: 2 # c\n"),
        (YAML, "a: &x {c: 2}\nb:\n  <<: *x # m\n", ("b.c", 1), "a: &x {c: 2}\nb:\n  <<: *x # m\n  c: 1\n"),
        (YAML, '{"a": 1,\n "b": "x"}\n', ("b", "y"), '{"a": 1,\n "b": "y"}\n'),
        (YAML, '{"a": {\n  "b": 1\n}}\n', ("a.c", 2), '{"a": {\n  "b": 1, c: 2\n}}\n'),
        (YAML, "---\na: 1\n...\n", ("b", 2), "---\na: 1\nb: 2\n...\n"),
        (YAML, "a: foo\n  bar # c\n", ("a", "x"), "a: x # c\n"),
        (YAML, "a:\n- 1\n- 2\nb: 1\n", ("a", [3]), "a: [3]\nb: 1\n"),
        (YAML, "a: [x] # c\n", ("a", None), "a: null # c\n"),
        (YAML, "---\n", ("a", 1), "---\na: 1\n"),
        (YAML, "a:\n-\n-\n# c\nb: 1\n", ("a", 2), "a: 2\n# c\nb: 1\n"),
        (TOML, "", ("a.b", 1), "[a]\nb = 1\n"),
        (TOML, "[a]\r\nx = 1\r\n\r\n# b\r\n[b]\r\n", ("a.y", "q"), '[a]\r\nx = 1\r\ny = "q"\r\n\r\n# b\r\n[b]\r\n'),
        (TOML, "[a]\n  x = 1\n  # c\n\n[b]\n", ("a.y", 2), "[a]\n  x = 1\n  y = 2\n  # c\n\n[b]\n"),
        (TOML, "a = {x = 1} # c\n", ("a.y", 2), "a = {x = 1, y = 2} # c\n"),
        (TOML, "a.b = 1 # e\nc = 2\n", ("a.d", 3), "a.b = 1 # e\na.d = 3\nc = 2\n"),
        (TOML, "[a.c]\nz = 1\n", ("a.c.y", 2), "[a.c]\nz = 1\ny = 2\n"),
        (TOML, "[a]\nx = 1", ("a.y", 2), "[a]\nx = 1\ny = 2\n"),
    ],
)
def test_layouts(kind: str, text: str, edit: tuple[str, Any], expected: str) -> None:
    assert _edited(kind, text, edit) == expected


@pytest.mark.parametrize(
    ("kind", "text", "edit", "reason"),
    [
        (YAML, "a: 1\n", ("a.b", 1), "a is 1 in the file, not a section"),
        (YAML, "a: [1]\n", ("a.0", 1), r"a is \[1\] in the file, not a section"),
        (YAML, "a: &x {c: 1}\nb: *x\n", ("a.c", 2), "line 1: an anchor"),
        (YAML, "z: 1\na: &x 1\nb: *x\n", ("a", 2), "line 2: an anchor"),
        (YAML, "a: &x {c: 1, d: 1}\nb: *x\n", ("b.c", 2), "line 1: an anchor"),
        (YAML, "a: &x {c: {d: 1}}\nb:\n  <<: *x\n", ("b.c.e", 1), "line 4: an anchor, a merge key"),
        (YAML, "---\n...\n", ("a", 1), "line 3: an anchor, .* or the layout prevents it"),
        (YAML, "a:\n- 1 # c\n", ("a", 2), "its old value contains comments"),
        (YAML, "a: [1, # c\n 2]\n", ("a", 2), "its old value contains comments"),
        (YAML, "? a\n: b: 1\n", ("c", 1), "line 3: .* or the layout prevents it"),
        (YAML, "? a\n: b: 1", ("a", 1), "line 2: .* or the layout prevents it"),
        (YAML, "a: |+\n  x\n\n\n# c\n", ("b", 1), "line 3: .* or the layout prevents it"),
        (YAML, "a: &x 1\nb: *x # c\n", ("b", 2), "an anchor"),
        (YAML, "a: {x, y: , }\n", ("a.x", 1), "its key has no value"),
        (YAML, "a:\n  1: x\n", ("a.1", 2), "line 2: .* a non-text key"),
        (TOML, "a = 1\n", ("a", None), "TOML has no null.*so that its default applies"),
        (TOML, "a = 1\n", ("a", [{"b": None}]), "Unable to convert"),
        (TOML, "a = 1\n", ("a.b", 1), "a is 1 in the file, not a section"),
        (TOML, "a = [\n 1, # one\n]\n", ("a", [2]), "its old value contains comments"),
        (TOML, "[a]\nx = 1\n", ("a", 2), "its old value is a table"),
        (TOML, "a = 1\r\nb = 2\n", ("a", 2), "mixes two kinds of line endings"),
    ],
)
def test_refused(kind: str, text: str, edit: tuple[str, Any], reason: str) -> None:
    with pytest.raises(CannotEditError, match=reason) as raised:
        _edited(kind, text, edit)
    if kind == YAML:
        assert raised.value.edit == Change(why="", path=edit[0], value=edit[1])
        assert "by hand" in str(raised.value)
