"""Parts, their tasks and how outcomes are put together: the cut never shows in the outcome."""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.records import ShardFacts
from bridgepack.rules import ARTIFACT_RULES, CheckContext, RuleCrashError, Severity, check_artifact, judge_artifact
from bridgepack.rules.engine.part import PartScan, ShardPart, parts_of
from bridgepack.rules.engine.rows import Offenders, Rows
from bridgepack.rules.engine.rule import row_rule
from bridgepack.rules.engine.scan import Execution
from tests.unit.rules.in_memory_artifact import GOOD_ROWS, InMemoryArtifact, Row, artifact

GOOD = GOOD_ROWS[0]
SHORT_MASK: Row = [[11, 12, 2], [1, 1], [0]]
FINAL_BOUNDARY: Row = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4, 7]]
TOO_WIDE: Row = [[*range(11, 30), 2], [0, *[1] * 18, 0], [0]]
UNTRAINED: Row = [[31, 32, 2], [0, 0, 0], [0]]
OUT_OF_VOCABULARY: Row = [[11, 2000, 13, 2], [0, 1, 1, 0], [0]]
EMPTY: Row = [[], [], []]
ROWS = st.lists(st.sampled_from([GOOD, SHORT_MASK, FINAL_BOUNDARY, TOO_WIDE, UNTRAINED, OUT_OF_VOCABULARY, EMPTY]))


def _shard(rows: list[int], tokens: list[int], num_bytes: int = 1000) -> ShardFacts:
    return ShardFacts(
        path="a", exists=True, num_bytes=num_bytes, row_group_rows=tuple(rows), row_group_tokens=tuple(tokens)
    )


def _in_row_groups(case: dict[str, Any]) -> InMemoryArtifact:
    """Return the artifact of a case with a row group for each row."""
    shards = artifact(case).shards
    changes = {}
    for split, group in shards.items():
        for index, shard in enumerate(group):
            rows = artifact(case).rows[shard.path]
            changes[f"shards/{split}/{index}/row_group_rows"] = [1] * len(rows)
            changes[f"shards/{split}/{index}/row_group_tokens"] = [len(row[0]) for row in rows]
            changes[f"shards/{split}/{index}/sha256"] = None
    return artifact(case | {"set": changes})


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 400))
def test_parts_hold_every_row_group_once(tokens: list[int], part_tokens: int) -> None:
    shard = _shard([1] * len(tokens), tokens, num_bytes=12345)
    parts = list(parts_of("training", shard, part_tokens=part_tokens))
    groups = [group for part in parts for group in (part.row_groups or range(len(tokens)))]
    assert groups == list(range(len(tokens)))
    assert sum(part.num_bytes for part in parts) == 12345
    assert [part.first_row for part in parts] == [(part.row_groups or range(1)).start for part in parts]


@settings(deadline=None, max_examples=40)
@given(ROWS, ROWS, st.integers(1, 60), st.integers(1, 60), st.integers(1, 4))
def test_the_cut_never_shows(
    training: list[Row], validation: list[Row], part_tokens: int, max_tokens: int, rows_per_shard: int
) -> None:
    rows = {"training": training, "validation": validation}
    subject = _in_row_groups({"rows": rows, "rows_per_shard": rows_per_shard})
    whole = judge_artifact(subject, execution=Execution(part_tokens=10**9, max_tokens=10**9))
    cut = judge_artifact(subject, execution=Execution(part_tokens=part_tokens, max_tokens=max_tokens))
    assert cut == whole
    assert whole[0].num_rows == len(training) + len(validation)


def test_files_are_hashed_before_their_rows_are_read_and_the_facts_have_the_hashes() -> None:
    rows = [GOOD] * 20
    subject = _in_row_groups({"rows": {"training": rows}, "rows_per_shard": 1})
    order: list[str] = []

    def run(function: Any, parts: Iterable[ShardPart]) -> Iterator[PartScan]:
        for part in parts:
            order.append("hash" if part.is_file else "part")
            yield function(part)

    _, facts = judge_artifact(subject, execution=Execution(run_tasks=run))
    assert order == (["hash"] * 8 + ["part"] * 8) * 2 + ["hash"] * 4 + ["part"] * 4
    assert {shard.sha256 for shard in facts.shards["training"]} == {f"hash of {path}" for path in subject.rows}


def test_progress_ends_at_its_total() -> None:
    told: list[tuple[Any, ...]] = []

    class Listener:
        def start(self, stage: str, total: int | None, unit: str) -> None:
            told.append((stage, total, unit))

        def advance(self, num_items: int, work: int | None = None) -> None:
            told.append((num_items, work))

        def finish(self) -> None:
            told.append(("finished",))

    subject = _in_row_groups({"rows": {"training": [GOOD] * 5, "validation": [UNTRAINED]}})
    judge_artifact(subject, execution=Execution(part_tokens=10, progress=Listener()))
    (stage, total, unit), *steps, end = told
    assert (stage, total, unit, end) == ("Checking", 2 * (105 + 101), "rows", ("finished",))
    assert sum(work for _, work in steps) == total
    assert sum(num_rows for num_rows, _ in steps) == 6


def test_a_row_rule_alone_sees_sound_rows_only() -> None:
    subject = artifact({"rows": {"training": [EMPTY, GOOD, SHORT_MASK, TOO_WIDE]}})
    rules = [rule for rule in ARTIFACT_RULES if rule.code == "BP330"]
    report = check_artifact(subject, rules=rules)
    assert [finding.code for finding in report.findings] == ["BP330"]
    assert (report.rules_run, report.num_rows, report.num_sound_rows) == (("BP330",), 4, 2)


def test_a_crash_names_the_rule_and_the_shard_when_it_is_pickled() -> None:
    @row_rule("BP399", Severity.ERROR, "test")
    def always_crashes(rows: Rows) -> Offenders | None:
        raise IndexError(rows.num_rows)

    with pytest.raises(RuleCrashError) as caught:
        check_artifact(artifact({}), rules=(always_crashes,))
    message = str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 (our own bytes)
    shard = "training/shard-00000-of-00001.idx.parquet"
    assert message.startswith(f"rule BP399 (always-crashes) crashed on {shard}: IndexError: 1.")


def test_what_a_rule_lacks_in_every_part_is_one_reason() -> None:
    subject = _in_row_groups({"has_manifest": False, "rows": {"training": [GOOD] * 4}})
    execution = Execution(part_tokens=1)
    report, _ = judge_artifact(subject, context=CheckContext(), execution=execution)
    assert {rule.code: rule.reason for rule in report.rules_skipped}["BP330"] == "packed_sequence_size is not known"
    assert report.num_rows == 4
