"""A rule on a run, and how a function becomes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Unpack

from bridgepack.records import Change
from bridgepack.rules.rule import Rule, RuleFields, Violation, texts_of
from bridgepack.rules.run_subject import RunSubject

RunCheck = Callable[[RunSubject], Iterable[Violation]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRule(Rule):
    """A rule on a run: its settings, with its topology, artifact, files and environment where they are given.

    Attributes:
        check: yields violations.
    """

    check: RunCheck


def run_rule(**fields: Unpack[RuleFields]) -> Callable[[RunCheck], RunRule]:
    """Return a decorator that makes a `RunRule` of a function and its docstring."""
    return lambda check: RunRule(**fields, **texts_of(check), check=check)


def change(path: str, value: Any, why: str, *, needs_repack: bool = False) -> tuple[Change, ...]:
    """Return one safe change, as `Violation.changes` takes it."""
    return (Change(path=path, value=value, why=why, needs_repack=needs_repack),)
