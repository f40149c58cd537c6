"""Renders plans and previews of a build as text for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from bridgepack.planning.candidate import Candidate
from bridgepack.planning.layout import Layout
from bridgepack.planning.plan import Plan
from bridgepack.planning.preview import Note, Preview, SourcePreview
from bridgepack.planning.sample import STOPPED_EARLY
from bridgepack.records import LOSS_CURES
from bridgepack.records.words import counted
from bridgepack.reporting.packs import draw_sequence, trained_text_note
from bridgepack.reporting.served import describe_sample
from bridgepack.reporting.terminal import (
    TOKENIZER_WARNING,
    describe_run,
    describe_unread,
)
from bridgepack.reporting.text import printable, without_middle

_BAR = 22
#: Number of candidates in the table; JSON has all.
_SHOWN = 8
#: Text for a pack size without a candidate.
NO_LAYOUT = "no valid layout fits into memory and the tokens of a step"
_HEAD = "     pack  TP PP VP CP EP recompute batch   fill padding GB/GPU step s tokens/s"


def describe_plan(plan: Plan) -> str:
    """Return the text of a plan: the data, a bar per pack size, the candidates with their losses, and the reasons."""
    return printable("\n".join([*_describe_data(plan), "", *_picture(plan), "", *_table(plan), "", *_why(plan)]))


def _describe_data(plan: Plan) -> Iterator[str]:
    p50, p95, p99 = np.percentile(plan.lengths.runtime, [50, 95, 99], method="higher").astype(int).tolist()
    yield f"plan of {plan.recipe.name} on {plan.num_gpus} x {plan.gpu.name}; speeds and memory are estimates"
    yield f"  lengths   {plan.lengths.origin}"
    yield f"  tokens    p50 {p50:,}  p95 {p95:,}  p99 {p99:,}  max {int(plan.lengths.runtime.max()):,}"


def _picture(plan: Plan) -> Iterator[str]:
    yield f"     pack  {'tokens/s per GPU':<{_BAR + 9}}  over-long    lost  straggler"
    for size, one in plan.of_sizes.items():
        if one is None:
            yield f"{size:>9,}  {NO_LAYOUT}"
            continue
        bar = "#" * max(round(_BAR * one.tokens_per_s / plan.fastest), 1)
        yield (
            f"{size:>9,}  {bar:<{_BAR}}{one.tokens_per_s:>9,.0f}  {one.over_long_fraction:>9.1%}  "
            f"{one.lost_fraction:>6.1%}  {one.waiting.ratio(one.balance):>9.2f}"
            f"{f'   CP {one.layout.context}' if one.layout.context > 1 else ''}"
            f"{'   fewer packs than the global batch' if one.is_short else ''}"
        )


def _table(plan: Plan) -> Iterator[str]:
    yield _HEAD
    for one in plan.candidates[:_SHOWN]:
        yield _row(one)
        waiting = f"straggler {one.waiting.straggler_ratio:.2f}, balanced {one.waiting.balanced_ratio:.2f}"
        yield f"           {'best' if one is plan.best else one.loses(plan.best)}; {waiting}"


def _row(one: Candidate) -> str:
    layout = one.layout
    recomputed = "full" if layout.recomputes else "+".join(layout.modules) or "none"
    return (
        f"{one.packed_sequence_size:>9,} {layout.tensor:>3} {layout.pipeline:>2} {layout.virtual:>2}"
        f" {layout.context:>2} {layout.expert:>2} {recomputed:<9} {one.global_batch_size:>5}"
        f"  {one.fill_fraction:>5.1%} {one.padding_fraction:>7.2%} {one.memory.total_gb:>6.0f}"
        f" {one.step_s:>6.2f} {one.tokens_per_s:>8,.0f}"
    )


def _why(plan: Plan) -> Iterator[str]:
    best = plan.best
    parts = ", ".join(f"{name} {part:.0%}" for name, part in best.parts.items() if part >= 0.005)
    memory = best.memory
    yield f"best: step time is {parts}"
    yield (
        f"      memory per GPU: weights, gradients and optimiser {memory.states_gb:.1f} GB, activations "
        f"{memory.activations_gb:.1f} GB, logits {memory.logits_gb:.1f} GB; at most {plan.gpu.budget_gb:.0f} GB allowed"
    )
    if memory.total_gb > plan.gpu.easy_gb:
        yield (
            f"      more than {plan.gpu.easy_gb:.0f} GB are tight for an estimate: try it first, or take a "
            "candidate with less"
        )
    if best.layout.layers and len(set(best.layout.layers)) > 1:
        yield f"      layers of each stage: {_stages(best.layout)}"
    action = plan.recipe.preprocessing.over_long
    if best.over_long_fraction:
        cut = {"truncate": "are cut", "truncate_history": "lose old exchanges or are dropped"}
        what = {**cut, "split": "are split", "split_exchanges": "are split", "error": "stop a build"}.get(
            action, "are dropped"
        )
        again = f", {best.added_fraction:.1%} more are shown again" if best.added_fraction else ""
        yield (
            f"      {best.over_long_fraction:.1%} of the sequences are too long and {what} (preprocessing.over_long "
            f"{action}); {best.lost_fraction:.1%} of the tokens are not trained{again}"
        )
    if plan.context_from is not None:
        yield f"      the best layouts use context parallelism from packs of {plan.context_from:,} tokens up"
    if best.balance != "none":
        yield (
            f"      packing.balance.kind is {best.balance}: the slowest rank of a step takes "
            f"{best.waiting.balanced_ratio:.2f} times the mean; without balance, {best.waiting.straggler_ratio:.2f}"
        )
    yield f"speed: {plan.speed.linear:.0%} of the GPU's peak for matrices, {plan.speed.attention:.0%} for attention"
    for code, (count, why) in plan.refused.items():
        yield f"refused by {code}: {count} layouts; {why}"
    if best.is_short:
        field = "global_batch_size" if plan.recipe.batch.tokens_per_step is None else "tokens_per_step"
        yield (
            f"warning: training cannot start: {counted(best.num_packs, 'pack')} < global batch "
            f"{best.global_batch_size:,}. Use "
            f"more data or fewer GPUs, or lower batch.{field}."
        )
    yield from _online(plan)
    yield f"not compared: {LEFT_OUT}"
    yield f"packs per step on each data-parallel rank: {best.global_batch_size // best.layout.data}, one at a time"


def _online(plan: Plan) -> Iterator[str]:
    """Yield lines on packing at run time, beside the best candidate."""
    if not plan.online:
        return
    best = plan.best
    yield "online packing (Megatron-Bridge 0.7 packs at run time), with the best layout and pack size:"
    for one in plan.online:
        share = one.tokens_per_s / best.tokens_per_s - 1
        against = f"{abs(share):.0%} {'faster' if share > 0 else 'slower'} than packs built before the run"
        yield (
            f"      {one.scheduler}: {one.sequences_per_step:,} sequences in {one.packs_per_step:,.1f} packs per step, "
            f"fill {one.fill_fraction:.1%}, padding {one.padding_fraction:.2%}, straggler {one.straggler_ratio:.2f}, "
            f"step {one.step_s:.2f} s, {one.tokens_per_s:,.0f} tokens/s: {against}"
        )
    yield f"      the price: {PRICE_ONLINE}"


#: What packing at run time gives up.
PRICE_ONLINE = (
    "nobody knows before the run which rows a step trains, packs cannot be checked or audited, a run cannot resume "
    "at a row, steps are uneven; dynamic context parallelism refuses pipeline stages and Mamba hybrids"
)
#: What a plan does not turn; people who tune a run by hand do.
LEFT_OUT = (
    "FP8, offloading of the optimiser or of activations, FSDP, expert tensor parallelism, cp_comm_type, dispatchers "
    "that send a token to each node once (DeepEP, HybridEP)"
)


def _stages(layout: Layout) -> str:
    """Return the layers of each virtual stage: `7, 8 x 14, 7`."""
    runs = [(count, len(list(run))) for count, run in groupby(layout.layers)]
    return ", ".join(f"{count} x {length}" if length > 1 else str(count) for count, length in runs)


#: Maximum printed characters of a stretch of text; the middle of a longer one is omitted.
_SHOWN_CHARACTERS = 1500
_SHOWN_FILES = 3


def describe_preview(preview: Preview, *, has_colour: bool) -> str:
    """Return the text of a preview: per source its format, first sequences, tokens, drops; then packs and steps."""
    parts = ["\n".join(_describe_source(source, has_colour=has_colour)) for source in preview.sources]
    return "\n\n".join([*parts, printable("\n".join(_describe_packs(preview)))])


def _describe_source(source: SourcePreview, *, has_colour: bool) -> Iterator[str]:
    """Yield lines; text of rows is made printable when it is drawn, because colours would be lost here."""
    names = ", ".join(source.files[:_SHOWN_FILES]) + (", ..." if len(source.files) > _SHOWN_FILES else "")
    yield printable(f"{source.split}: {names}")
    columns = "; ".join(f"{name}: {kind}" for name, kind in source.columns.items())
    yield printable(f"  {'format':<20}{source.format}, {columns or 'no column is known'}")
    yield f"  {'rows read':<20}{_rows_text(source)}"
    if source.sequences:
        yield f"  {'first sequences':<20}{trained_text_note(has_colour=has_colour)}"
    for sequence in source.sequences:
        spans = tuple(replace(span, text=without_middle(span.text, _SHOWN_CHARACTERS)) for span in sequence.spans)
        yield ""
        yield draw_sequence(replace(sequence, spans=spans), has_colour=has_colour)
    if source.sequences:
        yield ""
    tokens = source.tokens
    if tokens is None:
        yield f"  {'tokens':<20}none: no row would become a sequence"
    else:
        of_what = "tokens per sequence" if tokens.added_fraction else "tokens per row"
        yield f"  {of_what:<20}p50 {tokens.p50:,}  p95 {tokens.p95:,}  p99 {tokens.p99:,}  max {tokens.max:,}"
        yield f"  {'trained':<20}{tokens.trained_fraction:.1%} of the tokens"
        if tokens.added_fraction:
            yield (
                f"  {'split conversations':<20}{tokens.sequences_per_row:.2f} sequences per row, "
                f"{tokens.added_fraction:.0%} more tokens than one sequence per row"
            )
        if tokens.lost_fraction:
            yield f"  {'cut between exchanges':<22}{tokens.lost_fraction:.1%} of the trained tokens are left out"
    num_dropped = sum(drop.num_rows for drop in source.drops)
    yield f"  {'rows dropped':<20}{num_dropped:,} of {source.num_rows_read:,}"
    yield from _describe_notes(source.drops)
    if source.lost_content:
        yield "  lost content        content of rows that the chat template leaves out or changes"
        yield from _describe_notes(source.lost_content)
    yield from map(printable, describe_unread(source.unread))


def _rows_text(source: SourcePreview) -> str:
    if not source.is_sample:
        return f"all {source.num_rows:,} rows" if source.num_rows != 1 else "the only row"
    files = f" in {len(source.files)} of {source.num_files:,} files" if source.num_files > 1 else ""
    total = f"{'' if source.is_counted else 'about '}{source.num_rows:,}"
    return f"a sample of {source.num_rows_read:,} of {total} rows{files}: all figures are of this sample"


def _describe_notes(notes: Sequence[Note]) -> Iterator[str]:
    for note in notes:
        yield printable(f"    {note.kind:<28}{note.num_rows:>8,}   e.g. {' '.join(note.example.split())}")
        if note.kind in LOSS_CURES:
            yield f"      fix: {LOSS_CURES[note.kind]}"


def _describe_packs(preview: Preview) -> Iterator[str]:
    if preview.num_packs is None:
        yield "packs: not projected; which sequences are used depends on all rows (data.mixture, data.deduplicate)"
    about = "about " if preview.is_sample else ""
    counts = ", ".join(f"{about}{count:,} {split}" for split, count in (preview.num_packs or {}).items())
    if counts:
        yield f"packs: {counts}{' (projected from the sample; the build counts exactly)' if about else ''}"
    if preview.stopped_early:
        yield f"warning: {STOPPED_EARLY}"
    for split, skipped in preview.skipped.items():
        yield f"{split}: {skipped.describe()}"
    if preview.run is not None:
        yield from describe_run(preview.run)
    if preview.served is not None:
        yield from describe_sample(preview.served)
    yield from _describe_forms(preview.forms)
    if preview.loses_text:
        yield f"warning: {TOKENIZER_WARNING}"
    for field, reasons in preview.stops.items():
        yield f"warning: {field} is error: a build would stop at such rows ({reasons}), not drop them."


def _describe_forms(forms: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the fields that are `auto`, e.g. `content_parts: text (system, user); given (developer)`."""
    if forms:
        yield "forms that the chat template shows (auto; `given` is as the row has it):"
    for name, decided in forms.items():
        by_form: dict[str, list[str]] = {}
        for where, form in decided.items() if isinstance(decided, Mapping) else ():
            by_form.setdefault(form, []).append(where.replace("_", " "))
        shown = "; ".join(f"{form} ({', '.join(places)})" for form, places in by_form.items()) or decided
        yield f"  {name:<20}{shown}"
