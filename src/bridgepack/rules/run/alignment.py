"""Rules on multiples of sequences and packs, under context and sequence parallelism."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from bridgepack.rules.context import CannotJudgeError
from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.packed_paths import longest_sequence, splits_packed_by_host
from bridgepack.rules.run.reading import nearest_multiples
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import SPECS, RunSubject
from bridgepack.rules.versions import BRIDGE

#: Shipped recipes of 0.6 that derive pad_seq_to_mult above the line that sets context_parallel_size.
_SETS_MULTIPLE_FIRST = re.compile(
    r"(llama3[12]?_\d+b|gemma2_\d+b|gemma3_1b|gpt_oss_\d+b)_(sft|peft)(_\d+gpu_h100_bf16)?_config"
)


@rule("BP101", ERROR, "PSB101, PSB105, PSB117, PSC303; megatron/core/models/common/embeddings/rope_utils.py:222")
def sequences_not_divisible_by_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """pad_seq_to_mult is no multiple of 2 x context_parallel_size, of training or of evaluation.

    Why: Crash at the first step with unfused RoPE; silent with fused RoPE: ranks get other tokens than they attend to.
    Bad: context_parallel_size 2, pad_seq_to_mult 1.
    Good: context_parallel_size 2, pad_seq_to_mult 4.
    Fix: Set pad_seq_to_mult to lcm(2 x CP, CP x TP with sequence parallelism), of both CP sizes, and pack again.
        Recipes derive it when they are made: overriding context_parallel_size later does not move it.
    Evidence: read in the source; Bridge #1867, #1292. That the kernel's own assertion is compiled out is inferred.
    """
    if not subject.has_specs:
        return
    multiple, needed = subject.pad_seq_to_mult, subject.needed_sequence_multiple
    if multiple < 1 or multiple % needed == 0:
        return
    best = subject.recommended_pad_seq_to_mult
    value = best if subject.packed_sequence_size % best == 0 else needed
    sizes = " and ".join(str(size) for size in subject.context_parallel_sizes)
    yield Violation(
        where=f"{SPECS}.pad_seq_to_mult",
        found=f"{multiple}, with context_parallel_size {sizes}",
        allowed=f"a multiple of {needed}; {best} is recommended",
        changes=change(f"{SPECS}.pad_seq_to_mult", value, "2 x context_parallel_size divides it", needs_repack=True),
    )


@rule("BP102", ERROR, "PSB102, PSC303, PSB812; megatron/core/tensor_parallel/mappings.py:74")
def pack_not_divisible_by_sequence_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """With sequence parallelism, packed_sequence_size is no multiple of context x tensor parallelism.

    Why: Crash at the first full row: first dimension of the tensor should be divisible by tensor parallel size.
    Bad: packed_sequence_size 4100, sequence_parallel, context_parallel_size 2, tensor_model_parallel_size 4.
    Good: packed_sequence_size 4096, sequence_parallel, context_parallel_size 2, tensor_model_parallel_size 4.
    Fix: Make packed_sequence_size and seq_length a multiple of CP x TP, and pack again.
    Noticed: first step; validate() checks only datasets that pack in the batch.
    Evidence: read in the source; NeMo-RL #2110.
    """
    if not subject.has_specs or not subject.splits_sequence:
        return
    tensor, size = subject.tensor_model_parallel_size, subject.packed_sequence_size
    needed = math.lcm(*(context * tensor for context in subject.context_parallel_sizes))
    if size > 0 and size % needed:
        allowed = f"a multiple of {needed}, e.g. {nearest_multiples(size, subject.needed_width_multiple)}"
        yield Violation(where=f"{SPECS}.packed_sequence_size", found=str(size), allowed=allowed)


@rule("BP103", ERROR, "PSB103, PSC303; megatron/bridge/data/packing/gpt_sft.py:221")
def pack_not_divisible_by_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """packed_sequence_size is no multiple of 2 x context_parallel_size, of training or of evaluation.

    Why: Crash at the first step, or silent with fused RoPE: the padding at a row's end is one more sequence, and it
        does not divide.
    Bad: packed_sequence_size 4098, context_parallel_size 2.
    Good: packed_sequence_size 4096, context_parallel_size 2.
    Fix: Make packed_sequence_size and seq_length a multiple of 2 x CP, and pack again.
    Noticed: never; validate() looks at model.seq_length only.
    """
    if not subject.has_specs:
        return
    size, needed = subject.packed_sequence_size, subject.needed_sequence_multiple
    if size > 0 and size % needed:
        allowed = f"a multiple of {needed}, e.g. {nearest_multiples(size, subject.needed_width_multiple)}"
        yield Violation(where=f"{SPECS}.packed_sequence_size", found=str(size), allowed=allowed)


@rule("BP104", ERROR, "PSB104; megatron/bridge/training/config.py:1435", noticed="validate()")
def seq_length_not_divisible_by_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """model.seq_length is no multiple of 2 x context_parallel_size.

    Why: Crash at start: validate() refuses it, packed or not.
    Bad: model.seq_length 4098, context_parallel_size 2.
    Good: model.seq_length 4096, context_parallel_size 2.
    Fix: Make model.seq_length, dataset.seq_length and packed_sequence_size the same multiple of 2 x CP.
    Evidence: executed with the real 0.6.2.
    """
    context = subject.context_parallel_size
    if context > 1 and subject.seq_length % (2 * context):
        allowed = f"a multiple of {2 * context}, e.g. {nearest_multiples(subject.seq_length, 2 * context)}"
        yield Violation(where="model.seq_length", found=str(subject.seq_length), allowed=allowed)


@rule("BP105", WARNING, "PSB105; megatron/bridge/recipes/llama/h100/llama3.py:1346", versions={BRIDGE: ">=0.6,<0.7"})
def recipe_derives_multiple_too_early(subject: RunSubject) -> Iterator[Violation]:
    """The shipped recipe sets pad_seq_to_mult from context_parallel_size before it sets context_parallel_size.

    Why: Silent: as shipped the run is right, without context parallelism. Whoever copies the recipe and raises
        context_parallel_size in it keeps pad_seq_to_mult 1, and the run breaks.
    Bad: llama3_8b_sft_config, whose `if context_parallel_size > 1` stands above `context_parallel_size = 1`.
    Good: qwen3_600m_sft_config, where it stands below.
    Fix: State pad_seq_to_mult yourself whenever you set context_parallel_size.
    Evidence: read in the source: 26 functions of llama3, gemma2, gemma3 1b and gpt-oss.
    """
    name = re.split(r"[.:/]", subject.config.place)[-1]
    if not _SETS_MULTIPLE_FIRST.fullmatch(name) or not subject.has_specs:
        return
    if subject.context_parallel_size == 1:
        yield Violation(
            where=f"{SPECS}.pad_seq_to_mult",
            found=f"{name} derives it before it sets context_parallel_size",
            allowed="a value that is set together with context_parallel_size",
        )


@rule("BP110", ERROR, "PSB110; megatron/bridge/data/packing/offline.py:178", noticed="dataset build")
def multiple_exceeds_longest_sequence(subject: RunSubject) -> Iterator[Violation]:
    """The host is to pack, and pad_seq_to_mult is larger than the longest sequence may be.

    Why: Crash when rank 0 packs: max_seq_length must be at least the effective padding multiple.
    Bad: seq_length 8, pad_seq_to_mult 16, no path to packs.
    Good: seq_length 4096, pad_seq_to_mult 16.
    Fix: Raise seq_length, or lower context and tensor parallelism.
    """
    if not splits_packed_by_host(subject):
        return
    multiple, longest = subject.pad_seq_to_mult, longest_sequence(subject)
    if multiple > 1 and longest < multiple:
        yield Violation(where=f"{SPECS}.pad_seq_to_mult", found=str(multiple), allowed=f"1 to {longest}")


def _host_multiple(subject: RunSubject) -> int | None:
    """Return the multiple that the host really pads to where dataset_kwargs decides it; None where it does not."""
    if not splits_packed_by_host(subject) or subject.pad_seq_to_mult <= 1:
        return None
    multiple = subject.dataset_kwargs.get("pad_seq_length_to_mult")
    if multiple is not None and (type(multiple) is not int or multiple < 1):
        raise CannotJudgeError(f"dataset.dataset_kwargs.pad_seq_length_to_mult is {multiple!r}")
    return multiple


@rule("BP111", WARNING, "PSB111; megatron/bridge/data/packing/offline.py:185", evidence="executed with the real 0.6.2")
def multiple_overridden_by_dataset_kwargs(subject: RunSubject) -> Iterator[Violation]:
    """The host is to pack, and dataset_kwargs.pad_seq_length_to_mult is not a multiple of pad_seq_to_mult.

    Why: Silent: sequences are padded to the former, while the run believes the latter.
    Bad: pad_seq_to_mult 8, dataset_kwargs {"pad_seq_length_to_mult": 4}.
    Good: pad_seq_to_mult 8, dataset_kwargs {"pad_to_max_length": true}.
    Fix: Remove pad_seq_length_to_mult from dataset_kwargs and set pad_to_max_length there, or make both equal.
    """
    real = _host_multiple(subject)
    if real is not None and real % subject.pad_seq_to_mult:
        multiple = subject.pad_seq_to_mult
        where = "dataset.dataset_kwargs.pad_seq_length_to_mult"
        why = "the multiple that pad_seq_to_mult names"
        yield Violation(
            where=where,
            found=f"{real}, with pad_seq_to_mult {multiple}",
            allowed=f"a multiple of {multiple}",
            changes=change(where, multiple, why, needs_repack=True),
        )


@rule("BP118", ADVICE, "PSB118; docs/training/packed-sequences.md", noticed="never; nothing breaks")
def multiple_below_recommendation(subject: RunSubject) -> Iterator[Violation]:
    """pad_seq_to_mult is enough for context parallelism, but not what the host's documentation recommends.

    Why: Slow at most: lcm(2 x CP, CP x TP) also keeps single sequences on whole sequence-parallel shards. Rows of one
        fixed width run without it, and shipped recipes do.
    Bad: context_parallel_size 2, tensor_model_parallel_size 4, sequence_parallel, pad_seq_to_mult 4.
    Good: context_parallel_size 2, tensor_model_parallel_size 4, sequence_parallel, pad_seq_to_mult 8.
    Fix: Set pad_seq_to_mult to the recommended multiple and pack again, or keep pad_to_max_length.
    Evidence: inferred from the source; shipped moonlight and qwen3 recipes use less.
    """
    if not subject.has_specs:
        return
    multiple, best = subject.pad_seq_to_mult, subject.recommended_pad_seq_to_mult
    is_enough = multiple >= 1 and multiple % subject.needed_sequence_multiple == 0
    if is_enough and multiple % best:
        yield Violation(where=f"{SPECS}.pad_seq_to_mult", found=str(multiple), allowed=f"a multiple of {best}")


@rule("BP119", ERROR, "PSB111, PSB101; megatron/bridge/data/packing/offline.py:185")
def host_pads_to_undivided_multiple(subject: RunSubject) -> Iterator[Violation]:
    """The host is to pack, to a multiple of dataset_kwargs that 2 x context_parallel_size does not divide.

    Why: Crash at the first step with unfused RoPE; silent with fused RoPE. pad_seq_to_mult is right and is not used.
    Bad: context_parallel_size 4, pad_seq_to_mult 8, dataset_kwargs {"pad_seq_length_to_mult": 4}.
    Good: context_parallel_size 4, pad_seq_to_mult 8, dataset_kwargs {"pad_seq_length_to_mult": 16}.
    Fix: Remove pad_seq_length_to_mult from dataset_kwargs, or make it a multiple of 2 x CP, and pack again.
    Evidence: executed with the real 0.6.2 for the multiple; read in the source for what follows.
    """
    real = _host_multiple(subject)
    needed = subject.needed_sequence_multiple if real is not None else 1
    if real is not None and real % needed:
        where = "dataset.dataset_kwargs.pad_seq_length_to_mult"
        value = math.lcm(subject.pad_seq_to_mult, needed)
        why = "2 x context_parallel_size divides it"
        yield Violation(
            where=where,
            found=f"{real}, which sequences are padded to",
            allowed=f"a multiple of {needed}",
            changes=change(where, value, why, needs_repack=True),
        )


@rule("BP126", WARNING, "PSB103; megatron/bridge/data/packing/offline.py:174")
def pack_not_divisible_by_its_multiple(subject: RunSubject) -> Iterator[Violation]:
    """packed_sequence_size is no multiple of pad_seq_to_mult.

    Why: Silent: the longest sequences are cut to the multiple below, and no pack can be full.
    Bad: packed_sequence_size 4096, pad_seq_to_mult 24.
    Good: packed_sequence_size 4104, pad_seq_to_mult 24.
    Fix: Make packed_sequence_size and seq_length a multiple of pad_seq_to_mult, and pack again.
    """
    if not subject.has_specs:
        return
    size, multiple = subject.packed_sequence_size, subject.pad_seq_to_mult
    if size > 0 and multiple > 1 and size % multiple:
        allowed = f"a multiple of {multiple}, e.g. {nearest_multiples(size, multiple)}"
        yield Violation(where=f"{SPECS}.packed_sequence_size", found=str(size), allowed=allowed)
