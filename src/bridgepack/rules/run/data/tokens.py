"""Rules on token ids of the packs, the tokenizer and the model's vocabulary."""

import hashlib
from collections.abc import Mapping

from bridgepack.host.checkpoints import VOCABULARY
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, place, rule, wrong
from bridgepack.rules.judging.subject import PACKS_OFFLINE, Run
from bridgepack.rules.judging.tokenizers import short_name
from bridgepack.rules.run.data.semantics import preprocessing_kind
from bridgepack.rules.run.reading import truths

_NULL_TOKENIZERS = frozenset({"NullTokenizer", "NullMultimodalTokenizer"})
_VOCAB_SIZE = "model.vocab_size"
#: Files with a vocabulary, or with code that creates one.


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
    if names and not any(map(VOCABULARY.search, names)):
        yield wrong("tokenizer.tokenizer_model", f"{folder}, with {', '.join(names)[:200]}", "tokenizer.json in it")


@rule("BP525", ERROR, "PSB525; bridge/training/setup.py:707", noticed="setup, after the model parallel groups exist")
def model_vocabulary_smaller_than_tokenizer(run: Run) -> Found:
    """The tokenizer's vocabulary, added tokens included, is larger than model.vocab_size or the weights' embedding.

    Why: Crash at setup: the host raises ValueError, because model vocab_size cannot be smaller than tokenizer's
        vocab_size. Where it is not set, the model gets the tokenizer's size, and the weights do not fit.
    Bad: model.vocab_size 128000, a tokenizer of 128256 ids. Good: model.vocab_size 128256.
    Fix: Set {model.vocab_size} to at least the tokenizer's and resize the embedding, or use the checkpoint's tokenizer.
    """
    if run.flag("tokenizer.use_tokenizer_vocab_size"):
        return
    size, num_ids = run.stated_integer(_VOCAB_SIZE), _num_ids(run)
    if size is not None and size < num_ids:
        yield wrong(_VOCAB_SIZE, str(size), f"at least {num_ids}, the tokenizer's size")
    elif size is None and (rows := run.slow_facts.require_tokenizers().vocab_size) is not None and rows < num_ids:
        yield wrong("tokenizer.tokenizer_model", f"{num_ids} ids", f"at most {rows}, the rows of the model's embedding")


@rule("BP530", ERROR, when=PACKS_OFFLINE, noticed="first step, or never")
def token_beyond_model_vocabulary(run: Run) -> Found:
    """A token id of the packs is outside the model's embedding.

    Why: Silent with tensor parallelism: embedding and label's logit are zero. Without it, training stops with a CUDA
        device-side assert. The host does not pad a {model.vocab_size} that is set, whatever {model.should_pad_vocab}
        says.
    Bad: model.vocab_size 100, packs with the id 120. Good: model.vocab_size 128.
    Fix: Use packs made with the model's tokenizer.
    Evidence: executed: 0.6.2 turns should_pad_vocab off.
    Source: PSB311; bridge/training/setup.py:295, core/tensor_parallel/layers.py:338,
        core/tensor_parallel/cross_entropy.py:45
    """
    actual, size = truths(run), run.stated_integer(_VOCAB_SIZE)
    if size is None:
        size = run.slow_facts.require_tokenizers().vocab_size
    if size is None or run.flag("tokenizer.use_tokenizer_vocab_size"):
        raise CannotJudgeError("the model uses the tokenizer's vocabulary size, which is unknown")
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
    if short_name(made_with) != short_name(run_with):
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


def _num_ids(run: Run) -> int:
    """Return the number of ids of the run's tokenizer."""
    if run.text_or_none("tokenizer.tokenizer_type") in _NULL_TOKENIZERS:
        return run.integer("tokenizer.vocab_size")
    num_ids = run.slow_facts.require_tokenizers().of_run.num_ids
    has_manifest = run.artifact is not None and run.artifact.manifest is not None
    if num_ids is None or (has_manifest and len(set(map(short_name, _tokenizers(run)))) > 1):
        raise CannotJudgeError("the vocabulary size of the run's tokenizer is unknown")
    return num_ids
