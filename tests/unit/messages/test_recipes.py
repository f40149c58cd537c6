"""The errors of recipes and of the command line that users meet most, whole."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.errors import ConfigError
from bridgepack.records.launches import LaunchResult, TaskResult
from bridgepack.reporting.results.launches import interrupt_blocks
from bridgepack.reporting.screen import screen
from tests.support.small_builds import Command, small_recipe, write_recipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"packing.packed_sequence_size": 0},
            "packing.packed_sequence_size is 0; allowed: at least 1. Raise it.",
        ),
        (
            {"packing.packed_sequence_size": "big"},
            "packing.packed_sequence_size is 'big'; allowed: a whole number, without quotes. Write a number.",
        ),
        (
            {"packing.mode": "offlin"},
            "packing.mode is 'offlin'; allowed: 'offline', 'in_batch' or 'none'. Did you mean offline?",
        ),
        (
            {"preprocessing.kind": "chta"},
            "preprocessing.kind is 'chta'; allowed: chat, prompt_completion, text, tokenized. Did you mean chat?",
        ),
        (
            {"preprocessing.loss_mode": "all"},
            "preprocessing.loss_mode is 'all'; allowed: 'assistant', 'last_turn' or 'full'. Use one of these.",
        ),
        ({"data.on_bad_row": "skip"}, "data.on_bad_row is 'skip'; allowed: 'drop' or 'error'. Use one of these."),
        (
            {"data.train": None},
            "data.train is None; allowed: a path, a section {path: PATH} or {dataset: ID}, or a list of these.",
        ),
        ({"data.train": []}, "data.train is []; allowed: a list of at least 1 entry. Add one or remove the field."),
        (
            {"data.validation_fraction": 1.5},
            "data.validation_fraction is 1.5; allowed: less than 1.0. Lower it.",
        ),
        (
            {"data.validation": "b.jsonl", "data.validation_fraction": 0.1},
            "data.validation_fraction is 0.1 and validation is 'b.jsonl'; only one of them can be set. Remove "
            "validation_fraction or validation.",
        ),
        (
            {"packing.max_sequence_length": 1000},
            "packing.max_sequence_length is 1000; allowed: 1 to packed_sequence_size, 16. Lower it or raise "
            "packed_sequence_size.",
        ),
        ({"tokenizer": "org/x"}, "tokenizer is 'org/x'; allowed: a section with named fields."),
        ({"name": 5}, "name is 5; allowed: text. Put it in quotes."),
        ({"name": "my run"}, "name is 'my run'; allowed: text matching ^[A-Za-z0-9][A-Za-z0-9._-]*$. Rename it."),
        (
            {"ignore": {"BP101": ""}},
            "ignore.BP101 is ''; allowed: text of at least 1 character. Fill it in or remove the field.",
        ),
        (
            {"bridge_overrides.model.x": "a\0b"},
            r"bridge_overrides.model.x is 'a\x00b'; allowed: text without null characters. Remove them.",
        ),
    ],
)
def test_a_field_with_a_wrong_value(changes: dict[str, Any], message: str) -> None:
    recipe = small_recipe("rows.jsonl", "tokenizer", preprocessing={"kind": "chat"})

    with pytest.raises(ConfigError) as refused:
        recipe.override(changes)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mein.yaml",), "recipe is 'mein.yaml'; there is no such file. Did you mean 'mine.yaml'?"),
        (("other.yaml",), "recipe is 'other.yaml'; there is no such file. Check the path."),
        (
            ("mine.yaml", "--set", "packing.seed"),
            "--set 'packing.seed'; allowed: path=value, e.g. --set packing.packed_sequence_size=8192.",
        ),
        (
            ("mine.yaml", "--ignore", "BP9999"),
            "--ignore is 'BP9999', which matches no rule. Allowed: a code such as BP101, its beginning such as BP1, or "
            "a name. Did you mean BP994?",
        ),
        (
            (".",),
            "'.' has no manifest.json, so it is not an artifact: bridgepack did not build it, or the build did not "
            "finish. Build it with `bridgepack build RECIPE --output FOLDER`.",
        ),
        ((), "Missing argument 'TARGET'. `bridgepack check --help` lists what is allowed."),
    ],
)
def test_a_wrong_command_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "mine.yaml", small_recipe("rows.jsonl", "tokenizer", preprocessing={"kind": "chat"}))

    assert command("check", *arguments) == (2, "", f"error: {message}\n")


def test_an_interrupted_launch_says_what_runs_on_and_how_to_cancel_it() -> None:
    tasks = (
        TaskResult(name="build", executor="local", state="cancelled", job="build-1"),
        TaskResult(name="check", executor="slurm", state="pending", job="8"),
        TaskResult(name="train", executor="slurm", state="not started"),
    )
    places = {"run_folder": "/shared/runs/small_1", "experiment_folder": "/nemo_run/experiments/small/small_1"}

    result = LaunchResult(run_name="small_1", **places, tasks=tasks, is_detached=False)
    assert screen(interrupt_blocks(result)) == (
        "interrupted; build was ended; train was not started; still on the cluster: check (job 8); cancel with "
        "`nemo experiment cancel small_1 0`, where 0 is the first task; left behind: the run folder "
        "/shared/runs/small_1, nemo-run's /nemo_run/experiments/small/small_1"
    )
