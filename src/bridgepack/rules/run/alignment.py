"""Rules on multiples of sequences and packs, under context and sequence parallelism."""

from __future__ import annotations

import math
import re

from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, DATASET_BUILD, ERROR, EXECUTED, VALIDATE, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, SPECS, Run
from bridgepack.rules.run.data.packed_paths import longest_sequence, splits_packed_by_host
from bridgepack.rules.run.reading import nearest_multiples

#: Shipped recipes of 0.6 that derive pad_seq_to_mult above the line that sets context_parallel_size.
_SETS_MULTIPLE_FIRST = re.compile(
    r"(llama3[12]?_\d+b|gemma2_\d+b|gemma3_1b|gpt_oss_\d+b)_(sft|peft)(_\d+gpu_h100_bf16)?_config"
)


@rule("BP101", ERROR, "PSB101, PSB105, PSB117, PSC303; core/models/common/embeddings/rope_utils.py:222", when=HAS_SPECS)
def sequences_not_divisible_by_context_parallelism(run: Run) -> Found:
    """pad_seq_to_mult is no multiple of 2 x context_parallel_size, of training or of evaluation.

    Why: Crash at the first step with unfused RoPE; silent with fused RoPE: ranks get other tokens than they attend to.
    Bad: context_parallel_size 2, pad_seq_to_mult 1.
    Good: context_parallel_size 2, pad_seq_to_mult 4.
    Fix: Set pad_seq_to_mult to lcm(2 x CP, CP x TP with sequence parallelism), of both CP sizes, and pack again.
        Recipes derive it when they are made: overriding context_parallel_size later does not move it.
    Evidence: read in the source; Bridge #1867, #1292. That the kernel's own assertion is compiled out is inferred.
    """
    multiple, needed = run.pad_seq_to_mult, run.needed_sequence_multiple
    if multiple < 1 or multiple % needed == 0:
        return
    best = run.recommended_pad_seq_to_mult
    value = best if run.packed_sequence_size % best == 0 else needed
    sizes = " and ".join(str(size) for size in run.context_parallel_sizes)
    yield wrong(
        f"{SPECS}.pad_seq_to_mult",
        f"{multiple}, with context_parallel_size {sizes}",
        f"a multiple of {needed}; {best} is recommended",
        to=value,
        because="2 x context_parallel_size divides it",
        needs_repack=True,
    )


@rule("BP102", ERROR, "PSB102, PSC303, PSB812; core/tensor_parallel/mappings.py:74", when=HAS_SPECS)
def pack_not_divisible_by_sequence_parallelism(run: Run) -> Found:
    """With sequence parallelism, packed_sequence_size is no multiple of context x tensor parallelism.

    Why: Crash at the first full row: first dimension of the tensor should be divisible by tensor parallel size.
    Bad: packed_sequence_size 4100, sequence_parallel, context_parallel_size 2, tensor_model_parallel_size 4.
    Good: packed_sequence_size 4096, sequence_parallel, context_parallel_size 2, tensor_model_parallel_size 4.
    Fix: Make packed_sequence_size and seq_length a multiple of CP x TP, and pack again.
    Noticed: first step; validate() checks only datasets that pack in the batch.
    Evidence: read in the source; NeMo-RL #2110.
    """
    if not run.splits_sequence:
        return
    tensor, size = run.tensor_model_parallel_size, run.packed_sequence_size
    needed = math.lcm(*(context * tensor for context in run.context_parallel_sizes))
    if size > 0 and size % needed:
        allowed = f"a multiple of {needed}, e.g. {nearest_multiples(size, run.needed_width_multiple)}"
        yield wrong(f"{SPECS}.packed_sequence_size", str(size), allowed)


@rule("BP103", ERROR, "PSB103, PSC303; bridge/data/packing/gpt_sft.py:221", when=HAS_SPECS)
def pack_not_divisible_by_context_parallelism(run: Run) -> Found:
    """packed_sequence_size is no multiple of 2 x context_parallel_size, of training or of evaluation.

    Why: Crash at the first step, or silent with fused RoPE: the padding at a row's end is one more sequence, and it
        does not divide.
    Bad: packed_sequence_size 4098, context_parallel_size 2.
    Good: packed_sequence_size 4096, context_parallel_size 2.
    Fix: Make packed_sequence_size and seq_length a multiple of 2 x CP, and pack again.
    Noticed: never; validate() looks at model.seq_length only.
    """
    size, needed = run.packed_sequence_size, run.needed_sequence_multiple
    if size > 0 and size % needed:
        allowed = f"a multiple of {needed}, e.g. {nearest_multiples(size, run.needed_width_multiple)}"
        yield wrong(f"{SPECS}.packed_sequence_size", str(size), allowed)


@rule("BP104", ERROR, "PSB104; bridge/training/config.py:1435", noticed=VALIDATE, evidence=EXECUTED)
def seq_length_not_divisible_by_context_parallelism(run: Run) -> Found:
    """model.seq_length is no multiple of 2 x context_parallel_size.

    Why: Crash at start: validate() refuses it, packed or not.
    Bad: model.seq_length 4098, context_parallel_size 2.
    Good: model.seq_length 4096, context_parallel_size 2.
    Fix: Make model.seq_length, dataset.seq_length and packed_sequence_size the same multiple of 2 x CP.
    """
    context = run.context_parallel_size
    if context > 1 and run.seq_length % (2 * context):
        allowed = f"a multiple of {2 * context}, e.g. {nearest_multiples(run.seq_length, 2 * context)}"
        yield wrong("model.seq_length", str(run.seq_length), allowed)


@rule("BP105", WARNING, "PSB105; bridge/recipes/llama/h100/llama3.py:1346", versions={BRIDGE: ">=0.6,<0.7"})
def recipe_derives_multiple_too_early(run: Run) -> Found:
    """The shipped recipe sets pad_seq_to_mult from context_parallel_size before it sets context_parallel_size.

    Why: Silent: as shipped the run is right, without context parallelism. Whoever copies the recipe and raises
        context_parallel_size in it keeps pad_seq_to_mult 1, and the run breaks.
    Bad: llama3_8b_sft_config, whose `if context_parallel_size > 1` stands above `context_parallel_size = 1`.
    Good: qwen3_600m_sft_config, where it stands below.
    Fix: State pad_seq_to_mult yourself whenever you set context_parallel_size.
    Evidence: read in the source: 26 functions of llama3, gemma2, gemma3 1b and gpt-oss.
    """
    name = re.split(r"[.:/]", run.config.place)[-1]
    if not _SETS_MULTIPLE_FIRST.fullmatch(name) or not run.has_specs:
        return
    if run.context_parallel_size == 1:
        allowed = "a value that is set together with context_parallel_size"
        yield wrong(f"{SPECS}.pad_seq_to_mult", f"{name} derives it before it sets context_parallel_size", allowed)


@rule("BP110", ERROR, "PSB110; bridge/data/packing/offline.py:178", when=splits_packed_by_host, noticed=DATASET_BUILD)
def multiple_exceeds_longest_sequence(run: Run) -> Found:
    """The host is to pack, and pad_seq_to_mult is larger than the longest sequence may be.

    Why: Crash when rank 0 packs: max_seq_length must be at least the effective padding multiple.
    Bad: seq_length 8, pad_seq_to_mult 16, no path to packs.
    Good: seq_length 4096, pad_seq_to_mult 16.
    Fix: Raise seq_length, or lower context and tensor parallelism.
    """
    multiple, longest = run.pad_seq_to_mult, longest_sequence(run)
    if multiple > 1 and longest < multiple:
        yield wrong(f"{SPECS}.pad_seq_to_mult", str(multiple), f"1 to {longest}")


def _host_multiple(run: Run) -> int | None:
    """Return the multiple that the host really pads to where dataset_kwargs decides it; None where it does not."""
    if not splits_packed_by_host(run) or run.pad_seq_to_mult <= 1:
        return None
    multiple = run.dataset_kwargs.get("pad_seq_length_to_mult")
    if multiple is not None and (type(multiple) is not int or multiple < 1):
        raise CannotJudgeError(f"dataset.dataset_kwargs.pad_seq_length_to_mult is {multiple!r}")
    return multiple


@rule("BP111", WARNING, "PSB111; bridge/data/packing/offline.py:185", evidence=EXECUTED)
def multiple_overridden_by_dataset_kwargs(run: Run) -> Found:
    """The host is to pack, and dataset_kwargs.pad_seq_length_to_mult is not a multiple of pad_seq_to_mult.

    Why: Silent: sequences are padded to the former, while the run believes the latter.
    Bad: pad_seq_to_mult 8, dataset_kwargs {"pad_seq_length_to_mult": 4}.
    Good: pad_seq_to_mult 8, dataset_kwargs {"pad_to_max_length": true}.
    Fix: Remove pad_seq_length_to_mult from dataset_kwargs and set pad_to_max_length there, or make both equal.
    """
    real = _host_multiple(run)
    if real is not None and real % run.pad_seq_to_mult:
        multiple = run.pad_seq_to_mult
        where = "dataset.dataset_kwargs.pad_seq_length_to_mult"
        why = "the multiple that pad_seq_to_mult names"
        found = f"{real}, with pad_seq_to_mult {multiple}"
        yield wrong(where, found, f"a multiple of {multiple}", to=multiple, because=why, needs_repack=True)


@rule("BP118", ADVICE, "PSB118; docs/training/packed-sequences.md", when=HAS_SPECS, noticed="never; nothing breaks")
def multiple_below_recommendation(run: Run) -> Found:
    """pad_seq_to_mult is enough for context parallelism, but not what the host's documentation recommends.

    Why: Slow at most: lcm(2 x CP, CP x TP) also keeps single sequences on whole sequence-parallel shards. Rows of one
        fixed width run without it, and shipped recipes do.
    Bad: context_parallel_size 2, tensor_model_parallel_size 4, sequence_parallel, pad_seq_to_mult 4.
    Good: context_parallel_size 2, tensor_model_parallel_size 4, sequence_parallel, pad_seq_to_mult 8.
    Fix: Set pad_seq_to_mult to the recommended multiple and pack again, or keep pad_to_max_length.
    Evidence: inferred from the source; shipped moonlight and qwen3 recipes use less.
    """
    multiple, best = run.pad_seq_to_mult, run.recommended_pad_seq_to_mult
    is_enough = multiple >= 1 and multiple % run.needed_sequence_multiple == 0
    if is_enough and multiple % best:
        yield wrong(f"{SPECS}.pad_seq_to_mult", str(multiple), f"a multiple of {best}")


@rule("BP119", ERROR, "PSB111, PSB101; bridge/data/packing/offline.py:185")
def host_pads_to_undivided_multiple(run: Run) -> Found:
    """The host is to pack, to a multiple of dataset_kwargs that 2 x context_parallel_size does not divide.

    Why: Crash at the first step with unfused RoPE; silent with fused RoPE. pad_seq_to_mult is right and is not used.
    Bad: context_parallel_size 4, pad_seq_to_mult 8, dataset_kwargs {"pad_seq_length_to_mult": 4}.
    Good: context_parallel_size 4, pad_seq_to_mult 8, dataset_kwargs {"pad_seq_length_to_mult": 16}.
    Fix: Remove pad_seq_length_to_mult from dataset_kwargs, or make it a multiple of 2 x CP, and pack again.
    Evidence: executed with the real 0.6.2 for the multiple; read in the source for what follows.
    """
    real = _host_multiple(run)
    needed = run.needed_sequence_multiple if real is not None else 1
    if real is not None and real % needed:
        where = "dataset.dataset_kwargs.pad_seq_length_to_mult"
        value = math.lcm(run.pad_seq_to_mult, needed)
        why = "2 x context_parallel_size divides it"
        allowed = f"a multiple of {needed}"
        yield wrong(where, f"{real}, which sequences are padded to", allowed, to=value, because=why, needs_repack=True)


@rule("BP126", WARNING, "PSB103; bridge/data/packing/offline.py:174", when=HAS_SPECS)
def pack_not_divisible_by_its_multiple(run: Run) -> Found:
    """packed_sequence_size is no multiple of pad_seq_to_mult.

    Why: Silent: the longest sequences are cut to the multiple below, and no pack can be full.
    Bad: packed_sequence_size 4096, pad_seq_to_mult 24.
    Good: packed_sequence_size 4104, pad_seq_to_mult 24.
    Fix: Make packed_sequence_size and seq_length a multiple of pad_seq_to_mult, and pack again.
    """
    size, multiple = run.packed_sequence_size, run.pad_seq_to_mult
    if size > 0 and multiple > 1 and size % multiple:
        allowed = f"a multiple of {multiple}, e.g. {nearest_multiples(size, multiple)}"
        yield wrong(f"{SPECS}.packed_sequence_size", str(size), allowed)
