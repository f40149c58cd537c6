"""Rules on FP8 and FP4 matrix products over packed rows."""

from __future__ import annotations

from bridgepack.geometry import ceil_to_multiple
from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, INFERRED, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run

#: Number format -> multiple of the tokens on a rank that its matrix products need.
#: Source: TransformerEngine 2.17, pytorch/utils.py:608-624 (8); block sizes of MXFP8 (32) and NVFP4 (16).
TOKEN_MULTIPLES = {"fp8": 8, "mxfp8": 32, "nvfp4": 16}


def num_shares(run: Run) -> int:
    """Return over how many ranks a row's tokens are split: context parallelism, times tensor under sequence."""
    return run.context_parallel_size * (run.tensor_model_parallel_size if run.splits_sequence else 1)


@rule("BP928", ERROR, "PSC108; TE/pytorch/utils.py:608-624", when=PACKS_OFFLINE, noticed=FIRST_STEP)
def row_width_unfit_for_low_precision(run: Run) -> Found:
    """The tokens of a row on one rank are no multiple of what FP8 or FP4 matrix products need.

    Why: Crash at the first step: "FP8 execution requires ... to be divisible by 8". MXFP8 needs 32, NVFP4 16.
    Bad: packed_sequence_size 4112, MXFP8, CP 1: 4112 = 128 x 32 + 16. Good: packed_sequence_size 4096.
    Fix: Make packed_sequence_size and seq_length a multiple of 32 x context parallelism x tensor parallelism.
    """
    if run.number_format == "bf16" or not run.pads_to_max_length:
        return
    multiple, size = TOKEN_MULTIPLES[run.number_format] * num_shares(run), run.packed_sequence_size
    if size % multiple:
        above = ceil_to_multiple(size, multiple)
        found = f"{size} over {num_shares(run)} ranks in {run.number_format}"
        allowed = f"a multiple of {multiple}, e.g. {above - multiple} or {above}"
        yield wrong(f"{SPECS}.packed_sequence_size", found, allowed)


@rule("BP930", WARNING, "PSC108, PSB112; bridge/data/packing/gpt_sft.py", when=PACKS_OFFLINE, noticed="some step")
def varying_width_unfit_for_low_precision(run: Run) -> Found:
    """Rows are as wide as their batch needs, and some widths do not fit FP8 or FP4 matrix products.

    Why: Crash at the first batch whose width does not divide, which may be hours into the run.
    Bad: FP8, CP 2, TP 2 with sequence parallelism, no pad_to_max_length: 16 / 4 = 4. Good: pad_to_max_length true.
    Fix: Set pad_to_max_length to true, or pad_seq_length_to_mult to the multiple below.
    """
    if run.number_format == "bf16" or run.pads_to_max_length:
        return
    multiple = TOKEN_MULTIPLES[run.number_format] * num_shares(run)
    if run.width_multiple % multiple:
        found = f"not true, widths in steps of {run.width_multiple}, {run.number_format}"
        yield wrong("dataset.dataset_kwargs.pad_to_max_length", found, f"true, or widths in steps of {multiple}")


@rule("BP929", ADVICE, "PSC109; core/transformer/moe/experts.py:300-312", when=IS_PACKED, evidence=INFERRED)
def expert_padding_left_to_the_experts(run: Run) -> Found:
    """Experts run in FP8 and the router does not round the tokens of an expert to what FP8 needs.

    Why: Slow: each layer of experts then copies its tokens into padded buffers and back.
    Bad: fp8, 32 experts, moe_router_padding_for_quantization false. Good: moe_router_padding_for_quantization true.
    Fix: Set model.moe_router_padding_for_quantization to true.
    """
    if run.number_format == "bf16" or not run.is_mixture_of_experts:
        return
    paths = [f"model.moe_router_padding_for_{name}" for name in ("quantization", "fp8")]
    if not any(run.stated(path) for path in paths):
        yield wrong(paths[0], f"false with {run.number_format} experts", "true")
