"""Rules on pipeline, tensor, data and expert parallelism over packs, and on multi-token prediction."""

import itertools

from bridgepack.records.words import count_text
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, Violation, change, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.kernels.low_precision import num_shares
from bridgepack.rules.run.reading import (
    HAS_EXPERTS,
    computes_loss_per_token,
    graph_capture,
    has_constant_width,
    has_own_dataset,
    pads_between_sequences,
    per_token_loss,
    splits_context,
    switches_on,
)

_PER_TOKEN = "model.calculate_per_token_loss"
_LAYERS = "model.mtp_num_layers"


def _num_chunks(run: Run) -> int:
    return run.integer("model.virtual_pipeline_model_parallel_size", default=1)


def _overlaps(*names: str) -> list[str]:
    return [f"{section}.{name}" for section in ("model", "comm_overlap") for name in names]


def _without_layers(run: Run, beside: str, why: str) -> Violation:
    is_laid_out = run.stated_value("model.pipeline_model_parallel_layout") is not None
    changes = () if is_laid_out else change(_LAYERS, None, why)
    return wrong(_LAYERS, f"{run.num_mtp_layers} with {beside}", "None with packs", changes=changes)


@rule("BP809", WARNING, "PSB809; bridge/training/initialize.py:355", when=PACKS_OFFLINE, noticed="some step")
def tensor_overlap_buffers_of_another_width(run: Run) -> Found:
    """Tensor-parallel communication overlap uses buffers that are sized for packs of another width.

    Why: Crash, or wrong values without an error, at the first pack of another width: buffers hold seq_length / context
        parallelism.
    Bad: tp_comm_overlap true, no pad_to_max_length. Good: packs of exactly seq_length.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true and {dataset.offline_packing_specs.packed_sequence_size}
        to {model.seq_length}, or {model.tp_comm_overlap} to false.
    Evidence: read in megatron-bridge 0.6.2; the failure is inferred.
    """
    switched_on = switches_on(run, *_overlaps("tp_comm_overlap"))
    if run.splits_sequence and switched_on and not has_constant_width(run):
        actual = f"true, packs {'of' if run.pads_to_max_length else 'up to'} {run.packed_sequence_size} tokens"
        yield wrong(switched_on[0], actual, f"true with packs of exactly {run.seq_length} tokens")


@fixable_rule("BP810", WARNING, when=(splits_context, IS_PACKED, has_own_dataset))
def own_dataset_without_per_token_loss(run: Run) -> Found:
    """Context parallelism averages the loss per rank, which the host does not check for your own dataset class.

    Why: Silent: ranks with few trained tokens weigh as much as others, and a rank with none gives NaN.
    Bad: a dataset class of your own, CP 2, calculate_per_token_loss false. Good: calculate_per_token_loss true.
    Fix: Set {model.calculate_per_token_loss} to true and {ddp.average_in_collective} to false.
    Evidence: Megatron-LM #7452, #7513; read in megatron-bridge 0.6.2.
    Source: PSB810; bridge/training/config.py:1435-1457
    """
    if not computes_loss_per_token(run):
        actual, changes = f"false with context parallelism and {run.dataset_kind}", per_token_loss(run)
        yield wrong(_PER_TOKEN, actual, "true with context parallelism", changes=changes)


@rule("BP811", ADVICE, when=(IS_PACKED, has_own_dataset), evidence="read in megatron-bridge 0.6.2")
def own_iterator_shared_by_virtual_stages(run: Run) -> Found:
    """Your own dataset class feeds several virtual pipeline stages from one iterator.

    Why: Crash at the first step if the iterator cannot be shared: every model chunk reads the same micro batch.
    Bad: a dataset class of your own, virtual_pipeline_model_parallel_size 2. Good: GPTSFTDatasetConfig.
    Fix: Use the host's loaders, or make an iterator that can be copied. Noticed: first step.
    Source: PSB811; bridge/training/train.py:894-901; bridge/data/iterator_utils.py
    """
    if _num_chunks(run) > 1:
        actual = f"{run.dataset_kind} with {_num_chunks(run)} virtual stages"
        yield wrong("dataset", actual, "an iterator that each model chunk can read on its own")


@rule("BP813", WARNING, "PSB813; bridge/training/train.py:904-911", when=PACKS_OFFLINE, noticed="first step")
def distillation_stages_of_another_width(run: Run) -> Found:
    """Pipeline stages of a distillation exchange tensors of seq_length tokens, but packs have another width.

    Why: Crash at the first step: stages expect tensors of {model.seq_length}, but packs are narrower.
    Bad: a DistillationProvider, two pipeline stages, no pad_to_max_length. Good: packs of seq_length.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true and {dataset.offline_packing_specs.packed_sequence_size}
        to {model.seq_length}.
    Evidence: inferred from the source of megatron-bridge 0.6.2.
    """
    is_distilled = run.class_name("model") == "DistillationProvider" and run.pipeline_model_parallel_size > 1
    if is_distilled and not has_constant_width(run):
        actual = f"{run.packed_sequence_size}, {'every' if run.pads_to_max_length else 'not every'} pack padded to it"
        yield wrong(f"{SPECS}.packed_sequence_size", actual, f"{run.seq_length} with every pack padded to it")


@rule("BP814", ADVICE, "PSB814; bridge/training/config.py, _validate_and_apply_megatron_fsdp_configs")
def sharded_parameters_with_context_parallelism(run: Run) -> Found:
    """Fully sharded data parallelism with packs and context parallelism is not tested upstream.

    Why: Silent if it is wrong: the loss per token must also be summed over context-parallel ranks.
    Bad: use_megatron_fsdp true, context_parallel_size 2, packing on. Good: distributed data parallelism.
    Fix: First compare a few steps on two GPUs with a run without sharding. Evidence: inferred; nothing was executed.
    """
    switched_on = switches_on(run, "dist.use_megatron_fsdp", "ddp.use_megatron_fsdp", "dist.use_torch_fsdp2")
    if switched_on and run.is_packed and splits_context(run):
        actual = f"true with context parallelism {run.context_parallel_size}"
        yield wrong(switched_on[0], actual, "a comparison with an unsharded run first")


#: Tokens that HybridEP's combine kernel takes at a time.
HYBRID_CHUNK_TOKENS = 128
#: Settings that megatron-core refuses without the overlap.
#: Source: megatron/core/transformer/transformer_config.py:2749-2775.
_NEED_OVERLAP = ("delay_wgrad_compute", "ep_overlap_early_attn_memory_release")
_BALANCING = "model.moe_router_load_balancing_type"


@fixable_rule(
    "BP802",
    ERROR,
    "PSB802; bridge/training/gpt_step.py:454-461",
    when=PACKS_OFFLINE,
    versions={BRIDGE: "<0.7"},
)
def expert_overlap_drops_boundaries(run: Run) -> Found:
    """The overlap of expert communication with compute loses the sequence boundaries.

    Why: Silent: the overlapped schedule is built without packed_seq_params, so every token attends to all sequences
        before it in the pack and positions run on; the loss looks plausible.
    Bad: overlap_moe_expert_parallel_comm true, packing on. Good: overlap_moe_expert_parallel_comm false.
    Fix: Set {model.overlap_moe_expert_parallel_comm & comm_overlap.overlap_moe_expert_parallel_comm} to false.
    Evidence: read in megatron-bridge 0.6.2; fixed after 0.6.2 by Bridge #5470.
    """
    switched_on = switches_on(run, *_overlaps("overlap_moe_expert_parallel_comm"))
    if switched_on:
        changes_by_path = [change(path, False, "the overlapped schedule loses the boundaries") for path in switched_on]
        changes_by_path += [
            change(path, False, "it needs the overlap") for path in switches_on(run, *_overlaps(*_NEED_OVERLAP))
        ]
        changes = tuple(itertools.chain(*changes_by_path))
        yield wrong(switched_on[0], "true with packs", "false with packs", changes=changes)


@rule("BP806", ADVICE, when=(PACKS_OFFLINE, HAS_EXPERTS), versions={BRIDGE: "<0.7"})
def router_counts_padding(run: Run) -> Found:
    """Padding tokens count in the statistics that balance the experts.

    Why: Silent: balancing losses and expert biases adapt to EOS tokens; the effect grows with the share of padding.
    Bad: an aux loss above 0 and packs with a tail of 20 percent. Good: packs filled to 99 percent.
    Fix: Keep padding small; megatron-bridge after 0.6.2 passes the router a mask.
    Evidence: read in the source; Bridge #5470; Megatron-LM #6111, #2142, #4776, #7481.
    Source: PSB806; bridge/training/gpt_step.py:432-437
    """
    names = ("moe_aux_loss_coeff", "moe_z_loss_coeff", "moe_router_enable_expert_bias")
    balancing_paths = [path for path in (f"model.{name}" for name in names) if run.stated_value(path)]
    if balancing_paths and (run.pads_to_max_length or run.pad_seq_to_mult > 1):
        yield wrong(balancing_paths[0], "counts padding tokens", "little padding")


@rule("BP807", ADVICE, when=(IS_PACKED, HAS_EXPERTS), evidence="read in the source; Megatron-LM #6108, #7452")
def balance_per_sequence_means_per_pack(run: Run) -> Found:
    """Experts are balanced per sequence, but a pack counts as one sequence.

    Why: Silent: the loss balances experts over all sequences of a pack together, not within each.
    Bad: moe_router_load_balancing_type seq_aux_loss, packing on. Good: aux_loss or global_aux_loss.
    Fix: Use aux_loss or global_aux_loss if balance within each sequence matters.
    Source: PSB807; core/packed_seq_params.py:27; core/transformer/transformer_layer.py:792
    """
    if "seq_aux_loss" in run.items(_BALANCING) and run.stated_value("model.moe_aux_loss_coeff"):
        yield wrong(_BALANCING, "seq_aux_loss with packs", "aux_loss, global_aux_loss")


@fixable_rule("BP808", WARNING, when=PACKS_OFFLINE, evidence="read in the source; the 128 comes from the documentation")
def uneven_tokens_for_hybrid_dispatch(run: Run) -> Found:
    """HybridEP gets a number of tokens per rank that its kernels or CUDA graphs do not support.

    Why: Crash or hang at the first step with such a number: kernels combine 128 tokens at a time, and with CUDA graphs
        the host does not pad ranks to the same number.
    Bad: flex dispatcher hybridep, packed_sequence_size 4160 (not a multiple of 128); or CUDA graphs and varying widths.
    Good: 4096, pad_to_max_length.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} and make {dataset.offline_packing_specs.packed_sequence_size} a
        multiple of 128 x the ranks that share a pack.
    Noticed: first step, or never (hang).
    Source: PSB808; bridge/models/transformer_config.py:91-130; bridge/training/config.py:1249
    """
    backend = run.stated_value("model.moe_flex_dispatcher_backend")
    if run.stated_value("model.moe_token_dispatcher_type") != "flex" or backend != "hybridep":
        return
    if not run.pads_to_max_length:
        if graph_capture(run).is_on:
            path, why = "dataset.dataset_kwargs.pad_to_max_length", "every rank then has as many tokens"
            yield wrong(path, "not true with hybridep and CUDA graphs", "true", to=True, because=why)
    elif run.packed_sequence_size % (HYBRID_CHUNK_TOKENS * num_shares(run)):
        actual = f"{run.packed_sequence_size} over {count_text(num_shares(run), 'rank')} with hybridep"
        yield wrong(f"{SPECS}.packed_sequence_size", actual, f"a multiple of {HYBRID_CHUNK_TOKENS * num_shares(run)}")


@fixable_rule("BP803", ERROR, "PSB803; core/transformer/multi_token_prediction.py:238-268", when=IS_PACKED)
def prediction_labels_cross_sequences(run: Run) -> Found:
    """Multi-token prediction shifts labels at logical boundaries, but padded sequences have physical boundaries.

    Why: Silent: labels of the prediction layers end where sequences would without padding, and the last tokens of a
        pack have themselves as labels. With context parallelism 2, a quarter of the labels of sequences of 10 to 40
        tokens are wrong, and 2 % of those of 300 tokens.
    Bad: mtp_num_layers 1, pad_seq_to_mult 4, packing on. Good: mtp_num_layers not set.
    Fix: Set {model.mtp_num_layers} to None for fine-tuning.
    Evidence: executed with the real 0.6.2 and main; the host's documentation calls it unsupported; Megatron-LM #6205,
        #4495, #4494.
    """
    if run.num_mtp_layers > 0 and pads_between_sequences(run):
        yield _without_layers(run, "padded sequences", "its labels are wrong over padded sequences")


@fixable_rule("BP804", WARNING, when=IS_PACKED, evidence="read in the source; Bridge #6103, #6105")
def prediction_trains_prompts(run: Run) -> Found:
    """Multi-token prediction layers are trained on prompts and padding, because they do not get the loss mask.

    Why: Silent: the host does not pass the loss mask to the model, so the extra loss counts every token of the pack.
        Its documentation calls packs with these layers unsupported.
    Bad: mtp_num_layers 1, packing on. Good: mtp_num_layers not set.
    Fix: Set {model.mtp_num_layers} to None for fine-tuning.
    Source: PSB804, PSB803; bridge/training/gpt_step.py:432-437; core/transformer/multi_token_prediction.py:825
    """
    if run.num_mtp_layers > 0:
        yield _without_layers(run, "packs", "its loss ignores the loss mask")


@rule("BP805", WARNING, "PSB805; core/transformer/multi_token_prediction.py:837-860", when=IS_PACKED)
def prediction_loss_under_context_parallelism(run: Run) -> Found:
    """Multi-token prediction is trained with context parallelism, which scales its loss wrongly.

    Why: Silent: the extra loss is divided by the tokens of one rank, not by those of the sequence.
    Bad: mtp_num_layers 1, context_parallel_size 2. Good: context_parallel_size 1, or no prediction layers.
    Fix: Set {model.mtp_num_layers} to None for fine-tuning. Evidence: Megatron-LM #7498.
    """
    if run.num_mtp_layers > 0 and splits_context(run):
        actual = f"{run.num_mtp_layers} with context parallelism {run.context_parallel_size}"
        yield wrong(_LAYERS, actual, "None, or context parallelism 1")
