"""References to environment variables (`${env:NAME}`) in cluster files, and secrets that are never shown."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from bridgepack.errors import ConfigError

#: A reference.
REFERENCE = re.compile(r"\$\{env:[^}]*\}")
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


def is_secret_name(name: str) -> bool:
    """Return whether the name of a variable or field marks a secret."""
    return bool(_SECRET_NAME.search(name))


def hide_secrets(value: Any) -> Any:
    """Return plain values with every secret replaced by `***`; references stay, because they hold only a name."""
    return _with_texts(value, "", lambda text, path: "***" if _is_secret(text, path) else text)


def plain_secrets(value: Any) -> list[str]:
    """Return the dotted paths of secrets in plain text."""
    found: list[str] = []

    def look(text: str, path: str) -> str:
        found.extend([path] if text and _is_secret(text, path) else [])
        return text

    _with_texts(value, "", look)
    return found


def _is_secret(text: str, path: str) -> bool:
    names = path.split(".")
    is_named_so = is_secret_name(names[-1]) and not _NAMES_OF_SECRETS.intersection(names)
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
