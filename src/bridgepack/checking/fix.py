"""Writes the safe changes that a check proposes back into the user's file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bridgepack.bridge.targets import Target, load_target
from bridgepack.checking.check import CheckedArtifact, check_target, checked_artifact
from bridgepack.checking.options import CheckOptions
from bridgepack.config.editing import CannotEditError, Edit, FileEdit, edit_file
from bridgepack.errors import ConfigError
from bridgepack.records import Change
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.text import value_text

#: Rounds of checking and changing; a change can bring another rule's change with it, never this often.
_MAX_ROUNDS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """What fixing does to a file.

    Attributes:
        edit: the file before and after; None where there is nothing to change.
        changes: in the file's own paths, each path once.
        report: what a check says with the changes.
        by_hand: what cannot be written into the file, and what to type instead.
        build_command: builds the packs again; empty where the target is no recipe of ours.
    """

    edit: FileEdit | None
    changes: tuple[Change, ...]
    report: CheckReport
    by_hand: tuple[str, ...] = ()
    build_command: str = ""

    @property
    def needs_repack(self) -> bool:
        """Whether packs that exist already must be built again."""
        return any(change.needs_repack for change in self.changes)


def fixed(target: str, options: CheckOptions) -> Fixed:
    """Return a file with every safe change made; nothing is written yet.

    Args:
        target: a recipe's or a config's file, as `check` takes it.
        options: as for `check`; overrides are not written.

    Raises:
        ConfigError: the target has no file of the user's, a change cannot be made in it, or changes contradict.
    """
    loaded = load_target(target, options.overrides, artifact=options.artifact)
    packs = checked_artifact(loaded, options)
    report = check_target(loaded, options, packs=packs)
    changes: dict[str, Change] = {}
    for _ in range(_MAX_ROUNDS):
        proposed = _proposed(report)
        if not proposed:
            break
        changes |= proposed
        report = _report_with(changes, target, loaded, options, packs)
    else:
        paths = ", ".join(sorted(_proposed(report)))
        raise ConfigError(f"the changes of {paths} contradict each other; set them by hand. Nothing was written.")
    edit, by_hand = _edit(loaded, changes)
    written = {path: change for path, change in changes.items() if path not in by_hand}
    if by_hand:
        report = _report_with(written, target, loaded, options, packs)
    return Fixed(
        edit=edit,
        changes=tuple(written.values()),
        report=report,
        by_hand=tuple(by_hand.values()),
        build_command=_build_command(loaded, options),
    )


def write_fix(outcome: Fixed) -> None:
    """Put the changed file in the place of the old one.

    Raises:
        ConfigError: it is read-only, changed meanwhile, or cannot be written.
    """
    if outcome.edit is None:
        return
    path = outcome.edit.path
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError(f"{str(path)!r} is read-only and stays as it is. Make it writable, or take --diff.")
    outcome.edit.write()


def _report_with(
    changes: Mapping[str, Change], target: str, loaded: Target, options: CheckOptions, packs: CheckedArtifact | None
) -> CheckReport:
    """Return what a check says with some changes made."""
    values = {path: change.value for path, change in changes.items()}
    again = load_target(target, {**options.overrides, **values}, artifact=options.artifact)
    return check_target(replace(again, file=loaded.file), options, packs=packs)


def _build_command(loaded: Target, options: CheckOptions) -> str:
    if loaded.kind != "recipe":
        return ""
    words = ["bridgepack", "build", loaded.place]
    if options.artifact is not None:
        words += ["--output", str(options.artifact)]
    return shlex.join(words)


def _proposed(report: CheckReport) -> Mapping[str, Change]:
    """Return path -> change; of several the one of the worse finding."""
    proposed: dict[str, Change] = {}
    for finding in report.findings:
        if finding.severity != Severity.ADVICE:
            for change in finding.changes:
                proposed.setdefault(change.path, change)
    return proposed


def _edit(loaded: Target, changes: Mapping[str, Change]) -> tuple[FileEdit | None, dict[str, str]]:
    """Return the edit of the file, and path -> what to do for what cannot be written there."""
    if not changes:
        return None, {}
    if loaded.file is None:
        lines = "; ".join(f"{path} = {value_text(change.value)}" for path, change in changes.items())
        raise ConfigError(
            f"--fix writes into a file of yours, and {loaded.place} names none. Change it by hand: {lines}."
        )
    place = f"{loaded.file}:{loaded.function}" if loaded.function else str(loaded.file)
    edits = [Edit(path=path, value=change.value) for path, change in changes.items()]
    by_hand: dict[str, str] = {}
    while edits:
        try:
            return edit_file(place, edits, kind="recipe" if loaded.kind == "recipe" else "container"), by_hand
        except CannotEditError as error:
            if error.edit is None:
                raise
            by_hand[error.edit.path] = str(error)
            edits = [edit for edit in edits if edit.path != error.edit.path]
    return None, by_hand
