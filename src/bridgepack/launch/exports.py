"""Quotes environment variables that nemo-run writes into shell scripts as they are."""

import re
from collections.abc import Mapping

from bridgepack.config.cluster.references import REFERENCE, resolve_references

#: Text that a shell takes as one word; `$` is kept, so that `$HOME` and nemo-run's macros mean what they say.
_ONE_WORD = re.compile(r"[\w@%+=:,./$~{}^-]*", re.ASCII)
_SPECIAL = re.compile(r'([\\"`])')


def exported(env_vars: Mapping[str, str], environment: Mapping[str, str] | None) -> dict[str, str]:
    """Return variables as `export NAME=VALUE` takes them: `--a --b` becomes `"--a --b"`, `$HOME` stays.

    `${env:NAME}` is looked up in `environment`, and means itself, its `$` too; None leaves references.

    Raises:
        ConfigError: a variable is not set.
    """
    return {name: _quoted(value, environment, f"executor.env_vars.{name}") for name, value in env_vars.items()}


def _quoted(value: str, environment: Mapping[str, str] | None, where: str) -> str:
    pieces = []
    for index, piece in enumerate(re.split(f"({REFERENCE.pattern})", value)):
        if index % 2 == 0:
            pieces.append(_SPECIAL.sub(r"\\\1", piece))
        elif environment is None:
            pieces.append(piece)
        else:
            resolved: str = resolve_references(piece, environment, where)
            pieces.append(_SPECIAL.sub(r"\\\1", resolved).replace("$", "\\$"))
    text = "".join(pieces)
    return text if _ONE_WORD.fullmatch(text) else f'"{text}"'
