"""Edits of TOML: each layout by hand."""

from typing import Any

import pytest

from bridgepack.config.editing import CannotEditError, Edit, edited_text

TEXT = """\
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
"""


def _edited(text: str, *edits: tuple[str, Any]) -> str:
    return edited_text(text, ".toml", [Edit(path=path, value=value) for path, value in edits])


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("packing.packed_sequence_size", 8192, "4096   # tokens", "8192   # tokens"),
        ("packing.seed", 3, "# tokens\n", "# tokens\nseed = 3\n"),
        ("name", "new", 'name = "small" # ours', 'name = "new" # ours'),
        ("data.train", "b.jsonl", "'a.jsonl'", "'b.jsonl'"),
        ("data.train", ["a", {"dataset": "b"}], "'a.jsonl'", '["a", {dataset = "b"}]'),
        ("data.validation", "v", "'a.jsonl'\n", "'a.jsonl'\nvalidation = \"v\"\n"),
        ("data.role_aliases.x", "user", '"assistant"\n', '"assistant"\nx = "user"\n'),
        ("batch.micro_batch_size", 1, '"assistant"\n', '"assistant"\n\n[batch]\nmicro_batch_size = 1\n'),
        ("packing.inner.x", 1, "# tokens\n", "# tokens\ninner = {x = 1}\n"),
        ("name", "small", "", ""),
    ],
)
def test_only_what_is_edited_changes(path: str, value: Any, old: str, new: str) -> None:
    assert old in TEXT

    assert _edited(TEXT, (path, value)) == TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        ("", ("a.b", 1), "[a]\nb = 1\n"),
        ("[a]\r\nx = 1\r\n\r\n# b\r\n[b]\r\n", ("a.y", "q"), '[a]\r\nx = 1\r\ny = "q"\r\n\r\n# b\r\n[b]\r\n'),
        ("[a]\n  x = 1\n  # c\n\n[b]\n", ("a.y", 2), "[a]\n  x = 1\n  y = 2\n  # c\n\n[b]\n"),
        ("a = {x = 1} # c\n", ("a.y", 2), "a = {x = 1, y = 2} # c\n"),
        ("a.b = 1 # e\nc = 2\n", ("a.d", 3), "a.b = 1 # e\na.d = 3\nc = 2\n"),
        ("[a.c]\nz = 1\n", ("a.c.y", 2), "[a.c]\nz = 1\ny = 2\n"),
        ("[a]\nx = 1", ("a.y", 2), "[a]\nx = 1\ny = 2\n"),
    ],
)
def test_layouts(text: str, edit: tuple[str, Any], expected: str) -> None:
    assert _edited(text, edit) == expected


@pytest.mark.parametrize(
    ("text", "edit", "reason"),
    [
        ("a = 1\n", ("a", None), "TOML has no null.*so that its default applies"),
        ("a = 1\n", ("a", [{"b": None}]), "Unable to convert"),
        ("a = 1\n", ("a.b", 1), "a is 1 in the file, not a section"),
        ("a = [\n 1, # one\n]\n", ("a", [2]), "its old value contains comments"),
        ("[a]\nx = 1\n", ("a", 2), "its old value is a table"),
        ("a = 1\r\nb = 2\n", ("a", 2), "mixes two kinds of line endings"),
    ],
)
def test_refused(text: str, edit: tuple[str, Any], reason: str) -> None:
    with pytest.raises(CannotEditError, match=reason):
        _edited(text, edit)
