"""Losses by source in real runs: the host's own finetune() in several topologies, on CPU and gloo.

Each row has a token id of its own, so the losses of the labels can be summed by source and by row without knowing of
packs. It alone finds what ranks, chunks and the host's loop change in what is counted.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.api import build
from bridgepack.canaries.cpu import ENVIRONMENT
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.proof.losses.by_source import read_source_losses
from bridgepack.proof.losses.rows import read_row_losses
from bridgepack.running.assignment import RunFolder
from tests.support import seen_losses
from tests.support.guarded_runs import RunRequest
from tests.support.host_forks import asked
from tests.support.small_builds import small_recipe, tokenized_row, write_conversations, write_json_lines
from tests.support.tiny_recipes import ON_CPU, VOCAB_SIZE, write_weights

pytestmark = [pytest.mark.bridge, pytest.mark.full]

#: First token id of each source; the last has too few rows to be in each interval.
FIRST_IDS = {"a": 100, "web/b": 200, "rare": 300}
NUM_ROWS = {"a": 60, "web/b": 40, "rare": 2}
NUM_STEPS, NUM_STAGES = 3, "parallelism.pipeline_model_parallel_size"
CONTEXT, CHUNKS = "parallelism.context_parallel_size", "parallelism.virtual_pipeline_model_parallel_size"
NO_GUARD = {"guard": {"enabled": False}}
#: What a machine without a GPU breaks, with the reason that a recipe has to give.
IGNORED = {"BP984": "trained on CPU", "BP916": "trained on CPU"}
#: Of 0.7, whose Llama cannot load a checkpoint again (test_guard.py), this family can.
RESUMED_MODEL = "qwen2"
SAVED: Mapping[str, Any] = {
    "bridge_overrides.checkpoint": {"async_save": False},
    "bridge_overrides.optimizer": {"use_distributed_optimizer": False},
    "bridge_overrides.ddp": {"use_distributed_optimizer": False},
    "bridge_overrides.scheduler": {"override_opt_param_scheduler": True},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run; `damage` is of tests/support/sabotage.py."""

    world_size: int = 1
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    damage: str = "write losses down"
    packs: str = "packs"
    folder: str = ""  #: of the run; by default its name


EVALUATED = {"schedule.eval_iters": 2, "schedule.eval_interval": 2}
RUNS = {
    "one": Run(changes={**EVALUATED, "logging.tensorboard_dir": "board", "losses.by_row": True}),
    "not-followed": Run(changes={**EVALUATED, "losses.by_source": False}),
    "two-context-ranks": Run(
        world_size=2, changes={**EVALUATED, CONTEXT: 2, "losses.by_row": True}, packs="packs-for-context"
    ),
    "other-tokens": Run(changes=NO_GUARD, damage="change a token"),
    "two-replicas": Run(world_size=2, changes={**EVALUATED, "losses.by_row": True}),
    "three-epochs": Run(world_size=2, changes={**EVALUATED, "losses.by_row": True, "schedule.train_iters": 9}),
    "two-stages": Run(world_size=2, changes={NUM_STAGES: 2}),
    "two-stages-of-two-chunks": Run(world_size=2, changes={NUM_STAGES: 2, CHUNKS: 2}),
    "per-token": Run(
        world_size=2,
        changes={
            "bridge_overrides.model.calculate_per_token_loss": True,
            "bridge_overrides.ddp": {"average_in_collective": False},
        },
    ),
    "begins": Run(changes={**SAVED, "schedule.train_iters": 2, "losses.by_row": True}, folder="goes-on"),
    "goes-on": Run(world_size=2, changes={**SAVED, "schedule.train_iters": 4, "losses.by_row": True}),
    "fails": Run(world_size=2, changes=NO_GUARD, damage="fail in the losses"),
}
#: Layouts that only `scripts/test --exhaustive` trains on.
FURTHER = ("two-replicas", "three-epochs", "two-stages", "two-stages-of-two-chunks", "per-token")
NAMES = tuple(name for name in RUNS if name not in FURTHER or "BRIDGEPACK_NUM_CONFIGS" in os.environ)
FOLLOWED = ("one", "two-context-ranks", "two-replicas", "two-stages", "two-stages-of-two-chunks", "per-token")

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three sources, a tokenizer, a model and two artifacts."""
    folder = write_conversations(tmp_path_factory.mktemp("losses"), limit=60, vocab_size=VOCAB_SIZE)
    write_weights(folder / "model", num_layers=4)
    write_weights(folder / RESUMED_MODEL, num_layers=4, family="Qwen2")
    rng = np.random.default_rng(7)
    for name, first in FIRST_IDS.items():
        for kind in ("training", "validation"):
            # row N of a source is its Nth id, many times: its label tells the row, too
            lengths = rng.integers(12, 60, NUM_ROWS[name]).tolist()
            lines = [tokenized_row(*[first + row] * length, num_prompt=4) for row, length in enumerate(lengths)]
            write_json_lines(folder / f"{Path(name).name}-{kind}.jsonl", lines)
    build(_recipe(folder, {}), output=folder / "packs")
    build(_recipe(folder, {CONTEXT: 2}), output=folder / "packs-for-context")
    return folder


def _recipe(folder: Path, changes: Mapping[str, Any]) -> SFTRecipe:
    names = {name: Path(name).name for name in FIRST_IDS}
    data = {
        split: [{"path": str(folder / f"{file}-{kind}.jsonl"), "name": name} for name, file in names.items()]
        for split, kind in (("train", "training"), ("validation", "validation"))
    }
    sections = {
        "name": "followed",
        "data": data,
        "packing": {"packed_sequence_size": 256},
        "preprocessing": {"kind": "tokenized"},
        "batch": {"global_batch_size": 4, "eval_global_batch_size": 4},
        "model": {"name": str(folder / "model")},
        "schedule": {"train_iters": NUM_STEPS, "eval_iters": 0},
        "optimizer": {"lr": 1e-2},
        "checkpoint": {"pretrained": str(folder / "model")},
        "logging": {"log_interval": 1},
        "losses": {"every_steps": 2},
        "bridge_overrides": {
            **ON_CPU,
            "checkpoint": {"save": None, "load": None},
            "dataset": {"num_workers": 0, "persistent_workers": False},
        },
        "guard": {"first_steps": 1, "every_steps": None},
        "ignore": IGNORED,
    }
    return small_recipe("", folder / "tokenizer", **sections).override(dict(changes))


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    """Return how each run ended."""
    requests = [_request(folder, name, RUNS[name]) for name in NAMES]
    variables = {**ENVIRONMENT, "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    answers = asked("tests.support.guarded_runs", requests, folder, limit_s=900, **variables)
    return dict(zip(NAMES, answers, strict=True))


def _request(folder: Path, name: str, run: Run) -> RunRequest:
    recipe, changes = folder / f"{name}.yaml", dict(run.changes)
    if "bridge_overrides.checkpoint" in changes:
        changes["checkpoint.folder"] = str(folder / "checkpoints")
        changes |= dict.fromkeys(("model.name", "checkpoint.pretrained"), str(folder / RESUMED_MODEL))
    if board := changes.get("logging.tensorboard_dir"):
        changes["logging.tensorboard_dir"] = str(folder / board)
    recipe.write_text(recipe_to_yaml(_recipe(folder, changes)), encoding="utf-8")
    run_folder = folder / "runs" / (run.folder or name)
    return RunRequest(
        world_size=run.world_size,
        arguments=("--recipe", str(recipe), "--run-folder", str(run_folder), "--artifact", str(folder / run.packs)),
        log=str(folder / "logs" / name),
        damage=run.damage,
        timeout_s=150.0,
        variables={seen_losses.FOLDER: str(folder / "seen" / name)},
    )


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / "runs" / name / "losses" / "by-source.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _notices(folder: Path, name: str) -> dict[str, str]:
    records = [json.loads(path.read_text()) for path in RunFolder(folder / "runs" / name).records("losses")]
    return {record["kind"]: record["text"] for record in records}


@pytest.mark.parametrize("name", [name for name in FOLLOWED if name in NAMES])
def test_losses_are_those_of_the_labels(results: Results, folder: Path, name: str) -> None:
    assert set(results[name]["exit_codes"]) == {0}, results[name]["outputs"][0][-3000:]
    lines, seen = _lines(folder, name), seen_losses.micro_batches(folder / "seen" / name)
    intervals: dict[tuple[str, int, int], dict[str, tuple[float, int]]] = {}
    for line in lines:
        place = (line["split"], line["first_step"], line["step"])
        assert line["unattributed"] == 0
        intervals.setdefault(place, {})[line["source"]] = line["loss_sum"], line["num_trained_tokens"]

    evaluations = [("validation", 2, 2), ("validation", 3, 3)] if "schedule.eval_iters" in RUNS[name].changes else []
    assert sorted(intervals) == [("training", 1, 2), ("training", 3, 3), *evaluations]
    num_checked = 0
    for (split, first, last), sources in intervals.items():
        steps = range(first, last + 1)
        expected = seen_losses.by_source(seen, FIRST_IDS, steps=steps, trains=split == "training")
        assert {source: count for source, (_, count) in sources.items()} == {
            source: count for source, (_, count) in expected.items()
        }
        for source, (loss, _) in sources.items():
            assert loss == pytest.approx(expected[source][0], rel=2e-6)
            num_checked += 1
    assert num_checked >= 5
    assert len({len(sources) for sources in intervals.values()}) > 1 or name != "one"  # `rare` is not in each
    assert _notices(folder, name) == {}


@pytest.mark.parametrize("name", [name for name in (*FOLLOWED[:3], "three-epochs") if name in NAMES])
def test_losses_of_rows_are_those_of_their_labels(results: Results, folder: Path, name: str) -> None:
    seen = seen_losses.micro_batches(folder / "seen" / name)
    artifact = Artifact(folder / RUNS[name].packs)
    splits, notes = read_row_losses(folder / "runs" / name / "losses", artifact)

    assert (splits.keys(), notes) == ({"training", "validation"}, ())
    for split, rows in splits.items():
        first_ids = [FIRST_IDS[source] for source in rows.sources]
        readings = {
            (step, first_ids[source] + row - 1): (loss, num_tokens)
            for step, source, row, loss, num_tokens in zip(
                rows.step.tolist(),
                rows.source.tolist(),
                rows.row.tolist(),
                rows.loss_sum.tolist(),
                rows.num_trained_tokens.tolist(),
                strict=True,
            )
        }
        assert readings == {
            key: (pytest.approx(loss, rel=2e-6), num_tokens)
            for key, (loss, num_tokens) in seen_losses.by_label(seen, trains=split == "training").items()
        }
        assert len(readings) == len(rows.step) > 50
    assert set(splits["training"].epoch.tolist()) == ({1, 2, 3} if name == "three-epochs" else {1})


def test_trackers_get_the_losses(results: Results, folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder / "board"))
    board.Reload()
    values = {
        (tag, event.step): event.value
        for tag in board.Tags()["scalars"]
        if tag.startswith("lm loss/")
        for event in board.Scalars(tag)
    }

    suffix = {"training": "", "validation": " validation"}
    assert values == {
        (f"lm loss/{line['source']}{suffix[line['split']]}", line["step"]): pytest.approx(
            line["loss_sum"] / line["num_trained_tokens"], rel=1e-6
        )
        for line in _lines(folder, "one")
    }
    assert len(values) >= 8


def test_training_is_bit_for_bit_what_it_is_without(results: Results, folder: Path) -> None:
    logs = [(folder / "seen" / name / "log0.jsonl").read_text() for name in ("one", "not-followed")]

    assert logs[0] == logs[1]
    assert len(logs[0].splitlines()) == NUM_STEPS
    assert not (folder / "runs" / "not-followed" / "losses").exists()


def test_a_pack_with_equal_boundaries_is_not_taken_for_another(results: Results, folder: Path) -> None:
    seen = seen_losses.micro_batches(folder / "seen" / "other-tokens")
    num_tokens = sum(sum(line["mask"]) for line in seen if line["step"] <= 2)

    assert results["other-tokens"]["exit_codes"] == [0]
    first = _lines(folder, "other-tokens")[0]
    assert (first["source"], first["step"]) == (None, 2)
    assert first["num_trained_tokens"] == first["unattributed"] == num_tokens
    assert {line["source"] for line in _lines(folder, "other-tokens")} == {None}
    assert _notices(folder, "other-tokens").keys() == {"doubt"}


def test_a_run_goes_on_in_the_middle_of_an_epoch_with_other_ranks(results: Results, folder: Path) -> None:
    """Two jobs in one folder, the second with twice the data-parallel ranks: the real loader of a resumed run."""
    exit_codes = [results[name]["exit_codes"] for name in ("begins", "goes-on")]
    assert exit_codes == [[0], [0, 0]], results["goes-on"]["outputs"][0][-3000:]
    jobs = [seen_losses.micro_batches(folder / "seen" / name) for name in ("begins", "goes-on")]
    losses = folder / "runs" / "goes-on" / "losses"
    lines = read_source_losses(losses)
    assert {(line.first_step, line.step, line.start) for line in lines} == {(1, 2, 1), (3, 4, 2)}
    for seen, steps in zip(jobs, ([1, 2], [3, 4]), strict=True):
        expected = seen_losses.by_source(seen, FIRST_IDS, steps=steps, trains=True)
        assert {line.source: (line.loss_sum, line.num_trained_tokens) for line in lines if line.step == steps[-1]} == {
            source: (pytest.approx(loss, rel=2e-6), num_tokens) for source, (loss, num_tokens) in expected.items()
        }
    rows = read_row_losses(losses, Artifact(folder / "packs"))[0]["training"]
    first_ids = np.array([FIRST_IDS[source] for source in rows.sources])
    keys = list(zip(rows.step.tolist(), (first_ids[rows.source] + rows.row - 1).tolist(), strict=True))
    labels = {key: value for seen in jobs for key, value in seen_losses.by_label(seen, trains=True).items()}
    assert dict(zip(keys, rows.num_trained_tokens.tolist(), strict=True)) == {
        key: num_tokens for key, (_, num_tokens) in labels.items()
    }
    assert rows.loss_sum.tolist() == pytest.approx([labels[key][0] for key in keys], rel=2e-6)


def test_what_fails_in_it_does_not_end_a_run(results: Results, folder: Path) -> None:
    """The report of a run in which the sums fail on every rank from the second step on."""
    assert results["fails"]["exit_codes"] == [0, 0]
    assert not (folder / "runs" / "fails" / "losses").exists()
    assert "MemoryError" in _notices(folder, "fails")["failed"]
