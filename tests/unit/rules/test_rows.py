"""Limits of the rules on token ids, exactly."""

from typing import Any

from tests.unit.rules.in_memory_artifact import check


def _found(*ids: int, padded_vocab_size: int | None = None) -> dict[str, tuple[str, int, str]]:
    """Return code -> (where, number of occurrences, found) of rows `[11, id, 13, 2]`, vocabulary of 100."""
    rows = [[[11, token, 13, 2], [0, 1, 1, 0], [0]] for token in ids]
    case: dict[str, Any] = {"rows": {"training": rows}, "context": {"padded_vocab_size": padded_vocab_size}}
    return {
        finding.code: (finding.where.partition(" ")[2], finding.num_occurrences, finding.found)
        for finding in check(case).findings
    }


def test_first_and_last_id_are_allowed() -> None:
    assert _found(0, 99) == {}


def test_ids_just_outside_are_not() -> None:
    assert _found(0, 99, -1) == {"BP311": ("row 2", 1, "token id -1")}
    assert _found(0, 99, 100, 12) == {"BP311": ("row 2", 1, "token id 100")}


def test_vocabulary_padding_begins_at_the_tokenizers_size_and_ends_before_the_models() -> None:
    assert _found(99, 100, 127, padded_vocab_size=128) == {"BP312": ("row 1", 2, "token id 100")}
    assert _found(99, 128, padded_vocab_size=128) == {"BP311": ("row 1", 1, "token id 128")}


def test_a_model_as_large_as_the_tokenizer_has_no_padding() -> None:
    assert _found(99, padded_vocab_size=100) == {}
    assert _found(100, padded_vocab_size=100) == {"BP311": ("row 0", 1, "token id 100")}
