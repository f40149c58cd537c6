"""An artifact on disk checked in parts by several processes: one outcome, whatever their number."""

import os
from pathlib import Path

import pytest

from bridgepack.data.artifact.checking import ArtifactOnDisk, opened_for_check
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.shards.write import shard_name, write_shard
from bridgepack.data.workers.pool import plain_runner
from bridgepack.reporting.formats import render_report
from bridgepack.rules.judging.context import CheckContext
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judgement import Judgement
from bridgepack.rules.judging.scan import Execution
from tests.support.judging import judge_artifact, report_of
from tests.unit.rules.in_memory_artifact import Row, row_batch

CONTEXT = CheckContext(packed_sequence_size=4096, pad_seq_to_mult=1, eos_token_id=2, vocab_size=1000)
TOO_WIDE: Row = [[11] * 5000, [0, *[1] * 4998, 0], [0]]
SHORT_MASK: Row = [[11, 12, 2], [1, 1], [0]]
NO_TRAINED: Row = [[11, 12, 2], [0, 0, 0], [0]]
OUT_OF_VOCABULARY: Row = [[11, 2000, 13, 2], [0, 1, 1, 0], [0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two splits, each of several shards of many row groups, with broken rows in most of them."""
    root = tmp_path_factory.mktemp("packs")
    for split, num_shards, seed in (("training", 3, 0), ("validation", 2, 1)):
        for index in range(num_shards):
            rows = [_row(seed + 1000 * index + 10 * row) for row in range(120)]
            for offset, broken in enumerate((TOO_WIDE, SHORT_MASK, NO_TRAINED, OUT_OF_VOCABULARY)):
                rows[(17 * (index + 1) + 23 * offset) % 120] = broken
            (root / split).mkdir(exist_ok=True)
            batch = row_batch(rows)
            write_shard(root / split / shard_name(index, num_shards), iter([batch]), packed_sequence_size=4096)
    damaged = root / "training" / shard_name(1, 3)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    damaged.write_bytes(content)
    return root


def test_outcome_does_not_depend_on_the_number_of_workers(folder: Path) -> None:
    scans = [_scan(folder, num_workers) for num_workers in (1, 2, 3)]
    assert scans[1] == scans[0]
    assert scans[2] == scans[0]
    report, whole = scans[0]
    assert len({render_report(report_of(judgement, facts), "json") for judgement, facts in scans}) == 1
    codes = {finding.code for finding in report.findings}
    assert {"BP303", "BP311", "BP318", "BP320", "BP330", "BP341"} <= codes
    [wide] = [finding for finding in report.findings if finding.code == "BP330"]
    assert wide.examples[:3] == tuple(
        f"training/{shard_name(index, 3)} pack {120 * index + place}" for index, place in ((0, 17), (1, 34), (2, 51))
    )
    facts = whole.shards["training"]
    assert [shard.sha256 for shard in facts] == [hash_file(folder / shard.path) for shard in facts]


def test_a_small_artifact_is_read_in_this_process(folder: Path) -> None:
    with opened_for_check(folder, num_workers=8) as artifact:
        [pid] = set(artifact.tasks.run(lambda _: os.getpid(), range(3)))
    assert pid == os.getpid()


def _row(seed: int) -> Row:
    ids = [11 + (seed * 7 + position * position) % 900 for position in range(40)]
    if seed % 50 == 0:
        ids = [11, 12, 13, *range(100, 137)]
    return [[*ids, 2], [0, 0, *[1] * 38, 0], [0]]


def _scan(folder: Path, num_workers: int) -> tuple[Judgement, ArtifactFacts]:
    artifact = ArtifactOnDisk(folder)
    with plain_runner(num_workers) as artifact.tasks:
        execution = Execution(run_tasks=artifact.tasks.run, part_tokens=1000, max_tokens=300)
        return judge_artifact(artifact, context=CONTEXT, execution=execution)
