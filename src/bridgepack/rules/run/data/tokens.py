"""Rules on token ids of the packs, the tokenizer and the model's vocabulary."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePath

from bridgepack import geometry
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, place, rule, wrong
from bridgepack.rules.judging.subject import PACKS_OFFLINE, Run
from bridgepack.rules.run.data.semantics import preprocessing_kind
from bridgepack.rules.run.reading import truths

_NULL_TOKENIZERS = frozenset({"NullTokenizer", "NullMultimodalTokenizer"})
#: Files with a vocabulary, or with code that creates one.
_VOCABULARY = re.compile(r"^tokenizer\.json$|^tekken\.json$|^vocab|\.(?:model|vocab|tiktoken|bpe|py)$")
#: Folder of a model in the Hugging Face cache: `models--meta-llama--Llama-3.2-1B`.
_CACHE_FOLDER = re.compile(r"models--[^/]+?--(.+)")


@rule("BP503", ERROR, when=PACKS_OFFLINE, noticed="first step")
def tokenizer_without_eos(run: Run) -> Found:
    """The run's tokenizer has an end-of-document token but no EOS.

    Why: Crash at the first batch: the host pads rows with tokenizer.eos_id, which this tokenizer does not have.
    Bad: tokenizer_type NullTokenizer with offline packing. Good: HuggingFaceTokenizer.
    Fix: Set the tokenizer that made the packs.
    Evidence: executed: NullTokenizer of megatron-core 0.19.2 has eod and no eos_id.
    Source: PSB503; core/tokenizers/text/libraries/null_tokenizer.py:90, bridge/data/packing/gpt_sft.py:261
    """
    kind = run.text_or_none("tokenizer.tokenizer_type")
    if kind in _NULL_TOKENIZERS:
        yield wrong("tokenizer.tokenizer_type", str(kind), "HuggingFaceTokenizer")


@rule("BP544", ERROR, "transformers 5.12, tokenization_utils_base.py", noticed="never")
def tokenizer_without_vocabulary(run: Run) -> Found:
    """The tokenizer's folder has no vocabulary file.

    Why: Silent: transformers creates a tokenizer with control tokens only, which encodes every text to no tokens.
    Bad: a folder with tokenizer_config.json only. Good: tokenizer_config.json and tokenizer.json.
    Fix: Copy the whole tokenizer: tokenizer.json, or vocab.json with merges.txt, or tokenizer.model.
    """
    folder = run.text_or_none("tokenizer.tokenizer_model") or ""
    names = run.require_files().names(folder) if folder else ()
    if names and not any(map(_VOCABULARY.search, names)):
        yield wrong("tokenizer.tokenizer_model", f"{folder}, with {', '.join(names)[:200]}", "tokenizer.json in it")


@rule("BP525", ERROR, "PSB525; bridge/training/setup.py:707", noticed="setup, after the model parallel groups exist")
def model_vocabulary_smaller_than_tokenizer(run: Run) -> Found:
    """model.vocab_size is set and smaller than the tokenizer's vocabulary, added tokens included.

    Why: Crash at setup: ValueError, model vocab_size cannot be smaller than tokenizer's vocab_size.
    Bad: model.vocab_size 128000, a tokenizer of 128256 ids. Good: model.vocab_size 128256.
    Fix: Set {model.vocab_size} to at least the tokenizer's and resize the embedding, or use the checkpoint's tokenizer.
    """
    size = run.integer_or_none("model.vocab_size")
    if size is None or run.flag("tokenizer.use_tokenizer_vocab_size"):
        return
    vocab_size = _tokenizer_vocab_size(run)
    if size < vocab_size:
        yield wrong("model.vocab_size", str(size), f"at least {vocab_size}, the tokenizer's size")


@rule("BP530", ERROR, when=PACKS_OFFLINE, noticed="first step, or never")
def token_beyond_model_vocabulary(run: Run) -> Found:
    """A token id of the packs is outside the model's embedding.

    Why: Silent with tensor parallelism: embedding and label's logit are zero. Crash without: CUDA device-side assert.
    Bad: model.vocab_size 100, packs with the id 120. Good: model.vocab_size 128.
    Fix: Use packs made with the model's tokenizer.
    Source: PSB311; core/tensor_parallel/layers.py:338, core/tensor_parallel/cross_entropy.py:45
    """
    actual, size = truths(run), run.integer_or_none("model.vocab_size")
    if size is None or run.flag("tokenizer.use_tokenizer_vocab_size"):
        raise CannotJudgeError("the model uses the tokenizer's vocabulary size, which is unknown")
    if run.flag("model.should_pad_vocab"):
        multiple = run.integer("model.make_vocab_size_divisible_by", default=1)
        size = geometry.ceil_to_multiple(size, max(1, multiple) * run.tensor_model_parallel_size)
    for truth in actual:
        if truth.max_token_id >= size:
            yield wrong(place(truth.split), f"token id {truth.max_token_id}", f"0 to {size - 1}")


@rule("BP534", WARNING, "PSB209; bridge/data/builders/gpt_sft.py:796", when=PACKS_OFFLINE)
def packs_of_another_tokenizer(run: Run) -> Found:
    """The packs were made with a tokenizer whose name differs from the run's tokenizer.

    Why: Silent: ids mean different tokens, or EOS has another id and padding is trained; the host never compares them.
    Bad: packs made with Qwen/Qwen3-8B, tokenizer_model meta-llama/Llama-3.2-1B.
    Good: packs made with /models/Llama-3.2-1B.
    Fix: Build the packs with the run's tokenizer, or set {tokenizer.tokenizer_model} to the packs' tokenizer.
    """
    made_with, run_with = _tokenizers(run)
    if _short_name(made_with) != _short_name(run_with):
        yield wrong("tokenizer.tokenizer_model", run_with, f"{made_with}, as in the packs")


@rule("BP533", WARNING, "PSB502; bridge/data/packing/gpt_sft.py:131", when=PACKS_OFFLINE)
def loss_of_packs_differs_from_run(run: Run) -> Found:
    """The run's preprocessing kind or loss_mode differs from the packs'.

    Why: Silent: training uses the packs' mask; the run's preprocessing applies to the test split only.
    Bad: packs with loss_mode assistant, a run with loss_mode full. Good: both assistant.
    Fix: Set {dataset.preprocessing} to the packs' kind and {dataset.preprocessing.loss_mode}, or build the packs again.
    """
    if run.value("dataset.preprocessing") is None:
        return
    recorded_settings = run.require_artifact().require_manifest().recipe.get("preprocessing")
    if not isinstance(recorded_settings, Mapping) or recorded_settings.get("kind", "tokenized") in {
        "text",
        "tokenized",
    }:
        raise CannotJudgeError("the host has no preprocessing for plain documents and rows that hold tokens")
    kind_of_run = (preprocessing_kind(run), run.value("dataset.preprocessing.loss_mode"))
    kind_of_packs = (recorded_settings["kind"], recorded_settings.get("loss_mode"))
    if kind_of_run != kind_of_packs:
        actual, allowed_values = (f"{kind}, loss_mode {loss}" for kind, loss in (kind_of_run, kind_of_packs))
        yield wrong("dataset.preprocessing", actual, f"{allowed_values}, as in the packs")


@rule("BP536", WARNING, "PSB210; bridge/data/builders/gpt_sft.py:83", when=PACKS_OFFLINE)
def chat_template_of_packs_differs_from_run(run: Run) -> Found:
    """The run's chat template differs from the packs'.

    Why: Silent: training uses the packs' template; the exported checkpoint and the test split use the run's. Neither
        the host's name for the packs nor its fingerprint depends on the template.
    Bad: tokenizer.chat_template other than the one in the packs' manifest. Good: null, or the same.
    Fix: Build the packs again with this template, or remove it from the run.
    """
    template = run.text_or_none("tokenizer.chat_template")
    if template is None:
        return
    made_with = run.require_artifact().require_manifest().tokenizer.get("chat_template_sha256")
    if not isinstance(made_with, str):
        raise CannotJudgeError("the manifest has no hash of the chat template")
    run_with = hashlib.sha256(template.encode()).hexdigest()
    if run_with != made_with:
        yield wrong("tokenizer.chat_template", f"sha256 {run_with[:12]}", f"sha256 {made_with[:12]}, as in the packs")


def _tokenizers(run: Run) -> tuple[str, str]:
    made_with = run.require_artifact().require_manifest().tokenizer.get("name_or_path")
    run_with = run.text_or_none("tokenizer.tokenizer_model")
    if not isinstance(made_with, str) or not run_with:
        raise CannotJudgeError("the tokenizer of the packs or of the run has no name")
    return made_with, run_with


def _short_name(name_or_path: str) -> str:
    """Return a model's short name: `meta-llama/Llama-3.2-1B` and `/models/Llama-3.2-1B/` -> `llama-3.2-1b`."""
    parts = PurePath(name_or_path).parts
    snapshot = next((match[1] for match in map(_CACHE_FOLDER.fullmatch, parts) if match), None)
    return (snapshot or (parts[-1] if parts else "")).lower()


def _tokenizer_vocab_size(run: Run) -> int:
    if run.text_or_none("tokenizer.tokenizer_type") in _NULL_TOKENIZERS:
        return run.integer("tokenizer.vocab_size")
    manifest = run.require_artifact().require_manifest()
    made_with, run_with = _tokenizers(run)
    size = manifest.tokenizer.get("vocab_size")
    if _short_name(made_with) != _short_name(run_with) or type(size) is not int:
        raise CannotJudgeError("the vocabulary size of the run's tokenizer is unknown")
    return size
