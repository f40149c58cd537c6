import json
import pickle
import socket
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.data.results import build_options
from bridgepack.data.tasks import Beat, InThisProcess, SilentProgress
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_cluster import RaySettings, ray_runner, ray_settings
from bridgepack.data.workers.ray_runner import RayRunner
from bridgepack.data.workers.ray_tasks import WorkerSetup, run_task
from bridgepack.errors import ConfigError


def test_an_address_is_a_host_and_a_port_or_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray_settings(None).address is None
    assert ray_settings("local").address is None
    assert ray_settings("auto").address == "auto"
    assert ray_settings("10.0.0.1:6379", 8) == RaySettings(address="10.0.0.1:6379", num_workers=8)
    assert ray_settings("[fd00::1]:6379").address == "[fd00::1]:6379"


def test_the_environment_names_a_cluster_unless_the_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert ray_settings(None).address == "head:6379"
    assert ray_settings("local").address is None
    monkeypatch.setenv("RAY_ADDRESS", "head")
    with pytest.raises(ConfigError, match="RAY_ADDRESS is 'head'; allowed: HOST:PORT, auto, local"):
        ray_settings(None)


def test_addresses_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="The Ray client is not supported"):
        ray_settings("ray://head:10001")
    with pytest.raises(ConfigError, match="Give the address that `ray start --head` prints"):
        ray_settings("")


def test_ray_that_is_missing_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install -e "\.\[ray\]", or use --engine local'):
        build_options(engine="ray")


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="Add --engine ray"):
        build_options(engine="local", ray_address="head:6379")
    with pytest.raises(ConfigError, match="engine is 'spark'; allowed: local, ray"):
        build_options(engine="spark")


def test_an_address_where_nobody_is_fails_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        setup = WorkerSetup(folders=("/",), memory_bytes=None)
        runner = ray_runner(RaySettings(address=address), setup, InThisProcess(), SilentProgress())
        with pytest.raises(ConfigError, match="nobody answers there"), runner:
            pass


def _outcome(setup: WorkerSetup) -> Any:
    """Return what a Ray worker, which is a process of its own, makes of a task."""
    with WorkerPool() as pool:
        found = pool.begin(partial(run_task, pickle.dumps(setup), pickle.dumps((_answer, 3)), 1))()
    return pickle.loads(found)  # noqa: S301 (our own worker made it)


def _answer(number: int, beat: Beat) -> str:
    beat(number)
    beat(-1)
    return str(Path.cwd())


def test_a_node_that_is_as_it_should_be_runs_tasks_where_the_build_began(tmp_path: Path) -> None:
    assert _outcome(WorkerSetup(folders=(str(tmp_path),), memory_bytes=None)) == str(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"software": {"tokenizers": "0.1"}}, "has other software than where the build began: tokenizers "),
        ({"folders": ("/", "{folder}/elsewhere")}, "does not see '{folder}/elsewhere'"),
    ],
)
def test_a_node_that_cannot_take_part_says_why(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    values = json.loads(json.dumps(change).replace("{folder}", str(tmp_path)))
    error = _outcome(WorkerSetup(**{"folders": (str(tmp_path),), "memory_bytes": None, **values}))
    assert isinstance(error, ConfigError)
    assert message.replace("{folder}", str(tmp_path)) in str(error)


def test_a_node_that_is_gone_is_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [
        {"NodeID": name, "NodeManagerHostname": name, "Alive": True, "Resources": {"CPU": 2.0}} for name in ("a", "b")
    ]
    setup = WorkerSetup(folders=("/",), memory_bytes=None)
    ray = SimpleNamespace(nodes=lambda: nodes)
    runner = RayRunner(ray=ray, setup=setup, num_workers=None, slots_per_node=2, here=InThisProcess())
    assert runner._most() == (8, 16)
    nodes[1]["Alive"] = False
    assert runner._most() == (4, 8)
    assert caplog.messages == [
        "the Ray node b is gone; its tasks begin again elsewhere, and what it had finished is kept"
    ]
