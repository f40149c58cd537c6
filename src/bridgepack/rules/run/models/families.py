"""Rules on families of models, and on hybrid models."""

from collections.abc import Mapping

from packaging.version import Version

from bridgepack.host.modules import DELTA_NETS
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import CORE, is_in, version_of
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, fixable_rule, place, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, PACKS_IN_BATCH, PACKS_OFFLINE, Run
from bridgepack.rules.run.reading import attention_backend, backend_takes_effect, has_own_dataset

_OFFLINE, _IN_BATCH = "dataset.enable_offline_packing", "dataset.enable_in_batch_packing"
#: Families whose shipped recipes switch offline packing off.
#: Source: megatron/bridge/recipes of 0.6.2, qwen/h100/qwen3_next.py:162, glm/h100/glm45.py:298 and
#: deepseek/h100/deepseek_v4.py:356.
NOT_OFFLINE = frozenset({"qwen3_next", "glm_4_5", "deepseek_v4"})
#: Family whose collate function or forward step raises for in-batch packing -> the function that raises.
_IN_BATCH_REFUSED: Mapping[str, str] = {
    "qwen3_omni": "its collate function and its forward step",
    "nemotron_vl": "its collate function",
}
#: Families whose shipped recipes turn in-batch packing off, and whose code does not raise.
#: Gemma 4 is not one of them: its recipe gives the micro batch size as the reason.
_NOT_IN_BATCH = frozenset(
    {"qwen3_5_vl", "glm_4_5_vl", "gemma3_vl", "kimi_vl", "exaone_4_5", "nemotron_omni", "qwen_audio", "nemotron_vl"}
)
_HYBRID_CLASSES = ("HybridModelProvider", "MambaModelProvider")


@rule("BP901", WARNING, when=PACKS_OFFLINE, noticed="never, or first step")
def family_packed_against_its_recipe(run: Run) -> Found:
    """Offline packing is on for a model family whose recipes in the host turn it off as not supported.

    Why: Silent or crash at the first step: upstream does not train these models packed, and validate() accepts it.
    Bad: GLM-4.5, enable_offline_packing true.
    Good: GLM-4.5, enable_offline_packing false; DeepSeek-V4 packed with cp_partition_mode contiguous.
    Fix: Turn packing off, or compare packed and unpacked losses on one GPU first.
    Evidence: the docstrings of the host's recipes; they do not say what breaks.
    Source: PSB901; bridge/recipes/qwen/h100/qwen3_next.py:162; glm/h100/glm45.py:298; deepseek/h100/deepseek_v4.py:356
    """
    is_split_whole = run.family.name == "deepseek_v4" and run.stated_value("model.cp_partition_mode") == "contiguous"
    if run.family.name in NOT_OFFLINE and not is_split_whole:
        allowed_values = "no packing, as in the host's recipes for this family"
        yield wrong(_OFFLINE, f"packs for {run.family.evidence} ({run.family.name})", allowed_values)


@fixable_rule("BP902", ERROR, when=PACKS_IN_BATCH, noticed="first step", evidence="read in 0.6.2")
def in_batch_packing_refused_by_family(run: Run) -> Found:
    """In-batch packing is on for a model family whose own data code refuses it.

    Why: Crash in the first batch: "Qwen3-Omni does not support in-batch packing." and the like.
    Bad: Qwen3-Omni, enable_in_batch_packing true. Good: enable_in_batch_packing false.
    Fix: Set {dataset.enable_in_batch_packing} to false.
    Source: PSB902; bridge/models/qwen_omni/data/collate_fn.py:58; qwen_omni/qwen3_omni_step.py:239;
        nemotron_vl/data/collate_fn.py:69
    """
    name, evidence = run.family.name, run.family.evidence
    is_deferred = name == "nemotron_vl" and run.stated_value("dataset.defer_in_batch_packing_to_step")
    if name in _IN_BATCH_REFUSED and not is_deferred:
        why = "the family's data code refuses in-batch packing"
        allowed_values = f"false: {_IN_BATCH_REFUSED[name]} raises"
        yield wrong(_IN_BATCH, f"true for {evidence} ({name})", allowed_values, to=False, because=why)


@rule("BP903", ERROR, "PSB903; bridge/models/gemma/gemma2_provider.py:187-190,375-378", when=IS_PACKED)
def gemma_2_packed(run: Run) -> Found:
    """Packing is on for Gemma 2, whose attention does not support packs.

    Why: Crash at the first step: "Packed sequence is not supported by DotProductAttention." The host's six
        Gemma-2 recipes turn packing on nevertheless.
    Bad: Gemma 2, enable_offline_packing true. Good: enable_offline_packing false.
    Fix: Turn packing off and raise {train.global_batch_size} by the sequences per pack, or use Gemma 3.
    Noticed: first step. Evidence: read in 0.6.2; both attention classes of its provider raise.
    """
    name = run.class_name("model") or "" if run.is_stated("model._target_") else run.family.name
    if "gemma2" in name.lower():
        allowed_values = "no packing: the attention of Gemma 2 raises for packs"
        yield wrong(_OFFLINE if run.packs_offline else _IN_BATCH, f"packs for {run.family.evidence}", allowed_values)


@fixable_rule("BP904", ERROR, when=IS_PACKED, noticed="first step", evidence="read in 0.6.2 and megatron-core 0.19.2")
def local_attention_packed(run: Run) -> Found:
    """Packing is on with megatron-core's own attention, which does not support packs.

    Why: Crash at the first step: "Packed sequence is not supported by DotProductAttention."
    Bad: attention_backend local, packing on. Good: attention_backend not set, or default_layer_spec.
    Fix: Do not set {model.attention_backend}, so that TransformerEngine computes attention.
    Source: PSB904; core/transformer/dot_product_attention.py:153; bridge/models/gpt_provider.py:277;
        bridge/models/hybrid/hybrid_provider.py:266
    """
    if attention_backend(run) == "local" and (backend_takes_effect(run) or run.class_name("model") in _HYBRID_CLASSES):
        why = "only TransformerEngine's attention supports packs"
        yield wrong("model.attention_backend", "local", "unset, fused or auto with packs", to=None, because=why)
    spec = run.stated_value("model.transformer_layer_spec")
    target = str(spec.get("_target_") if isinstance(spec, Mapping) else spec or "")
    if target.rpartition(".")[2] in ("local_layer_spec", "get_gpt_layer_local_spec"):
        yield wrong("model.transformer_layer_spec", target, "a specification with TransformerEngine's layers")


@rule("BP915", WARNING, when=PACKS_IN_BATCH)
def in_batch_packing_against_its_recipe(run: Run) -> Found:
    """In-batch packing is on for a model family whose recipes in the host turn it off.

    Why: Silent: Gemma 3 loses the mask that lets its image tokens see each other; for the others no effect is recorded.
    Bad: Gemma 3 with vision, enable_in_batch_packing true. Good: enable_in_batch_packing false.
    Fix: Set {dataset.enable_in_batch_packing} to false, or compare packed and unpacked losses on one GPU first.
    Evidence: read in the recipes of 0.6.2; a comment on Gemma 3 says that its mask does not work with packs.
    Source: PSB902; bridge/recipes/qwen_vl/h100/qwen35_vl.py:371; glm_vl/h100/glm_45v.py:97;
        gemma3_vl/h100/gemma3_vl.py:115; kimi_vl/h100/kimi_k25_vl.py:98; exaone/h100/exaone45.py:65;
        nemotron_omni/h100/nemotron_omni.py:58; models/qwen_audio/data/collate_fn.py:54
    """
    name, is_deferred = run.family.name, bool(run.stated_value("dataset.defer_in_batch_packing_to_step"))
    if name in _NOT_IN_BATCH and (name != "nemotron_vl" or is_deferred):
        allowed_values = "false, as in the host's recipes for this family"
        yield wrong(_IN_BATCH, f"true for {run.family.evidence} ({name})", allowed_values)


@fixable_rule("BP916", WARNING, when=IS_PACKED, noticed="first step, or never")
def local_implementation_packed(run: Run) -> Found:
    """Packing is on, but transformer_impl is not TransformerEngine.

    Why: Crash at the first step if the model follows the setting, because local attention refuses packs. GPT
        models of the host ignore it and build TransformerEngine's layers.
    Bad: transformer_impl local, packing on. Good: transformer_impl transformer_engine.
    Fix: Set {model.transformer_impl} to transformer_engine, and train one step on one GPU for Falcon-H1.
    Evidence: read in 0.6.2. The layers of Falcon-H1 are TransformerEngine's with the unfused backend.
    Source: PSB904; core/models/gpt/experimental_attention_variant_module_specs.py:442;
        bridge/models/gpt_provider.py:111; bridge/models/falcon_h1/falconh1_provider.py:94
    """
    path, implementation = "model.transformer_impl", "transformer_engine"
    if run.stated_value(path) == "local":
        yield wrong(path, "local with packs", implementation, to=implementation, because="packs need its attention")


@rule("BP917", ERROR, noticed="validate(), or when the model is built")
def attention_variant_unknown_to_core(run: Run) -> Found:
    """This release of megatron-core cannot build the model's attention variant.

    Why: Crash at start: "Invalid experimental attention variant"; the host's DeepSeek-V4 recipes need a development
        version of megatron-core, whose packs also store how context parallelism splits them.
    Bad: DeepSeek-V4 (dsv4_hybrid) with megatron-core 0.19.2. Good: gated_delta_net or dsa.
    Fix: Install the development version of megatron-core that the recipe names, train with deepseek_v4_step, and ignore
        this rule with that reason.
    Evidence: executed: the host's three DeepSeek-V4 recipes fail in validate() with megatron-core 0.19.2, and with the
        megatron-core that main of 2026-08-22 pins.
    Source: PSB911; core/models/gpt/experimental_attention_variant_module_specs.py:141-148;
        bridge/models/deepseek/deepseek_v4_bridge.py:397
    """
    variant = run.model_setting("experimental_attention_variant")
    variants = run.release.attention_variants
    if not is_in(run.versions[CORE], run.release.core_released):
        raise CannotJudgeError(f"the attention variants of megatron-core {run.versions[CORE]} are not known")
    if isinstance(variant, str) and variant not in variants:
        actual = f"{variant} with megatron-core {run.versions[CORE]}"
        allowed_values = f"{' or '.join(sorted(variants))} with the core of {run.release.name}"
        yield wrong("model.experimental_attention_variant", actual, allowed_values)


_HYBRID = "model.is_hybrid_model"
#: Distribution -> oldest version whose kernels support several sequences in a row.
#: Source: megatron/core/ssm/mamba_mixer.py:1490-1506.
_MAMBA_KERNELS = {"causal-conv1d": Version("1.4.0"), "mamba-ssm": Version("2.0.0")}


def has_mamba_layers(run: Run) -> bool:
    """Return whether the model has Mamba layers, from its layer pattern (`M-M-M*-`) or its class."""
    patterns = (run.stated_value(f"model.{name}") for name in ("hybrid_layer_pattern", "hybrid_override_pattern"))
    stated_patterns = [pattern for pattern in patterns if isinstance(pattern, str)]
    if stated_patterns:
        return any("M" in pattern for pattern in stated_patterns)
    if not run.is_stated("model._target_"):
        return "M" in str(run.model_setting("hybrid_layer_pattern") or "")
    name = run.class_name("model") or ""
    return name.startswith(("MambaModelProvider", "FalconH1", "NemotronH", "NemotronNano"))


def has_gated_delta_net(run: Run) -> bool:
    """Return whether the model has gated delta net layers."""
    return run.model_setting("experimental_attention_variant") in DELTA_NETS


@fixable_rule("BP905", ERROR, when=IS_PACKED)
def hybrid_model_not_declared(run: Run) -> Found:
    """Packing is on for a model with Mamba layers, but is_hybrid_model is false.

    Why: Silent: without is_hybrid_model sequences have no index, so the state of one leaks into the next.
    Bad: hybrid_layer_pattern M-M*-, is_hybrid_model false, packing on. Good: is_hybrid_model true.
    Fix: Set {model.is_hybrid_model} to true. Evidence: read in 0.6.2; Bridge #3474, #3484, #3585.
    Source: PSB905; bridge/training/gpt_step.py:441-451; core/packed_seq_params.py:31-70;
        core/ssm/mamba_mixer.py:744-772
    """
    if has_mamba_layers(run) and not run.flag(_HYBRID):
        why = "only then is the Mamba state reset at every sequence"
        yield wrong(_HYBRID, "false for a model with Mamba layers", "true with packs", to=True, because=why)


@rule("BP906", ERROR, "PSB906; core/ssm/mamba_mixer.py:202,1490-1506", when=(IS_PACKED, has_mamba_layers))
def mamba_kernels_missing_or_old(run: Run) -> Found:
    """The kernels of Mamba layers are missing, or too old for several sequences in a pack.

    Why: Crash when the model is built or at the first step: "causal_conv1d >= 1.4.0 is required".
    Bad: a model with Mamba layers, mamba-ssm 1.2.0. Good: mamba-ssm 2.2.6 and causal-conv1d 1.5.3.
    Fix: Run `pip install "megatron-bridge[ssm]"`, or install newer causal-conv1d and mamba-ssm.
    Noticed: when the model is built, or first step. Evidence: read in megatron-core 0.19.2.
    """
    versions = run.require_environment().versions
    for name, packages in _MAMBA_KERNELS.items():
        version = versions.get(name)
        if version is None or (version_of(version) or packages) < packages:
            yield wrong(place(name), version or "not installed", f"{packages} or newer", group=name)


@rule("BP908", ADVICE, when=(has_gated_delta_net, has_own_dataset), evidence="read in megatron-core 0.19.2")
def packs_of_own_dataset_must_be_full(run: Run) -> Found:
    """Your own dataset is used with gated delta net layers, which need boundaries up to the pack's end.

    Why: Crash at the first step: "GDN: cu_seqlens_q[-1]=... does not match total_sequence_length=...".
    Bad: your own dataset class, boundaries [0, 5, 9] for a pack of 16 tokens. Good: boundaries [0, 5, 9, 16].
    Fix: Append a last boundary at the pack's width. Noticed: first step.
    Source: PSB908; core/ssm/gated_delta_net/common.py:448-475
    """
    yield wrong("dataset", f"{run.dataset_kind} with gated delta net layers", "packs whose last boundary is their end")


@rule("BP918", ERROR, when=has_mamba_layers, noticed="when the model is built", evidence="read in megatron-core 0.19.2")
def mamba_heads_do_not_divide(run: Run) -> Found:
    """Heads or groups of Mamba layers are not divisible by tensor and context parallelism.

    Why: Crash when the model is built: "nheads must be evenly divisible by tp_size * cp_size".
    Bad: mamba_num_heads 112, tensor parallelism 1, context parallelism 32. Good: context parallelism 16.
    Fix: Lower {model.context_parallel_size} or {model.tensor_model_parallel_size}.
    Source: PSB906; core/ssm/mamba_mixer.py:260-272; core/ssm/mamba_context_parallel.py:106-130
    """
    tensor, context = run.tensor_model_parallel_size, run.context_parallel_size
    heads, groups = run.stated_value("model.mamba_num_heads"), run.stated_value("model.mamba_num_groups")
    if type(heads) is int and heads % (tensor * context):
        actual = f"{heads} with tensor x context parallelism {tensor * context}"
        yield wrong("model.mamba_num_heads", actual, f"a product that divides {heads}")
    if type(groups) is int and not _groups_divide(groups, tensor=tensor, context=context):
        actual = f"{groups} with tensor parallelism {tensor} and context parallelism {context}"
        allowed_values = f"tensor parallelism that divides {groups}; groups per rank and "
        allowed_values += "context parallelism that divide one another"
        yield wrong("model.mamba_num_groups", actual, allowed_values)


def _groups_divide(num_groups: int, *, tensor: int, context: int) -> bool:
    """Return whether groups split evenly: `8, tensor=2, context=4` -> 4 per tensor rank, 1 per context rank."""
    if num_groups < 1 or num_groups % tensor:
        return False
    per_rank = num_groups // tensor
    return max(per_rank, context) % min(per_rank, context) == 0


@rule("BP919", ERROR, "PSB907; core/ssm/gated_delta_net/common.py:44-55,141", when=has_gated_delta_net)
def gated_delta_net_kernels_missing(run: Run) -> Found:
    """The model has gated delta net layers, but flash-linear-attention is not installed.

    Why: Crash when the model is built: "FLA is not installed."
    Bad: Qwen3-Next in an environment without flash-linear-attention. Good: flash-linear-attention 0.4.1.
    Fix: Run `pip install flash-linear-attention`.
    Noticed: when the model is built. Evidence: read in megatron-core 0.19.2.
    """
    if "flash-linear-attention" not in run.require_environment().versions:
        yield wrong(place("flash-linear-attention"), "not installed", "0.4 or newer")
