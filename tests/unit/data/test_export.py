"""An artifact in the form of another version: the rows are the same, nothing half-written is left, errors say what."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.export import export_artifact
from bridgepack.data.stages import split as splits
from bridgepack.errors import ArtifactError
from bridgepack.records import ROW_COLUMNS
from tests.support.judging import check_artifact
from tests.support.small_builds import build, file_bytes, tokenized_recipe, tokenized_row, write_json_lines
from tests.support.traced_artifacts import change_manifest

ROWS = [tokenized_row(*([10 + index % 200] * (2 + index % 9))) for index in range(300)]
SIZE, MULTIPLE = 32, 8


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    """Return an artifact of two splits, the first of several shards."""
    folder = tmp_path_factory.mktemp("source")
    recipe = tokenized_recipe(
        write_json_lines(folder / "a.jsonl", ROWS),
        chatml_tokenizer,
        data__validation_fraction=0.2,
        packing__packed_sequence_size=SIZE,
        packing__pad_seq_to_mult=MULTIPLE,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_SHARD_TOKENS", 1 << 10)
        return build(recipe, folder / "artifact").output


def test_npy_holds_the_same_rows_one_file_a_split(tmp_path: Path, artifact: Path) -> None:
    output = tmp_path / "export"

    result = export_artifact(artifact, output, "0.3.1")

    source, manifest = read_manifest(artifact), read_manifest(output)
    assert (result.pack_format, result.manifest) == ("npy", manifest)
    assert manifest.fingerprint != source.fingerprint == result.source_fingerprint
    assert manifest.resolved["bridge_version"] == {
        "value": "0.3.1",
        "because": f"exported from the artifact with fingerprint {source.fingerprint}",
    }
    assert [split.statistics for split in manifest.splits] == [split.statistics for split in source.splits]
    assert not check_artifact(ArtifactOnDisk(output)).has_errors
    assert len(source.splits[0].shards) > 1
    for split in source.splits:
        assert [path.name for path in (output / split.name).iterdir()] == [f"{split.name}_{SIZE}.npy"]
        expected = [
            {name: getattr(row, name).tolist() for name in ROW_COLUMNS}
            for batch in Artifact(artifact).iter_batches(split.name)
            for row in map(batch.row, range(batch.num_rows))
        ]
        rows = np.load(output / split.name / f"{split.name}_{SIZE}.npy", allow_pickle=True)
        assert list(rows) == expected
        assert len(rows) == split.statistics.num_packs > 0
    for name in ("bridge_metadata.json", "plan/dropped.jsonl", "plan/training.parquet"):
        assert (output / name).read_bytes() == (artifact / name).read_bytes()


@pytest.mark.parametrize("bridge_version", ["0.4.0", "0.5.1", "0.7.0"])
def test_parquet_is_the_artifact_as_it_is(tmp_path: Path, artifact: Path, bridge_version: str) -> None:
    result = export_artifact(artifact, tmp_path / "export", bridge_version)

    assert result.pack_format == "parquet"
    assert result.manifest is not None
    assert result.manifest.fingerprint == read_manifest(artifact).fingerprint
    exported, source = file_bytes(tmp_path / "export"), file_bytes(artifact)
    assert exported.keys() == source.keys()
    assert [name for name in source if exported[name] != source[name]] == ["manifest.json"]


def test_same_artifact_same_bytes_and_an_export_is_replaced(tmp_path: Path, artifact: Path) -> None:
    export_artifact(artifact, tmp_path / "a", "0.3.0")
    before = file_bytes(tmp_path / "a")
    export_artifact(artifact, tmp_path / "a", "0.3.0")
    assert file_bytes(tmp_path / "a") == before

    export_artifact(artifact, tmp_path / "a", "0.5.1")
    assert not list((tmp_path / "a").rglob("*.npy"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("bridge_version", ["0.3.1", "0.5.1"])
def test_a_damaged_shard_is_refused_and_nothing_is_left(tmp_path: Path, artifact: Path, bridge_version: str) -> None:
    export_artifact(artifact, tmp_path / "copy", "0.6.2")
    shard = next((tmp_path / "copy" / "training").glob("shard-00001-*"))
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)

    with pytest.raises(ArtifactError, match=r"training/shard-00001.* its sha256 is .*; the manifest says"):
        export_artifact(tmp_path / "copy", tmp_path / "export", bridge_version)
    shard.unlink()
    with pytest.raises(ArtifactError, match=r"training/shard-00001.*: it is missing"):
        export_artifact(tmp_path / "copy", tmp_path / "export", bridge_version)

    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_manifest_with_other_counts_is_refused(tmp_path: Path, artifact: Path) -> None:
    shutil.copytree(artifact, tmp_path / "copy")
    change_manifest(tmp_path / "copy", splits__0__shards__0__num_rows=1)

    with pytest.raises(ArtifactError, match=r"training_32\.npy: \d+ rows; the manifest says \d+"):
        export_artifact(tmp_path / "copy", tmp_path / "export", "0.3.1")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_outputs_that_would_lose_something(tmp_path: Path, artifact: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    export_artifact(artifact, tmp_path / "npy", "0.3.1")
    for source, output, message in [
        (artifact, artifact, "or a folder in or around it"),
        (artifact, artifact / "export", "or a folder in or around it"),
        (artifact, artifact.parent, "or a folder in or around it"),
        (artifact, tmp_path / "mine", "with files that are not an artifact"),
        (artifact, tmp_path / "mine" / "notes.txt", "is a file"),
        (tmp_path / "npy", tmp_path / "export", "an export for an older Megatron-Bridge"),
        (tmp_path / "mine", tmp_path / "export", r"has no manifest\.json"),
        (tmp_path / "none", tmp_path / "export", "does not exist"),
    ]:
        with pytest.raises(ArtifactError, match=message):
            export_artifact(source, output, "0.3.1")

    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


@pytest.mark.parametrize("version", ["0.3.1", "0.6.2"])
@pytest.mark.parametrize("key", ["name", "shards__0__path"])
def test_manifest_that_leads_outside_is_refused(tmp_path: Path, artifact: Path, key: str, version: str) -> None:
    evil = shutil.copytree(artifact, tmp_path / "deep" / "evil")
    shutil.copy(next((artifact / "training").iterdir()), tmp_path / "shard")
    change_manifest(evil, **{f"splits__0__{key}": "../../shard"})
    before = sorted(file_bytes(tmp_path))

    with pytest.raises(ArtifactError, match=r"\.\./\.\./shard: .*lies outside the artifact"):
        export_artifact(evil, tmp_path / "deep" / "export", version)

    assert sorted(file_bytes(tmp_path)) == before
