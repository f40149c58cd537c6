"""Tiny inputs, recipes and builds, checkable by hand; and the command as a process of its own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bridgepack.config.recipe.preprocessing import FORM_FIELDS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.build import build_artifact
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.data.tasks import Progress
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations
from bridgepack.planning.balance import balance_for
from bridgepack.records import Manifest

CLI = (sys.executable, "-c", "from bridgepack.cli import main; main()")
#: Can hide torch, as on a machine that only builds: transformers would import it, which takes many seconds a process.
WITHOUT_TORCH = """\
import sys
from importlib.machinery import PathFinder

class WithoutTorch(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "torch" else super().find_spec(name, path, target)

def hide_torch():
    sys.meta_path = [WithoutTorch if finder is PathFinder else finder for finder in sys.meta_path]
"""

Row = dict[str, Any]
#: Fields of chat preprocessing with which templates get turns as rows have them, as in Megatron-Bridge.
AS_HOST = dict.fromkeys(FORM_FIELDS, "keep")


class Ran(NamedTuple):
    """What a command left: its exit code, standard output and standard error."""

    code: int
    output: str
    errors: str


#: Runs the command in this process: the fixture `command` of tests/conftest.py.
Command = Callable[..., Ran]


def tokenized_row(*input_ids: int, num_prompt: int = 1) -> Row:
    """Return a row of ids whose first `num_prompt` are not trained: (5, 6, 7) -> labels [-100, 6, 7]."""
    return {"input_ids": list(input_ids), "labels": [-100] * num_prompt + list(input_ids[num_prompt:])}


def chat_row(question: str, answer: str) -> Row:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def write_json_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_conversations(folder: Path, *, limit: int, vocab_size: int = 600) -> Path:
    """Write training.jsonl, validation.jsonl and a tokenizer of their words, and return the folder."""
    write_docstring_conversations(folder / "training.jsonl", validation_path=folder / "validation.jsonl", limit=limit)
    train_chatml_tokenizer(folder / "tokenizer", iter_texts(folder / "training.jsonl"), vocab_size=vocab_size)
    return folder


def small_recipe(train: Any, tokenizer: Path | str, **sections: Any) -> SFTRecipe:
    """Return a recipe with packs of 16; `sections` stand in place of those that it has."""
    data = {"train": train if isinstance(train, list | dict) else str(train)}
    given = {"data": data, "tokenizer": {"name_or_path": str(tokenizer)}, "packing": {"packed_sequence_size": 16}}
    return SFTRecipe.from_mapping({"name": "small", **given, **sections})


def conversations_recipe(folder: Path, **sections: Any) -> SFTRecipe:
    """Return a recipe for what `write_conversations` wrote."""
    data = {"train": str(folder / "training.jsonl"), "validation": str(folder / "validation.jsonl")}
    return small_recipe("", folder / "tokenizer", **{"data": data, **sections})


def tokenized_recipe(train: Path | str | list[Any], tokenizer: Path, **changes: Any) -> SFTRecipe:
    """Return a recipe for rows of ids with packs of 16; `changes` are dotted paths with `__` for the dot."""
    return with_changes(small_recipe(train, tokenizer, preprocessing={"kind": "tokenized"}), changes)


def with_changes(recipe: SFTRecipe, changes: Mapping[str, Any]) -> SFTRecipe:
    return recipe.override({path.replace("__", "."): value for path, value in changes.items()}) if changes else recipe


def write_recipe(path: Path, recipe: SFTRecipe) -> Path:
    path.write_text(recipe.model_dump_json(exclude_unset=True, indent=1))
    return path


def build(
    recipe: SFTRecipe, output: Path, *, progress: Progress | None = None, num_workers: int = 0, **options: Any
) -> BuildResult:
    """Build, in this process unless there are workers, replacing what is there, and return the result."""
    return build_artifact(
        recipe,
        output=output,
        progress=progress,
        options=BuildOptions(num_workers=num_workers, replaces=True, **options),
        balance=balance_for(recipe),
    )


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def data_bytes(folder: Path) -> dict[str, bytes]:
    """Return `file_bytes` without the files that name inputs, tokenizer or recipe."""
    return {
        name: content
        for name, content in file_bytes(folder).items()
        if name != "manifest.json" and not name.endswith(".jsonl")
    }


def assert_balanced(manifest: Manifest) -> None:
    """Assert that every row that went in came out as a sequence or a drop, split by split and file by file."""
    assert manifest.splits
    for split in manifest.splits:
        numbers = split.statistics
        assert numbers.num_rows_in == numbers.num_rows_packed + sum(split.drops.values())
        assert sum(shard.num_rows for shard in split.shards) == numbers.num_packs


def dropped(folder: Path) -> list[tuple[int, str]]:
    """Return (row, reason) of every line of an artifact's ledger."""
    lines = (folder / "plan" / "dropped.jsonl").read_text().splitlines()
    return [(entry["row"], entry["reason"]) for entry in map(json.loads, lines)]


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """Return the variables for a process of bridgepack that finds this package and no torch."""
    site = folder / "without-torch"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(f"{WITHOUT_TORCH}\nhide_torch()\n")
    paths = [str(site), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HOME": str(folder / "hf-home"), **changes}


def without_progress(errors: str) -> str:
    """Return what a build says without its lines of progress, which a slow machine gets."""
    return re.sub(r"(?m)^[^:\n]+: (\d+%, )?[\d,]+ [\w ]+, [\d,]+/s\n", "", errors)


def run_command(folder: Path, *command: Any, **changes: str) -> subprocess.CompletedProcess[str]:
    """Return how a command ended that ran in a folder, with the variables of `environment`."""
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment(folder, **changes),
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=600,
        check=False,
    )


def run_cli(folder: Path, *arguments: Any, **changes: str) -> subprocess.CompletedProcess[str]:
    ran = run_command(folder, *CLI, *arguments, **changes)
    ran.stderr = without_progress(ran.stderr)
    return ran


def leftovers(folder: Path) -> Iterator[str]:
    """Yield what builds leave beside their outputs only while they run or when they are ended, and temporary files."""
    for path in folder.rglob(".*"):
        if path.name.endswith((".building", ".old", ".tmp")):
            yield str(path.relative_to(folder))
