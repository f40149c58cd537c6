"""The GitHub action and the GitLab job of docs/ci.md: their steps run as a runner would run them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.e2e.test_pre_commit import MENDABLE, OFFLINE_PIP
from tests.support.docs_blocks import PROJECT, blocks

pytestmark = pytest.mark.full

ACTION = YAML(typ="safe", pure=True).load((PROJECT / "action.yml").read_text())


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables of a machine with its own Python, where pip finds all but bridgepack installed."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        **OFFLINE_PIP,
        "PIP_FORCE_REINSTALL": "1",
        "GITHUB_ACTION_PATH": str(PROJECT),
    }


def _run_action(folder: Path, variables: dict[str, str], **given: str) -> tuple[int, str, dict[str, str]]:
    """Run the steps that have a script; return exit code, output, and what the last step tells later ones."""
    inputs = {name: item.get("default", "") for name, item in ACTION["inputs"].items()} | given
    told, code, output = folder / "github_output", 0, ""
    for step in [step for step in ACTION["runs"]["steps"] if "run" in step]:
        values = {name: _filled(text, inputs) for name, text in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={**variables, **values, "GITHUB_OUTPUT": str(told)},
            capture_output=True,
            text=True,
            check=False,
        )
        code, output = done.returncode, output + done.stdout
        assert step.get("id") == "check" or code == 0, done.stderr
    return code, output, dict(line.split("=", 1) for line in told.read_text().splitlines())


def _filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


def test_action_annotates_and_writes_sarif(runner: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MENDABLE)
    code, output, told = _run_action(tmp_path, runner, target="mine.yaml", arguments="--no-files --select BP101")
    assert (code, told) == (1, {"exit-code": "1"})
    assert "::error file=mine.yaml,line=4,title=BP101 " in output
    run = json.loads((tmp_path / "bridgepack.sarif").read_text())["runs"][0]
    assert [result["ruleId"] for result in run["results"]] == ["BP101"]
    assert "invocations" not in run  # --select leaves the host out
    assert "real-validate" not in output

    (tmp_path / "mine.yaml").write_text(MENDABLE.replace("packing", "pakcing"))
    code, output, told = _run_action(tmp_path, runner, target="mine.yaml")
    assert (code, told) == (2, {"exit-code": "2"})
    assert "::error file=mine.yaml,line=4,title=cannot-be-read::pakcing is not " in output
    assert "pakcing" in (tmp_path / "bridgepack.sarif").read_text()


def test_action_says_whether_the_host_itself_has_judged(runner: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MENDABLE)
    _, output, _ = _run_action(tmp_path, runner, target="mine.yaml", **{"real-validate": "true"})
    not_judged = "not validated by Megatron-Bridge itself: model is missing"
    assert f"::notice title=real-validate::{not_judged}" in output
    [invocation] = json.loads((tmp_path / "bridgepack.sarif").read_text())["runs"][0]["invocations"]
    [notification] = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"].startswith(not_judged)


def test_action_names_inputs_and_steps_that_are_there() -> None:
    text = (PROJECT / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert set(re.findall(r"steps\.([\w-]+)\.", text)) <= {step.get("id") for step in ACTION["runs"]["steps"]}


def _snippet(heading: str) -> Any:
    (text,) = [block.text for block in blocks("yml", page="ci.md") if block.heading == heading]
    return YAML(typ="safe", pure=True).load(text)


def test_snippets_name_what_is_there(runner: dict[str, str], tmp_path: Path) -> None:
    hooks = YAML(typ="safe", pure=True).load((PROJECT / ".pre-commit-hooks.yaml").read_text())
    used = _snippet("## pre-commit")["repos"][0]["hooks"]
    assert {hook["id"] for hook in used} <= {hook["id"] for hook in hooks}
    step = _snippet("## GitHub")["jobs"]["recipe"]["steps"][1]
    assert set(step["with"]) <= set(ACTION["inputs"])

    job = _snippet("## GitLab")["bridgepack"]
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(MENDABLE)
    script = "\n".join(line.replace(" bridgepack", f" {PROJECT}") if "pip" in line else line for line in job["script"])
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=runner, check=False)
    assert done.returncode == 1
    report = json.loads((tmp_path / job["artifacts"]["reports"]["codequality"]).read_text())
    assert {"path": "recipes/mine.yaml", "lines": {"begin": 4}} in [entry["location"] for entry in report]
    assert {entry["severity"] for entry in report} <= {"info", "minor", "major", "critical", "blocker"}
    assert len({entry["fingerprint"] for entry in report}) == len(report)
