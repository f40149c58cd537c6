"""Builds on a Ray cluster of two nodes write the bytes of one machine, although a worker and a node are killed."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import small_builds as small
from tests.support.processes import started, wait_until
from tests.support.ray_nodes import RayNodes, two_ray_nodes

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
LIMIT_S = 150.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        two_ray_nodes(Path(folder)) as cluster,
    ):
        yield cluster


def project(folder: Path, tokenizer: Path, num_rows: int) -> Path:
    asked = [f"question {index} " * (index % 7 + 1) for index in range(num_rows)]
    rows = [small.chat_row(question, f"answer {index} " * 20) for index, question in enumerate(asked)]
    small.write_json_lines(folder / "train.jsonl", [*rows, {"messages": "none"}])
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 2048, "data__validation_fraction": 0.1}
    recipe = small.tokenized_recipe("train.jsonl", tokenizer, **changes)
    small.write_recipe(folder / "recipe.yaml", recipe)
    return folder


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-c", PROGRAM, "build", "recipe.yaml", *arguments)
    return started(*command, folder=folder, variables=small.environment(folder))


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, output, small.without_progress(errors)


def num_token_files(folder: Path) -> int:
    return sum(1 for _ in (folder / ".bridgepack" / "tokens").rglob("*.tokens"))


def test_same_bytes_although_a_worker_and_a_node_die(nodes: RayNodes, tmp_path: Path, chatml_tokenizer: Path) -> None:
    folder = project(tmp_path, chatml_tokenizer, 12_000)
    code, _, errors = finished(start(folder, "--output", "local", "--store", "store-of-local"))
    assert code == 0, errors

    process = start(folder, "--output", "out", "--engine", "ray", "--ray-address", nodes.address)
    wait_until(lambda: num_token_files(folder) >= 3, process=process)
    with nodes.paused_head():
        wait_until(nodes.end_worker, process=process)
        wait_until(nodes.workers_of_other, process=process)
        nodes.end_other()
        left = num_token_files(folder)
    code, output, errors = finished(process)

    assert code == 0, errors
    advice = "its tasks restart on other nodes, and its finished work is kept"
    sentence = f"the Ray node {socket.gethostname()} is gone; {advice}\n"
    assert errors in {"", sentence}, "the build may end before Ray notices"
    assert output.startswith("Built out\n")
    assert num_token_files(folder) > left
    assert small.file_bytes(folder / "out") == small.file_bytes(folder / "local")
    assert not list(small.leftovers(folder))
