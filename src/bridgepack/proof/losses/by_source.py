"""Reads the losses by source of a run: lines of steps that were trained again later are left out."""

import json
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bridgepack.errors import DataError
from bridgepack.records.losses import BY_SOURCE_FILE, SourceLoss
from bridgepack.user_files import MAX_LARGE_BYTES, read_text


def read_source_losses(folder: Path) -> tuple[SourceLoss, ...]:
    """Return the losses of each interval, training before validation; `folder` is the one of the losses.

    A last line that a killed run has not finished is left out.

    Raises:
        DataError: the file cannot be read, or holds something else.
    """
    path = folder / BY_SOURCE_FILE
    adapter = TypeAdapter(SourceLoss)
    lines = []
    try:
        texts = read_text(path, max_bytes=MAX_LARGE_BYTES).split("\n")
        for text in texts[:-1]:  # whole lines end with a line end
            lines.append(adapter.validate_python(json.loads(text)))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read: {reason}. Restore the file, or remove it.") from None
    return tuple(without_repeats(lines))


def without_repeats(lines: Iterable[SourceLoss]) -> list[SourceLoss]:
    """Return the lines in the order of splits and steps, without those of steps that were trained again.

    A restart goes on from a checkpoint, so what earlier starts logged from its first step on is left out. Of two
    evaluations after the same step, as at the end of a run, the last one stays.
    """
    lines = list(lines)
    ends = first_steps_after(
        {
            start: min(line.first_step for line in lines if line.start == start)
            for start in {line.start for line in lines}
        }
    )
    last = {(line.split, line.step, line.source or ""): line for line in lines if line.step < ends[line.start]}
    return [last[key] for key in sorted(last)]


def first_steps_after(first_steps: Mapping[int, int]) -> dict[int, float]:
    """Return start -> the first step that a later start trained again; infinity if none did.

    Example: starts 1, 2 and 3 that begin at steps 1, 101 and 51 -> 51, 51, infinity.
    """
    ends, end = {}, inf
    for start in sorted(first_steps, reverse=True):
        ends[start] = end
        end = min(end, first_steps[start])
    return ends
