"""Rules on attention kernels at sequence boundaries: padding, tails, very short and very many sequences."""

from packaging.version import Version

from bridgepack.geometry import CU_SEQLENS_EXTRA_ENTRIES
from bridgepack.rules.judging.environment import CORE, ENGINE
from bridgepack.rules.judging.rule import ADVICE, ERROR, EXECUTED, WARNING, Found, place, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.reading import has_own_dataset, splits_context, truths, uses_engine_attention

_CORE_WITH_PARTITION = Version("0.18.0")
#: Maximum boundaries in the default 48 KiB of shared memory of a kernel, 4 bytes each.
MAX_BOUNDARIES = 48 * 1024 // 4
#: Share of a pack, 0-1, that may be tail before it is reported.
_MUCH_TAIL_FRACTION = 0.1


@rule("BP703", WARNING, when=(PACKS_OFFLINE, splits_context), versions={ENGINE: "<2.18"})
def padding_at_the_end_unseen(run: Run) -> Found:
    """In some packs only the last boundary differs between cu_seqlens and cu_seqlens_padded.

    Why: Silent: this TransformerEngine compares all boundaries except the last, so such a pack counts as unpadded. The
        ring exchange then splits its last sequence wrongly: outputs and gradients vary from run to run.
    Bad: CP 2, TransformerEngine 2.17, a full pack in which only the last sequence is padded.
    Good: TransformerEngine 2.18; or cp_comm_type a2a; or pad_cu_seqlens true, which moves the difference inside.
    Fix: Install TransformerEngine 2.18 or newer, or set {dataset.offline_packing_specs.pad_cu_seqlens} to true with its
        metadata.
    Evidence: TransformerEngine #3331, fixed by #2898; read in the source. A pack is safe if another pack of
        its batch has more sequences. Source: PSB703; TE/dot_product_attention/dot_product_attention.py:1562-1572
    """
    is_split_by_ring = run.pad_seq_to_mult != 1 and "p2p" in run.cp_comm_types and uses_engine_attention(run)
    if not is_split_by_ring or run.flag(f"{SPECS}.pad_cu_seqlens"):
        return
    for truth in truths(run):
        if truth.num_blind_rows:
            actual = f"{truth.num_blind_rows} of {truth.num_rows} packs, TransformerEngine {run.versions[ENGINE]}"
            yield wrong(place(truth.split), actual, "no such pack, TransformerEngine 2.18 or newer, or pad_cu_seqlens")


@rule("BP714", ADVICE, "PSB714; bridge/data/packing/gpt_sft.py:302-306", when=(IS_PACKED, has_own_dataset))
def own_dataset_computes_longest_sequence(run: Run) -> Found:
    """Your own dataset class packs sequences: its max_seqlen must also cover the padding at a pack's end.

    Why: Silent: a max_seqlen smaller than the tail gives NaN where the kernel reads out of bounds.
    Bad: max_seqlen is the longest real sequence while the pack's tail is longer. Good: the longer of the two.
    Fix: Compute it as the host's collate does; GPTSFTDatasetConfig needs no change.
    Evidence: a comment in the source of megatron-bridge 0.6.2.
    """
    yield wrong("dataset", run.dataset_kind, "a max_seqlen that covers the longest tail")


@rule("BP715", ADVICE, "PSB715; bridge/data/packing/gpt_sft.py:238-242", when=PACKS_OFFLINE, evidence=EXECUTED)
def tail_attends_as_a_sequence(run: Run) -> Found:
    """With pad_seq_to_mult 1 the host computes the padding at the end of a pack as one more sequence.

    Why: Slow: attention over a tail of n tokens costs n x n; experts, routers and FLOP counts see its tokens.
    Bad: pad_seq_to_mult 1, packs filled to 80 percent. Good: packs filled to 99 percent.
    Fix: Fill the packs better, with a larger {dataset.offline_packing_specs.packed_sequence_size}, or another packing
        algorithm.
    """
    if not run.pads_to_max_length or run.pad_seq_to_mult != 1:
        return
    for truth in truths(run):
        tail_fraction = 1 - truth.num_tokens / (truth.num_rows * max(run.packed_sequence_size, 1))
        if tail_fraction > _MUCH_TAIL_FRACTION:
            yield wrong(place(truth.split), f"{tail_fraction:.1%} of the tokens are tail", "a few percent")


@rule("BP716", WARNING, "PSB716", when=(PACKS_OFFLINE, splits_context), versions={ENGINE: "<2.14"})
def very_short_sequences_with_old_kernels(run: Run) -> Found:
    """Some sequences are so short that a context-parallel chunk of them is only padding.

    Why: Silent: before TransformerEngine 2.14 gradients of such a chunk can be NaN.
    Bad: CP 4, a sequence of 3 tokens padded to 8, TransformerEngine 2.12. Good: TransformerEngine 2.14 or newer.
    Fix: Upgrade TransformerEngine, or drop sequences shorter than 2 x context parallelism.
    Noticed: never, or by a check for NaN in gradients. Evidence: TransformerEngine #2186, #1930, #3332.
    """
    for truth in truths(run):
        if truth.min_runtime_length <= 2 * run.context_parallel_size:
            actual = f"shortest sequence {truth.min_runtime_length} tokens, TransformerEngine {run.versions[ENGINE]}"
            allowed_values = f"more than {2 * run.context_parallel_size} tokens, or TransformerEngine 2.14"
            yield wrong(place(truth.split), actual, allowed_values)


@rule("BP719", ERROR, when=IS_PACKED, evidence="read in megatron-bridge 0.6.2")
def core_cannot_split_packs(run: Run) -> Found:
    """This megatron-core is too old to split packs over context-parallel ranks.

    Why: Crash at the first step: "THD context-parallel partitioning requires Megatron-Core >= 0.18.0". Versions such as
        0.18.0rc0 count as older.
    Bad: megatron-bridge 0.6.2, megatron-core 0.18.0rc0, CP 2, packing on. Good: megatron-core 0.19.2.
    Fix: Install the megatron-core that the host was released with, 0.19.2. Noticed: first step.
    Source: PSB719; bridge/training/utils/packed_seq_utils.py:53-60
    """
    largest = max(run.context_parallel_sizes)
    if largest > 1 and run.versions[CORE] < _CORE_WITH_PARTITION:
        actual = f"{largest} with megatron-core {run.versions[CORE]}"
        yield wrong("model.context_parallel_size", actual, f"megatron-core {_CORE_WITH_PARTITION} or newer")


@rule("BP720", WARNING, when=(IS_PACKED, splits_context), versions={ENGINE: "<2.17"})
def attention_kernels_older_than_the_host(run: Run) -> Found:
    """Packs are split by context parallelism with a TransformerEngine older than the host was tested with.

    Why: Crash or silent: the host does not pin its version, so pip may keep one without fixes that such packs need.
    Bad: megatron-bridge 0.6.2, transformer-engine 2.12.0, CP 2, packing on. Good: transformer-engine 2.17.1.
    Fix: Use the container of the release, or install transformer-engine 2.17.1. Noticed: first step, or never.
    Evidence: metadata of the 0.6.2 package; Bridge #5349. Source: PSB720; megatron-bridge 0.6.2 METADATA
    """
    yield wrong(place(ENGINE), str(run.versions[ENGINE]), "2.17.1, or newer")


@rule("BP722", WARNING, when=(PACKS_OFFLINE, splits_context), noticed="some step")
def too_many_boundaries_for_a_kernel(run: Run) -> Found:
    """A pack has more boundaries than fit into the shared memory of the kernel that splits packs over ranks.

    Why: Crash at the step that reads such a pack, with a CUDA error: boundaries are copied into 48 KiB.
    Bad: context_parallel_size 2, 13,000 sequences in one pack. Good: fewer than 12,286 sequences per pack.
    Fix: Use a smaller {dataset.offline_packing_specs.packed_sequence_size}, or drop the shortest sequences.
    Evidence: inferred from the source of TransformerEngine 2.17.
    Source: PSB722; TransformerEngine 2.17 common/fused_attn/context_parallel.cu:675
    """
    for truth in truths(run):
        num_boundaries = truth.max_sequences_per_row + CU_SEQLENS_EXTRA_ENTRIES
        if num_boundaries > MAX_BOUNDARIES:
            yield wrong(place(truth.split), f"{num_boundaries} boundaries in a pack", f"at most {MAX_BOUNDARIES}")
