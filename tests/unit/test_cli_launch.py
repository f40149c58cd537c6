"""`bridgepack launch` on the command line: mistakes, refusals, dry runs, JSON, exit codes."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launches import write_launch_recipe
from tests.support.messages import mentions
from tests.support.small_builds import Command, environment

pytest.importorskip("nemo_run")


@pytest.fixture
def folder(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a b ü"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_launch_recipe(folder, chatml_tokenizer)
    Path("cluster.yaml").write_text("executor: {kind: local}\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "RECIPE is missing; e.g. bridgepack launch recipe.yaml --cluster local."),
        (("recipe.yaml",), "--cluster CLUSTER is missing"),
        (("nope.yaml", "--cluster", "local"), "recipe is 'nope.yaml'"),
        (("recipe.yaml", "--cluster", "nope.yaml"), "cluster is 'nope.yaml'"),
        (("recipe.yaml", "--cluster", ""), "cluster is ''"),
        (("recipe.yaml", "--cluster", "local", "--skip", "trian"), "build, check, train. Did you mean train?"),
        (("recipe.yaml", "--cluster", "local", "--set", "packing.seed=x"), "packing.seed is 'x'"),
        (("recipe.yaml", "--cluster", "local", "--cluster-set", "executor.nodes"), "--cluster-set 'executor.nodes'"),
        (("recipe.yaml", "--cluster", "local", "--cluster-set", "executor.acount=1"), "executor.acount"),
        pytest.param(
            ("recipe.yaml", "--cluster", "local", "--detach"),
            "--detach: the build task runs on this machine",
            marks=pytest.mark.bridge,
        ),
        (("recipe.yaml", "--cluster", "local", "--detach", "--follow"), "--detach and --follow contradict"),
        (("recipe.yaml", "--cluster", "local", "--dry-run", "--follow"), "--dry-run and --follow contradict"),
        (("recipe.yaml", "--cluster", "local", "--artifact", ""), "artifact is ''; allowed: a path."),
    ],
)
def test_mistakes_leave_nothing(folder: Path, command: Command, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(folder.rglob("*"))
    ran = command("launch", *arguments)

    assert (ran.code, ran.output) == (2, "")
    assert message in ran.errors
    assert sorted(folder.rglob("*")) == before


@pytest.mark.bridge
def test_broken_recipe_never_reaches_nemo_run(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bridgepack.launching.experiment", raising=False)
    arguments = ("recipe.yaml", "--cluster", "local", "--set", "batch.micro_batch_size=2")
    before = sorted(folder.rglob("*"))
    ran = command("launch", *arguments)

    assert ran.code == 1
    assert "error[BP004]: micro-batch-size-not-one" in ran.output
    assert mentions(ran.errors, "error: the check found", "nothing was submitted\n")
    assert "bridgepack.launching.experiment" not in sys.modules
    assert sorted(folder.rglob("*")) == before

    content = json.loads(command("launch", *arguments, "--json").output)
    assert content["is_submitted"] is False
    assert content["check"]["summary"]["num_errors"] == 1


@pytest.mark.bridge
def test_dry_run(folder: Path, command: Command) -> None:
    before = sorted(folder.rglob("*"))
    text = command("launch", "recipe.yaml", "--cluster", "cluster.yaml", "--dry-run", "--set", "packing.seed=3")
    content = json.loads(command("launch", "recipe.yaml", "--cluster", "cluster.yaml", "--dry-run", "--json").output)

    assert text.code == 0
    assert mentions(text.output, "build on local, ", "check on local, ", "train on local")
    assert "  seed: 3" in text.output
    assert "submitted or written" in text.output
    assert [script["task"] for script in content["scripts"]] == ["build", "check", "train"]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.bridge
@pytest.mark.usefixtures("nemo_home")
def test_a_failed_launch_gives_1_and_the_log(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data changes between the check and the build, which then finds no row."""
    monkeypatch.setenv("PYTHONPATH", environment(folder)["PYTHONPATH"])
    Path("rows.jsonl").write_text("not json\n")
    ran = command("launch", "recipe.yaml", "--cluster", "local")

    assert ran.code == 1
    lines = ran.output.splitlines()
    assert lines[0].startswith("build       failed  after ")
    assert lines[1:3] == ["check       not started", "train       not started"]
    log = Path(lines[0].partition("  log ")[2])
    assert log.read_text().splitlines()[-1] in ran.output
    assert "build failed" in ran.errors
    assert len(list(folder.glob("bridgepack-runs/runs/*/recipe.yaml"))) == 1


def test_plans_need_no_nemo_run() -> None:
    program = (
        "import sys; sys.modules['nemo_run'] = None; sys.modules['torch'] = None\nimport bridgepack.launching.plan"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_missing_nemo_run_says_what_to_install(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("bridgepack.api.launches.find_spec", lambda name: None if name == "nemo_run" else find(name))
    ran = command("launch", "recipe.yaml", "--cluster", "local")

    assert (ran.code, ran.output) == (2, "")
    assert 'pip install -e ".[launch]"' in ran.errors
