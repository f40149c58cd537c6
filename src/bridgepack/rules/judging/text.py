"""Renders a check's report as text and as JSON."""

import json
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

from bridgepack.records import Change, Finding, Upgrade, UpgradeChange
from bridgepack.records.words import counted
from bridgepack.rules.judging.context import NO_ENVIRONMENT, NO_PACKS
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity

#: Version of the JSON; keys are only ever added.
JSON_FORMAT_VERSION = 1
#: Address of the rules' pages.
RULE_PAGES = "https://bridgepack.readthedocs.io/rules/"

#: Counts of a report that its JSON has under the same names.
_COUNTS = (
    *("num_errors", "num_warnings", "num_advice"),
    *("num_shards", "num_shards_read", "num_rows", "num_sound_rows", "num_tokens"),
)
#: Reason of skipped rules -> text after their number.
_NEEDS = {
    NO_PACKS: "need packs: run `bridgepack build`, then check with --artifact FOLDER",
    NO_ENVIRONMENT: "need the environment: add --environment here",
}
_RESET, _BOLD, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
_COLOURS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m", Severity.ADVICE: "\x1b[1;36m"}


def rule_page(code: str) -> str:
    """Return the address of a rule's page."""
    return f"{RULE_PAGES}{code}/"


def render_text(
    report: CheckReport, *, has_colour: bool = False, shows_advice: bool = True, shows_skipped: bool = True
) -> str:
    """Return findings and a summary line, which counts advice and skipped rules that are not shown."""
    shown = [finding for finding in report.findings if shows_advice or finding.severity != Severity.ADVICE]
    blocks = [report.note] if report.note else []
    blocks += [_finding_text(finding, has_colour=has_colour) for finding in shown]
    if report.suppressed:
        blocks.append("\n".join(f"ignored {item.finding.code}: {item.reason}" for item in report.suppressed))
    if report.rules_skipped and shows_skipped:
        blocks.append(_skipped_text(report))
    if report.upgrade is not None:
        blocks.append(_upgrade_text(report.upgrade))
    blocks.append(_summary(report, hides_advice=not shows_advice, shows_skipped=shows_skipped))
    return "\n\n".join(blocks) + "\n"


def render_json(report: CheckReport) -> str:
    """Return `report_to_dict` as indented JSON."""
    return json.dumps(report_to_dict(report), indent=2, ensure_ascii=False, default=str) + "\n"


def report_to_dict(report: CheckReport) -> dict[str, Any]:
    """Return the report as plain values with stable keys."""
    return {
        "format_version": JSON_FORMAT_VERSION,
        "target": report.target,
        "versions": report.versions,
        "summary": {
            "num_suppressed": len(report.suppressed),
            "num_rules_run": len(report.rules_run),
            "num_rules_skipped": len(report.rules_skipped),
            **{name: getattr(report, name) for name in _COUNTS},
        },
        "findings": [finding_to_dict(finding) for finding in report.findings],
        "suppressed": [{**finding_to_dict(item.finding), "reason": item.reason} for item in report.suppressed],
        "rules_run": list(report.rules_run),
        "rules_skipped": [asdict(skipped) for skipped in report.rules_skipped],
        "rules_not_applicable": list(report.rules_not_applicable),
        "real_validate": None if report.host is None else {**asdict(report.host), "where": list(report.host.where)},
        "note": report.note,
        "upgrade": None
        if report.upgrade is None
        else {**asdict(report.upgrade), "changes": [asdict(change) for change in report.upgrade.changes]},
    }


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain values with stable keys."""
    values = asdict(finding)
    return {
        **values,
        "severity": str(finding.severity),
        "url": rule_page(finding.code),
        "changes": list(values["changes"]),
        "examples": list(finding.examples),
    }


def value_text(value: Any) -> str:
    """Return a setting's value as in YAML: `true`, `null`, 8, [1, 2]."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


_KINDS = {"finding": "finding", "renamed": "new name", "value": "value", "habit": "habit"}


def _upgrade_text(upgrade: Upgrade) -> str:
    """Return one line per change, with both releases: `  value    model.x: 1 -> 2`."""
    width = max(map(len, _KINDS.values()))
    return "\n".join([upgrade_head(upgrade), *(f"  {kind:{width}}  {text}" for kind, text in upgrade_lines(upgrade))])


def upgrade_head(upgrade: Upgrade) -> str:
    """Return the releases of an upgrade and the number of its changes."""
    number = counted(len(upgrade.changes), "change") + " for this run"
    changes = number if upgrade.changes else "nothing that is known changes for this run"
    return f"{upgrade.before} -> {upgrade.after}: {changes}"


def upgrade_lines(upgrade: Upgrade) -> list[tuple[str, str]]:
    """Return the kind of each change in a user's words, and what it changes: (`value`, `model.x: 1 -> 2`)."""
    return [(_KINDS[one.kind], f"{one.what}: {_sides(one)}") for one in upgrade.changes]


def _sides(change: UpgradeChange) -> str:
    if change.kind == "finding":
        return f"found from then on, {change.after}" if change.after else f"no longer found, {change.before}"
    return f"{change.before} -> {change.after}"


def caught_text(noticed: str) -> str:
    """Return who notices a violation, and when: `at bridgepack build`, `by Megatron-Bridge: first step`."""
    text = noticed.rstrip(".")
    if not text or text.startswith("bridgepack"):
        return f"at {text}" if text else ""
    first, comma, rest = text.partition(", ")
    if first.partition(";")[0] == "never":
        return f"never by Megatron-Bridge{first.removeprefix('never')}{comma}{rest}"
    return f"by Megatron-Bridge: {text}"


def _finding_text(finding: Finding, *, has_colour: bool) -> str:
    def painted(text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if has_colour else text

    line = f":{finding.line}" if finding.line else ""
    place = f"{finding.file}{line}: " if finding.file else ""
    details = {
        "found": finding.found,
        "allowed": finding.allowed,
        "why": finding.why,
        "caught": caught_text(finding.noticed),
        "fix": finding.fix,
        "--fix": "; ".join(map(_change_text, finding.changes)),
        "places": _places(finding) if finding.num_occurrences > 1 else "",
    }
    head = painted(f"{finding.severity}[{finding.code}]", _COLOURS[Severity(finding.severity)])
    lines = [f"{head}: {painted(finding.name, _BOLD)}", f"  --> {place}{finding.where}"]
    lines += [f"   {painted(f'{label:7}', _DIM)} {text}" for label, text in details.items() if text]
    return "\n".join(lines)


def _change_text(change: Change) -> str:
    repack = " (needs a re-pack)" if change.needs_repack else ""
    return f"{change.path} = {value_text(change.value)}{repack}"


def _places(finding: Finding) -> str:
    num_more = finding.num_occurrences - len(finding.examples)
    more = f"; and {num_more:,} more" if num_more > 0 else ""
    return f"{finding.num_occurrences:,} in all: {'; '.join(finding.examples)}{more}"


def _skipped_text(report: CheckReport) -> str:
    by_reason = defaultdict(list)
    for skipped in report.rules_skipped:
        by_reason[skipped.reason].append(skipped.code)
    return "\n".join(f"skipped {', '.join(codes)}: {reason}" for reason, codes in by_reason.items())


def _unjudged_text(report: CheckReport, *, names_all: bool) -> str:
    if names_all and report.rules_skipped:
        return f"{len(report.rules_skipped)} skipped"
    reasons = Counter(skipped.reason for skipped in report.rules_skipped)
    parts = [f"{number} {_NEEDS[reason]}" for reason, number in reasons.items() if reason in _NEEDS]
    num_others = sum(number for reason, number in reasons.items() if reason not in _NEEDS)
    if num_others:
        parts.append(f"{num_others} skipped (--skipped says why)")
    return "; ".join(parts)


def _summary(report: CheckReport, *, hides_advice: bool, shows_skipped: bool) -> str:
    counts = ((report.num_errors, "error"), (report.num_warnings, "warning"))
    parts = [counted(count, noun) for count, noun in counts if count]
    if report.num_advice:
        advice = counted(report.num_advice, "piece") + " of advice"
        parts.append(f"{advice} (--advice shows it)" if hides_advice else advice)
    if report.suppressed:
        parts.append(f"{len(report.suppressed)} ignored")
    num_fixable = sum(bool(finding.changes) for finding in report.findings if finding.severity != Severity.ADVICE)
    if num_fixable:
        parts.append(f"{num_fixable} fixable with --fix")
    rules = f"{counted(len(report.rules_run), 'rule')} {'run' if report.findings else 'passed'}"
    text = "; ".join(
        filter(None, (", ".join(parts) or "no findings", rules, _unjudged_text(report, names_all=shows_skipped)))
    )
    if report.rules_not_applicable:
        text += f", {len(report.rules_not_applicable)} for other versions"
    if report.num_shards:
        shards = f"{report.num_shards_read} of {counted(report.num_shards, 'shard')}"
        text += f"; {counted(report.num_rows, 'pack')} ({counted(report.num_tokens, 'token')}) read from {shards}"
    lines = [text, f"checked for {report.versions}" if report.versions else "", report.host.text if report.host else ""]
    return "\n".join(filter(None, lines))
