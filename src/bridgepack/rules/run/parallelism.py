"""Rules on pipeline, tensor and data parallelism over packed rows."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.kernel_facts import has_constant_width, stated
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import COLLATE_DATASETS, SPECS, TEXT_DATASETS, RunSubject
from bridgepack.rules.versions import BRIDGE

_PER_TOKEN = "model.calculate_per_token_loss"
_AVERAGE = "ddp.average_in_collective"


def _num_chunks(subject: RunSubject) -> int:
    return subject.settings.integer("model.virtual_pipeline_model_parallel_size", default=1)


def _has_own_dataset(subject: RunSubject) -> bool:
    return subject.dataset_kind not in TEXT_DATASETS | COLLATE_DATASETS


@rule(
    "BP801",
    ERROR,
    "PSB801; megatron/bridge/training/gpt_step.py:120-124,311-317 (the mended form)",
    versions={BRIDGE: "<0.5"},
)
def middle_stages_without_boundaries(subject: RunSubject) -> Iterator[Violation]:
    """Middle pipeline stages of this megatron-bridge never get the boundaries of packed sequences.

    Why: Silent: their layers attend across all sequences of a pack; benchmarks fell by 10 to 20 points while the loss
        looked better (0.035 against 0.571).
    Bad: megatron-bridge 0.4.2, pipeline_model_parallel_size 4, packing on.
    Good: megatron-bridge 0.5.0 or newer; or at most 2 stages without virtual ones.
    Fix: Upgrade megatron-bridge to 0.5.0 or newer, or use at most two pipeline stages.
    Evidence: Bridge #2952, fixed by #3926; Megatron-LM #4092, #4150 for its own loop. Rows packed in the batch are not
        concerned: read in vlm_step of 0.4.2, which reads them on every stage.
    """
    if not subject.packs_offline or subject.pipeline_model_parallel_size == 1:
        return
    num_stages = subject.pipeline_model_parallel_size * _num_chunks(subject)
    if num_stages > 2:
        yield Violation(
            where="model.pipeline_model_parallel_size",
            found=f"{subject.pipeline_model_parallel_size}, {num_stages} stages with virtual ones, megatron-bridge "
            f"{subject.versions[BRIDGE]}",
            allowed="at most 2 stages, or megatron-bridge 0.5.0 and newer",
        )


@rule("BP809", WARNING, "PSB809; megatron/bridge/training/initialize.py:355", noticed="some step")
def tensor_overlap_buffers_of_another_width(subject: RunSubject) -> Iterator[Violation]:
    """Tensor-parallel communication is overlapped through buffers sized for rows of another width.

    Why: Crash or corrupted values at the first row of another width: buffers hold seq_length / context parallelism.
    Bad: tp_comm_overlap true, no pad_to_max_length.
    Good: tp_comm_overlap true, pad_to_max_length true, packed_sequence_size equal to seq_length.
    Fix: Set pad_to_max_length to true and packed_sequence_size to seq_length, or tp_comm_overlap to false.
    Evidence: read in the source of megatron-bridge 0.6.2; the failure is inferred.
    """
    if not subject.packs_offline or not subject.splits_sequence:
        return
    overlaps = [f"{section}.tp_comm_overlap" for section in ("model", "comm_overlap")]
    switched_on = [path for path in overlaps if stated(subject, path) is True]
    if switched_on and not has_constant_width(subject):
        yield Violation(
            where=switched_on[0],
            found=f"true, rows {'of' if subject.pads_to_max_length else 'up to'} {subject.packed_sequence_size} tokens",
            allowed=f"true with rows of exactly {subject.seq_length} tokens",
        )


@rule("BP810", WARNING, "PSB810; megatron/bridge/training/config.py:1435-1457")
def own_dataset_without_per_token_loss(subject: RunSubject) -> Iterator[Violation]:
    """Context parallelism averages the loss per rank, and the host does not check it for this dataset class.

    Why: Silent: ranks with few trained tokens weigh as much as others, and one with none gives NaN.
    Bad: a dataset class of your own, context_parallel_size 2, calculate_per_token_loss false.
    Good: the same with calculate_per_token_loss true and average_in_collective false.
    Fix: Set model.calculate_per_token_loss to true and ddp.average_in_collective to false.
    Evidence: Megatron-LM #7452, #7513; read in the source of megatron-bridge 0.6.2.
    """
    if subject.context_parallel_size == 1 or not subject.is_packed or not _has_own_dataset(subject):
        return
    if not subject.settings.flag(_PER_TOKEN):
        yield Violation(
            where=_PER_TOKEN,
            found=f"false with context parallelism and {subject.dataset_kind}",
            allowed="true with context parallelism",
            changes=(
                *change(_PER_TOKEN, True, "every trained token then weighs the same"),
                *change(_AVERAGE, False, "a loss per token must not be averaged again"),
            ),
        )


@rule("BP811", ADVICE, "PSB811; megatron/bridge/training/train.py:894-901; megatron/bridge/data/iterator_utils.py")
def own_iterator_shared_by_virtual_stages(subject: RunSubject) -> Iterator[Violation]:
    """A dataset class of your own feeds several virtual pipeline stages from one iterator.

    Why: Crash at the first step where the iterator cannot be shared: every model chunk reads the same micro batch.
    Bad: a dataset class of your own, virtual_pipeline_model_parallel_size 2.
    Good: GPTSFTDatasetConfig, virtual_pipeline_model_parallel_size 2.
    Fix: Use the host's loaders, or make an iterator that can be copied.
    Noticed: first step.
    Evidence: read in the source of megatron-bridge 0.6.2.
    """
    if subject.is_packed and _has_own_dataset(subject) and _num_chunks(subject) > 1:
        yield Violation(
            where="dataset",
            found=f"{subject.dataset_kind} with {_num_chunks(subject)} virtual stages",
            allowed="an iterator that each model chunk can read on its own",
        )


@rule("BP813", WARNING, "PSB813; megatron/bridge/training/train.py:904-911", noticed="first step")
def distillation_stages_of_another_width(subject: RunSubject) -> Iterator[Violation]:
    """Pipeline stages of a distillation exchange tensors of seq_length while rows have another width.

    Why: Crash at the first step: stages expect tensors of model.seq_length, rows are narrower.
    Bad: a DistillationProvider, two pipeline stages, no pad_to_max_length.
    Good: the same with pad_to_max_length true and packed_sequence_size equal to seq_length.
    Fix: Set pad_to_max_length to true and packed_sequence_size to seq_length.
    Evidence: inferred from the source of megatron-bridge 0.6.2.
    """
    if not subject.packs_offline or subject.settings.class_name("model") != "DistillationProvider":
        return
    if subject.pipeline_model_parallel_size > 1 and not has_constant_width(subject):
        yield Violation(
            where=f"{SPECS}.packed_sequence_size",
            found=f"{subject.packed_sequence_size}, "
            f"{'every' if subject.pads_to_max_length else 'not every'} row padded to it",
            allowed=f"{subject.seq_length} with every row padded to it",
        )


@rule("BP814", ADVICE, "PSB814; megatron/bridge/training/config.py, _validate_and_apply_megatron_fsdp_configs")
def sharded_parameters_with_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """Fully sharded data parallelism runs packed rows with context parallelism, which upstream tests nowhere.

    Why: Silent if it is wrong: the loss per token must be summed over context-parallel ranks too.
    Bad: use_megatron_fsdp true, context_parallel_size 2, packing on.
    Good: distributed data parallelism, context_parallel_size 2, packing on.
    Fix: First compare a few steps on two GPUs with a run without sharding.
    Evidence: inferred; nothing was executed.
    """
    flags = ("dist.use_megatron_fsdp", "ddp.use_megatron_fsdp", "dist.use_torch_fsdp2")
    switched_on = [path for path in flags if stated(subject, path) is True]
    if switched_on and subject.is_packed and subject.context_parallel_size > 1:
        yield Violation(
            where=switched_on[0],
            found=f"true with context parallelism {subject.context_parallel_size}",
            allowed="a comparison with an unsharded run first",
        )
