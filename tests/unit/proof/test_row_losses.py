"""Losses of rows and sources are read from what a run left: parts of ranks, restarts and repeats."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import DataError
from bridgepack.proof.losses.by_source import first_steps_after, read_source_losses
from bridgepack.proof.losses.rows import read_row_losses
from bridgepack.records.losses import RowsPart, SourceLoss
from bridgepack.running.losses.lines import append_losses, next_start
from bridgepack.running.losses.rows import RowWriter
from tests.support import small_builds as small

ROWS = {
    "a": [
        small.tokenized_row(*range(10, 16)),
        small.tokenized_row(*range(20, 26)),
        small.tokenized_row(*range(30, 55)),
    ],
    "b": [small.tokenized_row(*range(60, 66)), small.tokenized_row(*range(70, 76))],
}


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Artifact:
    """Return packs [a1 a2] [piece of a3] [the rest of a3, b1] [b2]; in validation, packs hold one
    source: [a1 a2] [piece of a3] [b1 b2] [the rest of a3]."""
    sources = [
        {"path": str(small.write_json_lines(tmp_path / f"{name}.jsonl", rows)), "name": name}
        for name, rows in ROWS.items()
    ]
    changes: dict[str, Any] = {"data__validation": sources, "packing__algorithm": "sequential"}
    changes |= {"preprocessing__over_long": "split", "packing__max_sequence_length": 14}
    small.build(small.tokenized_recipe(sources, chatml_tokenizer, **changes), tmp_path / "packs")
    return Artifact(tmp_path / "packs")


#: (step, pack, evaluation) -> loss and trained tokens of each sequence.
Readings = dict[tuple[int, int, int], list[tuple[float, int]]]


def _write(
    folder: Path,
    artifact: Artifact,
    *files: Readings,
    start: int = 1,
    first_step: int = 1,
    rank: int = 0,
    ranks: int = 1,
) -> None:
    part = RowsPart(
        fingerprint=artifact.manifest.fingerprint,
        start=start,
        first_step=first_step,
        ranks=tuple(range(ranks)),
        rank=rank,
        part=1,
    )
    writer = RowWriter(folder=folder / "rows", part=part)
    for readings in files:
        for (step, pack, evaluation), values in readings.items():
            writer.places.append(("validation" if evaluation else "training", step, evaluation, pack))
            writer.values.append(np.array(values, dtype=np.float64))
            writer.num_micro_batches += 1
        writer.write()


def _table(folder: Path, artifact: Artifact, split: str = "training") -> list[tuple[Any, ...]]:
    rows = read_row_losses(folder, artifact)[0][split]
    names = ("step", "epoch", "source", "row", "first_token", "loss_sum", "num_trained_tokens")
    return list(zip(*(getattr(rows, name).tolist() for name in names), strict=True))


FIRST = {(1, 0, 0): [(2.0, 4), (3.0, 5)], (1, 1, 0): [(8.0, 12)]}
SECOND = {(2, 2, 0): [(1.5, 9), (2.5, 5)], (2, 0, 0): [(1.0, 4), (2.0, 5)]}


def test_rows_have_their_places_and_epochs(tmp_path: Path, artifact: Artifact) -> None:
    _write(tmp_path, artifact, FIRST, SECOND)

    assert _table(tmp_path, artifact) == [
        (1, 1, 0, 1, 0, 2.0, 4),
        (1, 1, 0, 2, 0, 3.0, 5),
        (1, 1, 0, 3, 0, 8.0, 12),
        (2, 2, 0, 1, 0, 1.0, 4),
        (2, 2, 0, 2, 0, 2.0, 5),
        (2, 1, 0, 3, 14, 1.5, 9),
        (2, 1, 1, 1, 0, 2.5, 5),
    ]


def test_parts_of_context_ranks_add_up(tmp_path: Path, artifact: Artifact) -> None:
    halves = {(1, 0, 0): [(0.5, 0), (1.0, 3)]}, {(1, 0, 0): [(1.5, 4), (2.0, 2)]}
    for rank, half in enumerate(halves):
        _write(tmp_path, artifact, half, rank=rank, ranks=2)

    assert _table(tmp_path, artifact) == [(1, 1, 0, 1, 0, 2.0, 4), (1, 1, 0, 2, 0, 3.0, 5)]


def test_a_part_that_a_rank_has_not_written_is_left_out(tmp_path: Path, artifact: Artifact) -> None:
    _write(tmp_path, artifact, FIRST, SECOND, rank=0, ranks=2)
    _write(tmp_path, artifact, {(1, 2, 0): [(1.0, 9), (1.0, 5)]}, rank=1, ranks=2)

    _, notes = read_row_losses(tmp_path, artifact)
    assert {line[0] for line in _table(tmp_path, artifact)} == {1}
    assert len(notes) == 1
    assert "part 2 of start 1" in notes[0]
    assert "rank 1" in notes[0]


def test_steps_that_a_restart_trains_again_count_once(tmp_path: Path, artifact: Artifact) -> None:
    _write(tmp_path, artifact, FIRST, SECOND, {(3, 3, 0): [(9.0, 5)]})
    assert next_start(tmp_path) == 2
    _write(tmp_path, artifact, {(2, 0, 0): [(1.0, 4), (1.0, 5)]}, start=2, first_step=2)

    assert _table(tmp_path, artifact) == [
        (1, 1, 0, 1, 0, 2.0, 4),
        (1, 1, 0, 2, 0, 3.0, 5),
        (1, 1, 0, 3, 0, 8.0, 12),
        (2, 2, 0, 1, 0, 1.0, 4),
        (2, 2, 0, 2, 0, 1.0, 5),
    ]


def test_the_last_evaluation_after_a_step_counts(tmp_path: Path, artifact: Artifact) -> None:
    _write(tmp_path, artifact, {(2, 3, 1): [(4.0, 5)], (4, 3, 2): [(3.0, 5)], (4, 3, 3): [(2.0, 5)]})

    assert _table(tmp_path, artifact, "validation") == [(2, 1, 0, 3, 14, 4.0, 5), (4, 2, 0, 3, 14, 2.0, 5)]


def test_rows_of_another_artifact_are_refused(tmp_path: Path, artifact: Artifact) -> None:
    _write(tmp_path, artifact, FIRST)
    (path,) = (tmp_path / "rows").iterdir()
    table = pq.read_table(path)
    other = (table.schema.metadata or {})[b"bridgepack.rows"].replace(artifact.manifest.fingerprint.encode(), b"0" * 64)
    pq.write_table(table.replace_schema_metadata({b"bridgepack.rows": other}), path)

    with pytest.raises(DataError, match="000000000000"):
        read_row_losses(tmp_path, artifact)
    path.write_text("no Parquet")
    with pytest.raises(DataError, match="rank00000-001-00001"):
        read_row_losses(tmp_path, artifact)


def _line(step: int, loss_sum: float, *, first_step: int, start: int = 1, split: str = "training") -> SourceLoss:
    return SourceLoss(
        step=step,
        first_step=first_step,
        split=split,
        source="a",
        loss_sum=loss_sum,
        num_trained_tokens=2,
        start=start,
    )


def test_lines_of_a_restart_stand_in_place_of_earlier_ones(tmp_path: Path) -> None:
    assert first_steps_after({1: 1, 2: 101, 3: 51}) == {1: 51, 2: 51, 3: float("inf")}
    append_losses(tmp_path, [_line(2, 8.0, first_step=1), _line(2, 7.0, first_step=2, split="validation")])
    append_losses(tmp_path, [_line(4, 6.0, first_step=3), _line(4, 5.0, first_step=4, split="validation")])
    assert next_start(tmp_path) == 2
    append_losses(
        tmp_path, [_line(4, 4.0, first_step=3, start=2), _line(4, 3.0, first_step=4, split="validation", start=2)]
    )
    append_losses(tmp_path, [_line(4, 2.0, first_step=4, split="validation", start=2)])
    with (tmp_path / "by-source.jsonl").open("a") as stream:
        stream.write('{"step": 6, "first')

    losses = [(line.split, line.step, line.loss) for line in read_source_losses(tmp_path)]
    assert losses == [("training", 2, 4.0), ("training", 4, 2.0), ("validation", 2, 3.5), ("validation", 4, 1.0)]


@pytest.mark.parametrize("text", ["no JSON\n", '{"step": 1}\n', "[]\n"])
def test_lines_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "by-source.jsonl").write_text(text)

    with pytest.raises(DataError, match=r"by-source\.jsonl"):
        read_source_losses(tmp_path)
