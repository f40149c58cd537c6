"""PreflightPlugin without Megatron-Bridge: what it reads, what it refuses, and that nothing is submitted then."""

import pickle
import sys
from pathlib import Path
from typing import Any

import fiddle as fdl
import nemo_run as run
import pytest
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.job import Job

from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.errors import BridgepackError, ConfigError, LaunchRefusedError
from bridgepack.launching.preflight import PreflightPlugin, sees_this_machine, trained_target, world_size_of
from tests.support.catalogue import SMALL

pytestmark = pytest.mark.usefixtures("nemo_home")

SCRIPT = "/opt/Megatron-Bridge/scripts/training/run_recipe.py"
UNKNOWN = "PreflightPlugin(target=TARGET, overrides={...}), with TARGET as"
VALUES = {**SMALL, "packing": {"packed_sequence_size": 2048}, "batch": {"global_batch_size": 8}}


def small_recipe() -> SFTRecipe:
    return SFTRecipe.from_mapping(VALUES)


def wrong_recipe() -> SFTRecipe:
    return small_recipe().override({"batch.micro_batch_size": 2})


def train_anything(config: Any = None, recipe: Any = None, note: str = "") -> None:
    raise AssertionError("a check trains nothing")


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(recipe_to_yaml(small_recipe()))
    return path


def slurm(**fields: Any) -> run.SlurmExecutor:
    values = {"account": "a", "partition": "p", "tunnel": run.LocalTunnel(job_dir="/jobs"), **fields}
    return run.SlurmExecutor(**values)


def dgx_cloud(**fields: Any) -> run.DGXCloudExecutor:
    names = ("base_url", "kube_apiserver_url", "client_id", "client_secret", "project_name", "container_image")
    paths = {"pvc_nemo_run_dir": "/jobs", "pvcs": []}
    return run.DGXCloudExecutor(**dict.fromkeys(names, "x"), **paths, nodes=3, gpus_per_node=8, **fields)


def script(*arguments: str | int, path: str = SCRIPT, **fields: Any) -> run.Script:
    return run.Script(path=path, entrypoint="python", args=list(arguments), **fields)


def add(task: Any, *plugins: run.Plugin, executor: run.Executor | None = None) -> None:
    with run.Experiment("test", executor=executor or run.LocalExecutor(), clean_mode=True) as experiment:
        experiment.add(task, name="training", plugins=list(plugins))


@pytest.mark.parametrize(
    ("executor", "size"),
    [
        (run.LocalExecutor(), 1),
        (run.LocalExecutor(ntasks_per_node=4), 1),
        (run.LocalExecutor(ntasks_per_node=4, launcher="torchrun"), 4),
        (run.LocalExecutor(ntasks_per_node=4, launcher=run.FaultTolerance()), 4),
        (run.DockerExecutor(container_image="i", ntasks_per_node=2, launcher="torchrun"), 2),
        (run.DockerExecutor(container_image="i", ntasks_per_node=2), 1),
        (slurm(nodes=2, ntasks_per_node=8), 16),
        (slurm(nodes=2, ntasks_per_node=1, gpus_per_node=8), 2),
        (slurm(nodes=2, ntasks_per_node=1, gpus_per_node=8, launcher="torchrun"), 16),
        (slurm(nodes=2, ntasks_per_node=1, torchrun_nproc_per_node=4, launcher=run.Torchrun()), 8),
        (slurm(nodes=2, ntasks_per_node=8, launcher="ft"), 16),
        (dgx_cloud(launcher="torchrun"), 24),
    ],
)
def test_world_size_is_what_the_executor_starts(executor: run.Executor, size: int) -> None:
    before = str(executor.launcher)
    assert world_size_of(executor) == size
    assert str(executor.launcher) == before


@pytest.mark.parametrize(
    ("executor", "command", "why"),
    [
        (slurm(nodes=[1, 2], ntasks_per_node=8), "python", r"it has \[1, 2\]"),
        (dgx_cloud(), "python", 'no launcher="torchrun"'),
        (run.LocalExecutor(), "torchrun --nproc_per_node=8", "starts processes itself"),
        (run.LocalExecutor(), "python -m torch.distributed.run", "by torch.distributed"),
    ],
)
def test_world_size_that_is_not_told_is_asked_for(executor: run.Executor, command: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        world_size_of(executor, command=command)
    assert "PreflightPlugin(world_size=N)" in str(caught.value)


def test_files_are_looked_at_only_where_the_run_sees_them() -> None:
    tunnel = run.SSHTunnel(host="h", user="u", job_dir="/jobs")
    assert sees_this_machine(run.LocalExecutor())
    assert sees_this_machine(slurm())
    assert not sees_this_machine(slurm(container_image="image"))
    assert not sees_this_machine(slurm(tunnel=tunnel))
    assert not sees_this_machine(dgx_cloud())


def test_arguments_are_split_as_the_executor_hands_them_over(recipe_file: Path) -> None:
    quoted = script("'dataset.dataset_kwargs={a: 1}'", "train.micro_batch_size=2", 7, path="train.py")
    seen = trained_target(quoted, slurm(), target=str(recipe_file), options=CheckOptions())

    assert seen.recipe is not None
    assert seen.recipe.bridge_overrides == {"dataset": {"dataset_kwargs": {"a": 1}}, "train": {"micro_batch_size": 2}}
    unread = trained_target(quoted, run.LocalExecutor(), target=str(recipe_file), options=CheckOptions())
    assert unread.recipe is not None
    assert unread.recipe.bridge_overrides == {"train": {"micro_batch_size": 2}}
    with pytest.raises(ConfigError, match="split as a shell"):
        trained_target(script("train.x='a"), slurm(), target=str(recipe_file), options=CheckOptions())


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (script("--recipe", "a_sft_config"), "PreflightPlugin(target='bridge:a_sft_config', overrides={...})."),
        (script("--recipe", "mine.yaml", path="train.py"), "PreflightPlugin(target='mine.yaml', overrides={...})."),
        (run.Script(inline="bash train.sh"), UNKNOWN),
        (run.Partial(train_anything, note="a_sft_config"), UNKNOWN),
        (run.Partial(train_anything, config=run.Config(small_recipe), recipe=run.Config(wrong_recipe)), UNKNOWN),
    ],
)
def test_a_task_that_does_not_show_what_it_trains_is_refused_with_the_line_to_write(task: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        add(task, PreflightPlugin())
    assert "PreflightPlugin cannot see what" in str(caught.value)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("task", "flag"),
    [
        (script("--recipe", "a_sft_config", "-tp", "2"), "-tp"),
        (script("--recipe", "a_sft_config", "--mode=dora"), "--mode"),
        (run.Script(inline="numactl -N 0 python run_recipe.py \\\n --recipe a --dataset tulu3"), "--dataset"),
        (script("--config-file", "a.yaml", path="t.py"), "--config-file"),
        (script("~peft", path="train.py"), None),
    ],
)
def test_options_that_change_what_is_trained_are_refused(task: Any, flag: str | None, recipe_file: Path) -> None:
    message = rf"is given {flag}, and .* PreflightPlugin\(target=FILE\)" if flag else "removes a field"
    with pytest.raises(ConfigError, match=message):
        add(task, PreflightPlugin(target=recipe_file))


@pytest.mark.parametrize(
    "task",
    [
        script("--recipe", "mine", "--dry-run", "train.train_iters=5"),
        script("--lr", "3", "data=x", "++train.train_iters=5", path="t.py"),
        run.Script(inline="numactl -N 0 python scripts/run_recipe.py --recipe mine train.train_iters=5 # train"),
    ],
)
def test_overrides_of_a_script_count(task: Any, recipe_file: Path) -> None:
    seen = trained_target(task, run.LocalExecutor(), target=str(recipe_file), options=CheckOptions())

    assert seen.recipe is not None
    assert seen.recipe.bridge_overrides == {"train": {"train_iters": 5}}
    assert seen.place == f"{recipe_file} with 1 override"


def test_refused_run_carries_its_report_and_crosses_processes(recipe_file: Path) -> None:
    with pytest.raises(LaunchRefusedError) as caught:
        add(script(path="train.py"), PreflightPlugin(target=recipe_file, overrides={"batch.micro_batch_size": 2}))
    assert caught.value.report.has_errors
    assert str(caught.value).startswith("nothing was submitted: ")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(again), again.report) == (str(caught.value), caught.value.report)


def test_world_size_of_the_executor_counts(recipe_file: Path) -> None:
    task, ours = script(path="train.py"), PreflightPlugin(target=recipe_file)
    add(task, ours, executor=slurm(nodes=1, ntasks_per_node=8))
    with pytest.raises(LaunchRefusedError, match="BP602"):
        add(task, ours, executor=slurm(nodes=3, ntasks_per_node=8))
    add(task, PreflightPlugin(target=recipe_file, world_size=4), executor=slurm(nodes=3, ntasks_per_node=8))


def test_rules_can_be_chosen(recipe_file: Path) -> None:
    task = script("train.micro_batch_size=2", path="train.py")
    add(task, PreflightPlugin(target=recipe_file, ignore=["BP004", "BP6"]))
    add(task, PreflightPlugin(target=recipe_file, select=["BP001"]))
    with pytest.raises(ConfigError, match="BP9999"):
        add(task, PreflightPlugin(target=recipe_file, ignore=["BP9999"]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": VALUES}, "target is"),
        ({"strict": "yes"}, "strict is 'yes'"),
        ({"looks_at_files": 1}, "looks_at_files is 1"),
        ({"world_size": 0}, "world_size is 0"),
        ({"ignore": "BP004"}, "ignore is 'BP004'"),
        ({"overrides": ["a=1"]}, "overrides is"),
        ({"target": "missing.yaml"}, "there is no such"),
        ({"environment": "missing.txt"}, "missing.txt"),
        ({"overrides": {"batch.micro_batch_sizes": 1}}, "Did you mean micro_batch_size"),
    ],
)
def test_wrong_fields_are_refused(recipe_file: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BridgepackError, match=message):
        add(script(path="train.py"), PreflightPlugin(**{"target": recipe_file, **fields}))


def test_plugin_survives_nemo_runs_serialisation(recipe_file: Path) -> None:
    fields = {"overrides": {"train.train_iters": 5}, "ignore": ["BP1"], "world_size": 8, "strict": True}
    plugin = PreflightPlugin(target=recipe_file, **fields)
    serializer = ZlibJSONSerializer()
    assert fdl.build(serializer.deserialize(serializer.serialize(plugin.to_config()))) == plugin
    task = script("--recipe", str(recipe_file))
    job = Job(id="a", task=task, executor=run.LocalExecutor(), plugins=[plugin])
    again = fdl.build(serializer.deserialize(job.serialize()[0]))
    assert again.plugins == [plugin]


def test_refused_run_never_starts_and_leaves_nothing(tmp_path: Path, nemo_home: Path, recipe_file: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"from pathlib import Path; Path({str(tmp_path / 'ran')!r}).touch()")

    def launch(*arguments: str) -> None:
        task = run.Script(path=str(program), entrypoint=sys.executable, args=list(arguments))
        plugin = PreflightPlugin(target=recipe_file, looks_at_files=False)
        with run.Experiment("real", executor=run.LocalExecutor(), clean_mode=True) as experiment:
            experiment.add(task, name="training", plugins=[plugin])
            experiment.run()

    with pytest.raises(LaunchRefusedError):
        launch("train.micro_batch_size=2")
    assert not (tmp_path / "ran").exists()
    assert not list(nemo_home.rglob("*"))
    launch("train.micro_batch_size=1")
    assert (tmp_path / "ran").exists()
