"""Rules on the tokenizer of a run beside that of the model that it starts from."""

import re

from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.judging.tokenizers import TokenizerFacts, TokenizerPair, VocabularyDifference
from bridgepack.rules.run.data.semantics import CHAT, preprocessing_kind

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_TOKENIZER = "tokenizer.tokenizer_model"
_FIX_OF_UNREAD = (
    "Install sentencepiece, which reads tokenizer.model, or put the tokenizer.json of each beside it, and check again."
)


@rule("BP560", ERROR, "bridge/training/setup.py:703", noticed="never, or by a loss that begins far too high")
def tokenizer_of_another_model(run: Run) -> Found:
    """The tokenizer, or the one that the packs were made with, has another vocabulary than the model's.

    Why: Silent: its ids stand for other texts than those that the model learned; the host compares sizes only.
    Bad: DeepSeek-V3's tokenizer on Qwen3-8B, whose folder holds its own. Good: the tokenizer of Qwen3-8B.
    Fix: Set {tokenizer.tokenizer_model} to the model's tokenizer and build the packs again, or set
        {checkpoint.pretrained_checkpoint} to the model that this tokenizer belongs to.
    Evidence: executed: Megatron-Bridge 0.6.2 takes any tokenizer that is not larger than the embedding.
    """
    pair = run.slow_facts.require_tokenizers()
    difference = _difference(pair)
    if difference.changed and pair.is_of_weights:
        yield wrong(_TOKENIZER, *_both_sides(pair, difference))


@rule("BP561", WARNING, "bridge/training/setup.py:703", noticed="never, or by a loss that begins far too high")
def tokenizer_unlike_the_base(run: Run) -> Found:
    """The tokenizer hardly is the model's: it uses a small part of the embedding, or differs from the base's.

    Why: Silent if it is another model's: its ids stand for other texts than those that the model learned.
    Bad: a tokenizer of 8,192 ids on a model with an embedding of 151,936. Good: one of 151,669 ids.
    Fix: Set {tokenizer.tokenizer_model} to the model's tokenizer and build the packs again. If the weights were
        trained with this one, put its files beside them.
    Evidence: tokenizers of public models use 97 to 100% of the embedding.
    """
    pair = run.slow_facts.require_tokenizers()
    if pair.difference is not None:
        if pair.difference.changed and not pair.is_of_weights:
            yield wrong(_TOKENIZER, *_both_sides(pair, pair.difference))
    elif pair.vocab_size is None or pair.of_run.num_ids is None:
        raise CannotJudgeError("the number of ids of the tokenizer or of the model is unknown")
    elif pair.is_too_small:
        model_side = f"the model's tokenizer; its embedding has {pair.vocab_size:,} rows, and no more is known here"
        yield wrong(_TOKENIZER, f"{pair.of_run.name}, with {pair.of_run.num_ids:,} ids", model_side)


@rule("BP562", WARNING, "transformers 5.12, tokenization_utils_base.py", noticed="never")
def tokenizer_lacks_tokens_of_model(run: Run) -> Found:
    """The tokenizer lacks tokens that were added to the model's, or has others in their place.

    Why: Silent: the text of such a token, e.g. `<think>`, is cut into other tokens than the model learned.
    Bad: Qwen2.5's tokenizer, without `<think>`, on Qwen3-8B. Good: the tokenizer of Qwen3-8B.
    Fix: Set {tokenizer.tokenizer_model} to the model's tokenizer and build the packs again.
    Evidence: compared: Qwen2.5's tokenizer has 4 tokens fewer than Qwen3's.
    """
    pair = run.slow_facts.require_tokenizers()
    lacking = _difference(pair).lacking
    if lacking and _compares(pair):
        yield wrong(
            _TOKENIZER,
            f"{pair.of_run.name}, without {pair.of_model.texts_of(lacking)}",
            f"the model's, of {_name(pair.of_model)}",
        )


@rule("BP563", WARNING, "transformers 5.12, generation/configuration_utils.py", noticed="when the model is served")
def ends_with_tokens_of_another_model(run: Run) -> Found:
    """Sequences or answers end with tokens that are no end of the model's.

    Why: Silent: the trained model ends its answers with a token at which a server that reads the model's
        generation_config.json does not stop; rows are filled with a token that may mean something to the model.
    Bad: EOS `<|im_end|>`, and a base model that stops at `<|endoftext|>`. Good: the base model's tokenizer_config.json.
    Fix: Use the model's tokenizer_config.json and chat template, or add the id to eos_token_id in the
        generation_config.json of the model that you start from, which the trained one inherits.
    """
    pair = run.slow_facts.require_tokenizers()
    ends = pair.of_model.end_ids
    if pair.is_other_model:
        return
    if not ends:
        raise CannotJudgeError("it is not known with which tokens the model stops")
    model_side = f"an end of the model's: {pair.of_model.texts_of(ends)}"
    if strange := pair.of_run.end_ids - ends:
        is_pad = strange <= pair.of_model.pad_ids
        actual = f"{pair.of_run.name}, with EOS {_token(pair, strange)}"
        yield wrong(_TOKENIZER, f"{actual}, the model's padding" if is_pad else actual, model_side)
    turn_ends, has_same_template = pair.of_run.end_of_turn_ids, _has_same_template(pair)
    if turn_ends and not turn_ends & (ends | strange) and not has_same_template and _is_of_chats(run):
        yield wrong(_TOKENIZER, f"answers that end with {_token(pair, turn_ends)}", model_side)


@rule("BP564", ADVICE, "bridge/data/packing/gpt_sft.py:261", noticed="never")
def pads_with_token_of_another_model(run: Run) -> Found:
    """The tokenizer's padding token is not the model's.

    Why: Silent with other tools: packs are padded with EOS and masked, but a trainer that masks every padding token
        never trains an end that is also the padding.
    Bad: pad_token `<|im_end|>`, which ends answers, on Qwen3, which pads with `<|endoftext|>`. Good: `<|endoftext|>`.
    Fix: Set pad_token in the tokenizer's tokenizer_config.json to the model's.
    """
    pair = run.slow_facts.require_tokenizers()
    pads, pads_of_model = pair.of_run.pad_ids, pair.of_model.pad_ids
    if not pair.is_other_model and pads and pads_of_model and not pads & pads_of_model:
        actual = f"{pair.of_run.name}, with padding {_token(pair, pads)}"
        yield wrong(_TOKENIZER, actual, f"the model's: {pair.of_model.texts_of(pads_of_model)}")


@rule("BP565", ADVICE, "bridge/data/builders/gpt_sft.py:83", noticed="when the model is served")
def chat_template_unlike_the_model(run: Run) -> Found:
    """The chat template differs from the model's.

    Why: Silent: the model learned chats in the form of its own template. Many change it on purpose; then serve the
        trained model with the new one.
    Bad: a template of your own on an instruct model. Good: the template in the model's folder.
    Fix: Serve the trained model with this template; if it is not meant, use the model's tokenizer files.
    """
    pair = run.slow_facts.require_tokenizers()
    are_known = pair.of_run.template_hashes and pair.of_model.template_hashes
    if are_known and not pair.is_other_model and not _has_same_template(pair) and _is_of_chats(run):
        yield wrong(_TOKENIZER, pair.of_run.template, f"the model's: {pair.of_model.template}")


@rule("BP566", ADVICE, "bridge/training/setup.py:703", noticed="never")
def tokenizer_extends_the_model(run: Run) -> Found:
    """The tokenizer has tokens that the model's does not have, added or in the place of reserved ones.

    Why: Silent: their rows of the embedding are untrained, and adapters leave them as they are.
    Bad: `<tool>` in the place of `<|reserved_special_token_3|>`, with LoRA. Good: the model's tokenizer.
    Fix: Train all weights; with adapters, train the embedding before, or write these texts with the model's tokens.
    """
    pair = run.slow_facts.require_tokenizers()
    extra = _difference(pair).extra
    if pair.vocab_size is not None:
        extra = frozenset(index for index in extra if index < pair.vocab_size)
    if extra and _compares(pair):
        yield wrong(
            _TOKENIZER,
            f"{pair.of_run.name}, with {pair.of_run.texts_of(extra)}",
            f"the model's, of {_name(pair.of_model)}",
        )


@rule("BP567", ADVICE, "bridge/training/setup.py:703", noticed="never")
def tokenizer_not_compared_with_the_model(run: Run) -> Found:
    """Nothing here tells whether the tokenizer is the model's, beyond the size of the embedding or other bytes.

    Why: Silent if it is another model's of a similar size: its ids stand for other texts than the model learned.
    Bad: a tokenizer of another name than the model's, whose weights are elsewhere. Good: tokenizer.json beside them.
    Fix: Put the model's tokenizer files beside its weights, or fetch them into the hub's cache, and check again.
    """
    run.require_files()
    pair = run.slow_facts.require_tokenizers()
    if pair.difference is not None or pair.is_too_small or (pair.is_named_alike and pair.has_same_file is None):
        return
    if not run.is_stated("model._target_") and not run.is_stated("model.hidden_size"):
        raise CannotJudgeError("the model is not known")
    of_run, model = pair.of_run, pair.of_model.name
    size = "" if of_run.num_ids is None else f", with {of_run.num_ids:,} ids"
    rows = "" if pair.vocab_size is None else f"; the embedding has {pair.vocab_size:,} rows"
    files = "tokenizer.json tokenizer_config.json generation_config.json"
    fix = (
        f"Put the tokenizer files of {model} beside its weights, or run `hf download {model} {files}`, and check again."
    )
    if pair.has_same_file is False:
        unread = [f"{facts.name}: {next(iter(facts.hashes))}" for facts in (of_run, pair.of_model) if not facts.tokens]
        model_side = f"the model's tokenizer; the files differ, and {' and '.join(unread)} cannot be read here{rows}"
        yield wrong(_TOKENIZER, f"{of_run.name}{size}", model_side, fix=_FIX_OF_UNREAD)
        return
    is_on_hub = _HUB_ID.fullmatch(model) is not None
    model_side = f"the tokenizer of {model}, which is not here{rows}"
    yield wrong(_TOKENIZER, f"{of_run.name}{size}", model_side, fix=fix if is_on_hub else "")


def _difference(pair: TokenizerPair) -> VocabularyDifference:
    if pair.difference is None:
        raise CannotJudgeError("the vocabulary of the tokenizer or of the model is unknown")
    return pair.difference


def _compares(pair: TokenizerPair) -> bool:
    """Return whether more than the vocabulary is worth comparing: it is the model's own, as far as that is known."""
    return pair.is_of_weights and not pair.is_other_model


def _both_sides(pair: TokenizerPair, difference: VocabularyDifference) -> tuple[str, str]:
    """Return the run's tokenizer and the model's, each with the first ids that differ."""
    of_both = difference.changed & pair.of_run.tokens.keys()
    first = sorted(of_both or difference.changed)[:3]
    run, model = (f"{_name(facts)}: {', '.join(map(facts.text_of, first))}" for facts in (pair.of_run, pair.of_model))
    return run, f"the model's, of {model}; {len(of_both or difference.changed):,} ids differ"


def _name(facts: TokenizerFacts) -> str:
    return facts.name if facts.num_ids is None else f"{facts.name}, {facts.num_ids:,} ids"


def _token(pair: TokenizerPair, ids: frozenset[int]) -> str:
    """Return ids with their tokens, from whichever side knows them."""
    return (pair.of_run if pair.of_run.tokens else pair.of_model).texts_of(ids)


def _has_same_template(pair: TokenizerPair) -> bool:
    return bool(set(pair.of_run.template_hashes) & set(pair.of_model.template_hashes))


def _is_of_chats(run: Run) -> bool:
    """Return whether rows are written by a chat template: those of the packs, or those that will be."""
    manifest = None if run.artifact is None else run.artifact.manifest
    if manifest is not None and isinstance(settings := manifest.recipe.get("preprocessing"), dict):
        return settings.get("kind") == CHAT
    return preprocessing_kind(run) == CHAT
