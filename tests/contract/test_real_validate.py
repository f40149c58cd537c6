"""`check --real-validate`: the host's own verdict, asked in a process that changes nothing on this machine."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from bridgepack.bridge.live import copy_of
from bridgepack.bridge.targets import load_target
from bridgepack.bridge.validating import ask
from bridgepack.bridge.validating.verdict import CannotAskError, Question, verdict_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import HostVerdict
from tests.support.bridge_recipes import DENSE, recipe_of
from tests.support.hub_configs import write_hub_cache
from tests.support.installed_host import host_release, host_version
from tests.support.messages import mentions
from tests.support.processes import commands_with, wait_until
from tests.support.upstream_recipes import load_recipe_config, world_size_of

MOE = "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"


def asked(recipe: SFTRecipe, **facts: Any) -> HostVerdict:
    return verdict_of(Question(recipe=recipe.model_dump(mode="json", exclude_unset=True), **facts))


def with_overrides(model: str = DENSE, /, **overrides: Any) -> SFTRecipe:
    return recipe_of(model, checkpoint__pretrained="/nowhere", bridge_overrides=overrides)


def test_a_recipe_is_accepted_or_refused_with_the_hosts_words_and_the_field(host: None) -> None:
    accepted = asked(with_overrides(), world_size=1)
    assert (accepted.state, accepted.world_size) == ("accepted", 1)

    refused = asked(with_overrides(MOE, model={"moe_router_group_topk": 2}), world_size=8)
    assert (refused.state, refused.stage) == ("refused", "validate()")
    assert mentions(refused.reason, "ValueError: ", "group limited routing", "moe_router_num_groups")
    assert refused.where == ("model.moe_router_num_groups",)
    assert refused.place.startswith("megatron/core/transformer/transformer_config.py:")


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        ({"scheduler": {"max_steps": 10}}, ("scheduler.max_steps", "train.train_iters")),
        ({"profiling": {"profile_step_start": 20, "profile_step_end": 5}}, ("profiling.profile_step_end",)),
        ({"model": {"moe_router_topk": 1, "moe_router_pre_softmax": False}}, ("model.moe_router_pre_softmax",)),
        ({"logger": {"mlflow_experiment": "a", "mlflow_run_name": ""}}, ("logger.mlflow_run_name",)),
    ],
)
def test_the_settings_that_the_words_name_are_found(host: None, overrides: Any, where: tuple[str, ...]) -> None:
    refused = asked(with_overrides(**overrides), world_size=1)
    assert refused.state == "refused"
    assert refused.where[: len(where)] == where


def test_what_to_bridge_refuses_is_a_refusal_and_a_missing_model_is_none(host: None) -> None:
    refused = asked(with_overrides(model={"first_last_layers_bf16": True}))
    assert (refused.state, refused.stage) == ("refused", "to_bridge")
    assert refused.where == ("bridge_overrides.model.first_last_layers_bf16",)
    with pytest.raises(CannotAskError, match="which Megatron-Bridge cannot load here"):
        asked(recipe_of("no-such-organisation/no-such-model"))


def test_the_number_of_gpus_is_one_copy_of_the_model_where_it_is_not_known(host: None) -> None:
    verdict = asked(recipe_of(DENSE, parallelism__tensor_model_parallel_size=2, checkpoint__pretrained="/nowhere"))
    assert (verdict.state, verdict.world_size) == ("accepted", 2)
    verdict = asked(with_overrides(), world_size=7)
    assert (verdict.state, "global_batch_size (8)" in verdict.reason) == ("refused", True)


def test_a_length_that_only_packs_tell_refuses_nothing(host: None) -> None:
    overrides = with_overrides(scheduler={"lr_warmup_iters": 1, "max_steps": 10})
    recipe = overrides.override({"schedule.train_iters": None})
    assert asked(recipe, world_size=1).state == "accepted"  # with num_epochs the fraction of the warm-up is set, too
    refused = asked(recipe.override({"schedule.train_iters": 11}), world_size=1)
    assert refused.reason.startswith("ValueError: scheduler.max_steps (10) must be greater")


def test_nothing_of_the_process_is_changed(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "of this machine")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    before = dict(os.environ)
    mode = {"deterministic_mode": True, "cross_entropy_loss_fusion": False}
    recipe = with_overrides(model=mode).override({"environment": {"NCCL_ALGO": "Ring", "MY_OWN": "1"}})
    assert asked(recipe, world_size=1).state == "accepted"
    assert asked(with_overrides(model=mode), world_size=1).state == "accepted"  # the job exports it; BP878 tells
    assert dict(os.environ) == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert "mlflow" not in sys.modules


def test_live_and_saved_containers_are_judged_with_their_overrides(
    host: None, upstream_recipes: dict[str, Any], tmp_path: Path
) -> None:
    [name] = [name for name in upstream_recipes if name.endswith(f".{DENSE}")]
    config = load_recipe_config(upstream_recipes[name])
    assert verdict_of(Question(world_size=1), copy_of(config)).state == "accepted"
    config.to_yaml(str(tmp_path / "saved.yaml"))
    saved = str(tmp_path / "saved.yaml")
    assert verdict_of(Question(saved=saved, world_size=1)).state == "accepted"
    refused = verdict_of(Question(saved=saved, world_size=1, overrides={"train.micro_batch_size": 2}))
    assert mentions(refused.reason, "ValueError: Micro batch size ", " be 1")
    (tmp_path / "saved.yaml").write_text("_target_: megatron.bridge.training.config.ConfigContainer\nmodel: {}\n")
    with pytest.raises(CannotAskError, match=r"saved\.yaml cannot be loaded .*ConfigContainer"):
        verdict_of(Question(saved=saved))


def test_shipped_recipes_can_be_handed_to_another_process(upstream_configs: dict[str, Any]) -> None:
    not_handed = []
    for name, config in upstream_configs.items():
        try:
            pickle.dumps(config)
        except pickle.PicklingError:
            not_handed.append(name.rpartition(".")[2])
    assert not_handed == ["kimi_k25_vl_sft_512gpu_h100_bf16_config"]  # its class is remote code
    assert len(upstream_configs) == {"0.6": 190, "0.7": 199}[host_release().name]
    assert {world_size_of(name) for name in upstream_configs} > {1, 8}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an empty home and working folder; models are found in a cache elsewhere."""
    write_hub_cache(tmp_path / "cache" / "hub")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    own = tmp_path / "home"
    own.mkdir()
    monkeypatch.setenv("HOME", str(own))
    monkeypatch.chdir(own)
    yield own
    assert list(own.rglob("*")) == []


def verdict_on(target: Any, **overrides: Any) -> HostVerdict:
    return ask.host_verdict(
        load_target(target, overrides), version=Version(host_version()), world_size=1, artifact=None
    )


@pytest.mark.full
def test_a_process_of_its_own_judges_and_leaves_nothing(
    home: Path, host: None, upstream_recipes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """The first process imports the host itself, the second is a fork of one that has it."""
    verdict = verdict_on(with_overrides(logger={"comet_project": "a"}))
    assert verdict.reason.startswith("ValueError: Set logger.comet_experiment_name ")
    assert verdict.where == ("logger.comet_experiment_name",)
    assert verdict.seconds is not None
    assert verdict.seconds > 1

    request.getfixturevalue("asks_in_forks")
    [name] = [name for name in upstream_recipes if name.endswith(f".{DENSE}")]
    live = verdict_on(load_recipe_config(upstream_recipes[name]), **{"model.context_parallel_size": 2})
    assert live.reason.startswith("AssertionError: world size (1) is not divisible by total_model_size")


def test_an_import_that_fails_is_a_state(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken" / "megatron"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.syspath_prepend(str(broken.parent))
    verdict = verdict_on(with_overrides())
    assert verdict.state == "not importable"
    assert verdict.reason.startswith(f"megatron-bridge {host_version()} is installed, but megatron.bridge")
    assert "libcudart.so.13" in verdict.reason


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_process_ends_with_the_limit_or_an_interrupt(
    home: Path, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool
) -> None:
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(home))
    monkeypatch.setattr(ask, "LIMIT_S", 2.0)
    if is_interrupted:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(ask, "LIMIT_S", 60.0)
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            with pytest.raises(KeyboardInterrupt):
                verdict_on(with_overrides())
        finally:
            signal.signal(signal.SIGALRM, before)
    else:
        verdict = verdict_on(with_overrides())
        assert verdict.state == "not judged"
        assert mentions(verdict.reason, "within 2 s; ch")
    mine = f"MARK_OF_THIS_TEST={home}"
    wait_until(lambda: not [line for line in commands_with(mine) if "validating" in line])


_WRITES = """
import os, socket, subprocess, sys
from pathlib import Path
from bridgepack.bridge.validating.child import _nothing_reaches_the_machine
scratch, outside = Path(sys.argv[1]), Path(sys.argv[2])
def connect():
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))
deeds = [lambda: (outside / "a").write_text(""), lambda: (outside / "b").mkdir(), lambda: os.rename(scratch, outside),
         lambda: subprocess.run(["true"]), lambda: os.remove(outside / "there"), connect]
with _nothing_reaches_the_machine(scratch):
    (scratch / "a").write_text("")
    (outside / "there").read_text()
    for deed in deeds:
        try:
            deed()
        except PermissionError as error:
            print(error)
(outside / "after").write_text("")
"""


def test_writing_starting_and_connecting_are_refused(tmp_path: Path) -> None:
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    for folder in (scratch, outside):
        folder.mkdir()
    (outside / "there").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", _WRITES, scratch, outside], capture_output=True, text=True, check=True, timeout=120
    )
    verbs = [line.split()[0] for line in done.stdout.splitlines()]
    assert verbs == ["writes", "writes", "writes", "starts", "writes", "connects"]
    assert sorted(path.name for path in outside.iterdir()) == ["after", "there"]
