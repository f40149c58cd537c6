"""The fields of a cluster file become an object of the class that it names, or what the class says of them."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.cluster import ClusterConfig
from bridgepack.errors import ConfigError
from bridgepack.launching.classes import find_executor, object_of
from bridgepack.launching.refusals import refuse_unlaunchable
from bridgepack.launching.tasks import make_executor
from tests.support.launches import launch_recipe

run = pytest.importorskip("nemo_run")
pytestmark = pytest.mark.bridge


@dataclass(kw_only=True)
class Pool:
    """Machines."""

    name: str
    size: int = 1


@dataclass(kw_only=True)
class SpotPool(Pool):
    """Machines that may go."""

    price: float = 1.0


@dataclass(kw_only=True)
class PoolExecutor(run.Executor):  # type: ignore[misc,name-defined]
    """A user's own executor."""

    queue: str
    machines: int = 1
    per_machine: int = 8
    pools: list[Pool] = field(default_factory=list)
    tunnel: run.SSHTunnel | run.LocalTunnel | None = None
    ports: tuple[str] | None = None
    is_fast: bool = False
    internal: str = field(init=False, default="")

    def nnodes(self) -> int:
        return self.machines

    def nproc_per_node(self) -> int:
        return self.per_machine


NAME = f"{__name__}.PoolExecutor"


def _cluster(**fields: Any) -> ClusterConfig:
    executor = {"kind": "nemo_run", "class": NAME, "queue": "q", **fields}
    return ClusterConfig.from_mapping({"executor": executor, "workspace": "/shared"})


def test_every_value_arrives_in_the_class_that_a_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL", "big")
    executor = make_executor(
        _cluster(
            machines=2,
            nodes=2,
            nprocs_per_node=8,
            pools=[{"name": "${env:POOL}", "size": 3}, {"class": f"{__name__}.SpotPool", "name": "spot", "price": 2}],
            tunnel={"class": "LocalTunnel", "job_dir": "/jobs"},
            ports=["80", "443"],
            env_vars={"A": "1"},
            launcher={"kind": "torchrun", "rdzv_port": 1234},
            packager={"kind": "git_archive", "subpath": "src"},
        ),
        "train",
        num_gpus=16,
    )

    assert isinstance(executor, PoolExecutor)
    assert executor.pools == [Pool(name="big", size=3), SpotPool(name="spot", price=2)]
    assert (executor.machines, executor.ports, executor.queue, executor.env_vars) == (2, ["80", "443"], "q", {"A": "1"})
    assert executor.tunnel == run.LocalTunnel(job_dir="/jobs")
    assert (executor.launcher.rdzv_port, executor.packager.subpath) == (1234, "src")


def test_other_numbers_of_processes_than_the_run_needs_are_refused() -> None:
    small = make_executor(_cluster(), "build", num_gpus=8)
    assert (small.machines, small.launcher, make_executor(_cluster(), "train", num_gpus=8).nnodes()) == (1, None, 1)
    with pytest.raises(ConfigError, match=r"8 processes on each of 1 nodes, .*8 on each of 2"):
        make_executor(_cluster(nodes=2), "train", num_gpus=16)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"queue": None}, r"PoolExecutor does not take: .* missing .* 'queue'\. Correct"),
        ({"que": "a"}, "PoolExecutor does not take: .* unexpected keyword argument 'que'"),
        ({"internal": "a"}, "unexpected keyword argument 'internal'"),
        ({"pools": [{"nam": "a", "name": "b"}]}, ".* 'nam'"),
        ({"pools": [{"class": "Pol"}]}, r"executor\.pools\.0\.class is Pol; nemo_run has no Pol\."),
    ],
)
def test_what_the_class_does_not_take_is_refused_in_its_words(values: dict[str, Any], expected: str) -> None:
    given = {name: value for name, value in {"queue": "q", **values}.items() if value is not None}
    with pytest.raises(ConfigError, match=expected):
        object_of(PoolExecutor, given)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SkypilotExcutor", "class is SkypilotExcutor; nemo_run has no SkypilotExcutor. Did you mean Skypilot"),
        ("no_such_module.X", "executor.class is no_such_module.X; No module named 'no_such_module'. Install it"),
        ("tests.support.launches.X", "tests.support.launches has no X."),
        ("Script", "a dataclass that inherits nemo_run.Executor."),
        ("LazyEntrypoint", "a dataclass that inherits nemo_run.Executor."),
    ],
)
def test_a_class_that_is_none_is_refused(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        find_executor(name)


def test_a_launch_refuses_a_class_that_experiments_do_not_start(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nemo_run.run.torchx_backend.schedulers.api import EXECUTOR_MAPPING

    recipe = launch_recipe(tmp_path, chatml_tokenizer)
    with pytest.raises(ConfigError, match=r"executor.class is PoolExecutor; .*only DGX"):
        refuse_unlaunchable(recipe, _cluster(), ("build",))
    monkeypatch.setitem(EXECUTOR_MAPPING, PoolExecutor, "pool")
    refuse_unlaunchable(recipe, _cluster(), ("build",))
