"""Rules on DoRA, which scales every row of a weight by its norm: which layers it can be laid around."""

from bridgepack.host.modules import SPLITS_INPUTS, Linear, is_match
from bridgepack.rules.judging.rule import ERROR, Found, change, fixable_rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.models.adapter_reading import (
    TARGETS,
    adapter_of,
    has_targets,
    is_default,
    is_split,
    targets_of,
    trained_linears,
    usual_targets,
)

_WITHOUT_ENGINE = "executed with megatron-core's own linear layers"


def trains_dora(run: Run) -> bool:
    """Return whether the adapters are DoRA's."""
    return has_targets(run) and adapter_of(run) == "DoRA"


@fixable_rule(
    "BP846",
    ERROR,
    when=trains_dora,
    noticed="model build, or first step",
    evidence="executed with megatron-core's own linear layers",
)
def dora_on_layers_that_it_does_not_take(run: Run) -> Found:
    """DoRA targets experts, the router, the output layer, or with tensor parallelism the projections down.

    Why: Crash with "Sizes of tensors must match", with "takes 2 positional arguments but 3 were given", or with a wrong
        shape.
    Bad: DoRA on linear_fc1 of a model with experts. Good: DoRA on linear_qkv and linear_proj.
    Fix: Take these layers out of {peft.target_modules}, or train LoRA.
    Source: bridge/peft/dora.py:91; bridge/peft/dora_layers.py:118-168
    """
    refusals = [linear for linear in trained_linears(run) if _is_refused_by_dora(run, linear)]
    if not refusals:
        return
    names = list(dict.fromkeys(_place(linear) for linear in refusals))
    wrappable = [
        target for target in targets_of(run) if not any(is_match(target, linear) for linear in refusals)
    ] or usual_targets(run)
    changes = change(TARGETS, usual_targets(run) if is_default(run) else wrappable, "DoRA cannot wrap the others")
    allowed_values = f"layers that DoRA can wrap: {', '.join(usual_targets(run))}"
    yield wrong(TARGETS, f"{', '.join(names)} with DoRA", allowed_values, changes=changes)


@fixable_rule(
    "BP847",
    ERROR,
    when=(trains_dora, is_split),
    evidence="executed: 2 tensor ranks compute another loss than 1",
)
def dora_over_split_inputs(run: Run) -> Found:
    """DoRA targets layers whose inputs tensor-parallel ranks share, so each scales by the norm of its own part.

    Why: Silent: ranks go on with different activations, and the checkpoint keeps the magnitudes of one of them, for a
        norm that a single rank never sees: what is exported is another model than was trained.
    Bad: DoRA on linear_proj with tensor parallelism 2. Good: DoRA on linear_qkv and linear_fc1, or LoRA on all.
    Fix: Take linear_proj, linear_fc2 and out_proj out of {peft.target_modules}, train LoRA, or use tensor parallelism
        1.
    Source: bridge/peft/dora_layers.py:107-130 (_get_weight_norm), 62-73 (sharded_state_dict)
    """
    split = [linear for linear in trained_linears(run) if linear.name in SPLITS_INPUTS]
    split = [linear for linear in split if not _is_refused_by_dora(run, linear)]  # BP846 says it
    if split:
        names = ", ".join(dict.fromkeys(linear.name for linear in split))
        unsplit = [target for target in targets_of(run) if not any(is_match(target, linear) for linear in split)]
        usual = usual_targets(run)
        changes = change(
            TARGETS, usual if is_default(run) or not unsplit else unsplit, "ranks share inputs of the others"
        )
        actual = f"{names} with DoRA on {run.tensor_model_parallel_size} tensor-parallel ranks"
        yield wrong(TARGETS, actual, f"layers that split their outputs: {', '.join(usual)}", changes=changes)


def _is_refused_by_dora(run: Run, linear: Linear) -> bool:
    is_routed = linear.part == "experts" and ".shared_experts." not in linear.path and "latent" not in linear.name
    is_split_down = is_split(run) and linear.name.endswith("down_proj")
    return is_routed or is_split_down or linear.part == "output"


def _place(linear: Linear) -> str:
    return f"{linear.name} of experts" if ".experts." in linear.path else linear.name
