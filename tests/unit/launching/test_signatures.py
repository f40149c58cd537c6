"""What a cluster file says of a class is compared with the class's own signature."""

import dataclasses
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.cluster import ClusterConfig
from bridgepack.errors import ConfigError
from bridgepack.launching.refusals import refuse_unlaunchable
from bridgepack.launching.signatures import checked_fields, find_executor, list_classes
from bridgepack.launching.tasks import make_executor
from tests.support.full_clusters import least_executor
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
            ports=["80", 443],
            env_vars={"A": "1"},
            launcher={"kind": "torchrun", "rdzv_port": 1234},
            packager={"kind": "git_archive", "subpath": "src"},
        ),
        "train",
        num_gpus=16,
    )

    assert isinstance(executor, PoolExecutor)
    assert executor.pools == [Pool(name="big", size=3), SpotPool(name="spot", price=2.0)]
    assert (executor.machines, executor.ports, executor.queue, executor.env_vars) == (2, ("80", "443"), "q", {"A": "1"})
    assert executor.tunnel == run.LocalTunnel(job_dir="/jobs")
    assert (executor.launcher.rdzv_port, executor.packager.subpath) == (1234, "src")


def test_other_numbers_of_processes_than_the_run_needs_are_refused() -> None:
    small = make_executor(_cluster(), "build", num_gpus=8)
    assert (small.machines, small.launcher, make_executor(_cluster(), "train", num_gpus=8).nnodes()) == (1, None, 1)
    with pytest.raises(ConfigError, match=r"start 8 processes on each of 1 nodes, and the run needs 8 on each of 2"):
        make_executor(_cluster(nodes=2), "train", num_gpus=16)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"queue": None}, "executor.queue is missing"),
        ({"que": "a"}, "Did you mean queue?"),
        ({"internal": "a"}, "executor.internal is not a field; "),
        ({"job_dir": "a"}, "executor.job_dir is not a field; "),
        ({"queue": ["a"]}, "executor.queue is ['a']; allowed: text."),
        ({"machines": "2"}, "executor.machines is '2'; allowed: a whole number, without quotes."),
        ({"machines": True}, "executor.machines is True; allowed: a whole number"),
        ({"is_fast": 1}, "executor.is_fast is 1; allowed: true or false"),
        ({"ports": "80"}, "executor.ports is '80'; allowed: a list."),
        ({"pools": {"name": "a"}}, "executor.pools is {'name': 'a'}; "),
        ({"pools": ["a"]}, "executor.pools.0 is 'a'; allowed: a section with the fields of Pool."),
        ({"pools": [{"nam": "a", "name": "b"}]}, "executor.pools.0.nam is not a field; allowed: name, size. Did"),
        ({"pools": [{"class": "LocalTunnel"}]}, "executor.pools.0.class is LocalTunnel; allowed: Pool, or a class"),
        ({"pools": [{"class": "Pol"}]}, "executor.pools.0.class is Pol; nemo_run has no Pol."),
        ({"tunnel": 1}, "executor.tunnel is 1; allowed: a section with the fields of SSHTunnel, LocalTunnel."),
    ],
)
def test_what_the_class_does_not_take_is_refused(values: dict[str, Any], expected: str) -> None:
    given = {name: value for name, value in {"queue": "q", **values}.items() if value is not None}
    with pytest.raises(ConfigError, match=re.escape(expected)):
        checked_fields(PoolExecutor, given)


@pytest.mark.parametrize(
    ("kind", "field", "allowed"), [("kubeflow", "volume_mounts", "a list"), ("skypilot", "storage_mounts", "a section")]
)
def test_volumes_of_another_type_are_left_to_the_class(kind: str, field: str, allowed: str) -> None:
    cluster = ClusterConfig.from_mapping({"executor": least_executor(kind, **{field: 1}), "workspace": "/shared"})
    with pytest.raises(ConfigError, match=rf"executor\.{field} is 1; allowed: {allowed}"):
        checked_fields(find_executor(cluster.executor.facts.class_name), {field: 1})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SkypilotExcutor", "class is SkypilotExcutor; nemo_run has no SkypilotExcutor. Did you mean Skypilot"),
        ("no_such_module.X", "executor.class is no_such_module.X; No module named 'no_such_module'. Install it"),
        ("tests.support.launches.X", "tests.support.launches has no X."),
        ("Script", "allowed: a dataclass that inherits nemo_run.Executor."),
        ("LazyEntrypoint", "allowed: a dataclass that inherits nemo_run.Executor."),
    ],
)
def test_a_class_that_is_none_is_refused(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        find_executor(name)


def test_a_launch_compares_first(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nemo_run.run.torchx_backend.schedulers.api import EXECUTOR_MAPPING

    recipe = launch_recipe(tmp_path, chatml_tokenizer)
    with pytest.raises(ConfigError, match=r"executor.class is PoolExecutor; nemo-run's experiments start only DGX"):
        refuse_unlaunchable(recipe, _cluster(), ("build",))
    monkeypatch.setitem(EXECUTOR_MAPPING, PoolExecutor, "pool")
    refuse_unlaunchable(recipe, _cluster(), ("build",))
    with pytest.raises(ConfigError, match=r"tasks.build.executor.que is not a field"):
        refuse_unlaunchable(recipe, _cluster().override({"tasks.build.executor.que": "a"}), ("build",))
    monkeypatch.setitem(sys.modules, "nemo_run", None)
    refuse_unlaunchable(recipe, _cluster(que="a"), ("build",))


def test_classes_are_listed_with_the_fields_that_they_add() -> None:
    listed = {section.nemo_run_class: section for section in list_classes()}
    fields = {one.name: one for one in listed["LeptonExecutor"].fields}
    gpus = fields["gpus_per_node"]

    assert (gpus.type, gpus.default, gpus.is_required) == ("whole number", 0, False)
    assert fields["node_group"].is_required
    assert listed["SkypilotExecutor"].needs == "skypilot"
    own = {one.name for one in dataclasses.fields(run.Executor)}
    assert all(own.isdisjoint(one.name for one in section.fields) for section in listed.values())
