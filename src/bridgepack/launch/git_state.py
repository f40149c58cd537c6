"""Which commit the launching folder is at, and whether something there is not committed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GitState:
    """State of a git repository."""

    commit: str  #: hash of the commit that is checked out
    is_dirty: bool | None  #: files are changed or not known to git; None where git did not say in time


def git_state(folder: Path) -> GitState | None:
    """Return the state of the repository around a folder; None where there is none, or no git."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain")
    return GitState(commit=commit, is_dirty=None if changes is None else bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what a command of git prints; None where it fails."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
