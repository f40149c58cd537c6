"""What ranks saw is named where it is not what they should have seen; small packs, by hand.

Pack 7 holds sequences of 3 and 5 runtime tokens in a row of 16: offsets [0, 3, 8, 16].
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bridgepack.canary import faults
from bridgepack.canary.inputs import PackedInput
from bridgepack.canary.naming import ADVICE, TOKENS_DIFFER, named_faults
from bridgepack.canary.records import Layout, RunOutcome, SeenBatch, SeenRank
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import slice_row

EOS = 0
ROW = PackedRow(
    input_ids=np.array([5, 6, 7, 8, 9, 10, 11, 12, 13, 14], dtype=np.int32),
    loss_mask=np.array([0, 1, 1, 0, 0, 0, 1, 1, 1, 0], dtype=np.int8),
    seq_start_id=np.array([0, 4], dtype=np.int32),
)
OTHER = replace(ROW, loss_mask=np.array([1, 1, 1, 0, 1, 1, 1, 1, 1, 0], dtype=np.int8))


def _packs(layout: Layout | None = None, **changes: Any) -> PackedInput:
    settings = CollateSettings(packed_sequence_size=16, pad_seq_to_mult=1, eos_token_id=EOS, pad_to_max_length=True)
    packs = PackedInput(
        layout=layout or Layout(),
        numbers=(7, 9),
        rows=(ROW, OTHER),
        intended=(ROW, OTHER),
        settings=settings,
        is_laid_out_anew=False,
        entries=(),
    )
    return replace(packs, **changes)


def _seen(packs: PackedInput, context: int = 0, **changes: Any) -> SeenRank:
    """Return a rank that saw what it should of pack 7, but for some changes."""
    expected = predict_batch([packs.rows[0]], packs.settings)
    slices = slice_row(expected, 0, packs.layout.context)
    batch = SeenBatch(
        row=0,
        tokens=slices.tokens[context],
        position_ids=slices.position_ids[context],
        labels=slices.labels[context],
        loss_mask=slices.loss_mask[context],
        offsets=expected.physical_offsets[0].astype(np.int64),
        max_seqlen=int(expected.max_seqlen.max()),
        was_called=True,
    )
    return SeenRank(
        rank=0,
        tensor=0,
        pipeline=0,
        context=context,
        data=0,
        rows=(0,),
        batches=(replace(batch, **changes),),
        loss=1.0,
        num_trained=5,
        gradients={},
        cuts={},
    )


def _names(packs: PackedInput, *ranks: SeenRank) -> dict[str, str]:
    outcome = RunOutcome(exit_codes=(0,) * len(ranks), ranks=ranks)
    return {finding.name: finding.message for finding in named_faults(outcome, packs)}


@pytest.mark.parametrize(
    ("changes", "name", "message"),
    [
        ({"offsets": None, "max_seqlen": None}, faults.BOUNDARIES_DROPPED, "stage 1 of 1 got no boundaries of pack 7"),
        ({"offsets": np.array([0, 8, 16, 16])}, faults.SEQUENCE_LEAKS, "at token 3 is missing, so sequence 1 attends"),
        ({"offsets": np.array([0, 3, 6, 8, 16])}, faults.SEQUENCE_LEAKS, "are [0, 3, 6, 8, 16], and should be [0, 3,"),
        ({"max_seqlen": 7}, faults.MAX_SEQLEN_TOO_SMALL, "max_seqlen 7 is below the longest sequence, 8 tokens"),
        ({"position_ids": np.arange(16)}, faults.POSITIONS_NOT_RESET, "not reset at token 3: 3 in place of 0"),
        (
            {"loss_mask": np.roll([0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 1)},
            faults.MASK_SHIFTED,
            "the loss mask is shifted right by 1",
        ),
        ({"loss_mask": np.ones(16, dtype=int)}, faults.MASK_SHIFTED, "not that of the artifact, first at token 0"),
        ({"tokens": np.zeros(16, dtype=int)}, TOKENS_DIFFER, "tokens are not those of the artifact, first at token 0"),
    ],
)
def test_what_a_rank_saw_is_named(changes: dict[str, Any], name: str, message: str) -> None:
    packs = _packs()
    found = _names(packs, _seen(packs, **changes))

    assert list(found) == [name]
    assert message in found[name]


def test_a_stage_that_was_not_reached_lacks_nothing() -> None:
    packs = _packs()

    assert _names(packs, _seen(packs, offsets=None, max_seqlen=None, was_called=False)) == {}


def test_lengths_that_do_not_fit_the_layout_are_named_once() -> None:
    packs = _packs(Layout(context=2))
    found = _names(packs, _seen(packs, 0), _seen(packs, 1))

    assert list(found) == [faults.WRONG_MULTIPLE]
    assert "the length 3 of sequence 0 of pack 7 is not a multiple of 2 x CP = 4" in found[faults.WRONG_MULTIPLE]


def test_a_loss_per_rank_is_named_where_packs_train_different_numbers() -> None:
    packs = _packs()
    rank = replace(_seen(packs), calculate_per_token_loss=False)

    assert "packs train 5 to 8 tokens" in _names(packs, rank)[faults.LOSS_PER_RANK]
    even = replace(packs, rows=(ROW, ROW), intended=(ROW, ROW))
    assert _names(even, rank) == {}


def test_every_fault_has_advice() -> None:
    assert set(faults.FAULTS) < set(ADVICE)
