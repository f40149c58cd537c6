"""A check's report, or why there is none, as text, JSON, SARIF 2.1.0, GitHub commands and GitLab Code Quality."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bridgepack import __version__
from bridgepack.bridge.locations import SETTINGS_SUFFIXES, line_of
from bridgepack.errors import Problem, text_of_mistakes
from bridgepack.records import Finding, HostVerdict
from bridgepack.records.words import count_text
from bridgepack.reporting.results.checks import check_blocks
from bridgepack.reporting.screen import screen
from bridgepack.reporting.text import json_text, printable
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Rule, rule_page
from bridgepack.rules.registry import ALL_RULES

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: Severity -> (SARIF level, GitHub command).
_LEVELS = {"error": ("error", "error"), "warning": ("warning", "warning"), "advice": ("note", "notice")}
#: Severity -> GitLab severity.
_GITLAB = {"error": "major", "warning": "minor", "advice": "info"}
#: In place of a rule's code, where the target cannot be read.
CANNOT_BE_READ = "cannot-be-read"


def render_report(
    report: CheckReport,
    output_format: str = "text",
    *,
    has_colour: bool = False,
    shows_advice: bool = False,
    shows_skipped: bool = False,
) -> str:
    """Return a report as `text`, `json`, `sarif`, `github` or `gitlab`."""
    if output_format == "json":
        return json_text(report.to_dict()) + "\n"
    if output_format == "sarif":
        return render_sarif(report, ALL_RULES)
    if output_format == "github":
        return render_github(report)
    if output_format == "gitlab":
        return render_gitlab([replace(finding, file=finding.file or report.target_path) for finding in report.findings])
    blocks = [*check_blocks(report, shows_advice=shows_advice, shows_skipped=shows_skipped)]
    return screen(blocks, has_colour=has_colour) + "\n"


def failure_to_dict(error: BaseException, message: str, exit_code: int) -> dict[str, Any]:
    """Return an error as plain values: `kind`, `message`, `problems` with field, file and line, `exit_code`."""
    problems = [asdict(problem) for problem in problems_of(error)]
    kind = type(error).__name__
    return {"error": {"kind": kind, "message": message, "problems": problems, "exit_code": exit_code}}


def problems_of(error: BaseException, target: str = "") -> tuple[Problem, ...]:
    """Return the problems of an error with file and line; problems without a file get `target` if it is a file."""
    file = next((place for place in (target, target.rpartition(":")[0]) if os.path.isfile(place)), "")  # noqa: PTH113
    problems = getattr(error, "problems", ()) or (Problem(message=str(error)),)
    return tuple(_locate(problem, file) for problem in problems)


def text_with_lines(error: BaseException) -> str:
    """Return the text of an error, each problem of a file after the file and its line there."""
    text, problems = str(error), problems_of(error)
    is_told_by_problems = text == text_of_mistakes([problem.message for problem in problems])
    return text_of_mistakes([_with_place(problem) for problem in problems]) if is_told_by_problems else text


def _with_place(problem: Problem) -> str:
    line = "" if problem.line is None else f":{problem.line}"
    is_said = line == "" and problem.file in problem.message
    return f"{problem.file}{line}: {problem.message}" if problem.file and not is_said else problem.message


def _locate(problem: Problem, file: str) -> Problem:
    if not problem.file:
        return replace(problem, file=file)
    path = Path(problem.file)
    if problem.line is not None or path.suffix.lower() not in SETTINGS_SUFFIXES:
        return problem
    return replace(problem, line=line_of(path, [problem.field]) or 1)


def rendered_failure(error: BaseException, output_format: str, target: str) -> str:
    """Return why a target cannot be checked as `json`, `sarif`, `github` or `gitlab`."""
    problems = problems_of(error, target)
    with_files = [
        replace(problem, file=problem.file or target) for problem in problems
    ]  # viewers drop a result without a place
    if output_format == "sarif":
        return render_sarif_failure(CANNOT_BE_READ, with_files)
    if output_format == "gitlab":
        return render_gitlab_failure(CANNOT_BE_READ, with_files)
    if output_format == "github":
        lines = [
            github_command("error", CANNOT_BE_READ, problem.message, problem.file, problem.line) for problem in problems
        ]
        return "\n".join(lines) + "\n"
    return json_text(failure_to_dict(error, str(error), 2)) + "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """An entry of a Code Quality report."""

    code: str  #: of the rule, or of the failure
    severity: str  #: in GitLab's words
    text: str
    file: str  #: empty if the finding has no file
    line: int | None
    where: str  #: setting or place, shown where there is no file


def render_sarif(report: CheckReport, rules: Sequence[Rule]) -> str:
    """Return the report as a SARIF 2.1.0 log with one run; `rules` are the rules of its findings."""
    results = [_result(finding, report.target_path) for finding in report.findings]
    for item in report.suppressed:
        suppression = {"kind": "inSource", "justification": item.reason}
        results.append({**_result(item.finding, report.target_path), "suppressions": [suppression]})
    codes = {result["ruleId"] for result in results}
    invocations = {} if report.host is None else {"invocations": [_invocation(report.host)]}
    return _log(results, [_rule(rule) for rule in rules if rule.code in codes], **invocations)


def render_sarif_failure(code: str, problems: Sequence[Problem]) -> str:
    """Return the problems of a check that could not run as a SARIF 2.1.0 log; `code` is the rule id of each."""
    results = [
        {
            "ruleId": code,
            "level": "error",
            "message": {"text": problem.message},
            "locations": [_location(problem.field or problem.file, problem.file, problem.line)],
        }
        for problem in problems
    ]
    rule = {"id": code, "name": code, "shortDescription": {"text": "The check's input cannot be read."}}
    return _log(results, [rule], invocations=[{"executionSuccessful": False, "exitCode": 2}])


def _invocation(verdict: HostVerdict) -> dict[str, Any]:
    """Return what the host itself says, as a notification of the tool."""
    level = "note" if verdict.is_judged else "warning"
    notification = {"level": level, "message": {"text": verdict.text}, "properties": {"state": verdict.state}}
    return {"executionSuccessful": True, "toolExecutionNotifications": [notification]}


def _log(results: list[dict[str, Any]], rules: list[dict[str, Any]], **run: Any) -> str:
    driver = {
        "name": "bridgepack",
        "version": __version__,
        "informationUri": rule_page("").removesuffix("rules//"),
        "rules": rules,
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results, **run}]}
    return json_text(log) + "\n"


def render_gitlab(findings: Sequence[Finding]) -> str:
    """Return findings as a Code Quality report.

    Source: GitLab's documentation, "Code Quality", section "Code Quality report format".
    """
    return _code_quality(
        _Entry(
            code=finding.code,
            severity=_GITLAB[finding.severity],
            text=_message(finding),
            file=finding.file,
            line=finding.line,
            where=finding.where,
        )
        for finding in findings
    )


def render_gitlab_failure(code: str, problems: Sequence[Problem]) -> str:
    """Return the problems of a check that could not run as a Code Quality report."""
    return _code_quality(
        _Entry(
            code=code,
            severity="blocker",
            text=problem.message,
            file=problem.file,
            line=problem.line,
            where=problem.field or problem.message,
        )
        for problem in problems
    )


def _code_quality(entries: Iterable[_Entry]) -> str:
    values = [
        {
            "description": entry.text,
            "check_name": entry.code,
            "fingerprint": hashlib.sha256(f"{entry.code}\0{entry.file}\0{entry.where}".encode()).hexdigest(),
            "severity": entry.severity,
            "location": {"path": entry.file or entry.where, "lines": {"begin": entry.line or 1}},
        }
        for entry in entries
    ]
    return json_text(values) + "\n"


def render_github(report: CheckReport) -> str:
    """Return the report as workflow commands, one line per finding, and a summary line.

    Source: GitHub's documentation, "Workflow commands for GitHub Actions".
    """
    lines = [
        github_command(
            _LEVELS[finding.severity][1],
            f"{finding.code} {finding.name}",
            _message(finding),
            finding.file,
            finding.line,
        )
        for finding in report.findings
    ]
    if report.host is not None and not report.host.is_judged:
        lines.append(github_command("notice", "real-validate", report.host.text, "", None))
    elif report.host is not None:
        lines.append(report.host.text)
    errors, warnings = count_text(report.num_errors, "error"), count_text(report.num_warnings, "warning")
    lines.append(f"bridgepack: {errors}, {warnings} in {report.target}")
    return printable("\n".join(lines)) + "\n"


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
    return {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity][0],
        "message": {"text": _message(finding)},
        "locations": [_location(finding.where, finding.file or target_path, finding.line)],
        "occurrenceCount": finding.num_occurrences,
        "properties": {
            "found": finding.found,
            "allowed": finding.allowed,
            "changes": [{"path": change.path, "value": change.value} for change in finding.changes],
        },
    }


def _location(where: str, path: str, line: int | None) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": where}]} if where else {}
    if path:
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(path)}}
        if line is not None:
            location["physicalLocation"]["region"] = {"startLine": line}
    return location


def _uri(path: str) -> str:
    """Return a path as a URI: `file:` for an absolute path, else relative to the working folder."""
    return Path(path).as_uri() if Path(path).is_absolute() else quote(os.fsencode(path))


def _message(finding: Finding) -> str:
    return f"{finding.where}: {finding.found}; allowed: {finding.allowed}. {finding.why} {finding.fix}"


def github_command(level: str, title: str, text: str, file: str, line: int | None) -> str:
    """Return one annotation: `error`, `warning` or `notice`, its title and its text, at a file's line if known."""
    place = f"file={_property(file)}," if file else ""
    place += f"line={line}," if file and line else ""
    return f"::{level} {place}title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
