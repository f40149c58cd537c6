"""Renders comparisons of trained with served answers as text for a terminal."""

from collections.abc import Iterator, Mapping

from bridgepack.proof.served.records import ServedFinding, ServedReport
from bridgepack.records import ServedKind, ServedRecord
from bridgepack.records.words import counted
from bridgepack.reporting.text import printable

#: Kind -> what it means, for readers who see it for the first time.
_MEANINGS: Mapping[str, str] = {
    ServedKind.EQUAL: "trained as the server shows it",
    ServedKind.CONTEXT: "trained after other text than the server sends",
    ServedKind.ANSWER: "what is trained is not what the model must write",
    ServedKind.BOUNDARY: "training begins before or after the end of the server's text",
    ServedKind.REFUSED: "the chat template rejects the request",
    ServedKind.CUT: "shortened by preprocessing.over_long",
}


def describe_served(report: ServedReport) -> str:
    """Return the text of a comparison: the first findings, counts by kind, and what to do about each kind."""
    rows = counted(report.num_rows_read, "row")
    how = f"all {rows}" if report.mode == "all" else f"a sample of {rows} of {report.num_rows:,}, seed {report.seed}"
    lines = [f"{report.target}: {how}"]
    if report.drops:
        drops = (f"{reason} {count:,}" for reason, count in report.drops.items())
        lines += [f"  {counted(sum(report.drops.values()), 'row')} dropped: {', '.join(drops)}"]
    for item in report.findings:
        lines += ["", *_finding_lines(item)]
    hidden = sum(count.num_answers for count in report.record.differing) - len(report.findings)
    if hidden:
        lines += ["", f"... and {counted(hidden, 'more answer')} (--limit shows more)"]
    if report.record.num_answers:
        lines += ["", *count_lines(report.record)]
    for kind, cure in report.cures.items():
        lines += ["", f"against {kind}: {cure}"]
    return printable("\n".join([*lines, "", _verdict(report)]))


def count_lines(record: ServedRecord) -> Iterator[str]:
    """Yield answers and trained tokens by kind, with their shares and what the kind means."""
    num_answers, num_tokens = max(record.num_answers, 1), max(record.num_trained_tokens, 1)
    for count in record.counts:
        answers = f"{counted(count.num_answers, 'answer')} ({count.num_answers / num_answers:.1%})"
        tokens = f"{counted(count.num_trained_tokens, 'trained token')} ({count.num_trained_tokens / num_tokens:.1%})"
        yield f"  {count.kind:<16} {answers}, {tokens}: {_MEANINGS[count.kind]}"


def describe_sample(record: ServedRecord) -> Iterator[str]:
    """Yield lines about a sample of answers: their kinds, and what to do where a server shows them differently."""
    if not record.num_answers:
        return
    yield "trained answers as a server shows them (a sample; `bridgepack prove served --all` compares every one):"
    yield from count_lines(record)
    for count in record.differing:
        yield f"  against {count.kind}: {record.cure(count.kind)}"


def _finding_lines(item: ServedFinding) -> Iterator[str]:
    yield f"{item.kind}: {item.file} row {item.row}, message {item.turn} ({item.split})"
    token = "" if item.token is None else f", from token {item.token} on"
    yield f"  {item.detail}{token}"
    if item.trained_text:
        yield f"  trained: {item.trained_text!r}"
    if item.served_text:
        yield f"  served:  {item.served_text!r}"


def _verdict(report: ServedReport) -> str:
    record = report.record
    if report.outcome == "could not run":
        return "not compared: no row gives a trained answer. Check data.train, or choose another --split."
    if report.outcome == "equal":
        is_cut = any(count.kind == ServedKind.CUT for count in record.counts)
        cut = ", apart from what over_long left out" if is_cut else ""
        if record.num_answers == 1:
            return f"the only answer is trained as it is served{cut}"
        return f"all {record.num_answers:,} answers are trained as they are served{cut}"
    num_answers = sum(count.num_answers for count in record.differing)
    verdict = "is not trained as it is served" if num_answers == 1 else "are not trained as they are served"
    return f"{num_answers:,} of {counted(record.num_answers, 'answer')} {verdict}"
