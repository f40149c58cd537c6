"""Rules on packing by Energon, which the host's task encoder of Qwen-VL supports from 0.7 on."""

from collections.abc import Iterator

from bridgepack.host.vision_language import text_packs_of
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ERROR, VALIDATE, WARNING, Found, fixable_rule, wrong
from bridgepack.rules.judging.subject import PACKS_IN_BATCH, Run

_ENERGON, _BUFFER = "EnergonDatasetConfig", "dataset.packing_buffer_size"
_ENCODER = "QwenVLEnergonTaskEncoderConfig"
_NEW = {BRIDGE: ">=0.7"}
_EXECUTED = "executed with main of 2026-08-22"
_OVERLAPS = tuple(
    f"{section}.{name}"
    for section in ("model", "comm_overlap")
    for name in ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
)


def packs_by_energon(run: Run) -> bool:
    """Return whether Energon packs samples from a buffer."""
    return run.dataset_kind == _ENERGON and run.stated_value(_BUFFER) is not None


@fixable_rule("BP045", ERROR, when=packs_by_energon, versions=_NEW, noticed=VALIDATE, evidence=_EXECUTED)
def energon_packing_unfit(run: Run) -> Found:
    """Energon's own packing is on with settings that it does not support.

    Bad: packing_buffer_size 100, train.micro_batch_size 2. Good: train.micro_batch_size 1, calculate_per_token_loss
        true, average_in_collective false, the task encoder of Qwen-VL, no pipeline, no graphs.
    Fix: Change the named setting, or set {dataset.packing_buffer_size} to null.
    Source: bridge/training/config.py (ConfigContainer.validate) and bridge/data/builders/energon.py of 0.7
    """
    for path, values in (
        ("train.micro_batch_size", 1),
        ("dataset.micro_batch_size", 1),
        ("model.calculate_per_token_loss", True),
        ("ddp.average_in_collective", False),
        ("dataset.enable_in_batch_packing", False),
        ("dataset.defer_in_batch_packing_to_step", False),
    ):
        value = run.stated_value(path)
        if value != values and (value is not None or values is True):
            allowed_values = f"{_words(values)} with packing_buffer_size"
            yield wrong(path, _words(value), allowed_values, group=path, to=values, because="Energon packs the samples")
    for path, actual, allowed_values in _unsupported_settings(run):
        yield wrong(path, actual, allowed_values, group=path)


def _words(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unsupported_settings(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, value, what is allowed) of what no single value mends."""
    encoder = run.class_name("dataset.task_encoder")
    if encoder != _ENCODER:
        yield "dataset.task_encoder", str(encoder), _ENCODER
    if run.pipeline_model_parallel_size > 1:
        yield "model.pipeline_model_parallel_size", str(run.pipeline_model_parallel_size), "1"
    if run.num_mtp_layers > 0:
        yield "model.mtp_num_layers", str(run.num_mtp_layers), "null or 0"
    for path in ("model.cuda_graph_impl", "model.vision_cuda_graph_impl"):
        if run.stated_value(path) not in (None, "none"):
            yield path, str(run.stated_value(path)), "none"
    if run.is_on("model.dist_train.use_dist_train"):
        yield "model.dist_train.use_dist_train", "true", "false"


@fixable_rule("BP046", WARNING, when=packs_by_energon, versions=_NEW, evidence=_EXECUTED)
def energon_packing_without_expert_overlap(run: Run) -> Found:
    """The overlap of expert communication is on with Energon's own packing, which switches it off.

    Why: Slow: validate() sets the overlap to false with a warning, so that the run has no overlap.
    Bad: packing_buffer_size 100, model.overlap_moe_expert_parallel_comm true. Good: no overlap.
    Fix: Turn the overlap off, or pack in the batch with a text model.
    Source: bridge/training/config.py (_disable_native_energon_packing_moe_overlap) of 0.7
    """
    for path in filter(run.is_on, _OVERLAPS):
        yield wrong(path, "true", "false", to=False, because="the host switches it off", group=path)


@fixable_rule("BP839", ERROR, when=PACKS_IN_BATCH, versions=_NEW, evidence="read in main of 2026-08-22")
def in_batch_packing_with_expert_overlap_and_vision(run: Run) -> Found:
    """The overlap of expert communication is on with in-batch packing of a model with vision or sound.

    Why: Silent: vlm_step makes the schedule plan without the boundaries of sequences, so they attend to each other, and
        without images. gpt_step gives the boundaries from 0.7 on.
    Bad: Qwen3-VL-MoE, enable_in_batch_packing true, overlap_moe_expert_parallel_comm true. Good: no overlap.
    Fix: Turn the overlap off in model and comm_overlap. Source: bridge/training/vlm_step.py (forward_step) of 0.7
    """
    if text_packs_of(run.class_name("model") or "", run.release) is None:
        return
    for path in (f"{section}.overlap_moe_expert_parallel_comm" for section in ("model", "comm_overlap")):
        if run.is_on(path):
            yield wrong(path, "true", "false", to=False, because="the sequence boundaries are then kept", group=path)
