from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from bridgepack.data.results import build_options
from bridgepack.data.store.keys import code_digest
from bridgepack.data.tasks import SilentProgress
from bridgepack.data.workers.ray_cluster import RaySettings, ray_runner, ray_settings
from bridgepack.data.workers.ray_tasks import WorkerSetup, node_facts, software_versions
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
    with pytest.raises(ConfigError, match=r'pip install "bridgepack\[ray\]", or use --engine local'):
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
        runner = ray_runner(
            RaySettings(address=address),
            setup=WorkerSetup(folder="/", memory_bytes=None),
            shared=[],
            progress=SilentProgress(),
        )
        with pytest.raises(ConfigError, match="nobody answers there"), runner:
            pass


def test_a_node_says_what_it_has_and_which_folders_it_does_not_share(tmp_path: Path) -> None:
    (tmp_path / "mark").write_text("text")
    marks = {str(tmp_path / "mark"): "text", str(tmp_path / "elsewhere" / "mark"): "text"}
    facts = node_facts(marks)
    assert facts.missing == (str(tmp_path / "elsewhere"),)
    assert (facts.code, facts.versions) == (code_digest(), software_versions())
    assert node_facts({str(tmp_path / "mark"): "another"}).missing == (str(tmp_path),)
