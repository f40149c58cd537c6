"""The blocks of a comparison of trained with served answers."""

from collections.abc import Iterator, Mapping, Sequence

from bridgepack.proof.served.records import ServedFinding, ServedReport
from bridgepack.records import ServedKind, ServedRecord, Shares, percent
from bridgepack.records.served import VARIABLES, switch_cure
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Line, Section, Table, Title, Tone, Verdict
from bridgepack.reporting.results import shows
from bridgepack.reporting.results.tokenizers import tokenizer_warnings

#: Kind -> what it means, for readers who see it for the first time.
_MEANINGS: Mapping[str, str] = {
    ServedKind.EQUAL: "trained as the server shows it",
    ServedKind.CONTEXT: "trained after other text than the server sends",
    ServedKind.ANSWER: "what is trained is not what the model must write",
    ServedKind.BOUNDARY: "training begins before or after the end of the server's text",
    ServedKind.REFUSED: "the chat template rejects the request",
    ServedKind.CUT: "shortened by preprocessing.over_long",
}
_TONES: Mapping[str, Tone] = {"equal": "good", "differs": "bad", "could not run": "warn"}


@shows
def served_blocks(report: ServedReport) -> Iterator[Block]:
    """Yield the first findings, counts by kind, and what to do about each kind."""
    rows = count_text(report.num_rows_read, "row")
    how = f"all {rows}" if report.mode == "all" else f"a sample of {rows} of {report.num_rows:,}, seed {report.seed}"
    yield Title(f"{report.target}: {how}")
    if report.drops:
        drops = (f"{reason} {count:,}" for reason, count in report.drops.items())
        yield Line(f"  {count_text(sum(report.drops.values()), 'row')} dropped: {', '.join(drops)}")
    yield from tokenizer_warnings(report.lost_flags, loses_text=False)
    for item in report.findings:
        yield Section("", (_finding(item),))
    num_hidden = sum(count.num_answers for count in report.record.differing) - len(report.findings)
    if num_hidden:
        yield Section("", (Line(f"... and {count_text(num_hidden, 'more answer')} (--limit shows more)"),))
    if report.record.num_answers:
        yield Section("", tuple(kind_lines(report.record)))
    for kind, cure in report.cures.items():
        yield Section("", (Line(f"against {kind}: {cure}"),))
    yield Verdict(text=_verdict(report), tone=_TONES[report.outcome])


def kind_lines(record: ServedRecord) -> Iterator[Line]:
    """Yield answers and trained tokens by kind, with their shares and what the kind means."""
    num_answers, num_tokens = max(record.num_answers, 1), max(record.num_trained_tokens, 1)
    for count in record.counts:
        answers = f"{count_text(count.num_answers, 'answer')} ({count.num_answers / num_answers:.1%})"
        tokens = (
            f"{count_text(count.num_trained_tokens, 'trained token')} ({count.num_trained_tokens / num_tokens:.1%})"
        )
        yield Line(f"  {count.kind:<16} {answers}, {tokens}: {_MEANINGS[count.kind]}")


def sample_blocks(record: ServedRecord) -> Iterator[Block]:
    """Yield a sample of answers: their kinds, and what to do where a server shows them differently."""
    if not record.num_answers:
        return
    yield Line("trained answers as a server shows them (a sample; `bridgepack prove served --all` compares every one):")
    yield from kind_lines(record)
    yield from (Line(f"  against {count.kind}: {record.cure(count.kind)}") for count in record.differing)


def choices_blocks(choices: Sequence[Shares], choice: Shares) -> Iterator[Block]:
    """Yield what settings train of a sample of answers, and at which cost; the recipe as it is comes first."""
    as_it_is = choices[0]
    names = [f"{shares.name}{' (written)' if shares == choice else ''}" for shares in choices]
    cells = [
        (
            name,
            percent(shares.served_fraction),
            percent(shares.trained_fraction(as_it_is)),
            f"{shares.token_ratio(as_it_is):.1f} x",
        )
        for name, shares in zip(names, choices, strict=True)
    ]
    width = max(map(len, names))
    columns = (
        Column("Setting", f"{{:{width}}}"),
        Column("As served", "  {:>9}", is_number=True),
        Column("Trained", "  {:>7}", is_number=True),
        Column("Tokens", "  {:>6}", is_number=True),
    )
    title = f"Trained answers as a server shows them, {count_text(as_it_is.num_trained, 'answer')} measured"
    head = f"{title}:\n  {''.join(column.screen.format(column.name.lower()) for column in columns)}"
    yield Table(title=title, columns=columns, rows=cells, head=head)
    yield from (Line(f"  {switch_cure(name, value)}") for name, value in choice.setting.get(VARIABLES, {}).items())


def kinds_table(record: ServedRecord) -> Table:
    """Return the sample that a build recorded, for pages: counts by kind, an example and a cure."""
    rows = []
    for count in record.counts:
        about = "" if count.is_row_exact else "~"
        example = f"row {about}{count.row:,}, turn {count.turn}: {count.detail}" if count.detail else ""
        share = f"{count.num_answers / record.num_answers:.1%}"
        cure = record.cure(count.kind) if count in record.differing else ""
        cells = (count.kind, _MEANINGS[count.kind], f"{count.num_answers:,}", share, f"{count.num_trained_tokens:,}")
        rows.append((*cells, example, cure))
    return Table(
        title=f"Trained answers as a server shows them, a sample of {record.num_answers:,}",
        columns=(
            Column("Kind"),
            Column("Meaning"),
            Column("Answers", is_number=True),
            Column("Share", is_number=True),
            Column("Trained tokens", is_number=True),
            Column("For example"),
            Column("Fix"),
        ),
        rows=rows,
    )


def _finding(finding: ServedFinding) -> Line:
    token = "" if finding.token is None else f", from token {finding.token} on"
    items = [f"{finding.detail}{token}"]
    items += [f"trained: {finding.trained_text!r}"] if finding.trained_text else []
    items += [f"served:  {finding.served_text!r}"] if finding.served_text else []
    place = f"{finding.file} row {finding.row}, message {finding.turn} ({finding.split})"
    return Line(f"{finding.kind}: {place}", tuple(items))


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
    if not num_answers:
        tokens = " and ".join(repr(token.token) for token in report.lost_flags)
        return (
            f"all {count_text(record.num_answers, 'answer')} are trained as served, but for the tokens around {tokens}"
        )
    verdict = "is not trained as it is served" if num_answers == 1 else "are not trained as they are served"
    return f"{num_answers:,} of {count_text(record.num_answers, 'answer')} {verdict}"
