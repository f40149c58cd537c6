"""A check's report as SARIF 2.1.0, and as workflow commands of GitHub Actions."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bridgepack import __version__
from bridgepack.records import Finding
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.rule import Rule
from bridgepack.rules.engine.text import rule_page

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: Severity -> level of SARIF, command of GitHub.
_LEVELS = {"error": ("error", "error"), "warning": ("warning", "warning"), "advice": ("note", "notice")}


def render_sarif(report: CheckReport, rules: Sequence[Rule]) -> str:
    """Return the report as a SARIF 2.1.0 log with one run; `rules` are those that findings may be of."""
    results = [_result(finding, report.target_path) for finding in report.findings]
    for item in report.suppressed:
        suppression = {"kind": "inSource", "justification": item.reason}
        results.append({**_result(item.finding, report.target_path), "suppressions": [suppression]})
    codes = {result["ruleId"] for result in results}
    driver = {
        "name": "bridgepack",
        "version": __version__,
        "informationUri": rule_page("").removesuffix("rules//"),
        "rules": [_rule(rule) for rule in rules if rule.code in codes],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=2, ensure_ascii=False, default=str) + "\n"


def render_github(report: CheckReport) -> str:
    """Return the report as workflow commands, one line per finding, and a summary line.

    Source: GitHub's documentation, "Workflow commands for GitHub Actions".
    """
    lines = [_command(finding) for finding in report.findings]
    lines.append(f"bridgepack: {report.num_errors} errors, {report.num_warnings} warnings in {report.target}")
    return "\n".join(lines) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "helpUri": rule_page(rule.code),
        "defaultConfiguration": {"level": _LEVELS[rule.severity][0]},
        "properties": {"source": rule.source, "noticed": rule.noticed},
    }


def _result(finding: Finding, target_path: str) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": finding.where}]}
    path = finding.file or target_path
    if path:
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(path)}}
        if finding.line is not None:
            location["physicalLocation"]["region"] = {"startLine": finding.line}
    return {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity][0],
        "message": {"text": _message(finding)},
        "locations": [location],
        "occurrenceCount": finding.num_occurrences,
        "properties": {
            "found": finding.found,
            "allowed": finding.allowed,
            "changes": [{"path": change.path, "value": change.value} for change in finding.changes],
        },
    }


def _uri(path: str) -> str:
    """Return a path as a URI, `file:` for an absolute one, else relative to where the check ran."""
    return Path(path).as_uri() if Path(path).is_absolute() else quote(os.fsencode(path))


def _message(finding: Finding) -> str:
    return f"{finding.where}: {finding.found}; allowed: {finding.allowed}. {finding.why} {finding.fix}"


def _command(finding: Finding) -> str:
    place = f"file={_property(finding.file)}," if finding.file else ""
    place += f"line={finding.line}," if finding.file and finding.line else ""
    title = _property(f"{finding.code} {finding.name}")
    return f"::{_LEVELS[finding.severity][1]} {place}title={title}::{_data(_message(finding))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
