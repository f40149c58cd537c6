"""Judges a packed step by its distance from the unpacked step, and names what the numbers alone show."""

import re

import numpy as np

from bridgepack.canaries import faults
from bridgepack.canaries.comparing import TINY, Distance, WholeStep, distance, packed_step
from bridgepack.canaries.inputs import PackedInput
from bridgepack.canaries.naming import ADAPTERS_WITHOUT_GRADIENT, LEAK_IN_ATTENTION, UNKNOWN, finding, named_faults
from bridgepack.canaries.records import Bound, CanaryFinding, Measured, RunOutcome
from bridgepack.records.words import count_text

#: Number of parameters listed in a message.
_NUM_NAMED = 3
_ADAPTER, _EXPERT = re.compile(r".*\.adapter\b"), re.compile(r"local_experts\.\d+")


def judge_step(
    outcome: RunOutcome, packs: PackedInput, reference: WholeStep, bound: Bound
) -> tuple[Measured, list[CanaryFinding]]:
    """Return the record of a step against the reference, the unpacked step, and its findings."""
    findings = named_faults(outcome, packs)
    if not outcome.is_complete:
        measurement = Measured(
            precision=bound.precision,
            bound=bound.relative,
            outcome="differs" if findings else "could not run",
            reason=outcome.reason if findings else f"{outcome.reason}\n{outcome.tail}",
        )
        return measurement, findings
    step = packed_step(outcome, packs)
    far = distance(step, reference)
    is_same = far.is_within(bound.relative)
    if not is_same and not findings:
        findings.append(_named_by_numbers(step, reference, far, packs, bound))
    still = adapters_without_gradient(step)
    if still and not adapters_without_gradient(reference):
        findings.append(finding(ADAPTERS_WITHOUT_GRADIENT, packs.topology.title, still))
    measurement = Measured(
        precision=bound.precision,
        bound=bound.relative,
        outcome="same" if is_same and not findings else "differs",
        loss=far.loss,
        gradient=far.largest_gradient,
        parameter=next(iter(far.gradients), None),
        sequence=far.sequence[2] if far.sequence is not None else None,
        gradients=far.gradients,
    )
    return measurement, findings


def adapters_without_gradient(step: WholeStep) -> str | None:
    """Return which adapters have a gradient of 0 everywhere, in words; None if all have one.

    The experts of a layer are one adapter, as a token need not reach each of them.
    """
    has_gradient_by_adapter: dict[str, bool] = {}
    for name, gradient in step.gradients.items():
        if (match := _ADAPTER.match(name)) is not None:
            adapter = _EXPERT.sub("local_experts", match[0])
            has_gradient_by_adapter[adapter] = has_gradient_by_adapter.get(adapter, False) or bool(gradient.any())
    still = [adapter for adapter, has_gradient in has_gradient_by_adapter.items() if not has_gradient]
    if not still:
        return None
    examples = ", ".join(still[:_NUM_NAMED])
    more = f" and {len(still) - _NUM_NAMED} more" if len(still) > _NUM_NAMED else ""
    return f"the gradient is 0 in {len(still)} of {len(has_gradient_by_adapter)} adapters: {examples}{more}"


def _named_by_numbers(
    step: WholeStep, reference: WholeStep, far: Distance, packs: PackedInput, bound: Bound
) -> CanaryFinding:
    """Return a finding on numbers that differ although every rank had the right inputs."""
    leak = _leak(far, packs, bound)
    has_same_losses = far.sequence is None or far.sequence[2] <= bound.relative
    factor = _common_factor(step, reference, bound) if has_same_losses else None
    if leak is not None:
        return finding(LEAK_IN_ATTENTION, packs.topology.title, leak)
    if has_same_losses and (step.num_trained != reference.num_trained or factor is not None):
        tokens = f"by {count_text(step.num_trained, 'token')}, and unpacked by {reference.num_trained:,}"
        times = "" if factor is None else f"; every gradient is {factor:.6g} times that of the unpacked step"
        return finding(faults.LOSS_NORMALISED, packs.topology.title, f"the loss is divided {tokens}{times}")
    return _unknown_difference(far, packs, bound)


def _common_factor(step: WholeStep, reference: WholeStep, bound: Bound) -> float | None:
    """Return c if every gradient is c times that of the reference and c is not 1; None otherwise."""
    num_trained, factors, largest = max(reference.num_trained, 1), [], 0.0
    for name, gradient in reference.gradients.items():
        square = float((gradient * gradient).sum())
        if square:
            factors.append((name, float((gradient * step.gradients[name]).sum()) / square, square))
    if not factors:
        return None
    _, factor, _ = max(factors, key=lambda factor_and_distance: factor_and_distance[2])
    for name, gradient in reference.gradients.items():
        measure = max(reference.magnitudes[name] / num_trained, TINY)
        largest = max(largest, float(np.linalg.norm(step.gradients[name] - factor * gradient)) / measure)
    return factor if abs(factor - 1) > bound.relative >= largest / max(abs(factor), 1.0) else None


def _leak(far: Distance, packs: PackedInput, bound: Bound) -> str | None:
    """Return where attention crosses boundaries that every rank got, or None if that is not the fault.

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


def _unknown_difference(far: Distance, packs: PackedInput, bound: Bound) -> CanaryFinding:
    """Return a finding for numbers that differ although every rank had the right inputs."""
    largest = list(far.gradients.items())[:_NUM_NAMED]
    examples = ", ".join(f"{name} by {value:.1e}" for name, value in largest)
    text = f"gradients differ in {bound.precision}, most of all {examples}; the bound is {bound.relative:.1e}"
    if far.sequence is not None and far.sequence[2] > bound.relative:
        pack, sequence, size = far.sequence
        text = f"the loss of sequence {sequence} of pack {packs.numbers[pack]} differs by {size:.1e}; {text}"
    return finding(UNKNOWN, packs.topology.title, text)
