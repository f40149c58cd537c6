"""Corrects a live ConfigContainer as the rules propose, until they propose nothing more."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.wiring import derived
from bridgepack.bridge.writing.assign import assign
from bridgepack.bridge.writing.host_fields import value_at
from bridgepack.errors import ConfigError
from bridgepack.records import Change, Finding
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.registry import RUN_RULES

#: Rounds of judging and changing; a change can bring another rule's change with it, never this often.
_MAX_ROUNDS = 10


def correct(
    config: Any, *, may_change: Callable[[str], bool] = lambda _: True, world_size: int | None = None
) -> tuple[Change, ...]:
    """Make the changes that errors and warnings propose, in a ConfigContainer itself, and return them, each path once.

    Raises:
        ConfigError: changes contradict each other, or one does not fit.
    """
    made: dict[str, Change] = {}
    for changes in rounds_of_changes(lambda: _proposed(config, world_size, may_change)):
        for path, change in changes.items():
            old = made[path].old if path in made else value_at(config, path)
            assign(config, [derived(path, change.value, change.why)])
            made[path] = replace(change, old=old)
    return tuple(made.values())


def rounds_of_changes[T](proposed: Callable[[], Mapping[str, T]]) -> Iterator[Mapping[str, T]]:
    """Yield what is proposed, path -> change, to be made before the next is asked for, until nothing is.

    Raises:
        ConfigError: it never ends.
    """
    for _ in range(_MAX_ROUNDS):
        changes = proposed()
        if not changes:
            return
        yield changes
    paths = ", ".join(sorted(proposed()))
    raise ConfigError(f"the changes of {paths} contradict each other; set them by hand. Nothing was written.")


def findings_on(config: Any, *, world_size: int | None = None) -> tuple[Finding, ...]:
    """Return the errors and warnings about a config, errors first."""
    subject = Run(
        config=config_of_container(config, place=type(config).__name__),
        versions=target_versions(),
        world_size_given=world_size,
    )
    found = [one for one in judge_run(subject, RUN_RULES).findings if one.severity != Severity.ADVICE]
    return tuple(sorted(found, key=lambda finding: finding.severity != Severity.ERROR))


def _proposed(config: Any, world_size: int | None, may_change: Callable[[str], bool]) -> dict[str, Change]:
    """Return path -> change; of several that of the first finding. Changes of one finding go together."""
    proposed: dict[str, Change] = {}
    for finding in findings_on(config, world_size=world_size):
        if all(may_change(change.path) for change in finding.changes):
            for change in finding.changes:
                if value_at(config, change.path) != change.value:
                    proposed.setdefault(change.path, replace(change, why=f"{finding.code}: {change.why}"))
    return proposed
