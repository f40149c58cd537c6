"""Recipes with where each value comes from, launches, and progress, as text."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.load import CatalogueEntry
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.launching.results import log_end
from bridgepack.planning.resolved import resolved_view
from bridgepack.records.launches import LaunchResult, TaskResult
from bridgepack.reporting.progress import TerminalProgress
from bridgepack.reporting.results.launches import interrupt_blocks, launch_blocks
from bridgepack.reporting.results.recipes import catalogue_blocks
from bridgepack.reporting.screen import screen
from bridgepack.reporting.text import printable
from tests.support.catalogue import SMALL
from tests.support.messages import mentions
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines

VALUES: dict[str, Any] = {
    **SMALL,
    "data": {"train": "rows.jsonl"},
    "packing": {"packed_sequence_size": 1024},
    "parallelism": {"tensor_model_parallel_size": 2, "sequence_parallel": True, "num_gpus": 8},
    "batch": {"global_batch_size": 8},
    "method": {"kind": "lora"},
}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SFTRecipe:
    """Return a recipe in a folder with 1 MB of data."""
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_bytes(b"x" * 1_000_000)
    return SFTRecipe.from_mapping(VALUES)


def _settings(view: Any) -> dict[str, Any]:
    return {setting["path"]: setting for setting in view.to_dict()["settings"]}


def test_every_field_says_where_it_is_from(recipe: SFTRecipe) -> None:
    fields = {item["field"]: item for item in resolved_view(recipe).to_dict()["fields"]}

    size = fields["packing.packed_sequence_size"]
    assert size == {"field": "packing.packed_sequence_size", "value": 1024, "origin": "recipe"}
    assert (fields["packing.seed"]["origin"], fields["method.kind"]["origin"]) == ("default", "recipe")
    assert fields["method.dim"] == {"field": "method.dim", "value": 32, "origin": "default"}
    assert {item["origin"] for item in fields.values()} == {"recipe", "default"}


def test_derived_values_say_why(recipe: SFTRecipe) -> None:
    derived = {item["name"]: item for item in resolved_view(recipe).to_dict()["derived"]}

    because = "8 GPUs / (2 x 1 x 1 tensor x pipeline x context ranks)"
    size = {"name": "data_parallel_size", "value": 4, "because": because, "origin": "derived"}
    assert derived["data_parallel_size"] == size
    assert (derived["pad_seq_to_mult"]["value"], derived["gradient_accumulation_steps"]["value"]) == (2, 2)


def test_forecast_is_called_one(recipe: SFTRecipe) -> None:
    view = resolved_view(recipe)
    settings = _settings(view)
    num_packs = view.num_packs["training"]

    assert view.packs.startswith("forecast: 1.0 MB as JSON")
    assert settings["train.train_iters"]["value"] == -(-num_packs // 8)
    assert settings["train.train_iters"]["because"].endswith("; forecast")
    assert settings["dataset.dataset_root"]["value"] == "artifacts/small"
    assert "forecast" not in settings["dataset.dataset_root"]["because"]
    rate = {"value": 1e-4, "origin": "derived", "because": "Megatron-Bridge's own for method lora"}
    assert settings["optimizer.lr"] == {"path": "optimizer.lr", "field": "optimizer.lr", **rate}


def test_without_data_steps_stay_open(recipe: SFTRecipe) -> None:
    view = resolved_view(recipe.override({"data.train": "none.jsonl"}))

    assert view.packs.startswith("no forecast: data.train is 'none.jsonl'")
    assert "train.train_iters" not in {path for path, one in _settings(view).items() if one["value"] is not None}
    assert "forecast" not in json.dumps(view.to_dict()["settings"])


def test_packs_of_an_artifact_are_counted(recipe: SFTRecipe, chatml_tokenizer: Path) -> None:
    write_json_lines(Path("a.jsonl"), [tokenized_row(10 + index, 5, 6, 7) for index in range(20)])
    small = tokenized_recipe("a.jsonl", chatml_tokenizer)
    artifact = build(small, Path("artifact")).output
    view = resolved_view(small.override({"batch.global_batch_size": 1}), artifact=artifact)

    assert view.packs == f"counted in {artifact}"
    assert view.num_packs["training"] > 0
    assert _settings(view)["train.train_iters"]["value"] == view.num_packs["training"]
    assert "forecast" not in json.dumps(view.to_dict())


def test_table_tells_what_cannot_be_loaded(recipe: SFTRecipe) -> None:
    entries = [
        CatalogueEntry(name="small", family="mine", target="mine.py:small", recipe=recipe),
        CatalogueEntry(name="wrong", family="mine", target="wrong.yaml", error="name is 5; allowed: text."),
        CatalogueEntry(name="unread", family="mine", target="mine.py:unread"),
    ]
    table = screen(catalogue_blocks(entries)).splitlines()

    assert table[0].split() == ["recipe", "method", "GPUs", "tokens", "CP", "TP", "PP", "EP"]
    assert table[1] == "mine:"
    assert table[2].split() == ["small", "lora", "8", "1024", "1", "2", "1", "1"]
    assert table[3].split() == ["unread", *"-------"]
    assert mentions(table[-3], "cannot be loaded: wrong: ", "name is 5; allowed: text.")
    assert mentions(table[-2], "-: ", " no Python ", " recipes/")
    assert mentions(table[-1], "2 recipes; ", "`bridgepack recipes show NAME`")
    loaded, broken = (entry.to_dict() for entry in entries[:2])
    assert (loaded["num_gpus"], broken["error"], loaded.keys()) == (8, "name is 5; allowed: text.", broken.keys())


def test_shipped_recipes_are_targets() -> None:
    assert "  bridge:qwen3_8b_sft_config" in screen(catalogue_blocks([], ["qwen3_8b_sft_config"])).splitlines()


def result(*tasks: TaskResult, is_detached: bool = False) -> LaunchResult:
    places = {"run_folder": "/shared/runs/small_1", "experiment_folder": "/nemo_run/experiments/small/small_1"}
    return LaunchResult(run_name="small_1", **places, tasks=tasks, is_detached=is_detached)


def test_a_failed_task_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "combined.log"
    log.write_text("".join(f"line {number}\n" for number in range(30)) + "\x1b[31mout of memory\n")
    states: dict[str, Any] = {"state": "failed", "log": str(log), "log_end": log_end(str(log)), "seconds": 1}
    tasks = (
        TaskResult(name="build", executor="local", state="succeeded", job="build-1", log="/b.log", seconds=12.34),
        TaskResult(name="train", executor="local", job="train-1", **states),
    )
    text = screen(launch_blocks(result(*tasks)))

    assert text.splitlines() == [
        "build       succeeded  after 12.3 s  log /b.log",
        f"train       failed  after 1.0 s  log {log}",
        "run folder  /shared/runs/small_1",
        "look again  nemo experiment status small_1",
        "",
        f"train: end of {log}",
        *(f"  line {number}" for number in range(11, 30)),
        "  \N{REPLACEMENT CHARACTER}[31mout of memory",
    ]


def test_a_detached_launch_says_how_to_look_and_cancel() -> None:
    jobs = {"build": "7", "train": "8"}
    tasks = [TaskResult(name=name, executor="slurm", state="submitted", job=job) for name, job in jobs.items()]
    text = screen(launch_blocks(result(*tasks, is_detached=True)))

    assert text.splitlines() == [
        "build       submitted  job 7",
        "train       submitted  job 8",
        "run folder  /shared/runs/small_1",
        "look again  nemo experiment status small_1",
        "cancel      nemo experiment cancel small_1 0   (0 is the first task)",
    ]
    assert not result(*tasks, is_detached=True).has_failed
    assert result(*tasks).has_failed


def test_an_interruption_says_what_was_ended_and_what_goes_on() -> None:
    tasks = (
        TaskResult(name="build", executor="local", state="cancelled", job="build-1"),
        TaskResult(name="check", executor="slurm", state="pending", job="8"),
        TaskResult(name="train", executor="slurm", state="not started"),
    )
    text = screen(interrupt_blocks(result(*tasks)))

    assert mentions(text, "build was ended; ", "train was not started; ", "on the cluster: check (job 8); ")
    assert mentions(text, "`nemo experiment cancel small_1 0`, ", "left behind: ")
    assert mentions(text, " /shared/runs/small_1, ", " /nemo_run/experiments/small/small_1")


def test_long_lines_are_cut_and_missing_logs_are_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * 1000 + "\nshort\n")
    assert log_end(str(tmp_path / "log")) == ("x" * 400 + " ...", "short")
    assert log_end(str(tmp_path)) == log_end("/no/such/log") == log_end("") == ()


@pytest.mark.parametrize("is_enabled", [True, False, None])
def test_stages_of_a_build(
    tmp_path: Path, chatml_tokenizer: Path, capfd: pytest.CaptureFixture[str], is_enabled: bool | None
) -> None:
    train = write_json_lines(tmp_path / "a.jsonl", [tokenized_row(5, 6, 7)] * 1234)
    recipe = tokenized_recipe(train, chatml_tokenizer)

    with TerminalProgress(is_enabled=is_enabled) as progress:
        build(recipe, tmp_path / "out", progress=progress)

    output, errors = capfd.readouterr()
    assert output == ""
    if is_enabled:
        for text in ("Hashing inputs", "1 files", "Tokenising training", "1,234 rows", "Packing training", "packs"):
            assert text in errors
    else:
        assert errors == ""


def test_bars_end_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with TerminalProgress(is_enabled=True) as progress:
            progress.start("Stage", None, "things")
            progress.advance(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert "3 things" in capfd.readouterr().err


def test_control_characters_are_replaced_and_lines_stay() -> None:
    assert printable("a\x1b[2Jb\tc\nd\x07é\u202e😀") == "a�[2Jb\tc\nd�é�😀"


def test_log_lines_are_ten_seconds_apart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    monkeypatch.setattr("bridgepack.reporting.progress.time.monotonic", lambda: now_s)
    with TerminalProgress() as progress:
        now_s += 30  # imports, before there is a stage
        progress.start("Tokenising", 600, "rows")
        for _ in range(60):
            now_s += 0.5
            progress.advance(1_000, work=10)

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Tokenising: 33%, 20,000 rows, 2,000/s"
    assert [line.split(" ")[1] for line in lines] == ["33%,", "67%,", "100%,"]
