"""Rules on adapters beside layers that ranks split, from the table of places that was made by running them."""

from collections.abc import Mapping

from bridgepack.host.adapter_placements import Differences, ExpertAdapters, Kind, Placement, differences_of, kind_of
from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ERROR, Found, Violation, fixable_rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.experts import expert_tensor_parallel_size
from bridgepack.rules.run.models.adapter_reading import has_targets, trained_linears
from bridgepack.rules.run.reading import HAS_EXPERTS

_FUSION, _OVERLAP = "model.gradient_accumulation_fusion", "model.moe_shared_expert_overlap"
_SEQUENCE, _EXPERT_TENSOR = "model.sequence_parallel", "model.expert_tensor_parallel_size"
_WITHOUT_ENGINE = (
    "executed with the real 0.6.2 and main on two ranks without a GPU; TransformerEngine's layers and the fused kernel "
    "are read"
)


@fixable_rule("BP848", ERROR, when=has_targets, evidence=_WITHOUT_ENGINE)
def adapters_wrong_beside_split_layers(run: Run) -> Found:
    """Adapters compute something else than on one rank, because of how ranks split their layers.

    Why: Silent: the loss falls all the same, and what is merged and served is another model. With sequence parallelism,
        adapters of layers that every rank has whole (down projections of latent attention, latent projections, routers)
        mix features of different tokens. Of routed experts that tensor-parallel ranks split, parts of sums are lost. Of
        shared experts with overlapped communication, the output counts once for each rank.
    Bad: LoRA on linear_kv_down_proj, tensor_model_parallel_size 2, sequence_parallel true.
    Good: sequence_parallel false.
    Fix: Set {model.tensor_model_parallel_size} or {model.expert_tensor_parallel_size} to 1, set
        {model.moe_shared_expert_overlap} to false, or take the layers out of {peft.target_modules}.
    Source: bridge/peft/utils.py:552-640,1005-1120,1155-1215,1916; core/tensor_parallel/layers.py:960,1157,1472;
        github.com/NVIDIA-NeMo/Megatron-Bridge/issues/5900, pull/5634
    """
    findings = {
        kind: (names, differences)
        for kind, names in _layers_by_kind(run).items()
        if (differences := differences_of(_placement(run, kind, is_fused=False), run.release)).names
    }
    if "copied" in findings:
        yield _of_whole_layers(run, *findings["copied"])
    if "shared_row" in findings:
        actual = f"true with adapters on {_text_of(findings['shared_row'][0])} of shared experts"
        because = "the adapters' output then counts once"
        yield wrong(
            _OVERLAP,
            actual,
            "false",
            to=False,
            because=because,
            fix=say("Set {model.moe_shared_expert_overlap} to false."),
        )
    experts = [findings[kind] for kind in ("expert_column", "expert_row") if kind in findings]
    if experts:
        names = _text_of(tuple(name for of_kind, _ in experts for name in of_kind))
        parts = _text_of(tuple(dict.fromkeys(part for _, differences in experts for part in differences.names)))
        actual = f"{expert_tensor_parallel_size(run)} with adapters on {names} of experts, whose {parts} are wrong"
        why = "adapters of experts that ranks split lose parts of sums"
        fix = say(
            "Set {model.expert_tensor_parallel_size} to 1, or take {names} out of {peft.target_modules}.", names=names
        )
        yield wrong(_EXPERT_TENSOR, actual, "1", to=1, because=why, fix=fix)


def _of_whole_layers(run: Run, names: tuple[str, ...], differences: Differences) -> Violation:
    """Return the finding on layers that every rank has whole."""
    size, parts = run.tensor_model_parallel_size, _text_of(differences.names)
    actual = f"true with tensor parallelism {size} and adapters on {_text_of(names)}, whose {parts} are wrong"
    if HAS_EXPERTS(run):  # which need sequence parallelism beside tensor parallelism: BP829
        fix = say(
            "Set {model.tensor_model_parallel_size} to 1, or take {names} out of {peft.target_modules}.",
            names=_text_of(names),
        )
        return wrong(_SEQUENCE, actual, "tensor parallelism 1, or other targets", fix=fix)
    because = "each rank then has all tokens at these layers"
    fix = say("Set {model.sequence_parallel} to false.")
    return wrong(_SEQUENCE, actual, "false", to=False, because=because, fix=fix)


def _text_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


@fixable_rule("BP849", ERROR, when=(has_targets, HAS_EXPERTS), evidence=_WITHOUT_ENGINE)
def shared_adapters_of_experts_drift_apart(run: Run) -> Found:
    """Adapters that the experts of several ranks share get the gradient of their own rank alone.

    Why: Silent: the ranks' copies of one adapter drift apart, and a checkpoint has one of them. Experts that are
        computed together share an adapter, and a hook adds its gradients over expert-parallel ranks; with
        gradient_accumulation_fusion a kernel adds the gradient where the hook does not see it.
    Bad: LoRA on linear_fc1, 128 experts, expert_model_parallel_size 8, gradient_accumulation_fusion true.
    Good: gradient_accumulation_fusion false.
    Fix: Set {model.gradient_accumulation_fusion} to false.
    Source: bridge/peft/utils.py:1272,1322; core/tensor_parallel/layers.py:656-700;
        github.com/NVIDIA-NeMo/Megatron-Bridge/issues/6009
    """
    if not run.flag(_FUSION) or expert_tensor_parallel_size(run) > 1:  # the latter: BP848
        return
    names = tuple(
        name
        for kind, of_kind in _layers_by_kind(run).items()
        if kind.startswith("expert") and differences_of(_placement(run, kind, is_fused=True), run.release).names
        for name in of_kind
    )
    if names:
        actual = f"true with expert parallelism {run.expert_model_parallel_size} and adapters on {_text_of(names)}"
        because = "ranks add the gradients of the adapters that their experts share only without it"
        yield wrong(_FUSION, actual, "false", to=False, because=because)


def _layers_by_kind(run: Run) -> Mapping[Kind, tuple[str, ...]]:
    """Return the names of the layers with adapters, each once, by how ranks split them."""
    overlaps = run.is_on(_OVERLAP)
    names: dict[Kind, dict[str, None]] = {}
    for linear in trained_linears(run):
        names.setdefault(kind_of(linear, overlaps_shared_experts=overlaps), {})[linear.name] = None
    return {kind: tuple(of_kind) for kind, of_kind in names.items()}


def _placement(run: Run, kind: Kind, *, is_fused: bool) -> Placement:
    return Placement(
        kind=kind,
        tensor=run.tensor_model_parallel_size,
        expert=run.expert_model_parallel_size,
        expert_tensor=expert_tensor_parallel_size(run),
        is_sequence_parallel=run.is_on(_SEQUENCE),
        is_fused=is_fused,
        experts=_expert_adapters(run),
    )


def _expert_adapters(run: Run) -> ExpertAdapters:
    """Return how experts have adapters.

    Source: megatron/bridge/peft/lora.py:158-176; experts_shared_outer_loras shares one matrix of each, whose gradients
    a hook adds, too (peft/utils.py, _make_cross_ep_replicated).
    """
    if not run.is_on("model.moe_grouped_gemm"):
        return "sequential"
    is_each = run.stated_value("peft.share_expert_adapters") is False and not run.is_on(
        "peft.experts_shared_outer_loras"
    )
    return "each" if is_each else "shared"
