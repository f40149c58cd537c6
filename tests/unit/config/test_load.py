"""Recipes from files and functions, and what is said where there is none."""

import json
import os
import re
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.load import load_recipe, parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import LoggingConfig
from bridgepack.errors import ConfigError
from tests.support.catalogue import SMALL, SMALL_TOML, SMALL_YAML
from tests.support.messages import mentions
from tests.support.small_builds import Command, small_recipe

PYTHON = """\
from bridgepack import SFTRecipe, load_recipe

def small_recipe():
    return SFTRecipe.from_mapping({
        "name": "small",
        "data": {"train": "a.jsonl"},
        "tokenizer": {"name_or_path": "tokenizer"},
        "packing": {"packed_sequence_size": 16},
    })
"""
FORMS = "FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION or a name from `bridgepack recipes list`"


def _message(target: str | Path) -> str:
    with pytest.raises(ConfigError) as raised:
        load_recipe(target)
    return str(raised.value)


WITH_DATACLASS = (
    "from __future__ import annotations\nfrom dataclasses import KW_ONLY, dataclass\n"
    f"@dataclass(slots=True)\nclass Sizes:\n    _: KW_ONLY\n    size: int\n{PYTHON}"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("recipe.yaml", SMALL_YAML),
        ("recipe.yml", SMALL_YAML),
        ("RECIPE.YAML", SMALL_YAML),
        ("bom.yaml", "\ufeff" + SMALL_YAML),
        ("crlf.yaml", SMALL_YAML.replace("\n", "\r\n")),
        ("recipe.toml", SMALL_TOML),
        ("bom.toml", "\ufeff" + SMALL_TOML),
        ("with_dataclass.py", WITH_DATACLASS),
    ],
)
def test_file(tmp_path: Path, name: str, content: str) -> None:
    path, small = tmp_path / name, SFTRecipe.from_mapping(SMALL)
    path.write_bytes(content.encode())

    assert load_recipe(path) == small
    assert load_recipe(str(path), {"packing.seed": 7}) == small.override({"packing.seed": 7})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", b"name: \xe9", "must be a UTF-8 file."),
        ("a.yaml", "", "sections with named fields (name, data, ...)."),
        ("a.yaml", "- a\n", "is a list; allowed"),
        ("a.yaml", "a: [1\nb: 2", "is not YAML: "),
        ("a.yaml", f"{SMALL_YAML}name: other\n", 'found duplicate key "name" at line '),
        ("a.yaml", f"{SMALL_YAML}---\n{SMALL_YAML}", "is not YAML"),
        ("a.yaml", f"{SMALL_YAML}when: 2001-13-45\n", "month must be in 1..12. Correct it."),
        ("a.yaml", f"{SMALL_YAML}x: !!int abc\n", "is not YAML: "),
        ("a.yaml", "[" * 400, "is not YAML: "),
        ("a.yaml", "name: \0", "is not YAML: "),
        ("a.yaml", f"{SMALL_YAML}? [a, b]\n: 1\n", "allowed: text as a"),
        ("a.toml", "a =", "is not TOML"),
        ("a.toml", "a = " + "[" * 400, "is not TOML: "),
        ("a.toml", "", "4 fields are wrong:"),
        ("a.py", "", "name the function: "),
        ("a.py", PYTHON + "def other_recipe(): pass\n", "It has: other_recipe, small_recipe."),
        ("a.py", "def x(:\n", "failed: SyntaxError: "),
        ("a.py", "1 / 0\n", "ZeroDivisionError: division by zero. Correct its code."),
        ("a.py", "import sys\nsys.exit(3)\n", "failed: SystemExit: 3. Correct its code."),
        ("a.py", "def a_recipe(size): pass\n", "failed: TypeError: a_recipe() missing 1 required positional"),
        ("a.py", "def a_recipe(): pass\n", "returns a NoneType"),
        ("a.py", "from bridgepack import SFTRecipe\ndef a_recipe(): return SFTRecipe(name='a')\n", "data is missing ("),
    ],
)
def test_file_that_holds_no_recipe(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    assert message in _message(tmp_path / name)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("smal.yaml", "Did you mean 'small.yaml'?"),
        ("small.tml", "such file or folder."),
        ("none.py", "Check the path."),
        ("small.py:smal_recipe", "there is no 'smal_recipe' in it. Did you mean small_recipe?"),
        ("small.py:other", "there is no 'other' in it. It has: small_recipe."),
        ("small.yaml:small_recipe", "a .yaml file has no functions. Remove :small_recipe."),
        ("none", f"{FORMS}. No such file"),
        ("pipe.yaml", "it cannot be read"),
        *((folder, f"recipe is '{folder}'; ") for folder in ("folder", "folder.yaml", "folder.py")),
        (":", FORMS),
        ("s3://bucket/packs", "is a URL"),
        (":function", "there is no module ''."),
        ("none.module:function", "there is no module 'none.module'."),
        ("..x:function", "there is no module '..x'."),
        ("broken_package.module:function", "ZeroDivisionError: division by zero."),
    ],
)
def test_target_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str) -> None:
    (tmp_path / "small.yaml").write_text(SMALL_YAML)
    (tmp_path / "small.py").write_text(PYTHON)
    os.mkfifo(tmp_path / "pipe.yaml")
    for folder in ("broken_package", "folder", "folder.yaml", "folder.py"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken_package" / "__init__.py").write_text("1 / 0\n")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.chdir(tmp_path)

    assert message in _message(target)


def test_set_reads_the_last_of_equal_paths_as_yaml() -> None:
    listed, section = ["a.jsonl", "b.jsonl"], {"dataset": "org/name"}
    texts = {"true": True, "[a.jsonl, b.jsonl]": listed, "{dataset: org/name}": section, "": None}
    for text, value in {**texts, "a=b": "a=b", "'8192'": "8192"}.items():
        assert parse_overrides(("section.field=1", f"section.field = {text}")) == {"section.field": value}
    for item, message in {
        "packing.seed": "--set 'packing.seed'; allowed: path=value, e.g. --set packing.packed_sequence_size=8192.",
        "=1": "--set '=1'; allowed: path=value",
        "data.train=[a": "--set data.train is '[a', which is not YAML. Close the bracket, or quote the value: --set ",
        "a={b}x": "--set a is '{b}x', which is not YAML. Quote the value: --set 'a=\"{b}x\"'.",
        "a=*.jsonl": "--set a is '*.jsonl', which is not YAML. Quote the value: --set 'a=\"*.jsonl\"'.",
        "a=['b": "--set a is not YAML: ",
    }.items():
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            parse_overrides((item,))


@pytest.mark.parametrize("field", ["train: [{}]", "role_aliases: {{<<: [{}]}}"])
def test_aliases_that_multiply_values_are_refused(tmp_path: Path, field: str) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]" for level in range(1, 12)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*lines, "name: bomb", "data:", f"  {field.format('*a11')}"]))
    (tmp_path / "circle.yaml").write_text("name: circle\ndata: &a\n  train: [*a]\n")

    for name in ("bomb", "circle"):
        with pytest.raises(ConfigError, match=r"aliases repeat more than 100,000 values, "):
            load_recipe(tmp_path / f"{name}.yaml")


_CHAT = {
    "name": "small",
    "data": {"train": ["a.jsonl"]},
    "tokenizer": {"name_or_path": "tokenizer"},
    "preprocessing": {"kind": "chat"},
    "packing": {"packed_sequence_size": 16},
}
#: Fields that hold text as such, in lists or in mappings, and a value with `X` in each.
_FIELDS_OF_TEXT = {
    "environment": [{"NAME": "X"}, {"X": "1"}],
    "bridge_overrides": [{"model.x": "X"}, {"model.x": [{"y": "X"}]}, {"X": 1}],
    "tokenizer.chat_template_kwargs": [{"a": {"X": 1}}],
    "serving.chat_template_kwargs": [{"a": ["X"]}],
    "serving.system": ["X"],
    "ignore": [{"BP101": "X"}],
    "data.train": ["X", ["b.jsonl", "X"]],
    "data.layout": [{"kind": "tokenized", "input_ids": "X"}],
    **{f"checkpoint.{name}": ["X"] for name in ("pretrained", "folder")},
    "logging": [{name: "X"} for name in LoggingConfig.model_fields if name != "log_interval"],
    "data.train.0": [
        {"path": "X"},
        {"dataset": "X"},
        {"path": "b", "name": "X"},
        {"path": "b", "layout": {"kind": "tokenized", "input_ids": "X"}},
    ],
}


@pytest.mark.parametrize("field", _FIELDS_OF_TEXT)
@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"])
def test_text_that_no_file_can_hold_is_refused_wherever_it_stands(field: str, bad: str) -> None:
    for pattern in _FIELDS_OF_TEXT[field]:
        value = json.loads(json.dumps(pattern).replace("X", json.dumps(bad)[1:-1]))
        with pytest.raises(ConfigError) as raised:
            load_recipe(_CHAT, {field: value})
        message = str(raised.value)
        assert message.startswith(field), message
        assert r"'a\x00b'" in message or r"'a\ud800b'" in message, message
        assert "\n" not in message
        message.encode()


def test_text_in_a_mapping_is_named_by_its_path() -> None:
    values = {"model.x": [{"y": "a\0b"}]}
    with pytest.raises(ConfigError) as raised:
        load_recipe(_CHAT, {"bridge_overrides": values})
    assert mentions(raised.value, r"bridge_overrides.model.x.0.y is 'a\x00b'; ", "without null characters. ")


@pytest.mark.parametrize(
    "field",
    ["artifact", "data.train", "data.validation", "tokenizer.name_or_path", "tokenizer.chat_template"]
    + [f"data.train.{name}" for name in ("path", "dataset", "split", "revision", "name")],
)
def test_null_characters_are_refused(field: str, tmp_path: Path, command: Command) -> None:
    """A file system's functions raise ValueError for them, which would be a traceback in every command."""
    recipe = json.loads(small_recipe("rows.jsonl", "tokenizer").model_dump_json(exclude_unset=True))
    *sections, name = field.split(".")
    if sections == ["data", "train"]:
        recipe["data"]["train"] = {"dataset": "squad"} if name != "path" else {}
    section: dict[str, Any] = reduce(lambda found, part: found[part], sections, recipe)
    section[name] = "a\0b"
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))

    for words in (("build", "--dry-run"), ("check",), ("preview",)):
        ran = command(words[0], tmp_path / "recipe.yaml", *words[1:])
        assert (ran.code, "Traceback" in ran.errors) == (2, False), ran
        assert mentions(ran.errors.replace("\\\\", "\\"), rf"{field} is 'a\x00b'; ", "without null characters")


HEX, DIGITS = f"0x{'f' * 5000}", "9" * 5000


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.yaml", f"packing: {{seed: {HEX}}}", ("'packing': 'seed'", "20,000 bits", "64 bits")),
        ("a.yaml", f"packing: [{{seed: {HEX}}}]", ("'packing': 'seed'", "20,000 bits", "64 bits")),
        ("a.yaml", f"packing: {{? {HEX} : 1}}", ("'packing': the key", "20,000 bits")),
        ("a.yaml", f"packing: {{seed: {DIGITS}}}", ("thousands of digits",)),
        ("a.yaml", f"packing: {{seed: {2**63}}}", ("'packing': 'seed'", "9223372036854775808", "64 bits")),
        ("a.toml", f"packing.seed = {HEX}", ("'packing': 'seed'", "20,000 bits")),
        ("a.toml", f"packing.seed = {DIGITS}", ("thousands of digits",)),
        ("a.yaml", f"? {'k' * 1001}\n: 1", ("the key 'kkk", "1,001 characters", "1,000")),
    ],
)
def test_numbers_and_names_that_no_program_holds(tmp_path: Path, name: str, content: str, parts: tuple[str]) -> None:
    (tmp_path / name).write_text(content)
    message = _message(tmp_path / name)

    assert mentions(message, name, *parts)
    assert len(message) < 600


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        (f"packing.seed={HEX}", ("packing.seed", "20,000 bits", "64 bits")),
        (f"packing.seed={DIGITS}", ("packing.seed", "thousands of digits")),
        (f"packing={{seed: {-(2**63) - 1}}}", ("packing: 'seed'", "-9223372036854775809")),
        (f"{'k' * 2000}=1", ("2,000 characters",)),
        ("data.train=/data/\udcff.jsonl", ("UTF-8",)),
    ],
)
def test_overrides_that_no_program_holds(item: str, parts: tuple[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_overrides((item,))

    assert mentions(str(raised.value), "--set", *parts)
    assert len(str(raised.value)) < 300


def test_the_largest_numbers_are_read() -> None:
    assert parse_overrides((f"a={2**63 - 1}", f"b=[{-(2**63)}]")) == {"a": 2**63 - 1, "b": [-(2**63)]}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"name": 10**5000}, ("name", "16,610 bits")),
        ({"ignore": {f"BP{number}": "x" for number in range(1001)}}, ("ignore", "at most 1,000 entries")),
    ],
)
def test_values_of_a_recipe_made_in_python_are_told(changes: dict[str, Any], parts: tuple[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        small_recipe("a.jsonl", "tokenizer", **changes)

    assert mentions(str(raised.value), *parts)
