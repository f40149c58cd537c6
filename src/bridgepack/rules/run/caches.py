"""Rules on the packs that the host makes and keeps itself, and what their key leaves out."""

from __future__ import annotations

import re

from bridgepack.records import TRAIN, Files
from bridgepack.rules.engine.rule import ADVICE, EXECUTED, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, SPECS, Run
from bridgepack.rules.run.packed_paths import cached_packs, raw_root, splits_packed_by_host

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
)
_TOKENIZER_NAME = f"{SPECS}.tokenizer_model_name"


def _older_caches(run: Run, split: str, newer: str, files: Files) -> tuple[str, ...]:
    """Return the host's packs of a split that were written before a file was."""
    changed_s = files.modified_s(newer)
    if changed_s is None:
        return ()
    caches = [(path, files.modified_s(path)) for path in cached_packs(run, split, files)]
    return tuple(path for path, written_s in caches if written_s is not None and written_s < changed_s)


@rule("BP208", WARNING, "PSB208; bridge/data/builders/gpt_sft.py:83, 652", evidence=EXECUTED)
def cached_packs_older_than_data(run: Run) -> Found:
    """The host has packs of its own that are older than the raw data, and will take them.

    Why: Silent: the key of the packs has no content, time or size of the data in it; the run trains on the old data.
    Bad: packed/.../training_4096.idx.parquet written on Monday, training.jsonl on Tuesday.
    Good: training.jsonl written on Monday, packed/.../training_4096.idx.parquet on Tuesday.
    Fix: Delete the folder of packs that the finding names, or build packs with bridgepack and name them.
    Noticed: never: "Skipping packed training data preparation - already exists".
    """
    for split in splits_packed_by_host(run):
        raw = f"{raw_root(run)}/{split}.jsonl"
        for cache in _older_caches(run, split, raw, run.require_files()):
            yield wrong(cache, f"older than {raw}", "packs made from the data as it is now")


@rule("BP209", WARNING, "PSB209; bridge/data/builders/gpt_sft.py:83, 897")
def cached_packs_older_than_tokenizer(run: Run) -> Found:
    """The host has packs of its own that are older than a file of the tokenizer, and will take them.

    Why: Silent: the key of the packs has the tokenizer's path in it, not its vocabulary, its special tokens or its chat
        template; the run trains on ids of the old one.
    Bad: packed/.../training_4096.idx.parquet written on Monday, chat_template.jinja on Tuesday.
    Good: chat_template.jinja written on Monday, packed/.../training_4096.idx.parquet on Tuesday.
    Fix: Delete the folder of packs that the finding names, or set tokenizer_model_name anew for every tokenizer.
    """
    splits = splits_packed_by_host(run)
    if not splits:
        return
    files, folder = run.require_files(), run.text_or_none("tokenizer.tokenizer_model") or ""
    for name in _TOKENIZER_FILES:
        for split in splits:
            for cache in _older_caches(run, split, f"{folder.rstrip('/')}/{name}", files):
                found = f"older than {folder.rstrip('/')}/{name}"
                yield wrong(cache, found, "packs made with this tokenizer", group=cache)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


@rule("BP210", WARNING, "PSB210; bridge/data/builders/gpt_sft.py:903", when=splits_packed_by_host, evidence=EXECUTED)
def cache_named_for_another_tokenizer(run: Run) -> Found:
    """The host is to pack, and tokenizer_model_name does not name the tokenizer.

    Why: Silent: it is the only trace of the tokenizer in the key; two tokenizers under one name share their packs.
    Bad: tokenizer_model_name my-packs, tokenizer_model meta-llama/Llama-3.2-1B.
    Good: tokenizer_model_name llama-3.2-1b-v2, tokenizer_model meta-llama/Llama-3.2-1B.
    Fix: Leave tokenizer_model_name null, or put the tokenizer's own name into it.
    """
    name = run.text_or_none(_TOKENIZER_NAME)
    tokenizer = run.text_or_none("tokenizer.tokenizer_model")
    if name is None or tokenizer is None:
        return
    given, last = _plain(name), _plain(tokenizer.rstrip("/").rpartition("/")[2])
    if last not in given and given not in _plain(tokenizer):
        found = f"{name}, for {tokenizer}"
        allowed = "null, or a name with the tokenizer's in it"
        yield wrong(_TOKENIZER_NAME, found, allowed, to=None, because="the host derives it from the tokenizer")


@rule("BP211", ADVICE, "PSB211; bridge/data/builders/gpt_sft.py:906", when=splits_packed_by_host)
def cache_named_for_a_folder(run: Run) -> Found:
    """The host is to pack, and the tokenizer is a local folder, whose whole path becomes the name of the packs.

    Why: Slow: on another machine, after a move, or with a slash at the end, the host packs again.
    Bad: tokenizer_model /checkpoints/llama, tokenizer_model_name null.
    Good: tokenizer_model /checkpoints/llama, tokenizer_model_name llama.
    Fix: Set tokenizer_model_name to a name that stays.
    """
    tokenizer = run.text_or_none("tokenizer.tokenizer_model") or ""
    if tokenizer.startswith(("/", "./", "../", "~")) and run.text_or_none(_TOKENIZER_NAME) is None:
        yield wrong(_TOKENIZER_NAME, f"null, with the folder {tokenizer}", "a name that stays")


@rule("BP216", ADVICE, "PSB216; bridge/data/builders/gpt_sft.py:83")
def several_caches_of_one_size(run: Run) -> Found:
    """The host keeps several packs of this size and multiple, made with other settings.

    Why: Slow at most: seq_length, seed, preprocessing and dataset_kwargs are in the key, so each change packs again;
        pad_cu_seqlens and the number of workers are not.
    Bad: two folders under packed/ with training_4096.idx.parquet.
    Good: one folder under packed/ with training_4096.idx.parquet.
    Fix: Delete the folders that no run needs.
    """
    if TRAIN not in splits_packed_by_host(run):
        return
    caches = cached_packs(run, TRAIN, run.require_files())
    if len(caches) > 1:
        yield wrong(f"{raw_root(run)}/packed", f"{len(caches)} packs", "1")


@rule("BP217", WARNING, "PSB217; bridge/data/builders/gpt_sft.py:268, 354")
def materialized_data_kept(run: Run) -> Found:
    """hf_output_root already holds JSON Lines, which the host keeps whatever the Hugging Face settings say now.

    Why: Silent: another dataset, split or hf_validation_proportion has no effect once the files are there. A folder
        that the host chooses itself has the settings in its name.
    Bad: hf_output_root /data/squad, where training.jsonl lies from an earlier run, hf_rewrite false.
    Good: hf_output_root null.
    Fix: Leave hf_output_root null, name a new folder, or set hf_rewrite for one run. Where the settings have not
        changed since, ignore this.
    Noticed: never: "Skipping Hugging Face text SFT training preparation - already exists".
    """
    root = run.text_or_none("dataset.hf_output_root")
    if root is None or run.value("dataset.hf_dataset") is None or run.flag("dataset.hf_rewrite"):
        return
    kept = f"{root.rstrip('/')}/training.jsonl"
    if run.require_files().exists(kept):
        yield wrong("dataset.hf_output_root", f"{kept} exists", "null, or an empty folder")


@rule("BP218", WARNING, "PSB218, PSC414; bridge/data/builders/gpt_sft.py:608", when=HAS_SPECS)
def rewrites_data_at_every_start(run: Run) -> Found:
    """hf_rewrite is on with offline packing.

    Why: Slow: every start, also a restart in the middle, loads and packs again while the GPUs wait. Silent: metadata
        is emptied first, and without do_validation the packed validation file is deleted.
    Bad: hf_rewrite true, enable_offline_packing true.
    Good: hf_rewrite false, enable_offline_packing true.
    Fix: Set dataset.hf_rewrite to false after the first run.
    """
    if run.flag("dataset.hf_rewrite"):
        where = "dataset.hf_rewrite"
        why = "packs that are there are kept"
        yield wrong(where, "true", "false", to=False, because=why)
