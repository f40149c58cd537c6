"""Edges of the rules on special tokens."""

from typing import Any

import pytest

from tests.unit.rules.in_memory_artifact import check


def _codes(ids: list[int], mask: list[int], tokenizer: dict[str, Any] | None = None, **case: Any) -> set[str]:
    facts = {f"manifest/tokenizer/{name}": value for name, value in (tokenizer or {}).items()}
    case["set"] = facts | case.get("set", {})
    report = check({"rows": {"training": [[ids, mask, [0]]]}, **case})
    return {finding.code for finding in report.findings}


def test_newline_after_the_end_of_a_turn_is_no_loss() -> None:
    assert _codes([11, 12, 2, 5, 21, 22, 2, 5], [1, 1, 1, 0, 1, 1, 1, 0]) == set()


def _with_one_lost_label(num_trained: int) -> tuple[list[int], list[int]]:
    return [11, 2, *[21] * (num_trained - 2), 9], [1] * num_trained + [0]


def test_one_lost_label_in_a_hundred_is_reported_and_one_in_more_is_not() -> None:
    assert "BP528" in _codes(*_with_one_lost_label(100), packed_sequence_size=256)
    assert "BP528" not in _codes(*_with_one_lost_label(101), packed_sequence_size=256)


def test_padding_after_a_trained_end_is_no_untrained_end() -> None:
    assert _codes([11, 12, 2, 2, 2], [0, 1, 0, 0, 0], {"end_of_turn_ids": [2]}, pad_seq_to_mult=4) == set()


@pytest.mark.parametrize("ids", [[7], (7,)], ids=["as built", "as read from a file"])
@pytest.mark.parametrize(("mask", "expected"), [([0, 1, 1, 0, 0], set()), ([0, 1, 0, 0, 0], {"BP506"})])
def test_answers_that_end_with_another_token_than_eos(mask: list[int], expected: set[str], ids: Any) -> None:
    assert _codes([11, 12, 13, 7, 5], mask, {"end_of_turn_ids": ids}) == expected


def test_eos_is_expected_where_the_end_of_turn_is_not_known() -> None:
    assert _codes([11, 12, 13, 7, 5], [0, 1, 1, 0, 0]) == {"BP336"}


def test_prompts_and_completions_end_with_eos_whatever_the_template_does() -> None:
    preprocessing = {"manifest/recipe/preprocessing": {"kind": "prompt_completion", "loss_mode": "completion"}}
    found = _codes([11, 12, 13, 2], [0, 1, 0, 0], {"end_of_turn_ids": [7]}, set=preprocessing)
    assert found == {"BP336", "BP506"}


def test_bos_that_is_eos_is_not_judged() -> None:
    assert "BP531" not in _codes([2, 2, 11, 12, 2], [0, 0, 1, 1, 0], {"bos_token_id": 2})


@pytest.mark.parametrize(
    ("token", "padded_vocab_size", "expected"),
    [(99, 128, set()), (99, 100, set()), (100, 100, {"BP311"}), (100, 128, {"BP312"}), (127, 128, {"BP312"})],
)
def test_vocabulary_padding_lies_between_two_sizes(token: int, padded_vocab_size: int, expected: set[str]) -> None:
    assert _codes([11, token, 13, 2], [0, 1, 1, 0], context={"padded_vocab_size": padded_vocab_size}) == expected
