"""Rules on mixtures of experts over packed rows."""

from __future__ import annotations

import itertools

from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, ERROR, WARNING, Found, change, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.fp8 import num_shares
from bridgepack.rules.run.kernel_facts import graph_capture

#: Tokens that HybridEP's combine kernel takes at a time.
HYBRID_CHUNK_TOKENS = 128
#: Settings that megatron-core refuses without the overlap.
#: Source: megatron/core/transformer/transformer_config.py:2749-2775.
_NEED_OVERLAP = ("delay_wgrad_compute", "ep_overlap_early_attn_memory_release")
_BALANCING = "model.moe_router_load_balancing_type"


@rule("BP802", ERROR, "PSB802; bridge/training/gpt_step.py:454-461", versions={BRIDGE: "<0.7"})
def expert_overlap_drops_boundaries(run: Run) -> Found:
    """Communication of experts is overlapped with computation, and that path forgets where sequences begin.

    Why: Silent: the overlapped schedule is built without packed_seq_params, so every token attends to all sequences
        before it in the pack and positions run on; the loss looks plausible.
    Bad: overlap_moe_expert_parallel_comm true, packing on.
    Good: overlap_moe_expert_parallel_comm false, packing on.
    Fix: Set overlap_moe_expert_parallel_comm to false in model and comm_overlap.
    Evidence: read in the source of megatron-bridge 0.6.2; mended after 0.6.2 by Bridge #5470.
    """
    sections = ("model", "comm_overlap")
    paths = [f"{section}.overlap_moe_expert_parallel_comm" for section in sections]
    switched_on = [path for path in paths if run.stated(path) is True]
    if not run.is_packed or not switched_on:
        return
    overlap = [change(path, False, "the overlapped schedule forgets the boundaries") for path in switched_on]
    dependents = [f"{section}.{name}" for section in sections for name in _NEED_OVERLAP]
    others = [change(path, False, "it needs the overlap") for path in dependents if run.stated(path) is True]
    allowed = "false with packed rows"
    yield wrong(switched_on[0], "true with packed rows", allowed, changes=tuple(itertools.chain(*overlap, *others)))


@rule("BP806", ADVICE, "PSB806; bridge/training/gpt_step.py:432-437", when=PACKS_OFFLINE, versions={BRIDGE: "<0.7"})
def router_counts_padding(run: Run) -> Found:
    """Padding tokens take part in the statistics that balance the experts.

    Why: Silent: balancing losses and expert biases drift towards what suits EOS tokens, the more padding the more.
    Bad: an aux loss above 0 and rows with a tail of 20 percent.
    Good: rows filled to 99 percent.
    Fix: Keep padding small; megatron-bridge after 0.6.2 passes the router a mask.
    Evidence: read in the source; Bridge #5470; Megatron-LM #6111, #2142, #4776, #7481.
    """
    if not run.is_mixture_of_experts:
        return
    balanced = [name for name in ("moe_aux_loss_coeff", "moe_z_loss_coeff") if run.stated(f"model.{name}")]
    balanced += ["moe_router_enable_expert_bias"] if run.stated("model.moe_router_enable_expert_bias") else []
    if balanced and (run.pads_to_max_length or run.pad_seq_to_mult > 1):
        yield wrong(f"model.{balanced[0]}", "counts padding tokens", "little padding")


@rule("BP807", ADVICE, when=IS_PACKED, evidence="read in the source; Megatron-LM #6108, #7452")
def balance_per_sequence_means_per_pack(run: Run) -> Found:
    """Experts are balanced per sequence, and a pack counts as one sequence.

    Why: Silent: the loss balances experts over all sequences of a pack together, not within each.
    Bad: moe_router_load_balancing_type seq_aux_loss, packing on.
    Good: moe_router_load_balancing_type aux_loss or global_aux_loss, packing on.
    Fix: Use aux_loss or global_aux_loss where balance within each sequence matters.
    Source: PSB807; core/packed_seq_params.py:27; core/transformer/transformer_layer.py:792
    """
    if not run.is_mixture_of_experts:
        return
    kinds = run.items(_BALANCING)
    if "seq_aux_loss" in kinds and run.stated("model.moe_aux_loss_coeff"):
        yield wrong(_BALANCING, "seq_aux_loss with packed rows", "aux_loss, global_aux_loss")


@rule("BP808", WARNING, when=PACKS_OFFLINE, noticed="first step, or never (hang)")
def uneven_tokens_for_hybrid_dispatch(run: Run) -> Found:
    """HybridEP gets a number of tokens per rank that its kernels or CUDA graphs cannot take.

    Why: Crash or hang at the first step that differs: kernels combine 128 tokens at a time, and with CUDA graphs the
        host does not even out the ranks.
    Bad: flex dispatcher hybridep, packed_sequence_size 4160 (not a multiple of 128); or CUDA graphs and varying widths.
    Good: flex dispatcher hybridep, packed_sequence_size 4096, pad_to_max_length true.
    Fix: Set pad_to_max_length and make packed_sequence_size a multiple of 128 x the ranks that share a row.
    Evidence: read in the source; the 128 comes from the documentation.
    Source: PSB808; bridge/models/transformer_config.py:91-130; bridge/training/config.py:1249
    """
    if run.stated("model.moe_token_dispatcher_type") != "flex":
        return
    if run.stated("model.moe_flex_dispatcher_backend") != "hybridep":
        return
    if not run.pads_to_max_length:
        if graph_capture(run).is_on:
            yield wrong(
                "dataset.dataset_kwargs.pad_to_max_length",
                "not true with hybridep and CUDA graphs",
                "true",
                to=True,
                because="every rank then has as many tokens",
            )
        return
    multiple = HYBRID_CHUNK_TOKENS * num_shares(run)
    if run.packed_sequence_size % multiple:
        found = f"{run.packed_sequence_size} over {num_shares(run)} ranks with hybridep"
        yield wrong(f"{SPECS}.packed_sequence_size", found, f"a multiple of {multiple}")
