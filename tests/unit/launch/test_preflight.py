"""PreflightPlugin without Megatron-Bridge: what it reads, what it refuses, and that nothing is submitted then."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fiddle as fdl
import nemo_run as run
import pytest
from nemo_run.config import get_nemorun_home, set_nemorun_home
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.job import Job

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.errors import BridgepackError, ConfigError, LaunchRefusedError
from bridgepack.launch.nemo_cli_recipes import section_of
from bridgepack.launch.preflight import PreflightPlugin
from bridgepack.launch.preflight_command import mode_in_name, read_overrides, read_strictly
from bridgepack.launch.preflight_world import reads_arguments_by_shell, sees_this_machine, world_size_of

SCRIPT = "/opt/Megatron-Bridge/scripts/training/run_recipe.py"
VALUES = {
    "name": "small",
    "data": {"train": "train.jsonl"},
    "tokenizer": {"name_or_path": "tokenizer"},
    "packing": {"packed_sequence_size": 2048},
    "batch": {"global_batch_size": 8},
}


def small_recipe() -> SFTRecipe:
    return SFTRecipe.from_mapping(VALUES)


def wrong_recipe() -> SFTRecipe:
    return small_recipe().override({"batch.micro_batch_size": 2})


def train_anything(config: Any = None, recipe: Any = None, note: str = "") -> None:
    raise AssertionError("a check trains nothing")


@pytest.fixture(autouse=True)
def nemo_home(tmp_path: Path) -> Iterator[Path]:
    """Keep nemo-run's records in a folder of the test."""
    before = get_nemorun_home()
    set_nemorun_home(str(tmp_path / "home"))
    yield tmp_path / "home"
    set_nemorun_home(before)


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


def script(*arguments: str, path: str = SCRIPT, **fields: Any) -> run.Script:
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
        (run.LocalExecutor(), "torchrun --nproc_per_node=8", "starts processes itself, by torchrun"),
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


def test_arguments_are_split_as_the_executor_hands_them_over() -> None:
    quoted = script("--recipe", "a_sft_config", "'dataset.dataset_kwargs={a: 1}'")
    assert reads_arguments_by_shell(slurm())
    assert read_strictly(quoted, slurm()).overrides == ("dataset.dataset_kwargs={a: 1}",)
    with pytest.raises(ConfigError, match="is no override of a ConfigContainer"):
        read_strictly(quoted, slurm(launcher="torchrun"))
    with pytest.raises(ConfigError, match="cannot be split as a shell does"):
        read_strictly(script("--recipe", "a_sft_config", "train.x='a"), slurm())


def test_options_of_run_recipe_become_overrides_that_the_others_come_after() -> None:
    command = read_strictly(
        script("--recipe", "a_peft_config", "-tp", "2", "--lr", "0.001", "--save_dir", "/my runs", "train.x=1"),
        run.LocalExecutor(),
    )
    assert (command.recipe, command.mode, command.is_run_recipe) == ("a_peft_config", "lora", True)
    assert command.overrides == (
        "model.tensor_model_parallel_size=2",
        "optimizer.lr=0.001",
        'checkpoint.save="/my runs"',
        "train.x=1",
    )


def test_model_and_mode_name_a_recipe() -> None:
    command = read_strictly(script("--model", "gpt_oss_20b", "--mode", "dora"), run.LocalExecutor())
    assert (command.recipe, command.mode) == ("gpt_oss_20b_peft_config", "dora")


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("qwen3_8b_sft_config", "sft"),
        ("qwen3_8b_pretrain_config", "pretrain"),
        ("qwen3_8b_peft_1gpu_h100_bf16_config", "lora"),
        ("llama3_8b_dora_config", "dora"),
        ("llama3_8b_finetune_config", "sft"),
        ("llama3_8b_config", None),
    ],
)
def test_mode_is_in_the_recipes_name(name: str, mode: str | None) -> None:
    assert mode_in_name(name) == mode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "sft"), "one of the arguments --recipe --model is required"),
        (("--recipe", "a_sft_config", "--packed_sequence"), "dataset.enable_offline_packing=true"),
        (("--recipe", "a_sft_config", "--peft_scheme", "lora"), "--mode lora"),
        (("--recipe", "a_sft_config", "--enable-exit-handler"), "'--enable-exit-handler'"),
        (("--recipe", "a_sft_config", "-tp", "two"), "invalid int value"),
        (("--recipe", "a_sft_config", "--mode", "full"), "invalid choice"),
        (("--recipe", "a_sft_config", "trian.train_iters=3"), "Did you mean train?"),
        (("--recipe", "a_sft_config", "stray"), "'stray'"),
        (
            (
                "--recipe",
                "a_config",
            ),
            "Add --mode",
        ),
    ],
)
def test_arguments_that_are_not_understood_are_refused_with_what_to_pass(
    arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        add(script(*arguments), PreflightPlugin())
    assert message in str(caught.value)
    assert "PreflightPlugin(target=TARGET" in str(caught.value)


def test_inline_script_that_calls_run_recipe_once_is_read() -> None:
    text = (
        "cd /opt\nnumactl python \\\n  scripts/training/run_recipe.py --recipe a_sft_config \\\n train.x=1 | tee log\n"
    )
    inline = run.Script(inline=text)
    assert read_strictly(inline, slurm()).overrides == ("train.x=1",)
    with pytest.raises(ConfigError, match="the inline script"):
        read_strictly(run.Script(inline="bash train.sh"), slurm())


def test_options_of_other_scripts_are_passed_over_where_the_target_is_named() -> None:
    own = script(
        "--lr", "3", "--config-file", "a.yaml", "train.train_iters=5", "data=x", "++model.seq_length=8", path="t.py"
    )
    command = read_overrides(own, run.LocalExecutor())
    assert command.overrides == ("train.train_iters=5", "++model.seq_length=8")
    assert command.config_file == "a.yaml"


@pytest.mark.parametrize(
    "make",
    [
        lambda: run.Partial(train_anything, config=run.Config(wrong_recipe)),
        lambda: run.Partial(train_anything, recipe=wrong_recipe),
        lambda: run.Partial(train_anything, run.Config(wrong_recipe)),
        lambda: run.Partial(train_anything, note=run.Config(section_of, inner=run.Config(wrong_recipe))),
        lambda: run.Partial(wrong_recipe),
        lambda: run.Partial(
            train_anything, recipe=run.Config(SFTRecipe.from_mapping, {**VALUES, "batch": {"micro_batch_size": 2}})
        ),
    ],
)
def test_config_of_a_partial_is_found_and_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(LaunchRefusedError, match="BP004"):
        add(make(), PreflightPlugin())


def test_partial_that_tells_nothing_is_refused_with_what_to_pass() -> None:
    with pytest.raises(ConfigError) as caught:
        add(run.Partial(train_anything, note="qwen3_8b_sft_config"), PreflightPlugin())
    assert "train_anything" in str(caught.value)
    assert "note='qwen3_8b_sft_config'" in str(caught.value)
    assert "PreflightPlugin(target=TARGET" in str(caught.value)


def test_two_configs_are_refused() -> None:
    with pytest.raises(ConfigError, match="several of its arguments give a config: config, recipe"):
        add(run.Partial(train_anything, config=small_recipe, recipe=wrong_recipe), PreflightPlugin())


def test_config_that_fails_is_explained() -> None:
    with pytest.raises(ConfigError, match="micro_batch_size"):
        add(run.Partial(train_anything, recipe=run.Config(failing_recipe)), PreflightPlugin())
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        add(run.Partial(train_anything, recipe=run.Config(broken_recipe)), PreflightPlugin())


def failing_recipe() -> SFTRecipe:
    return small_recipe().override({"batch.micro_batch_size": "two"})


def broken_recipe() -> SFTRecipe:
    return SFTRecipe.from_mapping({"name": 1 / 0})


@dataclass(kw_only=True)
class Append(run.Plugin):
    """Appends arguments, as the plugins of Megatron-Bridge do."""

    words: list[str] = field(default_factory=list)

    def setup(self, task: Any, executor: Any) -> None:
        task.args.extend(self.words)


def test_what_plugins_before_have_changed_is_judged(recipe_file: Path) -> None:
    task = script("--recipe", str(recipe_file), path="train.py")
    wrong = Append(words=["train.micro_batch_size=2"])
    with pytest.raises(LaunchRefusedError, match="BP004"):
        add(task, wrong, PreflightPlugin())
    add(task, PreflightPlugin(), wrong)
    assert task.args == ["--recipe", str(recipe_file)]


def test_clean_run_is_added_and_told(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(
        script("--recipe", str(recipe_file), path="train.py"),
        PreflightPlugin(),
        executor=slurm(nodes=1, ntasks_per_node=8),
    )
    told = capsys.readouterr().out
    assert f"preflight: {recipe_file}, on 8 GPUs" in told
    assert "0 errors" in told or "rules run" in told


def test_refused_run_carries_its_report_and_crosses_processes(recipe_file: Path) -> None:
    with pytest.raises(LaunchRefusedError) as caught:
        add(script(path="train.py"), PreflightPlugin(target=recipe_file, overrides={"batch.micro_batch_size": 2}))
    assert caught.value.report.has_errors
    assert str(caught.value).startswith("nothing was submitted: the check of")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(again), again.report) == (str(caught.value), caught.value.report)


def test_world_size_of_the_executor_counts(recipe_file: Path) -> None:
    task = script("--recipe", str(recipe_file), path="train.py")
    add(task, PreflightPlugin(), executor=slurm(nodes=1, ntasks_per_node=8))
    with pytest.raises(LaunchRefusedError, match="BP602"):
        add(task, PreflightPlugin(), executor=slurm(nodes=3, ntasks_per_node=8))
    add(task, PreflightPlugin(world_size=4), executor=slurm(nodes=3, ntasks_per_node=8))


def test_rules_can_be_chosen(recipe_file: Path) -> None:
    task = script("--recipe", str(recipe_file), "train.micro_batch_size=2", path="train.py")
    add(task, PreflightPlugin(ignore=["BP004", "BP6"]))
    add(task, PreflightPlugin(select=["BP001"]))
    with pytest.raises(ConfigError, match="BP9999"):
        add(task, PreflightPlugin(ignore=["BP9999"]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": VALUES}, "target is"),
        ({"strict": "yes"}, "strict is 'yes'"),
        ({"looks_at_files": 1}, "looks_at_files is 1"),
        ({"world_size": 0}, "world_size is 0"),
        ({"ignore": "BP004"}, "ignore is 'BP004'"),
        ({"overrides": ["a=1"]}, "overrides is"),
        ({"target": "missing.yaml"}, "there is no such file"),
        ({"environment": "missing.txt"}, "missing.txt"),
        ({"overrides": {"batch.micro_batch_sizes": 1}}, "Did you mean micro_batch_size"),
    ],
)
def test_wrong_fields_are_refused(recipe_file: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BridgepackError, match=message):
        add(script("--recipe", str(recipe_file), path="train.py"), PreflightPlugin(**fields))


def test_plugin_survives_nemo_runs_serialisation(recipe_file: Path) -> None:
    plugin = PreflightPlugin(
        target=recipe_file, overrides={"train.train_iters": 5}, ignore=["BP1"], world_size=8, strict=True
    )
    serializer = ZlibJSONSerializer()
    assert fdl.build(serializer.deserialize(serializer.serialize(plugin.to_config()))) == plugin
    task = script("--recipe", str(recipe_file))
    job = Job(id="a", task=task, executor=run.LocalExecutor(), plugins=[plugin])
    again = fdl.build(serializer.deserialize(job.serialize()[0]))
    assert again.plugins == [plugin]


def test_refused_run_never_starts_and_leaves_nothing(tmp_path: Path, nemo_home: Path, recipe_file: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"from pathlib import Path; Path({str(tmp_path / 'ran')!r}).touch()")
    arguments = ["--recipe", str(recipe_file)]

    def launch(*more: str) -> None:
        task = run.Script(path=str(program), entrypoint=sys.executable, args=[*arguments, *more])
        with run.Experiment("real", executor=run.LocalExecutor(), clean_mode=True) as experiment:
            experiment.add(task, name="training", plugins=[PreflightPlugin(looks_at_files=False)])
            experiment.run()

    with pytest.raises(LaunchRefusedError):
        launch("train.micro_batch_size=2")
    assert not (tmp_path / "ran").exists()
    assert not list(nemo_home.rglob("*"))
    launch("train.micro_batch_size=1")
    assert (tmp_path / "ran").exists()
