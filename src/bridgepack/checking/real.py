"""Adds what the installed Megatron-Bridge itself says of a run to the report of the rules."""

from dataclasses import replace

from packaging.version import Version

from bridgepack.bridge.targets import Target
from bridgepack.bridge.validating.ask import host_verdict
from bridgepack.checking.options import CheckOptions
from bridgepack.records import Finding, HostVerdict
from bridgepack.rules.judging.report import CheckReport, findings_of, skip_rules
from bridgepack.rules.judging.rule import VALIDATE, Severity
from bridgepack.rules.registry import HOST_RULES

_NOT_ASKED = "the installed Megatron-Bridge is asked only with --real-validate"
_NO_RUN = HostVerdict(state="not judged", reason="an artifact alone has no settings")


def with_verdict(report: CheckReport, loaded: Target, options: CheckOptions, version: Version | None) -> CheckReport:
    """Return the report with the host's verdict and what it refuses; `version` is the host's that is judged for."""
    rules = options.select_rules(HOST_RULES)
    if not options.real_validate or not rules:
        unasked = skip_rules(rules, _NOT_ASKED) if options.select else ()
        return replace(report, rules_skipped=(*report.rules_skipped, *unasked))
    verdict = _NO_RUN
    if loaded.config is not None and version is not None:
        size = options.world_size or loaded.config.world_size
        verdict = host_verdict(loaded, version=version, world_size=size, artifact=options.artifact)
    report = replace(report, host=verdict)
    if not verdict.is_judged:
        return replace(report, rules_skipped=(*report.rules_skipped, *skip_rules(rules, verdict.reason)))
    found = [one for rule in rules for one in findings_of(rule, rule.check(verdict), max_examples=1)]
    codes = tuple(sorted((*report.rules_run, *(rule.code for rule in rules))))
    return replace(report, findings=(*report.findings, *found), rules_run=codes)


def with_each_fault_once(report: CheckReport) -> CheckReport:
    """Return the report without the host's refusal if a finding of ours explains it; the verdict stays.

    The host stops at the first fault, and names it in its own words; our finding has the field and the fix.
    """
    own = {rule.code for rule in HOST_RULES}
    if report.host is None or not any(_explains(one, report.host) for one in report.findings if one.code not in own):
        return report
    return replace(report, findings=tuple(one for one in report.findings if one.code not in own))


def _explains(finding: Finding, verdict: HostVerdict) -> bool:
    """Return whether a finding is what the host refuses: `to_bridge` says its code, validate() stops at any of them."""
    if finding.severity != Severity.ERROR:
        return False
    if verdict.stage == VALIDATE:
        return finding.noticed.startswith(VALIDATE)
    return f"({finding.code})" in verdict.reason
