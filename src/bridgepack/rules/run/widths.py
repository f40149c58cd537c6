"""Rules on how wide rows are, and how long their sequences may be."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridgepack.rules.context import CannotJudgeError
from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.packed_paths import longest_sequence, splits_packed_by_host
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import DEFAULT_WIDTH_MULTIPLE, SPECS, RunSubject

_KWARGS = "dataset.dataset_kwargs"
_PAD_TO_MAX = f"{_KWARGS}.pad_to_max_length"


@rule("BP109", ADVICE, "PSB109; megatron/bridge/data/packing/offline.py:170")
def longest_sequence_one_short(subject: RunSubject) -> Iterator[Violation]:
    """The host is to pack with pad_seq_to_mult 1, where a sequence may have one token less than seq_length.

    Why: Silent: with multiple 1 the limit counts stored tokens, with a larger one it counts runtime tokens. An example
        of exactly seq_length runtime tokens is cut or dropped.
    Bad: seq_length 4096, pad_seq_to_mult 1: at most 4095 runtime tokens.
    Good: seq_length 4096, pad_seq_to_mult 2: at most 4096 runtime tokens.
    Fix: Nothing, or build the packs with `bridgepack build`, where the limit is the same for every multiple.
    Evidence: executed with the real 0.6.2; Bridge #4598, #4056.
    """
    if splits_packed_by_host(subject) and subject.pad_seq_to_mult == 1:
        longest = longest_sequence(subject)
        where = f"{SPECS}.pad_seq_to_mult"
        yield Violation(where=where, found=f"1, so at most {longest - 1} tokens", allowed=f"2 or more for {longest}")


@rule("BP112", ERROR, "PSB112; megatron/bridge/data/packing/gpt_sft.py:191, data/datasets/gpt_sft.py:569")
def row_width_not_divisible(subject: RunSubject) -> Iterator[Violation]:
    """pad_to_max_length is off, and rows are rounded to a width that the parallelism does not divide.

    Why: Crash at the first step, or at some later one whose rows are all short.
    Bad: no pad_to_max_length, context_parallel_size 4, tensor_model_parallel_size 8, sequence_parallel: rows are a
        multiple of 16 wide and need 32.
    Good: the same with dataset_kwargs {"pad_to_max_length": true}.
    Fix: Set dataset_kwargs.pad_to_max_length to true, or pad_seq_length_to_mult there to a multiple that divides.
    Noticed: first step, or later.
    """
    if not subject.has_specs or subject.pads_to_max_length:
        return
    width, needed = subject.width_multiple, subject.needed_width_multiple
    if width % needed:
        value = math.lcm(DEFAULT_WIDTH_MULTIPLE, needed)
        is_full_width_sound = subject.packed_sequence_size % needed == 0
        yield Violation(
            where=f"{_KWARGS}.pad_seq_length_to_mult",
            found=f"rows are a multiple of {width} wide",
            allowed=f"a multiple of {needed}, e.g. {value}, or pad_to_max_length true",
            changes=change(_PAD_TO_MAX, True, "every row gets the full width") if is_full_width_sound else (),
        )


@rule(
    "BP113", WARNING, "PSB113; megatron/bridge/data/samplers.py:306, megatron/core/transformer/moe/token_dispatcher.py"
)
def row_width_differs_among_experts(subject: RunSubject) -> Iterator[Violation]:
    """Experts are spread over ranks that gather tokens of equal count, and rows differ in width among the ranks.

    Why: Crash or hang: without pad_to_max_length each data-parallel rank rounds its own rows, and the allgather
        dispatcher expects one width.
    Bad: expert_model_parallel_size 8, moe_token_dispatcher_type allgather, no pad_to_max_length.
    Good: the same with dataset_kwargs {"pad_to_max_length": true}.
    Fix: Set dataset_kwargs.pad_to_max_length to true, or use the alltoall dispatcher.
    Noticed: first step, or later.
    Evidence: read in the source; the failure itself is inferred.
    """
    if not subject.has_specs or subject.pads_to_max_length or subject.expert_model_parallel_size == 1:
        return
    is_batched = subject.settings.text_or_none("dataset.dataloader_type") == "batch"
    if is_batched and subject.settings.text_or_none("model.moe_token_dispatcher_type") == "allgather":
        yield Violation(
            where=_PAD_TO_MAX,
            found=f"off, with expert_model_parallel_size {subject.expert_model_parallel_size} and allgather",
            allowed="true",
            changes=change(_PAD_TO_MAX, True, "every rank gets rows of one width"),
        )


@rule("BP114", ERROR, "PSB114; megatron/bridge/training/train.py:874", noticed="first step")
def pipeline_expects_other_width(subject: RunSubject) -> Iterator[Violation]:
    """Pipeline stages expect rows of model.seq_length, and the loader gives rows of another width.

    Why: Crash or hang at the first step: only the `batch` loader tells the pipeline how wide its rows are.
    Bad: pipeline_model_parallel_size 2, dataloader_type single, no pad_to_max_length.
    Good: pipeline_model_parallel_size 2, dataloader_type batch.
    Fix: Set dataset.dataloader_type to batch.
    Evidence: read in the source; that it hangs rather than fails is inferred.
    """
    if not subject.has_specs or subject.pipeline_model_parallel_size == 1:
        return
    loader = subject.settings.text_or_none("dataset.dataloader_type")
    if loader not in ("single", "cyclic") or subject.settings.flag("model.variable_seq_lengths"):
        return
    if subject.pads_to_max_length and subject.packed_sequence_size == subject.seq_length:
        return
    width = f"{subject.packed_sequence_size}" if subject.pads_to_max_length else "different widths"
    yield Violation(
        where="dataset.dataloader_type",
        found=f"{loader}, which gives rows of {width}",
        allowed=f"batch, or rows of model.seq_length, {subject.seq_length}",
        changes=change("dataset.dataloader_type", "batch", "the pipeline learns the width of each batch"),
    )


def _context_limit(subject: RunSubject) -> tuple[int, str]:
    """Return the positions that the model's settings provide for, and which setting says so.

    Raises:
        CannotJudgeError: the settings name no limit; with plain RoPE they do not.
    """
    settings = subject.settings
    if settings.is_stated("model.max_position_embeddings") and settings.value("model.max_position_embeddings"):
        return settings.integer("model.max_position_embeddings"), "model.max_position_embeddings"
    if settings.text_or_none("model.position_embedding_type") == "yarn":
        original = settings.integer_or_none("model.yarn_original_max_position_embeddings")
        factor = settings.number_or_none("model.yarn_rotary_scaling_factor")
        if original and factor:
            return round(original * factor), "YaRN's original positions x its factor"
    raise CannotJudgeError("the settings do not say how many positions the model was made for")


@rule("BP116", WARNING, "PSB116; megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py")
def sequence_exceeds_model_context(subject: RunSubject) -> Iterator[Violation]:
    """A sequence may be longer than the positions that the model was made for.

    Why: Silent: rotary embeddings extrapolate. A pack may be longer: positions start again with every sequence.
    Bad: yarn_original_max_position_embeddings 4096, yarn_rotary_scaling_factor 2, dataset.seq_length 16384.
    Good: yarn_original_max_position_embeddings 4096, yarn_rotary_scaling_factor 4, dataset.seq_length 16384.
    Fix: Cap single sequences with max_single_sequence_length, or scale the rotary embedding.
    Evidence: inferred; the host's documentation names the model's context limit.
    """
    if not subject.has_specs:
        return
    limit, origin = _context_limit(subject)
    longest = longest_sequence(subject)
    if longest > limit:
        yield Violation(where="dataset.seq_length", found=str(longest), allowed=f"at most {limit}: {origin}")
