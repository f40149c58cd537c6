"""Renders a check's report or the error that prevents it, the result of fixing, and the rules themselves."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bridgepack.bridge.locations import line_of
from bridgepack.config.errors import nearest_name
from bridgepack.errors import ConfigError, Problem
from bridgepack.host import TARGET
from bridgepack.records.words import counted
from bridgepack.reporting.text import printable, terminal_width
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Rule, Severity
from bridgepack.rules.judging.sarif import (
    github_command,
    render_github,
    render_gitlab,
    render_gitlab_failure,
    render_sarif,
    render_sarif_failure,
)
from bridgepack.rules.judging.text import caught_text, render_json, render_text, rule_page, value_text
from bridgepack.rules.registry import ALL_RULES, group_of

if TYPE_CHECKING:
    from bridgepack.checking.fix import Fixed


#: Used in place of a rule's code.
CANNOT_BE_READ = "cannot-be-read"


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


def _locate(problem: Problem, file: str) -> Problem:
    if not problem.file:
        return replace(problem, file=file)
    if problem.line is not None:
        return problem
    return replace(problem, line=line_of(Path(problem.file), [problem.field]) or 1)


def rendered_failure(error: BaseException, form: str, target: str) -> str:
    """Return why a target cannot be checked as `json`, `sarif`, `github` or `gitlab`."""
    problems = problems_of(error, target)
    placed = [replace(one, file=one.file or target) for one in problems]  # viewers drop a result without a place
    if form == "sarif":
        return render_sarif_failure(CANNOT_BE_READ, placed)
    if form == "gitlab":
        return render_gitlab_failure(CANNOT_BE_READ, placed)
    if form == "github":
        lines = [github_command("error", CANNOT_BE_READ, one.message, one.file, one.line) for one in problems]
        return "\n".join(lines) + "\n"
    return json.dumps(failure_to_dict(error, str(error), 2), indent=2, ensure_ascii=False) + "\n"


def render_report(
    report: CheckReport,
    form: str = "text",
    *,
    has_colour: bool = False,
    shows_advice: bool = False,
    shows_skipped: bool = False,
) -> str:
    """Return a report as `text`, `json`, `sarif`, `github` or `gitlab`."""
    if form == "json":
        return render_json(report)
    if form == "sarif":
        return render_sarif(report, ALL_RULES)
    if form == "github":
        return render_github(report)
    if form == "gitlab":
        return render_gitlab([replace(one, file=one.file or report.target_path) for one in report.findings])
    return render_text(
        _printable(report), has_colour=has_colour, shows_advice=shows_advice, shows_skipped=shows_skipped
    )


def counts_and_codes(report: CheckReport) -> str:
    """Return the numbers of findings with their codes and names: `errors: 1 (BP004 micro-batch-size-not-one)`."""
    titles = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.ADVICE: "advice"}
    parts = []
    for severity, title in titles.items():
        found = [finding for finding in report.findings if finding.severity == severity]
        names = ", ".join(dict.fromkeys(f"{finding.code} {finding.name}" for finding in found))
        if found or severity != Severity.ADVICE:
            parts.append(f"{title}: {len(found):,}{f' ({names})' if found else ''}")
    return ", ".join(parts)


def check_report_path(path: Path | None, target: str, environment: str | None) -> None:
    """Check that a report's path is not one of the files that the check reads.

    Raises:
        ConfigError: it is one of them, and would be overwritten.
    """
    for name in (target, target.rpartition(":")[0], environment):
        if path is not None and name and os.path.exists(path) and os.path.exists(name) and path.samefile(name):  # noqa: PTH110
            raise ConfigError(f"--output is {str(path)!r}, which this command reads. Choose another.")


@contextmanager
def staged_report(path: Path | None, text: str, *, option: str = "--output") -> Iterator[None]:
    """Write a report to its path after the body has succeeded; check first that the path is writable.

    Nothing is written if the path is None; a device or a pipe is written to directly.

    Raises:
        ConfigError: the path cannot be written.
    """
    if path is None:
        yield
        return
    with ExitStack() as cleaning:
        with _explain_failure(path, option):
            is_special = path.exists() and not path.is_file() and not path.is_dir()
            temporary = None if is_special else _stage(path.resolve(), text, cleaning)
        yield
        with _explain_failure(path, option):
            if temporary is None:
                path.write_text(text, encoding="utf-8", errors="backslashreplace")
            else:
                temporary.replace(path.resolve())


def _stage(path: Path, text: str, cleaning: ExitStack) -> Path:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    cleaning.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    return Path(name)


@contextmanager
def _explain_failure(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # the latter for a link that leads to itself
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} is {str(path)!r}; it cannot be written: {reason}. Choose another.") from None


def describe_fix(outcome: Fixed) -> str:
    """Return one line per change, one per change not made, and the command for a re-pack."""
    lines = [f"fixed {change.path} = {value_text(change.value)}: {change.why}" for change in outcome.changes]
    lines += [f"not fixed: {reason}" for reason in outcome.by_hand]
    if outcome.needs_repack:
        how = f": {outcome.build_command}" if outcome.build_command else ""
        lines.append(f"packs that exist already must be built again{how}")
    return "\n".join(lines or [_no_fix(outcome)]) + "\n"


def describe_diff(outcome: Fixed) -> str:
    """Return one line per change that the diff does not contain, or that there is nothing to change."""
    lines = [f"not in the diff: {reason}" for reason in outcome.by_hand]
    if outcome.edit is None and not lines:
        lines.append(_no_fix(outcome))
    return "".join(f"{line}\n" for line in lines)


def _no_fix(outcome: Fixed) -> str:
    is_clean = not (outcome.report.has_errors or outcome.report.num_warnings)
    return "nothing to fix" if is_clean else "no finding has a fix that can be made in the file"


def _printable(report: CheckReport) -> CheckReport:
    findings = []
    for finding in report.findings:
        names = ("where", "file", "found", "allowed", "fix")
        texts: Any = {name: printable(getattr(finding, name)) for name in names}
        findings.append(replace(finding, **texts, examples=tuple(map(printable, finding.examples))))
    suppressed = tuple(replace(item, reason=printable(item.reason)) for item in report.suppressed)
    skipped = tuple(replace(rule, reason=printable(rule.reason)) for rule in report.rules_skipped)
    return replace(report, findings=tuple(findings), suppressed=suppressed, rules_skipped=skipped)


#: Addresses of the files of `megatron/bridge` and `megatron/core`.
_REPOSITORIES = MappingProxyType(
    {"bridge": "https://github.com/NVIDIA-NeMo/Megatron-Bridge", "core": "https://github.com/NVIDIA/Megatron-LM"}
)
#: A version of megatron-bridge that a source names, or a file of the host with the first line that is meant.
_PLACES = re.compile(r"megatron-bridge (\d[\d.]*\d)|(megatron/(bridge|core)/[\w/]+\.py)(?::(\d+))?")


def named_rule(name: str) -> Rule:
    """Return the rule with a code or a name.

    Raises:
        ConfigError: there is no such rule.
    """
    wanted = name.upper() if name.upper().startswith("BP") else name.lower()
    for rule in ALL_RULES:
        if wanted in (rule.code, rule.name):
            return rule
    nearest = nearest_name(wanted, [known for rule in ALL_RULES for known in (rule.code, rule.name)])
    hint = f" Did you mean {nearest}?" if nearest else ""
    raise ConfigError(
        f"rule is {name!r}; no rule has that code, that name or these words.{hint} `bridgepack rules` lists all."
    )


def rules_of_group(code: str) -> list[Rule]:
    """Return the rules whose codes begin with a partial code, e.g. `BP1`; empty for a full code or a name."""
    wanted = code.upper()
    is_beginning = wanted.startswith("BP") and wanted[2:].isdecimal()
    return [rule for rule in ALL_RULES if is_beginning and rule.code.startswith(wanted) and rule.code != wanted]


def explain_rule(rule: str) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a rule as plain values, or all rules whose codes begin with `rule`.

    Raises:
        ConfigError: there is no such rule.
    """
    group = list(ALL_RULES) if rule.upper() == "BP" else rules_of_group(rule)
    is_named = any(rule.lower() in (one.code.lower(), one.name) for one in ALL_RULES)
    found = group if group or is_named else rules_about(rule)
    return [rule_to_dict(one) for one in found] if found else rule_to_dict(named_rule(rule))


def rules_about(text: str) -> list[Rule]:
    """Return the rules whose name, summary, reason or fix has every word of a text."""
    words = text.lower().replace("-", " ").split()
    about = {one.code: f"{one.name} {one.summary} {one.why} {one.fix}".lower().replace("-", " ") for one in ALL_RULES}
    return [one for one in ALL_RULES if words and all(word in about[one.code] for word in words)]


def rules_table(rules: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per rule, as `rule_to_dict` gives it, under the titles of their groups."""
    lines: list[str] = []
    for rule in rules:
        title = rule["group"]
        if f"{title}:" not in lines:
            lines += ["", f"{title}:"] if lines else [f"{title}:"]
        lines.append(f"  {rule['code']}  {rule['severity']:<8}  {rule['name']}")
    return "\n".join([*lines, "", f"{counted(len(rules), 'rule')}; `bridgepack explain CODE` explains one"])


def describe_rule(rule: Mapping[str, Any]) -> str:
    """Return the full text of a rule, as `rule_to_dict` gives it, wrapped for a terminal."""
    parts = {
        "Why": rule["why"],
        "Bad": rule["bad"],
        "Good": rule["good"],
        "Fix": rule["fix"],
        "Caught": caught_text(rule["noticed"]),
        "Evidence": rule["evidence"],
        "Versions": _versions(rule["versions"]),
        "Source": rule["source"],
    }
    head = f"{rule['code']} {rule['name']} ({rule['severity']}; judges {rule['judges']})"
    lines = [head, "", *_wrap(rule["summary"], ""), ""]
    for title, text in parts.items():
        lines += _wrap(text, f"{title + ':':<10}") if text else []
    links = [*rule["links"], rule["url"]]  # each whole on its own line, so that a terminal and a pipe keep it
    return "\n".join([*lines, *(f"{'Links:' if not number else '':<10}{link}" for number, link in enumerate(links))])


def source_links(source: str) -> list[str]:
    """Return links to the lines of Megatron-Bridge and Megatron-Core that a source names, at their versions."""
    links = []
    version = TARGET.bridge
    for named, path, room, line in _PLACES.findall(source):
        version = named or version
        tag = f"v{version}/src" if room == "bridge" else f"core_v{TARGET.core}"
        if path:
            links.append(f"{_REPOSITORIES[room]}/blob/{tag}/{path}" + (f"#L{line}" if line else ""))
    return links


def versions_text(rule: Rule) -> str:
    """Return the versions that a rule applies to, as text."""
    return _versions(rule.versions)


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {specifier}" for name, specifier in versions.items()) or "all"


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """Return a rule as plain values with stable keys."""
    names = ("code", "name", "severity", "summary", "why", "bad", "good", "fix", "noticed", "evidence", "source")
    return {
        **{name: str(getattr(rule, name)) for name in names},
        "judges": rule.judges,
        "group": group_of(rule.code),
        "versions": dict(rule.versions),
        "catalogue": list(rule.catalogue_ids),
        "links": source_links(rule.source),
        "url": rule_page(rule.code),
    }


def _wrap(text: str, label: str) -> list[str]:
    return textwrap.wrap(
        text,
        terminal_width(),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        break_long_words=False,
    )
