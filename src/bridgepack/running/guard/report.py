"""The guard's messages: an alarm, which ends a run, and notices, which do not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from bridgepack.errors import BridgepackError
from bridgepack.host import UPDATE, note_of_newer
from bridgepack.records import Finding
from bridgepack.records.guarded import StepFacts, TrainedWeights
from bridgepack.rules.judging.judgement import findings_of
from bridgepack.rules.registry import STEP_RULES

#: Maximum ranks whose facts a record keeps; the findings name the faulty ones.
_MAX_RANKS = 64
#: Maximum kinds of modules that a notice names.
_MAX_KINDS = 8
_MAX_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """Why a run must stop."""

    findings: tuple[Finding, ...]  #: findings of the rules
    facts: StepFacts  #: facts of the step

    def text(self) -> str:
        """Return the message: every finding with its evidence, and what to do."""
        return f"guard: stopped at step {self.facts.step}.\n{findings_text(self.findings)}"

    def record(self) -> dict[str, Any]:
        """Return the alarm as plain values for a record."""
        return {
            "kind": "guard-violation",
            "step": self.facts.step,
            "findings": [asdict(finding) for finding in self.findings],
            "sizes": asdict(self.facts.sizes),
            "ranks": [asdict(facts) for facts in self.facts.ranks[:_MAX_RANKS]],
            "num_ranks": len(self.facts.ranks),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A message of the guard that does not stop the run."""

    kind: str  #: `trains`, `watched`, `unseen`, `no-plan`, `ignored`, `newer` or `doubted`
    text: str  #: message of one line; of `doubted`, the findings follow it
    facts: dict[str, Any] = field(default_factory=dict)  #: plain values for a record


def step_findings(facts: StepFacts) -> list[Finding]:
    """Return the findings of the guard's rules on a step."""
    return [
        finding
        for rule in STEP_RULES
        for finding in findings_of(rule, list(rule.check(facts)), max_examples=_MAX_EXAMPLES)
    ]


def newer_notice(version: str) -> Notice | None:
    """Return a notice on a version of Megatron-Bridge that is newer than all that is known; None for others.

    What such a version does otherwise looks like a fault, and must not end a healthy run.
    """
    if not note_of_newer(version):  # also of no version, as in a checkout without metadata
        return None
    return Notice(
        kind="newer",
        text=(
            f"guard: findings do not stop the run, as megatron-bridge {version} is newer than all that is known: "
            f"{UPDATE}"
        ),
    )


def doubted_notice(alarm: Alarm) -> Notice:
    """Return a notice of findings that do not stop the run, as the version may do otherwise by design."""
    facts = {name: value for name, value in alarm.record().items() if name != "kind"}
    text = f"guard: not stopped at step {alarm.facts.step}.\n{findings_text(alarm.findings)}"
    return Notice(kind="doubted", text=text, facts=facts)


class GuardViolationError(BridgepackError):
    """A step that broke a rule of the guard.

    Attributes:
        alarm: findings and facts.
    """

    def __init__(self, alarm: Alarm) -> None:
        super().__init__(alarm.text())
        self.alarm = alarm


def watched_notice(steps: Sequence[int], facts: StepFacts) -> Notice:
    """Return a notice of what was checked, after steps without findings."""
    tokens = sum(max(rank.planned_tokens, 0) for rank in facts.ranks)
    has_loss = any(rank.trained_tokens >= 0 for rank in facts.ranks)
    has_plan = any(rank.planned_tokens >= 0 for rank in facts.ranks)
    claims = {
        "boundaries on every rank": facts.is_packed,
        "equal on the ranks of a replica": facts.is_packed and any(rank.boundaries for rank in facts.ranks),
        f"equal to the packs due ({tokens} trained tokens)": has_plan,
        "finite losses": has_loss,
        "a gradient in every module with trained weights": any(rank.num_modules for rank in facts.ranks),
    }
    claim_text = ", ".join(text for text, holds in claims.items() if holds) or "nothing that applies to this run"
    numbers = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]}-{steps[-1]}"
    return Notice(
        kind="watched",
        text=f"guard: {numbers} on {len(facts.ranks)} ranks: {claim_text}.",
        facts={
            "steps": list(steps),
            "num_ranks": len(facts.ranks),
            "sizes": asdict(facts.sizes),
            "is_packed": facts.is_packed,
            "has_plan": has_plan,
            "trained_tokens_of_last_step": tokens if has_plan else None,
        },
    )


def trains_notice(shares: Sequence[TrainedWeights]) -> Notice:
    """Return a notice of how many weights a run trains, from the shares of all ranks."""
    num_trained, num_total = (round(sum(getattr(share, name) for share in shares)) for name in ("trained", "total"))
    counts: Counter[str] = Counter()
    stages = {share.stage: share for share in shares}
    for stage in stages.values():
        counts.update(dict(stage.kinds))
    num_modules = sum(stage.num_modules for stage in stages.values())
    kinds = [kind for kind, _ in counts.most_common(_MAX_KINDS)]
    fraction = num_trained / max(num_total, 1)
    in_modules = f", in {num_modules} modules: {', '.join(kinds)}" if kinds else ""
    more = ", ..." if len(counts) > _MAX_KINDS else ""
    return Notice(
        kind="trains",
        text=f"guard: trains {num_trained:,} of {num_total:,} weights ({fraction:.2%}){in_modules}{more}.",
        facts={
            "trained_weights": num_trained,
            "weights": num_total,
            "num_modules": num_modules,
            "modules": dict(counts),
        },
    )


def findings_text(findings: Sequence[Finding]) -> str:
    """Return the text of findings: where, the evidence, and once per rule why it matters and what to do."""
    lines: list[str] = []
    for code, group in groupby(findings, key=lambda finding: finding.code):
        alike = list(group)
        lines.append(f"{code} {alike[0].name}")
        for finding in alike:
            num_more = finding.num_occurrences - len(finding.examples)
            more = f"; and {num_more} more" if num_more > 0 else ""
            lines += [
                f"  where:   {'; '.join(finding.examples) or finding.where}{more}",
                f"  found:   {finding.found}",
                f"  allowed: {finding.allowed}",
            ]
        lines += [f"  why:     {alike[-1].why}", f"  fix:     {alike[-1].fix}", f"  bridgepack explain {code}"]
    return "\n".join(lines)
