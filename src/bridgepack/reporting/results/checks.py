"""The blocks of a check's report."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from bridgepack.checking.fix import Fixed
from bridgepack.checking.written_report import WrittenReport
from bridgepack.records import Upgrade, UpgradeChange
from bridgepack.records.words import count_text, value_text
from bridgepack.reporting.blocks import Block, Column, Figure, Findings, Line, Section, Table, Verdict
from bridgepack.reporting.results import shows
from bridgepack.rules.judging.context import NO_ENVIRONMENT, NO_PACKS
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity

#: Reason of skipped rules -> text after their number.
_NEEDS = {
    NO_PACKS: "need packs: run `bridgepack build`, then check with --artifact FOLDER",
    NO_ENVIRONMENT: "need the environment: add --environment here",
}
_KINDS = {"finding": "finding", "renamed": "new name", "value": "value", "habit": "habit"}


@shows
def check_blocks(report: CheckReport, *, shows_advice: bool = True, shows_skipped: bool = False) -> Iterator[Block]:
    """Yield the findings, what was ignored or skipped, and a summary that counts what is not shown."""
    if report.note:
        yield Section("", (Line(report.note),))
    yield Findings(
        tuple(finding for finding in report.findings if shows_advice or finding.severity != Severity.ADVICE),
    )
    if report.suppressed:
        yield Section("", tuple(Line(f"ignored {item.finding.code}: {item.reason}") for item in report.suppressed))
    if report.rules_skipped and shows_skipped:
        yield Section("", tuple(_skipped_lines(report)))
    if report.upgrade is not None:
        yield Section("", (Line(upgrade_title(report.upgrade)), *upgrade_table(report.upgrade)))
    yield _verdict(report, hides_advice=not shows_advice, shows_skipped=shows_skipped)


@shows
def written_report_blocks(outcome: WrittenReport) -> Iterator[Block]:
    """Yield the files that were written, then the check."""
    yield from (Line(f"wrote {path}") for path in outcome.files.values() if path is not None)
    if outcome.num_doubted:
        text = f"loss masks in doubt: {outcome.num_doubted:,} of the sample; `bridgepack prove masks` shows them"
        yield Line(text)
    yield from check_blocks(outcome.report)


def upgrade_title(upgrade: Upgrade) -> str:
    """Return the releases of an upgrade, and how much it changes for the run."""
    number = count_text(len(upgrade.changes), "change") + " for this run"
    changes = number if upgrade.changes else "nothing that is known changes for this run"
    return f"{upgrade.before} -> {upgrade.after}: {changes}"


def upgrade_table(upgrade: Upgrade) -> Iterator[Block]:
    """Yield a table of the changes, if there are any: the kind of each, and what it changes for the run."""
    width = max(map(len, _KINDS.values()))
    columns = (Column("Kind", f"{{:{width}}}"), Column("Change", "  {}"))
    rows = [(_KINDS[change.kind], f"{change.what}: {_sides(change)}") for change in upgrade.changes]
    if rows:
        yield Table(title="Changes of the upgrade", columns=columns, rows=rows)


def _sides(change: UpgradeChange) -> str:
    if change.kind == "finding":
        return f"found from then on, {change.after}" if change.after else f"no longer found, {change.before}"
    return f"{change.before} -> {change.after}"


def _skipped_lines(report: CheckReport) -> Iterator[Line]:
    by_reason = defaultdict(list)
    for rule in report.rules_skipped:
        by_reason[rule.reason].append(rule.code)
    yield from (Line(f"skipped {', '.join(codes)}: {reason}") for reason, codes in by_reason.items())


def _verdict(report: CheckReport, *, hides_advice: bool, shows_skipped: bool) -> Verdict:
    details = (f"checked for {report.versions}" if report.versions else "", report.host.text if report.host else "")
    figures = {
        "errors": report.num_errors,
        "warnings": report.num_warnings,
        "advice": report.num_advice,
        "rules that ran": len(report.rules_run),
        "rules that need more": len(report.rules_skipped),
    }
    return Verdict(
        text=_summary(report, hides_advice=hides_advice, shows_skipped=shows_skipped),
        details=tuple(filter(None, details)),
        tone="bad" if report.num_errors else "warn" if report.num_warnings else "good",
        figures=tuple(Figure(name=name, value=f"{number:,}") for name, number in figures.items()),
    )


def _unjudged_text(report: CheckReport, *, names_all: bool) -> str:
    if names_all and report.rules_skipped:
        return f"{len(report.rules_skipped)} skipped"
    reasons = Counter(rule.reason for rule in report.rules_skipped)
    parts = [f"{number} {_NEEDS[reason]}" for reason, number in reasons.items() if reason in _NEEDS]
    num_others = sum(number for reason, number in reasons.items() if reason not in _NEEDS)
    if num_others:
        parts.append(f"{num_others} skipped (--skipped says why)")
    return "; ".join(parts)


def _summary(report: CheckReport, *, hides_advice: bool, shows_skipped: bool) -> str:
    counts = ((report.num_errors, "error"), (report.num_warnings, "warning"))
    parts = [count_text(count, noun) for count, noun in counts if count]
    if report.num_advice:
        advice = count_text(report.num_advice, "piece") + " of advice"
        parts.append(f"{advice} (--advice shows it)" if hides_advice else advice)
    if report.suppressed:
        parts.append(f"{len(report.suppressed)} ignored")
    num_fixable = sum(bool(finding.changes) for finding in report.findings if finding.severity != Severity.ADVICE)
    if num_fixable:
        parts.append(f"{num_fixable} fixable with --fix")
    rules = f"{count_text(len(report.rules_run), 'rule')} {'run' if report.findings else 'passed'}"
    text = "; ".join(
        filter(None, (", ".join(parts) or "no findings", rules, _unjudged_text(report, names_all=shows_skipped)))
    )
    if report.rules_not_applicable:
        text += f", {len(report.rules_not_applicable)} for other versions"
    if report.num_shards:
        shards = f"{report.num_shards_read} of {count_text(report.num_shards, 'shard')}"
        text += f"; {count_text(report.num_rows, 'pack')} ({count_text(report.num_tokens, 'token')}) read from {shards}"
    return text


def counts_and_codes(report: CheckReport) -> str:
    """Return the numbers of findings with their codes and names: `errors: 1 (BP004 micro-batch-size-not-one)`."""
    titles = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.ADVICE: "advice"}
    parts = []
    for severity, title in titles.items():
        findings = [finding for finding in report.findings if finding.severity == severity]
        names = ", ".join(dict.fromkeys(f"{finding.code} {finding.name}" for finding in findings))
        if findings or severity != Severity.ADVICE:
            parts.append(f"{title}: {len(findings):,}{f' ({names})' if findings else ''}")
    return ", ".join(parts)


def fix_blocks(outcome: Fixed) -> Iterator[Block]:
    """Yield a line per change, one per change not made, and the command for a re-pack."""
    lines = [f"fixed {change.path} = {value_text(change.value)}: {change.why}" for change in outcome.changes]
    lines += [f"not fixed: {reason}" for reason in outcome.by_hand]
    if outcome.needs_repack:
        how = f": {outcome.build_command}" if outcome.build_command else ""
        lines.append(f"packs that exist already must be built again{how}")
    yield from map(Line, lines or [_no_fix(outcome)])


def diff_blocks(outcome: Fixed) -> Iterator[Block]:
    """Yield a line per change that the diff does not contain, or that there is nothing to change."""
    lines = [f"not in the diff: {reason}" for reason in outcome.by_hand]
    if outcome.edit is None and not lines:
        lines.append(_no_fix(outcome))
    yield from map(Line, lines)


def _no_fix(outcome: Fixed) -> str:
    is_clean = not (outcome.report.has_errors or outcome.report.num_warnings)
    return "nothing to fix" if is_clean else "no finding has a fix that can be made in the file"
