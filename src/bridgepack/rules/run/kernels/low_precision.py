"""Rules on matrix products in FP8 and FP4, which need multiples of tokens."""

from bridgepack.records.words import count_text
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.reading import nearest_multiples

#: Number format -> multiple of the tokens on a rank that its matrix products need.
#: Source: TransformerEngine 2.17, pytorch/utils.py:608-624 (8); block sizes of MXFP8 (32) and NVFP4 (16).
TOKEN_MULTIPLES = {"fp8": 8, "mxfp8": 32, "nvfp4": 16}


def num_shares(run: Run) -> int:
    """Return the number of ranks that share a pack's tokens: CP, times TP with sequence parallelism."""
    return run.context_parallel_size * (run.tensor_model_parallel_size if run.splits_sequence else 1)


@rule("BP928", ERROR, "PSC108; TransformerEngine 2.17 pytorch/utils.py:608-624", when=PACKS_OFFLINE)
def pack_width_unfit_for_low_precision(run: Run) -> Found:
    """The tokens of a pack on one rank are not a multiple of the number that FP8 or FP4 matrix products need.

    Why: Crash at the first step: "FP8 execution requires the product of all dimensions except the last to be divisible
        by 8". MXFP8 needs 32, NVFP4 16.
    Bad: packed_sequence_size 4112, MXFP8, CP 1: 4112 = 128 x 32 + 16. Good: packed_sequence_size 4096.
    Fix: Make {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} a multiple of
        32 x context parallelism x tensor parallelism.
    Noticed: first step. Evidence: read in TransformerEngine 2.17.
    """
    if run.number_format == "bf16" or not run.pads_to_max_length:
        return
    multiple, size = TOKEN_MULTIPLES[run.number_format] * num_shares(run), run.packed_sequence_size
    if size > 0 and size % multiple:
        actual = f"{size} over {count_text(num_shares(run), 'rank')} in {run.number_format}"
        allowed_values = f"a multiple of {multiple}, e.g. {nearest_multiples(size, multiple)}"
        yield wrong(f"{SPECS}.packed_sequence_size", actual, allowed_values)


@rule("BP930", WARNING, "PSC108, PSB112; bridge/data/packing/gpt_sft.py, the collate's width", when=PACKS_OFFLINE)
def varying_width_unfit_for_low_precision(run: Run) -> Found:
    """Pack widths vary, and some widths are not supported by FP8 or FP4 matrix products.

    Why: Crash at the first batch with such a width, which may be hours into the run.
    Bad: FP8, CP 2, TP 2 with sequence parallelism, no pad_to_max_length: 16 / 4 = 4. Good: pad_to_max_length true.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true, or {dataset.dataset_kwargs.pad_seq_length_to_mult} to
        the multiple in the finding. Noticed: some step.
    Evidence: read in megatron-bridge 0.6.2 and TransformerEngine 2.17.
    """
    if run.number_format == "bf16" or run.pads_to_max_length:
        return
    multiple = TOKEN_MULTIPLES[run.number_format] * num_shares(run)
    if run.width_multiple % multiple:
        actual = f"not true, widths in steps of {run.width_multiple}, {run.number_format}"
        yield wrong("dataset.dataset_kwargs.pad_to_max_length", actual, f"true, or widths in steps of {multiple}")


@rule("BP929", ADVICE, "PSC109; core/transformer/moe/experts.py:300-312,642", when=IS_PACKED)
def expert_padding_left_to_the_experts(run: Run) -> Found:
    """Experts run in FP8, but the router does not pad each expert's tokens to the multiple that FP8 needs.

    Why: Slow: each MoE layer then copies its tokens into padded buffers and back.
    Bad: fp8, 32 experts, moe_router_padding_for_quantization false. Good: moe_router_padding_for_quantization true.
    Fix: Set {model.moe_router_padding_for_quantization} to true.
    Evidence: inferred from the source of megatron-core 0.19.2.
    """
    if run.number_format == "bf16" or not run.is_mixture_of_experts:
        return
    paths = [f"model.moe_router_padding_for_{name}" for name in ("quantization", "fp8")]
    if not any(run.stated_value(path) for path in paths):
        yield wrong(paths[0], f"false with {run.number_format} experts", "true")
