"""The blocks of a plan: the best layout of each pack size, the candidates, and why the best one is best."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from bridgepack.planning.candidate import Candidate
from bridgepack.planning.layout import Layout
from bridgepack.planning.plan import Plan
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Bar, Block, Cell, Column, Figure, Figures, Line, Section, Table, Title
from bridgepack.reporting.results import shows

#: Number of candidates on a screen.
_SHOWN = 8
#: Text for a pack size without a candidate.
NO_LAYOUT = "no valid layout fits into memory and the tokens of a step"


@shows
def plan_blocks(plan: Plan) -> Iterator[Block]:
    """Yield the data, a bar per pack size, the candidates with their losses, and the reasons."""
    p50, p95, p99 = np.percentile(plan.lengths.runtime, [50, 95, 99], method="higher").astype(int).tolist()
    yield Title(f"plan of {plan.recipe.name} on {plan.num_gpus} x {plan.gpu.name}; speeds and memory are estimates")
    lengths = f"p50 {p50:,}  p95 {p95:,}  p99 {p99:,}  max {int(plan.lengths.runtime.max()):,}"
    figures = (Figure(name="  lengths", value=plan.lengths.origin), Figure(name="  tokens", value=lengths))
    yield Figures(figures, 12)
    yield Section("", (sizes_table(plan),))
    yield Section("", (_candidates(plan),))
    yield Section("", tuple(_why(plan)))


def sizes_table(plan: Plan) -> Table:
    """Return the best layout of each pack size."""
    columns = (
        Column("Pack size", "{:>9}  ", is_number=True),
        Column("Speed", "{:<22}"),
        Column("Tokens/s per GPU", "{:>9}  ", is_number=True),
        Column("Over-long", "{:>9}  ", is_number=True),
        Column("Tokens lost", "{:>6}  ", is_number=True),
        Column("Straggler", "{:>9}", is_number=True),
        Column("", "   CP {}"),
        Column("", "   {}"),
        Column("Layout"),
        Column("Fill", is_number=True),
        Column("GB per GPU", is_number=True),
    )
    return Table(
        title=f"The best layout of each pack size on {plan.num_gpus} x {plan.gpu.name}",
        columns=columns,
        rows=[_size_row(plan, size, candidate) for size, candidate in plan.of_sizes.items()],
        head=f"     pack  {'tokens/s per GPU':<31}  over-long    lost  straggler",
        indent=0,
    )


def _size_row(plan: Plan, size: int, candidate: Candidate | None) -> tuple[Cell, ...]:
    if candidate is None:
        return f"{size:,}", NO_LAYOUT, *[""] * 9
    layout, short = candidate.layout, "fewer packs than the global batch" if candidate.is_short else ""
    sizes = f"TP {layout.tensor}, PP {layout.pipeline}, CP {layout.context}, EP {layout.expert}"
    notes = "; ".join(filter(None, ("recompute" if layout.recomputes else "", short)))
    return (
        f"{size:,}",
        Bar(candidate.tokens_per_s / plan.fastest, is_faint=layout.context > 1),
        f"{candidate.tokens_per_s:,.0f}",
        f"{candidate.over_long_fraction:.1%}",
        f"{candidate.lost_fraction:.1%}",
        f"{candidate.waiting.ratio(candidate.balance):.2f}",
        f"{layout.context}" if layout.context > 1 else "",
        short,
        f"{sizes}; {notes}" if notes else sizes,
        f"{candidate.fill_fraction:.1%}",
        f"{candidate.memory.total_gb:,.0f}",
    )


def _candidates(plan: Plan) -> Table:
    columns = (
        Column("Pack size", "{:>9} ", is_number=True),
        Column("TP", "{:>3} ", is_number=True),
        *(Column(name, "{:>2} ", is_number=True) for name in ("PP", "VP", "CP", "EP")),
        Column("Recompute", "{:<9} "),
        Column("Packs a step", "{:>5}  ", is_number=True),
        Column("Fill", "{:>5} ", is_number=True),
        Column("Padding", "{:>7} ", is_number=True),
        Column("GB per GPU", "{:>6} ", is_number=True),
        Column("Step in s", "{:>6} ", is_number=True),
        Column("Tokens/s per GPU", "{:>8}", is_number=True),
        Column("Over-long", is_number=True),
        Column("Against the best", "           {}", is_below=True),
    )
    return Table(
        title=f"Best first, on {plan.num_gpus} x {plan.gpu.name}; speeds and memory are estimates",
        columns=columns,
        rows=[_candidate_row(plan, candidate) for candidate in plan.candidates],
        head="     pack  TP PP VP CP EP recompute batch   fill padding GB/GPU step s tokens/s",
        indent=0,
        most_rows=_SHOWN,
        remainder="--json has all",
    )


def _candidate_row(plan: Plan, candidate: Candidate) -> tuple[str, ...]:
    layout, waiting = candidate.layout, candidate.waiting
    against = "best" if candidate is plan.best else candidate.loses(plan.best)
    sizes = (layout.tensor, layout.pipeline, layout.virtual, layout.context, layout.expert)
    return (
        f"{candidate.packed_sequence_size:,}",
        *map(str, sizes),
        "full" if layout.recomputes else "+".join(layout.modules) or "none",
        f"{candidate.global_batch_size}",
        f"{candidate.fill_fraction:.1%}",
        f"{candidate.padding_fraction:.2%}",
        f"{candidate.memory.total_gb:.0f}",
        f"{candidate.step_s:.2f}",
        f"{candidate.tokens_per_s:,.0f}",
        f"{candidate.over_long_fraction:.1%}",
        f"{against}; straggler {waiting.straggler_ratio:.2f}, balanced {waiting.balanced_ratio:.2f}",
    )


def _why(plan: Plan) -> Iterator[Line]:
    best = plan.best
    parts = ", ".join(f"{name} {part:.0%}" for name, part in best.parts.items() if part >= 0.005)
    yield Line(f"best: step time is {parts}", tuple(_about_best(plan)), 6)
    yield Line(
        f"speed: {plan.speed.linear:.0%} of the GPU's peak for matrices, {plan.speed.attention:.0%} for attention"
    )
    yield from (Line(f"refused by {code}: {count} layouts; {why}") for code, (count, why) in plan.refused.items())
    if best.is_short:
        field = "global_batch_size" if plan.recipe.batch.tokens_per_step is None else "tokens_per_step"
        yield Line(
            f"warning: training cannot start: {count_text(best.num_packs, 'pack')} < global batch "
            f"{best.global_batch_size:,}. Use more data or fewer GPUs, or lower batch.{field}."
        )
    if plan.online:
        head = "online packing (proposed for Megatron-Bridge, in no release yet), with the best layout and pack size:"
        yield Line(head, tuple(_online(plan)), 6)
    yield Line(f"not compared: {LEFT_OUT}")
    packs = best.global_batch_size // best.layout.data
    yield Line(f"packs per step on each data-parallel rank: {packs}, one at a time")


def _about_best(plan: Plan) -> Iterator[str]:
    best, memory = plan.best, plan.best.memory
    yield (
        f"memory per GPU: weights, gradients and optimiser {memory.states_gb:.1f} GB, activations "
        f"{memory.activations_gb:.1f} GB, logits {memory.logits_gb:.1f} GB; at most {plan.gpu.budget_gb:.0f} GB allowed"
    )
    if memory.total_gb > plan.gpu.easy_gb:
        yield (
            f"more than {plan.gpu.easy_gb:.0f} GB are tight for an estimate: try it first, or take a candidate with "
            "less"
        )
    if best.layout.layers and len(set(best.layout.layers)) > 1:
        yield f"layers of each stage: {_stages(best.layout)}"
    action = plan.recipe.preprocessing.over_long
    if best.over_long_fraction:
        again = f", {best.added_fraction:.1%} more are shown again" if best.added_fraction else ""
        yield (
            f"{best.over_long_fraction:.1%} of the sequences are too long and {fate_of_over_long(action)} "
            f"(preprocessing.over_long {action}); {best.lost_fraction:.1%} of the tokens are not trained{again}"
        )
    if plan.context_from is not None:
        yield f"the best layouts use context parallelism from packs of {plan.context_from:,} tokens up"
    if best.balance != "none":
        yield (
            f"packing.balance.kind is {best.balance}: the slowest rank of a step takes "
            f"{best.waiting.balanced_ratio:.2f} times the mean; without balance, {best.waiting.straggler_ratio:.2f}"
        )


def fate_of_over_long(action: str) -> str:
    """Return what happens to over-long sequences by `preprocessing.over_long`: `are dropped`."""
    cut = {"truncate": "are cut", "truncate_history": "lose old exchanges or are dropped", "error": "stop a build"}
    return {**cut, "split": "are split", "split_exchanges": "are split"}.get(action, "are dropped")


def _online(plan: Plan) -> Iterator[str]:
    """Yield packing at run time, beside the best candidate."""
    for packing in plan.online:
        share = packing.tokens_per_s / plan.best.tokens_per_s - 1
        against = f"{abs(share):.0%} {'faster' if share > 0 else 'slower'} than packs built before the run"
        yield (
            f"{packing.scheduler}: {packing.sequences_per_step:,} sequences in {packing.packs_per_step:,.1f} packs per "
            f"step, fill {packing.fill_fraction:.1%}, padding {packing.padding_fraction:.2%}, straggler "
            f"{packing.straggler_ratio:.2f}, step {packing.step_s:.2f} s, {packing.tokens_per_s:,.0f} tokens/s: "
            f"{against}"
        )
    yield f"the price: {PRICE_ONLINE}"


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
