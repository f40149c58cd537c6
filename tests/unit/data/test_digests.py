"""Digests of packs: they are what the host's batch holds, differ where packs differ, and lie in the plan."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.digests import digests_of_split, has_digests
from bridgepack.data.artifact.manifest import read_manifest, write_manifest
from bridgepack.data.shards.digests import pack_digest
from bridgepack.data.shards.write import WriteTask, write_planned_shard
from bridgepack.errors import ArtifactError
from bridgepack.host import release_of
from bridgepack.replay.collate import CollateSettings, predict_batch
from tests.support import small_builds as small

EOS = 2
ROWS = [small.tokenized_row(*range(10, 12 + index % 7), EOS, 5 + index) for index in range(30)]


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    changes = {"data__validation_fraction": 0.3, "preprocessing__labels_after_eos": "train"}
    train = small.write_json_lines(tmp_path / "a.jsonl", ROWS)
    recipe = small.tokenized_recipe(train, chatml_tokenizer, **changes, parallelism__context_parallel_size=2)
    small.build(recipe, tmp_path / "out")
    return tmp_path / "out"


def _digest(tokens: list[int], mask: list[int]) -> int:
    return pack_digest(np.array(tokens, dtype=np.int64), np.array(mask, dtype=bool))


def test_a_digest_never_changes() -> None:
    assert _digest([5, 6, 8], [0, 1, 1]) == 13794245233201856265
    assert _digest([0] * 5000, [1] * 5000) == 15622167087176138466


@pytest.mark.parametrize(
    ("tokens", "mask"),
    [
        ([5, 6, 9], [0, 1, 1]),
        ([6, 5, 8], [0, 1, 1]),
        ([5, 6, 8], [1, 0, 1]),
        ([5, 6, 8, 0], [0, 1, 1, 0]),
        ([5, 6], [0, 1]),
    ],
    ids=["token", "order", "mask", "zeros behind it", "shorter"],
)
def test_packs_that_differ_have_other_digests(tokens: list[int], mask: list[int]) -> None:
    assert _digest(tokens, mask) != _digest([5, 6, 8], [0, 1, 1])


@pytest.mark.parametrize("version", ["0.6.2", "0.7.0"])
@pytest.mark.parametrize("split", ["training", "validation"])
def test_the_plan_has_the_digests_of_the_host_s_batches(artifact: Path, split: str, version: str) -> None:
    opened = Artifact(artifact)
    eos = int(opened.manifest.tokenizer["eos_token_id"])
    settings = CollateSettings(
        release=release_of(version),
        packed_sequence_size=16,
        pad_seq_to_mult=opened.manifest.pad_seq_to_mult,
        eos_token_id=eos,
        pad_to_max_length=True,
    )

    digests = digests_of_split(opened, split)

    for pack in range(len(digests)):
        batch = predict_batch([opened.row(split, pack)], settings)
        tokens = batch.tokens[0, : batch.token_count[0]]
        is_trained = (batch.loss_mask[0, : len(tokens)] != 0) & (tokens != eos)
        assert pack_digest(tokens, is_trained) == int(digests[pack])
    assert len(set(digests.tolist())) == len(digests) > 2


def test_packs_of_an_older_artifact_are_read(artifact: Path) -> None:
    digests = digests_of_split(Artifact(artifact), "training")
    _without_digests(artifact)

    assert not has_digests(Artifact(artifact), "training")
    assert digests_of_split(Artifact(artifact), "training").tolist() == digests.tolist()


def test_digests_of_other_packs_are_refused(artifact: Path) -> None:
    plan = artifact / "plan"
    (plan / "training-digests.parquet").write_bytes((plan / "validation-digests.parquet").read_bytes())

    with pytest.raises(ArtifactError, match="one for each pack"):
        digests_of_split(Artifact(artifact, may_be_changed=True), "training")


def test_a_shard_that_is_not_written_again_has_its_digests(
    tmp_path: Path, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[WriteTask] = []

    def keep(task: WriteTask, beat: object) -> object:
        tasks.append(task)
        first = write_planned_shard(task, beat)  # type: ignore[arg-type]
        second = write_planned_shard(task, beat)  # type: ignore[arg-type]
        assert (first.was_there, second.was_there) == (False, True)
        assert second.digests.tolist() == first.digests.tolist()
        return second

    monkeypatch.setattr("bridgepack.data.stages.write.write_planned_shard", keep)
    recipe = SFTRecipe.from_mapping(dict(read_manifest(artifact).recipe))
    small.build(recipe, tmp_path / "again")

    assert len(tasks) == 2
    assert small.data_bytes(tmp_path / "again") == small.data_bytes(artifact)


def _without_digests(artifact: Path) -> None:
    """Make an artifact as earlier versions built it."""
    manifest = read_manifest(artifact)
    files = tuple(record for record in manifest.files if "digests" not in record.path)
    for path in (artifact / "plan").glob("*-digests.parquet"):
        path.unlink()
    write_manifest(artifact, dataclasses.replace(manifest, files=files, sha256=""))
