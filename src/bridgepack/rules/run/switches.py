"""Rules on the switches of packing: which kind, which sizes, which loss."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import Severity, Violation
from bridgepack.rules.run_rule import RunRule, change, run_rule
from bridgepack.rules.run_subject import RunSubject


@run_rule(
    code="BP004",
    name="micro-batch-size-not-one",
    severity=Severity.ERROR,
    source="PSB004; megatron/bridge/training/config.py:1345",
)
def micro_batch_size_not_one(subject: RunSubject) -> Iterator[Violation]:
    """Offline packing is on and a micro batch holds more than one pack.

    Why: Crash at start: validate() refuses it, because a row of packed sequences already is a whole micro batch.
    Bad: enable_offline_packing true, train.micro_batch_size 2.
    Good: enable_offline_packing true, train.micro_batch_size 1.
    Fix: Set train.micro_batch_size to 1. To keep the tokens per step, raise packed_sequence_size and seq_length.
    Noticed: validate().
    Evidence: executed with the real 0.6.2.
    """
    if subject.packs_offline and subject.micro_batch_size > 1:
        yield Violation(
            where="train.micro_batch_size",
            found=str(subject.micro_batch_size),
            allowed="1 with offline packing",
            changes=change("train.micro_batch_size", 1, "a pack is a whole micro batch"),
        )


RULES: tuple[RunRule, ...] = (micro_batch_size_not_one,)
