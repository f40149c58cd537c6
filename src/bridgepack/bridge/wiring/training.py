"""Settings of batches, steps, evaluation, the optimiser, the kernels, checkpoints and logs."""

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from bridgepack import geometry
from bridgepack.bridge.wiring.settings import Scope, Setting, derived_setting
from bridgepack.config.recipe.host_paths import ADAPTER, BOOKKEEPING, OPTIMIZER, RUN_NAMES
from bridgepack.config.recipe.training import AdapterMethod

#: Learning rates of Megatron-Bridge's own SFT and PEFT recipes.
#: Source: megatron/bridge/recipes/common.py of 0.6.2, _sft_common and _peft_common.
DEFAULT_LR: Mapping[str, float] = {"full": 5e-6, "lora": 1e-4, "dora": 1e-4}
#: Field that names a run in a tracker -> the field that says that there is the tracker.
_TRACKERS = {"logging.wandb_exp_name": "wandb_project", "logging.mlflow_run_name": "mlflow_experiment"}


def optimizer_settings(scope: Scope) -> Iterator[Setting]:
    """Yield the optimiser and the adapters."""
    if scope.recipe.optimizer.lr is None:
        kind = scope.recipe.method.kind
        because = f"Megatron-Bridge's own for method {kind}"
        yield derived_setting("optimizer.lr", DEFAULT_LR[kind], because, "optimizer.lr")
    else:
        yield scope.setting("optimizer.lr", "optimizer.lr")
    yield from scope.settings({path: field for path, field in OPTIMIZER.items() if path != "optimizer.lr"})
    if isinstance(scope.recipe.method, AdapterMethod):
        yield from scope.settings(ADAPTER, if_set=True)


def kernel_settings(scope: Scope) -> Iterator[Setting]:
    """Yield precision, CUDA graphs, attention and recomputation."""
    graphs, model = scope.recipe.cuda_graphs, scope.recipe.model
    yield scope.setting("mixed_precision", "precision.recipe")
    yield scope.setting("model.cuda_graph_impl", "cuda_graphs.implementation")
    if graphs.implementation == "transformer_engine":
        yield scope.setting("model.cuda_graph_modules", "cuda_graphs.modules", list(graphs.modules))
    if graphs.implementation == "full_iteration":
        because = "the host cannot look at a loss inside a graph"
        yield derived_setting("rerun_state_machine.check_for_nan_in_loss", False, because)
        yield derived_setting("ddp.check_for_nan_in_grad", False, because)
    if graphs.implementation != "none":
        yield derived_setting("model.use_te_rng_tracker", True, "graphs replay random numbers through it")
        yield derived_setting("rng.te_rng_tracker", True, "as model.use_te_rng_tracker")
    if model is not None and model.attention_backend is not None:
        yield scope.setting("model.attention_backend", "model.attention_backend")
    if model is not None and model.recompute is not None:
        is_full = model.recompute == "full"
        value = None if model.recompute == "none" else model.recompute
        yield scope.setting("model.recompute_granularity", "model.recompute", value)
        yield derived_setting("model.recompute_method", "uniform" if is_full else None, "model.recompute")
        yield derived_setting("model.recompute_num_layers", 1 if is_full else None, "model.recompute")


def bookkeeping_settings(scope: Scope) -> Iterator[Setting]:
    """Yield checkpoints, logs and environment variables."""
    logging = scope.recipe.logging
    yield from scope.settings(BOOKKEEPING, if_set=True)
    for path, field in RUN_NAMES.items():
        if getattr(logging, _TRACKERS[field]) is not None:
            run_name = scope.setting(path, field)
            is_unnamed = run_name.value is None
            yield derived_setting(path, scope.recipe.name, "the recipe's name", field) if is_unnamed else run_name
    for variable, value in scope.recipe.environment.items():
        yield Setting(path=f"env_vars.{variable}", value=value, origin="recipe", field=f"environment.{variable}")


_EVALUATIONS_PER_RUN = 10


def batch_settings(scope: Scope) -> Iterator[Setting]:
    """Yield batch sizes."""
    batch = scope.recipe.batch
    yield scope.setting("train.micro_batch_size", "batch.micro_batch_size")
    yield _global_batch(scope)
    yield derived_setting("train.rampup_batch_size", None, "every step takes as many packs")
    yield scope.setting("validation.eval_micro_batch_size", "batch.eval_micro_batch_size")
    if batch.eval_global_batch_size is not None:
        yield scope.setting("validation.eval_global_batch_size", "batch.eval_global_batch_size")
        return
    value, because = _evaluation_batch(scope)
    yield derived_setting("validation.eval_global_batch_size", value, because, "batch.eval_global_batch_size")


def _evaluation_batch(scope: Scope) -> tuple[int, str]:
    """Return how many packs a step of evaluation takes if the recipe does not say, and why.

    They are as many as in training, unless the validation packs are fewer, or ranks of evaluation cannot share them.
    """
    batch, value = scope.recipe.batch, int(_global_batch(scope).value)
    num_packs, ranks = scope.num_packs("validation"), scope.data_parallel_size(evaluates=True)
    if ranks is None:
        return value, "as in training"
    share, training_ranks = batch.eval_micro_batch_size * ranks, scope.data_parallel_size()
    if num_packs and num_packs < value:
        because = f"{num_packs} validation packs over {ranks} data-parallel ranks"
        return max(geometry.floor_to_multiple(num_packs, share), share), because
    is_shared_in_training = training_ranks is not None and value % (batch.micro_batch_size * training_ranks) == 0
    if is_shared_in_training and value % share:
        because = f"the {value} of training over {ranks} data-parallel ranks of evaluation"
        return max(geometry.floor_to_multiple(value, share), share), because
    return value, "as in training"


def schedule_settings(scope: Scope) -> Iterator[Setting]:
    """Yield the length of the run, the learning rate over it, and evaluation."""
    schedule = scope.recipe.schedule
    iters = _train_iters(scope)
    yield iters
    if iters.path == "train.num_epochs":
        because = "Megatron-Bridge computes it from num_epochs and the number of packs"
        yield derived_setting("train.train_iters", None, because, "schedule.train_iters")
    else:
        yield derived_setting("train.num_epochs", None, "train_iters is set", "schedule.num_epochs")
    num_iters = iters.value if iters.path == "train.train_iters" else None
    if num_iters is not None:
        warmup = math.ceil(schedule.warmup_fraction * num_iters) if num_iters > 1 else 0
        because = f"{schedule.warmup_fraction:g} of {num_iters} steps"
        yield derived_setting("scheduler.lr_warmup_iters", warmup, because, "schedule.warmup_fraction")
        yield derived_setting("scheduler.lr_warmup_fraction", None, "lr_warmup_iters is set")
    else:
        yield scope.setting("scheduler.lr_warmup_fraction", "schedule.warmup_fraction")
        yield derived_setting("scheduler.lr_warmup_iters", 0, "lr_warmup_fraction is set")
    yield derived_setting("scheduler.lr_decay_iters", None, "the whole run")
    yield scope.setting("scheduler.lr_decay_style", "schedule.lr_decay_style")
    yield from _evaluation(scope, num_iters)


def _global_batch(scope: Scope) -> Setting:
    path, slots = "train.global_batch_size", scope.recipe.batch.tokens_per_step
    if slots is None:
        return scope.setting(path, "batch.global_batch_size")
    size = scope.recipe.packing.packed_sequence_size
    unit = (scope.data_parallel_size() or 1) * scope.recipe.batch.micro_batch_size
    value = max(round(slots / size / unit), 1) * unit
    because = f"{slots} token slots of {size} in multiples of {unit}, what the data-parallel ranks take at a time"
    return derived_setting(path, value, because, "batch.tokens_per_step")


def _train_iters(scope: Scope) -> Setting:
    schedule, field = scope.recipe.schedule, "schedule.num_epochs"
    if schedule.train_iters is not None:
        return scope.setting("train.train_iters", "schedule.train_iters")
    epochs = schedule.num_epochs or 1.0
    num_packs = scope.num_packs("training")
    if num_packs == 0:
        origin: Literal["recipe", "default"] = "default" if schedule.num_epochs is None else "recipe"
        return Setting(path="train.num_epochs", value=math.ceil(epochs), origin=origin, field=field)
    batch = _global_batch(scope).value
    value = max(math.ceil(epochs * num_packs / batch), 1)
    because = f"ceil({epochs:g} epochs x {num_packs} packs / {batch} packs per step)"
    return derived_setting("train.train_iters", value, because, field)


def _evaluation(scope: Scope, num_iters: int | None) -> Iterator[Setting]:
    schedule = scope.recipe.schedule
    if schedule.eval_interval is not None:
        yield scope.setting("validation.eval_interval", "schedule.eval_interval")
    elif num_iters is not None:
        value = max(num_iters // _EVALUATIONS_PER_RUN, 1)
        yield derived_setting(
            "validation.eval_interval", value, f"a tenth of {num_iters} steps", "schedule.eval_interval"
        )
    if schedule.eval_iters is not None:
        yield scope.setting("validation.eval_iters", "schedule.eval_iters")
    elif not scope.has_validation:
        yield derived_setting("validation.eval_iters", 0, "there is no validation data", "schedule.eval_iters")
    elif num_packs := scope.num_packs("validation"):
        batch = next(item.value for item in batch_settings(scope) if item.path == "validation.eval_global_batch_size")
        because = f"{num_packs} validation packs / {batch} per step"
        least = 0 if scope.recipe.batch.eval_global_batch_size is None else 1  # BP604 reports a batch above the packs
        yield derived_setting("validation.eval_iters", max(num_packs // batch, least), because, "schedule.eval_iters")
