"""Judges one step against the unpacked one: how far it is, and what is wrong by name."""

from __future__ import annotations

from bridgepack.canary.bounds import Bound
from bridgepack.canary.comparing import Distance, WholeStep, distance, packed_step
from bridgepack.canary.inputs import PackedInput
from bridgepack.canary.naming import LEAK_IN_ATTENTION, UNKNOWN, CanaryFinding, finding, named_faults
from bridgepack.canary.records import RunOutcome
from bridgepack.canary.report_records import Measured

#: Parameters that a message names.
_NUM_NAMED = 3


def judged(
    outcome: RunOutcome, packs: PackedInput, reference: WholeStep, bound: Bound
) -> tuple[Measured, list[CanaryFinding]]:
    """Return how far a step is from the reference, the unpacked step, and what is wrong with it."""
    findings = named_faults(outcome, packs)
    if not outcome.is_complete:
        return (
            Measured(
                precision=bound.precision,
                bound=bound.relative,
                outcome="differs" if findings else "could not run",
                reason=outcome.reason if findings else f"{outcome.reason}\n{outcome.tail}",
            ),
            findings,
        )
    far = distance(packed_step(outcome, packs), reference)
    is_same = far.is_within(bound.relative)
    if not is_same and not findings:
        leak = _leak(far, packs, bound)
        findings.append(finding(LEAK_IN_ATTENTION, packs.layout.name, leak) if leak else _unnamed(far, packs, bound))
    name = next(iter(far.gradients), None)
    return (
        Measured(
            precision=bound.precision,
            bound=bound.relative,
            outcome="same" if is_same and not findings else "differs",
            loss=far.loss,
            gradient=far.largest_gradient,
            parameter=name,
            sequence=far.sequence[2] if far.sequence is not None else None,
            gradients=far.gradients,
        ),
        findings,
    )


def _leak(far: Distance, packs: PackedInput, bound: Bound) -> str | None:
    """Return where attention crosses boundaries that every rank was told of, None where that is not what differs.

    Then the first sequence of every pack agrees, as nothing is before it, and others do not.
    """
    wrong = [place for place, size in far.sequences.items() if size > bound.relative]
    if not wrong or any(sequence == 0 for _, sequence in wrong):
        return None
    pack, sequence = wrong[0]
    return (
        f"every rank got the boundaries, yet the loss of sequence {sequence} of pack {packs.numbers[pack]} differs and "
        f"that of every pack's first sequence does not: sequence {sequence} attends to what is before it"
    )


def _unnamed(far: Distance, packs: PackedInput, bound: Bound) -> CanaryFinding:
    """Return a finding for numbers that differ although every rank saw what it should."""
    largest = list(far.gradients.items())[:_NUM_NAMED]
    shown = ", ".join(f"{name} by {value:.1e}" for name, value in largest)
    text = f"gradients differ in {bound.precision}, most of all {shown}; the bound is {bound.relative:.1e}"
    if far.num_trained:
        text = f"{abs(far.num_trained):,} tokens {'more' if far.num_trained > 0 else 'fewer'} are trained; {text}"
    if far.sequence is not None and far.sequence[2] > bound.relative:
        pack, sequence, size = far.sequence
        text = f"the loss of sequence {sequence} of pack {packs.numbers[pack]} differs by {size:.1e}; {text}"
    return finding(UNKNOWN, packs.layout.name, text)
