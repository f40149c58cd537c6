"""Rules on packs of text for models with vision or sound."""

from bridgepack.host.vision_language import TextPacks, text_packs_by_id, text_packs_of
from bridgepack.records.messages import say
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.reading import batch_set_to, splits_context

_CLASS, _ID = "model._target_", "model.hf_model_id"
_VERSIONS = {BRIDGE: ">=0.6"}
_EVIDENCE = (
    "executed with the real forward steps, model classes and loss of 0.6.2 and 0.7, the language part a stub; "
    "Ministral 3 and Qwen2.5-VL trained on CPU with 0.6.2"
)


def text_packs(run: Run) -> TextPacks | None:
    """Return what the model's class does with packs of text; None without vision and sound, or for a class of yours."""
    if run.is_stated(_CLASS):
        return text_packs_of(run.class_name("model") or "", run.versions.release)
    return text_packs_by_id(str(run.value(_ID)), run.versions.release)


def refuses_text_packs(run: Run) -> bool:
    """Return whether the model's class is known to take no packs of text."""
    facts = text_packs(run) if run.is_stated(_CLASS) or run.is_stated(_ID) else None
    return facts is not None and bool(facts.refused)


def _model_name(run: Run) -> str:
    return str(run.class_name("model") if run.is_stated(_CLASS) else run.value(_ID))


def _otherwise(facts: TextPacks, allowed_values: str) -> str:
    """Return what is allowed, or the language part by itself where the host loads it."""
    return (
        f"{allowed_values}; any with its language part alone, {facts.language_part}"
        if facts.language_part
        else allowed_values
    )


@rule("BP943", ERROR, when=PACKS_OFFLINE, versions=_VERSIONS, noticed="first step", evidence=_EVIDENCE)
def text_packs_refused_by_class(run: Run) -> Found:
    """Packs of text are trained with a class for images or sound that does not take packs, or no text alone.

    Why: Crash at the first step, whatever the layout: no call of the class with packs of text succeeds.
    Bad: GLM-4.5V, offline packing. Good: GLM-4.5-Air, offline packing; GLM-4.5V, packing off.
    Fix: Turn packing off. Or train the language part alone, where one is named above: a folder in model.name, with the
        text_config of the model's config.json and that architecture, and its weights.
    Source: bridge/models/glm_vl/modeling_glm_45v.py:244; bridge/models/nemotron_vl/modeling_nemotron_vl.py:88;
        bridge/models/qwen_omni/modeling_qwen3_omni/thinker_model.py:384; TE/common/fused_attn/fused_attn.cpp:394
    """
    facts = text_packs(run)
    if facts is not None and facts.refused:
        allowed_values = _otherwise(facts, "no offline packing")
        yield wrong("dataset.enable_offline_packing", f"true for {_model_name(run)}: {facts.refused}", allowed_values)


@rule("BP944", ERROR, when=(PACKS_OFFLINE, splits_context), versions=_VERSIONS, evidence=_EVIDENCE)
def text_packs_split_over_context(run: Run) -> Found:
    """Packs of text are trained with context parallelism and a class for images that cuts packs itself.

    Why: Crash or silent: gpt_step cuts a pack for each rank, but the class needs whole packs, or cuts again.
    Bad: Qwen3.5-27B, context_parallel_size 4. Good: Qwen3.5-27B, context_parallel_size 1, pipeline stages.
    Fix: Set {model.context_parallel_size} to 1; pipeline stages and recomputation save memory. Or train the language
        part alone, where one is named above, as a folder in model.name: its weights, and the text_config with that
        architecture. For Qwen3.5, AutoModelForCausalLM.from_pretrained and save_pretrained write it.
    Noticed: first step, or never.
    Source: bridge/training/gpt_step.py:333; bridge/models/qwen_vl/modelling_qwen3_vl/model.py:572;
        bridge/models/ministral3/modeling_ministral3.py:256; bridge/models/gemma_vl/modeling_gemma4_vl.py:315
    """
    facts = text_packs(run)
    if facts is not None and facts.context and not facts.refused:
        actual = f"{run.context_parallel_size} for {_model_name(run)}: {facts.context}"
        allowed_values = "1 with packs of text"
        yield wrong(
            "model.context_parallel_size",
            actual,
            allowed_values if facts.kernels else _otherwise(facts, allowed_values),
        )


@rule("BP945", ERROR, when=PACKS_OFFLINE, versions=_VERSIONS, noticed="first step", evidence=_EVIDENCE)
def padded_text_packs_without_positions(run: Run) -> Found:
    """Sequences are padded to a multiple for a class that computes positions sequence by sequence.

    Why: Crash at the first pack with a tail: the tail is a sequence without tokens, "torch.cat(): expected a non-empty
        list" (Qwen3-VL, Qwen3.5) or "requires non-empty packed rows" (Qwen2.5-VL).
    Bad: Qwen3-VL, pad_seq_to_mult 2, which tensor parallelism 2 with sequence parallelism asks for.
    Good: Qwen3-VL, pad_seq_to_mult 1, sequence_parallel false.
    Fix: Set {model.context_parallel_size} to 1 and {model.sequence_parallel} to false (models with experts: tensor
        parallelism 1), and {dataset.offline_packing_specs.pad_seq_to_mult} to 1, and pack again. Or train the language
        part alone, as BP944 says.
    Source: bridge/data/packing/gpt_sft.py:251-268; bridge/models/qwen_vl/modelling_qwen3_vl/rope.py:316;
        bridge/training/utils/packed_seq_utils.py:177
    """
    facts = text_packs(run)
    if facts is not None and facts.empty and run.pad_seq_to_mult > 1:
        actual = f"{run.pad_seq_to_mult} for {_model_name(run)}: {facts.empty}"
        allowed_values = _otherwise(facts, "1: no sequence parallelism, context parallelism 1")
        yield wrong(f"{SPECS}.pad_seq_to_mult", actual, allowed_values, needs_repack=True)


@fixable_rule("BP946", ERROR, when=PACKS_OFFLINE, versions=_VERSIONS, noticed="first step", evidence=_EVIDENCE)
def packed_text_not_scattered(run: Run) -> Found:
    """Packs of text are trained with sequence parallelism and a class that does not split its embeddings.

    Why: Crash at the first step: each tensor-parallel rank hands the whole pack on, and layers gather all of them.
    Bad: Qwen2-Audio, tensor parallelism 2, sequence_parallel true. Good: sequence_parallel false.
    Fix: Set {model.sequence_parallel} to false, or {model.tensor_model_parallel_size} to 1.
    Source: bridge/models/qwen_audio/modeling_qwen2_audio.py:282; bridge/models/stepfun/modelling_step37/model.py:325
    """
    facts = text_packs(run)
    if facts is not None and facts.tensor and run.splits_sequence:
        path, actual = "model.sequence_parallel", f"true for {_model_name(run)}: {facts.tensor}"
        because = "the class hands whole packs to its layers"
        yield wrong(path, actual, _otherwise(facts, "false"), to=False, because=because)


def _batches_of_rows(run: Run) -> bool:
    """Return whether the loader puts all packs of a step into one batch, which get equally many boundaries."""
    return run.text_or_none("dataset.dataloader_type") == "batch"


@rule("BP947", WARNING, when=(PACKS_OFFLINE, _batches_of_rows), versions=_VERSIONS, evidence=_EVIDENCE)
def packs_of_unequal_counts_without_positions(run: Run) -> Found:
    """A rank takes several packs a step, for a class that computes positions sequence by sequence.

    Why: Crash at the first step whose packs hold unequally many sequences: the host appends sequences without tokens,
        so that all packs of a batch have equally many boundaries.
    Bad: Qwen3.5, 32 packs a step on 8 data-parallel ranks. Good: 8 packs a step, or dataloader_type cyclic.
    Fix: Set the batch to one pack for each data-parallel rank. For more, set {dataset.dataloader_type} to cyclic, whose
        batches are of one pack, and {train.train_iters} in place of epochs. Noticed: first step.
    Source: bridge/data/packing/gpt_sft.py:309-318; bridge/training/train.py:881; data/batch_utils.py:92
    """
    facts = text_packs(run)
    ranks = run.data_parallel_size if facts is not None and facts.empty else run.global_batch_size
    if facts is not None and run.global_batch_size > ranks:
        actual = f"{run.global_batch_size} packs on {ranks} data-parallel ranks of {_model_name(run)}: {facts.empty}"
        yield wrong(
            "train.global_batch_size", actual, say("one pack for each rank; {batch}", batch=batch_set_to(run, ranks))
        )


@rule("BP948", ADVICE, when=PACKS_OFFLINE, versions=_VERSIONS, evidence=_EVIDENCE)
def text_packs_with_another_step(run: Run) -> Found:
    """Packs of text need the forward step vlm_step, which is not the one for text, for this class.

    Why: Crash at the first step with gpt_step: it gives the class no loss mask ('NoneType' object has no attribute
        'view'), or later pipeline stages no tokens. A run of bridgepack takes the right one by itself.
    Bad: Ministral 3 in a config of your own. Good: the same in a recipe of bridgepack.
    Fix: Call finetune(config, bridgepack.forward_step_for(config)), or pass megatron.bridge.training.vlm_step's.
    Noticed: first step. Source: bridge/training/losses.py:62; bridge/models/ministral3/modeling_ministral3.py:286;
        bridge/models/qwen_vl/modelling_qwen3_vl/model.py:835
    """
    facts = text_packs(run)
    if facts is not None and facts.step == "vlm_step" and not facts.refused and not run.config.builds_packs:
        yield wrong("model", f"{_model_name(run)} with packs of text", "finetune() with the forward step vlm_step")


@rule("BP949", WARNING, when=PACKS_OFFLINE, versions=_VERSIONS, noticed="first step")
def text_packs_with_mask_of_class(run: Run) -> Found:
    """Packs of text are trained with a class that gives attention a mask of the whole pack.

    Why: Crash at the first step, or memory runs out: heads of 512 are computed without a kernel, which takes a mask for
        each sequence.
    Bad: Gemma 4 with vision, offline packing. Good: its language part, Gemma4ForCausalLM.
    Fix: Train the language part alone: a folder in model.name, with the text_config of the model's config.json and the
        named architecture, and its weights. Otherwise train one step on one GPU before you rely on it.
    Evidence: read in TransformerEngine 2.17.1, whose mask function was executed with the class's mask; not on a GPU.
    Source: bridge/models/gemma_vl/modeling_gemma4_vl.py:313; TE/dot_product_attention/utils.py:1731-1741
    """
    facts = text_packs(run)
    if facts is not None and facts.kernels:
        yield wrong("model", f"{_model_name(run)}: {facts.kernels}", f"its language part, {facts.language_part}")
