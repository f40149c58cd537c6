"""Rules on FP8 and FP4 matrix products over packed rows."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.geometry import ceil_to_multiple
from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.kernel_facts import stated
from bridgepack.rules.run_rule import rule
from bridgepack.rules.run_subject import SPECS, RunSubject

#: Number format -> multiple of the tokens on a rank that its matrix products need.
#: Source: TransformerEngine 2.17, pytorch/utils.py:608-624 (8); block sizes of MXFP8 (32) and NVFP4 (16).
TOKEN_MULTIPLES = {"fp8": 8, "mxfp8": 32, "nvfp4": 16}


def num_shares(subject: RunSubject) -> int:
    """Return over how many ranks a row's tokens are split: context parallelism, times tensor under sequence."""
    return subject.context_parallel_size * (subject.tensor_model_parallel_size if subject.splits_sequence else 1)


@rule("BP928", ERROR, "PSC108; TransformerEngine 2.17 pytorch/utils.py:608-624", noticed="first step")
def row_width_unfit_for_low_precision(subject: RunSubject) -> Iterator[Violation]:
    """The tokens of a row on one rank are no multiple of what FP8 or FP4 matrix products need.

    Why: Crash at the first step: "FP8 execution requires the product of all dimensions except the last to be divisible
        by 8". MXFP8 needs 32, NVFP4 16.
    Bad: packed_sequence_size 4112, MXFP8, context parallelism 1: 4112 = 128 x 32 + 16.
    Good: packed_sequence_size 4096, MXFP8, context parallelism 2: 2048 = 64 x 32.
    Fix: Make packed_sequence_size and seq_length a multiple of 32 x context parallelism x tensor parallelism.
    Evidence: read in the source of TransformerEngine 2.17.
    """
    if not subject.packs_offline or subject.number_format == "bf16" or not subject.pads_to_max_length:
        return
    multiple = TOKEN_MULTIPLES[subject.number_format] * num_shares(subject)
    size = subject.packed_sequence_size
    if size % multiple:
        above = ceil_to_multiple(size, multiple)
        yield Violation(
            where=f"{SPECS}.packed_sequence_size",
            found=f"{size} over {num_shares(subject)} ranks in {subject.number_format}",
            allowed=f"a multiple of {multiple}, e.g. {above - multiple} or {above}",
        )


@rule("BP930", WARNING, "PSC108, PSB112; megatron/bridge/data/packing/gpt_sft.py, the collate's width")
def varying_width_unfit_for_low_precision(subject: RunSubject) -> Iterator[Violation]:
    """Rows are as wide as their batch needs, and some widths do not fit FP8 or FP4 matrix products.

    Why: Crash at the first batch whose width does not divide, which may be hours into the run.
    Bad: FP8, context parallelism 2, tensor parallelism 2 with sequence parallelism, no pad_to_max_length: 16 / 4 = 4.
    Good: the same with dataset_kwargs {pad_to_max_length: true}.
    Fix: Set pad_to_max_length to true, or pad_seq_length_to_mult to the multiple below.
    Noticed: some step.
    Evidence: read in the source of megatron-bridge 0.6.2 and TransformerEngine 2.17.
    """
    if not subject.packs_offline or subject.number_format == "bf16" or subject.pads_to_max_length:
        return
    multiple = TOKEN_MULTIPLES[subject.number_format] * num_shares(subject)
    if subject.width_multiple % multiple:
        yield Violation(
            where="dataset.dataset_kwargs.pad_to_max_length",
            found=f"not true, widths in steps of {subject.width_multiple}, {subject.number_format}",
            allowed=f"true, or widths in steps of {multiple}",
        )


@rule("BP929", ADVICE, "PSC109; megatron/core/transformer/moe/experts.py:300-312,642")
def expert_padding_left_to_the_experts(subject: RunSubject) -> Iterator[Violation]:
    """Experts run in FP8 and the router does not round the tokens of an expert to what FP8 needs.

    Why: Slow: each layer of experts then copies its tokens into padded buffers and back.
    Bad: fp8, 32 experts, moe_router_padding_for_quantization false.
    Good: fp8, 32 experts, moe_router_padding_for_quantization true.
    Fix: Set model.moe_router_padding_for_quantization to true.
    Evidence: inferred from the source of megatron-core 0.19.2.
    """
    if not subject.is_packed or subject.number_format == "bf16" or not subject.is_mixture_of_experts:
        return
    names = ("moe_router_padding_for_quantization", "moe_router_padding_for_fp8")
    if not any(stated(subject, f"model.{name}") for name in names):
        yield Violation(where=f"model.{names[0]}", found=f"false with {subject.number_format} experts", allowed="true")
