import json
import pickle
import socket
import sys
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.data.results import build_options
from bridgepack.data.tasks import Beat, InThisProcess, SilentProgress
from bridgepack.data.workers import ray_runner as ray_module
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_runner import RayRunner, RaySettings, ray_runner, ray_settings
from bridgepack.data.workers.ray_tasks import WorkerSetup, run_task
from bridgepack.errors import ConfigError
from tests.support.messages import mentions


@pytest.mark.parametrize(
    ("option", "variable", "address"),
    [
        (None, None, None),
        ("local", None, None),
        ("auto", None, "auto"),
        ("10.0.0.1:6379", None, "10.0.0.1:6379"),
        ("[fd00::1]:6379", None, "[fd00::1]:6379"),
        (None, "head:6379", "head:6379"),
        ("local", "head:6379", None),
    ],
)
def test_the_option_or_the_environment_names_a_cluster(
    monkeypatch: pytest.MonkeyPatch, option: str | None, variable: str | None, address: str | None
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_settings(option, 8) == RaySettings(address=address, num_workers=8)


def test_what_cannot_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head")
    monkeypatch.setitem(sys.modules, "ray", None)
    for refuse, message in (
        (partial(ray_settings, None), "RAY_ADDRESS is 'head'; allowed: HOST:PORT, auto, local"),
        (partial(ray_settings, "ray://head:10001"), "The Ray client is not supported"),
        (partial(ray_settings, ""), "Give the address that `ray start --head` prints"),
        (
            partial(build_options, engine="ray", ray_address="local"),
            r'pip install -e "\.\[ray\]", or use --engine local',
        ),
        (partial(build_options, engine="local", ray_address="head:6379"), "Add --engine ray"),
        (partial(build_options, engine="spark"), "engine is 'spark'; allowed: local, ray"),
    ):
        with pytest.raises(ConfigError, match=message):
            refuse()


def test_an_address_where_nobody_is_fails_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        setup = WorkerSetup(folders=("/",), memory_bytes=None)
        runner = ray_runner(RaySettings(address=address), setup, InThisProcess(), SilentProgress())
        with pytest.raises(ConfigError, match="it does not answer"), runner:
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
        ({"software": {"tokenizers": "0.1"}}, "has software that differs from the build's machine: tokenizers "),
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
    assert runner._limits() == (8, 16)
    nodes[1]["Alive"] = False
    assert runner._limits() == (4, 8)
    (message,) = caplog.messages
    assert mentions(message, "Ray node b is", "restart on other nodes", "is kept")


def test_a_head_that_dies_is_an_error_that_says_to_build_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost head is neither asked for its nodes nor told to cancel tasks, for which Ray waits for a minute."""
    monkeypatch.setattr(ray_module, "_SILENCE_S", 0.1)
    monkeypatch.setattr(ray_module, "_RETRY_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        nodes = [{"NodeID": "a", "NodeManagerHostname": "a", "Alive": True, "Resources": {"CPU": 1.0}}]
        ray = SimpleNamespace(
            nodes=lambda: nodes,
            remote=lambda _: SimpleNamespace(
                options=lambda **_: SimpleNamespace(remote=lambda *_: SimpleNamespace(future=Future))
            ),
        )
        setup = WorkerSetup(folders=("/",), memory_bytes=None)
        runner = RayRunner(ray=ray, setup=setup, num_workers=None, slots_per_node=1, here=InThisProcess(), head=address)
        assert runner._limits() == (2, 4)
    del ray.nodes
    with pytest.raises(ConfigError) as raised:
        list(runner.run(_answer, [1]))
    assert mentions(str(raised.value), address, "run the build again")
    runner.cancel_all()
    assert runner.is_lost


def test_an_interrupted_build_cancels_its_tasks_before_it_disconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a connection, `ray.cancel` makes one anew, and waits for minutes where the cluster has ended, too."""
    calls: list[str] = []

    def submit(*_: object) -> Any:
        future: Future[bytes] = Future()
        if not calls:
            future.set_result(pickle.dumps("first"))
        calls.append("submit")
        return SimpleNamespace(future=lambda: future)

    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **_: calls.clear(),
        shutdown=lambda: calls.append("shutdown"),
        cancel=lambda *_, **__: calls.append("cancel"),
        nodes=lambda: [{"NodeID": "a", "Alive": True, "Resources": {"CPU": 1.0}}],
        remote=lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=submit)),
        exceptions=None,
        _private=SimpleNamespace(worker=SimpleNamespace(print_to_stdstream=None)),
    )
    monkeypatch.setattr(ray_module, "_import_ray", lambda: ray)
    setup = WorkerSetup(folders=("/",), memory_bytes=None)
    runner = ray_runner(RaySettings(address=None), setup, InThisProcess(), SilentProgress())
    outcomes = runner.__enter__().run(_answer, range(4))
    assert next(outcomes) == "first"
    with pytest.raises(KeyboardInterrupt):
        runner.gen.throw(KeyboardInterrupt)
    outcomes.close()
    assert calls == ["submit", "submit", "cancel", "shutdown"]
