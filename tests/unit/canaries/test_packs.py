"""Packs are chosen, cut, renumbered and laid out as one does by hand."""

import numpy as np
import pytest

from bridgepack.canaries.packs import choice_of, chosen_packs, laid_out, lengths_of, sequences_of
from bridgepack.host import TARGET, V06, V07, HostRelease
from bridgepack.records import PackedRow
from tests.support.canaries import packed_row

EOS = 2


def _row(*sequences: tuple[list[int], list[int]]) -> PackedRow:
    """Return a stored pack of (token ids, label-aligned mask) each."""
    starts = np.cumsum([0, *(len(ids) for ids, _ in sequences)])[:-1]
    ids, mask = [token for ids, _ in sequences for token in ids], [flag for _, mask in sequences for flag in mask]
    return packed_row(ids, mask, starts.tolist())


@pytest.mark.parametrize(("release", "second", "num_untrained"), [(V06, [1, 0, 1, 0], 1), (V07, [1, 1, 1, 0], 0)])
def test_padding_is_not_trained_and_what_follows_eos_as_the_host_does(
    release: HostRelease, second: list[int], num_untrained: int
) -> None:
    """The first sequence is padded from 2 to 4 runtime tokens; the second asks to train what follows EOS."""
    row = _row(([5, 6, 7, EOS, EOS], [1, 1, 0, 0, 0]), ([8, EOS, 9, EOS], [1, 1, 1, 0]))

    chosen = chosen_packs({0: row}, eos_token_id=EOS, max_tokens=100, release=release)

    assert [one.input_ids.tolist() for one in chosen.sequences] == [[1, 2, 3, 0], [4, 0, 5, 0]]
    assert [one.loss_mask.tolist() for one in chosen.sequences] == [[1, 1, 0, 0], second]
    assert chosen.num_untrained_eos == num_untrained


@pytest.mark.parametrize(
    ("release", "ids", "mask"), [(V06, [8, 9, EOS], [1, 1, 0]), (V07, [8, 9, EOS, 5], [1, 1, 1, 0])]
)
def test_a_trained_label_after_the_last_eos_is_content(release: HostRelease, ids: list[int], mask: list[int]) -> None:
    """A turn's end, and the newline behind it."""
    (only,) = sequences_of(_row(([8, 9, EOS, 5], [1, 1, 1, 0])), EOS, release)

    assert (only.input_ids.tolist(), only.loss_mask.tolist()) == (ids, mask)


def test_a_sequence_of_nothing_but_eos_stays_a_sequence() -> None:
    (only,) = sequences_of(_row(([EOS, EOS, EOS], [1, 1, 0])), EOS, TARGET)

    assert only.input_ids.tolist() == [EOS, EOS]
    assert only.loss_mask.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("max_tokens", "lengths", "left_out", "is_cut"),
    [
        (9, [3, 4, 2], 0, False),
        (8, [3, 4], 1, False),
        (7, [3, 4], 1, False),
        (4, [2, 2], 1, True),
        (2, [1, 1], 1, True),
        (1, [1], 2, True),
    ],
)
def test_long_packs_lose_their_last_sequences_and_keep_two(
    max_tokens: int, lengths: list[int], left_out: int, is_cut: bool
) -> None:
    row = _row(([5, 6, 7, 8], [1, 1, 1, 0]), ([5, 6, 7, 8, 9], [1, 1, 1, 1, 0]), ([5, 6, 7], [1, 1, 0]))

    (pack,) = chosen_packs({0: row}, eos_token_id=EOS, max_tokens=max_tokens, release=TARGET).packs

    assert lengths_of(pack.row).tolist() == lengths
    assert (pack.num_sequences_left_out, pack.is_cut) == (left_out, is_cut)
    assert [pack.row.input_ids[start] for start in pack.row.seq_start_id] == [1] * len(lengths)  # 5, renumbered
    assert all(one.loss_mask[-1] == 0 for one in pack.sequences)
    assert len(pack.row.loss_mask) == len(pack.row.input_ids)


def test_of_padding_one_token_stays_as_a_label_that_is_not_trained() -> None:
    padded = laid_out(sequences_of(_row(([5, 6, 7, 8], [1, 1, 1, 0])), EOS, TARGET), 8, EOS)
    (only,) = sequences_of(padded, EOS, TARGET)

    assert padded.input_ids.tolist() == [5, 6, 7, 8, EOS, EOS, EOS, EOS, EOS]
    assert (only.input_ids.tolist(), only.loss_mask.tolist()) == ([5, 6, 7, 8, EOS], [1, 1, 1, 0, 0])


def test_fingerprint_is_that_of_the_content() -> None:
    row, other = _row(([5, 6, 7], [1, 1, 0])), _row(([5, 6, 7], [0, 1, 0]))
    prints = [
        chosen_packs({0: one}, eos_token_id=EOS, max_tokens=9, release=TARGET).fingerprint for one in (row, row, other)
    ]

    assert prints[0] == prints[1] != prints[2]


def test_choice_takes_the_fullest_the_longest_and_the_emptiest() -> None:
    num_sequences, longest = np.array([3, 9, 1, 4, 4]), np.array([5, 2, 8, 9, 4])

    assert choice_of(num_sequences, longest, 3) == [1, 2, 3]
    assert choice_of(num_sequences, longest, 2) == [1, 3]
    assert choice_of(num_sequences, longest, 9) == [0, 1, 2, 3, 4]


def test_tokens_are_renumbered_and_stay_distinct() -> None:
    row = _row(([70, 900, 70, EOS], [1, 1, 1, 0]), ([900, 50, EOS], [1, 1, 0]))

    chosen = chosen_packs({7: row}, eos_token_id=EOS, max_tokens=100, release=TARGET)

    assert chosen.packs[0].number == 7
    assert chosen.packs[0].row.input_ids.tolist() == [2, 3, 2, 0, 3, 1, 0]
    assert (chosen.eos_token_id, chosen.vocab_size) == (0, 128)
    assert [one.runtime_length for one in chosen.sequences] == [3, 2]
