"""Rules on multiples of sequences and packs, on pack widths, and on the maximum length of sequences."""

import math
import re

from bridgepack.records.messages import say
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import (
    ADVICE,
    ERROR,
    EXECUTED,
    VALIDATE,
    WARNING,
    Found,
    change,
    fixable_rule,
    rule,
    wrong,
)
from bridgepack.rules.judging.settings import unfit
from bridgepack.rules.judging.subject import DEFAULT_WIDTH_MULTIPLE, HAS_SPECS, SPECS, Run
from bridgepack.rules.run.data.packed_paths import longest_sequence, splits_packed_by_host
from bridgepack.rules.run.reading import has_constant_width, nearest_multiples, splits_context

#: Shipped recipes of 0.6 that derive pad_seq_to_mult above the line that sets context_parallel_size.
_SETS_MULTIPLE_FIRST = re.compile(
    r"(llama3[12]?_\d+b|gemma2_\d+b|gemma3_1b|gpt_oss_\d+b)_(sft|peft)(_\d+gpu_h100_bf16)?_config"
)

_MULTIPLE, _SIZE = f"{SPECS}.pad_seq_to_mult", f"{SPECS}.packed_sequence_size"
_PAD_TO_MAX, _HOST_MULTIPLE = (f"dataset.dataset_kwargs.pad_{name}" for name in ("to_max_length", "seq_length_to_mult"))


def _undivided_pack(run: Run, multiple: int, near: int | None = None) -> Found:
    size = run.packed_sequence_size
    if size > 0 and size % multiple:
        near = near or run.needed_width_multiple
        yield wrong(_SIZE, str(size), f"a multiple of {multiple}, e.g. {nearest_multiples(size, near)}")


def _refused_with_seq_length(run: Run) -> bool:
    """Return whether BP104 reports a recipe's packed_sequence_size, which also is its seq_length."""
    is_one = run.config.builds_packs and run.packed_sequence_size == run.seq_length
    return is_one and splits_context(run) and run.seq_length % (2 * run.context_parallel_size) != 0


def _shards_of_sequence(run: Run) -> int:
    """Return context x tensor parallelism, which divides the width of packs, or 1 without sequence parallelism."""
    tensor = run.tensor_model_parallel_size
    return math.lcm(*(size * tensor for size in run.context_parallel_sizes)) if run.splits_sequence else 1


@fixable_rule(
    "BP101",
    ERROR,
    "PSB101, PSB105, PSB117, PSC303; core/models/common/embeddings/rope_utils.py:222",
    when=HAS_SPECS,
)
def sequences_not_divisible_by_context_parallelism(run: Run) -> Found:
    """pad_seq_to_mult is not a multiple of 2 x context_parallel_size of training or evaluation.

    Why: Crash at the first step unless RoPE is fused; then there is no error, and CP ranks get the wrong tokens.
    Bad: context_parallel_size 2, pad_seq_to_mult 1. Good: pad_seq_to_mult 4.
    Fix: Set {dataset.offline_packing_specs.pad_seq_to_mult} to lcm(2 x CP, CP x TP with sequence parallelism) over both
        CP sizes, and pack again. A recipe function computes it before {model.context_parallel_size} is overridden.
    Evidence: read in the source; Bridge #1867, #1292. That the kernel's own assertion is compiled out is inferred.
    """
    multiple = run.needed_sequence_multiple
    if run.pad_seq_to_mult >= 1 and run.pad_seq_to_mult % multiple:
        best = run.recommended_pad_seq_to_mult
        sizes = " and ".join(map(str, run.context_parallel_sizes))
        actual = f"{run.pad_seq_to_mult}, with context_parallel_size {sizes}"
        allowed_values, why = f"a multiple of {multiple}; {best} is recommended", "2 x context_parallel_size divides it"
        value = best if run.packed_sequence_size % best == 0 else multiple
        yield wrong(_MULTIPLE, actual, allowed_values, to=value, because=why, needs_repack=True)


@rule("BP102", ERROR, when=HAS_SPECS, noticed="first step; validate() checks only datasets that pack in the batch")
def pack_not_divisible_by_sequence_parallelism(run: Run) -> Found:
    """With sequence parallelism, packed_sequence_size is not a multiple of context x tensor parallelism.

    Why: Crash at the first full pack: "First dimension of the tensor should be divisible by tensor parallel size".
    Bad: packed_sequence_size 4100, sequence_parallel, CP 2, TP 4. Good: packed_sequence_size 4096.
    Fix: Make {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} a multiple of
        CP x TP, and pack again.
    Evidence: read in the source; NeMo-RL #2110. Source: PSB102, PSC303, PSB812; core/tensor_parallel/mappings.py:74
    """
    if not _refused_with_seq_length(run):
        yield from _undivided_pack(run, _shards_of_sequence(run))


@rule("BP103", ERROR, "PSB103, PSC303; bridge/data/packing/gpt_sft.py:221", when=HAS_SPECS)
def pack_not_divisible_by_context_parallelism(run: Run) -> Found:
    """packed_sequence_size is not a multiple of 2 x context_parallel_size of training or evaluation.

    Why: Crash at the first step unless RoPE is fused, which hides it: a pack's padding is one more sequence.
    Bad: packed_sequence_size 4098, context_parallel_size 2. Good: packed_sequence_size 4096.
    Fix: Make {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} a multiple of
        2 x CP, and pack again.
    Noticed: never; validate() checks model.seq_length only.
    """
    if run.packed_sequence_size % _shards_of_sequence(run) == 0 and not _refused_with_seq_length(run):
        yield from _undivided_pack(run, run.needed_sequence_multiple)


@rule("BP104", ERROR, "PSB104; bridge/training/config.py:1435", when=splits_context, noticed=VALIDATE)
def seq_length_not_divisible_by_context_parallelism(run: Run) -> Found:
    """model.seq_length is not a multiple of 2 x context_parallel_size.

    Why: Crash at start: validate() refuses it, packed or not.
    Bad: model.seq_length 4098, context_parallel_size 2. Good: model.seq_length 4096.
    Fix: Make {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} the same
        multiple of 2 x CP.
    Evidence: executed with the real 0.6.2.
    """
    multiple = 2 * run.context_parallel_size
    if run.seq_length % multiple:
        near = math.lcm(multiple, run.needed_width_multiple)
        allowed_values = f"a multiple of {multiple}, e.g. {nearest_multiples(run.seq_length, near)}"
        yield wrong("model.seq_length", str(run.seq_length), allowed_values)


@rule("BP105", WARNING, "PSB105; bridge/recipes/llama/h100/llama3.py:1346", versions={BRIDGE: "<0.7"})
def recipe_derives_multiple_too_early(run: Run) -> Found:
    """The shipped recipe sets pad_seq_to_mult from context_parallel_size before it sets context_parallel_size.

    Why: Silent: a copy of the recipe with a higher context_parallel_size keeps pad_seq_to_mult 1 and breaks.
    Bad: llama3_8b_sft_config, with `if context_parallel_size > 1` above that line. Good: qwen3_600m_sft_config.
    Fix: Set {dataset.offline_packing_specs.pad_seq_to_mult} yourself whenever you set {model.context_parallel_size}.
    Evidence: read in the source: 26 functions of llama3, gemma2, gemma3 1b and gpt-oss.
    """
    name = re.split(r"[.:/]", run.config.place)[-1]
    if _SETS_MULTIPLE_FIRST.fullmatch(name) and run.has_specs and not splits_context(run):
        allowed_values = "a value that is set together with context_parallel_size"
        yield wrong(_MULTIPLE, f"{name} derives it before it sets context_parallel_size", allowed_values)


@rule("BP110", ERROR, "PSB110; bridge/data/packing/offline.py:178", when=splits_packed_by_host, noticed="dataset build")
def multiple_exceeds_longest_sequence(run: Run) -> Found:
    """The host packs the data, and pad_seq_to_mult is larger than the maximum sequence length.

    Why: Crash when rank 0 packs: the host says that max_seq_length must be at least the effective padding multiple.
    Bad: seq_length 8, pad_seq_to_mult 16, no path to packs. Good: seq_length 4096.
    Fix: Raise {model.seq_length & dataset.seq_length}, or lower context and tensor parallelism.
    """
    if run.pad_seq_to_mult > 1 and longest_sequence(run) < run.pad_seq_to_mult:
        yield wrong(_MULTIPLE, str(run.pad_seq_to_mult), f"1 to {longest_sequence(run)}")


def _host_multiple(run: Run) -> int | None:
    """Return the multiple that the host pads to if dataset_kwargs overrides pad_seq_to_mult, else None."""
    if not splits_packed_by_host(run) or run.pad_seq_to_mult <= 1:
        return None
    multiple = run.dataset_kwargs.get("pad_seq_length_to_mult")
    if multiple is not None and (type(multiple) is not int or multiple < 1):
        raise unfit(_HOST_MULTIPLE, multiple, "not a positive whole number")
    return multiple


def _padded_otherwise(run: Run, real: int, padding: str, multiple: int, why: str) -> Found:
    actual, value = f"{real}, {padding}", math.lcm(run.pad_seq_to_mult, multiple)
    yield wrong(_HOST_MULTIPLE, actual, f"a multiple of {multiple}", to=value, because=why, needs_repack=True)


@fixable_rule("BP111", WARNING, "PSB111; bridge/data/packing/offline.py:185", evidence=EXECUTED)
def multiple_overridden_by_dataset_kwargs(run: Run) -> Found:
    """The host packs the data, and dataset_kwargs.pad_seq_length_to_mult is not a multiple of pad_seq_to_mult.

    Why: Silent: sequences are padded to pad_seq_length_to_mult, while the run relies on pad_seq_to_mult.
    Bad: pad_seq_to_mult 8, pad_seq_length_to_mult 4. Good: pad_to_max_length true.
    Fix: Remove {dataset.dataset_kwargs.pad_seq_length_to_mult} and set {dataset.dataset_kwargs.pad_to_max_length} to
        true, or set the first to {dataset.offline_packing_specs.pad_seq_to_mult}.
    """
    real = _host_multiple(run)
    if real is not None and real % run.pad_seq_to_mult:
        multiple = run.pad_seq_to_mult
        padding = f"with pad_seq_to_mult {multiple}"
        yield from _padded_otherwise(run, real, padding, multiple, "sequences are then padded to pad_seq_to_mult")


@rule("BP118", ADVICE, "PSB118; docs/training/packed-sequences.md", when=HAS_SPECS, noticed="never; nothing breaks")
def multiple_below_recommendation(run: Run) -> Found:
    """pad_seq_to_mult is valid for context parallelism, but below the recommendation of the host's documentation.

    Why: Slow at most: lcm(2 x CP, CP x TP) also keeps single sequences on whole sequence-parallel shards. Packs of
        fixed width run without it, as in shipped recipes.
    Bad: CP 2, TP 4, sequence_parallel, pad_seq_to_mult 4. Good: pad_seq_to_mult 8.
    Fix: Set {dataset.offline_packing_specs.pad_seq_to_mult} to the recommended multiple and pack again, or keep
        {dataset.dataset_kwargs.pad_to_max_length}.
    Evidence: inferred from the source; shipped moonlight and qwen3 recipes use less.
    """
    multiple, best = run.pad_seq_to_mult, run.recommended_pad_seq_to_mult
    if multiple >= 1 and multiple % run.needed_sequence_multiple == 0 and multiple % best:
        yield wrong(_MULTIPLE, str(multiple), f"a multiple of {best}")


@fixable_rule("BP119", ERROR, "PSB111, PSB101; bridge/data/packing/offline.py:185")
def host_pads_to_undivided_multiple(run: Run) -> Found:
    """The host packs, and dataset_kwargs.pad_seq_length_to_mult is not a multiple of 2 x context_parallel_size.

    Why: Crash at the first step unless RoPE is fused, which hides it. The correct pad_seq_to_mult is ignored.
    Bad: context_parallel_size 4, pad_seq_to_mult 8, pad_seq_length_to_mult 4. Good: pad_seq_length_to_mult 16.
    Fix: Remove {dataset.dataset_kwargs.pad_seq_length_to_mult}, or make it a multiple of 2 x CP, and pack again.
    Evidence: the multiple executed with the real 0.6.2; the effect read in the source.
    """
    real = _host_multiple(run)
    if real is not None and real % run.needed_sequence_multiple:
        padding, why = "which sequences are padded to", "2 x context_parallel_size divides it"
        yield from _padded_otherwise(run, real, padding, run.needed_sequence_multiple, why)


@rule("BP126", WARNING, "PSB103; bridge/data/packing/offline.py:174", when=HAS_SPECS)
def pack_not_divisible_by_its_multiple(run: Run) -> Found:
    """packed_sequence_size is not a multiple of pad_seq_to_mult.

    Why: Silent: the longest sequences are cut to the next lower multiple, and no pack can be full.
    Bad: packed_sequence_size 4096, pad_seq_to_mult 24. Good: packed_sequence_size 4104.
    Fix: Make {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} a multiple of
        {dataset.offline_packing_specs.pad_seq_to_mult}, and pack again.
    """
    if run.pad_seq_to_mult > 1 and not run.config.builds_packs:
        yield from _undivided_pack(run, run.pad_seq_to_mult, near=run.pad_seq_to_mult)


@rule("BP127", ERROR, "PSB103; bridge/data/packing/offline.py:174", when=HAS_SPECS)
def pack_that_no_build_makes(run: Run) -> Found:
    """The recipe's packed_sequence_size is not a multiple of its pad_seq_to_mult, so `bridgepack build` refuses it.

    Why: Crash before anything is built: the host would cut the longest sequences to the next lower multiple, and no
        pack could be full. Bad: packed_sequence_size 6000, pad_seq_to_mult 64. Good: packed_sequence_size 5952 or 6016.
    Fix: Make packing.packed_sequence_size a multiple of packing.pad_seq_to_mult.
    """
    is_reported = run.packed_sequence_size % run.needed_width_multiple != 0 or _refused_with_seq_length(run)
    if run.pad_seq_to_mult > 1 and run.config.builds_packs and not is_reported:
        yield from _undivided_pack(run, run.pad_seq_to_mult, near=run.pad_seq_to_mult)


@rule("BP109", ADVICE, "PSB109; bridge/data/packing/offline.py:170", when=splits_packed_by_host)
def longest_sequence_one_short(run: Run) -> Found:
    """The host packs the data with pad_seq_to_mult 1, which limits sequences to seq_length - 1 tokens.

    Why: Silent: with multiple 1 the limit counts stored tokens, with a larger one it counts runtime tokens. An example
        of exactly seq_length runtime tokens is cut or dropped.
    Bad: seq_length 4096, pad_seq_to_mult 1: at most 4095 tokens. Good: pad_seq_to_mult 2: at most 4096.
    Fix: Set {dataset.offline_packing_specs.pad_seq_to_mult} to 2, or build the packs with `bridgepack build`: its limit
        is the same for all.
    Evidence: executed with the real 0.6.2; Bridge #4598, #4056.
    """
    if run.pad_seq_to_mult == 1:
        longest = longest_sequence(run)
        yield wrong(_MULTIPLE, f"1, so at most {longest - 1} tokens", f"2 or more for {longest}")


@fixable_rule(
    "BP112",
    ERROR,
    "PSB112; bridge/data/packing/gpt_sft.py:191, data/datasets/gpt_sft.py:569",
    when=HAS_SPECS,
)
def pack_width_not_divisible(run: Run) -> Found:
    """pad_to_max_length is off, and pack widths are rounded to a multiple that the parallel sizes do not divide.

    Why: Crash at the first step, or at a later step whose packs are all short.
    Bad: no pad_to_max_length, CP 4, TP 8, sequence_parallel: 16 where 32 is needed. Good: pad_to_max_length true.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true, or {dataset.dataset_kwargs.pad_seq_length_to_mult} to
        the multiple needed.
    Noticed: first step, or later.
    """
    if run.pads_to_max_length or run.width_multiple % run.needed_width_multiple == 0:
        return
    multiple = run.needed_width_multiple
    actual, value = f"packs are a multiple of {run.width_multiple} wide", math.lcm(DEFAULT_WIDTH_MULTIPLE, multiple)
    is_full_width_sound = run.packed_sequence_size % multiple == 0
    changes = change(_PAD_TO_MAX, True, "every pack gets the full width") if is_full_width_sound else ()
    allowed_values = f"a multiple of {multiple}, e.g. {value}, or pad_to_max_length true"
    yield wrong(_HOST_MULTIPLE, actual, allowed_values, changes=changes)


@fixable_rule("BP113", WARNING, when=HAS_SPECS, noticed="first step, or later")
def pack_width_differs_among_experts(run: Run) -> Found:
    """The allgather dispatcher needs the same number of tokens on every rank, but pack widths differ among the ranks.

    Why: Crash or hang: each data-parallel rank rounds the width of its own packs.
    Bad: expert size 8, allgather dispatcher, no pad_to_max_length. Good: pad_to_max_length true.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true, or use the alltoall dispatcher.
    Evidence: read in the source; the effect is inferred.
    Source: PSB113; bridge/data/samplers.py:306, core/transformer/moe/token_dispatcher.py
    """
    if run.pads_to_max_length or run.expert_model_parallel_size == 1:
        return
    is_batched = run.text_or_none("dataset.dataloader_type") == "batch"
    if is_batched and run.text_or_none("model.moe_token_dispatcher_type") == "allgather":
        actual = f"off, with expert_model_parallel_size {run.expert_model_parallel_size} and allgather"
        yield wrong(_PAD_TO_MAX, actual, "true", to=True, because="every rank gets packs of one width")


@fixable_rule(
    "BP114",
    ERROR,
    when=HAS_SPECS,
    evidence="read in the source; that it hangs rather than fails is inferred",
)
def pipeline_expects_other_width(run: Run) -> Found:
    """Pipeline stages expect packs of model.seq_length tokens, but the loader gives packs of other widths.

    Why: Crash or hang at the first step: only the `batch` loader tells the pipeline the width of its packs.
    Bad: pipeline_model_parallel_size 2, dataloader_type single, no pad_to_max_length. Good: dataloader_type batch.
    Fix: Set {dataset.dataloader_type} to batch. Noticed: first step. Source: PSB114; bridge/training/train.py:874
    """
    if run.pipeline_model_parallel_size == 1:
        return
    loader = run.text_or_none("dataset.dataloader_type")
    if loader not in ("single", "cyclic") or run.flag("model.variable_seq_lengths") or has_constant_width(run):
        return
    width = str(run.packed_sequence_size) if run.pads_to_max_length else "different widths"
    allowed_values = say("batch, or packs of {model.seq_length}, {length}", length=run.seq_length)
    actual, why = f"{loader}, which gives packs of {width}", "this loader tells the pipeline the width of each batch"
    yield wrong("dataset.dataloader_type", actual, allowed_values, to="batch", because=why)


def _context_limit(run: Run) -> tuple[int, str]:
    """Return the model's maximum number of positions, and the setting that gives it.

    Raises:
        CannotJudgeError: the settings have no limit, as with plain RoPE.
    """
    if run.stated_value("model.max_position_embeddings"):
        return run.integer("model.max_position_embeddings"), "model.max_position_embeddings"
    if run.text_or_none("model.position_embedding_type") == "yarn":
        original = run.integer_or_none("model.yarn_original_max_position_embeddings")
        factor = run.number_or_none("model.yarn_rotary_scaling_factor")
        if original and factor:
            return round(original * factor), "YaRN's original positions x its factor"
    raise CannotJudgeError("the settings do not give the model's maximum number of positions")


@rule("BP116", WARNING, "PSB116; core/models/common/embeddings/yarn_rotary_pos_embedding.py", when=HAS_SPECS)
def sequence_exceeds_model_context(run: Run) -> Found:
    """A sequence may be longer than the model's context length.

    Why: Silent: rotary embeddings extrapolate. A pack may be longer: positions restart with every sequence.
    Bad: yarn_original_max_position_embeddings 4096, factor 2, seq_length 16384. Good: factor 4.
    Fix: Cap single sequences with {dataset.offline_packing_specs.max_single_sequence_length}, or scale the rotary
        embedding.
    Evidence: inferred; the host's documentation names the model's context limit.
    """
    limit, origin = _context_limit(run)
    if longest_sequence(run) > limit:
        yield wrong("dataset.seq_length", str(longest_sequence(run)), f"at most {limit}: {origin}")
