"""Builds and repacks on a Ray cluster of two nodes write the bytes of one machine, although processes are killed.

All share a cluster, whose start takes longer than a build; the test that ends a node is the last.
"""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.reading import lines
from bridgepack.data.stages import split
from tests.support import ray_projects
from tests.support import small_builds as small
from tests.support.processes import started, wait_until
from tests.support.ray_nodes import RayNodes, two_ray_nodes
from tests.support.small_builds import Command

pytestmark = pytest.mark.full

#: The command, with ranges and shards so small that a little data keeps two nodes busy for seconds.
PROGRAM = """
import sys
from bridgepack.data.reading import lines
from bridgepack.data.stages import split
lines.MIN_BLOCK_BYTES, split._SHARD_TOKENS = 10_000, 20_000
from bridgepack.cli import main
main(sys.argv[1:])
"""
LIMIT_S = 600.0  # a machine that does other things, too, takes minutes


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        two_ray_nodes(Path(folder)) as cluster,
    ):
        yield cluster


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-c", PROGRAM, *arguments)
    return started(*command, folder=folder, variables=small.environment(folder))


def on_ray(nodes: RayNodes) -> tuple[str, ...]:
    return "--engine", "ray", "--ray-address", nodes.address


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return output and errors of a command, which has to succeed."""
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    return output, small.without_progress(errors)


def result(process: subprocess.Popen[str]) -> Any:
    return json.loads(finished(process)[0])


@pytest.fixture
def locally(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what runs the command in this process, with the sizes of PROGRAM, and returns its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lines, "MIN_BLOCK_BYTES", 10_000)
    monkeypatch.setattr(split, "_SHARD_TOKENS", 20_000)

    def run(name: str, *arguments: str) -> str:
        ran = command(name, *arguments, "--num-workers", "1")
        assert ran.code == 0, ran.errors
        return ran.output

    return run


def build_locally(locally: Callable[..., str]) -> None:
    locally("build", "recipe.yaml", "--output", "local", "--store", "store-of-local")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def num_token_files(folder: Path) -> int:
    return sum(1 for _ in (folder / ".bridgepack" / "tokens").rglob("*.tokens"))


def test_chats_beside_documents_and_a_resumed_build(
    nodes: RayNodes, tmp_path: Path, chatml_tokenizer: Path, locally: Callable[..., str]
) -> None:
    folder = ray_projects.kinds(tmp_path, chatml_tokenizer)
    build_locally(locally)

    killed = start(folder, "build", "recipe.yaml", "--output", "out", *on_ray(nodes))
    wait_until(lambda: num_token_files(folder) >= 3, process=killed)
    kill(killed)
    left = num_token_files(folder)
    output, _ = finished(start(folder, "build", "recipe.yaml", "--output", "out", *on_ray(nodes)))

    assert output.startswith("Built out\n")
    assert num_token_files(folder) > left >= 3
    assert small.file_bytes(folder / "out") == small.file_bytes(folder / "local")
    manifest = (folder / "out" / "manifest.json").read_text()
    assert '"num_split": 0' not in manifest.partition('"name": "validation"')[0]


def test_split_conversations(nodes: RayNodes, tmp_path: Path, locally: Callable[..., str]) -> None:
    folder = ray_projects.split(tmp_path)
    build_locally(locally)

    finished(start(folder, "build", "recipe.yaml", "--output", "out", *on_ray(nodes)))

    assert small.file_bytes(folder / "out") == small.file_bytes(folder / "local")


def test_a_killed_repack_of_cut_conversations_writes_the_bytes_of_a_build(
    nodes: RayNodes, tmp_path: Path, locally: Callable[..., str]
) -> None:
    folder = ray_projects.cut(tmp_path)
    longer = ("--set", "packing.packed_sequence_size=512")
    locally("build", "recipe.yaml", "--output", "out")
    locally("build", "recipe.yaml", *longer, "--output", "fresh", "--store", "other")
    num_before = num_token_files(folder)

    repack = ("repack", "out", *longer, *on_ray(nodes), "--json", "--output", "ray")
    killed = start(folder, *repack)
    wait_until(lambda: num_token_files(folder) > num_before, process=killed)
    kill(killed)
    again = result(start(folder, *repack))

    assert again["num_ranges_found"] > 0
    assert small.file_bytes(folder / "ray") == small.file_bytes(folder / "fresh")
    local = json.loads(locally("repack", "ray", "--set", "packing.packed_sequence_size=256", "--json"))
    assert local["num_ranges_tokenized"] == 0  # the first build made them


def test_same_bytes_although_a_worker_and_a_node_die(
    nodes: RayNodes, tmp_path: Path, chatml_tokenizer: Path, locally: Callable[..., str]
) -> None:
    folder = ray_projects.chats(tmp_path, chatml_tokenizer, 12_000)
    build_locally(locally)

    process = start(folder, "build", "recipe.yaml", "--output", "out", *on_ray(nodes))
    wait_until(lambda: num_token_files(folder) >= 3, process=process)
    with nodes.paused_head():
        wait_until(nodes.end_worker, process=process)
        wait_until(nodes.workers_of_other, process=process)
        nodes.end_other()
        left = num_token_files(folder)
    output, errors = finished(process)

    advice = "its tasks restart on other nodes, and its finished work is kept"
    sentence = f"the Ray node {socket.gethostname()} is gone; {advice}\n"
    assert errors in {"", sentence}, "the build may end before Ray notices"
    assert output.startswith("Built out\n")
    assert num_token_files(folder) > left
    assert small.file_bytes(folder / "out") == small.file_bytes(folder / "local")
    assert not list(small.leftovers(folder))
