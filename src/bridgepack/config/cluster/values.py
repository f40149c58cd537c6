"""Value types of cluster files, references to environment variables (`${env:NAME}`), and secrets that stay hidden."""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from bridgepack.errors import ConfigError

_SLURM_TIME = re.compile(r"(?ia)(\d+|\d+:[0-5]\d|\d+:[0-5]?\d:[0-5]?\d|\d+-\d+(:[0-5]?\d){0,2}|UNLIMITED|INFINITE)")
_ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", re.ASCII)
_JOB = re.compile(r"\d+(_\d+)?|[a-z_]+://[^/]*/\d+(_\d+)?(/.*)?", re.ASCII)
_ABSOLUTE = re.compile(r"/.*", re.DOTALL)
#: `${env:NAME}`, the launch's own reference, which is replaced before a shell sees the text.
REFERENCE = re.compile(r"\$\{env:[^}]*\}")
#: Text that a shell leaves as it is: no space, quote, `$`, wildcard, list in braces, or character that ends a command.
_PLAIN = r"[\w@%+=:,./~^#-]|\{\w*\}|\$\{env:[^}]*\}"
_VARIABLE = re.compile(r"\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}")
_WORD = re.compile(rf"(?!#)({_PLAIN})*")
_WORD_ON_NODE = re.compile(rf"(?!#)({_PLAIN}|{_VARIABLE.pattern})*")
_SYNTAX = re.compile(r"[;&|<>()`$#\r\n'\"\\]")
_ONE_LINE = re.compile(r"[^\r\n]*")
_MAYBE_ABSOLUTE = re.compile(r"(/.*)?", re.DOTALL)


def is_inside(path: str, folder: str) -> bool:
    """Return whether an absolute path is `folder` or lies in it."""
    return PurePosixPath(path).is_relative_to(folder)


def is_word(text: str, *, expands: bool = False) -> bool:
    """Return whether a shell takes a text for one word as it is written; with `expands`, `$NAME` may be in it."""
    return bool((_WORD_ON_NODE if expands else _WORD).fullmatch(text))


def are_arguments(text: str, *, expands: bool = False) -> bool:
    """Return whether a shell takes a text for arguments alone: no command or redirection is in it.

    There may be a variable in it only with `expands`, as `$NAME` outside of quotes.
    """
    bare = REFERENCE.sub("", re.sub(r"'[^']*'|\"[^\"$`\\]*\"|\\[^\n]", "", text))
    return not _SYNTAX.search(_VARIABLE.sub("", bare) if expands else bare)


def _matching(pattern: re.Pattern[str], description: str, correction: str = "Correct it.") -> AfterValidator:
    def check(value: Any) -> Any:
        if isinstance(value, str) and not pattern.fullmatch(value):
            raise ValueError(f" is {value!r}; allowed: {description}. {correction}")
        return value

    return AfterValidator(check)


def _word(description: str, *, expands: bool = False) -> AfterValidator:
    def check(value: str) -> str:
        if not is_word(value, expands=expands):
            raise ValueError(
                f" is {value!r}; nemo-run writes it unquoted into a shell script; allowed: {description}. Rename it."
            )
        return value

    return AfterValidator(check)


def _arguments(program: str, *, expands: bool = False) -> AfterValidator:
    def check(value: str) -> str:
        if not are_arguments(value, expands=expands):
            also = ", and $NAME or ${NAME}, which the node expands" if expands else ""
            raise ValueError(
                f" is {value!r}; nemo-run writes it unquoted into a shell command; allowed: arguments of {program}, "
                f"with special characters in quotes{also}. Quote them."
            )
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
Seconds = Annotated[float, Field(gt=0.0, strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Lines = Annotated[str, Field(min_length=1)]
Text = Annotated[
    Lines, _matching(_ONE_LINE, "text in one line, as it becomes a line of a script", "Remove the line break.")
]
MaybeEmpty = Annotated[str, Field(min_length=0)]
_IN_A_WORD = "one word of letters, digits and @ % + = : , . / ~ ^ # _ -"
#: One shell word.
Word = Annotated[Text, _word(_IN_A_WORD)]
MaybeWord = Annotated[MaybeEmpty, _word(_IN_A_WORD)]
#: One shell word in which the node expands `$NAME` and `${NAME}`.
WordOnNode = Annotated[Text, _word(f"{_IN_A_WORD}, and $NAME or ${{NAME}}, which the node expands", expands=True)]
#: Arguments of `find`.
Arguments = Annotated[Text, _arguments("find")]
MaybeArguments = Annotated[MaybeEmpty, _arguments("find")]
#: Arguments of `srun`, in which the node expands `$NAME`.
SrunArguments = Annotated[Text, _arguments("srun", expands=True)]
#: Text that people also write as a number, e.g. a memory size or a job id.
TextOrNumber = Annotated[
    str,
    Field(min_length=1, coerce_numbers_to_str=True),
    _matching(_ONE_LINE, "text in one line, as it becomes a line of a script", "Remove the line break."),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "number"}]}),
]
#: Name of an sbatch parameter, with `_` for `-`.
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
#: Value of an sbatch parameter.
ParameterValue = Annotated[
    bool | int | float | str,
    _matching(_ONE_LINE, "text in one line, as it becomes a line of a script", "Remove the line break."),
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
AbsolutePath = Annotated[str, _matching(_ABSOLUTE, "an absolute path", "Begin it with /."), _word(_IN_A_WORD)]
MaybeAbsolutePath = Annotated[
    MaybeEmpty, _matching(_MAYBE_ABSOLUTE, "an absolute path", "Begin it with /."), _word(_IN_A_WORD)
]
#: A mount, in which the node expands `$NAME`, and nemo-run replaces `/$nemo_run`.
Mount = Annotated[
    str,
    _mount("mount", are_absolute=True),
    _word(f"{_IN_A_WORD}, and $NAME or ${{NAME}}, which the node expands", expands=True),
]
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


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(r"(token(?!iz)|secret|passw|credential|api_?key|access_?key|private_?key|auth)", re.I)
#: Names that look like secrets but only name one that the platform stores.
_NAMES_OF_SECRETS = frozenset({"image_pull_secrets", "secret_vars", "secretKeyRef", "secretName"})


def resolve_references(value: Any, environment: Mapping[str, str], where: str) -> Any:
    """Return plain values with every `${env:NAME}` replaced, at any depth; `where` is their dotted path.

    Raises:
        ConfigError: a variable is not set, or a reference is malformed.
    """

    def resolve(text: str, path: str) -> str:
        return REFERENCE.sub(lambda match: _variable(match, environment, path), text)

    return _with_texts(value, where, resolve)


def hide_secrets(value: Any) -> Any:
    """Return plain values with every secret replaced by `***`; references stay, because they hold only a name."""
    return _with_texts(value, "", lambda text, path: "***" if _is_secret(text, path) else text)


def _is_secret(text: str, path: str) -> bool:
    names = path.split(".")
    is_named_so = bool(_SECRET_NAME.search(names[-1])) and not _NAMES_OF_SECRETS.intersection(names)
    return is_named_so and not REFERENCE.fullmatch(text)


def _with_texts(value: Any, path: str, change: Callable[[str, str], str]) -> Any:
    """Return plain values with `change` applied to each text; `change` takes the text and its dotted path."""
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        # Kubernetes writes a variable as {name: NAME, value: VALUE}; the name tells whether the value is a secret.
        own_name = value.get("name") if isinstance(value.get("name"), str) else "value"
        names = {name: own_name if name == "value" else name for name in value}
        return {name: _with_texts(item, f"{prefix}{names[name]}", change) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_texts(item, path, change) for item in value)
    return value


def _variable(match: re.Match[str], environment: Mapping[str, str], path: str) -> str:
    name = match[0][len("${env:") : -1]
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{path} has {match[0]!r}; allowed: ${{env:NAME}}, the name of a variable. Correct it.")
    if name not in environment:
        raise ConfigError(
            f"{path} is {match[0]!r}; the environment has no variable {name}. Set it before the launch: "
            f"export {name}=VALUE."
        )
    return environment[name]
