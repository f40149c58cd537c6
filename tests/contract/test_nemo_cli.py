"""Recipes in the real nemo-run: on its command line, in its jobs, as arguments of other tasks."""

import os
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import fiddle as fdl
import nemo_run as run
import pytest
from nemo_run.cli import api as nemo_run_cli
from typer.testing import CliRunner

from bridgepack.checking.options import CheckOptions
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import LaunchRefusedError
from bridgepack.launching.preflight import PreflightPlugin, trained_target
from bridgepack.nemo_cli import build, check, train
from tests.support.docs_blocks import blocks, run_snippets
from tests.support.small_builds import environment, tokenized_recipe, tokenized_row, write_json_lines
from tests.zoo.tokenizers import CHATML, write_tokenizer

pytestmark = pytest.mark.usefixtures("nemo_home")

NAME = "qwen3_8b_sft_4gpu_h100_bf16_recipe"
PROJECT = Path(__file__).parents[2]


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    """Return a recipe that can be built: two rows of ids."""
    rows = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(5, 6, 7), tokenized_row(8, 9)])
    recipe = tokenized_recipe(rows, write_tokenizer(tmp_path / "tokenizer", CHATML))
    file = tmp_path / "mine.yaml"
    file.write_text(recipe_to_yaml(recipe))
    return file


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a process that finds this Python, and no torch, which transformers would import."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return environment(tmp_path, NEMORUN_HOME=str(tmp_path / "nemo-run"), PATH=path)


@pytest.fixture
def nemorun(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return nemo-run's own command with the entry point of pyproject.toml, as where it is installed, and no other."""
    group = "nemo_run.cli"
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"][group]
    points = EntryPoints(EntryPoint(name=name, value=value, group=group) for name, value in declared.items())
    monkeypatch.setattr(nemo_run_cli.metadata, "entry_points", lambda: points)
    monkeypatch.setattr(nemo_run_cli, "NEMORUN_SKIP_CONFIRMATION", None)
    nemo_run_cli._load_entrypoints.cache_clear()

    def command(*words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["nemorun", *words])
        return CliRunner().invoke(nemo_run_cli.create_cli(), list(words))

    yield command
    nemo_run_cli._load_entrypoints.cache_clear()


def train_mine(recipe: SFTRecipe, steps: int = 1) -> None:
    """Stand for a task of somebody else that takes a recipe of ours."""


train_mine.__annotations__ = {"recipe": SFTRecipe, "steps": int, "return": None}


def four_processes() -> run.Config[run.Executor]:
    """Return an executor with one node."""
    return run.Config(run.LocalExecutor, ntasks_per_node=4, launcher="torchrun")


def test_recipe_function_is_a_config_itself() -> None:
    task = run.Partial(train_mine, recipe=run.Config(load_recipe, target=NAME))
    assert fdl.build(task).keywords["recipe"] == load_recipe(NAME)
    seen = trained_target(task, run.LocalExecutor(), target=None, options=CheckOptions())
    assert seen.recipe == load_recipe(NAME)


def test_nemorun_lists_the_tasks(nemorun: Any) -> None:
    listed = nemorun("bridgepack", "--help")
    assert listed.exit_code == 0
    for task in ("build", "check", "train"):
        assert task in listed.output


def test_nemorun_checks_a_recipe_with_overrides(nemorun: Any) -> None:
    clean = nemorun("bridgepack", "check", f"recipe={NAME}", 'overrides={"packing.packed_sequence_size":8192}', "--yes")
    assert (clean.exit_code, "rules run" in clean.output) == (0, True), clean.output
    wrong = nemorun("bridgepack", "check", f"recipe={NAME}", 'overrides={"batch.micro_batch_size":2}', "--yes")
    assert wrong.exit_code == 1
    assert "BP004" in f"{wrong.output}{wrong.exception}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((f"recipe={NAME}", 'overrides={"packing.packed_sequence_sizes":1}'), "Did you mean packed_sequence_size?"),
        (("recipe=qwen3_8b_sft_4gpu_h100_bf16_recip",), f"Did you mean {NAME}?"),
        (("recipe=missing.yaml",), "there is no such"),
    ],
)
def test_a_mistake_ends_the_task_with_its_message(nemorun: Any, words: tuple[str, ...], message: str) -> None:
    answer = nemorun("bridgepack", "check", *words, "--yes")
    assert answer.exit_code != 0
    assert message in f"{answer.output}{answer.exception}"


@pytest.mark.parametrize(
    ("task", "old", "new", "field"),
    [
        ("check", "packed_sequence_size:", "packed_sequence_sizes:", "packing.packed_sequence_sizes"),
        ("train", "packed_sequence_size:", "packed_sequence_sizes:", "packing.packed_sequence_sizes"),
        ("build", "rows.jsonl", "other.jsonl", "data.train"),
    ],
)
def test_a_mistake_in_a_file_has_its_line(
    nemorun: Any, recipe_file: Path, task: str, old: str, new: str, field: str
) -> None:
    text = recipe_file.read_text().replace(old, new)
    recipe_file.write_text(text)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if new in content)

    answer = nemorun("bridgepack", task, f"recipe={recipe_file}", "--yes")

    shown = "".join(f"{answer.output}{answer.exception}".split())  # nemo-run breaks long lines
    assert f"{recipe_file}:{line}:{field}" in shown


def test_training_that_check_rejects_is_not_submitted(nemorun: Any, nemo_home: Path, recipe_file: Path) -> None:
    run.cli.factory(four_processes, target=run.Executor, name="four_processes")
    recipe_file.write_text(recipe_to_yaml(load_recipe(recipe_file, {"batch.micro_batch_size": 2})))
    plugin = ("run.plugins=preflight", f"run.plugins.target={recipe_file}")
    refused = nemorun("bridgepack", "train", f"recipe={recipe_file}", "run.executor=four_processes", *plugin, "--yes")
    assert refused.exit_code == 1
    assert "BP004" in f"{refused.output}{refused.exception}"
    assert not list(nemo_home.rglob("*"))


def test_plugin_is_found_by_name() -> None:
    found = nemo_run_cli.RunContext(name="x").parse_plugin("preflight", "world_size=8")
    assert fdl.build(found) == PreflightPlugin(world_size=8)


@pytest.mark.full
def test_build_runs_as_a_job_of_an_experiment(tmp_path: Path, recipe_file: Path, variables: dict[str, str]) -> None:
    task = run.Partial(build, recipe=str(recipe_file), overrides={"packing.seed": 7}, output=str(tmp_path / "packed"))
    executor = run.LocalExecutor(env_vars=variables)
    with run.Experiment("builds", executor=executor, clean_mode=True) as experiment:
        experiment.add(task, name="build")
        experiment.run()
    assert Artifact(tmp_path / "packed").manifest.splits[0].statistics.num_sequences == 2


def test_build_from_the_command_line(nemorun: Any, tmp_path: Path, recipe_file: Path) -> None:
    output = tmp_path / "packed"
    size = 'overrides={"packing.packed_sequence_size":32}'
    done = nemorun("bridgepack", "build", f"recipe={recipe_file}", size, f"output={output}", "--yes")
    assert done.exit_code == 0, done.output
    assert Artifact(output).manifest.packed_sequence_size == 32


def test_snippets_of_the_page_run(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe_file.parent)
    assert list(blocks("python", page="launch.md", section="nemo-run"))
    run_snippets("launch.md", section="nemo-run")


def test_check_raises_what_it_finds() -> None:
    with pytest.raises(LaunchRefusedError, match="BP004"):
        check(NAME, {"batch.micro_batch_size": 2})
    check(NAME)
    assert train.cli_entrypoint.name == "train"
