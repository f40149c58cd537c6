"""Errors on a recipe's field say the file and the line of the field, at whatever step they are raised."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import BridgepackError, Problem
from tests.support.small_builds import Command, chat_row, write_json_lines

PROJECT = Path(__file__).parents[2]
RECIPE = """\
name: a
data:
  train: a.jsonl
tokenizer:
  name_or_path: t
packing:
  mode: offline
  packed_sequence_size: 64
parallelism:
  context_parallel_size: 1
  num_gpus: 8
model:
  name: qwen3_8b_sft_8gpu_h100_bf16_config
checkpoint:
  pretrained: weights
"""
#: Sizes that do not fit, as an override.
_ODD = {"packed_sequence_size": 63, "pad_seq_to_mult": 2}
_PYTHON = """\
from ruamel.yaml import YAML
from bridgepack import SFTRecipe

def a_recipe():
    return SFTRecipe.from_mapping(YAML(typ="safe").load"""
SOURCES = PROJECT / "src" / "bridgepack"
_ERRORS = {"ConfigError", "DataError", "TokenizerError", "ArtifactError", "LaunchError"}
#: A section of a recipe and a field of it, which a message begins with.
_FIELD = re.compile(rf"({'|'.join(SFTRecipe.model_fields)})\.\w*")
#: Command -> what is replaced in the file before it, and what the line of the field begins with.
CASES: tuple[tuple[str, dict[str, str], str], ...] = (
    (
        "recipes show a.yaml --resolved",
        {"context_parallel_size: 1": "context_parallel_size: 24"},
        "packed_sequence_size",
    ),
    (
        "recipes show a.yaml --resolved",
        {"mode: offline": "pad_seq_to_mult: 3", "parallel_size: 1": "parallel_size: 2"},
        "pad_seq_to_mult",
    ),
    ("build a.yaml", {"a.jsonl": "b.jsonl"}, "train"),
    ("build a.yaml --dry-run", {"a.jsonl": "b.jsonl"}, "train"),
    ("preview a.yaml", {"a.jsonl": "b.jsonl"}, "train"),
    ("preview a.yaml", {}, "name_or_path"),
    ("prove masks a.yaml", {}, "name_or_path"),
    ("plan a.yaml --num-gpus 8", {"mode: offline": "mode: none"}, "mode"),
    ("prove training a.yaml", {"mode: offline": "mode: none"}, "mode"),
    ("launch a.yaml --cluster torchrun", {}, "pretrained"),
    ("launch a.yaml --cluster torchrun --cluster-set executor.ntasks_per_node=4", {}, "num_gpus"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_json_lines(Path("a.jsonl"), [chat_row("a", "b")])


@pytest.mark.parametrize(("words", "changes", "field"), CASES, ids=str)
def test_errors_after_loading_say_file_and_line(
    words: str, changes: dict[str, str], field: str, command: Command
) -> None:
    text = RECIPE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    Path("a.yaml").write_text(text)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if content.strip().startswith(field))

    ran = command(*words.split())
    problem = json.loads(command(*words.split(), "--json").output)["error"]["problems"][0]

    assert ran.code == 2
    assert ran.errors.splitlines()[-1].startswith(f"error: a.yaml:{line}: ")
    assert (problem["file"], problem["line"], problem["field"].rpartition(".")[2]) == ("a.yaml", line, field)


def test_what_the_file_does_not_say_has_no_line_in_it() -> None:
    Path("a.yaml").write_text(RECIPE)

    problems = [_problem("a.yaml", **{field: value}) for field, value in (("data.train", "b.jsonl"), ("packing", _ODD))]

    assert [(problem.field, problem.file, problem.line) for problem in problems] == [
        ("data.train", "", None),
        ("packing.packed_sequence_size", "", None),
    ]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.toml", 'name = "a"\n\n[data\n', 3),
        ("line 9.toml", 'name = "line 8"\ntrain = [\n', None),
        ("line 9.yaml", "", None),
        ("a.yaml", f"name: a\n{'line 7 ' * 40}: 1\n", None),
        ("a.py", "def a_recipe():\n    return (\n", 2),
        ("b.py", "def a_recipe():\n    raise ValueError('line 77 of the table')\n", None),
    ],
)
def test_a_line_is_that_of_the_parser_whatever_the_text_says(name: str, text: str, line: int | None) -> None:
    Path(name).write_text(text)

    problem = _problem(name)

    assert (problem.file, problem.line) == (name, line)


def test_errors_of_python_recipes_say_their_file() -> None:
    texts = {
        "fails.py": "def fails_recipe():\n    return 1 / 0\n",
        "typo.py": f"{_PYTHON}({RECIPE.replace('train:', 'trian:')!r}))\n",
        "later.py": f"{_PYTHON}({RECIPE.replace('a.jsonl', 'b.jsonl')!r}))\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)

    problems = [_problem(name) for name in texts]

    assert [(problem.file, problem.line) for problem in problems] == [(name, None) for name in texts]
    assert [problem.field for problem in problems] == ["", "data.train", "data.train"]


def test_errors_that_begin_with_a_field_say_it_as_data() -> None:
    """Words are not searched for a field, so whoever raises an error gives the field that its words begin with."""
    silent = [place for path in SOURCES.rglob("*.py") for place in _errors_without_their_field(path)]

    assert silent == []


def _errors_without_their_field(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS):
            continue
        beginning = node.args[0] if node.args else None
        if isinstance(beginning, ast.JoinedStr):
            beginning = beginning.values[0]
        text = beginning.value if isinstance(beginning, ast.Constant) else ""
        is_about_field = _FIELD.match(str(text)) is not None
        if is_about_field and not any(keyword.arg == "field" for keyword in node.keywords):
            yield f"{path.relative_to(SOURCES)}:{node.lineno}: {text}"


def _problem(target: str, **overrides: Any) -> Problem:
    with pytest.raises(BridgepackError) as raised:
        bridgepack.build(target, overrides=overrides or None)
    return raised.value.problems[0]
