"""Reads the losses of rows: parts of ranks joined, steps that were trained again left out, each row with its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import FIRST_TOKEN, has_pieces, iter_plan_columns
from bridgepack.data.row_losses import MicroBatches, read_part, read_part_facts
from bridgepack.errors import ArtifactError, DataError
from bridgepack.geometry import IntArray
from bridgepack.proof.losses.by_source import first_steps_after
from bridgepack.records import SPLITS
from bridgepack.records.losses import ROWS_FOLDER, RowsPart

_NAMED = 3
#: Of a sequence: index of its split, step, number of the evaluation over all starts, pack, position, trained tokens.
_COLUMNS = ("split", "step", "evaluation", "pack", "position", "num_trained_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLosses:
    """The losses of a split's rows, each time that the run read them; arrays have shape [num_readings].

    A row of several sequences has a line for each, which begins at another token of it.
    """

    sources: tuple[str, ...]  #: of the split
    files: tuple[str, ...]  #: of the split
    step: IntArray  #: as the host logs it; of an evaluation, the step after which it ran
    epoch: IntArray  #: how often the run had read the row's pack by then, from 1; of validation, which evaluation
    pack: IntArray
    position: IntArray  #: in the pack, from 0
    file: IntArray  #: index in `files`
    row: IntArray  #: of the file, from 1
    first_token: IntArray  #: start in its row, stored coordinates; 0 unless the row became several sequences
    source: IntArray  #: index in `sources`
    loss_sum: npt.NDArray[np.float64]
    num_trained_tokens: IntArray

    @property
    def loss(self) -> npt.NDArray[np.float64]:
        """Mean loss of the trained tokens of each."""
        return self.loss_sum / self.num_trained_tokens


def read_row_losses(folder: Path, artifact: Artifact) -> tuple[dict[str, RowLosses], tuple[str, ...]]:
    """Return split -> the losses of its rows, and notes on what is left out; `folder` is the one of the losses.

    Raises:
        DataError: a file cannot be read, or is of another artifact.
        ArtifactError: the plan cannot be read.
    """
    paths = sorted((folder / ROWS_FOLDER).glob("rank*-*-*.parquet"))
    parts = {path: read_part_facts(path) for path in paths}
    for path, part in parts.items():
        if part.fingerprint != artifact.manifest.fingerprint:
            raise DataError(
                f"{path} is of the artifact {part.fingerprint[:12]}, and {str(artifact.folder)!r} is "
                f"{artifact.manifest.fingerprint[:12]}. Give the artifact of the run."
            )
    whole_paths, notes = _parts_of_all_ranks(parts)
    ends = first_steps_after({part.start: part.first_step for part in parts.values()})
    readings = [_of_steps(read_part(path), parts[path].start, ends[parts[path].start]) for path in whole_paths]
    if not readings:
        return {}, notes
    columns = np.concatenate([item for item, _ in readings], axis=1)
    sums = np.concatenate([item for _, item in readings])
    return {
        split: _with_places(artifact, split, columns, sums)
        for split in SPLITS
        if artifact.manifest.split(split) is not None
    }, notes


def _of_steps(batches: MicroBatches, start: int, end: float) -> tuple[IntArray, npt.NDArray[np.float64]]:
    """Return the sequences of the steps before `end`: shape [6, num_sequences], see `_COLUMNS`; and their loss sums."""
    sizes = batches.sizes
    position = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    number = start * (1 << 32) + batches.evaluation
    of_batches = [np.repeat(values, sizes) for values in (batches.split, batches.step, number, batches.pack)]
    columns = np.stack([*of_batches, position, batches.num_trained_tokens])
    is_before = columns[_COLUMNS.index("step")] < end
    return columns[:, is_before], batches.loss_sums[is_before]


def _parts_of_all_ranks(parts: dict[Path, RowsPart]) -> tuple[list[Path], tuple[str, ...]]:
    """Return the files of parts that every rank has written, and a note on the others: sums of some ranks are wrong."""
    ranks: dict[tuple[int, int], set[int]] = {}
    for part in parts.values():
        ranks.setdefault((part.start, part.part), set()).add(part.rank)
    missing = {
        (part.start, part.part): sorted(set(part.ranks) - ranks[part.start, part.part])
        for part in parts.values()
        if not set(part.ranks) <= ranks[part.start, part.part]
    }
    notes = tuple(
        f"left out: part {number} of start {start}, which rank {', '.join(map(str, absent[:_NAMED]))} has not written"
        for (start, number), absent in sorted(missing.items())
    )
    return [path for path, part in parts.items() if (part.start, part.part) not in missing], notes


def _with_places(artifact: Artifact, split: str, columns: IntArray, loss_sums: npt.NDArray[np.float64]) -> RowLosses:
    """Return the rows of a split, the parts of context-parallel ranks added up; see `_COLUMNS`."""
    is_here = columns[0] == SPLITS.index(split)
    columns, sums = columns[:, is_here], loss_sums[is_here]
    is_last = _is_last_evaluation(columns[1], columns[2])
    columns, sums = columns[:, is_last], sums[is_last]
    order = np.lexsort(columns[[4, 3, 1]])
    _, step, _, pack, position, counts = columns[:, order]
    firsts = np.flatnonzero((np.diff(columns[[1, 3, 4]][:, order], prepend=-1) != 0).any(axis=0))
    num_trained = np.add.reduceat(counts, firsts) if len(firsts) else counts
    loss_sum = np.add.reduceat(sums[order], firsts) if len(firsts) else sums
    is_trained = num_trained > 0
    num_trained, loss_sum = num_trained[is_trained], loss_sum[is_trained]
    firsts = firsts[is_trained]
    step, pack, position = step[firsts], pack[firsts], position[firsts]
    record = artifact.split(split)
    file, row, first_token = _places(artifact, split, pack, position)
    return RowLosses(
        sources=tuple("/".join(source.name) for source in record.sources),
        files=tuple(item.path for item in record.inputs),
        step=step,
        epoch=_epochs(step, pack),
        pack=pack,
        position=position,
        file=file,
        row=row,
        first_token=first_token,
        source=np.array([item.source for item in record.inputs], dtype=np.int64)[file],
        loss_sum=loss_sum,
        num_trained_tokens=num_trained,
    )


def _is_last_evaluation(step: IntArray, number: IntArray) -> npt.NDArray[np.bool_]:
    """Return whether no later evaluation after the same step follows; numbers rise from one to the next."""
    steps, place = np.unique(step, return_inverse=True)
    last = np.full(len(steps), -1, dtype=np.int64)
    np.maximum.at(last, place, number)
    is_last: npt.NDArray[np.bool_] = number == last[place]
    return is_last


def _places(artifact: Artifact, split: str, pack: IntArray, position: IntArray) -> Sequence[IntArray]:
    """Return file, row and first token of sequences.

    Raises:
        ArtifactError: the plan has no such sequence.
    """
    names = ["pack", "file_index", "row", *([FIRST_TOKEN] if has_pieces(artifact, split) else [])]
    columns = [np.concatenate(parts) for parts in zip(*iter_plan_columns(artifact, split, names), strict=True)]
    num_packs = artifact.split(split).statistics.num_packs
    first_sequences = np.searchsorted(columns[0], np.arange(num_packs + 1))
    if len(pack) and (pack.max() >= num_packs or (first_sequences[pack] + position >= first_sequences[pack + 1]).any()):
        raise ArtifactError(f"the plan of {split} in {str(artifact.folder)!r} is not that of the run's packs.")
    indices = first_sequences[pack] + position
    first_token = columns[3][indices] if len(columns) > 3 else np.zeros(len(indices), dtype=np.int64)
    return columns[1][indices], columns[2][indices], first_token


def _epochs(step: IntArray, pack: IntArray) -> IntArray:
    """Return how often a pack had been read by each step, from 1: steps 1, 2, 5 of pack 7 -> 1, 2, 3."""
    order = np.lexsort((step, pack))
    is_new_pack = np.diff(pack[order], prepend=-1) != 0
    is_new_step = is_new_pack | (np.diff(step[order], prepend=-1) != 0)
    counts = np.cumsum(is_new_step)
    before = np.maximum.accumulate(np.where(is_new_pack, counts - 1, 0))
    epochs = np.empty(len(step), dtype=np.int64)
    epochs[order] = counts - before
    return epochs
