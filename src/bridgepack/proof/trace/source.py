"""Traces an input row to its location in the artifact and the steps that read it, or to why it was dropped."""

from dataclasses import replace
from pathlib import Path

from bridgepack.config.errors import nearest_name
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import view_pack
from bridgepack.data.artifact.plan import PlanEntry, entries_of_row, iter_dropped_rows, plan_path
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.packs import shard_index
from bridgepack.proof.runs import TracedRun
from bridgepack.proof.trace.packs import PackTracer
from bridgepack.proof.trace.records import Placement, SourceTrace
from bridgepack.proof.trace.schedule import schedule_of_pack
from bridgepack.records import DropReason

_FILES_NAMED = 5


def parse_source(text: str) -> tuple[str, int]:
    """Return (file, row) of `FILE:ROW`; rows count from 1.

    Raises:
        ConfigError: it does not have that form.
    """
    file, separator, number = text.rpartition(":")
    if not separator or not file or not number.isascii() or not number.isdecimal() or int(number) < 1:
        raise ConfigError(f"--source is {text!r}; allowed: FILE:ROW, rows counted from 1, e.g. data/chats.jsonl:17.")
    return file, int(number)


def trace_source(run: TracedRun, file: str, row: int, *, limit: int) -> SourceTrace:
    """Return the locations of an input row in the artifact.

    Args:
        run: the run.
        file: its name in the manifest, the same path in another form, or the path's end.
        row: from 1: line, Parquet or Arrow row, or array element.
        limit: maximum times of reading to list.

    Raises:
        ConfigError: the artifact was not built from that file, or the row does not exist.
        ArtifactError: the artifact cannot be read.
    """
    artifact = run.artifact
    known = _known_file(artifact, file)
    placements = [
        _placement(run, split.name, entry, limit)
        for split in artifact.manifest.splits
        for entry in entries_of_row(artifact, split.name, _indices(artifact, split.name, known), row)
    ]
    drops = tuple(drop for drop in iter_dropped_rows(artifact, row=row) if (drop.file, drop.row) == (known, row))
    return SourceTrace(
        artifact=str(artifact.folder),
        file=known,
        row=row,
        placements=tuple(placements),
        drops=drops,
        sources={
            split.name: split.sources[split.inputs[index].source]
            for split in artifact.manifest.splits
            if split.is_mixture
            for index in _indices(artifact, split.name, known)
        },
        note=None if placements or drops else _why_nowhere(artifact, known, row),
    )


def _placement(run: TracedRun, split: str, entry: PlanEntry, limit: int) -> Placement:
    place = shard_index(run.artifact, split).place_of(entry.pack)
    view = view_pack(run.artifact, split, entry.pack)
    if entry.position >= len(view.sequences):
        raise ArtifactError(
            f"{plan_path(run.artifact, split)} has sequence {entry.position} of pack {entry.pack}; the pack has "
            f"{len(view.sequences)}. The artifact was changed; `bridgepack verify` shows where."
        )
    context = run.context_parallel_size(split)
    # ranges are the sequence's, counts the pack's
    slices = PackTracer(run.artifact, split, [entry.pack]).context_slices(entry.pack, context) if context > 1 else ()
    return Placement(
        split=split,
        pack=entry.pack,
        shard=place.shard,
        shard_row=place.row,
        is_truncated=entry.is_truncated,
        sequence=view.sequences[entry.position],
        context=tuple(
            replace(item, ranges=tuple(part for part in item.ranges if part.sequence == entry.position))
            for item in slices
        ),
        schedule=schedule_of_pack(run, split, entry.pack, limit=limit),
    )


def _indices(artifact: Artifact, split: str, file: str) -> list[int]:
    record = artifact.manifest.split(split)
    inputs = record.inputs if record is not None else ()
    return [index for index, item in enumerate(inputs) if item.path == file]


def _known_file(artifact: Artifact, file: str) -> str:
    """Return the manifest's name of a file."""
    names = list(dict.fromkeys(item.path for split in artifact.manifest.splits for item in split.inputs))
    if file in names:
        return file
    place = Path(file).absolute()
    same = [name for name in names if Path(name).absolute() == place]
    ends = same or [name for name in names if Path(name).parts[-len(Path(file).parts) :] == Path(file).parts]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ConfigError(f"--source is {file!r}, the end of {len(ends)} inputs: {_listed(ends)}. Give more of it.")
    nearest = nearest_name(file, names)
    hint = f"Did you mean {nearest!r}?" if nearest else f"Its inputs: {_listed(names)}."
    raise ConfigError(f"--source is {file!r}; the artifact was not built from it. {hint}")


def _why_nowhere(artifact: Artifact, file: str, row: int) -> str:
    """Return the reason why a row is in neither plan nor ledger."""
    missing = [split.name for split in artifact.manifest.splits if not plan_path(artifact, split.name).is_file()]
    if missing:
        return f"the artifact has no plan of its {' and '.join(missing)} split, so its rows cannot be located"
    num_rows = max(item.num_rows for split in artifact.manifest.splits for item in split.inputs if item.path == file)
    num_blank = sum(split.statistics.num_blank_lines for split in artifact.manifest.splits)
    if row > num_rows + num_blank:
        raise ConfigError(f"--source is {file}:{row}; the file has {num_rows} rows. Choose a row from 1.")
    if any(DropReason.NOT_SAMPLED in split.drops for split in artifact.manifest.splits):
        return f"{DropReason.NOT_SAMPLED}: its source's settings and the seed leave it out"
    return "it is a blank line, not a row" if num_blank else "it is in neither plan nor ledger"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_FILES_NAMED]) + (", ..." if len(names) > _FILES_NAMED else "")
