"""A rule on a run, and how a function becomes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from bridgepack.records import Change
from bridgepack.rules.rule import Rule, RuleFacts, Severity, Violation, described
from bridgepack.rules.run_subject import RunSubject

RunCheck = Callable[[RunSubject], Iterable[Violation]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRule(Rule):
    """A rule on a run: its settings, with its topology, artifact, files and environment where they are given.

    Attributes:
        check: yields violations.
    """

    judges: ClassVar[str] = "the run"

    check: RunCheck


def rule(code: str, severity: Severity, source: str, **facts: Unpack[RuleFacts]) -> Callable[[RunCheck], RunRule]:
    """Return a decorator that makes a `RunRule` of a function and its docstring."""
    unsaid = {"noticed": "never.", "evidence": "read in the source."}
    return lambda check: RunRule(check=check, **unsaid | described(check, code, severity, source, facts))


def change(path: str, value: Any, why: str, *, needs_repack: bool = False) -> tuple[Change, ...]:
    """Return one safe change, as `Violation.changes` takes it."""
    return (Change(path=path, value=value, why=why, needs_repack=needs_repack),)
