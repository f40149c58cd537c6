"""Repacks an artifact's sequences from the token store: other sizes or topology, without tokenising."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data import output as staging
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.identity import fingerprint, library_versions, tokenization_settings
from bridgepack.data.results import ArtifactPlan, BuildOptions, BuildResult
from bridgepack.data.stages.finish import RangePlace, RangeResult
from bridgepack.data.stages.tokenise import finish_stored
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.store.builds import BuildRecord, find_build_record
from bridgepack.data.store.store import TokenStore, default_store, existing_store
from bridgepack.data.tasks import InThisProcess, Progress, Runner, SilentProgress, result_of
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.process import PACKING, preload
from bridgepack.data.workplace import Workplace, tasks_runner, workplace
from bridgepack.errors import ConfigError, StoreError
from bridgepack.records import BalanceRecord, ServedRecord

#: Versions that a re-pack updates; the others belong to the tokens.
_PACKING_LIBRARIES = frozenset({"bridgepack", "pyarrow"})
_NAMED_RANGES = 3
#: Input bytes for which one more worker pays off.
_BYTES_PER_WORKER = 1 << 26
_ADVICE = "Run `bridgepack build` with the changed recipe instead: it tokenises only what is missing."


@dataclass(frozen=True, kw_only=True)
class RepackPlan(ArtifactPlan):
    """Plan of a re-pack of the artifact in the folder `source`."""

    source: Path
    source_fingerprint: str
    served: ServedRecord | None = None  #: the source's sample of answers, if it holds for these packs, too

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {"source": str(self.source), **super().to_dict()}


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
    _refuse_other_tokens(before, recipe)
    resolved = recipe.resolve(balance)
    splits = manifest.splits[:1] if before.data.validation_fraction > 0 else manifest.splits
    inputs = {split.name: split.inputs for split in splits}
    current = library_versions()
    versions = {name: current[name] if name in _PACKING_LIBRARIES else text for name, text in manifest.versions.items()}
    digest = fingerprint(resolved, manifest.tokenizer, inputs, versions=versions)
    folder = output or artifact.resolve().parent / f"{recipe.name}-{digest[:12]}"
    staging.refuse_foreign_folder(folder)
    return RepackPlan(
        source=artifact,
        output=folder,
        spec=ArtifactSpec(
            resolved=resolved, fingerprint=digest, tokenizer=manifest.tokenizer, versions=versions, inputs=inputs
        ),
        existing=staging.existing_manifest(folder),
        source_fingerprint=manifest.fingerprint,
        served=manifest.served if _cuts_alike(before, recipe) else None,
    )


def repack_artifact(
    artifact: Path,
    changes: Mapping[str, Any],
    *,
    output: Path | None = None,
    progress: Progress | None = None,
    options: BuildOptions | None = None,
    balance: BalanceRecord | None = None,
) -> BuildResult:
    """Return the result of packing an artifact's sequences again with other settings, from the tokens in the store.

    The bytes equal those of a build of the changed recipe. The inputs are not read. The output is by default
    `NAME-FINGERPRINT` beside the old artifact, and the store the old artifact's. `changes` are dotted path of a recipe
    field -> new value; `balance` comes from `planning.balance.balance_for`.

    Raises:
        ArtifactError, ConfigError: see `plan_repack`; or the output cannot be written, or holds another artifact that
            may not be replaced.
        StoreError: the store lacks tokens of the artifact, or its record of the artifact was changed.
        DataError: no sequence is left to pack, or an over-long row stops the build.
        BuildInterrupted: on Ctrl-C; says what is kept.
    """
    shown, options = progress or SilentProgress(), options or BuildOptions()
    plan = plan_repack(artifact, changes, output=output, balance=balance)
    if (reused := plan.reused(options)) is not None:
        return reused
    store = existing_store(options.store or default_store(artifact)).folder
    staging.refuse_unwritable(plan.output, store)
    wanted = min(max(options.num_workers, 1), 1 + plan.spec.num_input_bytes // _BYTES_PER_WORKER)
    is_alone = wanted == 1 and options.ray is None
    if not is_alone:
        preload(PACKING)
    with (
        workplace(plan, store, shown) as place,
        nullcontext(InThisProcess()) if is_alone else WorkerPool() as workers,
        tasks_runner(workers, options, wanted, place) as (runner, _),
    ):
        return place.finish(runner, _stored_ranges(plan, place, runner), plan.served)


def _cuts_alike(before: SFTRecipe, after: SFTRecipe) -> bool:
    """Return whether two recipes cut and drop the same sequences, and are for the same server."""
    first, second = (
        (
            one.packing.max_sequence_length or one.packing.packed_sequence_size,
            one.parallelism.multiple,
            one.packing.pad_seq_to_mult,
            one.chat_preprocessing,
            one.serving,
        )
        for one in (before, after)
    )
    return first == second


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
        named = ", ".join(missing[:_NAMED_RANGES]) + (", ..." if len(missing) > _NAMED_RANGES else "")
        raise StoreError(
            f"{where} lacks the tokens of {len(missing):,} of the {total:,} input ranges of {str(plan.source)!r}: "
            f"{named}. {_ADVICE}"
        )
    return record


def _refuse_other_tokens(before: SFTRecipe, after: SFTRecipe) -> None:
    """Check that two recipes make the same tokens; raises ConfigError with the fields that differ."""
    old, new = tokenization_settings(before), tokenization_settings(after)
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if before.fields_on_auto != after.fields_on_auto:
        changed.append("packing.mode")  # where the host reads the data, `auto` decides nothing
    if changed:
        length = "packing.max_sequence_length"
        action = after.chat_preprocessing and after.chat_preprocessing.over_long
        why = f" ({length} is by default packed_sequence_size; preprocessing.over_long {action} depends on it)"
        raise ConfigError(
            f"{', '.join(changed)} would be changed, which changes the tokens{why if length in changed else ''}; "
            "repack can only change how sequences are packed. Use `bridgepack build` with the changed recipe."
        )
