"""Whether a plan's numbers fit together: packs in order, sequences counted within each, inputs that there are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns, plan_path
from bridgepack.geometry import IntArray
from bridgepack.records.manifests import SplitRecord

_COLUMNS = ("pack", "position", "file_index", "row")


def plan_problem(artifact: Artifact, split: SplitRecord) -> str | None:
    """Return what is wrong with the numbers of a split's plan; None where nothing is.

    Example: packs [0 0 1], positions [0 1 0] of 2 packs -> None; positions [0 0 0] -> "... line 2 ...".

    Raises:
        ArtifactError: the plan cannot be read.
    """
    name = plan_path(artifact, split.name).relative_to(artifact.folder)
    pack, position, num_before = -1, -1, 0
    for packs, positions, files, rows in iter_plan_columns(artifact, split.name, _COLUMNS):
        if not len(packs):
            continue
        wrong = _first(_is_out_of_order(packs, positions, pack, position))
        if wrong is not None:
            what = f"is sequence {positions[wrong]} of pack {packs[wrong]}, which does not follow the one before"
            return f"{name} line {num_before + wrong + 1} {what}"
        wrong = _first((files < 0) | (files >= len(split.inputs)) | (rows < 1))
        if wrong is not None:
            what = f"is row {rows[wrong]} of input {files[wrong]}; the manifest has {len(split.inputs)}, counted from 0"
            return f"{name} line {num_before + wrong + 1} {what}"
        pack, position, num_before = int(packs[-1]), int(positions[-1]), num_before + len(packs)
    num_packs = split.statistics.num_packs
    return None if pack + 1 == num_packs else f"{name} has {pack + 1} packs; the manifest says {num_packs}"


def _is_out_of_order(packs: IntArray, positions: IntArray, pack: int, position: int) -> npt.NDArray[np.bool_]:
    packs, positions = np.append(pack, packs), np.append(position, positions)
    is_next = (packs[1:] == packs[:-1]) & (positions[1:] == positions[:-1] + 1)
    is_first = (packs[1:] == packs[:-1] + 1) & (positions[1:] == 0)
    is_next &= packs[1:] >= 0  # before the first sequence there is no pack -1 to go on with
    is_wrong: npt.NDArray[np.bool_] = ~(is_next | is_first)
    return is_wrong


def _first(is_wrong: npt.NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(is_wrong)
    return int(places[0]) if len(places) else None
