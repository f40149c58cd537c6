"""PreflightPlugin with the real nemo-run and the real recipes and plugins of Megatron-Bridge."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nemo_run as run
import pytest

from bridgepack.errors import ConfigError, LaunchRefusedError
from bridgepack.launching.preflight import PreflightPlugin
from tests.support.bridge_recipes import quiet_host

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("nemo_home")]

SFT = "llama32_1b_sft_1gpu_h100_bf16_config"
PEFT = "llama32_1b_peft_1gpu_h100_bf16_config"
PRETRAIN = "llama32_1b_pretrain_config"
TARGET = f"bridge:{SFT}"
RECIPES = "megatron.bridge.recipes"
SCRIPT = "/opt/Megatron-Bridge/scripts/training/run_recipe.py"
WEIGHTS = "checkpoint.pretrained_checkpoint=/checkpoints/base"
#: What FaultTolerancePlugin needs and no recipe has: a section `ft`.
OWN_CONFIG = f"""
from megatron.bridge.recipes import {SFT} as base
from megatron.bridge.training.config import FaultToleranceConfig

def mine_config():
    config = base()
    config.ft = FaultToleranceConfig()
    config.checkpoint.pretrained_checkpoint = "/checkpoints/base"
    return config
"""


@pytest.fixture(scope="module")
def recipes(h100_host: None) -> Iterator[ModuleType]:
    """Yield Megatron-Bridge's recipes, on a host as they ask for."""
    with quiet_host():
        yield importlib.import_module(RECIPES)


def slurm(num_gpus: int = 1, **fields: Any) -> run.SlurmExecutor:
    tunnel = run.LocalTunnel(job_dir="/jobs")
    return run.SlurmExecutor(
        account="a", partition="p", ntasks_per_node=num_gpus, gpus_per_node=num_gpus, tunnel=tunnel, **fields
    )


def script(*arguments: str, path: str = SCRIPT) -> run.Script:
    return run.Script(path=path, entrypoint="python", args=list(arguments))


def add(task: Any, *plugins: run.Plugin, executor: run.Executor | None = None) -> None:
    with run.Experiment("test", executor=executor or slurm(), clean_mode=True) as experiment:
        experiment.add(task, name="training", plugins=list(plugins))


def refused(task: Any, *plugins: run.Plugin, executor: run.Executor | None = None) -> set[str]:
    """Return the codes of the errors for which a task is refused."""
    with pytest.raises(LaunchRefusedError) as caught:
        add(task, *plugins, executor=executor)
    findings = caught.value.report.findings
    codes = {finding.code for finding in findings if finding.severity == "error"}
    assert all(code in str(caught.value) for code in codes)
    return codes


@pytest.mark.parametrize("name", [SFT, PEFT, "qwen3_8b_sft_config", "qwen3_30b_a3b_peft_config", PRETRAIN])
def test_shipped_recipe_is_added(recipes: ModuleType, name: str) -> None:
    add(script("--recipe", name, WEIGHTS), PreflightPlugin(target=f"bridge:{name}"), executor=slurm(8))


def test_what_check_rejects_is_refused_and_leaves_nothing(recipes: ModuleType, nemo_home: Path) -> None:
    assert refused(script("--recipe", SFT, "train.micro_batch_size=2"), PreflightPlugin(target=TARGET)) == {"BP004"}
    assert not list(nemo_home.rglob("*"))


def test_partials_of_the_real_entry_points(recipes: ModuleType) -> None:
    function = getattr(recipes, SFT)
    training = importlib.import_module("megatron.bridge.training.finetune")
    step = importlib.import_module("megatron.bridge.training.gpt_step").forward_step
    wrong = PreflightPlugin(overrides={"train.micro_batch_size": 2})
    for task in (
        run.Partial(training.finetune, config=run.Config(function), forward_step_func=step),
        run.Partial(training.finetune, run.Config(function), step),
    ):
        add(task, PreflightPlugin())
        assert refused(task, wrong) == {"BP004"}
    pretrain = importlib.import_module("megatron.bridge.training.pretrain").pretrain
    add(run.Partial(pretrain, config=run.Config(getattr(recipes, PRETRAIN))), PreflightPlugin())


def test_tree_of_a_config_container_is_read(recipes: ModuleType) -> None:
    container = getattr(recipes, SFT)()
    finetune = importlib.import_module("megatron.bridge.training.finetune").finetune
    task = run.Partial(finetune, config=container)
    task.config.train.micro_batch_size = 2
    with pytest.raises(LaunchRefusedError, match="BP004"):
        PreflightPlugin().setup(task, slurm())


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("PreemptionPlugin", {}),
        ("NsysPlugin", {"profile_step_start": 1, "profile_step_end": 2, "profile_ranks": [0, 1]}),
        ("PyTorchProfilerPlugin", {"profile_step_start": 1, "profile_step_end": 2}),
        ("WandbPlugin", {"project": "p", "entity": "e", "name": "n"}),
        ("CometPlugin", {"project": "p", "workspace": "w", "name": "n"}),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_upstreams_plugins_work_beside_ours(
    recipes: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any], comes_first: bool
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x")
    monkeypatch.setenv("COMET_API_KEY", "x")
    upstream = getattr(importlib.import_module(f"{RECIPES}.run_plugins"), name)

    def plugins() -> list[run.Plugin]:
        both = [upstream(**fields), PreflightPlugin(target=TARGET)]
        return both if comes_first else both[::-1]

    add(script("--recipe", SFT, WEIGHTS), *plugins())
    assert refused(script("--recipe", SFT, WEIGHTS, "train.micro_batch_size=2"), *plugins()) == {"BP004"}
    if comes_first:
        wrong = upstream(**fields, script_args_converter_fn=lambda arguments: ["train.micro_batch_size=2"])
        assert refused(script("--recipe", SFT, WEIGHTS), wrong, PreflightPlugin(target=TARGET)) == {"BP004"}
        unread = upstream(**fields, script_args_converter_fn=lambda arguments: ["--own-option"])
        with pytest.raises(ConfigError, match="is given --own-option"):
            add(script("--recipe", SFT, WEIGHTS), unread, PreflightPlugin(target=TARGET))
        add(script(path="train.py"), unread, PreflightPlugin(target=TARGET))


def test_fault_tolerance_changes_the_launcher_and_needs_its_section(recipes: ModuleType, tmp_path: Path) -> None:
    """Upstream's plugin sets fields of `ft`, which is None in every recipe: `run_recipe.py` would fail on the GPUs."""
    plugin = importlib.import_module(f"{RECIPES}.run_plugins").FaultTolerancePlugin
    with pytest.raises(ConfigError, match=r"ft\.enable_ft_package"):
        add(script("--recipe", SFT, WEIGHTS), plugin(), PreflightPlugin(target=TARGET))
    add(script("--recipe", SFT, WEIGHTS), PreflightPlugin(target=TARGET), plugin())
    (tmp_path / "mine.py").write_text(OWN_CONFIG)
    ours = PreflightPlugin(target=f"{tmp_path / 'mine.py'}:mine_config")
    local = run.LocalExecutor(ntasks_per_node=4)
    add(script(path="train.py"), plugin(), ours, executor=local)
    assert refused(script("train.global_batch_size=6", path="train.py"), plugin(), ours, executor=local) == {
        "BP602",
        "BP603",
    }


def test_what_the_host_would_refuse_is_refused(recipes: ModuleType) -> None:
    with pytest.raises(ConfigError, match=r"train\.nope"):
        add(script("--recipe", SFT, "train.nope=2"), PreflightPlugin(target=TARGET))
    with pytest.raises(ConfigError, match=SFT):
        add(script(path="train.py"), PreflightPlugin(target=TARGET.replace("llama", "lama")))


def test_target_names_what_a_script_does_not(recipes: ModuleType) -> None:
    own = script("--lr", "1", "train.micro_batch_size=2", path="train.py")
    with pytest.raises(ConfigError, match=r"cannot see what train\.py trains"):
        add(own, PreflightPlugin())
    for target in (TARGET, f"{RECIPES}:{SFT}", f"{RECIPES}.llama:llama32_1b_sft_config"):
        assert refused(own, PreflightPlugin(target=target)) == {"BP004"}
    add(script(path="train.py"), PreflightPlugin(target=TARGET))


def test_saved_config_is_a_target(recipes: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "saved.yaml"
    getattr(recipes, SFT)().to_yaml(str(file))
    add(script(WEIGHTS, path="train.py"), PreflightPlugin(target=file))
    assert refused(script("train.micro_batch_size=2", path="train.py"), PreflightPlugin(target=file)) == {"BP004"}
    assert refused(script(path="train.py"), PreflightPlugin(target=file, overrides={"train.micro_batch_size": 2}))
    add(script("-tp", "1"), PreflightPlugin(target=file))
