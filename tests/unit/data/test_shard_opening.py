"""A shard whose footer ends the process that opens it is a finding or an error, with or without a manifest."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridgepack.data.shards import row_groups as shard_opening
from bridgepack.data.shards.row_groups import why_not_openable
from tests.support.small_builds import run_cli
from tests.support.traced_artifacts import build_traced

#: Flips bit after bit of a file's footer and opens the result; the last number it prints is of the bit that was deadly.
FLIP_BITS = """
import io, resource, sys
from pathlib import Path
import pyarrow.parquet as pq
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
content = Path(sys.argv[1]).read_bytes()
size = int.from_bytes(content[-8:-4], "little")
for bit in range(8 * (len(content) - 8 - size), 8 * (len(content) - 8)):
    print(bit, flush=True)
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        with pq.ParquetFile(io.BytesIO(flipped)) as file:
            file.metadata.row_group(0).column(0).num_values
    except Exception:
        pass
"""
SAID = "opening it crashes the process with SIGABRT"


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return an artifact, one bit of whose shard makes Arrow abort."""
    artifact = build_traced(tmp_path, chatml_tokenizer)
    (shard,) = (artifact / "training").iterdir()
    child = subprocess.run([sys.executable, "-c", FLIP_BITS, shard], capture_output=True, text=True, check=False)
    if child.returncode >= 0:
        pytest.skip("this pyarrow aborts on no footer with one wrong bit")
    bit = int(child.stdout.split()[-1])
    content = bytearray(shard.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    shard.write_bytes(content)
    return artifact


def test_check_finds_it_and_goes_on(artifact: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(artifact / "training", foreign / "training")
    for folder in (artifact, foreign):
        finished = run_cli(tmp_path, "check", folder)

        assert (finished.returncode, SAID in finished.stdout) == (1, True), finished.stdout + finished.stderr


@pytest.mark.parametrize("command", [("inspect", "--row", "0"), ("trace", "--pack", "0")])
def test_what_reads_a_pack_refuses_it(artifact: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    finished = run_cli(tmp_path, command[0], artifact, *command[1:])

    assert finished.returncode == 2
    assert "idx.parquet: its sha256 is" in finished.stderr


def test_each_deadly_file_is_named_and_the_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = "import os, sys\nfor path in sys.stdin.read().split('\\0'):\n"
    killed += "    if 'fatal' in path: os.kill(os.getpid(), 9)\n    print(flush=True)"
    monkeypatch.setattr(shard_opening, "_OPEN_FOOTERS", killed)
    paths = [tmp_path / name for name in ("fatal 1", "a", "b\nc", "fatal 2", "fatal 3", "d")]

    found = why_not_openable(paths)

    assert found == dict.fromkeys(
        [path for path in paths if "fatal" in path.name], "opening it crashes the process with SIGKILL"
    )
    assert why_not_openable([]) == why_not_openable(paths[1:3]) == {}
