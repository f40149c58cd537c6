"""The blocks of the page that signs a run off, on one or two printed pages."""

from collections.abc import Iterator, Sequence

from bridgepack.checking.sign_off import SignOff
from bridgepack.records import SplitRecord
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Legend, Line, MarkedText, Section, Span, Table, Verdict
from bridgepack.reporting.cards import cards_of
from bridgepack.reporting.results.overview_packs import percent
from bridgepack.reporting.results.overviews import facts_table, tokenizer_text
from bridgepack.reporting.results.packs import sequence_block
from bridgepack.reporting.text import without_middle

#: Maximum stretches of the sequence that is shown, so that two pages are enough; characters of each, or of an entry.
_SPANS, _SPAN_CHARACTERS = 8, 300
#: Entries of a list, and findings.
_ENTRIES, _FINDINGS = 20, 40


def sign_off_blocks(sign_off: SignOff) -> Iterator[Block]:
    """Yield the verdict, the run, its data, what is trained, what was checked, and what is signed."""
    report = sign_off.page.report
    tone, verdict = sign_off.verdict
    subject = "the run and its packs" if sign_off.page.has_recipe else "the packs alone"
    yield Verdict(text=verdict, details=(f"{len(report.rules_run)} rules ran on {subject}.",), tone=tone)
    yield Section("The run", (facts_table("What will run", dict(_run(sign_off))),))
    splits = sign_off.manifest.splits
    yield Section(
        "The data", tuple(facts_table(f"Rows of {item.name}", dict(_data(sign_off, item))) for item in splits)
    )
    if sign_off.example is not None:
        yield Section(
            "What is trained", (Line("One sequence."), Legend(), _short_text(sequence_block(sign_off.example)))
        )
    proofs = (facts_table("Proofs", dict(_proofs(sign_off))), _findings(sign_off))
    gaps = Section("What was not checked", (Line("Nobody has checked:", tuple(sign_off.gaps)),))
    yield Section("What was checked", (*proofs, gaps))
    yield Section("Identity", (facts_table("What is signed", dict(_identity(sign_off))),))


def _short_text(text: MarkedText) -> MarkedText:
    spans = [Span(without_middle(span.text, _SPAN_CHARACTERS), span.is_trained) for span in text.spans[:_SPANS]]
    num_hidden = len(text.spans) - len(spans)
    if num_hidden:
        spans.append(Span(f"[... {num_hidden:,} more stretches ...]", is_trained=False))
    return MarkedText(heading=text.heading, spans=tuple(spans))


def _run(sign_off: SignOff) -> Iterator[tuple[str, str]]:
    manifest, recipe, page = sign_off.manifest, sign_off.recipe, sign_off.page
    yield "model", recipe.model.name if recipe.model else "not in the recipe"
    yield from sign_off.topology.items()
    yield (
        "packs",
        f"{manifest.packed_sequence_size:,} tokens each, every length a multiple of {manifest.pad_seq_to_mult}",
    )
    yield "settings of rows", _list(sign_off.other_settings) or "as in the packs"
    yield "steps", _steps(sign_off)
    if isinstance(sign_off.memory, str):
        yield "memory", f"not estimated: {sign_off.memory}"
    else:
        gpu = "" if isinstance(page.plan, str) else f" on {page.plan.gpu.name}"
        yield (
            "memory",
            f"about {sign_off.memory.memory.total_gb:,.0f} GB per GPU and {sign_off.memory.tokens_per_s:,.0f} tokens/s "
            f"per GPU{gpu}, as `plan` estimates",
        )
    yield "judged for", page.report.versions or "no particular version"


def _steps(sign_off: SignOff) -> str:
    run = sign_off.page.run
    if isinstance(run, str):
        return f"not known: {run}"
    if run.lack:
        return f"none: {run.lack}"
    epochs = run.num_steps * run.global_batch_size / max(run.num_packs, 1)
    return (
        f"{run.num_steps:,} of {count_text(run.global_batch_size, 'pack')}, over {count_text(run.num_packs, 'pack')}: "
        f"{epochs:.1f} epochs"
    )


def _list(entries: Sequence[str]) -> str:
    more = f"; and {len(entries) - _ENTRIES:,} more" if len(entries) > _ENTRIES else ""
    return "; ".join(without_middle(entry, _SPAN_CHARACTERS) for entry in entries[:_ENTRIES]) + more


def _data(sign_off: SignOff, split: SplitRecord) -> Iterator[tuple[str, str]]:
    numbers, num_dropped = split.statistics, sum(split.drops.values())
    yield "rows read", f"{numbers.num_rows_in:,}, from {count_text(len(split.inputs), 'file')}"
    cuts = f"; {numbers.num_truncated:,} truncated" if numbers.num_truncated else ""
    partly = f"; {numbers.num_partly_packed:,} rows only in part" if numbers.num_partly_packed else ""
    yield (
        "packed",
        f"{numbers.num_rows_packed:,} rows as {numbers.num_sequences:,} sequences in {numbers.num_packs:,} packs"
        f"{cuts}{partly}",
    )
    reasons = "".join(f"; {reason} {count:,}" for reason, count in split.drops.items())
    yield "dropped", f"{num_dropped:,} ({percent(num_dropped, numbers.num_rows_in)}){reasons}"
    tokens = f"{numbers.num_trained_tokens:,} of {numbers.num_tokens:,} tokens"
    fill = f"{sign_off.manifest.fill_fraction(split):.1%}"
    yield "trained", f"{tokens} ({percent(numbers.num_trained_tokens, numbers.num_tokens)}); fill {fill}"
    if split.is_mixture:
        yield "mixture", _list([f"{' '.join(source.name)} {source.share_got:.1%}" for source in split.sources])
    fields = [
        f"{field.name} ({field.holds}, {percent(field.num_rows, field.num_rows_read)} of rows)"
        for field in split.unread
    ]
    yield "fields that are not used", _list(fields) or "none"
    yield "content lost", _list([f"{kind} {count:,}" for kind, count in split.lost_content.items()]) or "none"


def _proofs(sign_off: SignOff) -> Iterator[tuple[str, str]]:
    masks, sample, page = sign_off.masks, sign_off.manifest.served, sign_off.page
    if isinstance(masks, str):
        yield "loss masks", masks
    else:
        yield (
            "loss masks",
            f"{masks.num_agreed:,} of {masks.num_sequences:,} sequences confirmed by another derivation, "
            f"{masks.num_with_findings:,} with findings, {masks.num_not_judged:,} not judged",
        )
    if sample is None:
        yield "trained as served", "not recorded"
    else:
        kinds = "; ".join(f"{item.kind} {percent(item.num_answers, sample.num_answers)}" for item in sample.counts)
        yield "trained as served", f"{kinds or 'no answers'}, of {sample.num_answers:,} answers compared"
    yield "Megatron-Bridge itself", page.report.host.text if page.report.host else "was not asked"
    if isinstance(page.waiting, str):
        yield "ranks wait", f"not known: {page.waiting}"
    else:
        yield "ranks wait", f"the slowest rank takes {page.waiting.as_built.mean:.3f} times an even step"


def _findings(sign_off: SignOff) -> Table:
    report = sign_off.page.report
    cards = list(cards_of(finding for finding in report.findings if finding.severity != "advice"))
    rows = []
    for card in cards[:_FINDINGS]:
        finding, more = card.finding, f"; {len(card.similar)} more" if card.similar else ""
        text = f"{finding.where}: {finding.found}{more}"
        rows.append((finding.severity, f"{finding.code} {finding.name}", text, finding.fix))
    if len(cards) > _FINDINGS:
        rows.append(("", "", f"and {len(cards) - _FINDINGS:,} more: `bridgepack check` lists all", ""))
    rows += [] if cards else [("none", "", "", "")]
    for item in report.suppressed:
        finding = item.finding
        rows.append(("ignored", f"{finding.code} {finding.name}", finding.found, f"reason given: {item.reason}"))
    columns = (Column("Severity", "{} "), Column("Rule", "{}"), Column("Found", ": {}"), Column("Fix", ". {}"))
    return Table(title="Findings", columns=columns, rows=rows)


def _identity(sign_off: SignOff) -> Iterator[tuple[str, str]]:
    manifest = sign_off.manifest
    yield "fingerprint of the packs", manifest.fingerprint
    yield "tokenizer", tokenizer_text(manifest)
    yield "built with", ", ".join(f"{library} {version}" for library, version in manifest.versions.items())
    yield "signed by", "\N{NO-BREAK SPACE}"
    yield "date", "\N{NO-BREAK SPACE}"
