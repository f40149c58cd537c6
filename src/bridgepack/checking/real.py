"""Step 5 of a check, the host's verdict: what the installed Megatron-Bridge itself says of a run."""

from collections.abc import Iterable

from bridgepack.bridge.targets import Target
from bridgepack.bridge.validating.ask import host_verdict
from bridgepack.checking.options import CheckOptions
from bridgepack.host import BRIDGE
from bridgepack.records import Finding, HostVerdict
from bridgepack.rules.judging.facts import NOT_ASKED
from bridgepack.rules.judging.judgement import Judgement, findings_of, skip_rules
from bridgepack.rules.judging.rule import VALIDATE, Severity
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import HOST_RULES

_NO_RUN = HostVerdict(state="not judged", reason="an artifact alone has no settings")


def verdict_on(target: Target, run: Run | None, options: CheckOptions) -> HostVerdict | None:
    """Return the host's verdict on a target; None if it is not to be asked."""
    if not options.real_validate or not options.select_rules(HOST_RULES):
        return None
    if run is None:
        return _NO_RUN
    size = options.world_size or run.config.world_size
    return host_verdict(
        target,
        version=run.versions[BRIDGE],
        world_size=size,
        artifact=options.artifact,
        trusted_modules=options.trust_config,
        runs_code=options.trust_remote_code,
    )


def judge_verdict(verdict: HostVerdict | None, options: CheckOptions) -> Judgement:
    """Return what the rules on the host's verdict say of it."""
    rules = options.select_rules(HOST_RULES)
    if verdict is None:
        return skip_rules(rules, NOT_ASKED) if options.select else Judgement()
    if not verdict.is_judged:
        return skip_rules(rules, verdict.reason)
    return Judgement(
        findings=tuple(finding for rule in rules for finding in findings_of(rule, rule.check(verdict), max_examples=1)),
        rules_run=tuple(rule.code for rule in rules),
    )


def each_fault_once(findings: Iterable[Finding], verdict: HostVerdict | None) -> tuple[Finding, ...]:
    """Return the findings without the host's refusal if a finding of ours explains it.

    The host stops at the first fault, and names it in its own words; our finding has the field and the fix.
    """
    findings, of_host = tuple(findings), {rule.code for rule in HOST_RULES}
    ours = tuple(finding for finding in findings if finding.code not in of_host)
    return ours if verdict is not None and any(_explains(finding, verdict) for finding in ours) else findings


def _explains(finding: Finding, verdict: HostVerdict) -> bool:
    """Return whether a finding is what the host refuses: `to_bridge` has its code, validate() stops at any of them."""
    if finding.severity != Severity.ERROR:
        return False
    if verdict.stage == VALIDATE:
        return finding.noticed.startswith(VALIDATE)
    return finding.code == verdict.code
