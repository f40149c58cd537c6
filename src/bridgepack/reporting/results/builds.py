"""The blocks of a build, and of what a build would do."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from bridgepack.bridge.wiring import Packs, RunLength, run_length
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.repack import RepackPlan
from bridgepack.data.results import ArtifactPlan, BuildResult
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Code, Column, Line, Section, Table, Title
from bridgepack.reporting.results import shows
from bridgepack.reporting.results.artifacts import manifest_blocks
from bridgepack.reporting.text import MOST_LINES


@shows
def build_blocks(result: BuildResult, recipe: SFTRecipe | None = None) -> Iterator[Block]:
    """Yield inputs, packs, drops with reasons, location, and steps of the run.

    `recipe` is the run's (default: the manifest's, whose batch size may differ if nothing was built).
    """
    yield Title(_head(result))
    yield Section("", tuple(manifest_blocks(result.manifest, result.output)))
    for message in _work(result):
        yield Section("", (Line(message),))
    recipe = recipe or SFTRecipe.from_mapping(recorded_recipe_values(result.manifest))
    num_packs = {split.name: split.statistics.num_packs for split in result.manifest.splits}
    yield Section("", (run_line(run_length(recipe, Packs(folder=str(result.output), num_packs=num_packs))),))


def _head(result: BuildResult) -> str:
    if result.was_built_before:
        return f"Already built, nothing to do: {result.output}"
    if result.damage:
        return f"Built {result.output} again{_because_of(result.damage)}"
    if result.replaced_fingerprint == result.manifest.fingerprint:
        return f"Built {result.output} again"
    if result.replaced_fingerprint is not None:
        return f"Built {result.output} (replaced the artifact {result.replaced_fingerprint[:12]})"
    return f"Built {result.output}"


def _because_of(damage: Mapping[str, str]) -> str:
    (path, problem), num_more = next(iter(damage.items())), len(damage) - 1
    more = f"; {num_more:,} more {'file' if num_more == 1 else 'files'}" if num_more else ""
    return f", because the old one was changed: {path}: {problem}{more}"


def run_line(run: RunLength) -> Line:
    """Return the number of steps and epochs of a run, or a warning if training cannot start."""
    packs, batch, steps = run.num_packs, run.global_batch_size, run.num_steps
    if not run.lack:
        return Line(
            f"run: {packs:,} {'pack' if packs == 1 else 'packs'}, {batch:,} per step: {packs / batch:,.1f} steps per "
            f"epoch; {steps:,} {'step is' if steps == 1 else 'steps are'} {steps * batch / packs:,.1f} epochs"
        )
    maximum, least = run.most_packs_per_step, run.smallest_batch
    needs = f"A step takes at least {least:,} packs, for the data-parallel ranks"
    cure = f"Set {run.at_most(maximum)}." if maximum else f"{needs}. Use fewer GPUs, smaller packs or more data."
    return Line(f"warning: training cannot start: {count_text(packs, 'pack')} < global batch {batch:,}. {cure}")


def _work(result: BuildResult) -> Iterator[str]:
    reuse, upload = result.kept, result.upload
    if upload is not None:
        yield (
            f"A copy is in {upload.url}: {upload.num_sent:,} of {upload.num_files:,} files were sent, the others were "
            "already there"
        )
    if reuse.num_ranges_found or reuse.num_shards_found:
        yield (
            f"{reuse.num_ranges_found:,} of {reuse.num_ranges_found + reuse.num_ranges_tokenized:,} input ranges were "
            f"tokenised before; {reuse.num_shards_found:,} of {reuse.num_shards_found + reuse.num_shards_written:,} "
            "shards were written before"
        )
    if reuse.num_rows_copied:
        yield f"{reuse.num_rows_copied:,} rows, which both lengths leave whole, were tokenised before; the others now"
    yield from (f"note: {message}" for message in filter(None, (reuse.engine_message, reuse.served_message)))


@shows
def build_plan_blocks(plan: ArtifactPlan) -> Iterator[Block]:
    """Yield what a build would do, or a re-pack of an artifact."""
    source = plan.source if isinstance(plan, RepackPlan) else None
    yield Line(f"would do: {_action(plan, source)}")
    yield Line(f"output: {plan.output}")
    if plan.copy is not None:
        yield Line(f"copy: {plan.copy}")
    yield Line(f"fingerprint: {plan.spec.fingerprint}")
    if source is None:
        yield Section("", tuple(_input_blocks(plan)))
    values, balance = plan.spec.resolved.explain(), plan.spec.resolved.balance
    if balance is not None:
        values["balance"]["value"] = balance.describe()
    lines = tuple(f"{name} = {value['value']} ({value['because']})" for name, value in values.items())
    yield Section("", (Line("derived:", lines),))
    yield Section("", (Line("recipe:"), Code(plan.spec.resolved.recipe.model_dump_json(indent=2))))


def _input_blocks(plan: ArtifactPlan) -> Iterator[Block]:
    columns = (Column("File", "{}"), Column("Bytes", "  {} bytes", is_number=True), Column("sha256", "  sha256 {}"))
    for split, records in plan.spec.inputs.items():
        rows = [(record.path, f"{record.num_bytes:,}", record.sha256[:12]) for record in records]
        title = f"{split} inputs"
        yield Table(title=title, columns=columns, rows=rows, head=f"{title}:", most_rows=MOST_LINES)
        if split in plan.spec.skipped:
            yield Line(f"  {plan.spec.skipped[split].describe()}")


def _action(plan: ArtifactPlan, source: Path | None) -> str:
    if plan.is_built:
        return "nothing: it is already built"
    action = "build" if source is None else f"pack the sequences of {source} again"
    if isinstance(plan, RepackPlan) and plan.tokenises_again:
        action += ", after reading its inputs and tokenising again the conversations that the old or new length cuts"
    if plan.existing is not None:
        needs = " (needs --replace)" if plan.existing.fingerprint != plan.spec.fingerprint else ""
        why = _because_of(plan.damage) if plan.damage else ""
        action += f", and replace the artifact {plan.existing.fingerprint[:12]}{needs}{why}"
    return action
