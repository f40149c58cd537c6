"""The blocks of a canary: packed training against unpacked training."""

from collections.abc import Iterator, Mapping, Sequence

from bridgepack.canaries.records import CanaryReport, LayoutRecord, Measured
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Figure, Figures, Line, Section, Table, Title, Tone, Verdict
from bridgepack.reporting.results import shows

_MARKS = {"same": "ok", "differs": "DIFFERS", "could not run": "NOT RUN"}
_TONES: Mapping[str, Tone] = {"same": "good", "differs": "bad", "could not run": "warn"}
_KERNELS = {
    "reference": "bridgepack's reference attention on CPU, instead of TransformerEngine's kernel",
    "transformer_engine": "TransformerEngine's kernel on GPUs",
}
_SIZES = (
    ("num_layers", "layers"),
    ("hidden_size", "hidden"),
    ("num_attention_heads", "heads"),
    ("num_query_groups", "groups"),
    ("num_moe_experts", "experts"),
)


@shows
def canary_blocks(report: CanaryReport) -> Iterator[Block]:
    """Yield what was compared, the bounds, the result per layout, findings and versions."""
    yield Title(f"canary of {report.target}: packed training against unpacked training")
    yield Figures(tuple(_subject(report)), 13)
    yield Section("", (_bounds(report),))
    yield Section("", (_table(report.layouts),))
    yield Section("", tuple(_stops(report.layouts)))
    for finding in report.findings:
        rules = f" ({', '.join(finding.rules)})" if finding.rules else ""
        line = Line(f"{finding.name}{rules} in {finding.layout}", (finding.message, finding.advice))
        yield Section("", (line,))
    yield Section("", tuple(Line(f"note: {note}") for note in report.notes))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield Section("", (Line(versions), Line(f"fingerprint {report.fingerprint}")))
    yield Verdict(text=_verdict(report), tone=_TONES[report.outcome])


def _subject(report: CanaryReport) -> Iterator[Figure]:
    packs, model = report.packs, report.model
    numbers = ", ".join(map(str, packs.numbers))
    place = "made up" if packs.origin == "made up" else f"{packs.split} {numbers} of {packs.origin}"
    cut = f", {packs.num_cut} of them cut" if packs.num_cut else ""
    counts = (
        f"{count_text(packs.num_sequences, 'sequence')}, {count_text(packs.num_tokens, 'token')}, "
        f"{packs.num_trained:,} trained, renumbered to a vocabulary of {packs.vocab_size:,}"
    )
    yield Figure(name="  packs", value=f"{place}{cut}\n{counts}")
    sizes = ", ".join(f"{model[name]} {unit}" for name, unit in _SIZES if name in model)
    yield Figure(name="  model", value=f"{report.provider}: {sizes}; weights of seed {report.seed}")
    kernels = sorted({layout.kernel for layout in report.layouts})
    yield Figure(name="  attention", value="; ".join(_KERNELS[kernel] for kernel in kernels))
    if report.planted is not None:
        yield Figure(name="  planted", value=report.planted)


def _bounds(report: CanaryReport) -> Table:
    columns = (Column("Precision", "{:<9} "), Column("Bound", "{}", is_number=True), Column("Reason", "  {}"))
    return Table(
        title="Bounds",
        columns=columns,
        rows=[(bound.precision, f"{bound.relative:.1e}", bound.because) for bound in report.bounds],
        head="bounds, relative to the loss, and for a gradient to the norms of its sequences' own gradients:",
    )


def _table(layouts: Sequence[LayoutRecord]) -> Table:
    columns = (
        Column("", "{:<22} "),
        Column("Layout"),
        Column("Precision", "{:<9} "),
        Column("Loss", "{:>8} ", is_number=True),
        Column("Gradients", "{:>10} ", is_number=True),
        Column("Sequences", "{:>10}", is_number=True),
        Column("Outcome", "  {}"),
        Column("Notes", "  ({})"),
    )
    rows = [_row(layout, place, measurement) for layout in layouts for place, measurement in enumerate(layout.measured)]
    head = f"{'layout':<22} {'precision':<9} {'loss':>8} {'gradients':>10} {'sequences':>10}"
    return Table(title="Packed against unpacked", columns=columns, rows=rows, head=head, indent=0)


def _row(layout: LayoutRecord, place: int, measurement: Measured) -> tuple[str, ...]:
    values = (measurement.loss, measurement.gradient, measurement.sequence)
    numbers = ("-" if value is None else f"{value:.1e}" for value in values)
    notes = "" if place else _notes(layout)
    return (
        " " if place else layout.name,
        layout.name,
        measurement.precision,
        *numbers,
        _MARKS[measurement.outcome],
        notes,
    )


def _notes(layout: LayoutRecord) -> str:
    parts = ["sequence parallel"] if layout.sequence_parallel else []
    if layout.is_laid_out_anew:
        parts.append(f"padded again to multiples of {layout.pad_seq_to_mult}")
    return "; ".join(parts)


def _stops(layouts: Sequence[LayoutRecord]) -> Iterator[Line]:
    reasons: set[str] = set()
    for layout in layouts:
        for measurement in layout.measured:
            if measurement.reason and measurement.reason not in reasons:
                reasons.add(measurement.reason)
                yield Line(f"{layout.name} in {measurement.precision} stopped: {measurement.reason}")


def _verdict(report: CanaryReport) -> str:
    num_layouts = len(report.layouts)
    layouts = "1 layout" if num_layouts == 1 else f"{num_layouts} layouts"
    if report.outcome == "same":
        return f"same: loss and every gradient agree in {layouts}"
    if report.outcome == "differs":
        names = [
            layout.name
            for layout in report.layouts
            if any(measurement.outcome == "differs" for measurement in layout.measured)
        ]
        return f"differs: {len(names)} of {layouts} ({', '.join(names)})"
    return f"not compared: a step failed in one of {layouts}; those that ran agree"
