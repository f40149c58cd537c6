"""Chats beside documents on a Ray cluster, and a build of them that was killed: the bytes of one machine."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_ray_build import finished, num_token_files, start
from tests.support import small_builds as small
from tests.support.processes import wait_until
from tests.support.ray_nodes import RayNodes, two_ray_nodes

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        two_ray_nodes(Path(folder)) as cluster,
    ):
        yield cluster


@pytest.fixture
def project(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return a folder with a recipe of chats and documents, some of which are longer than a pack."""
    chats = [small.chat_row(f"question {index}", f"answer {index} " * 20) for index in range(3000)]
    texts = [{"text": f"{index}: The wind rose in the night. " * (1 + index % 5 * 40)} for index in range(600)]
    small.write_json_lines(tmp_path / "chats.jsonl", chats)
    small.write_json_lines(tmp_path / "texts.jsonl", texts)
    recipe = small.small_recipe(
        "",
        chatml_tokenizer,
        data={
            "train": [
                {"path": "chats.jsonl", "weight": 1.0},
                {"path": "texts.jsonl", "layout": {"kind": "text"}, "weight": 1.0},
            ],
            "validation_fraction": 0.1,
        },
        preprocessing={"kind": "chat", "others": [{"kind": "text", "over_long": "split"}]},
        packing={"packed_sequence_size": 1024},
    )
    small.write_recipe(tmp_path / "recipe.yaml", recipe)
    return tmp_path


def test_ray_and_a_resumed_build_write_the_bytes_of_one_machine(project: Path, nodes: RayNodes) -> None:
    code, _, errors = finished(start(project, "--output", "local", "--store", "store-of-local"))
    assert code == 0, errors

    killed: subprocess.Popen[str] = start(project, "--output", "out", "--engine", "ray", "--ray-address", nodes.address)
    wait_until(lambda: num_token_files(project) >= 3, process=killed)
    killed.kill()
    killed.communicate(timeout=60)
    left = num_token_files(project)
    code, output, errors = finished(
        start(project, "--output", "out", "--engine", "ray", "--ray-address", nodes.address)
    )

    assert code == 0, errors
    assert output.startswith("Built out\n")
    assert num_token_files(project) > left >= 3
    assert small.file_bytes(project / "out") == small.file_bytes(project / "local")
    manifest = (project / "out" / "manifest.json").read_text()
    assert '"num_split": 0' not in manifest.partition('"name": "validation"')[0]
