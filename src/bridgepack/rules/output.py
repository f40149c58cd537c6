"""A check's report as text for people and as JSON for machines."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from bridgepack.records import Finding
from bridgepack.rules.report import CheckReport
from bridgepack.rules.rule import Severity

#: Version of the JSON; keys are only ever added.
JSON_FORMAT_VERSION = 1

_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_DIM = "\x1b[2m"
_COLOURS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m"}


def render_text(report: CheckReport, *, has_colour: bool = False) -> str:
    """Return findings, skipped rules and a summary line; ANSI colours only when asked."""
    blocks = [_finding_text(finding, has_colour=has_colour) for finding in report.findings]
    if report.rules_skipped:
        blocks.append(_skipped_text(report))
    blocks.append(_summary(report))
    return "\n\n".join(blocks) + "\n"


def render_json(report: CheckReport) -> str:
    """Return `report_to_dict` as indented JSON."""
    return json.dumps(report_to_dict(report), indent=2, ensure_ascii=False) + "\n"


def report_to_dict(report: CheckReport) -> dict[str, Any]:
    """Return the report as plain values with stable keys."""
    return {
        "format_version": JSON_FORMAT_VERSION,
        "summary": {
            "num_errors": report.num_errors,
            "num_warnings": report.num_warnings,
            "num_rules_run": len(report.rules_run),
            "num_rules_skipped": len(report.rules_skipped),
            "num_shards": report.num_shards,
            "num_shards_read": report.num_shards_read,
            "num_rows": report.num_rows,
            "num_sound_rows": report.num_sound_rows,
            "num_tokens": report.num_tokens,
        },
        "findings": [_finding_to_dict(finding) for finding in report.findings],
        "rules_run": list(report.rules_run),
        "rules_skipped": [
            {"code": skipped.code, "name": skipped.name, "reason": skipped.reason} for skipped in report.rules_skipped
        ],
    }


def _finding_to_dict(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "where": finding.where,
        "found": finding.found,
        "allowed": finding.allowed,
        "why": finding.why,
        "fix": finding.fix,
        "num_occurrences": finding.num_occurrences,
        "examples": list(finding.examples),
    }


def _finding_text(finding: Finding, *, has_colour: bool) -> str:
    head = _painted(f"{finding.severity}[{finding.code}]", _COLOURS[Severity(finding.severity)], has_colour)
    lines = [
        f"{head}: {_painted(finding.name, _BOLD, has_colour)}",
        f"  --> {finding.where}",
        *(
            f"   {_painted(label, _DIM, has_colour)} {text}"
            for label, text in (
                ("found  ", finding.found),
                ("allowed", finding.allowed),
                ("why    ", finding.why),
                ("fix    ", finding.fix),
            )
        ),
    ]
    if finding.num_occurrences > 1:
        lines.append(f"   {_painted('places ', _DIM, has_colour)} {_places(finding)}")
    return "\n".join(lines)


def _places(finding: Finding) -> str:
    num_more = finding.num_occurrences - len(finding.examples)
    more = f"; and {num_more:,} more" if num_more > 0 else ""
    return f"{finding.num_occurrences:,} in all: {'; '.join(finding.examples)}{more}"


def _skipped_text(report: CheckReport) -> str:
    by_reason = defaultdict(list)
    for skipped in report.rules_skipped:
        by_reason[skipped.reason].append(skipped.code)
    return "\n".join(f"skipped {', '.join(codes)}: {reason}" for reason, codes in by_reason.items())


def _summary(report: CheckReport) -> str:
    outcome = ", ".join(
        _counted(count, noun)
        for count, noun in ((report.num_errors, "error"), (report.num_warnings, "warning"))
        if count
    )
    rules = f"{_counted(len(report.rules_run), 'rule')} run, {len(report.rules_skipped)} skipped"
    shards = f"{report.num_shards_read} of {_counted(report.num_shards, 'shard')}"
    rows = f"{_counted(report.num_rows, 'row')} ({_counted(report.num_tokens, 'token')})"
    return f"{outcome or 'no findings'}; {rules}; {rows} read from {shards}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _painted(text: str, colour: str, has_colour: bool) -> str:
    return f"{colour}{text}{_RESET}" if has_colour else text
