"""Compares the variants at one size: measurements, what they wrote, medians, ratios."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchlib.packed import describe_packed, has_equal_rows
from benchlib.runs import Inputs, interleaved, run_build
from benchlib.settings import FIRST_FIT_SHUFFLE, PACKED_SEQUENCE_SIZE
from benchlib.summary import medians_of, ratios_of
from benchlib.variants import Variant


def compare(
    variants: Sequence[Variant], inputs: Inputs, folder: Path, *, num_repetitions: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return measurements, outputs, medians and ratios of the variants, as plain values.

    A variant that did not finish is not tried again.
    """
    folders = {variant.name: folder / f"build-{index}" for index, variant in enumerate(variants)}
    measurements: list[dict[str, Any]] = []
    outputs: dict[str, Any] = {}
    rows_equal: bool | None = None
    for repetition, variant in interleaved(variants, num_repetitions):
        if any(item["variant"] == variant.name and not item["is_finished"] for item in measurements):
            continue
        usage = run_build(variant, inputs, folders[variant.name])
        measurements.append({"variant": variant.name, "repetition": repetition, **usage})
        tell(f"{variant.name}: {usage['wall_s']:.1f} s" + ("" if usage["is_finished"] else ", not finished"))
        if len(measurements) == len(variants):
            outputs, rows_equal = _outputs(variants, folders, measurements)
    shutil.rmtree(folder, ignore_errors=True)
    medians = medians_of(measurements)
    found = {"rows_equal": rows_equal, "outputs": outputs, "medians": medians, "ratios": ratios_of(medians)}
    return {**found, "measurements": measurements}


def _outputs(
    variants: Sequence[Variant], folders: dict[str, Path], measurements: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], bool | None]:
    """Return what each finished variant wrote, and whether all with the same algorithm wrote the same rows."""
    finished = {found["variant"] for found in measurements if found["is_finished"]}
    packed = {variant: variant.packed(folders[variant.name]) for variant in variants if variant.name in finished}
    described = {v.name: describe_packed(path, packed_sequence_size=PACKED_SEQUENCE_SIZE) for v, path in packed.items()}
    same = [path for variant, path in packed.items() if variant.algorithm == FIRST_FIT_SHUFFLE]
    if len(same) < 2:
        return described, None
    return described, all(has_equal_rows(same[-1], path) for path in same[:-1])
