"""Which file is edited, how it is shown and written, and what no kind of file accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridgepack.config.editing import REMOVE, CannotEditError, Edit, edit_file, edited_text
from bridgepack.config.load import load_recipe
from bridgepack.errors import ConfigError

YAML = """\
name: small  # ours
data: {train: a.jsonl}
tokenizer: {name_or_path: tokenizer}
packing:
  packed_sequence_size: 16
"""
TOML = """\
name = "small"
[data]
train = "a.jsonl"
[tokenizer]
name_or_path = "tokenizer"
[packing]
packed_sequence_size = 16
"""
PYTHON = """\
from bridgepack import SFTRecipe
from bridgepack.config.recipe.packing import PackingConfig

def small_recipe():
    return SFTRecipe(
        name="small",
        data={"train": "a.jsonl"},
        tokenizer={"name_or_path": "tokenizer"},
        packing=PackingConfig(packed_sequence_size=16),
    )
"""
EDITS = [
    Edit(path="packing.packed_sequence_size", value=32),
    Edit(path="packing.seed", value=7),
    Edit(path="parallelism.context_parallel_size", value=4),
    Edit(path="data.validation", value=Path("b.jsonl")),
]


@pytest.mark.parametrize(
    ("name", "content", "function"),
    [
        ("a.yaml", YAML, ""),
        ("A.YML", YAML, ""),
        ("a.toml", TOML, ""),
        ("a.py", PYTHON, ""),
        ("a.py", PYTHON, "small_recipe"),
    ],
)
def test_edited_recipe_loads(tmp_path: Path, name: str, content: str, function: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    place = f"{path}:{function}" if function else str(path)
    before = load_recipe(place)

    edit_file(place, EDITS).write()

    changes = {edit.path: str(edit.value) if isinstance(edit.value, Path) else edit.value for edit in EDITS}
    assert load_recipe(place) == before.override(changes)


def test_diff(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: small  # ours\r\nseed: 1")

    edit = edit_file(str(path), [Edit(path="seed", value=2)])

    assert edit.diff() == (
        f"--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n \ufeffname: small  # ours\r\n"
        "-seed: 1\n\\ No newline at end of file\n+seed: 2\n\\ No newline at end of file\n"
    )
    assert edit_file(str(path), []).diff() == ""
    assert path.read_bytes() == b"\xef\xbb\xbfname: small  # ours\r\nseed: 1"
    edit.write()
    assert path.read_bytes() == b"\xef\xbb\xbfname: small  # ours\r\nseed: 2"


def test_write_keeps_mode_and_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text(YAML)
    target.chmod(0o640)
    link.symlink_to(target)

    edit_file(str(link), EDITS).write()

    assert link.is_symlink()
    assert "packed_sequence_size: 32" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.yaml", "target.yaml"]


def test_write_refuses_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    edit = edit_file(str(path), EDITS)
    path.write_text(YAML + "# later\n")

    with pytest.raises(ConfigError, match="changed since it was read; it is left as it is"):
        edit.write()
    assert path.read_text() == YAML + "# later\n"


def test_nothing_to_write_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    inode = path.stat().st_ino

    edit_file(str(path), [Edit(path="name", value="small"), Edit(path="batch.x", value=REMOVE)]).write()

    assert path.stat().st_ino == inode


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.yaml", None, "there is no such file"),
        ("a.json", b"{}", "a .json file cannot be edited; allowed: .yaml, .yml, .toml or .py"),
        ("a.yaml", b"\xff", "must be a UTF-8 file"),
        ("a.yaml", b"a: [", "is not one YAML document"),
        ("a.yaml", b"a: 1\n---\nb: 2\n", "is not one YAML document"),
        ("a.yaml", b"- 1\n", "holds a list, not sections"),
        ("a.toml", b"a = ", "is not TOML"),
        ("a.py", b"def (", "is not Python"),
        ("a.py", b"x = 1\n", "defines no functions; say which one"),
    ],
)
def test_file_that_cannot_be_edited(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CannotEditError, match=message) as raised:
        edit_file(str(path), EDITS[:1])
    assert str(path) in str(raised.value)
    assert raised.value.edit == EDITS[0] or content is None or content == b"\xff"


def test_empty_name_in_a_path() -> None:
    with pytest.raises(CannotEditError, match=r"packing\. cannot be set to 1: the path has an empty name"):
        edited_text(YAML, ".yaml", [Edit(path="packing.", value=1)])


@pytest.mark.parametrize("suffix", [".yaml", ".toml"])
def test_saved_configuration_cannot_hold_a_path(suffix: str) -> None:
    with pytest.raises(CannotEditError, match="cannot hold a Path"):
        edited_text("", suffix, [Edit(path="dataset.x", value=[Path("a")])], kind="container")
