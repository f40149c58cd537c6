"""Writes the safe changes that a check proposes into the user's file."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bridgepack.bridge.adopting.corrections import rounds_of_changes
from bridgepack.bridge.targets import Target
from bridgepack.checking.check import check_target
from bridgepack.checking.loading import target_of
from bridgepack.checking.options import CheckOptions
from bridgepack.checking.packs import check_packs
from bridgepack.checking.settings import settings_of
from bridgepack.config.editing import CannotEditError, FileEdit, edit_file, read_text
from bridgepack.data.files import replaced_when_whole
from bridgepack.errors import ConfigError
from bridgepack.records import Change
from bridgepack.records.words import value_text
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity
from bridgepack.user_files import real_path


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """The result of fixing a file."""

    edit: FileEdit | None  #: the file before and after; None if there is nothing to change
    changes: tuple[Change, ...]  #: changes with the file's own paths, each path once
    report: CheckReport  #: report of a check after the changes
    by_hand: tuple[str, ...] = ()  #: changes that cannot be written into the file, and what to type instead
    build_command: str = ""  #: command that builds the packs again; empty if the target is not a bridgepack recipe

    @property
    def needs_repack(self) -> bool:
        """Whether existing packs must be built again."""
        return any(change.needs_repack for change in self.changes)

    @property
    def diff(self) -> str:
        """The changes as a diff of the file; empty if there are none."""
        return self.edit.diff() if self.edit else ""

    def write(self) -> None:
        """Write the changes into the file, if there are any.

        Raises:
            ConfigError: the file is read-only, changed since it was read, or cannot be written.
        """
        if self.edit:
            write_edit(self.edit)


def fix_target(target: Any, options: CheckOptions) -> Fixed:
    """Return a file's edit with every safe change; nothing is written yet.

    Args:
        target: a recipe's or a config's file, as `check_target` takes it.
        options: as for `check_target`; overrides are not written.

    Raises:
        ConfigError: the target is not a file of the user, a change cannot be made in it, or changes contradict.
    """
    target = target_of(target, options)
    if target.config is None:
        raise ConfigError(
            f"--fix and --diff change settings, and {target.place!r} is an artifact, which has none. Remove them, or "
            f"check the recipe with --artifact {target.place}."
        )
    packs, quick = check_packs(target, settings_of(target, options), options), replace(options, real_validate=False)

    def report_with(changes: Mapping[str, Change], how: CheckOptions = quick) -> CheckReport:
        target_then = target.override({path: change.value for path, change in changes.items()})
        is_as_judged = packs is not None and packs.are_judged_for(settings_of(target_then, how))
        return check_target(target_then, how, packs=packs if is_as_judged else None)

    reports = [check_target(target, quick, packs=packs)]
    changes: dict[str, Change] = {}
    for new_changes in rounds_of_changes(lambda: _proposed_changes(reports[-1], options.overrides)):
        changes |= new_changes
        reports.append(report_with(changes))
    edit, by_hand = _edit(target, changes)
    changes = {path: change for path, change in changes.items() if path not in by_hand}
    if by_hand or options.real_validate:
        reports.append(report_with(changes, options))
    output = [] if options.artifact is None else ["--output", str(options.artifact)]
    command = shlex.join(["bridgepack", "build", target.place, *output])
    return Fixed(
        edit=edit,
        changes=tuple(changes.values()),
        report=reports[-1],
        by_hand=tuple(by_hand.values()),
        build_command=command if target.kind == "recipe" else "",
    )


def write_edit(edit: FileEdit) -> None:
    """Replace a file with its new text, keeping its mode; for a link, its target is replaced.

    Raises:
        ConfigError: the file is read-only, changed since it was read, or cannot be written.
    """
    path = edit.path
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError(f"{str(path)!r} is read-only and was not changed. Make it writable, or use --diff.")
    if read_text(path) != edit.old_text:
        raise ConfigError(f"{str(path)!r} changed since it was read and was not overwritten. Run the command again.")
    if edit.new_text == edit.old_text:
        return
    target = real_path(path)
    try:
        with replaced_when_whole(target, is_shared=True) as temporary:
            mode = target.stat().st_mode & 0o7777
            temporary.touch(mode & 0o700)  # never open to more people than the file is
            temporary.write_bytes(edit.new_text.encode("utf-8"))
            temporary.chmod(mode)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error}. Check its folder's permissions.") from None


def _proposed_changes(report: CheckReport, overrides: Mapping[str, Any]) -> Mapping[str, Change]:
    """Return path -> change of the most severe finding; sections that `overrides` change are left out."""
    changes: dict[str, Change] = {}
    for finding in report.findings:
        if finding.severity != Severity.ADVICE:
            for change in finding.changes:
                if any(path.startswith(f"{change.path}.") for path in overrides):
                    continue
                changes.setdefault(change.path, change)
    return changes


def _edit(target: Target, changes: Mapping[str, Change]) -> tuple[FileEdit | None, dict[str, str]]:
    if not changes:
        return None, {}
    if target.file is None:
        lines = "; ".join(f"{path} = {value_text(change.value)}" for path, change in changes.items())
        raise ConfigError(f"--fix needs a file of yours, and {target.place} is not one. Change by hand: {lines}.")
    place = f"{target.file}:{target.function}" if target.function else str(target.file)
    edits = list(changes.values())
    by_hand: dict[str, str] = {}
    while edits:
        try:
            return edit_file(place, edits, kind="recipe" if target.kind == "recipe" else "container"), by_hand
        except CannotEditError as error:
            if error.edit is None:
                raise
            by_hand[error.edit.path] = str(error)
            edits = [edit for edit in edits if edit.path != error.edit.path]
    return None, by_hand
