"""Applies the changes that rules propose to a ConfigContainer, live or plain, until no change is proposed."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.live import place_in, value_in
from bridgepack.bridge.wiring import derived_setting
from bridgepack.bridge.writing.assign import assign
from bridgepack.errors import ConfigError
from bridgepack.records import Change, Finding, RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import RunRule, Severity
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import FIXING_RULES, RUN_RULES

#: Maximum rounds of judging and changing; a change can cause another rule's change, but never this often.
_MAX_ROUNDS = 10
#: Rules whose changes a person has to see first: a run that would train nothing was hardly meant.
_FOR_A_PERSON = frozenset({"BP842", "BP843"})
_APPLIED_RULES = tuple(rule for rule in FIXING_RULES if rule.code not in _FOR_A_PERSON)


def correct(
    config: Any, *, may_change: Callable[[str], bool] = lambda _: True, world_size: int | None = None
) -> tuple[Change, ...]:
    """Apply the changes that errors and warnings propose to a ConfigContainer in place; return them, each path once.

    Raises:
        ConfigError: changes contradict each other, or one does not fit.
    """

    def write(change: Change) -> None:
        assign(config, [derived_setting(place_in(config, change.path), change.value, change.why)])

    def config_now() -> RunConfig:
        return config_of_container(config, place=type(config).__name__)

    return apply_changes(
        lambda path: value_in(config, path),
        config_now,
        write,
        may_change=may_change,
        world_size=world_size,
    )


def apply_changes(
    value_of: Callable[[str], Any],
    config_now: Callable[[], RunConfig],
    write: Callable[[Change], None],
    *,
    may_change: Callable[[str], bool],
    world_size: int | None,
) -> tuple[Change, ...]:
    """Apply the changes that errors and warnings propose, and return them, each path once.

    Args:
        value_of: returns the present value at a canonical path of the settings to change.
        config_now: returns them as rules judge them.
        write: writes a change into them.
        may_change: returns whether a path may be changed.
        world_size: number of GPUs of the run, or None if unknown.

    Raises:
        ConfigError: changes contradict each other, or one does not fit.
    """
    changes_by_path: dict[str, Change] = {}
    for changes in rounds_of_changes(lambda: _proposed_changes(value_of, config_now(), world_size, may_change)):
        for path, change in changes.items():
            old = changes_by_path[path].old if path in changes_by_path else value_of(path)
            write(change)
            changes_by_path[path] = replace(change, old=old)
    return tuple(changes_by_path.values())


def rounds_of_changes[T](next_changes: Callable[[], Mapping[str, T]]) -> Iterator[Mapping[str, T]]:
    """Yield proposed changes, path -> change, until there are none; the caller applies each before the next.

    Raises:
        ConfigError: the changes contradict each other.
    """
    for _ in range(_MAX_ROUNDS):
        changes = next_changes()
        if not changes:
            return
        yield changes
    paths = ", ".join(sorted(next_changes()))
    raise ConfigError(f"the changes of {paths} contradict each other; set them by hand. Nothing was written.")


def findings_on(config: Any, *, world_size: int | None = None, codes: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return the errors and warnings about a ConfigContainer, errors first; of all rules, or those with `codes`."""
    rules = [rule for rule in RUN_RULES if rule.code in codes or not codes]
    return _findings(config_of_container(config, place=type(config).__name__), world_size, rules)


def _findings(config: RunConfig, world_size: int | None, rules: Sequence[RunRule]) -> tuple[Finding, ...]:
    subject = Run(config=config, versions=target_versions(config.bridge_version), world_size_given=world_size)
    findings = [finding for finding in judge_run(subject, rules).findings if finding.severity != Severity.ADVICE]
    return tuple(sorted(findings, key=lambda finding: finding.severity != Severity.ERROR))


def _proposed_changes(
    value_of: Callable[[str], Any], config: RunConfig, world_size: int | None, may_change: Callable[[str], bool]
) -> dict[str, Change]:
    """Return path -> change; of several changes, that of the first finding. A finding's changes stay together."""
    changes: dict[str, Change] = {}
    for finding in _findings(config, world_size, _APPLIED_RULES):
        if all(may_change(change.path) for change in finding.changes):
            for change in finding.changes:
                if value_of(change.path) != change.value:
                    changes.setdefault(change.path, replace(change, why=f"{finding.code}: {change.why}"))
    return changes
