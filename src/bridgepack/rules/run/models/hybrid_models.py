"""Rules on models with state: Mamba and gated delta net layers, whose state must be reset at every sequence."""

from packaging.version import Version

from bridgepack.rules.engine.environment import BRIDGE, CORE, version_of
from bridgepack.rules.engine.rule import ADVICE, ERROR, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, Run
from bridgepack.rules.run.reading import has_own_dataset

_HYBRID = "model.is_hybrid_model"
#: Distribution -> oldest version whose kernels support several sequences in a row.
#: Source: megatron/core/ssm/mamba_mixer.py:1490-1506.
_MAMBA_KERNELS = {"causal-conv1d": Version("1.4.0"), "mamba-ssm": Version("2.0.0")}


def has_mamba_layers(run: Run) -> bool:
    """Return whether the model has Mamba layers, from its layer pattern (`M-M-M*-`) or its class."""
    patterns = (run.stated(f"model.{name}") for name in ("hybrid_layer_pattern", "hybrid_override_pattern"))
    stated_patterns = [pattern for pattern in patterns if isinstance(pattern, str)]
    if stated_patterns:
        return any("M" in pattern for pattern in stated_patterns)
    if not run.is_stated("model._target_"):
        return "M" in str(run.of_model("hybrid_layer_pattern") or "")
    name = run.class_name("model") or ""
    return name.startswith(("MambaModelProvider", "FalconH1", "NemotronH", "NemotronNano"))


def has_gated_delta_net(run: Run) -> bool:
    """Return whether the model has gated delta net layers."""
    return bool(run.of_model("experimental_attention_variant") == "gated_delta_net")


@rule("BP905", ERROR, when=IS_PACKED, versions={BRIDGE: ">=0.5"})
def hybrid_model_not_declared(run: Run) -> Found:
    """Packing is on for a model with Mamba layers, but is_hybrid_model is false.

    Why: Silent: without is_hybrid_model sequences have no index, so the state of one leaks into the next.
    Bad: hybrid_layer_pattern M-M*-, is_hybrid_model false, packing on. Good: is_hybrid_model true.
    Fix: Set model.is_hybrid_model to true. Evidence: read in 0.6.2; Bridge #3474, #3484, #3585.
    Source: PSB905; bridge/training/gpt_step.py:441-451; core/packed_seq_params.py:31-70;
        core/ssm/mamba_mixer.py:744-772
    """
    if has_mamba_layers(run) and not run.flag(_HYBRID):
        why = "only then is the Mamba state reset at every sequence"
        yield wrong(_HYBRID, "false for a model with Mamba layers", "true with packed rows", to=True, because=why)


@rule("BP906", ERROR, "PSB906; core/ssm/mamba_mixer.py:202,1490-1506", when=(IS_PACKED, has_mamba_layers))
def mamba_kernels_missing_or_old(run: Run) -> Found:
    """The kernels of Mamba layers are missing, or too old for several sequences in a row.

    Why: Crash when the model is built or at the first step: "causal_conv1d >= 1.4.0 is required".
    Bad: a model with Mamba layers, mamba-ssm 1.2.0. Good: mamba-ssm 2.2.6 and causal-conv1d 1.5.3.
    Fix: pip install "megatron-bridge[ssm]", or newer causal-conv1d and mamba-ssm.
    Noticed: when the model is built, or first step. Evidence: read in megatron-core 0.19.2.
    """
    installed = run.require_environment().versions
    for name, needed in _MAMBA_KERNELS.items():
        version = installed.get(name)
        if version is None or (version_of(version) or needed) < needed:
            yield wrong(name, version or "not installed", f"{needed} or newer", group=name)


@rule("BP907", ERROR, when=(IS_PACKED, has_gated_delta_net), versions={CORE: "<0.18"}, noticed="first step")
def gated_delta_net_on_old_core(run: Run) -> Found:
    """Packing is on for a model with gated delta net layers, which megatron-core supports from 0.18 on.

    Why: Crash at the first step: NotImplementedError.
    Bad: Qwen3-Next packed with megatron-core 0.17.1.
    Good: Qwen3-Next unpacked with megatron-core 0.17.1, or packed with 0.19.2.
    Fix: Install megatron-core 0.18 or newer, or set dataset.enable_offline_packing to false.
    Evidence: Megatron-LM #2645; the packed path read in megatron-core 0.19.2.
    Source: PSB907; core/ssm/gated_delta_net/gdn.py:95-125
    """
    found = f"gated_delta_net packed with megatron-core {run.versions[CORE]}"
    yield wrong("model.experimental_attention_variant", found, "megatron-core 0.18 or newer")


@rule("BP908", ADVICE, when=(has_gated_delta_net, has_own_dataset), evidence="read in megatron-core 0.19.2")
def rows_of_own_dataset_must_be_full(run: Run) -> Found:
    """Your own dataset is used with gated delta net layers, which need boundaries up to the row's end.

    Why: Crash at the first step: "GDN: cu_seqlens_q[-1]=... does not match total_sequence_length=...".
    Bad: your own dataset class, boundaries [0, 5, 9] for a row of 16 tokens. Good: boundaries [0, 5, 9, 16].
    Fix: Append a last boundary at the row's width. Noticed: first step.
    Source: PSB908; core/ssm/gated_delta_net/common.py:448-475
    """
    yield wrong("dataset", f"{run.dataset_kind} with gated delta net layers", "rows whose last boundary is their width")


@rule("BP918", ERROR, when=has_mamba_layers, noticed="when the model is built", evidence="read in megatron-core 0.19.2")
def mamba_heads_do_not_divide(run: Run) -> Found:
    """Heads or groups of Mamba layers are not divisible by tensor and context parallelism.

    Why: Crash when the model is built: "nheads must be evenly divisible by tp_size * cp_size".
    Bad: mamba_num_heads 112, tensor parallelism 1, context parallelism 32. Good: context parallelism 16.
    Fix: Lower model.context_parallel_size or model.tensor_model_parallel_size.
    Source: PSB906; core/ssm/mamba_mixer.py:260-272; core/ssm/mamba_context_parallel.py:106-130
    """
    tensor, context = run.tensor_model_parallel_size, run.context_parallel_size
    heads, groups = run.stated("model.mamba_num_heads"), run.stated("model.mamba_num_groups")
    if type(heads) is int and heads % (tensor * context):
        found = f"{heads} with tensor x context parallelism {tensor * context}"
        yield wrong("model.mamba_num_heads", found, f"a product that divides {heads}")
    if type(groups) is int and not _groups_divide(groups, tensor=tensor, context=context):
        found = f"{groups} with tensor parallelism {tensor} and context parallelism {context}"
        allowed = f"tensor parallelism that divides {groups}; groups per rank and "
        allowed += "context parallelism that divide one another"
        yield wrong("model.mamba_num_groups", found, allowed)


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
    Fix: pip install flash-linear-attention
    Noticed: when the model is built. Evidence: read in megatron-core 0.19.2.
    """
    if "flash-linear-attention" not in run.require_environment().versions:
        yield wrong("flash-linear-attention", "not installed", "0.4 or newer")
