"""Value types of cluster files: counts, texts, paths, mounts, and Slurm's text formats."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

_SLURM_TIME = re.compile(r"(\d+|\d+:[0-5]\d|\d+:[0-5]?\d:[0-5]?\d|\d+-\d+(:[0-5]?\d){0,2}|UNLIMITED|INFINITE)", re.I)
_ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?")
_JOB = re.compile(r"\d+(_\d+)?|[a-z_]+://[^/]*/\d+(_\d+)?(/.*)?")
_ABSOLUTE = re.compile(r"/.*", re.DOTALL)
_MAYBE_ABSOLUTE = re.compile(r"(/.*)?", re.DOTALL)


def is_inside(path: str, folder: str) -> bool:
    """Return whether an absolute path is `folder` or lies in it."""
    return PurePosixPath(path).is_relative_to(folder)


def _matching(pattern: re.Pattern[str], allowed: str, correction: str = "Correct it.") -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f" is {value!r}; allowed: {allowed}. {correction}")
        return value

    return AfterValidator(check)


def _mount(kind: str, *, are_absolute: bool) -> AfterValidator:
    def check(value: str) -> str:
        parts = value.split(":")
        is_bad = len(parts) not in {2, 3} or not all(parts) or "," in value or value != value.strip()
        if is_bad or not parts[1].startswith("/") or (are_absolute and not parts[0].startswith("/")):
            raise ValueError(
                f" is {value!r}; allowed: SOURCE:TARGET or SOURCE:TARGET:FLAGS, one {kind} each, TARGET absolute"
                f"{', SOURCE absolute' if are_absolute else ''}, e.g. '/data:/data'. Correct it."
            )
        return value

    return AfterValidator(check)


Count = Annotated[int, Field(ge=1, strict=True)]
NotNegative = Annotated[int, Field(ge=0, strict=True)]
Port = Annotated[int, Field(ge=1, le=65535, strict=True)]
Seconds = Annotated[float, Field(gt=0.0)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(min_length=1)]
MaybeEmpty = Annotated[str, Field(min_length=0)]
#: Text that people also write as a number, e.g. a memory size or a job id.
TextOrNumber = Annotated[
    str,
    Field(min_length=1, coerce_numbers_to_str=True),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "number"}]}),
]
#: A mapping passed unchanged to the platform.
FreeForm = dict[str, Any]
EnvironmentVariables = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")],
    Annotated[
        str,
        Field(min_length=0, coerce_numbers_to_str=True),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
    ],
]
AbsolutePath = Annotated[str, _matching(_ABSOLUTE, "an absolute path", "Begin it with /.")]
MaybeAbsolutePath = Annotated[MaybeEmpty, _matching(_MAYBE_ABSOLUTE, "an absolute path", "Begin it with /.")]
Mount = Annotated[str, _mount("mount", are_absolute=True)]
#: A mount whose source may be a named volume.
Volume = Annotated[str, _mount("volume", are_absolute=False)]
SlurmTime = Annotated[
    TextOrNumber,
    _matching(
        _SLURM_TIME,
        "MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS, e.g. '4:00:00'",
    ),
]
SlurmArray = Annotated[TextOrNumber, _matching(_ARRAY, "indices and ranges, and how many at once, e.g. '0-9%1'")]
SlurmJob = Annotated[
    TextOrNumber,
    _matching(
        _JOB, "the id of a Slurm job, or a handle of nemo-run's, e.g. '12345' or 'slurm_tunnel://nemo_run/12345'"
    ),
]
