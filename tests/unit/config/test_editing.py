"""Which file is edited, how it is shown and written, what no kind of file accepts, and what Python is told."""

from pathlib import Path
from typing import Any, Literal

import pytest

from bridgepack.checking.fix import write_edit
from bridgepack.config.editing import CannotEditError, edit_file, edited_text
from bridgepack.errors import ConfigError
from bridgepack.records import Change
from tests.support.catalogue import SMALL_YAML
from tests.support.messages import mentions

YAML = SMALL_YAML.replace("small", "small  # ours")
RECIPE_FUNCTION = """\
from bridgepack import SFTRecipe

OTHER = dict(packing={"seed": 1})

def small_recipe():
    packing = PackingConfig(packed_sequence_size=16)  # tokens
    recipe = SFTRecipe(
        name="small",
        packing=packing,
        batch={"micro_batch_size": 2},
    )
    return recipe.override({"model.name": NAME})
"""
CONTAINER_FUNCTION = """\
def small_config():
    cfg = start()
    cfg.model.seq_length = 4096
    if big:
        cfg.model.seq_length = 2 * 4096
    cfg.dataset.dataset_kwargs = {"pad_to_max_length": False}
    return cfg
"""
EDITS = [Change(why="", path="packing.packed_sequence_size", value=32)]


def test_diff(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: small  # ours\r\nseed: 1")

    edit, inode = edit_file(str(path), [Change(why="", path="seed", value=2)]), path.stat().st_ino

    diff = (
        f"--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n \ufeffname: small  # ours\r\n"
        "-seed: 1\n\\ No newline at end of file\n+seed: 2\n\\ No newline at end of file\n"
    )
    assert edit.diff() == diff
    nothing = edit_file(str(path), [Change(why="", path="seed", value=1)])
    assert nothing.diff() == ""
    write_edit(nothing)
    assert path.stat().st_ino == inode
    assert path.read_bytes() == b"\xef\xbb\xbfname: small  # ours\r\nseed: 1"
    write_edit(edit)
    assert path.read_bytes() == b"\xef\xbb\xbfname: small  # ours\r\nseed: 2"


def test_write_keeps_mode_and_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text(YAML)
    target.chmod(0o640)
    link.symlink_to(target)

    write_edit(edit_file(str(link), EDITS))

    assert link.is_symlink()
    assert "packed_sequence_size: 32" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.yaml", "target.yaml"]


def test_write_refuses_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    edit = edit_file(str(path), EDITS)
    path.write_text(YAML + "# later\n")

    with pytest.raises(ConfigError, match=r"changed since .*not overwritten"):
        write_edit(edit)
    assert path.read_text() == YAML + "# later\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.yaml", None, "there is no such"),
        ("a.json", b"{}", "a .json file cannot be edited"),
        ("a.yaml", b"\xff", "must be a UTF-8 file"),
        ("a.yaml", b"a: [", "not one YAML document"),
        ("a.yaml", b"a: 1\n---\nb: 2\n", "not one YAML document"),
        ("a.yaml", b"- 1\n", "holds a list"),
        ("a.py", b"def (", "is not Python"),
    ],
)
def test_file_that_cannot_be_edited(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CannotEditError, match=message) as raised:
        edit_file(str(path), EDITS)
    assert str(path) in str(raised.value)
    assert raised.value.edit == EDITS[0] or content is None or content == b"\xff"


def test_what_no_file_takes() -> None:
    with pytest.raises(CannotEditError, match=r"packing\. cannot be set to 1: .*empty name"):
        edited_text(YAML, ".yaml", [Change(why="", path="packing.", value=1)])
    for suffix in (".yaml", ".toml"):
        with pytest.raises(CannotEditError, match="load a Path"):
            edited_text("", suffix, [Change(why="", path="dataset.x", value=Path("a"))], kind="container")


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("packing.packed_sequence_size", 32, "In [packing], write packed_sequence_size = 32."),
        ("data.role_aliases.x", "a'b", """In [data.role_aliases], write x = "a'b"."""),
        ("data.train", ("a", "b"), 'In [data], write train = ["a", "b"].'),
        ("name", "ü", 'Write name = "ü".'),
        ("packing.seed", None, "Remove packing.seed"),
        ("packing", {"seed": 1}, "Set packing to {'seed': 1} by hand."),
    ],
)
def test_toml_is_shown_what_to_change(tmp_path: Path, field: str, value: Any, advice: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text('name = "small"\n')

    with pytest.raises(CannotEditError) as raised:
        edit_file(str(path), [Change(why="", path=field, value=value)])
    assert str(raised.value).startswith(f"{path}: ")
    assert mentions(raised.value, f"{field} cannot be set ", "TOML files are not ", advice)
    assert path.read_text() == 'name = "small"\n'


@pytest.mark.parametrize(
    ("kind", "field", "value", "advice"),
    [
        ("recipe", "packing.packed_sequence_size", 32, "Write 32 in line 6, which has 16."),
        ("recipe", "batch.micro_batch_size", 1, "Write 1 in line 10, which has 2."),
        ("recipe", "model.name", "x", "Write 'x' in line 12, which has NAME."),
        ("recipe", "packing.seed", 7, "Return the recipe with .override({'packing.seed': 7})."),
        ("recipe", "data.train", Path("a"), "Return the recipe with .override({'data.train': 'a'})."),
        ("container", "model.seq_length", 8192, "in line 3, which has 4096 and line 5, which has 2 * 4096."),
        ("container", "dataset.dataset_kwargs.pad_to_max_length", True, "Write True in line 6, which has False."),
        ("container", "dataset.p", Path("/x"), "returning the config (here cfg), write cfg.dataset.p = Path('/x')."),
    ],
)
def test_python_is_shown_what_to_change(
    tmp_path: Path, kind: Literal["recipe", "container"], field: str, value: Any, advice: str
) -> None:
    path = tmp_path / "a.py"
    text, function = (RECIPE_FUNCTION, "small_recipe") if kind == "recipe" else (CONTAINER_FUNCTION, "small_config")
    path.write_text(text)

    with pytest.raises(CannotEditError) as raised:
        edit_file(f"{path}:{function}", [Change(why="", path=field, value=value)], kind=kind)
    assert str(raised.value).startswith(f"{path}: ")
    assert mentions(raised.value, f"{field} cannot be set ", ": Python files are not ")
    assert str(raised.value).endswith(advice)
    assert path.read_text() == text
