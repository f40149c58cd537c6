"""Rules on recipes that become no ConfigContainer: `to_bridge` refuses them with the words of these findings."""

from collections.abc import Iterator

from bridgepack.host import RELEASES, release_of
from bridgepack.host.names import name_in
from bridgepack.records import Refusal
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import (
    ADVICE,
    ERROR,
    EXECUTED,
    WARNING,
    Found,
    Violation,
    fixable_rule,
    place,
    rule,
    wrong,
)
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.host_fields import has_field

_NOTICED = "never; to_bridge does, before training"
_HOST = {BRIDGE: ">=0.6"}
#: Kinds of refusals whose path is the host's; that of the others is a recipe's field.
_OF_OVERRIDES = frozenset({"nowhere", "unfit", "not_kept"})


def _refusals_of(run: Run, kind: str) -> list[Refusal]:
    has_fields = run.release.is_known  # raises for a release whose fields are not known here
    return [refusal for refusal in run.config.refusals if refusal.kind == kind and has_fields]


def _violations(run: Run, kind: str) -> Iterator[Violation]:
    for refusal in _refusals_of(run, kind):
        if kind != "nowhere" or _is_recorded(run, refusal):
            yield _violation(refusal, kind)


def _violation(refusal: Refusal, kind: str) -> Violation:
    changes = (refusal.change,) if refusal.change else ()
    where = refusal.path if kind in _OF_OVERRIDES else place(refusal.path)
    return wrong(where, refusal.found, refusal.allowed, group=refusal.path, changes=changes, fix=refusal.fix)


def _is_recorded(run: Run, refusal: Refusal) -> bool:
    """Return whether a class certainly lacks the field of an override."""
    name = name_in(run.versions.release, refusal.path).rpartition(".")[2]
    return has_field(run, refusal.owner, name) is False


def _require_model(run: Run, kind: str) -> None:
    """Raise `CannotJudgeError` if overrides of the model cannot be judged, because its class is not known here."""
    paths = run.config.user_paths.items()
    is_in_model = any(path.startswith("model.") and name.endswith(f".{path}") for path, name in paths)
    if is_in_model and "model" in run.config.unknown and not _refusals_of(run, kind):
        raise CannotJudgeError(run.config.unknown["model"])


@fixable_rule("BP044", ERROR, "bridge/training/config.py:962", versions=_HOST)
def override_leads_nowhere(run: Run) -> Found:
    """An override names a field that Megatron-Bridge does not have.

    Why: Crash before training, when packs are built: no ConfigContainer can be made of the recipe.
    Bad: bridge_overrides {model: {cp_com_type: a2a}}. Good: bridge_overrides {model: {cp_comm_type: a2a}}.
    Fix: Correct the field's name, or remove the override.
    Noticed: training's config. Evidence: executed with the real 0.6.2; fields that a fork adds are not known.
    """
    yield from _violations(run, "nowhere")
    _require_model(run, "nowhere")


@rule("BP855", WARNING, "bridge/training/config.py:962", versions=_HOST)
def override_of_field_not_recorded(run: Run) -> Found:
    """An override names a field that is not recorded here, and the run is for a later Megatron-Bridge than what is.

    Why: Crash before training, when packs are built, if this Megatron-Bridge does not have the field, either.
    Bad: bridge_version 0.6.3, bridge_overrides {model: {a_new_field: 1}}. Good: a field of the recorded version.
    Fix: Check with --real-validate where it is installed, which asks its own classes; or update bridgepack.
    Noticed: training's config. Evidence: executed with a planted field.
    """
    for refusal in run.config.refusals:
        if refusal.kind != "nowhere" or _is_recorded(run, refusal):
            continue
        name = name_in(run.versions.release, refusal.path).rpartition(".")[2]
        if has_field(run, refusal.owner, name) is None:
            release = release_of(str(run.versions[BRIDGE]))
            latest = release.bridge if release.is_known else RELEASES[-1].bridge
            later = f"{refusal.found} in {latest}, the last that is recorded; the run is for {run.versions[BRIDGE]}"
            yield wrong(refusal.path, later, "a field that this Megatron-Bridge has")


@rule("BP850", ERROR, "bridge/training/config.py:962", versions=_HOST, noticed="late, or never", evidence=EXECUTED)
def override_of_wrong_type(run: Run) -> Found:
    """An override of the recipe has a value that the host's field does not take.

    Why: Crash before training, when packs are built: no ConfigContainer can be made of the recipe.
    Bad: bridge_overrides {model: {num_layers: abc}}; {mixed_precision: foo}. Good: num_layers 16; bf16_mixed.
    Fix: Write a value that the field takes.
    """
    yield from _violations(run, "unfit")
    _require_model(run, "unfit")


@rule("BP851", ERROR, versions=_HOST, noticed=_NOTICED, evidence=EXECUTED)
def override_not_kept(run: Run) -> Found:
    """The host overwrites, computes or ignores a field that the recipe overrides.

    Why: Crash before training: to_bridge() refuses it, because the run would train with another value than the recipe
        says.
    Bad: bridge_overrides {ddp: {grad_reduce_in_fp32: false}}. Good: {mixed_precision: {grad_reduce_in_fp32: false}}.
    Fix: Set the field that the finding names, or remove the override.
    Source: bridge/training/config.py:1870 (runtime_config_update), :1282; bridge/training/comm_overlap.py, setup
    """
    yield from _violations(run, "not_kept")


@rule("BP852", ERROR, "bridge/data/builders/direct_hf_sft.py", versions=_HOST, noticed=_NOTICED)
def reading_that_the_host_does_not_do(run: Run) -> Found:
    """The host reads the data itself, and the recipe asks for a reading that only `build` does.

    Why: Crash before training: to_bridge() refuses it, because other tokens would be trained than the recipe says.
    Bad: packing.mode in_batch with data.validation_fraction 0.1. Good: packing.mode in_batch with data.validation.
    Fix: Remove the setting, or set packing.mode to offline.
    """
    yield from _violations(run, "reading")


@rule("BP853", ERROR, "bridge/recipes/__init__.py", versions=_HOST, noticed="training's config", evidence=EXECUTED)
def model_not_for_text(run: Run) -> Found:
    """model.name is a recipe for images or video, or one that Megatron-Bridge cannot make.

    Why: Crash before training, when packs are built: no ConfigContainer for text can be made.
    Bad: model.name flux_12b_sft_2gpu_h100_bf16_config. Good: qwen3_8b_sft_4gpu_h100_bf16_config.
    Fix: Use the recipe of a language model.
    """
    yield from _violations(run, "model")


@rule("BP812", ADVICE, "bridge/models/transformer_config.py:180", evidence=EXECUTED)
def sequence_parallel_without_effect(run: Run) -> Found:
    """sequence_parallel is true, and there is one tensor-parallel rank.

    Why: Silent: Megatron-Bridge switches it off when the run starts, as there is nothing to split over.
    Bad: tensor_model_parallel_size 1, sequence_parallel true. Good: sequence_parallel false.
    Fix: Set {model.sequence_parallel} to false, or raise {model.tensor_model_parallel_size}.
    """
    is_off = any(refusal.kind == "no_effect" for refusal in run.config.refusals)
    if is_off or (run.flag("model.sequence_parallel") and run.tensor_model_parallel_size == 1):
        yield wrong("model.sequence_parallel", "true with one tensor-parallel rank", "false")
