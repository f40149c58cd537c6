"""Checks of mounts, times and job ids that are written as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from pydantic import AfterValidator

#: What nemo-run replaces by the folder of the job, at the start of a source.
JOB_FOLDER = "/$nemo_run"
_SLURM_TIME = re.compile(r"(\d+|\d+:[0-5]\d|\d+:[0-5]?\d:[0-5]?\d|\d+-\d+(:[0-5]?\d){0,2}|UNLIMITED|INFINITE)", re.I)
_ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?")
_JOB = re.compile(r"\d+(_\d+)?|[a-z_]+://[^/]*/\d+(_\d+)?(/.*)?")


def is_inside(path: str, folder: str) -> bool:
    """Say whether an absolute path is a folder or lies in it."""
    return PurePosixPath(path).is_relative_to(folder)


def _mount(value: str, *, kind: str, are_absolute: bool) -> str:
    parts = value.split(":")
    is_bad = len(parts) not in {2, 3} or not all(parts) or "," in value or value != value.strip()
    is_bad = is_bad or not parts[1].startswith("/") or (are_absolute and not parts[0].startswith("/"))
    if is_bad:
        raise ValueError(
            f" is {value!r}; allowed: SOURCE:TARGET or SOURCE:TARGET:FLAGS, one {kind} each, TARGET absolute"
            f"{', SOURCE absolute' if are_absolute else ''}, e.g. '/data:/data'. Correct it."
        )
    return value


def _matching(pattern: re.Pattern[str], allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f" is {value!r}; allowed: {allowed}. Correct it.")
        return value

    return check


def absolute_path(value: str) -> str:
    """Return an absolute path.

    Raises:
        ValueError: it is none.
    """
    if not value.startswith("/"):
        raise ValueError(f" is {value!r}; allowed: an absolute path. Begin it with /.")
    return value


check_absolute = AfterValidator(absolute_path)
check_mount = AfterValidator(lambda value: _mount(value, kind="mount", are_absolute=True))
#: A source without a slash is a named volume.
check_volume = AfterValidator(lambda value: _mount(value, kind="volume", are_absolute=False))
check_slurm_time = AfterValidator(
    _matching(
        _SLURM_TIME,
        "MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS, e.g. '4:00:00'",
    )
)
check_array = AfterValidator(_matching(_ARRAY, "indices and ranges, and how many at once, e.g. '0-9%1'"))
check_job = AfterValidator(
    _matching(_JOB, "the id of a Slurm job, or a handle of nemo-run's, e.g. '12345' or 'slurm_tunnel://nemo_run/12345'")
)
