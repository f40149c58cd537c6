"""`bridgepack launch` on this machine: build, check, and steps of megatron-bridge's own finetune() on CPU with gloo.

What CPUs cannot do is replaced inside the training processes, as tests/support/launched_training.py says.
"""

import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from tests.support.host_forks import hold
from tests.support.installed_host import host_version
from tests.support.launched_training import task_environment
from tests.support.launches import ended, states
from tests.support.messages import mentions
from tests.support.processes import commands_with, started, wait_until
from tests.support.small_builds import CLI, write_conversations
from tests.support.tiny_recipes import NUM_LAYERS, NUM_PACKS_PER_STEP, VOCAB_SIZE, tiny_recipe, write_weights

pytestmark = [pytest.mark.bridge, pytest.mark.full]

NUM_STEPS = 3
_IGNORED = {"BP916": "attention of the tests takes packed rows", "BP984": "nothing needs TransformerEngine on CPU"}


@dataclass(frozen=True)
class Desk:
    """A folder of a user, and what the command does there."""

    folder: Path

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start a launch in a process group of its own, as a terminal does."""
        variables = {**os.environ, **task_environment(self.folder), "NEMORUN_HOME": str(self.folder / "nemo run")}
        command = (*CLI, "launch", *arguments, "--json")
        return started(*command, folder=self.folder, variables=variables, has_own_group=True)

    def launch(self, *arguments: object) -> tuple[int, dict[str, Any], str]:
        """Return the exit code of a launch, what it printed as JSON, and what it said beside."""
        return ended(self.start(*arguments))


def log_of(result: dict[str, Any], name: str) -> str:
    log = next(task["log"] for task in result["tasks"] if task["name"] == name)
    return Path(log).read_text(errors="replace")


def recipe_for(folder: Path, **changes: Any) -> SFTRecipe:
    return tiny_recipe(folder, "dense", "full").override(
        {
            "schedule": {"train_iters": NUM_STEPS, "eval_iters": 1, "eval_interval": NUM_STEPS},
            "checkpoint.save_interval": NUM_STEPS,
            "checkpoint.pretrained": str(folder / "model"),
            "model.name": str(folder / "model"),
            "ignore": _IGNORED,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with conversations, a tokenizer and a model of random weights."""
    folder = tmp_path_factory.mktemp("desk") / "a b ü"
    folder.mkdir()
    write_conversations(folder, limit=200, vocab_size=VOCAB_SIZE)
    write_weights(folder / "model", num_layers=NUM_LAYERS)
    (folder / "recipe.yaml").write_text(recipe_to_yaml(recipe_for(folder)))
    return Desk(folder)


@pytest.fixture(scope="module")
def first(desk: Desk) -> dict[str, Any]:
    """Return the outcome of a launch of all tasks with one process."""
    code, result, errors = desk.launch("recipe.yaml", "--cluster", "local", "--follow")
    assert code == 0, errors[-5000:]
    return {**result, "errors": errors}


def test_one_process_trains_what_was_built_and_checked(desk: Desk, first: dict[str, Any]) -> None:
    run_folder = Path(first["run_folder"])

    assert states(first) == {"build": "succeeded", "check": "succeeded", "train": "succeeded"}
    assert run_folder.parent == desk.folder / "bridgepack-runs" / "runs"
    _assert_trained(first, num_processes=1)
    place = json.loads((run_folder / "artifact.json").read_text())
    run_facts = json.loads((run_folder / "run.json").read_text())
    assert Path(place["path"]).parent == desk.folder / "bridgepack-runs" / "artifacts"
    assert (place["path"], place["fingerprint"]) == (run_facts["artifact"], run_facts["fingerprint"])
    tracker = desk.folder / "dense-full-ragged" / "latest_checkpointed_iteration.txt"
    assert tracker.read_text().strip() == str(NUM_STEPS)
    assert re.search(r"^build/0 .*Built .*bridgepack-runs/artifacts", first["errors"], re.M)
    assert re.search(rf"^train/0 .*iteration +{NUM_STEPS}/", first["errors"], re.M)
    assert re.search(r"^ +\d+\.\d s  train succeeded$", first["errors"], re.M)


def _assert_trained(result: dict[str, Any], *, num_processes: int) -> None:
    """Assert that all steps were made on the packs that the run's folder names, by so many processes."""
    run_folder = Path(result["run_folder"])
    facts = {name: json.loads((run_folder / name).read_text()) for name in ("run.json", "launch.json")}
    manifest = json.loads(Path(facts["run.json"]["artifact"], "manifest.json").read_text())
    losses = re.findall(rf"iteration +(\d)/ +{NUM_STEPS} \|.*lm loss: (\S+)", log_of(result, "train"))
    assert [step for step, _ in losses] == [str(step) for step in range(1, NUM_STEPS + 1)]
    assert all(0 < float(loss) < 20 for _, loss in losses)
    assert facts["run.json"]["world_size"] == facts["launch.json"]["world_size"] == num_processes
    assert facts["run.json"]["fingerprint"] == manifest["fingerprint"]
    assert facts["run.json"]["order"]["global_batch_size"] == NUM_PACKS_PER_STEP
    assert facts["run.json"]["versions"]["megatron-bridge"] == host_version()
    assert (run_folder / "recipe.yaml").is_file()
    reports = [json.loads(path.read_text()) for path in sorted((run_folder / "records").glob("check-*.json"))]
    assert [report["summary"]["num_errors"] for report in reports] == [0] * len(reports)
    assert reports


def test_two_processes_of_torchrun_train_packs_that_are_there(desk: Desk, first: dict[str, Any]) -> None:
    """The launch above imports the host in its task; these two ranks are forks (tests/support/launched_training.py)."""
    hold()
    packs = json.loads((Path(first["run_folder"]) / "artifact.json").read_text())["path"]
    no_saving = {"checkpoint.folder": None, "bridge_overrides.checkpoint": {"save": None, "load": None}}
    changes = {"parallelism.num_gpus": 2, **no_saving}
    (desk.folder / "two.yaml").write_text(recipe_to_yaml(recipe_for(desk.folder, **changes)))
    code, result, errors = desk.launch("two.yaml", "--cluster", "torchrun", "--artifact", packs, "--skip", "check")

    assert (code, states(result)) == (0, {"train": "succeeded"}), errors[-5000:]
    _assert_trained(result, num_processes=2)


def test_an_interrupted_build_leaves_no_process_and_no_half_of_an_artifact(desk: Desk) -> None:
    rows = (desk.folder / "training.jsonl").read_text()
    (desk.folder / "many.jsonl").write_text(rows * 100)
    workspace = desk.folder / "interrupted"
    wide = ("--set", "data.train=many.jsonl", "--cluster-set", f"workspace={workspace.name}", "--skip", "train")
    launch = desk.start("recipe.yaml", "--cluster", "local", *wide)
    wait_until(lambda: list(workspace.glob("artifacts/.*.building")), process=launch)
    os.kill(launch.pid, signal.SIGINT)
    code, result, errors = ended(launch)

    assert (code, states(result)) == (130, {"build": "cancelled", "check": "not started"}), errors
    assert mentions(errors, "interrupted; ", "build was ended; ", "check was not started; ", "left behind: ")
    wait_until(lambda: not commands_with(f"BRIDGEPACK_RUN={result['run_name']}"))
    # Finished tokens are kept; a working folder is where the build needed more than its grace to end.
    assert [entry.name for entry in (workspace / "artifacts").iterdir() if not entry.name.startswith(".")] == []
