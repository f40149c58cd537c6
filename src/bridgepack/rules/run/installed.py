"""What rules on the environment ask of it: installed versions, and whether they lie in a range."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.subject import Run


def installed_version(run: Run, name: str) -> Version | None:
    """Return the installed version of a distribution; None where it is not installed.

    Raises:
        CannotJudgeError: no environment was given, or it does not tell the version.
    """
    text = run.require_environment().versions.get(name)
    if text is None:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        raise CannotJudgeError(f"the environment does not tell the version of {name}: {text!r}") from None


def is_in(version: Version | None, specifier: str) -> bool:
    """Say whether an installed version lies in a range; pre-releases count, what is not installed does not."""
    return version is not None and SpecifierSet(specifier).contains(version, prereleases=True)


def is_installed(run: Run, name: str) -> bool:
    """Say whether a distribution is installed, of whatever version."""
    return name in run.require_environment().versions
