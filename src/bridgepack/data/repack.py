"""Repacks an artifact's sequences from the token store: other sizes or topology, without tokenising.

Where conversations are cut between exchanges, another maximum length cuts other ones: those are read and tokenised
again, as by a build that finds the tokens of all other rows.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data import output as staging
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.build import EarlierBuild, finish_build, planned_build
from bridgepack.data.identity import fingerprint, library_versions, tokenization_settings
from bridgepack.data.layouts.detection import recorded_readings
from bridgepack.data.results import ArtifactPlan, BuildOptions, BuildPlan, BuildResult, no_sample
from bridgepack.data.stages.finish import RangePlace, RangeResult
from bridgepack.data.stages.tokenise import finish_stored
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.store.builds import BuildRecord, find_build_record
from bridgepack.data.store.store import TokenStore, default_store, existing_store
from bridgepack.data.tasks import InThisProcess, Progress, Runner, SilentProgress, result_of
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.process import PACKING, preload
from bridgepack.data.workplace import Workplace, tasks_runner, workplace
from bridgepack.errors import ArtifactError, ConfigError, DataError, StoreError
from bridgepack.records import BalanceRecord, ServedRecord

#: Versions that a re-pack updates; the others belong to the tokens.
_PACKING_LIBRARIES = frozenset({"bridgepack", "pyarrow"})
_NAMED_RANGES = 3
#: Input bytes for which one more worker pays off.
_BYTES_PER_WORKER = 1 << 26
#: Setting of which the tokens of conversations that are cut between exchanges depend.
_LENGTH = "packing.max_sequence_length"
_ADVICE = "Run `bridgepack build` with the changed recipe instead: it tokenises only what is missing."


@dataclass(frozen=True, kw_only=True)
class RepackPlan(ArtifactPlan):
    """Plan of a re-pack of the artifact in the folder `source`."""

    source: Path
    source_fingerprint: str
    served: ServedRecord | None = None  #: the source's sample of answers
    shows_alike: bool = True  #: both recipes show the same answers to the same server, but for what they cut
    #: both recipes cut no sequence of at most so many runtime tokens; None if they cut all sequences alike
    cuts_above: int | None = None
    before: SFTRecipe  #: the source's recipe
    #: the new length cuts other conversations, so the inputs are read, and these rows tokenised again
    tokenises_again: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {"source": str(self.source), "tokenises_again": self.tokenises_again, **super().to_dict()}


def plan_repack(
    artifact: Path, changes: Mapping[str, Any], *, output: Path | None = None, balance: BalanceRecord | None = None
) -> RepackPlan:
    """Return the plan of `repack_artifact` with these arguments.

    Raises:
        ArtifactError: the folder is not an artifact or was changed, or the output holds other files.
        ConfigError: a change is invalid, or would change the tokens.
    """
    manifest = Artifact(artifact).manifest
    before = SFTRecipe.from_mapping(recorded_recipe_values(manifest))
    recipe = before.override(changes)
    tokenises_again = _changed_tokens(before, recipe)
    resolved_recipe = recipe.resolve(balance, recorded_readings(recipe, manifest))
    splits = manifest.splits[:1] if before.data.validation_fraction > 0 else manifest.splits
    inputs = {split.name: split.inputs for split in splits}
    current = library_versions()
    versions = {name: current[name] if name in _PACKING_LIBRARIES else text for name, text in manifest.versions.items()}
    digest = fingerprint(resolved_recipe, manifest.tokenizer, inputs, versions=versions)
    folder = output or artifact.resolve().parent / f"{recipe.name}-{digest[:12]}"
    staging.refuse_foreign_folder(folder)
    return RepackPlan(
        source=artifact,
        output=folder,
        spec=ArtifactSpec(
            resolved=resolved_recipe,
            fingerprint=digest,
            tokenizer=manifest.tokenizer,
            versions=versions,
            inputs=inputs,
            skipped={split.name: split.skipped_files for split in splits if split.skipped_files is not None},
        ),
        existing=staging.existing_manifest(folder),
        source_fingerprint=manifest.fingerprint,
        served=manifest.served,
        shows_alike=_shows_alike(before, recipe),
        cuts_above=None if _cuts_alike(before, recipe) else min(map(_longest, (before, recipe))),
        before=before,
        tokenises_again=tokenises_again,
    )


def repack_artifact(
    artifact: Path,
    changes: Mapping[str, Any],
    *,
    output: Path | None = None,
    progress: Progress | None = None,
    options: BuildOptions | None = None,
    balance: BalanceRecord | None = None,
    is_trusted: bool = False,
) -> BuildResult:
    """Return the result of packing an artifact's sequences again with other settings, from the tokens in the store.

    The bytes equal those of a build of the changed recipe. The inputs are read only if `RepackPlan.tokenises_again`.
    The output is by default `NAME-FINGERPRINT` beside the old artifact, and the store the old artifact's. `changes` are
    dotted path of a recipe field -> new value; `balance` comes from `planning.balance.balance_for`; `is_trusted` lets
    code run that comes with the tokenizer, where rows are tokenised again.

    Raises:
        ArtifactError, ConfigError: see `plan_repack`; or the output cannot be written, or holds another artifact that
            may not be replaced; or rows must be tokenised again, but the tokenizer or a version changed.
        StoreError: the store lacks tokens of the artifact, or its record of the artifact was changed.
        DataError: no sequence is left to pack, or an over-long row stops the build; or rows must be tokenised again,
            but an input is gone or has changed.
        BuildInterrupted: on Ctrl-C; says what is kept.
    """
    display, options = progress or SilentProgress(), options or BuildOptions()
    plan = plan_repack(artifact, changes, output=output, balance=balance)
    if (earlier_result := plan.existing_result(options)) is not None:
        return earlier_result
    store = existing_store(options.store or default_store(artifact)).folder
    staging.refuse_unwritable(plan.output, store)
    if plan.tokenises_again:
        refuse_tokenizer_code(plan.spec.resolved.recipe, is_trusted=is_trusted)
        return _tokenised_again(plan, store, display, options, balance)
    num_workers = min(max(options.num_workers, 1), 1 + plan.spec.num_input_bytes // _BYTES_PER_WORKER)
    is_alone = num_workers == 1 and options.ray is None
    if not is_alone:
        preload(PACKING)
    with (
        workplace(plan, store, display) as place,
        nullcontext(InThisProcess()) if is_alone else WorkerPool() as workers,
        tasks_runner(workers, options, num_workers, place) as (runner, _),
    ):
        results = _stored_ranges(plan, place, runner)
        return place.finish(runner, results, _served_record(plan, place, results))


def _longest(recipe: SFTRecipe) -> int:
    """Return a recipe's maximum length, in runtime tokens."""
    return recipe.resolve().max_sequence_length.value


def _shows_alike(before: SFTRecipe, after: SFTRecipe) -> bool:
    """Return whether two recipes differ for answers at most in what they cut, and are for the same server."""
    first, second = (recipe.chat_preprocessing and recipe.chat_preprocessing.model_dump() for recipe in (before, after))
    if first and second:
        first["over_long"] = second["over_long"]
    return first == second and before.serving == after.serving


def _cuts_alike(before: SFTRecipe, after: SFTRecipe) -> bool:
    """Return whether two recipes cut and drop the same sequences."""
    actions = [recipe.chat_preprocessing and recipe.chat_preprocessing.over_long for recipe in (before, after)]
    return actions[0] == actions[1] and _longest(before) == _longest(after)


def _served_record(
    plan: RepackPlan, place: Workplace, results: Mapping[str, Sequence[RangeResult]]
) -> ServedRecord | None:
    """Return the source's sample of answers if it is that of a build, too; else say why not."""
    longest = max((item.longest - 1 for ranges in results.values() for item in ranges), default=0)
    if plan.served is None or (plan.shows_alike and (plan.cuts_above is None or longest <= plan.cuts_above)):
        return plan.served
    why = "preprocessing or serving has changed"
    if plan.shows_alike:
        why = f"sequences of more than {plan.cuts_above:,} runtime tokens are cut or dropped differently now"
    place.kept.served_message = no_sample(why)
    return None


def _stored_ranges(plan: RepackPlan, place: Workplace, runner: Runner) -> dict[str, list[RangeResult]]:
    record = _record(plan, place.store)
    place.progress.start("Reading the store", sum(map(len, record.ranges.values())), "ranges")
    results: dict[str, list[RangeResult]] = {}
    for source, ranges in record.ranges.items():
        settings, inputs = plan.spec.finish_settings(source, place.folder), plan.spec.inputs[source]
        kinds = plan.spec.resolved.recipe.kinds_of_sources(source)
        places = (
            RangePlace(
                file_index=item.file_index,
                label=inputs[item.file_index].path,
                first_row=item.first_row,
                token_file=place.store.path_of(item.token_file),
                kind=kinds[inputs[item.file_index].source],
            )
            for item in ranges
        )
        results[source] = []
        for outcome in runner.run(finish_stored, ((settings, range_place) for range_place in places)):
            results[source].append(result_of(outcome))
            place.kept.add_range(results[source][-1])
            place.progress.advance(1)
    place.progress.finish()
    return results


def _record(plan: RepackPlan, store: TokenStore) -> BuildRecord:
    """Return the record of the artifact's token files.

    Raises:
        StoreError: the store lacks any of them, or the record was changed.
    """
    record = find_build_record(store, plan.source_fingerprint)
    where = f"the token store {str(store.folder)!r}"
    if record is None:
        raise StoreError(
            f"{where} has no record of the artifact {str(plan.source)!r}: it was built with another --store, "
            f"or the store was emptied. {_ADVICE}"
        )
    missing = [
        f"{plan.spec.inputs[source][item.file_index].path} from row {item.first_row}"
        for source, ranges in record.ranges.items()
        for item in ranges
        if not store.path_of(item.token_file).is_file()
    ]
    if missing:
        total = sum(len(ranges) for ranges in record.ranges.values())
        examples = ", ".join(missing[:_NAMED_RANGES]) + (", ..." if len(missing) > _NAMED_RANGES else "")
        raise StoreError(
            f"{where} lacks the tokens of {len(missing):,} of the {total:,} input ranges of {str(plan.source)!r}: "
            f"{examples}. {_ADVICE}"
        )
    return record


def _tokenised_again(
    plan: RepackPlan, store: Path, progress: Progress, options: BuildOptions, balance: BalanceRecord | None
) -> BuildResult:
    """Return the result of a build with the new length; the rows that fit both lengths come from the store."""
    recipe = plan.spec.resolved.recipe
    why = (
        f"repack to another {_LENGTH} reads the rows that preprocessing.over_long "
        f"{recipe.chat_preprocessing and recipe.chat_preprocessing.over_long} cuts again, "
    )
    with ExitStack() as stack:
        try:
            planning = planned_build(recipe, output=plan.output, progress=progress, options=options, balance=balance)
            build = stack.enter_context(planning)
        except DataError as error:
            raise DataError(f"{why}but: {error}") from None
        _refuse_changed(plan, build, why)
        place = stack.enter_context(workplace(build, store, progress))
        record = _record(plan, place.store)
        return finish_build(build, place, options, EarlierBuild(recipe=plan.before, ranges=record.ranges))


def _refuse_changed(plan: RepackPlan, build: BuildPlan, why: str) -> None:
    """Check that a build of the recipe makes the planned artifact.

    Raises:
        DataError: an input has changed.
        ArtifactError: the tokenizer or a library's version has changed.
    """
    for split, records in plan.spec.inputs.items():
        old, new = (
            {record.path: record.sha256 for record in inputs} for inputs in (records, build.spec.inputs.get(split, ()))
        )
        changes = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
        if changes:
            examples = ", ".join(changes[:_NAMED_RANGES]) + (", ..." if len(changes) > _NAMED_RANGES else "")
            raise DataError(
                f"{why}but {len(changes):,} of the {split} files differ from those that {str(plan.source)!r} was built "
                f"from: {examples}. Restore them, or use `bridgepack build`, which reads the files as they are now."
            )
    then, now = plan.spec.versions, build.spec.versions
    changes = [f"{name} {then.get(name)} -> {now[name]}" for name in now if then.get(name) != now[name]]
    if build.spec.tokenizer != plan.spec.tokenizer:
        changes.append("tokenizer.name_or_path")
    if changes or build.spec.fingerprint != plan.spec.fingerprint:
        raise ArtifactError(
            f"{why}but {', '.join(changes) or 'the fingerprint'} has changed since {str(plan.source)!r} was built, and "
            "may change tokens. Restore it, or use `bridgepack build`, which tokenises all rows again."
        )


def _changed_tokens(before: SFTRecipe, after: SFTRecipe) -> bool:
    """Return whether the maximum length alone changes the tokens; raises ConfigError if other fields do."""
    old, new = tokenization_settings(before), tokenization_settings(after)
    changes = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if before.fields_on_auto != after.fields_on_auto:
        changes.append("packing.mode")  # where the host reads the data, `auto` decides nothing
    if set(changes) - {_LENGTH}:
        raise ConfigError(
            f"{', '.join(changes)} would be changed, which changes the tokens; repack can only change how sequences "
            "are packed. Use `bridgepack build` with the changed recipe."
        )
    return bool(changes)
