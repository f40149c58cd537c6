"""Builds an artifact: inputs, tokens in the store, plan, shards, manifest; resumes an interrupted build."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard

from bridgepack.config.recipe.data import as_sources
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data import output as staging
from bridgepack.data.files import nearest_folder
from bridgepack.data.forecast import SpaceWatch
from bridgepack.data.identity import fingerprint, library_versions, store_key, tokenization_identity
from bridgepack.data.layouts.detection import readings_of
from bridgepack.data.layouts.reader import readers_of
from bridgepack.data.reading.inputs import InputFile, file_stamp, find_inputs, hash_file
from bridgepack.data.reading.ranges import is_streamed
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.reading.rows import has_row
from bridgepack.data.reading.skipped import FilesBelow
from bridgepack.data.results import BuildOptions, BuildPlan, BuildResult, no_sample
from bridgepack.data.stages.finish import RangeResult
from bridgepack.data.stages.retokenise import EarlierTokens
from bridgepack.data.stages.tokenise import (
    SampleTask,
    Tokenization,
    checked_engine,
    stage_identity,
    tokenized_ranges,
    tokenizer_identity,
)
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.store.builds import RangeRecord
from bridgepack.data.store.store import default_store
from bridgepack.data.tasks import InThisProcess, Progress, Runner, SilentProgress, TaskFailure
from bridgepack.data.tokenizers.engines import REFERENCE, EngineDiffersError
from bridgepack.data.tokenizers.limits import within_memory
from bridgepack.data.upload import refuse_replacing_at, upload_artifact, upload_place
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.process import TOKENISING, preload
from bridgepack.data.workplace import Workplace, complete_on_interrupt, tasks_runner, workplace
from bridgepack.errors import DataError
from bridgepack.records import TRAIN, VALIDATION, BalanceRecord, InputRecord, ServedRecord, SkippedFiles

DEFAULT_FOLDER = "artifacts"
#: Input bytes for which one more worker pays off.
_BYTES_PER_WORKER = 1 << 21
_MAX_THREADS = 8


def build_artifact(
    recipe: SFTRecipe,
    *,
    output: Path | str | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
    options: BuildOptions | None = None,
    balance: BalanceRecord | None = None,
) -> BuildResult:
    """Return the result of building a recipe's artifact; resumes an interrupted build, reuses a finished artifact.

    The output is by default the recipe's, else `NAME-FINGERPRINT` in `artifacts`; with a URL, the artifact is built
    there and copied to the URL. `balance` comes from `planning.balance.balance_for`.

    Raises:
        ConfigError: the recipe contradicts itself, or the package that writes to the URL is not installed.
        TokenizerError: the tokenizer cannot be loaded or cannot do what the recipe asks.
        DataError: an input is missing or unreadable, no sequence is left to pack, or a bad row stops the build.
        ArtifactError: the output cannot be written, or holds other files or an artifact that may not be replaced.
        StoreError: the token store cannot be written.
        BuildInterrupted: on Ctrl-C; says what is kept.
        ArtifactInUseError: another build is writing it.
    """
    display, options = progress or SilentProgress(), options or BuildOptions()
    copy = checked_places(recipe, output=output, artifacts=artifacts, options=options)
    how: dict[str, Any] = {"output": output, "artifacts": artifacts, "progress": display, "balance": balance}
    with ExitStack() as stack:
        plan = stack.enter_context(planned_build(recipe, options=options, copy=copy, **how))
        result = plan.existing_result(options)
        if result is None:
            with workplace(plan, options.store or default_store(plan.output), display) as place:
                result = finish_build(plan, place, options)
        with complete_on_interrupt(result.output):
            stack.close()
            if plan.copy is None:
                return result
            return replace(result, upload=upload_artifact(result.output, plan.copy, display))


def checked_places(
    recipe: SFTRecipe,
    *,
    output: Path | str | None,
    options: BuildOptions,
    artifacts: Path = Path(DEFAULT_FOLDER),
) -> str | None:
    """Return the URL of a build's copy, None without one, after checking that all places can be written.

    Raises:
        ConfigError, ArtifactError, StoreError: one cannot.
    """
    copy = upload_place(output) if _is_url(output) else None
    likely_folder = _named_folder(recipe, output) or artifacts / recipe.name
    staging.refuse_unwritable(likely_folder, options.store or default_store(likely_folder))
    return copy


@contextmanager
def planned_build(
    recipe: SFTRecipe,
    *,
    output: Path | str | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
    options: BuildOptions | None = None,
    balance: BalanceRecord | None = None,
    copy: str | None = None,
) -> Iterator[BuildPlan]:
    """Yield the plan of a build; the first worker loads the tokenizer and its engine while inputs are hashed.

    Writes only Hugging Face data sets, to a folder that is removed afterwards. `copy` is from `checked_places`.
    """
    options, output_folder = options or BuildOptions(), _named_folder(recipe, output)
    _refuse_early(recipe, output_folder, balance)
    with ExitStack() as stack:
        if options.num_workers > 0:
            preload(TOKENISING)
        workers = stack.enter_context(WorkerPool()) if options.num_workers > 0 else InThisProcess()
        text = recipe.model_dump_json()
        identity = workers.begin(partial(within_memory, options.memory_bytes, tokenizer_identity, text))
        parent = nearest_folder((output_folder or Path(DEFAULT_FOLDER)).absolute().parent) if options.ray else None
        scratch = stack.enter_context(TemporaryDirectory(prefix=".bridgepack-", dir=parent))
        files, skipped_files = find_files(recipe, Path(scratch))
        every_file = tuple(file for members in files.values() for file in members)
        num_bytes = sum(file.num_bytes for file in every_file)
        load = partial(checked_engine, text, recipe.tokenizer.engine, num_bytes, every_file)
        engine = workers.begin(partial(within_memory, options.memory_bytes, load))
        stamps = {file.path: file_stamp(file.path) for file in every_file}
        hashes = iter(_begin_hashing(every_file, options.num_workers, stack))
        tokenizer = identity()
        inputs = _input_records(files, hashes, progress or SilentProgress())
        resolved_recipe = recipe.resolve(balance, readings_of(recipe, files))
        digest = fingerprint(resolved_recipe, tokenizer, inputs)
        _refuse_replacing(copy, digest, options)
        folder = output_folder or artifacts / f"{recipe.name}-{digest[:12]}"
        staging.refuse_foreign_folder(folder)
        spec = ArtifactSpec(
            resolved=resolved_recipe,
            fingerprint=digest,
            tokenizer=tokenizer,
            versions=library_versions(),
            inputs=inputs,
            skipped=skipped_files,
        )
        existing, plan = staging.existing_manifest(folder), partial(BuildPlan, workers=workers, engine=engine)
        yield plan(output=folder, copy=copy, spec=spec, existing=existing, files=files, stamps=stamps)


def _begin_hashing(files: Sequence[InputFile], num_workers: int, stack: ExitStack) -> list[Future[str]]:
    """Begin to hash files in threads, which end with the stack."""
    threads, is_over = ThreadPoolExecutor(max(1, min(num_workers, _MAX_THREADS))), threading.Event()
    stack.callback(threads.shutdown, cancel_futures=True)
    stack.callback(is_over.set)
    return [threads.submit(hash_file, file.path, is_over) for file in files]


def _refuse_early(recipe: SFTRecipe, folder: Path | None, balance: BalanceRecord | None) -> None:
    """Raise what can be said of a build before its data is looked at."""
    recipe.resolve(balance)
    if folder is not None:
        staging.refuse_foreign_folder(folder)


def _refuse_replacing(copy: str | None, digest: str, options: BuildOptions) -> None:
    if copy is not None and not options.replaces:
        refuse_replacing_at(copy, digest)


def _is_url(output: Path | str | None) -> TypeGuard[str]:
    return isinstance(output, str) and scheme_of(output) is not None


def _named_folder(recipe: SFTRecipe, output: Path | str | None) -> Path | None:
    """Return the artifact folder that `output` or the recipe names; None if neither does, or it is a URL."""
    place = recipe.artifact if output is None or _is_url(output) else output
    return None if place is None else Path(place)


def find_files(recipe: SFTRecipe, scratch: Path) -> tuple[dict[str, list[InputFile]], dict[str, SkippedFiles]]:
    """Return the input files of each split, and what its folders and prefixes have beside them if there is anything.

    Writes Hugging Face data sets to the folder `scratch` first.

    Raises:
        DataError: an input is missing, or a split has no rows.
    """
    view_of, files, skipped_files = readers_of(recipe), {}, {}
    for split, field, sources in (
        (TRAIN, "train", recipe.data.train),
        (VALIDATION, "validation", recipe.data.validation),
    ):
        if sources is None:
            continue
        below = FilesBelow()
        files[split] = find_inputs(as_sources(sources), f"data.{field}", split, scratch, view_of, below)
        if (files_not_read := below.without([file.path for file in files[split]])) is not None:
            skipped_files[split] = files_not_read
    for split, members in files.items():
        if not any(file.num_bytes and has_row(file, recipe.data.max_row_bytes) for file in members):
            names = ", ".join(file.label for file in members[:3])
            raise DataError(f"the {split} split has no rows ({names}). Check the files.")
    return files, skipped_files


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierBuild:
    """A build of the same rows whose recipe has another maximum length."""

    recipe: SFTRecipe
    ranges: Mapping[str, Sequence[RangeRecord]]  #: split -> its token files in the same store


def finish_build(
    plan: BuildPlan, place: Workplace, options: BuildOptions, earlier: EarlierBuild | None = None
) -> BuildResult:
    """Return the result of a planned build; copies the tokens of rows that fit both lengths from an earlier build.

    Raises:
        DataError: an input changed during the build, no sequence is left to pack, or a bad row stops the build.
        StoreError: the token store cannot be written.
    """
    spec, recipe, num_bytes = plan.spec, plan.spec.resolved.recipe, plan.spec.num_input_bytes
    report = plan.engine()
    place.kept.engine_message = report.message
    useful_workers = min(max(options.num_workers, 1), 1 + num_bytes // _BYTES_PER_WORKER)
    load = partial(stage_identity, recipe.model_dump_json(), _task_engine(recipe, report.name), num_bytes)
    running = tasks_runner(plan.workers, options, useful_workers, place, load=load, identity=spec.tokenizer)
    with running as (runner, text_bytes):
        try:
            results, served_record = _tokenize(plan, place, runner, text_bytes, report.name, earlier)
        except EngineDiffersError as error:
            place.kept.engine_message = f"all rows were tokenised again with tokenizers: {error}"
            results, served_record = _tokenize(plan, place, runner, text_bytes, REFERENCE, earlier)
        for path, stamp in plan.stamps.items():
            if not path.is_file() or file_stamp(path) != stamp:
                raise DataError(f"{path} changed during the build. Build again when no process writes to it.")
        return place.finish(runner, results, served_record)


def _tokenize(
    plan: BuildPlan, place: Workplace, runner: Runner, text_bytes: int, engine: str, earlier: EarlierBuild | None
) -> tuple[dict[str, list[RangeResult]], ServedRecord | None]:
    """Return split -> results of its input ranges, after their tokens are in the store; and the sample of answers."""
    spec, recipe, store = plan.spec, plan.spec.resolved.recipe, place.store
    identity = tokenization_identity(recipe, spec.tokenizer, engine)
    key = store_key(identity)
    store.write_identity(key, {"tokenizer": spec.tokenizer["name_or_path"], "depends_on": identity})
    space = SpaceWatch(plan.output, store.folder, [file for files in plan.files.values() for file in files])
    space.refuse_full_disks()
    place.kept.num_ranges_tokenized = place.kept.num_ranges_found = place.kept.num_rows_copied = 0
    how = Tokenization(
        key=key,
        recipe_json=recipe.model_dump_json(),
        engine=_task_engine(recipe, engine),
        num_input_bytes=spec.num_input_bytes,
        max_text_bytes=text_bytes,
    )
    results: dict[str, list[RangeResult]] = {}
    served_record, is_chat = None, recipe.chat_preprocessing is not None
    for source, files in plan.files.items():
        sample = SampleTask(how=how, files=tuple(files)) if source == TRAIN and is_chat else None
        total = None if any(map(is_streamed, files)) else sum(file.num_bytes for file in files)
        place.progress.start(f"Tokenising {source}", total, "rows")
        files_with_hashes = zip(files, (record.sha256 for record in spec.inputs[source]), strict=True)
        settings = spec.finish_settings(source, place.folder)
        results[source] = []
        ranges = tokenized_ranges(
            runner,
            files_with_hashes,
            how,
            settings,
            store,
            max_row_bytes=recipe.data.max_row_bytes,
            sample=sample,
            earlier={} if earlier is None else _earlier_tokens(plan, place, engine, earlier, source),
        )
        for result in ranges:
            if isinstance(result, ServedRecord):
                served_record = result
                continue
            if isinstance(result, TaskFailure):
                place.kept.served_message = no_sample(result.detail)
                continue
            results[source].append(result)
            place.progress.advance(result.num_rows, work=result.num_bytes)
            place.kept.add_range(result)
            space.add(result)
        place.progress.finish()
    return results, served_record


def _earlier_tokens(
    plan: BuildPlan, place: Workplace, engine: str, earlier: EarlierBuild, source: str
) -> dict[tuple[int, int], EarlierTokens]:
    """Return a split's earlier tokens, by the index of their file and the number of their first row."""
    key = store_key(tokenization_identity(earlier.recipe, plan.spec.tokenizer, engine))
    recipe = plan.spec.resolved.recipe
    shorter = min(sft_recipe.resolve().max_sequence_length.value for sft_recipe in (earlier.recipe, recipe))
    splits = getattr(recipe.chat_preprocessing, "over_long", "") == "split_exchanges"
    return {
        (item.file_index, item.first_row): EarlierTokens(
            token_file=place.store.path_of(item.token_file), tokenization=key, shorter=shorter, splits=splits
        )
        for item in earlier.ranges.get(source, ())
    }


def _task_engine(recipe: SFTRecipe, engine: str) -> str:
    """Return the engine that tasks use: the reference, or the recipe's setting if its engine passed the comparison."""
    return REFERENCE if engine == REFERENCE else recipe.tokenizer.engine


def _input_records(
    files: Mapping[str, Sequence[InputFile]], hashes: Iterator[Future[str]], progress: Progress
) -> dict[str, tuple[InputRecord, ...]]:
    """Return split -> records of its files, without their row counts, once all are hashed."""
    progress.start("Hashing inputs", sum(file.num_bytes for members in files.values() for file in members), "files")
    records_of: dict[str, list[InputRecord]] = {}
    for split, members in files.items():
        records_of[split] = []
        for file in members:
            size, sha256 = file.num_bytes, next(hashes).result()
            names = () if file.view is None else file.view.reading.names
            record = InputRecord(
                path=file.label,
                num_bytes=size,
                sha256=sha256,
                num_rows=0,
                source=file.source,
                read_as=dict.fromkeys(names, 0),
            )
            records_of[split].append(record)
            progress.advance(1, work=size)
    progress.finish()
    return {split: tuple(records) for split, records in records_of.items()}
