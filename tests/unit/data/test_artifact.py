"""Artifacts read back, ours and folders of shards that another tool wrote."""

import os
import shutil
from pathlib import Path

import pytest

from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.errors import ArtifactError
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("built")
    train = write_json_lines(folder / "a.jsonl", [tokenized_row(*range(10, 10 + index % 7 + 2)) for index in range(40)])
    build(tokenized_recipe(train, chatml_tokenizer, data__validation_fraction=0.3), folder / "out")
    return folder / "out"


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """Return a copy of an artifact that may be broken."""
    return shutil.copytree(built, tmp_path / "out")


@pytest.mark.parametrize("is_flat", [True, False])
def test_folder_without_a_manifest_has_the_splits_that_are_found(folder: Path, is_flat: bool) -> None:
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
    batches = list(artifact.iter_shard_batches(facts.path, max_tokens=1 << 20))
    assert sum(batch.num_rows for batch in batches) == facts.num_rows != 0


def test_a_pipe_is_no_artifact(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    num_refused = 0
    for path in (tmp_path / "packed.parquet", tmp_path / "folder" / "a.parquet", tmp_path / "folder" / "manifest.json"):
        os.mkfifo(path)
        with pytest.raises(ArtifactError, match=r"neither a file nor a folder|no manifest|not a regular"):
            ArtifactOnDisk(path if path.parent == tmp_path else path.parent)
        num_refused += 1

    assert num_refused == 3
