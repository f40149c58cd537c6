"""preview: what would be submitted, and that no partial files remain."""

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nemo_run")

from nemo_run.config import get_nemorun_home
from ruamel.yaml import YAML

from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError, LaunchError
from bridgepack.launching.dry_run import preview
from bridgepack.launching.plan import plan_launch
from bridgepack.records.launches import DryRun
from bridgepack.reporting.results.launches import dry_run_blocks
from bridgepack.reporting.screen import screen
from bridgepack.running.assignment import decode
from tests.support.full_clusters import least_executor

pytestmark = pytest.mark.bridge

IMAGE = {"container_image": "nemo.sqsh", "container_mounts": ["/shared:/shared"]}
SLURM = {"kind": "slurm", "account": "research", "nodes": 2, "gpus_per_node": 4, **IMAGE}


def dry(recipe: SFTRecipe, executor: dict[str, Any], **options: Any) -> DryRun:
    values = {"executor": executor, **({} if executor["kind"] in {"local", "torchrun"} else {"workspace": "/shared"})}
    overrides = {} if executor["kind"] == "local" else {"parallelism.num_gpus": 8, "batch.global_batch_size": 8}
    detach = options.pop("detach", False)
    plan = plan_launch(recipe, ClusterConfig.from_mapping(values), overrides=overrides, **options)
    return preview(plan, detach=detach)


def test_local_commands_are_those_that_run_and_nothing_is_left_behind(
    recipe: SFTRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    before, home = sorted(tmp_path.rglob("*")), get_nemorun_home()
    outcome = dry(recipe, {"kind": "local", "env_vars": {"NOTE": "a b"}})

    assert (sorted(tmp_path.rglob("*")), get_nemorun_home()) == (before, home)
    assert [script.task for script in outcome.scripts] == ["build", "check", "train"]
    for script in outcome.scripts:
        *exports, command = script.text.splitlines()
        words = shlex.split(command)
        assert words[:4] == ["python", "-m", f"bridgepack.running.{script.task}", "--assignment"]
        assert decode(words[4]).recipe == SFTRecipe.from_mapping(outcome.to_dict()["resolved_recipe"])
        assert "export NOTE='a b'" in exports
        assert any(line.startswith("export PATH=") and line.endswith(":$PATH") for line in exports)


def test_slurm_scripts_and_their_order(recipe: SFTRecipe) -> None:
    build, check, train = dry(recipe, SLURM).scripts

    assert build.command.startswith("sbatch --requeue --parsable /")
    assert " --dependency=afterok:JOB_OF_BUILD " in check.command
    assert " --dependency=afterok:JOB_OF_CHECK " in train.command
    assert get_nemorun_home() in train.command
    for script in (build, check, train):
        assert script.text.startswith("#!/bin/bash")
        assert f"python -m bridgepack.running.{script.task} --assignment" in script.text
        assert ("kill-on-invalid-dep" in script.text) == (script.task != "build")
        assert tempfile.gettempdir() + "/bridgepack-" not in script.text
    assert "#SBATCH --nodes=2" in train.text
    assert "gpus-per-node" not in build.text


def test_secrets_are_hidden(recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "topsecret1")
    named = {"client_secret": "topsecret2", "env_vars": {"HF_TOKEN": "${env:MY_SECRET}"}, "gpus_per_node": 8}
    dgx = least_executor("dgxcloud", pvc_nemo_run_dir="/shared/nemo-run", pvcs=[{"path": "/shared"}], **named)
    outcome = dry(recipe, dgx, skip=["build", "check"], artifact="/shared/packs")
    text = screen(dry_run_blocks(outcome)) + json.dumps(outcome.to_dict())

    assert "topsecret" not in text
    assert outcome.scripts[0].text.count("torchrun --nnodes 1 --nproc-per-node 8") == 2  # the command, and its script
    assert "#!/bin/bash" in outcome.scripts[0].text
    assert "# client_secret: '***'" in outcome.scripts[0].text


def test_text_and_json(recipe: SFTRecipe) -> None:
    outcome = dry(recipe, SLURM)
    text, content = screen(dry_run_blocks(outcome)), outcome.to_dict()

    assert text.endswith("submitted or written")
    scripts = [f"=== {task}: script for sbatch" for task in ("build", "check", "train")]
    assert [line for line in text.splitlines() if line.startswith("=== ")] == ["=== recipe", *scripts]
    assert json.loads(json.dumps(content)) == content
    assert content["is_submitted"] is False
    written = SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(outcome.recipe_text))
    assert SFTRecipe.from_mapping(content["resolved_recipe"]) == written
    assert written.parallelism.num_gpus == 8
    assert "=== train: script for sbatch" in outcome._repr_html_()
    assert content["check"]["summary"]["num_errors"] == 0
    assert [script["depends_on"] for script in content["scripts"]] == [[], ["build"], ["check"]]


def test_detaching_is_refused_as_by_submit(recipe: SFTRecipe) -> None:
    with pytest.raises(ConfigError, match=r"--detach: .*build task runs on "):
        dry(recipe, {"kind": "local"}, detach=True)
    assert len(dry(recipe, SLURM, detach=True).scripts) == 3


def test_what_nemo_run_cannot_package_is_explained(recipe: SFTRecipe) -> None:
    with pytest.raises(LaunchError, match="nemo-run cannot make the scripts: "):
        dry(recipe, {**SLURM, "packager": {"kind": "git_archive"}})
