"""A rule on a run, and how a function becomes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from bridgepack.records import Change
from bridgepack.rules.engine.rule import Found, Rule, RuleFacts, Severity, described
from bridgepack.rules.engine.subject import Run

RunCheck = Callable[[Run], Found]
Guard = Callable[[Run], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRule(Rule):
    """A rule on a run: its settings, with its topology, artifact, files and environment where they are given.

    Attributes:
        check: yields violations of a run that it is about.
        when: says whether a run is one of those that it is about; None for every run.
        instead_of: code of a rule on artifacts that says the same with less at hand; its finding gives way to this one.
    """

    judges: ClassVar[str] = "the run"

    check: RunCheck
    when: Guard | None = None
    instead_of: str = ""

    def violations(self, run: Run) -> Found:
        """Return the violations of a run; none where the rule is about others."""
        return self.check(run) if self.when is None or self.when(run) else ()


def rule(
    code: str,
    severity: Severity,
    source: str = "",
    *,
    when: Guard | None = None,
    instead_of: str = "",
    **facts: Unpack[RuleFacts],
) -> Callable[[RunCheck], RunRule]:
    """Return a decorator that makes a `RunRule` of a function and its docstring."""
    unsaid = {"noticed": "never.", "evidence": "read in the source."}
    return lambda check: RunRule(
        check=check,
        when=when,
        instead_of=instead_of,
        **unsaid | described(check, code, severity, source, facts),
    )


def change(path: str, value: Any, because: str, *, needs_repack: bool = False) -> tuple[Change, ...]:
    """Return one safe change, as `Violation.changes` takes it."""
    return (Change(path=path, value=value, why=because, needs_repack=needs_repack),)
