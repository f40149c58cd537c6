"""The blocks of an artifact's report on its packs: lengths, fill, attention work, other sizes, and packs as text."""

from collections.abc import Callable, Iterator

from bridgepack.checking.overview import Overview, SplitOverview
from bridgepack.planning.plan import Plan
from bridgepack.records import Waiting
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Bar, Block, Cell, Column, Legend, Line, Section, Strip, Table
from bridgepack.reporting.charts import length_chart, pack_bars, picture_of, value_chart
from bridgepack.reporting.results.packs import sequence_block
from bridgepack.reporting.results.plans import fate_of_over_long, sizes_table

#: Fewest packs of which histograms are drawn: of fewer, the table of packs says all.
_LEAST_DRAWN = 6


def pack_sections(overview: Overview) -> Iterator[Section]:
    """Yield the sections on packs."""
    yield Section("Sequence lengths", tuple(_each_split(overview, _lengths)))
    yield Section("Fill and trained share", tuple(_each_split(overview, _fill)))
    yield Section("Attention work", tuple(_work(overview)))
    yield Section("Pack sizes", tuple(_sizes(overview)))
    yield Section("Packs", tuple(_each_split(overview, _packs)))
    yield Section("Packs as text", tuple(_texts(overview)))


def name_of(overview: Overview) -> str:
    """Return the name of the folder, the file or the pattern."""
    return str(overview.folder.resolve().name or overview.folder)


def percent(part: float, total: float = 1) -> str:
    """Return a share: `12.5%`; `-` of nothing."""
    return f"{part / total:.1%}" if total else "-"


def _each_split(overview: Overview, blocks_of_split: Callable[[SplitOverview], Iterator[Block]]) -> Iterator[Block]:
    for split in overview.splits:
        yield Section(split.name, tuple(blocks_of_split(split)))


def _lengths(split: SplitOverview) -> Iterator[Block]:
    if split.lengths is None:
        yield Line(f"Not known: {split.unknown}")
        return
    yield picture_of(
        length_chart(split.lengths, split.packed_sequence_size),
        title=f"Lengths of {split.name}",
        description="Sequences by runtime tokens, alignment padding included; the axis is logarithmic.",
        amount="Sequences",
        axis="Runtime tokens",
    )


def _fill(split: SplitOverview) -> Iterator[Block]:
    lengths = split.lengths
    if split.truth.num_tokens:
        yield _capacity_table(split)
    if lengths is None:
        yield Line(f"Packs not known: {split.unknown}")
    elif lengths.num_packs < _LEAST_DRAWN:
        yield Line(f"With {count_text(lengths.num_packs, 'pack')}, the table of packs says all.")
    else:
        yield picture_of(
            value_chart(lengths.pack_tokens),
            title=f"Tokens per pack, {split.name}",
            description="Packs by their runtime tokens, alignment padding included.",
            amount="Packs",
            axis="Runtime tokens",
        )
        yield picture_of(
            value_chart(lengths.pack_sequences),
            title=f"Sequences per pack, {split.name}",
            description="Packs by the number of their sequences.",
            amount="Packs",
            axis="Sequences",
        )


def _capacity_table(split: SplitOverview) -> Table:
    truth, numbers = split.truth, None if split.record is None else split.record.statistics
    padding = truth.max_alignment_tokens if numbers is None else numbers.num_alignment_tokens
    capacity = split.capacity or truth.num_tokens
    counts = {"tokens": truth.num_tokens - padding, "  trained": truth.num_trained_tokens}
    if truth.num_after_eos:
        counts["    after EOS, by Megatron-Bridge 0.7 but not by 0.6"] = truth.num_after_eos
    counts[f"alignment padding{', at most' if numbers is None else ''}"] = padding
    if split.capacity:
        counts["empty"] = max(split.capacity - truth.num_tokens, 0)
    rows: list[tuple[Cell, ...]] = [
        (name, f"{count:,}", percent(count, capacity), Bar(count / capacity, is_faint=name != "tokens"))
        for name, count in counts.items()
    ]
    rows += [] if split.capacity else [("empty", "not known", "-", "")]
    share = f"Share of {'the capacity' if split.capacity else 'the tokens'}"
    columns = (
        Column("What"),
        Column("Runtime tokens", is_number=True),
        Column(share, is_number=True),
        Column("As a bar"),
    )
    return Table(title=f"Use of capacity, {split.name}", columns=columns, rows=rows)


def _work(overview: Overview) -> Iterator[Block]:
    yield Line(
        "Attention within a pack costs the sum of its squared sequence lengths: one long sequence costs more than many "
        "short ones with as many tokens in total. Every data-parallel rank waits for the rank whose packs cost most."
    )
    splits = [split for split in overview.splits if split.lengths is not None]
    for split in splits:
        yield Section(split.name, (_cost_block(split),))
    if not splits:
        yield Line("Packs not known.")
    waiting = overview.waiting
    blocks = (Line(f"Not known: {waiting}"),) if isinstance(waiting, str) else tuple(_waiting_blocks(waiting))
    yield Section("Stragglers of a step", blocks)


def _cost_block(split: SplitOverview) -> Block:
    lengths = split.lengths
    if lengths is None or lengths.num_packs < _LEAST_DRAWN:
        return Line("Too few packs for a chart.")
    return picture_of(
        value_chart(lengths.pack_costs / max(lengths.pack_costs.mean(), 1.0)),
        title=f"Attention work per pack, {split.name}",
        description="Packs by their attention work; 1 is the mean of the split.",
        amount="Packs",
        axis="Work over the mean",
    )


def _waiting_blocks(waiting: Waiting) -> Iterator[Block]:
    run = waiting.run
    orders = {
        "as built": waiting.as_built,
        "random": waiting.shuffled,
        "balanced within_batch": waiting.within_batch,
        "balanced across_batches": waiting.across_batches,
    }
    names = ("Mean step", "p95 step", "Worst step")
    yield Table(
        title=f"The slowest rank over the mean of {run.data_parallel_size} data-parallel ranks, in "
        f"{waiting.num_steps:,} steps of {run.global_batch_size} packs",
        columns=(Column("Order of packs"), *(Column(name, is_number=True) for name in names)),
        rows=[
            (order, *(f"{ratio:.3f}" for ratio in (ratios.mean, ratios.p95, ratios.worst)))
            for order, ratios in orders.items()
        ],
    )
    idle = max(1 - 1 / waiting.as_built.mean, 0)
    yield Line(
        f"Relative cost of a pack = {run.token_cost:,} × tokens + sum of length²; 1.000 is a step whose packs all cost "
        f"the same. As built, ranks wait {idle:.1%} of their compute time on average; the better balance would save "
        f"{waiting.gain:.1%}."
    )


def _sizes(overview: Overview) -> Iterator[Block]:
    plan = overview.plan
    if not isinstance(plan, Plan):
        yield Line(f"Other pack sizes are not compared: {plan}")
        return
    yield Line(
        f"A recipe does not name a GPU type; {plan.gpu.name} is assumed. Speed, memory and therefore the best layout "
        "are estimates for it; fill, over-long and lost tokens are counted from the sequences."
    )
    yield sizes_table(plan)
    context = (
        f" Context parallelism (CP, fainter) is used in the best layouts from packs of {plan.context_from:,} tokens up."
        if plan.context_from
        else ""
    )
    lengths = plan.lengths.origin.replace(str(overview.folder), name_of(overview), 1)
    yield Line(
        f"Estimated tokens per second per GPU for each pack size, on {plan.num_gpus} x {plan.gpu.name}. Lengths: "
        f"{lengths}.{context}"
    )
    yield Line(
        f"Sequences that are longer than a pack {fate_of_over_long(plan.recipe.preprocessing.over_long)}. `bridgepack "
        "plan --artifact` shows all candidates, other GPUs, and measured speeds with --calibrate."
    )


def _packs(split: SplitOverview) -> Iterator[Block]:
    if split.lengths is None:
        yield Line(f"Not known: {split.unknown}")
        return
    bars = pack_bars(split.lengths, split.packed_sequence_size)
    columns = (
        Column("Pack"),
        Column("Sequences", is_number=True),
        Column("Tokens", is_number=True),
        Column("Layout"),
    )
    yield Table(
        title=f"{len(bars)} of {split.lengths.num_packs:,} packs of {split.name}, evenly spaced; each box is a "
        "sequence, and adjacent short sequences share one",
        columns=columns,
        rows=[(f"{bar.index:,}", f"{bar.num_sequences:,}", f"{bar.num_tokens:,}", Strip(bar.boxes)) for bar in bars],
    )


def _texts(overview: Overview) -> Iterator[Block]:
    yield Legend()
    yield Line("Long texts are shortened in the middle.")
    for split in overview.splits:
        for excerpt in split.excerpts:
            view = excerpt.view
            sequences = count_text(excerpt.num_sequences, "sequence")
            title = f"{excerpt.why} of {split.name}: pack {view.index:,}, {sequences}, {excerpt.num_tokens:,} tokens"
            blocks: list[Block] = [Line(view.note)] if view.note else []
            texts: list[Block] = [*map(sequence_block, view.sequences)]
            num_more = excerpt.num_sequences - len(view.sequences)
            if num_more:
                command = f"`bridgepack inspect ARTIFACT --pack {view.index} --split {split.name}`"
                texts.append(Line(f"{num_more:,} more sequences: {command} shows all."))
            yield Section(
                title, (*blocks, Section(f"Show pack {view.index:,} of {split.name}", (*texts,), is_folded=True))
            )
        if not split.excerpts:
            yield Line(f"{split.name}: not known: {split.unknown}")
