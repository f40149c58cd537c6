"""The losses of a run: by source over its steps, the rows of a step, and the rows far above their source."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import SequenceView, tokenizer_of, view_pack
from bridgepack.data.row_losses import write_row_table
from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.proof.losses.by_source import read_source_losses
from bridgepack.proof.losses.records import LossReport, RowLoss
from bridgepack.proof.losses.rows import RowLosses, read_row_losses
from bridgepack.records import TRAIN
from bridgepack.records.losses import LOSSES_FOLDER

#: Readings of a source that a row is compared with, at least: those of the steps around its own.
_NUM_COMPARED = 50
#: Trained tokens at which a row's excess counts half, as the mean of a few tokens says little.
_HALF_TOKENS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class LossOptions:
    """What to show of a run's losses."""

    split: str = TRAIN  #: of the rows
    step: int | None = None  #: show the rows of this step
    num_rows: int = 0  #: rows to show; 0 for none
    output: Path | None = None  #: file for the losses of all rows


def report_losses(run: Path, artifact: Path | None, options: LossOptions) -> LossReport:
    """Return the losses of a run's folder; `artifact` is the folder of its packs, which losses by row need.

    Raises:
        ConfigError: the run has no losses, or none of the rows or the step that are asked for.
        DataError: a file cannot be read, or is of another artifact.
        ArtifactError: the artifact cannot be read.
    """
    folder = run / LOSSES_FOLDER
    intervals = read_source_losses(folder)
    wants_rows = options.step is not None or options.num_rows > 0 or options.output is not None
    if not intervals and not wants_rows:
        raise ConfigError(
            f"{str(run)!r} has no losses by source. They are written where the packs have two or more sources, or with "
            "losses.by_source true."
        )
    report = LossReport(run=str(run), intervals=intervals)
    if not wants_rows:
        return report
    if artifact is None:
        raise ConfigError(f"{str(run)!r} does not say which packs it read. Give --artifact, the folder of its packs.")
    packs = Artifact(artifact, may_be_changed=True)
    splits, notes = read_row_losses(folder, packs)
    rows = splits.get(options.split)
    if rows is None or not len(rows.step):
        raise ConfigError(
            f"{str(run)!r} has no losses of {options.split} rows. They are written with losses.by_row true, at "
            f"checkpoints and at the end. `bridgepack trace {artifact} --step N` names the rows of a step without them."
        )
    files = {} if options.output is None else {"output": _write_rows(options.output, splits)}
    choice, num_rows = _chosen_readings(rows, options)
    entries = _row_losses(rows, choice, split=options.split, step=options.step)
    texts = _texts(packs, options.split, [(int(rows.pack[item[0]]), int(rows.position[item[0]])) for item in choice])
    return replace(
        report,
        rows=tuple(replace(row, sequence=text) for row, text in zip(entries, texts, strict=True)),
        step=options.step,
        num_rows=num_rows,
        notes=notes,
        files=files,
    )


def _chosen_readings(rows: RowLosses, options: LossOptions) -> tuple[list[IntArray], int]:
    """Return the readings of each row to show, highest first, and the number of rows that there are."""
    excess = rows.loss - source_means(rows)
    score = excess * rows.num_trained_tokens / (rows.num_trained_tokens + _HALF_TOKENS)
    if options.step is not None:
        readings = np.flatnonzero(rows.step == options.step)
        if not len(readings):
            steps = f"{rows.step.min()} to {rows.step.max()}"
            raise ConfigError(f"--step is {options.step}; the run has losses of rows for steps {steps}.")
        order = readings[np.argsort(-rows.loss[readings], kind="stable")]
        return [order[index : index + 1] for index in range(min(options.num_rows, len(order)))], len(readings)
    order = np.lexsort((rows.step, rows.first_token, rows.row, rows.file))
    keys = np.stack([rows.file, rows.row, rows.first_token])[:, order]
    firsts = np.flatnonzero((np.diff(keys, prepend=-1) != 0).any(axis=0))
    means = np.add.reduceat(score[order], firsts) / np.diff(np.append(firsts, len(order)))
    members = np.split(order, firsts[1:])
    return [members[index] for index in np.argsort(-means, kind="stable")[: options.num_rows].tolist()], len(firsts)


def source_means(rows: RowLosses) -> npt.NDArray[np.float64]:
    """Return the mean loss of a trained token of each reading's source at about its step; shape [num_readings].

    The steps of a source are taken together, in order, until they have 50 readings of it.
    """
    means = np.empty(len(rows.step))
    for source in np.unique(rows.source).tolist():
        readings = np.flatnonzero(rows.source == source)
        readings = readings[np.argsort(rows.step[readings], kind="stable")]
        starts = np.flatnonzero(np.diff(rows.step[readings], prepend=-1) != 0)
        bounds = [0]
        for start in starts.tolist():
            if start - bounds[-1] >= _NUM_COMPARED and len(readings) - start >= _NUM_COMPARED:
                bounds.append(start)
        for part in np.split(readings, bounds[1:]):
            means[part] = rows.loss_sum[part].sum() / rows.num_trained_tokens[part].sum()
    return means


def _row_losses(rows: RowLosses, choice: Sequence[IntArray], *, split: str, step: int | None) -> list[RowLoss]:
    means = source_means(rows)
    entries = []
    for readings in choice:
        first, tokens = int(readings[0]), rows.num_trained_tokens[readings]
        entries.append(
            RowLoss(
                split=split,
                source=rows.sources[rows.source[first]],
                file=rows.files[rows.file[first]],
                row=int(rows.row[first]),
                first_token=int(rows.first_token[first]),
                steps=tuple(rows.step[readings].tolist()) if step is None else (step,),
                loss=float(rows.loss_sum[readings].sum() / tokens.sum()),
                source_loss=float((means[readings] * tokens).sum() / tokens.sum()),
                num_trained_tokens=int(tokens[0]),
            )
        )
    return entries


def _texts(artifact: Artifact, split: str, places: Sequence[tuple[int, int]]) -> list[SequenceView]:
    """Return the sequences at (pack, position)."""
    decoder = tokenizer_of(artifact) if places else None
    packs = dict.fromkeys(pack for pack, _ in places)
    views = {pack: view_pack(artifact, split, pack, decoder=decoder) for pack in packs}
    return [views[pack].sequences[position] for pack, position in places]


def _write_rows(path: Path, splits: dict[str, RowLosses]) -> Path:
    """Write the losses of all rows, one line each time that the run read one."""
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    for split, rows in splits.items():
        of_split = {
            "file": np.array(rows.files, dtype=object)[rows.file],
            "row": rows.row,
            "first_token": rows.first_token,
            "epoch": rows.epoch,
            "split": np.full(len(rows.step), split, dtype=object),
            "source": np.array(rows.sources, dtype=object)[rows.source],
            "step": rows.step,
            "loss_sum": rows.loss_sum.astype(np.float32),
            "num_trained_tokens": rows.num_trained_tokens,
        }
        for name, values in of_split.items():
            columns.setdefault(name, []).append(values)
    try:
        return write_row_table(path, {name: np.concatenate(parts) for name, parts in columns.items()})
    except OSError as error:
        raise ConfigError(
            f"--output is {str(path)!r}, which cannot be written: {error.strerror or error}. Choose another file."
        ) from None
