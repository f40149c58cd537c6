"""What ranks saw is named where it is not what they should have seen; small packs, by hand.

Pack 7 holds sequences of 3 and 5 runtime tokens in a row of 16: offsets [0, 3, 8, 16].
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bridgepack.canaries import faults
from bridgepack.canaries.inputs import PackedInput
from bridgepack.canaries.naming import ADVICE, TOKENS_DIFFER, named_faults
from bridgepack.canaries.records import RunOutcome, SeenRank, topology_of
from tests.support.canaries import packed_input, packed_row, seen_batch, seen_rank
from tests.support.messages import mentions

ROW = packed_row(range(5, 15), [0, 1, 1, 0, 0, 0, 1, 1, 1, 0], [0, 4])
OTHER = packed_row(range(5, 15), [1, 1, 1, 0, 1, 1, 1, 1, 1, 0], [0, 4])
PACKS = packed_input(ROW, OTHER, size=16)


def _seen(packs: PackedInput, context: int = 0, **changes: Any) -> SeenRank:
    """Return a rank that saw what it should of pack 7, but for some changes."""
    batch = seen_batch(
        packs.rows[0], packs.settings, context=(context, packs.topology.context_parallel_size), **changes
    )
    return seen_rank(context=context, batches=(batch,), num_trained=5)


def _names(packs: PackedInput, *ranks: SeenRank) -> dict[str, str]:
    outcome = RunOutcome(exit_codes=(0,) * len(ranks), ranks=ranks)
    return {finding.name: finding.message for finding in named_faults(outcome, packs)}


@pytest.mark.parametrize(
    ("changes", "name", "message"),
    [
        ({"offsets": None, "max_seqlen": None}, faults.BOUNDARIES_DROPPED, "stage 1 of 1 got no boundaries of"),
        ({"offsets": np.array([0, 8, 16, 16])}, faults.SEQUENCE_LEAKS, "at token 3 is missing, so sequence 1 attends"),
        ({"offsets": np.array([0, 3, 6, 8, 16])}, faults.SEQUENCE_LEAKS, "are [0, 3, 6, 8, 16], and should be [0, 3,"),
        ({"max_seqlen": 7}, faults.MAX_SEQLEN_TOO_SMALL, "max_seqlen 7 is below the longest"),
        ({"position_ids": np.arange(16)}, faults.POSITIONS_NOT_RESET, "not reset at token 3: 3 in place of 0"),
        (
            {"loss_mask": np.roll([0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 1)},
            faults.MASK_SHIFTED,
            "is shifted right by 1",
        ),
        ({"loss_mask": np.ones(16, dtype=int)}, faults.MASK_SHIFTED, "artifact, first at token 0"),
        ({"tokens": np.zeros(16, dtype=int)}, TOKENS_DIFFER, "artifact, first at token 0"),
    ],
)
def test_what_a_rank_saw_is_named(changes: dict[str, Any], name: str, message: str) -> None:
    found = _names(PACKS, _seen(PACKS, **changes))

    assert list(found) == [name]
    assert message in found[name]


def test_a_stage_that_was_not_reached_lacks_nothing() -> None:
    assert _names(PACKS, _seen(PACKS, offsets=None, max_seqlen=None, was_called=False)) == {}


def test_lengths_that_do_not_fit_the_layout_are_named_once() -> None:
    packs = packed_input(ROW, OTHER, size=16, topology=topology_of(context=2))
    found = _names(packs, _seen(packs, 0), _seen(packs, 1))

    assert list(found) == [faults.WRONG_MULTIPLE]
    assert mentions(found[faults.WRONG_MULTIPLE], "length 3 of sequence 0 of pack 7", "2 x CP = 4")


def test_a_loss_per_rank_is_named_where_packs_train_different_numbers() -> None:
    rank = replace(_seen(PACKS), calculate_per_token_loss=False)

    assert "packs train 5 to 8 tokens" in _names(PACKS, rank)[faults.LOSS_PER_RANK]
    assert _names(packed_input(ROW, ROW, size=16), rank) == {}


def test_every_fault_has_advice() -> None:
    assert set(faults.FAULTS) < set(ADVICE)
