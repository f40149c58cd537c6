"""Recipes in the real nemo-run: as configs, as factories, on its command line, in its jobs."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import fiddle as fdl
import nemo_run as run
import pytest
from nemo_run.cli import api as nemo_run_cli
from nemo_run.cli.cli_parser import parse_cli_args
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from typer.testing import CliRunner

from bridgepack.config.load import catalogue, load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import ConfigError, LaunchRefusedError
from bridgepack.launching.preflight import PreflightPlugin
from bridgepack.nemo_cli import as_config, build, check, train
from tests.support.docs_blocks import run_snippets
from tests.support.small_builds import environment, tokenized_recipe, tokenized_row, write_json_lines
from tests.support.tokenizers import CHATML, write_tokenizer

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


def test_every_recipe_survives_as_a_config() -> None:
    serializer, num_checked = ZlibJSONSerializer(), 0
    for entry in catalogue():
        assert entry.recipe is not None
        saved = serializer.serialize(as_config(entry.recipe))
        assert fdl.build(serializer.deserialize(saved)) == entry.recipe
        num_checked += 1
    assert num_checked > 100


def test_recipe_function_is_a_config_itself() -> None:
    task = run.Partial(train_mine, recipe=run.Config(load_recipe, target=NAME))
    assert fdl.build(task).keywords["recipe"] == load_recipe(NAME)


def test_fields_are_set_by_attribute_and_validated_when_built() -> None:
    task = run.Partial(train_mine, recipe=as_config(NAME))
    task.recipe.packing.packed_sequence_size = 8192
    task.recipe.schedule.train_iters = 7
    expected = load_recipe(NAME, {"packing.packed_sequence_size": 8192, "schedule.train_iters": 7})
    assert fdl.build(task).keywords["recipe"] == expected
    task.recipe.packing.packed_sequence_sizes = 1
    with pytest.raises(ConfigError, match="Did you mean packed_sequence_size"):
        fdl.build(task)


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("recipe.packing.packed_sequence_size=8192", "packing.packed_sequence_size", 8192),
        ("recipe.packing.packed_sequence_size*=2", "packing.packed_sequence_size", 8192),
        ("recipe.schedule.train_iters=5", "schedule.train_iters", 5),
        ("recipe.parallelism.sequence_parallel=False", "parallelism.sequence_parallel", False),
        ("recipe.packing.algorithm=first_fit_shuffle", "packing.algorithm", "first_fit_shuffle"),
        ('recipe.data.train=["a.jsonl","b.jsonl"]', "data.train", ["a.jsonl", "b.jsonl"]),
        ("recipe.optimizer.lr=1e-5", "optimizer.lr", 1e-5),
        ("recipe.packing.pad_seq_to_mult=None", "packing.pad_seq_to_mult", None),
    ],
)
def test_task_of_somebody_else_takes_our_recipes_by_name(word: str, path: str, value: Any) -> None:
    task = parse_cli_args(train_mine, [f"recipe={NAME}", word, "steps=3"])
    assert fdl.build(task.recipe) == load_recipe(NAME, {path: value})
    assert task.steps == 3


def test_nemorun_lists_the_tasks(nemorun: Any) -> None:
    listed = nemorun("bridgepack", "--help")
    assert listed.exit_code == 0
    for task in ("build", "check", "train"):
        assert task in listed.output


def test_nemorun_checks_a_recipe_with_overrides(nemorun: Any) -> None:
    clean = nemorun("bridgepack", "check", f"recipe={NAME}", "recipe.packing.packed_sequence_size=8192", "--yes")
    assert (clean.exit_code, "rules run" in clean.output) == (0, True)
    wrong = nemorun("bridgepack", "check", NAME, "recipe.batch.micro_batch_size=2", "--yes")
    assert (wrong.exit_code, "BP004" in wrong.output) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "recipe is missing"),
        ((f"recipe={NAME}", "recipe.packing.packed_sequence_sizes=1"), "Did you mean packed_sequence_size?"),
        ((f"recipe={NAME}", "recipe.packing.packed_sequence_size=two"), "packing.packed_sequence_size is 'two'"),
        ((f"recipe={NAME}", "recipe.packing.packed_sequence_size*=-2"), "packing.packed_sequence_size is -8192"),
        ((f"recipe={NAME}", "world_siz=3"), "Did you mean world_size?"),
        (("recipe=qwen3_8b_sft_4gpu_h100_bf16_recip",), f"Did you mean {NAME}?"),
        (("recipe=missing.yaml",), "there is no such file"),
        ((f"recipe={NAME}", "executor=slurmm"), "Did you mean slurm?"),
        ((f"recipe={NAME}", "executor.nodes=2"), "no executor is given"),
        ((f"recipe={NAME}", "world_size=two"), "Failed to parse 'two'"),
        ((f"recipe={NAME}", "executor=slurm", "executor.noeds=2"), "No parameter named 'noeds'"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(nemorun: Any, words: tuple[str, ...], message: str) -> None:
    answer = nemorun("bridgepack", "check", *words, "--yes")
    assert (answer.exit_code, message in " ".join(answer.output.split())) == (2, True), answer.output
    assert "Traceback" not in answer.output


def test_executor_takes_overrides(nemorun: Any) -> None:
    told = nemorun(
        "bridgepack", "check", NAME, "executor=slurm", "executor.account=me", "executor.nodes=2", "--dryrun", "--yes"
    )
    assert told.exit_code == 0, told.output
    assert "nodes=2" in told.output


def test_training_that_check_rejects_is_not_submitted(nemorun: Any, nemo_home: Path) -> None:
    wrong = ("recipe.batch.micro_batch_size=2", "executor=torchrun", "executor.ntasks_per_node=4")
    refused = nemorun("bridgepack", "train", NAME, *wrong, "--yes")
    assert (refused.exit_code, "BP004" in refused.output) == (1, True), refused.output
    assert not list(nemo_home.rglob("*"))


def test_plugin_is_found_by_name() -> None:
    found = nemo_run_cli.RunContext(name="x").parse_plugin("preflight", "world_size=8")
    assert fdl.build(found) == PreflightPlugin(world_size=8)


@pytest.mark.full
def test_build_runs_as_a_job_of_an_experiment(tmp_path: Path, recipe_file: Path, variables: dict[str, str]) -> None:
    task = run.Partial(build, recipe=as_config(recipe_file, {"packing.seed": 7}), output=str(tmp_path / "packed"))
    executor = run.LocalExecutor(env_vars=variables)
    with run.Experiment("builds", executor=executor, clean_mode=True) as experiment:
        experiment.add(task, name="build")
        experiment.run()
    assert Artifact(tmp_path / "packed").manifest.splits[0].statistics.num_sequences == 2


def test_build_from_the_command_line(tmp_path: Path, recipe_file: Path, variables: dict[str, str]) -> None:
    output = tmp_path / "packed"
    words = ["build", f"recipe={recipe_file}", "recipe.packing.packed_sequence_size=32", f"output={output}", "--yes"]
    command = [sys.executable, "-m", "bridgepack.nemo_cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    assert Artifact(output).manifest.packed_sequence_size == 32


def test_snippets_of_the_page_run(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe_file.parent)
    assert run_snippets("nemo-run.md") > 0


def test_check_raises_what_it_finds() -> None:
    with pytest.raises(LaunchRefusedError, match="BP004"):
        check(load_recipe(NAME, {"batch.micro_batch_size": 2}))
    check(load_recipe(NAME))
    assert train.cli_entrypoint.name == "train"
