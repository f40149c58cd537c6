"""Rules on packing inside a batch: vision-language, Energon and direct Hugging Face datasets."""

import re

from bridgepack.records.messages import say
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ADVICE, ERROR, VALIDATE, WARNING, Found, change, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_TEXT, PACKS_IN_BATCH, Run
from bridgepack.rules.run.host_fields import has_field
from bridgepack.rules.run.reading import HAS_EXPERTS, has_own_dataset, pads_in_collate

_SWITCH, _DISPATCHER = "dataset.enable_in_batch_packing", "model.moe_token_dispatcher_type"
_DEFER = "dataset.defer_in_batch_packing_to_step"
_ENERGON = "EnergonDatasetConfig"
#: Families whose positions are computed per packed sequence.
#: Source: megatron/bridge, uses of unpack_mcore_thd_tensor_for_position_ids; qwen3_vl_step builds its own.
_FAMILIES_WITH_PACKED_POSITIONS = frozenset({"qwen2_5_vl", "glm_4_5_vl", "qwen3_vl", "qwen3_5_vl"})
#: Families with at least one model for images or sound; the positions of text-only families need no check.
_MULTIMODAL = re.compile(r"_vl$|_audio$|_omni$|^(exaone_4_5|llava|ministral3|step)$")
#: Families whose forward step packs.
_FAMILIES_THAT_PACK_IN_STEP = frozenset({"qwen3_vl", "qwen3_5_vl"})
#: Families whose forward step is vlm_step or nemotron_omni_step, which refuse to pack.
_FAMILIES_THAT_PACK_IN_COLLATE = frozenset({"qwen2_5_vl", "gemma3_vl", "gemma4_vl", "glm_4_5_vl", "nemotron_omni"})


@rule("BP931", ERROR, "PSC201; bridge/training/config.py:1480", when=PACKS_IN_BATCH, noticed=VALIDATE)
def in_batch_packing_of_one_row(run: Run) -> Found:
    """In-batch packing is on, but micro_batch_size is 1.

    Why: Crash at start: validate() refuses it, because one row leaves nothing to pack.
    Bad: enable_in_batch_packing true, train.micro_batch_size 1. Good: train.micro_batch_size 2.
    Fix: Raise {train.micro_batch_size}, keeping {train.global_batch_size} a multiple of it times the data parallel
        size; or turn {dataset.enable_in_batch_packing} off. Evidence: executed: six shipped Ministral 3 recipes are
        refused.
    """
    if run.micro_batch_size == 1 and not run.packs_offline:
        yield wrong("train.micro_batch_size", "1", "2 or more with in-batch packing")


@fixable_rule("BP932", ERROR, "PSC202; bridge/training/config.py:1221", when=pads_in_collate, noticed=VALIDATE)
def seq_length_not_a_collate_multiple(run: Run) -> Found:
    """The dataset's collate pads rows, but seq_length is not a multiple of the number that parallelism needs.

    Bad: DirectHFSFTDatasetConfig seq_length 4098 with context_parallel_size 2. Good: seq_length 4096.
    Fix: Set {dataset.seq_length & model.seq_length} to a multiple of that number.
    """
    multiple, length = run.stated_width_multiple, run.integer("dataset.seq_length")
    if length % multiple:
        lower = length // multiple * multiple
        allowed_values = f"a multiple of {multiple}: " + (f"{lower}, {lower + multiple}" if lower else str(multiple))
        changes = change("dataset.seq_length", lower or multiple, f"a multiple of {multiple}")
        changes += change("model.seq_length", lower or multiple, "the same as dataset.seq_length")
        yield wrong("dataset.seq_length", str(length), allowed_values, changes=changes)


@rule("BP933", ADVICE, "PSC203, PSC204; bridge/data/packing/in_batch.py:49", when=(PACKS_IN_BATCH, has_own_dataset))
def in_batch_packing_by_custom_dataset(run: Run) -> Found:
    """Your own dataset packs in batch: its rows must be padded on the right and have an attention_mask.

    Why: Crash or silent: left-padded, empty and over-long rows are refused. Without attention_mask the host treats
        every pad token as padding, and the pad token is 0 or EOS by default.
    Bad: your own provider that pads on the left, enable_in_batch_packing true. Good: DirectHFSFTDatasetConfig.
    Fix: Set padding_side to right, cut rows to seq_length, return an attention_mask, and use a pad token of its own.
    Noticed: first step, or never.
    """
    yield wrong("dataset", run.dataset_kind, "right-padded rows with an attention_mask")


@fixable_rule("BP934", WARNING, when=(PACKS_IN_BATCH, pads_in_collate), noticed="first step")
def deferred_packing_of_another_step(run: Run) -> Found:
    """defer_in_batch_packing_to_step does not match the forward step of the model's family.

    Why: Crash at the first step: vlm_step refuses deferred packing, qwen3_vl_step refuses rows that are already packed.
    Bad: Qwen3-VL, enable_in_batch_packing true, defer_in_batch_packing_to_step false.
    Good: Qwen3-VL with both true; Qwen2.5-VL with the second false.
    Fix: Set it to true for Qwen3-VL and Qwen3.5-VL, to false otherwise.
    Source: PSC208; bridge/training/vlm_step.py:219, bridge/models/qwen_vl/qwen3_vl_step.py:61
    """
    size_wanted = run.family.name in _FAMILIES_THAT_PACK_IN_STEP
    is_known = size_wanted or run.family.name in _FAMILIES_THAT_PACK_IN_COLLATE
    if run.flag(_DEFER) != size_wanted and is_known:
        why = "the family's forward step needs it"
        yield wrong(
            _DEFER, f"{not size_wanted} with {run.family.evidence}", str(size_wanted), to=size_wanted, because=why
        )


@fixable_rule("BP935", ERROR, "PSC205; bridge/data/builders/gpt_sft.py:105", when=(PACKS_IN_BATCH, IS_TEXT))
def in_batch_packing_of_text_dataset(run: Run) -> Found:
    """enable_in_batch_packing is set on a text dataset, which has no such field.

    Why: Silent: nothing is packed, and validate() requires larger micro batches. Crash if the constructor gets it.
    Bad: GPTSFTDatasetConfig, enable_in_batch_packing true. Good: enable_offline_packing true.
    Fix: Pack offline, or use DirectHFSFTDatasetConfig. Noticed: never, if it is set as an attribute.
    """
    if not run.packs_offline and has_field(run, str(run.value("dataset._target_")), "enable_in_batch_packing") is False:
        yield wrong(
            _SWITCH, f"true on {run.dataset_kind}", "not set", to=False, because="the dataset has no such field"
        )


@fixable_rule(
    "BP936",
    WARNING,
    when=(PACKS_IN_BATCH, HAS_EXPERTS),
    evidence="read in the source; the effect is inferred",
)
def in_batch_packing_with_allgather_dispatcher(run: Run) -> Found:
    """In-batch packing, whose widths vary, is on with expert parallelism and the allgather dispatcher.

    Why: Crash or hang: the allgather dispatcher needs the same number of tokens on each rank; the host turns varying
        lengths on only after megatron-core has checked for this.
    Bad: enable_in_batch_packing, expert_model_parallel_size 4, moe_token_dispatcher_type allgather. Good: alltoall.
    Fix: Use the alltoall or the flex dispatcher. Noticed: first step with different widths.
    Source: PSC206; bridge/models/transformer_config.py:185, core/transformer/transformer_config.py:2645
    """
    if run.expert_model_parallel_size > 1 and run.text_or_none(_DISPATCHER) == "allgather":
        why = "it supports different numbers of tokens per rank"
        yield wrong(_DISPATCHER, "allgather", "alltoall or flex", to="alltoall", because=why)


@rule("BP942", WARNING, "PSC206; bridge/training/config.py:1239", when=PACKS_IN_BATCH, noticed="first step")
def in_batch_packing_with_narrow_numbers(run: Run) -> Found:
    """In-batch packing, whose widths vary, is on with FP8 or FP4 matrix products.

    Why: Crash at the first step with an odd width: such products need widths that are multiples of 16 or 32, but the
        host pads in-batch packs only to the multiples of context and sequence parallelism.
    Bad: enable_in_batch_packing true, mixed_precision bf16_with_fp8_hybrid. Good: mixed_precision bf16_mixed.
    Fix: Use bf16, or pack offline with {dataset.dataset_kwargs.pad_to_max_length}. Evidence: read in the source; the
        effect is inferred.
    """
    if run.number_format != "bf16":
        yield wrong("mixed_precision", run.number_format, "bf16 with in-batch packing")


@rule("BP937", ERROR, when=PACKS_IN_BATCH, versions={BRIDGE: "<0.6.2"}, evidence="Bridge #5440")
def in_batch_packing_with_builder_config(run: Run) -> Found:
    """0.6.0 and 0.6.1: in-batch packing is on with a builder-style model config and pipeline parallelism.

    Why: Crash or hang at the first step: the switch for varying lengths is set on the outer config, so pipeline stages
        exchange tensors of a fixed shape.
    Bad: megatron-bridge 0.6.1, GPTModelConfig, pipeline size 2, enable_in_batch_packing true. Good: pipeline size 1.
    Fix: Upgrade to 0.6.2. Noticed: first step. Source: PSC207; bridge/training/config.py:1235 of 0.6.1
    """
    kind = run.class_name("model") or "" if run.pipeline_model_parallel_size > 1 else ""
    if kind.endswith("ModelConfig"):
        yield wrong("model", f"{kind} in a pipeline", "a model provider, or 0.6.2")


@fixable_rule("BP938", ERROR, "PSC208; bridge/training/vlm_step.py:309", when=PACKS_IN_BATCH, versions={BRIDGE: "<0.7"})
def in_batch_packing_with_expert_overlap(run: Run) -> Found:
    """The overlap of expert communication is on with in-batch packing.

    Why: Silent: the schedule plan is made without the packed sequence's boundaries, so sequences attend to each other.
    Bad: enable_in_batch_packing true, overlap_moe_expert_parallel_comm true. Good: no overlap.
    Fix: Turn the overlap off in model and comm_overlap. Evidence: read in the source; Bridge #5470, on main only.
    """
    for path in (f"{section}.overlap_moe_expert_parallel_comm" for section in ("model", "comm_overlap")):
        if run.is_on(path):
            yield wrong(path, "true", "false", to=False, because="the sequence boundaries are then kept")


@fixable_rule(
    "BP939",
    ERROR,
    "PSC209; bridge/data/builders/energon.py:308",
    versions={BRIDGE: "<0.7"},
    noticed="dataset build",
)
def energon_packing_buffer(run: Run) -> Found:
    """Energon's own packing is on, which the host's task encoders do not support in this version.

    Why: Crash at dataset build: no task encoder of the host has select_samples_to_pack and pack_selected_samples.
    Bad: EnergonDatasetConfig packing_buffer_size 100. Good: packing_buffer_size null.
    Fix: Remove {dataset.packing_buffer_size}; pack inside the batch instead.
    """
    path = "dataset.packing_buffer_size"
    size = run.stated_integer(path) if run.dataset_kind == _ENERGON else None
    if size is not None:
        yield wrong(path, str(size), "null", to=None, because="the task encoders cannot pack")


@fixable_rule("BP940", ERROR, "PSC210; bridge/training/config.py:1198", noticed=VALIDATE)
def energon_micro_batch_size_differs(run: Run) -> Found:
    """The micro batch size of an Energon dataset differs from that of training or evaluation.

    Why: Crash at start: validate() refuses it, because Energon makes the batches.
    Bad: dataset.micro_batch_size 1, train.micro_batch_size 2. Good: both 2, validation.eval_micro_batch_size 2.
    Fix: Set all of them to the same number.
    """
    if run.dataset_kind != _ENERGON:
        return
    path, evaluation, size_wanted = "dataset.micro_batch_size", "validation.eval_micro_batch_size", run.micro_batch_size
    why, allowed_values = "as train.micro_batch_size", say("{size}, as {train.micro_batch_size}", size=size_wanted)
    if run.integer(path) != size_wanted:
        yield wrong(path, str(run.integer(path)), allowed_values, to=size_wanted, because=why)
    if run.flag("dataset.do_validation") and run.eval_micro_batch_size != size_wanted:
        actual = str(run.eval_micro_batch_size)
        yield wrong(evaluation, actual, allowed_values, to=size_wanted, because=why, group=evaluation)


@rule("BP941", WARNING, "PSC211; bridge/training/utils/packed_seq_utils.py:145", when=PACKS_IN_BATCH)
def in_batch_packing_with_context_parallel_vision(run: Run) -> Found:
    """In-batch packing and context parallelism are on for a family without positions per packed sequence.

    Why: Crash or silent: only some families compute positions and vision features before ranks split a sequence.
    Bad: Kimi-VL, enable_in_batch_packing true, context_parallel_size 2. Good: Qwen2.5-VL.
    Fix: Set {model.context_parallel_size} to 1, or turn packing off.
    Noticed: first step, or never. Evidence: read in the source; the effect is inferred.
    """
    if run.is_text or max(run.context_parallel_sizes) == 1:
        return
    if _MULTIMODAL.search(run.family.name) and run.family.name not in _FAMILIES_WITH_PACKED_POSITIONS:
        actual = f"{run.context_parallel_size} with {run.family.evidence}"
        yield wrong("model.context_parallel_size", actual, "1 with in-batch packing")
