"""A step is judged by its numbers where every rank saw what it should; one pack of two sequences, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bridgepack.canary.bounds import Bound
from bridgepack.canary.comparing import WholeStep, unpacked_step
from bridgepack.canary.inputs import PackedInput
from bridgepack.canary.judging import judged
from bridgepack.canary.naming import LEAK_IN_ATTENTION, UNKNOWN
from bridgepack.canary.records import Layout, RunOutcome, SeenBatch, SeenRank
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch

ROW = PackedRow(
    input_ids=np.array([5, 6, 7, 8, 9, 10, 11], dtype=np.int32),
    loss_mask=np.array([1, 1, 0, 1, 1, 1, 0], dtype=np.int8),
    seq_start_id=np.array([0, 3], dtype=np.int32),
)
PACKS = PackedInput(
    layout=Layout(),
    numbers=(7,),
    rows=(ROW,),
    intended=(ROW,),
    settings=CollateSettings(packed_sequence_size=8, pad_seq_to_mult=1, eos_token_id=0, pad_to_max_length=True),
    is_laid_out_anew=False,
    entries=(),
)
BOUND = Bound(precision="float64", relative=1e-10, chain_length=1, because="")
LOSSES = [1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0]


def _outcome(losses: list[float], gradient: float) -> RunOutcome:
    expected = predict_batch([ROW], PACKS.settings)
    batch = SeenBatch(
        row=0,
        tokens=expected.tokens[0],
        position_ids=expected.position_ids[0],
        labels=expected.labels[0],
        loss_mask=expected.loss_mask[0],
        offsets=expected.physical_offsets[0].astype(np.int64),
        max_seqlen=3,
        losses=np.array(losses),
        was_called=True,
    )
    rank = SeenRank(
        rank=0,
        tensor=0,
        pipeline=0,
        context=0,
        data=0,
        rows=(0,),
        batches=(batch,),
        loss=15.0,
        num_trained=5,
        gradients={"weight": np.array([gradient])},
        cuts={"weight": (-1, 1)},
        magnitudes={"weight": 5.0},
    )
    return RunOutcome(exit_codes=(0,), ranks=(rank,))


@pytest.fixture
def reference() -> WholeStep:
    own = unpacked_step(_outcome(LOSSES, 1.0), [2])
    return replace(own, losses={(0, 0): 3.0, (0, 1): 12.0})


def test_equal_numbers_are_the_same(reference: WholeStep) -> None:
    measured, findings = judged(_outcome(LOSSES, 1.0), PACKS, reference, BOUND)

    assert (measured.outcome, findings) == ("same", [])
    assert (measured.loss, measured.gradient, measured.sequence) == (0.0, 0.0, 0.0)


def test_later_sequences_alone_that_differ_point_at_the_attention(reference: WholeStep) -> None:
    measured, (found,) = judged(_outcome([1.0, 2.0, 3.5, 4.0, 5.0, 0, 0, 0], 1.2), PACKS, reference, BOUND)

    assert measured.outcome == "differs"
    assert found.name == LEAK_IN_ATTENTION
    assert "sequence 1 of pack 7 differs" in found.message


def test_other_differences_have_no_name(reference: WholeStep) -> None:
    measured, (found,) = judged(_outcome([1.5, *LOSSES[1:]], 1.2), PACKS, reference, BOUND)

    assert measured.outcome == "differs"
    assert found.name == UNKNOWN
    assert "the loss of sequence 0 of pack 7 differs by 1.7e-01" in found.message
    assert "weight by 2.0e-01" in found.message


def test_a_step_that_stops_without_a_cause_could_not_run(reference: WholeStep) -> None:
    stopped = replace(_outcome(LOSSES, 1.0), exit_codes=(70,), reason="rank 0: MemoryError", tail="MemoryError")

    measured, findings = judged(stopped, PACKS, reference, BOUND)

    assert (measured.outcome, findings) == ("could not run", [])
    assert measured.reason == "rank 0: MemoryError\nMemoryError"
