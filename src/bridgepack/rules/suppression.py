"""Removes the findings that the user ignores with a reason, and reports suppressions that are useless or wrong."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from bridgepack.records import Finding
from bridgepack.rules.judging.judgement import findings_of
from bridgepack.rules.judging.report import Suppressed
from bridgepack.rules.judging.rule import ERROR, WARNING, Decorator, Found, Rule, wrong


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressions:
    """The subject of a rule on suppressions."""

    user_reasons: Mapping[str, str]  #: code -> reason, as the user wrote them
    known_codes: Collection[str]  #: every rule's code
    retired_codes: Collection[str]  #: codes of rules that no longer exist
    judged_codes: Collection[str]  #: codes of the rules that judged
    found_codes: Collection[str]  #: codes of the rules that found something


class SuppressionRule(Rule):
    """A rule on the user's suppressions."""

    judges: ClassVar[str] = "suppressions"


suppression_rule = Decorator[Callable[[Suppressions], Found], SuppressionRule](SuppressionRule)


@suppression_rule("BP990", WARNING, "design: suppression", noticed="never", evidence="follows from the recipe alone")
def suppression_unused(subject: Suppressions) -> Found:
    """A suppressed rule ran and found nothing.

    Why: Silent: nobody sees the rule's next finding.
    Bad: ignore {BP004: "old run"} in a recipe with micro_batch_size 1. Good: no ignore for a rule that passes.
    Fix: Remove the entry.
    """
    for code in subject.user_reasons:
        if code in subject.judged_codes and code not in subject.found_codes:
            yield wrong(f"ignore.{code}", f"{code} finds nothing", "no entry", group=code)


@suppression_rule("BP991", ERROR, "design: codes", noticed="never", evidence="follows from the recipe alone")
def suppression_of_unknown_rule(subject: Suppressions) -> Found:
    """A suppression names a rule that does not exist.

    Why: Silent: the code has a typing error, so the intended rule is not suppressed, or its rule is retired.
    Bad: ignore {BP0O4: "a letter instead of a digit"}. Good: ignore {BP004: "..."}.
    Fix: Correct the code, or remove the entry of a retired rule; `bridgepack explain` lists the codes.
    """
    for code in subject.user_reasons:
        if code in subject.retired_codes:
            yield wrong(f"ignore.{code}", "the code of a retired rule", "no entry", group=code)
        elif code not in subject.known_codes:
            yield wrong(f"ignore.{code}", f"{code!r}", "the code of a rule", group=code)


@suppression_rule("BP992", ERROR, "house rule 28", noticed="never", evidence="follows from the recipe alone")
def suppression_without_reason(subject: Suppressions) -> Found:
    """A suppression gives no reason.

    Why: Silent: the next reader of the recipe cannot tell whether it still applies.
    Bad: ignore {BP014: ""}. Good: ignore {BP014: "compared with a run without per-token loss"}.
    Fix: Write why the finding does not matter.
    """
    for code, reason in subject.user_reasons.items():
        if not reason.strip():
            yield wrong(f"ignore.{code}", "no reason", "a reason", group=code)


def apply_suppressions(
    findings: Sequence[Finding], subject: Suppressions, rules: Sequence[SuppressionRule]
) -> tuple[tuple[Finding, ...], tuple[Suppressed, ...]]:
    """Return (findings that stay plus those on the suppressions, suppressed findings).

    A suppression without a reason removes nothing.
    """
    reasons = {code: reason for code, reason in subject.user_reasons.items() if reason.strip()}
    suppressions = tuple(
        Suppressed(finding=finding, reason=reasons[finding.code]) for finding in findings if finding.code in reasons
    )
    about_them = (finding for rule in rules for finding in findings_of(rule, rule.check(subject), max_examples=1))
    remaining = (finding for finding in findings if finding.code not in reasons)
    return (*remaining, *(replace(finding, noticed="") for finding in about_them)), suppressions
