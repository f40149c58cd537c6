"""The guard in real runs: the host's own finetune() in several topologies, on CPU and gloo.

Each run is processes of its own without a launcher, so what ends one of them has to end the others by itself; a process
that hangs is killed after a while and has no exit code. One more run is under torchrun.
"""

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import build
from bridgepack.canaries.cpu import ENVIRONMENT
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.host import RELEASES
from bridgepack.running.assignment import RunFolder
from bridgepack.running.owning import OWNER_FILE
from tests.support.guarded_runs import RunRequest
from tests.support.host_forks import asked, hold
from tests.support.installed_host import host_release, host_version
from tests.support.messages import mentions
from tests.support.sabotage import NEWER_VERSION
from tests.support.small_builds import conversations_recipe, write_conversations
from tests.support.tiny_recipes import ON_CPU, VOCAB_SIZE, write_weights

pytestmark = pytest.mark.bridge

PROJECT = Path(__file__).parents[2]
#: Layers of the model: they spread evenly over 2 and 3 stages, and over 2 stages of 3 chunks.
NUM_LAYERS = 6
NUM_STEPS = 2
#: What a machine without a GPU breaks, with the reason that a recipe has to give.
IGNORED = {"BP984": "trained on CPU", "BP916": "trained on CPU"}
#: The guard stops what `check` finds before, if nobody wants to hear it.
IGNORED_BY_CHECK = {**IGNORED, "BP842": "the guard is tested"}
PIPELINE, TENSOR = "parallelism.pipeline_model_parallel_size", "parallelism.tensor_model_parallel_size"
CONTEXT, CHUNKS = "parallelism.context_parallel_size", "parallelism.virtual_pipeline_model_parallel_size"
NO_LOOK = {
    "bridge_overrides.rerun_state_machine": {"check_for_nan_in_loss": False},
    "bridge_overrides.ddp": {"check_for_nan_in_grad": False},
}
LOADED_BY_PROCESSES = {"bridge_overrides.dataset": {"num_workers": 1}}
#: A run that saves and goes on. The optimiser of a machine without TransformerEngine cannot be loaded in parts
#: (C/optimizer/distrib_optimizer.py:839), and here the second job is longer than the first.
SAVED = {
    "bridge_overrides.checkpoint": {"async_save": False},
    "bridge_overrides.optimizer": {"use_distributed_optimizer": False},
    "bridge_overrides.ddp": {"use_distributed_optimizer": False},
    "bridge_overrides.scheduler": {"override_opt_param_scheduler": True},
}
#: The same, into a folder of its own.
SHARED = {**SAVED, "checkpoint.folder": "shared"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        world_size: number of processes.
        changes: to the recipe.
        damage: what is broken, of tests/support/sabotage.py.
        ranks: where; everywhere where there are none.
        packs: which artifact.
        rival: name of a run that begins once this one owns its folder; when that ends, this one is killed.
    """

    world_size: int
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    damage: str = ""
    ranks: tuple[int, ...] = ()
    packs: str = "packs"
    rival: str = ""


def _recomputed(modules: list[str], *, targets: Sequence[str] = ("linear_fc1", "linear_fc2")) -> dict[str, Any]:
    """Return changes for LoRA in modules of the feed-forward part, some of which are recomputed."""
    model = {"recompute_granularity": "selective", "recompute_modules": modules}
    return {
        "method": {"kind": "lora", "target_modules": list(targets)},
        **{f"bridge_overrides.model.{name}": value for name, value in model.items()},
        "ignore": IGNORED_BY_CHECK,
    }


#: The other distributions are those of the installed release, and may be too old for what the version claims.
ON_A_NEWER_HOST = {"ignore": {**IGNORED, "BP980": "the version of megatron-bridge alone is changed"}}

RUNS: dict[str, Run] = {
    # What nothing is wrong with.
    "one": Run(world_size=1, changes={**SAVED, "schedule.eval_iters": 1, "schedule.eval_interval": 1}),
    "one-goes-on": Run(world_size=1, changes={**SAVED, "schedule.train_iters": 4}),
    "two-replicas-lora": Run(world_size=2, changes={"method": {"kind": "lora"}, **LOADED_BY_PROCESSES}),
    "three-stages": Run(world_size=3, changes={PIPELINE: 3, "model.recompute": "full"}),
    "two-stages-of-three-chunks": Run(world_size=2, changes={PIPELINE: 2, CHUNKS: 3}),
    "two-context-ranks": Run(world_size=2, changes={CONTEXT: 2}, packs="packs-for-context"),
    "dora": Run(world_size=1, changes={"method": {"kind": "dora"}}),
    "lora-over-tensor-ranks": Run(
        world_size=2, changes={TENSOR: 2, **_recomputed(["mlp"], targets=["linear_qkv", "linear_fc1"])}
    ),
    # What the guard has to stop.
    "adapters-recomputed": Run(world_size=2, changes=_recomputed(["mlp"])),
    "adapters-recomputed-in-the-first-stage": Run(world_size=2, changes={PIPELINE: 2, **_recomputed(["mlp"])}),
    "a-module-detached": Run(world_size=2, damage="detach the last layer"),
    "cut-middle-of-three-stages": Run(world_size=3, changes={PIPELINE: 3}, damage="cut boundaries", ranks=(1,)),
    "lost-in-the-step": Run(world_size=3, changes={PIPELINE: 3}, damage="lose boundaries in the step", ranks=(1,)),
    "lost-in-chunks": Run(
        world_size=2, changes={PIPELINE: 2, CHUNKS: 3}, damage="lose boundaries in the step", ranks=(1,)
    ),
    "lost-in-layers": Run(world_size=2, changes={PIPELINE: 2}, damage="lose boundaries in layers", ranks=(1,)),
    "tensor-ranks-differ": Run(world_size=2, changes={TENSOR: 2}, damage="join sequences", ranks=(1,)),
    "context-ranks-differ": Run(
        world_size=2, changes={CONTEXT: 2}, damage="join sequences", ranks=(1,), packs="packs-for-context"
    ),
    "joined-everywhere": Run(world_size=2, damage="join sequences"),
    "shifted-mask": Run(world_size=2, damage="shift mask", ranks=(1,)),
    "nan-that-the-host-sees": Run(world_size=2, changes={PIPELINE: 2}, damage="loss of nan", ranks=(1,)),
    "infinity-that-nobody-sees": Run(
        world_size=2, changes={PIPELINE: 2, **NO_LOOK}, damage="loss of infinity", ranks=(1,)
    ),
    "joined-on-a-newer-host": Run(world_size=2, changes=ON_A_NEWER_HOST, damage="join sequences on a newer host"),
    "nan-on-a-newer-host": Run(
        world_size=2, changes={PIPELINE: 2, **ON_A_NEWER_HOST}, damage="loss of nan on a newer host"
    ),
    "ignored": Run(world_size=1, changes={"ignore": {**IGNORED, "BP892": "a new collate"}}, damage="join sequences"),
    # What ends a job otherwise.
    "other-packs": Run(world_size=1, changes={**SAVED, "schedule.train_iters": 4}, packs="other-packs"),
    "a-shard-replaced": Run(world_size=2, damage="replace a shard", ranks=(0,), packs="packs-to-replace"),
    "one-rank-fails": Run(world_size=2, damage="no memory", ranks=(1,)),
    "killed-beside-its-rival": Run(
        world_size=1, changes={**SHARED, "schedule.train_iters": 1000}, rival="saves-where-another-does"
    ),
    "takes-over-from-the-killed": Run(world_size=1, changes=SHARED, packs="other-packs"),
    "check-fails": Run(world_size=2, changes={"ignore": {}}),
    "other-number-of-gpus": Run(world_size=2, changes={"parallelism.num_gpus": 4}),
}
RIVALS = {"saves-where-another-does": Run(world_size=1, changes=SHARED, packs="other-packs")}
CLEAN = (
    *("one", "one-goes-on", "two-replicas-lora", "three-stages", "two-stages-of-three-chunks", "two-context-ranks"),
    *("dora", "lora-over-tensor-ranks"),
)
#: Runs of the quick tier; the tests of the others are `full`.
QUICK = (
    *("adapters-recomputed", "one", "two-context-ranks", "lost-in-layers", "joined-everywhere"),
    "joined-on-a-newer-host",
)

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with conversations, a tokenizer, a model and four artifacts."""
    folder = write_conversations(tmp_path_factory.mktemp("guard"), limit=200, vocab_size=VOCAB_SIZE)
    write_weights(folder / "model", num_layers=NUM_LAYERS)
    build(_recipe(folder, {}), output=folder / "packs")
    build(_recipe(folder, {CONTEXT: 2}), output=folder / "packs-for-context")
    build(_recipe(folder, {"packing.algorithm": "first_fit_shuffle"}), output=folder / "other-packs")
    shutil.copytree(folder / "packs", folder / "packs-to-replace")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path, request: pytest.FixtureRequest) -> Results:
    """Return how each run ended; all are forked from one process, as importing the host takes longer than they do.

    Where no test here that is `full` is to run, only the quick runs do.
    """
    here = [item for item in request.session.items if item.path == request.path]
    names = RUNS if any(item.get_closest_marker("full") for item in here) else QUICK
    requests = [_request(folder, name, RUNS[name]) for name in names]
    variables = {**ENVIRONMENT, "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    results = asked("tests.support.guarded_runs", requests, folder, limit_s=900, **variables)
    return dict(zip(names, results, strict=True))


def _by_tier(names: Iterable[str]) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in names]


def _recipe(folder: Path, changes: dict[str, Any]) -> SFTRecipe:
    sections = {
        "name": "guarded",
        "packing": {"packed_sequence_size": 256, "max_sequence_length": 256},
        "preprocessing": {"kind": "chat", "over_long": "truncate"},
        "batch": {"global_batch_size": 4, "eval_global_batch_size": 2},
        "model": {"name": str(folder / "model")},
        "schedule": {"train_iters": NUM_STEPS, "eval_iters": 0},
        "optimizer": {"lr": 1e-3},
        "checkpoint": {"pretrained": str(folder / "model")},
        "bridge_overrides": {
            **ON_CPU,
            "checkpoint": {"save": None, "load": None},
            "dataset": {"num_workers": 0, "persistent_workers": False},
        },
        "guard": {"first_steps": 2, "every_steps": None},
        "ignore": IGNORED,
    }
    return conversations_recipe(folder, **sections).override(changes)


def _request(folder: Path, name: str, run: Run) -> RunRequest:
    return RunRequest(
        world_size=run.world_size,
        arguments=tuple(_arguments(folder, name, run)),
        log=str(folder / "logs" / name),
        damage=run.damage,
        ranks=run.ranks,
        timeout_s=150.0,
        awaits=str(folder / "shared" / OWNER_FILE) if run.rival else "",
        rival=_request(folder, run.rival, RIVALS[run.rival]) if run.rival else None,
    )


def _arguments(folder: Path, name: str, run: Run) -> Sequence[str]:
    recipe, changes = folder / f"{name}.yaml", dict(run.changes)
    if "bridge_overrides.checkpoint" in changes:
        changes["checkpoint.folder"] = str(folder / changes.get("checkpoint.folder", "checkpoints"))
    recipe.write_text(recipe_to_yaml(_recipe(folder, changes)), encoding="utf-8")
    return "--recipe", str(recipe), "--run-folder", str(folder / "runs" / name), "--artifact", str(folder / run.packs)


def _environment(folder: Path) -> dict[str, str]:
    own = {"HF_HOME": str(folder / "hf-home"), "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    return {**os.environ, **ENVIRONMENT, **own, "PYTHONPATH": os.pathsep.join([str(PROJECT), *filter(None, sys.path)])}


def _told(results: Results, name: str) -> str:
    """Return what the first process printed from the last message of bridgepack on."""
    output = str(results[name]["outputs"][0])
    begins = [output.rfind(text) for text in ("guard: stopped", "refused:", "error: ", " failed: ")]
    return output[max(begins) :]


def _violation(folder: Path, name: str) -> dict[str, Any]:
    (record,) = RunFolder(folder / "runs" / name).records("guard-violation")
    return dict(json.loads(record.read_text()))


def _watched(folder: Path, name: str) -> dict[str, Any]:
    return _told_records(folder, name)["watched"]


def _told_records(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return kind -> record, of what the guard told in a run."""
    records = [json.loads(path.read_text()) for path in RunFolder(folder / "runs" / name).records("guard")]
    return {record["kind"]: dict(record) for record in records}


def _cannot_load_again() -> bool:
    """Return whether the host fails with a checkpoint of a model that is built from parts, as Llama is in 0.7.

    It looks for parallel sizes beside the model's transformer instead of in it (training/checkpointing.py:2831 of main
    of 2026-08-22).
    """
    return bool(host_release().built_from_parts)


@pytest.mark.parametrize("name", _by_tier(CLEAN))
def test_a_run_that_nothing_is_wrong_with_ends_well(results: Results, folder: Path, name: str) -> None:
    result = results[name]
    if name == "one-goes-on" and _cannot_load_again():
        assert result["exit_codes"] == [1]
        assert "rank 0 failed: KeyError: 'tensor_model_parallel_size'" in result["outputs"][0]
        return

    assert result["exit_codes"] == [0] * RUNS[name].world_size, "\n".join(result["outputs"])[-8000:]
    watched = _watched(folder, name)
    assert (watched["kind"], watched["num_ranks"]) == ("watched", RUNS[name].world_size)
    assert watched["steps"] == ([3, 4] if name == "one-goes-on" else [1, 2])
    assert watched["has_plan"]
    assert watched["trained_tokens_of_last_step"] > 0
    assert "Traceback" not in _told(results, name)


@pytest.mark.full
def test_a_shard_that_is_replaced_after_the_check_stops_the_run(results: Results, folder: Path) -> None:
    result, (record,) = results["a-shard-replaced"], RunFolder(folder / "runs" / "a-shard-replaced").records("changed")

    assert result["exit_codes"] == [1, 1]
    (shard,) = (folder / "packs-to-replace" / "training").glob("*.parquet")
    assert f"training/{shard.name}: it" in json.loads(record.read_text())["message"]
    assert "packs-to-replace' changed after " in result["outputs"][0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "trained", "num_modules"),
    [
        # 6 layers x rank 32 x (linear_qkv 64 + 128, linear_proj 64 + 64, linear_fc1 64 + 256, linear_fc2 128 + 64)
        ("two-replicas-lora", 6 * 32 * (192 + 128 + 320 + 192), 24),
        ("lora-over-tensor-ranks", 6 * 32 * (192 + 320), 12),
        ("three-stages", None, 39),
        ("one", None, 39),
    ],
)
def test_trained_weights_are_counted(
    results: Results, folder: Path, name: str, trained: int | None, num_modules: int
) -> None:
    record = _told_records(folder, name)["trains"]

    assert results[name]["exit_codes"] == [0] * RUNS[name].world_size
    assert record["num_modules"] == num_modules
    assert record["trained_weights"] == (trained or record["weights"])
    base = _told_records(folder, "one")["trains"]["weights"]
    assert record["weights"] == base + (trained or 0)


@pytest.mark.full
def test_two_runs_do_not_save_into_one_folder_at_once(results: Results, folder: Path) -> None:
    """Both ended well before, and the folder held whoever wrote last; only two real starts find that."""
    killed, after = results["killed-beside-its-rival"], results["takes-over-from-the-killed"]
    output, file = killed["rival"]["outputs"][0], folder / "shared" / OWNER_FILE

    assert killed["exit_codes"] == [-9]
    assert killed["rival"]["exit_codes"] == [2]
    told = output[output.rindex("error: ") :]
    fingerprint = json.loads((folder / "packs" / "manifest.json").read_text())["fingerprint"]
    for word in (str(folder / "shared"), str(file), socket.gethostname(), fingerprint[:12], "guarded"):
        assert word in told
    assert "Traceback" not in output
    assert after["exit_codes"] == [0], after["outputs"][0][-4000:]
    assert not file.exists()


@pytest.mark.full
def test_trained_tokens_do_not_depend_on_the_topology(results: Results, folder: Path) -> None:
    tokens = {name: _watched(folder, name)["trained_tokens_of_last_step"] for name in CLEAN[2:5]}

    assert len(set(tokens.values())) == 1
    assert results["one"]["exit_codes"] == [0]


@pytest.mark.full
def test_the_run_folder_has_what_the_run_was_made_of(results: Results, folder: Path) -> None:
    run_folder = RunFolder(folder / "runs" / "one-goes-on")
    run = run_folder.read("run.json") or {}
    manifest = json.loads((folder / "packs" / "manifest.json").read_text())

    assert results["one-goes-on"]["exit_codes"] == [int(_cannot_load_again())]
    assert run["fingerprint"] == manifest["fingerprint"]
    assert run["world_size"] == 1
    assert run["versions"]["megatron-bridge"] == host_version()
    assert run["resumed_from"] == str(folder / "checkpoints")
    assert load_recipe(run_folder.path / "recipe.yaml").name == "guarded"
    assert json.loads((folder / "checkpoints" / "bridgepack.json").read_text())["seed"] == 1234


STOPPED = {
    "cut-middle-of-three-stages": ("BP890", "rank 1 (pipeline stage 1 of 0-2)", "the loader gave boundaries in 0 of 4"),
    "lost-in-the-step": ("BP890", "rank 1 (pipeline stage 1 of 0-2)", "the loader gave boundaries in 4 of 4"),
    "lost-in-chunks": ("BP890", "rank 1 (pipeline stage 1 of 0-1)", "12 of 12 forward passes without boundaries"),
    "lost-in-layers": ("BP890", "rank 1 (pipeline stage 1 of 0-1)", "layer 4 self_attention"),
    "tensor-ranks-differ": ("BP891", "rank 1 (tensor rank 1 of 0-1)", "micro batch 0"),
    "context-ranks-differ": ("BP891", "rank 1 (context rank 1 of 0-1)", "micro batch 0"),
    "joined-everywhere": ("BP892", "rank 0 (data-parallel rank 0 of 0-1)", "micro batch 0 (pack "),
    "shifted-mask": ("BP893", "rank 1 (data-parallel rank 1 of 0-1)", "trained tokens"),
    "nan-that-the-host-sees": ("BP894", "rank 1 (pipeline stage 1 of 0-1)", "not finite"),
    "infinity-that-nobody-sees": ("BP894", "rank 1 (pipeline stage 1 of 0-1)", "micro batch 0: "),
    "adapters-recomputed": (
        "BP897",
        "",
        "no gradient in any of the 12 modules with trained weights (layer 1 mlp.linear_fc1",
    ),
    "adapters-recomputed-in-the-first-stage": (
        "BP897",
        "rank 0 (pipeline stage 0 of 0-1)",
        "6 of 6 modules had no gradient in any step so far (layer 1 mlp.linear_fc1.adapter, ",
    ),
    "a-module-detached": (
        "BP897",
        "rank 0 (data-parallel rank 0 of 0-1)",
        "(layer 6 input_layernorm, layer 6 self_attention.linear_proj, layer 6 self_attention.linear_qkv)",
    ),
}


@pytest.mark.parametrize("name", _by_tier(STOPPED))
def test_the_guard_stops_every_process_and_names_rule_and_place(results: Results, folder: Path, name: str) -> None:
    code, place, evidence = STOPPED[name]
    result, told = results[name], _told(results, name)
    step = 1 if place == "" or code not in {"BP894", "BP897"} else 2

    assert result["exit_codes"] == [1] * RUNS[name].world_size, "\n".join(result["outputs"])[-8000:]
    assert told.removeprefix("guard: stopped at step ").startswith(f"{step}.\n{code} ")
    assert (f"step {step}, {place}" if place else f"where:   step {step}") in told
    assert evidence in told
    assert f"bridgepack explain {code}" in told
    # A process whose neighbour stopped first may lose its connection (in many words of gloo's) before it is told.
    assert "Traceback" not in told or "gloo/transport/tcp" in told
    assert all("guard: stopped" not in output for output in result["outputs"][1:])
    record = _violation(folder, name)
    assert record["step"] == step
    assert record["findings"][0]["code"] == code
    assert place in record["findings"][0]["where"]


@pytest.mark.full
def test_a_rule_that_the_recipe_ignores_is_told_and_does_not_stop(results: Results, folder: Path) -> None:
    records = [json.loads(path.read_text()) for path in RunFolder(folder / "runs" / "ignored").records("guard")]

    assert results["ignored"]["exit_codes"] == [0], results["ignored"]["outputs"][0][-8000:]
    assert [record["kind"] for record in records] == ["trains", "ignored", "watched"]
    assert "BP892 boundaries-not-those-of-the-plan is ignored" in records[1]["text"]


def test_findings_on_a_version_that_is_not_known_do_not_stop(results: Results, folder: Path) -> None:
    result = results["joined-on-a-newer-host"]
    output = result["outputs"][0]
    records = [
        json.loads(path.read_text()) for path in RunFolder(folder / "runs/joined-on-a-newer-host").records("guard")
    ]

    assert result["exit_codes"] == [0, 0], output[-8000:]
    assert "guard: findings do not" in output
    assert output.count(f"the run, as megatron-bridge {NEWER_VERSION} is newer") == 1
    assert mentions(output, f"Megatron-Bridge up to {RELEASES[-1].name}; ", "pip install -U")
    assert "not stopped at step 1.\nBP892 " in output
    assert "BP892" not in result["outputs"][1]
    assert [record["kind"] for record in records] == ["newer", "trains", "doubted", "watched"]
    assert records[2]["findings"][0]["code"] == "BP892"


@pytest.mark.full
def test_an_error_on_a_version_that_is_not_known_ends_all(results: Results) -> None:
    result = results["nan-on-a-newer-host"]

    assert result["exit_codes"] == [1, 1], "\n".join(result["outputs"])[-8000:]
    assert "not stopped at step 2.\nBP894 " in "".join(result["outputs"])
    assert "guard: stopped" not in "".join(result["outputs"])
    assert "rank 1 failed: " in result["outputs"][0]


@pytest.mark.full
def test_a_resumed_job_that_finds_other_packs_refuses(results: Results, folder: Path) -> None:
    told = _told(results, "other-packs")

    assert results["other-packs"]["exit_codes"] == [1]
    assert "BP895 resumed-with-another-artifact" in told
    assert f"artifact {folder / 'packs'} with fingerprint" in told
    assert "Starting training loop" not in results["other-packs"]["outputs"][0]


@pytest.mark.full
def test_an_error_of_one_process_ends_all(results: Results) -> None:
    result = results["one-rank-fails"]

    assert result["exit_codes"] == [1, 1], "\n".join(result["outputs"])[-8000:]
    assert "rank 1 failed: MemoryError: no memory" in result["outputs"][0]
    assert "Traceback" in result["outputs"][1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("check-fails", 1, "BP984"),
        ("other-number-of-gpus", 2, "parallelism.num_gpus is 4, and this job has 2 processes"),
    ],
)
def test_what_cannot_start_ends_with_one_message(results: Results, name: str, code: int, message: str) -> None:
    result = results[name]

    assert result["exit_codes"] == [code, code], "\n".join(result["outputs"])[-8000:]
    assert message in result["outputs"][0]
    assert "Traceback" not in result["outputs"][0]
    assert message not in result["outputs"][1]
    assert "Starting training loop" not in result["outputs"][0]


@pytest.mark.full
def test_torchrun_ends_with_the_message_and_the_exit_code(folder: Path) -> None:
    """What the ranks of the other runs do without a launcher, torchrun tells once, and ends with their exit code."""
    hold()  # its ranks are forks, too
    run = Run(world_size=2, changes={PIPELINE: 2}, damage="cut boundaries", ranks=(1,))
    log_path = folder / "torchrun-log"
    with log_path.open("w") as log:
        torchrun = subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
                *("-m", "tests.support.host_forks", "tests.support.train_on_cpu"),
                *_arguments(folder, "under-torchrun", run),
            ],
            cwd=PROJECT,
            env={**_environment(folder), "BRIDGEPACK_TEST_DAMAGE": run.damage, "BRIDGEPACK_TEST_RANKS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            code = torchrun.wait(timeout=300)
        finally:
            torchrun.terminate()  # it ends its workers, too
            torchrun.wait(timeout=60)
    output = log_path.read_text(errors="replace")

    assert code == 1, output[-8000:]
    assert "BP890 stage-trained-without-boundaries" in output, output[-8000:]
    assert output.count("guard: stopped at step 1.") == 1
    assert "rank 1 (pipeline stage 1 of 0-1)" in output
    assert _violation(folder, "under-torchrun")["findings"][0]["code"] == "BP890"
