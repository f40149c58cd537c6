"""Artifacts and shards read back, ours and those of another tool, and what is said of broken ones."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.shards import row_groups
from bridgepack.data.shards.row_groups import why_not_openable
from bridgepack.errors import ArtifactError
from tests.support.messages import mentions
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


def test_check_finds_a_shard_one_bit_of_which_makes_arrow_abort(tmp_path: Path, chatml_tokenizer: Path) -> None:
    artifact = build_traced(tmp_path, chatml_tokenizer)
    (shard,) = (artifact / "training").iterdir()
    child = subprocess.run([sys.executable, "-c", FLIP_BITS, shard], capture_output=True, text=True, check=False)
    if child.returncode >= 0:
        pytest.skip("this pyarrow aborts on no footer with one wrong bit")
    bit = int(child.stdout.split()[-1])
    content = bytearray(shard.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    shard.write_bytes(content)
    foreign = tmp_path / "foreign"
    shutil.copytree(artifact / "training", foreign / "training")
    for folder in (artifact, foreign):
        finished = run_cli(tmp_path, "check", folder)
        assert finished.returncode == 1, finished.stderr
        assert re.search("opening it crashes .*SIGABRT", finished.stdout)


def test_each_deadly_file_is_named_and_the_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = "import os, sys\nfor path in sys.stdin.read().split('\\0'):\n"
    killed += "    if 'fatal' in path: os.kill(os.getpid(), 9)\n    print(flush=True)"
    monkeypatch.setattr(row_groups, "_OPEN_FOOTERS", killed)
    paths = [tmp_path / name for name in ("fatal 1", "a", "b\nc", "fatal 2", "fatal 3", "d")]

    found = why_not_openable(paths)

    assert list(found) == [path for path in paths if "fatal" in path.name]
    assert all(mentions(why, "crashes", "SIGKILL") for why in found.values())
    assert why_not_openable([]) == why_not_openable(paths[1:3]) == {}


@pytest.mark.parametrize("is_flat", [True, False])
def test_folder_without_a_manifest_has_the_splits_that_are_found(
    tmp_path: Path, chatml_tokenizer: Path, is_flat: bool
) -> None:
    folder = build_traced(tmp_path, chatml_tokenizer, data__validation_fraction=0.3)
    (folder / "manifest.json").unlink()
    for split in ("training", "validation") if is_flat else ():
        next((folder / split).iterdir()).rename(folder / f"{split}_16.idx.parquet")
        (folder / split).rmdir()

    with pytest.raises(ArtifactError, match=r"has no manifest\.json, but"):
        ArtifactOnDisk(folder)
    artifact = ArtifactOnDisk(folder, may_lack_manifest=True)

    assert (artifact.manifest, artifact.split_names) == (None, ("training", "validation"))
    (facts,) = artifact.shard_facts("validation")
    assert artifact.unlisted_files() == artifact.shard_facts("none") == ()
    batches = list(artifact.parts.iter_batches(facts.path, max_tokens=1 << 20))
    assert sum(batch.num_rows for batch in batches) == facts.num_rows != 0


def test_a_pipe_is_no_artifact(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "packed.parquet", tmp_path / "folder" / "a.parquet", tmp_path / "folder" / "manifest.json"):
        os.mkfifo(path)
        with pytest.raises(ArtifactError, match=r"neither a file nor|no manifest|not a regular"):
            ArtifactOnDisk(path if path.parent == tmp_path else path.parent)
