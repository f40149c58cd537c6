"""bridgepack.launch and plan_launch: what a launch will do, and what it refuses before nemo-run hears of it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.checking import real
from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.recipe.host_paths import PACK_PATHS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError, DataError, LaunchRefusedError, TokenizerError
from bridgepack.launching.plan import LaunchPlan, plan_launch
from bridgepack.records import HostVerdict
from bridgepack.records.checks import OVERRIDES
from bridgepack.rules.judging.subject import Environment
from tests.support.full_clusters import least_executor
from tests.support.small_builds import build

pytestmark = pytest.mark.bridge

SLURM = {
    "executor": {"kind": "slurm", "account": "research", "nodes": 2, "gpus_per_node": 4},
    "workspace": "/shared/me",
}


def slurm(**changes: Any) -> ClusterConfig:
    cluster = ClusterConfig.from_mapping(SLURM)
    return cluster.override({path.replace("__", "."): value for path, value in changes.items()}) if changes else cluster


def on_slurm(recipe: SFTRecipe, **options: Any) -> LaunchPlan:
    overrides = {"parallelism.num_gpus": 8, "batch.global_batch_size": 8, **options.pop("overrides", {})}
    return plan_launch(recipe, options.pop("cluster", slurm()), overrides=overrides, **options)


def test_every_task_in_order_in_a_folder_of_the_workspace(recipe: SFTRecipe, tmp_path: Path) -> None:
    plan = plan_launch(recipe, "local")

    assert plan.tasks == ("build", "check", "train")
    assert plan.run_folder == f"{tmp_path}/bridgepack-runs/runs/{plan.run_name}"
    assert plan.artifacts == f"{tmp_path}/bridgepack-runs/artifacts"
    assert plan.run_name.startswith("small_2")
    assert plan.run_name.count("_") == 1  # nemo-run takes what is before the last one for the title
    assert (plan.artifact, plan.world_size) == (None, 1)
    assert not plan.report.has_errors
    assert not (tmp_path / "bridgepack-runs").exists()


def test_tasks_are_told_what_the_plan_says_and_no_secret(recipe: SFTRecipe) -> None:
    plan = on_slurm(recipe, run_name="mine_1", cluster=slurm(executor__env_vars={"HF_TOKEN": "hf_topsecret"}))
    told = plan.assignment()

    assert told.recipe.batch.global_batch_size == 8
    assert str(told.run_folder.path) == "/shared/me/runs/mine_1"
    assert (told.artifacts, told.artifact, told.world_size) == ("/shared/me/artifacts", None, 8)
    assert told.judges_environment
    assert told.launch["tasks"] == {"build": "slurm", "check": "slurm", "train": "slurm"}
    assert told.launch["versions"]["bridgepack"]
    assert "topsecret" not in str(plan.facts()) + str(told.launch)


def test_the_installed_host_is_asked_before_anything_is_submitted(
    recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = HostVerdict(state="refused", reason="ValueError: max_steps", version="0.6.2", stage="validate()")
    monkeypatch.setattr(real, "host_verdict", lambda *_, **__: refused)
    assert not plan_launch(recipe, "local").report.has_errors  # tests set the variable
    monkeypatch.delenv("BRIDGEPACK_REAL_VALIDATE")
    with pytest.raises(LaunchRefusedError, match=r"BP993[\s\S]*ValueError: max_steps"):
        plan_launch(recipe, "local")
    assert plan_launch(recipe, "local", skip=["train"]).report.host is None
    assert plan_launch(recipe, "local", real_validate=False).report.host is None


@pytest.mark.parametrize(
    ("skip", "tasks"),
    [(["train"], ("build", "check")), (["check", "train"], ("build",)), (["build", "check"], ("train",))],
)
def test_tasks_can_be_skipped(recipe: SFTRecipe, tmp_path: Path, skip: list[str], tasks: tuple[str, ...]) -> None:
    packs = build(recipe, tmp_path / "packs").output if "build" in skip else None

    assert plan_launch(recipe, "local", skip=skip, artifact=packs).tasks == tasks
    assert on_slurm(recipe, cluster=slurm(tasks__check__skip=True)).tasks == ("build", "train")


def test_given_packs_are_not_built_but_checked(recipe: SFTRecipe, tmp_path: Path) -> None:
    build(recipe, tmp_path / "packs")
    plan = plan_launch(recipe, "local", artifact="packs")

    assert (plan.tasks, plan.artifact) == (("check", "train"), str(tmp_path / "packs"))
    assert plan.report.num_shards_read > 0
    of_recipe = plan_launch(recipe, "local", overrides={"artifact": "packs"}, skip=["build"])
    assert of_recipe.artifact == on_slurm(recipe, artifact="packs").artifact == str(tmp_path / "packs")
    assert on_slurm(recipe, overrides={"artifact": "/shared/packs"}, skip=["build"]).artifact == "/shared/packs"
    assert on_slurm(recipe, artifact="/there/packs").artifact == "/there/packs"


def test_packs_that_overrides_name_are_refused_beside_those_of_the_launch(recipe: SFTRecipe, tmp_path: Path) -> None:
    build(recipe, tmp_path / "packs")
    overrides = {f"{OVERRIDES}.{path}": f"elsewhere/{name}" for path, name in PACK_PATHS.items()}

    with pytest.raises(ConfigError, match=r"packed_train_data_path is 'elsewhere/training', and the launch builds"):
        plan_launch(recipe, "local", overrides=overrides)
    with pytest.raises(ConfigError, match=r"--artifact is 'packs', and .*packed_train_data_path is 'elsewhere/train"):
        plan_launch(recipe, "local", overrides=overrides, artifact="packs")


def test_runs_that_pack_while_they_train_build_nothing(recipe: SFTRecipe) -> None:
    layout = {"kind": "chat", "messages": [{"from_column": "messages"}]}
    changes = {"packing.mode": "none", "preprocessing.kind": "chat", "schedule.train_iters": 10, "data.layout": layout}
    plan = plan_launch(recipe, "local", overrides=changes, skip=["train"])

    assert (plan.tasks, plan.artifact) == (("check",), None)
    with pytest.raises(ConfigError, match=r"--artifact is 'packs', and packing.mode is none"):
        plan_launch(recipe, "local", overrides=changes, artifact="packs")


def test_broken_recipe_packs_and_environment_are_refused(recipe: SFTRecipe, tmp_path: Path) -> None:
    with pytest.raises(LaunchRefusedError, match=r"(?s)nothing was submitted: .*error\[BP004\]") as refused:
        plan_launch(recipe, "local", overrides={"batch.micro_batch_size": 2})
    assert refused.value.report.has_errors
    output = build(recipe, tmp_path / "packs").output
    with pytest.raises(LaunchRefusedError):
        plan_launch(recipe, "local", artifact=output, overrides={"packing.packed_sequence_size": 8})
    (tmp_path / "frozen.txt").write_text("megatron-bridge==0.6.1\n")
    with pytest.raises(LaunchRefusedError, match="error"):
        on_slurm(recipe, environment=tmp_path / "frozen.txt")


def test_variables_of_the_cluster_file_are_judged_with_the_recipe(recipe: SFTRecipe) -> None:
    model = {"model.name": "llama32_1b_sft_1gpu_h100_bf16_config", "model.attention_backend": "auto"}
    cluster = slurm(executor__env_vars={"NVTE_FUSED_ATTN": "0", "HF_TOKEN": "hf_topsecret"})
    with pytest.raises(LaunchRefusedError, match=r"BP734.*executor\.env_vars\.NVTE_FUSED_ATTN") as refused:
        on_slurm(recipe, cluster=cluster, overrides=model)

    assert "Set model.attention_backend to flash" in str(refused.value)
    assert "topsecret" not in str(refused.value)


def test_environment_is_this_one_where_this_python_trains(recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Environment(versions={"megatron-bridge": "0.6.1"}, python="3.12.1", origin="test")
    monkeypatch.setattr("bridgepack.bridge.environment.environment_here", lambda: broken)

    with pytest.raises(LaunchRefusedError):
        plan_launch(recipe, "local")
    assert plan_launch(recipe, "local", skip=["train"]).tasks == ("build", "check")
    assert plan_launch(recipe, "local", cluster_overrides={"python": "/other/bin/python"}).tasks[-1] == "train"
    assert on_slurm(recipe).tasks[-1] == "train"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip": ["build", "check", "train"]}, "every task is skipped"),
        ({"skip": ["build"]}, ".* Add --artifact FOLDER"),
        ({"artifact": "s3://bucket/packs"}, "--artifact is 's3://bucket/packs', a URL; tasks"),
        ({"artifact": "nope"}, "--artifact is 'nope'; it does not exist"),
        ({"overrides": {"artifact": "nope"}, "skip": ["build"]}, "artifact is 'nope'; it does not exist"),
        ({"overrides": {"model": None}}, "model is not set"),
        (
            {"overrides": {"parallelism.num_gpus": 4, "batch.global_batch_size": 4}},
            "parallelism.num_gpus is 4, and the cluster starts 1 x 1 processes.* launch on torchrun",
        ),
        ({"overrides": {"checkpoint.pretrained": "nope"}}, "checkpoint.pretrained is 'nope'"),
        ({"overrides": {"checkpoint.pretrained": "."}}, "checkpoint.pretrained is '.'"),
        ({"overrides": {"checkpoint.pretrained": "rows.jsonl"}}, "checkpoint.pretrained is 'rows.jsonl'; there is no"),
        ({"overrides": {"data.train": "nope.jsonl"}}, "data.train is 'nope.jsonl'"),
        ({"overrides": {"data.validation": "nope.jsonl"}}, "data.validation is 'nope.jsonl'"),
        ({"overrides": {"tokenizer.name_or_path": "./nope"}}, "tokenizer.name_or_path is './nope'; there is no such"),
        ({"cluster_overrides": {"workspac": "x"}}, "is not a field.*Did you mean workspace"),
    ],
)
def test_mistakes_are_explained(recipe: SFTRecipe, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError, TokenizerError), match=message):
        plan_launch(recipe, "local", **options)


def test_files_of_runs_elsewhere_are_not_looked_up_and_relative_paths_are_noted(recipe: SFTRecipe) -> None:
    there = {"data.train": "/there/rows.jsonl", "checkpoint.pretrained": "/there/weights"}
    assert on_slurm(recipe, overrides=there).tasks == ("build", "check", "train")

    changes = {"data.train": ["/there/a.jsonl", "b.jsonl"], "checkpoint.folder": "checkpoints", "artifact": "packs"}
    notes = [note for note in on_slurm(recipe, overrides=changes).notes if "a relative path" in note]
    assert [note.split(" is ")[0] for note in notes] == ["artifact", "checkpoint.folder", "data.train.1"]


def test_world_size_is_the_recipe_s_or_the_cluster_s(recipe: SFTRecipe) -> None:
    four = {"parallelism.num_gpus": 4, "batch.global_batch_size": 4}
    assert plan_launch(recipe, "local", overrides=four, skip=["train"]).world_size == 4
    changes = {"parallelism.num_gpus": None}
    assert on_slurm(recipe, overrides=changes).world_size == 8
    assert plan_launch(recipe, "local", overrides=changes).world_size == 1
    with pytest.raises(ConfigError, match=r"parallelism.num_gpus is not set, .*cluster does not set"):
        plan_launch(recipe, "torchrun", overrides=changes)


def test_dgx_cloud_takes_one_task_of_an_experiment(recipe: SFTRecipe) -> None:
    executor = least_executor("dgxcloud", client_secret="secret", gpus_per_node=8)
    cluster = ClusterConfig.from_mapping({"executor": executor, "workspace": "/shared/me"})

    with pytest.raises(ConfigError, match=r"DGXCloudExecutor .*build, check, train; .* one script "):
        on_slurm(recipe, cluster=cluster)
    assert on_slurm(recipe, cluster=cluster, skip=["check", "train"]).tasks == ("build",)


def test_commit_and_changes_are_recorded(recipe: SFTRecipe, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert plan_launch(recipe, "local").facts()["git"] is None
    git("init", "-q")
    git("add", "rows.jsonl")
    git("commit", "-qm", "first")
    (tmp_path / ".gitignore").write_text("*\n")
    clean = plan_launch(recipe, "local").facts()["git"]
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1, 2], "labels": [1, 2]}\n')
    dirty = plan_launch(recipe, "local").facts()["git"]

    assert clean["commit"] == dirty["commit"]
    assert (len(clean["commit"]), clean["is_dirty"], dirty["is_dirty"]) == (40, False, True)


def test_the_package_is_the_function(recipe: SFTRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("bridgepack.launching.experiment.submit", lambda plan, **given: seen.update(given, plan=plan))
    changes = {"overrides": {"packing.seed": 3}, "cluster_overrides": {"workspace": "w"}}
    bridgepack.launch(recipe, "local", **changes, skip=["train"], follow=True)

    assert seen["plan"].recipe.packing.seed == 3
    assert seen["plan"].run_folder.startswith(f"{tmp_path}/w/runs/small_")
    assert seen["plan"].tasks == ("build", "check")
    assert (seen["detach"], seen["follow"]) == (False, True)
