"""Rules on how wide rows are, and how long their sequences may be."""

from __future__ import annotations

import math

from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, WARNING, Found, change, rule, wrong
from bridgepack.rules.engine.subject import DEFAULT_WIDTH_MULTIPLE, HAS_SPECS, SPECS, Run
from bridgepack.rules.run.data.packed_paths import longest_sequence, splits_packed_by_host

_KWARGS = "dataset.dataset_kwargs"
_PAD_TO_MAX = f"{_KWARGS}.pad_to_max_length"


@rule("BP109", ADVICE, "PSB109; bridge/data/packing/offline.py:170", when=splits_packed_by_host)
def longest_sequence_one_short(run: Run) -> Found:
    """The host is to pack with pad_seq_to_mult 1, where a sequence may have one token less than seq_length.

    Why: Silent: with multiple 1 the limit counts stored tokens, with a larger one it counts runtime tokens. An example
        of exactly seq_length runtime tokens is cut or dropped.
    Bad: seq_length 4096, pad_seq_to_mult 1: at most 4095 runtime tokens.
    Good: seq_length 4096, pad_seq_to_mult 2: at most 4096 runtime tokens.
    Fix: Nothing, or build the packs with `bridgepack build`, where the limit is the same for every multiple.
    Evidence: executed with the real 0.6.2; Bridge #4598, #4056.
    """
    if run.pad_seq_to_mult == 1:
        longest = longest_sequence(run)
        where = f"{SPECS}.pad_seq_to_mult"
        yield wrong(where, f"1, so at most {longest - 1} tokens", f"2 or more for {longest}")


@rule("BP112", ERROR, "PSB112; bridge/data/packing/gpt_sft.py:191, data/datasets/gpt_sft.py:569", when=HAS_SPECS)
def row_width_not_divisible(run: Run) -> Found:
    """pad_to_max_length is off, and rows are rounded to a width that the parallelism does not divide.

    Why: Crash at the first step, or at some later one whose rows are all short.
    Bad: no pad_to_max_length, context_parallel_size 4, tensor_model_parallel_size 8, sequence_parallel: rows are a
        multiple of 16 wide and need 32.
    Good: the same with dataset_kwargs {"pad_to_max_length": true}.
    Fix: Set dataset_kwargs.pad_to_max_length to true, or pad_seq_length_to_mult there to a multiple that divides.
    Noticed: first step, or later.
    """
    if run.pads_to_max_length:
        return
    width, needed = run.width_multiple, run.needed_width_multiple
    if width % needed:
        value = math.lcm(DEFAULT_WIDTH_MULTIPLE, needed)
        is_full_width_sound = run.packed_sequence_size % needed == 0
        yield wrong(
            f"{_KWARGS}.pad_seq_length_to_mult",
            f"rows are a multiple of {width} wide",
            f"a multiple of {needed}, e.g. {value}, or pad_to_max_length true",
            changes=change(_PAD_TO_MAX, True, "every row gets the full width") if is_full_width_sound else (),
        )


@rule("BP113", WARNING, "PSB113; bridge/data/samplers.py:306, core/transformer/moe/token_dispatcher.py", when=HAS_SPECS)
def row_width_differs_among_experts(run: Run) -> Found:
    """Experts are spread over ranks that gather tokens of equal count, and rows differ in width among the ranks.

    Why: Crash or hang: without pad_to_max_length each data-parallel rank rounds its own rows, and the allgather
        dispatcher expects one width.
    Bad: expert_model_parallel_size 8, moe_token_dispatcher_type allgather, no pad_to_max_length.
    Good: the same with dataset_kwargs {"pad_to_max_length": true}.
    Fix: Set dataset_kwargs.pad_to_max_length to true, or use the alltoall dispatcher.
    Noticed: first step, or later.
    Evidence: read in the source; the failure itself is inferred.
    """
    if run.pads_to_max_length or run.expert_model_parallel_size == 1:
        return
    is_batched = run.text_or_none("dataset.dataloader_type") == "batch"
    if is_batched and run.text_or_none("model.moe_token_dispatcher_type") == "allgather":
        found = f"off, with expert_model_parallel_size {run.expert_model_parallel_size} and allgather"
        yield wrong(_PAD_TO_MAX, found, "true", to=True, because="every rank gets rows of one width")


@rule("BP114", ERROR, "PSB114; bridge/training/train.py:874", when=HAS_SPECS, noticed=FIRST_STEP)
def pipeline_expects_other_width(run: Run) -> Found:
    """Pipeline stages expect rows of model.seq_length, and the loader gives rows of another width.

    Why: Crash or hang at the first step: only the `batch` loader tells the pipeline how wide its rows are.
    Bad: pipeline_model_parallel_size 2, dataloader_type single, no pad_to_max_length.
    Good: pipeline_model_parallel_size 2, dataloader_type batch.
    Fix: Set dataset.dataloader_type to batch.
    Evidence: read in the source; that it hangs rather than fails is inferred.
    """
    if run.pipeline_model_parallel_size == 1:
        return
    loader = run.text_or_none("dataset.dataloader_type")
    if loader not in ("single", "cyclic") or run.flag("model.variable_seq_lengths"):
        return
    if run.pads_to_max_length and run.packed_sequence_size == run.seq_length:
        return
    width = f"{run.packed_sequence_size}" if run.pads_to_max_length else "different widths"
    yield wrong(
        "dataset.dataloader_type",
        f"{loader}, which gives rows of {width}",
        f"batch, or rows of model.seq_length, {run.seq_length}",
        to="batch",
        because="the pipeline learns the width of each batch",
    )


def _context_limit(run: Run) -> tuple[int, str]:
    """Return the positions that the model's settings provide for, and which setting says so.

    Raises:
        CannotJudgeError: the settings name no limit; with plain RoPE they do not.
    """
    if run.stated("model.max_position_embeddings"):
        return run.integer("model.max_position_embeddings"), "model.max_position_embeddings"
    if run.text_or_none("model.position_embedding_type") == "yarn":
        original = run.integer_or_none("model.yarn_original_max_position_embeddings")
        factor = run.number_or_none("model.yarn_rotary_scaling_factor")
        if original and factor:
            return round(original * factor), "YaRN's original positions x its factor"
    raise CannotJudgeError("the settings do not say how many positions the model was made for")


@rule("BP116", WARNING, "PSB116; core/models/common/embeddings/yarn_rotary_pos_embedding.py", when=HAS_SPECS)
def sequence_exceeds_model_context(run: Run) -> Found:
    """A sequence may be longer than the positions that the model was made for.

    Why: Silent: rotary embeddings extrapolate. A pack may be longer: positions start again with every sequence.
    Bad: yarn_original_max_position_embeddings 4096, yarn_rotary_scaling_factor 2, dataset.seq_length 16384.
    Good: yarn_original_max_position_embeddings 4096, yarn_rotary_scaling_factor 4, dataset.seq_length 16384.
    Fix: Cap single sequences with max_single_sequence_length, or scale the rotary embedding.
    Evidence: inferred; the host's documentation names the model's context limit.
    """
    limit, origin = _context_limit(run)
    longest = longest_sequence(run)
    if longest > limit:
        yield wrong("dataset.seq_length", str(longest), f"at most {limit}: {origin}")
