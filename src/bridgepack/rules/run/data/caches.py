"""Rules on packs and caches of an earlier run that the host reuses silently."""

import itertools
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from bridgepack.records import TRAIN
from bridgepack.records.messages import say
from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.rule import ADVICE, EXECUTED, WARNING, Found, fixable_rule, place, rule, wrong
from bridgepack.rules.judging.subject import HAS_SPECS, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.data.packed_paths import (
    PATH_SETTINGS,
    VALIDATION,
    cached_packs,
    explicit_paths,
    raw_root,
    resolve_path,
    splits_packed_by_host,
)
from bridgepack.rules.run.data.supply import num_packs
from bridgepack.rules.run.reading import per_token_loss

_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model"),
    *("chat_template.jinja", "special_tokens_map.json", "added_tokens.json"),
)
_TOKENIZER_NAME = f"{SPECS}.tokenizer_model_name"


def _older_caches(run: Run, split: str, newer: str, files: Files) -> tuple[str, ...]:
    changed_s = files.modified_s(newer)
    if changed_s is None:
        return ()
    caches = [(path, files.modified_s(path)) for path in cached_packs(run, split, files)]
    return tuple(path for path, written_s in caches if written_s is not None and written_s < changed_s)


@rule("BP208", WARNING, "PSB208; bridge/data/builders/gpt_sft.py:83, 652", evidence=EXECUTED)
def cached_packs_older_than_data(run: Run) -> Found:
    """The host's cached packs are older than the raw data, and the host will reuse them.

    Why: Silent: the cache key has no content, time or size of the data, so the run trains on the old data.
    Bad: packs written on Monday, training.jsonl on Tuesday. Good: training.jsonl on Monday, packs on Tuesday.
    Fix: Delete the folder that the finding names, or use packs built by `bridgepack build`.
    Noticed: never: "Skipping packed training data preparation - already exists".
    """
    for split in splits_packed_by_host(run):
        raw = f"{raw_root(run)}/{split}.jsonl"
        for cache in _older_caches(run, split, raw, run.require_files()):
            yield wrong(place(cache), f"older than {raw}", "packs of the current data")


@rule("BP209", WARNING, "PSB209; bridge/data/builders/gpt_sft.py:83, 897", when=splits_packed_by_host)
def cached_packs_older_than_tokenizer(run: Run) -> Found:
    """The host's cached packs are older than a file of the tokenizer, and the host will reuse them.

    Why: Silent: the cache key has the tokenizer's path, not its content; the run trains on ids of the old tokenizer.
    Bad: packs written on Monday, chat_template.jinja on Tuesday. Good: the template on Monday, packs on Tuesday.
    Fix: Delete the folder that the finding names, or set a new {dataset.offline_packing_specs.tokenizer_model_name} for
        every tokenizer.
    """
    folder = (run.text_or_none("tokenizer.tokenizer_model") or "").rstrip("/")
    for name, split in itertools.product(_TOKENIZER_FILES, splits_packed_by_host(run)):
        for cache in _older_caches(run, split, f"{folder}/{name}", run.require_files()):
            yield wrong(place(cache), f"older than {folder}/{name}", "packs made with this tokenizer", group=cache)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


@fixable_rule(
    "BP210",
    WARNING,
    "PSB210; bridge/data/builders/gpt_sft.py:903",
    when=splits_packed_by_host,
    evidence=EXECUTED,
)
def cache_named_for_another_tokenizer(run: Run) -> Found:
    """The host packs the data, and tokenizer_model_name is not the name of the tokenizer.

    Why: Silent: the cache key identifies the tokenizer by this name only; tokenizers with one name share their packs.
    Bad: tokenizer_model_name my-packs, tokenizer_model meta-llama/Llama-3.2-1B. Good: llama-3.2-1b-v2.
    Fix: Set {dataset.offline_packing_specs.tokenizer_model_name} to null, or to a name that contains the tokenizer's
        name.
    """
    name, tokenizer = run.text_or_none(_TOKENIZER_NAME), run.text_or_none("tokenizer.tokenizer_model")
    if name is None or tokenizer is None:
        return
    plain_name, last = _plain(name), _plain(tokenizer.rstrip("/").rpartition("/")[2])
    if last not in plain_name and plain_name not in _plain(tokenizer):
        actual, allowed_values = f"{name}, for {tokenizer}", "null, or a name that contains the tokenizer's name"
        yield wrong(_TOKENIZER_NAME, actual, allowed_values, to=None, because="the host derives it from the tokenizer")


@rule("BP211", ADVICE, "PSB211; bridge/data/builders/gpt_sft.py:906", when=splits_packed_by_host)
def cache_named_for_a_folder(run: Run) -> Found:
    """The host packs the data, and the cache is named by the full path of the tokenizer's local folder.

    Why: Slow: the host packs again on another machine, after a move, or if the path ends with a slash.
    Bad: tokenizer_model /checkpoints/llama, tokenizer_model_name null. Good: tokenizer_model_name llama.
    Fix: Set {dataset.offline_packing_specs.tokenizer_model_name} to a fixed name.
    """
    tokenizer = run.text_or_none("tokenizer.tokenizer_model") or ""
    if tokenizer.startswith(("/", "./", "../", "~")) and run.text_or_none(_TOKENIZER_NAME) is None:
        yield wrong(_TOKENIZER_NAME, f"null, with the folder {tokenizer}", "a fixed name")


@rule("BP216", ADVICE, "PSB216; bridge/data/builders/gpt_sft.py:83")
def several_caches_of_one_size(run: Run) -> Found:
    """The host has several cached packs of this size and multiple, made with different settings.

    Why: Slow, and nothing worse: seq_length, seed, preprocessing and dataset_kwargs are in the cache key, so each
        change packs again; pad_cu_seqlens and the number of workers are not.
    Bad: two folders under packed/ with training_4096.idx.parquet. Good: one such folder.
    Fix: Delete the folders that no run needs.
    """
    caches = cached_packs(run, TRAIN, run.require_files()) if TRAIN in splits_packed_by_host(run) else ()
    if len(caches) > 1:
        yield wrong(place(f"{raw_root(run)}/packed"), f"{count_text(len(caches), 'pack')}", "1")


@rule("BP217", WARNING, "PSB217; bridge/data/builders/gpt_sft.py:268, 354")
def materialized_data_kept(run: Run) -> Found:
    """hf_output_root already contains JSON Lines, which the host reuses even if the Hugging Face settings changed.

    Why: Silent: another dataset, split or hf_validation_proportion has no effect once the files exist. A folder
        that the host chooses itself has the settings in its name.
    Bad: hf_output_root /data/squad with training.jsonl of an earlier run, hf_rewrite false. Good: hf_output_root null.
    Fix: Set {dataset.hf_output_root} to null or a new folder, or set {dataset.hf_rewrite} for one run. Ignore this if
        nothing changed.
    Noticed: never: "Skipping Hugging Face text SFT training preparation - already exists".
    """
    root = run.text_or_none("dataset.hf_output_root")
    if root is None or run.value("dataset.hf_dataset") is None or run.flag("dataset.hf_rewrite"):
        return
    converted_path = f"{root.rstrip('/')}/training.jsonl"
    if run.require_files().exists(converted_path):
        yield wrong("dataset.hf_output_root", f"{converted_path} exists", "null, or an empty folder")


@fixable_rule("BP218", WARNING, "PSB218, PSC414; bridge/data/builders/gpt_sft.py:608", when=HAS_SPECS)
def rewrites_data_at_every_start(run: Run) -> Found:
    """hf_rewrite is on with offline packing.

    Why: Slow: every start and restart loads and packs the data again while the GPUs wait. Silent: the host empties the
        metadata first, and without do_validation it deletes the packed validation file.
    Bad: hf_rewrite true, enable_offline_packing true. Good: hf_rewrite false.
    Fix: Set {dataset.hf_rewrite} to false after the first run.
    """
    if run.flag("dataset.hf_rewrite"):
        yield wrong("dataset.hf_rewrite", "true", "false", to=False, because="existing packs are then reused")


#: Folders that hold one split of an artifact.
_SPLIT_FOLDERS = frozenset({"training", "train", "validation", "valid", "val"})
#: Files that the host rewrites in a checkpoint's folder with every checkpoint.
_TRACKERS = ("latest_train_state.pt", "latest_checkpointed_iteration.txt")


@fixable_rule("BP609", WARNING, when=PACKS_OFFLINE)
def filled_up_batch_with_mean_loss(run: Run) -> Found:
    """The last batch of an epoch is filled with masked packs, and the loss is averaged over packs.

    Why: Silent: num_epochs keeps the last batch and fills it with masked copies of a pack; averaged over packs they
        reduce the gradients of the real packs, and a rank may get masked packs only.
    Bad: num_epochs 3, offline packing, calculate_per_token_loss false. Good: calculate_per_token_loss true.
    Fix: Set {model.calculate_per_token_loss} true and {ddp.average_in_collective} false.
    Source: PSB609; bridge/data/loaders.py:271, data/samplers.py:368, data/packing/gpt_sft.py:93
    """
    if not run.is_set("train.num_epochs") or run.flag("model.calculate_per_token_loss"):
        return
    if run.artifact is None or num_packs(run, TRAIN) % run.global_batch_size:
        allowed_values = "true, or packs that are a multiple of global_batch_size"
        changes = per_token_loss(run, "masked packs then have no weight")
        yield wrong(
            "model.calculate_per_token_loss", say("false with {train.num_epochs}"), allowed_values, changes=changes
        )


@fixable_rule("BP610", WARNING, "PSB610; bridge/data/packing/parquet.py:363", when=PACKS_OFFLINE)
def training_samples_counted_in_packs(run: Run) -> Found:
    """max_train_samples is set with offline packing, which counts packs instead of examples.

    Why: Silent: it counts packs, not examples; above the number of packs, whole shuffled epochs are appended.
    Bad: max_train_samples 10000, 1200 packs. Good: max_train_samples null.
    Fix: Remove {dataset.max_train_samples} and limit the examples before packing.
    Evidence: executed with the real 0.6.2; the host's GLM-5.2 recipes set it.
    """
    limit = run.stated_integer("dataset.max_train_samples")
    if limit is None:
        return
    packs = None if run.artifact is None else num_packs(run, TRAIN)
    if packs is None or limit > packs:
        actual = f"{limit} packs" if packs is None else f"{limit}, and there are {packs} packs"
        yield wrong("dataset.max_train_samples", actual, "null, or at most the number of packs", to=None)


@rule("BP611", WARNING, "PSB611; bridge/data/samplers.py:326", when=PACKS_OFFLINE)
def packs_newer_than_checkpoint(run: Run) -> Found:
    """The run resumes, and its packs were written after the checkpoint.

    Why: Silent: the checkpoint stores how many packs were read, not which. With different packs, or another batch size,
        some data is repeated or skipped.
    Bad: checkpoint.load of Monday, packs of Tuesday. Good: packs of Monday, checkpoint.load of Tuesday.
    Fix: Resume with the packs that the checkpoint was trained on, or start a new run from
        {checkpoint.pretrained_checkpoint}.
    """
    folder = run.text_or_none("checkpoint.load") if run.is_stated("checkpoint.load") else None
    if folder is None:
        return
    packs = next((path for path in explicit_paths(run) if path.split == TRAIN), None)
    if packs is None:
        raise CannotJudgeError("the host makes the packs, so their location is unknown")
    files = run.require_files()
    checkpoint_time_s = _last_write_s(files, [f"{folder.rstrip('/')}/{name}" for name in _TRACKERS])
    packs_time_s = _last_write_s(files, resolve_path(packs, files))
    if checkpoint_time_s is not None and packs_time_s is not None and packs_time_s > checkpoint_time_s:
        actual = f"a checkpoint {round((packs_time_s - checkpoint_time_s) / 60)} minutes older than the packs"
        yield wrong("checkpoint.load", actual, "packs that are older than the checkpoint")


def _last_write_s(files: Files, paths: Iterable[str]) -> float | None:
    times = (files.modified_s(path) for path in paths)
    return max((time for time in times if time is not None), default=None)


@rule("BP616", ADVICE, "PSB616; bridge/data/builders/gpt_sft.py:868", when=HAS_SPECS)
def splits_from_two_artifacts(run: Run) -> Found:
    """Training and validation packs are in different artifacts.

    Why: Crash at the first evaluation, or silent: the host does not compare the settings that the two were built with.
    Bad: packed_train_data_path /data/v2/training, packed_val_data_path /data/v1/validation. Good: both in v2.
    Fix: Build both splits at once, or check both artifacts against this run. Noticed: first evaluation, or never.
    """
    if not run.flag("dataset.do_validation"):
        return
    training, validation = (run.text_or_none(path) for path in PATH_SETTINGS.values())
    if training is not None and validation is not None and _artifact_folder(training) != _artifact_folder(validation):
        yield wrong(PATH_SETTINGS[VALIDATION], validation, f"packs in {_artifact_folder(training)}")


def _artifact_folder(spec: str) -> PurePosixPath:
    path = PurePosixPath(spec)
    folder = path.parent if path.suffix else path
    return folder.parent if folder.name in _SPLIT_FOLDERS else folder
