"""Vectorised rules against a slow, obvious oracle; mutations of good rows; batches do not matter."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridgepack.rules.judging.report import CheckReport
from tests.unit.rules.in_memory_artifact import EOS_TOKEN_ID, Row, artifact, check

SIZE = 12
MULTIPLE = 2
VOCAB_SIZE = 20
CONTEXT = {"packed_sequence_size": SIZE, "pad_seq_to_mult": MULTIPLE, "vocab_size": VOCAB_SIZE}
STRUCTURE = {"BP303", "BP304", "BP305", "BP306", "BP307", "BP327", "BP328"}
ROW_RULES = STRUCTURE | {"BP309", "BP310", "BP311", "BP318", "BP319", "BP330", "BP331", "BP335"}

small_ints = st.integers(-2, VOCAB_SIZE + 1)
any_rows = st.tuples(
    st.lists(small_ints, max_size=18), st.lists(st.integers(-1, 2), max_size=18), st.lists(small_ints, max_size=5)
).map(list)


@st.composite
def good_rows(draw: st.DrawFn) -> Row:
    """Draw a row without any error."""
    ids: list[int] = []
    mask: list[int] = []
    starts: list[int] = []
    num_sequences = draw(st.integers(1, 3))
    for _ in range(num_sequences):
        runtime_length = 2 * draw(st.integers(1, 2))
        starts.append(len(ids))
        ids += draw(st.lists(st.integers(3, VOCAB_SIZE - 1), min_size=runtime_length, max_size=runtime_length))
        mask += [*draw(st.lists(st.integers(0, 1), min_size=runtime_length - 1, max_size=runtime_length - 1)), 1, 0]
        ids.append(EOS_TOKEN_ID)
    return [ids, mask, starts]


def oracle(ids: list[int], mask: list[int], starts: list[int]) -> set[str]:
    """Return codes of the row rules that a row breaks, one token at a time."""
    structure = _structure(ids, mask, starts)
    if structure:
        return structure
    codes = set()
    bounds = list(pairwise([*starts, len(ids)]))
    if len(ids) - len(starts) > SIZE:
        codes.add("BP330")
    if any((end - start - 1) % MULTIPLE for start, end in bounds):
        codes.add("BP331")
    if any(not 0 <= token < VOCAB_SIZE for token in ids):
        codes.add("BP311")
    if any(value not in (0, 1) for value in mask):
        codes.add("BP310")
    if any(mask[end - 1] != 0 for _, end in bounds):
        codes.add("BP309")
    for start, end in bounds:
        for position in range(start, end - 1):
            if mask[position] != 0 and ids[position] == ids[position + 1] == EOS_TOKEN_ID:
                codes.add("BP335")
    trained = [sum(mask[p] != 0 and ids[p] != EOS_TOKEN_ID for p in range(start, end)) for start, end in bounds]
    if not any(trained):
        codes.add("BP318")
    elif not all(trained):
        codes.add("BP319")
    return codes


def _structure(ids: list[int], mask: list[int], starts: list[int]) -> set[str]:
    codes = set()
    if not ids:
        codes.add("BP328")
    if ids and not starts:
        codes.add("BP327")
    if len(ids) != len(mask):
        codes.add("BP303")
    if starts and starts[0] != 0:
        codes.add("BP304")
    if starts and starts[-1] == len(ids) and starts[-1] > 0:
        codes.add("BP305")
    if any(start < 0 or start > len(ids) for start in starts):
        codes.add("BP307")
    if any(after - before < 2 for before, after in pairwise(starts)) or (starts and len(ids) - starts[-1] == 1):
        codes.add("BP306")
    return codes


def _check(rows: list[Row], **options: Any) -> CheckReport:
    case = {"rows": {"training": rows}, "packed_sequence_size": SIZE, "pad_seq_to_mult": MULTIPLE, "context": CONTEXT}
    return check(case, **options)


@given(st.lists(st.one_of(any_rows, good_rows()), min_size=1, max_size=8), st.integers(1, 40))
def test_rows_do_not_influence_each_other(rows: list[Row], max_tokens: int) -> None:
    report = _check(rows, max_tokens=max_tokens)
    assert {finding.code for finding in report.findings} & ROW_RULES == set().union(*(oracle(*row) for row in rows))
    assert report.num_sound_rows == sum(not _structure(*row) for row in rows)
    num_wide = sum("BP330" in oracle(*row) for row in rows)
    counts = {finding.code: finding.num_occurrences for finding in report.findings}
    assert counts.get("BP330", 0) == num_wide


@given(st.lists(good_rows(), min_size=1, max_size=6))
def test_good_rows_have_no_error(rows: list[Row]) -> None:
    report = _check(rows)
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    assert report.num_sound_rows == len(rows)


@given(st.lists(good_rows(), min_size=1, max_size=4), st.lists(good_rows(), min_size=1, max_size=4))
def test_shared_sequences_are_those_that_two_sets_share(training: list[Row], validation: list[Row]) -> None:
    subject = {"rows": {"training": training, "validation": validation}, "context": CONTEXT}
    assert artifact(subject).split_names == ("training", "validation")
    expected = _sequences(training) & _sequences(validation)
    found = [finding for finding in check(subject).findings if finding.code == "BP320"]
    assert len(found) == bool(expected)
    if expected:
        assert found[0].found.startswith(f"{len(expected)} of ")


def _sequences(rows: list[Row]) -> set[tuple[int, ...]]:
    return {tuple(ids[start:end]) for ids, _, starts in rows for start, end in pairwise([*starts, len(ids)])}
