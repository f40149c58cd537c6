"""Rules on attention backends: which kernels take packed rows."""

from __future__ import annotations

from packaging.version import Version

from bridgepack.rules.engine.environment import ENGINE
from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, PACKS_OFFLINE, Run
from bridgepack.rules.run.kernel_facts import (
    attention_backend,
    backend_takes_effect,
    pads_between_sequences,
    replaces_attention,
)

_BACKEND = "model.attention_backend"
#: Distributions that hold FlashAttention 3.
_FLASH_ATTENTION_3 = frozenset({"flash-attn-3", "flash-attn-hopper", "flash-attn-interface"})


@rule("BP701", ERROR, when=IS_PACKED, noticed=FIRST_STEP)
def no_backend_for_packed_attention(run: Run) -> Found:
    """The chosen attention backend cannot compute attention over packed rows.

    Why: Crash at the first step: `local` refuses packed rows; `unfused` knows neither padding between sequences nor
        context parallelism, and before TransformerEngine 2.12 no packed rows at all.
    Bad: enable_offline_packing true, attention_backend local.
    Good: enable_offline_packing true, attention_backend auto or fused.
    Fix: Set model.attention_backend to AttnBackend.auto, or leave it out.
    Evidence: read in the source of megatron-core 0.19.2 and TransformerEngine 2.10 to 2.18. Packed rows without
        padding, at context parallelism 1, do work with `unfused` since 2.12, unlike the catalogue says.
    Source: PSB701; bridge/models/gpt_provider.py:277; core/transformer/dot_product_attention.py:153; TransformerEngine
        2.17 dot_product_attention/utils.py:990,1076
    """
    if replaces_attention(run):
        return
    backend = attention_backend(run)
    is_hybrid_local = backend == "local" and run.class_name("model") == "HybridModelProvider"
    if not is_hybrid_local and not (backend in ("local", "unfused") and backend_takes_effect(run)):
        return
    is_old = run.versions[ENGINE] < Version("2.12")
    if backend == "local" or is_old or run.context_parallel_size > 1 or pads_between_sequences(run):
        found = str(backend)
        allowed = "auto, fused, or flash where no sequence is padded, with packed rows"
        yield wrong(_BACKEND, found, allowed, to=None, because="the host then takes whichever kernel fits packed rows")


@rule("BP702", WARNING, when=IS_PACKED, noticed=FIRST_STEP)
def flash_attention_over_padded_sequences(run: Run) -> Found:
    """Only FlashAttention may be used while sequences are padded, and FlashAttention 2 and 4 refuse padding.

    Why: Crash at the first step, "No dot product attention backend is available", unless FlashAttention 3 is
        installed and TransformerEngine is 2.16 or newer. `flash` is the default of hybrid and Gemma providers.
    Bad: pad_seq_to_mult 4, attention_backend flash, no FlashAttention 3.
    Good: pad_seq_to_mult 4, attention_backend auto or fused.
    Fix: Set model.attention_backend to AttnBackend.auto. On Ampere GPUs, which have no fused kernel for packed rows,
        use context parallelism 1 with pad_seq_to_mult 1.
    Evidence: read in the source of TransformerEngine 2.14 to 2.18.
    Source: PSB702; TransformerEngine 2.17 dot_product_attention/utils.py:975-990;
        bridge/models/hybrid/hybrid_provider.py:144
    """
    if replaces_attention(run):
        return
    if attention_backend(run) != "flash" or not backend_takes_effect(run):
        return
    if not pads_between_sequences(run):
        return
    generation = run.stated("model.flash_attention_version")
    installed = run.environment.versions if run.environment is not None else {}
    takes_third = generation in (None, 3) and run.versions[ENGINE] >= Version("2.16")
    if takes_third and _FLASH_ATTENTION_3 & set(installed):
        return
    found = f"flash, with padded sequences and {'no' if installed else 'an unknown state of'} FlashAttention 3"
    allowed = "auto or fused with padded sequences; flash with FlashAttention 3 and TransformerEngine 2.16 or newer"
    yield wrong(_BACKEND, found, allowed, to=None, because="the fused kernel takes padded sequences")


@rule("BP717", ERROR, "PSB717, PSB907; core/ssm/gated_delta_net/gdn.py:97", when=IS_PACKED, noticed=FIRST_STEP)
def deterministic_gated_delta_net(run: Run) -> Found:
    """Deterministic mode is on for a model with gated delta net layers over packed rows.

    Why: Crash at the first step: "Packed sequence does not support deterministic mode."
    Bad: experimental_attention_variant gated_delta_net, deterministic_mode true, packing on.
    Good: the same with deterministic_mode false.
    Fix: Set model.deterministic_mode to false, or train unpacked.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if not run.stated("model.deterministic_mode"):
        return
    if run.of_model("experimental_attention_variant") == "gated_delta_net":
        yield wrong(
            "model.deterministic_mode",
            "true with gated delta net",
            "false with packed rows",
            to=False,
            because="gated delta net refuses it over packed rows",
        )


@rule("BP718", WARNING, "PSB718; bridge/training/gpt_step.py:120-124,200")
def attention_mask_of_the_dataset_ignored(run: Run) -> Found:
    """The dataset is asked for attention masks, and packed rows never use one.

    Why: Silent: attention over packed rows follows cu_seqlens alone, so the mask has no effect. Of the host's own
        datasets it says no more than cu_seqlens; one of your own may mean something else.
    Bad: packing on, skip_getting_attention_mask_from_dataset false.
    Good: packing on, skip_getting_attention_mask_from_dataset true or left out.
    Fix: Set dataset.skip_getting_attention_mask_from_dataset to true, or train unpacked where a mask is needed.
    Evidence: read in the source of megatron-bridge 0.6.2.
    """
    path = "dataset.skip_getting_attention_mask_from_dataset"
    if run.is_packed and run.stated(path) is False:
        allowed = "true with packed rows"
        yield wrong(path, "false", allowed, to=True, because="attention over packed rows uses cu_seqlens only")


@rule("BP721", ERROR, noticed=FIRST_STEP, evidence="read in the source of TransformerEngine 2.17.1 and 2.18")
def fp8_attention_over_packed_rows(run: Run) -> Found:
    """Attention itself runs in FP8 over packed rows that are split by context parallelism.

    Why: Crash at the first step, "No dot product attention backend is available": no kernel does FP8 attention over
        packed rows with context parallelism, and with MXFP8 none does at any context parallelism.
    Bad: fp8 hybrid, fp8_dot_product_attention true, context_parallel_size 2, packing on.
    Good: fp8 hybrid, fp8_dot_product_attention false.
    Fix: Set fp8_dot_product_attention and fp8_multi_head_attention to false; matrix products stay in FP8.
    Source: PSB721, PSB702; TransformerEngine 2.17 dot_product_attention/utils.py, context parallelism filter
    """
    flags = ("fp8_dot_product_attention", "fp8_multi_head_attention")
    paths = [f"{section}.{flag}" for section in ("model", "mixed_precision") for flag in flags]
    switched_on = [path for path in paths if run.stated(path) is True]
    if not run.is_packed or not switched_on or run.number_format not in ("fp8", "mxfp8"):
        return
    if run.context_parallel_size > 1 or run.number_format == "mxfp8":
        for path in switched_on:
            found = f"true, {run.number_format}, context parallelism {run.context_parallel_size}"
            allowed = "false with packed rows"
            yield wrong(path, found, allowed, to=False, because="no kernel does FP8 attention over these rows")


@rule("BP723", ADVICE, when=PACKS_OFFLINE, versions={ENGINE: "<2.18"})
def padding_looked_for_on_every_layer(run: Run) -> Found:
    """Every attention layer compares the boundary tensors on the GPU to see whether sequences are padded.

    Why: Slow: each comparison waits for the GPU, once per layer and micro batch.
    Bad: pad_seq_to_mult 4, TransformerEngine 2.17.
    Good: pad_seq_to_mult 1 where nothing needs more, or TransformerEngine 2.18.
    Fix: Nothing is wrong; TransformerEngine 2.18 decides without waiting.
    Evidence: read in the source; TransformerEngine #3487.
    Source: PSB723; TransformerEngine 2.17 dot_product_attention/dot_product_attention.py:1562-1572
    """
    if run.pad_seq_to_mult > 1 and not replaces_attention(run):
        found = f"{run.pad_seq_to_mult} with TransformerEngine {run.versions[ENGINE]}"
        allowed = "any; TransformerEngine 2.18 and newer do not wait"
        yield wrong("dataset.offline_packing_specs.pad_seq_to_mult", found, allowed)


@rule("BP729", ADVICE, "PSB701; core/models/common/language_module/language_module.py:123-145")
def attention_backend_is_plain_text(run: Run) -> Found:
    """The attention backend is a text, which the host compares with members of an enum and so ignores.

    Why: Silent: the backend that was asked for is not forced; TransformerEngine chooses as if nothing were set.
    Bad: model.attention_backend "flash" as text.
    Good: model.attention_backend AttnBackend.flash, or nothing.
    Fix: Set the member in Python, AttnBackend.flash, or leave the setting out.
    Evidence: read in the source of megatron-core 0.19.2 and megatron-bridge 0.6.2, which turns texts of other fields
        into values but not this one; shipped recipes of Ministral 3 do it.
    """
    backend = attention_backend(run) if run.is_stated(_BACKEND) else None
    if backend not in (None, "auto") and not backend_takes_effect(run):
        yield wrong(_BACKEND, repr(backend), "a member of AttnBackend, or nothing")
