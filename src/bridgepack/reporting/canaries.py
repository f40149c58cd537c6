"""Renders canary reports as text for a terminal."""

from collections.abc import Iterator, Sequence

from bridgepack.canaries.records import CanaryReport, LayoutRecord, Measured
from bridgepack.records.words import counted
from bridgepack.reporting.text import printable

_MARKS = {"same": "ok", "differs": "DIFFERS", "could not run": "NOT RUN"}
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


def describe_canary(report: CanaryReport) -> str:
    """Return the text of a report: what was compared, the bounds, the result per layout, findings and versions."""
    lines = [*_subject(report), "", *_bounds(report), "", *_table(report.layouts)]
    stops = list(_stops(report.layouts))
    if stops:
        lines += ["", *stops]
    for finding in report.findings:
        rules = f" ({', '.join(finding.rules)})" if finding.rules else ""
        lines += ["", f"{finding.name}{rules} in {finding.layout}", f"  {finding.message}", f"  {finding.advice}"]
    if report.notes:
        lines += ["", *(f"note: {note}" for note in report.notes)]
    return printable("\n".join([*lines, "", *_verdict(report)]))


def describe_self_test(reports: Sequence[CanaryReport]) -> str:
    """Return one line per planted fault, with whether it was found, and a verdict."""
    lines = []
    for report in reports:
        names = [finding.name for finding in report.findings]
        mark = "found" if report.planted in names else "MISSED"
        message = next((one.message for one in report.findings if one.name == report.planted), ", ".join(names))
        lines.append(f"{mark:<7} {report.planted:<22} {message or 'not found'}")
    num_missed = sum(line.startswith("MISSED") for line in lines)
    verdict = "every planted fault was found" if not num_missed else f"{num_missed} of {len(lines)} faults were missed"
    return printable("\n".join([*lines, "", verdict]))


def _subject(report: CanaryReport) -> Iterator[str]:
    packs, model = report.packs, report.model
    yield f"canary of {report.target}: packed training against unpacked training"
    numbers = ", ".join(map(str, packs.numbers))
    place = "made up" if packs.origin == "made up" else f"{packs.split} {numbers} of {packs.origin}"
    yield f"  packs      {place}{f', {packs.num_cut} of them cut' if packs.num_cut else ''}"
    yield (
        f"             {counted(packs.num_sequences, 'sequence')}, "
        f"{counted(packs.num_tokens, 'token')}, {packs.num_trained:,} trained, "
        f"renumbered to a vocabulary of {packs.vocab_size:,}"
    )
    sizes = ", ".join(f"{model[name]} {what}" for name, what in _SIZES if name in model)
    yield f"  model      {report.provider}: {sizes}; weights of seed {report.seed}"
    kernels = sorted({layout.kernel for layout in report.layouts})
    yield f"  attention  {'; '.join(_KERNELS[kernel] for kernel in kernels)}"
    if report.planted is not None:
        yield f"  planted    {report.planted}"


def _bounds(report: CanaryReport) -> Iterator[str]:
    yield "bounds, relative to the loss, and for a gradient to the norms of its sequences' own gradients:"
    for bound in report.bounds:
        yield f"  {bound.precision:<9} {bound.relative:.1e}  {bound.because}"


def _table(layouts: Sequence[LayoutRecord]) -> Iterator[str]:
    yield f"{'layout':<22} {'precision':<9} {'loss':>8} {'gradients':>10} {'sequences':>10}"
    for layout in layouts:
        for index, measured in enumerate(layout.measured):
            name = layout.name if index == 0 else ""
            aside = _aside(layout) if index == 0 else ""
            yield f"{name:<22} {_numbers(measured)}  {_MARKS[measured.outcome]}{aside}".rstrip()


def _numbers(measured: Measured) -> str:
    values = (measured.loss, measured.gradient, measured.sequence)
    shown = ["-" if value is None else f"{value:.1e}" for value in values]
    return f"{measured.precision:<9} {shown[0]:>8} {shown[1]:>10} {shown[2]:>10}"


def _aside(layout: LayoutRecord) -> str:
    parts = ["sequence parallel"] if layout.sequence_parallel else []
    if layout.is_laid_out_anew:
        parts.append(f"padded again to multiples of {layout.pad_seq_to_mult}")
    return f"  ({'; '.join(parts)})" if parts else ""


def _stops(layouts: Sequence[LayoutRecord]) -> Iterator[str]:
    told: set[str] = set()
    for layout in layouts:
        for measured in layout.measured:
            if measured.reason and measured.reason not in told:
                told.add(measured.reason)
                yield f"{layout.name} in {measured.precision} stopped: {measured.reason}"


def _verdict(report: CanaryReport) -> Iterator[str]:
    yield ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"fingerprint {report.fingerprint}"
    num_layouts = len(report.layouts)
    layouts = "1 layout" if num_layouts == 1 else f"{num_layouts} layouts"
    if report.outcome == "same":
        yield f"same: loss and every gradient agree in {layouts}"
    elif report.outcome == "differs":
        wrong = [item.name for item in report.layouts if any(one.outcome == "differs" for one in item.measured)]
        yield f"differs: {len(wrong)} of {layouts} ({', '.join(wrong)})"
    else:
        yield f"not compared: a step failed in one of {layouts}; those that ran agree"
