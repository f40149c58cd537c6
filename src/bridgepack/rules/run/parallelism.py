"""Rules on pipeline, tensor and data parallelism over packed rows."""

from __future__ import annotations

from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, WARNING, Found, change, rule, wrong
from bridgepack.rules.engine.subject import COLLATE_DATASETS, IS_PACKED, PACKS_OFFLINE, SPECS, TEXT_DATASETS, Run
from bridgepack.rules.run.kernel_facts import has_constant_width

_PER_TOKEN = "model.calculate_per_token_loss"
_AVERAGE = "ddp.average_in_collective"


def _num_chunks(run: Run) -> int:
    return run.integer("model.virtual_pipeline_model_parallel_size", default=1)


def _has_own_dataset(run: Run) -> bool:
    return run.dataset_kind not in TEXT_DATASETS | COLLATE_DATASETS


@rule("BP801", ERROR, when=PACKS_OFFLINE, versions={BRIDGE: "<0.5"})
def middle_stages_without_boundaries(run: Run) -> Found:
    """Middle pipeline stages of this megatron-bridge never get the boundaries of packed sequences.

    Why: Silent: their layers attend across all sequences of a pack; benchmarks fell by 10 to 20 points while the loss
        looked better (0.035 against 0.571).
    Bad: megatron-bridge 0.4.2, pipeline_model_parallel_size 4, packing on.
    Good: megatron-bridge 0.5.0 or newer; or at most 2 stages without virtual ones.
    Fix: Upgrade megatron-bridge to 0.5.0 or newer, or use at most two pipeline stages.
    Evidence: Bridge #2952, fixed by #3926; Megatron-LM #4092, #4150 for its own loop. Rows packed in the batch are not
        concerned: read in vlm_step of 0.4.2, which reads them on every stage.
    Source: PSB801; bridge/training/gpt_step.py:120-124,311-317 (the mended form)
    """
    if run.pipeline_model_parallel_size == 1:
        return
    num_stages = run.pipeline_model_parallel_size * _num_chunks(run)
    if num_stages > 2:
        yield wrong(
            "model.pipeline_model_parallel_size",
            f"{run.pipeline_model_parallel_size}, {num_stages} stages with virtual ones, megatron-bridge "
            f"{run.versions[BRIDGE]}",
            "at most 2 stages, or megatron-bridge 0.5.0 and newer",
        )


@rule("BP809", WARNING, "PSB809; bridge/training/initialize.py:355", when=PACKS_OFFLINE, noticed="some step")
def tensor_overlap_buffers_of_another_width(run: Run) -> Found:
    """Tensor-parallel communication is overlapped through buffers sized for rows of another width.

    Why: Crash or corrupted values at the first row of another width: buffers hold seq_length / context parallelism.
    Bad: tp_comm_overlap true, no pad_to_max_length.
    Good: tp_comm_overlap true, pad_to_max_length true, packed_sequence_size equal to seq_length.
    Fix: Set pad_to_max_length to true and packed_sequence_size to seq_length, or tp_comm_overlap to false.
    Evidence: read in the source of megatron-bridge 0.6.2; the failure is inferred.
    """
    if not run.splits_sequence:
        return
    overlaps = [f"{section}.tp_comm_overlap" for section in ("model", "comm_overlap")]
    switched_on = [path for path in overlaps if run.stated(path) is True]
    if switched_on and not has_constant_width(run):
        found = f"true, rows {'of' if run.pads_to_max_length else 'up to'} {run.packed_sequence_size} tokens"
        yield wrong(switched_on[0], found, f"true with rows of exactly {run.seq_length} tokens")


@rule("BP810", WARNING, "PSB810; bridge/training/config.py:1435-1457")
def own_dataset_without_per_token_loss(run: Run) -> Found:
    """Context parallelism averages the loss per rank, and the host does not check it for this dataset class.

    Why: Silent: ranks with few trained tokens weigh as much as others, and one with none gives NaN.
    Bad: a dataset class of your own, context_parallel_size 2, calculate_per_token_loss false.
    Good: the same with calculate_per_token_loss true and average_in_collective false.
    Fix: Set model.calculate_per_token_loss to true and ddp.average_in_collective to false.
    Evidence: Megatron-LM #7452, #7513; read in the source of megatron-bridge 0.6.2.
    """
    if run.context_parallel_size == 1 or not run.is_packed or not _has_own_dataset(run):
        return
    if not run.flag(_PER_TOKEN):
        yield wrong(
            _PER_TOKEN,
            f"false with context parallelism and {run.dataset_kind}",
            "true with context parallelism",
            changes=(
                *change(_PER_TOKEN, True, "every trained token then weighs the same"),
                *change(_AVERAGE, False, "a loss per token must not be averaged again"),
            ),
        )


@rule("BP811", ADVICE, when=IS_PACKED, noticed=FIRST_STEP, evidence="read in the source of megatron-bridge 0.6.2")
def own_iterator_shared_by_virtual_stages(run: Run) -> Found:
    """A dataset class of your own feeds several virtual pipeline stages from one iterator.

    Why: Crash at the first step where the iterator cannot be shared: every model chunk reads the same micro batch.
    Bad: a dataset class of your own, virtual_pipeline_model_parallel_size 2.
    Good: GPTSFTDatasetConfig, virtual_pipeline_model_parallel_size 2.
    Fix: Use the host's loaders, or make an iterator that can be copied.
    Source: PSB811; bridge/training/train.py:894-901; bridge/data/iterator_utils.py
    """
    if _has_own_dataset(run) and _num_chunks(run) > 1:
        allowed = "an iterator that each model chunk can read on its own"
        yield wrong("dataset", f"{run.dataset_kind} with {_num_chunks(run)} virtual stages", allowed)


@rule("BP813", WARNING, "PSB813; bridge/training/train.py:904-911", when=PACKS_OFFLINE, noticed=FIRST_STEP)
def distillation_stages_of_another_width(run: Run) -> Found:
    """Pipeline stages of a distillation exchange tensors of seq_length while rows have another width.

    Why: Crash at the first step: stages expect tensors of model.seq_length, rows are narrower.
    Bad: a DistillationProvider, two pipeline stages, no pad_to_max_length.
    Good: the same with pad_to_max_length true and packed_sequence_size equal to seq_length.
    Fix: Set pad_to_max_length to true and packed_sequence_size to seq_length.
    Evidence: inferred from the source of megatron-bridge 0.6.2.
    """
    if run.class_name("model") != "DistillationProvider":
        return
    if run.pipeline_model_parallel_size > 1 and not has_constant_width(run):
        found = f"{run.packed_sequence_size}, {'every' if run.pads_to_max_length else 'not every'} row padded to it"
        yield wrong(f"{SPECS}.packed_sequence_size", found, f"{run.seq_length} with every row padded to it")


@rule("BP814", ADVICE, "PSB814; bridge/training/config.py, _validate_and_apply_megatron_fsdp_configs")
def sharded_parameters_with_context_parallelism(run: Run) -> Found:
    """Fully sharded data parallelism runs packed rows with context parallelism, which upstream tests nowhere.

    Why: Silent if it is wrong: the loss per token must be summed over context-parallel ranks too.
    Bad: use_megatron_fsdp true, context_parallel_size 2, packing on.
    Good: distributed data parallelism, context_parallel_size 2, packing on.
    Fix: First compare a few steps on two GPUs with a run without sharding.
    Evidence: inferred; nothing was executed.
    """
    flags = ("dist.use_megatron_fsdp", "ddp.use_megatron_fsdp", "dist.use_torch_fsdp2")
    switched_on = [path for path in flags if run.stated(path) is True]
    if switched_on and run.is_packed and run.context_parallel_size > 1:
        allowed = "a comparison with an unsharded run first"
        yield wrong(switched_on[0], f"true with context parallelism {run.context_parallel_size}", allowed)
