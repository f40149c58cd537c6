"""Heuristics on masks and special tokens: what they must say, and what they must not."""

from typing import Any

import pytest

from bridgepack.host import V06, V07, release_of
from bridgepack.rules.judging.report import CheckReport
from tests.support.messages import mentions
from tests.unit.rules.in_memory_artifact import check


def _codes(report: CheckReport) -> set[str]:
    return {finding.code for finding in report.findings}


def _rows(sequences: list[tuple[list[int], list[int]]]) -> dict[str, Any]:
    return {"packed_sequence_size": 64, "rows": {"training": [[ids, mask, [0]] for ids, mask in sequences]}}


@pytest.mark.parametrize(
    ("ids", "mask", "expected"),
    [
        pytest.param((11, 8, 9, 30, 40, 2), (0, 0, 1, 1, 1, 0), set(), id="shifted, with a constant header"),
        pytest.param((11, 8, 9, 30, 40, 2, 5), (0, 0, 0, 1, 1, 1, 0), {"BP332"}, id="unshifted, ends with a newline"),
        pytest.param((11, 50, 30, 2), (0, 1, 1, 0), set(), id="shifted, prompts end in many ways"),
        pytest.param((11, 9, 30, 2, 5), (0, 1, 1, 1, 0), set(), id="shifted, trains the newline after EOS"),
        pytest.param((11, 9, 7, 30, 2), (0, 1, 1, 1, 0), set(), id="shifted, answers begin alike"),
    ],
)
def test_whether_masks_look_unshifted(ids: tuple[int, ...], mask: tuple[int, ...], expected: set[str]) -> None:
    """Tokens from 30 on are others in each of ten sequences."""
    sequences = [([token + index * (token >= 30) for token in ids], list(mask)) for index in range(10)]
    assert _codes(check(_rows(sequences))) == expected


ALL = [11, 12, 13, 2], [1, 1, 1, 0]


def test_what_is_not_judged_has_a_reason() -> None:
    few = [([11, 9, 30 + index, 2, 5], [0, 0, 1, 1, 0]) for index in range(7)]
    full = _rows([ALL]) | {"context": {"loss_mode": "full"}}
    for code, case, reason in (
        ("BP332", _rows(few), "fewer than 8 trained runs begin inside a sequence"),
        ("BP333", full, "loss_mode is full: every label is trained on purpose"),
    ):
        report = check(case)
        assert report.findings == ()
        assert [skipped.reason for skipped in report.rules_skipped if skipped.code == code] == [reason]


@pytest.mark.parametrize(
    ("sequences", "case", "expected"),
    [
        pytest.param([ALL], {}, {"BP333"}, id="everything"),
        pytest.param([ALL, ([11, 12, 13, 2], [0, 1, 1, 0])], {}, set(), id="one prompt is masked"),
        pytest.param([([11, 12, 13, 2, 2], [1, 1, 1, 0, 0])], {"pad_seq_to_mult": 4}, {"BP333"}, id="all but padding"),
        pytest.param([([11, 12, 2, 13, 14, 2], [0, 1, 1, 1, 1, 0])], {}, {"BP528"}, id="a label after EOS"),
        pytest.param([([11, 2, 13, 14], [0, 1, 0, 0]), ([11, 12, 2], [0, 1, 0])], {}, {"BP318"}, id="EOS as input"),
    ],
)
def test_what_is_trained(sequences: Any, case: dict[str, Any], expected: set[str]) -> None:
    assert _codes(check(_rows(sequences) | case)) == expected


def _codes_of(ids: list[int], mask: list[int], tokenizer: dict[str, Any] | None = None, **case: Any) -> set[str]:
    facts = {f"manifest/tokenizer/{name}": value for name, value in (tokenizer or {}).items()}
    case["set"] = facts | case.get("set", {})
    report = check({"rows": {"training": [[ids, mask, [0]]]}, **case})
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize(("num_trained", "is_reported"), [(100, True), (101, False)])
def test_one_lost_label_in_a_hundred_is_reported_and_one_in_more_is_not(num_trained: int, is_reported: bool) -> None:
    ids, mask = [11, 2, *[21] * (num_trained - 2), 9], [1] * num_trained + [0]
    assert ("BP528" in _codes_of(ids, mask, packed_sequence_size=256)) == is_reported


INNER = [([11, 12, 2, 13, 14, 2], [0, 1, 1, 1, 1, 0]), ([11, 12, 2, 5], [0, 1, 1, 0])]


def test_what_each_release_trains_after_an_eos_is_said() -> None:
    """The label 13 follows an EOS inside a text, the label 5 the end of one."""
    (finding,) = check(_rows(INNER) | {"context": {"release": V06}}).findings
    assert (finding.code, finding.num_occurrences) == ("BP528", 1)
    assert mentions(finding.found, "1 of 4 trained labels", "an EOS, 2: ", "0.6 trains 3 labels, 0.7 trains 4")

    report = check(_rows(INNER) | {"context": {"release": V07}})
    assert report.findings == ()
    assert "BP528" in report.rules_run


def test_labels_after_an_eos_that_were_asked_for_all_count() -> None:
    asked = {"context": {"labels_after_eos": "train"}}
    (finding,) = check(_rows(INNER) | asked).findings
    assert (finding.code, finding.num_occurrences) == ("BP528", 2)
    assert finding.found.startswith("1 of 4 trained labels")


def test_rows_that_only_train_after_an_eos_train_since_0_7() -> None:
    rows = _rows([([11, 2, 13, 14], [0, 1, 0, 0]), ([11, 12, 2], [0, 1, 0])])
    assert _codes(check(rows | {"context": {"release": V06}})) == {"BP318"}
    assert _codes(check(rows | {"context": {"release": V07}})) == set()


def test_labels_after_an_eos_are_not_judged_for_a_release_that_is_not_known() -> None:
    newer = release_of("9.9")
    (skipped,) = [
        one for one in check(_rows(INNER) | {"context": {"release": newer}}).rules_skipped if one.code == "BP528"
    ]
    assert skipped.reason.startswith("not known for 9.9: bridgepack knows Megatron-Bridge up to ")


@pytest.mark.parametrize("ids", [[7], (7,)], ids=["as built", "as read from a file"])
@pytest.mark.parametrize(("mask", "expected"), [([0, 1, 1, 0, 0], set()), ([0, 1, 0, 0, 0], {"BP506"})])
def test_answers_that_end_with_another_token_than_eos(mask: list[int], expected: set[str], ids: Any) -> None:
    assert _codes_of([11, 12, 13, 7, 5], mask, {"end_of_turn_ids": ids}) == expected


@pytest.mark.parametrize(
    ("ids", "mask", "tokenizer", "case", "expected"),
    [
        ([11, 12, 2, 5, 21, 22, 2, 5], [1, 1, 1, 0, 1, 1, 1, 0], {}, {}, set()),
        ([11, 12, 2, 2, 2], [0, 1, 0, 0, 0], {"end_of_turn_ids": [2]}, {"pad_seq_to_mult": 4}, set()),
        ([11, 12, 13, 7, 5], [0, 1, 1, 0, 0], {}, {}, {"BP336"}),
        ([2, 2, 11, 12, 2], [0, 0, 1, 1, 0], {"bos_token_id": 2}, {}, set()),
    ],
    ids=["newline after a turn", "padding after a trained end", "no end of turn is known", "BOS that is EOS"],
)
def test_ends_of_turns(ids: list[int], mask: list[int], tokenizer: Any, case: Any, expected: set[str]) -> None:
    assert _codes_of(ids, mask, tokenizer, **case) == expected


def test_prompts_and_completions_end_with_eos_whatever_the_template_does() -> None:
    preprocessing = {"manifest/recipe/preprocessing": {"kind": "prompt_completion", "loss_mode": "completion"}}
    found = _codes_of([11, 12, 13, 2], [0, 1, 0, 0], {"end_of_turn_ids": [7]}, set=preprocessing)
    assert found == {"BP336", "BP506"}


@pytest.mark.parametrize(
    ("token", "padded_vocab_size", "expected"),
    [(99, 128, set()), (99, 100, set()), (100, 100, {"BP311"}), (100, 128, {"BP312"}), (127, 128, {"BP312"})],
)
def test_vocabulary_padding_lies_between_two_sizes(token: int, padded_vocab_size: int, expected: set[str]) -> None:
    assert _codes_of([11, token, 13, 2], [0, 1, 1, 0], context={"padded_vocab_size": padded_vocab_size}) == expected
