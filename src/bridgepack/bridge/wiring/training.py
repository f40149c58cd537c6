"""Settings of the optimiser, the kernels, checkpoints and logs."""

from collections.abc import Iterator, Mapping

from bridgepack.bridge.wiring.settings import Scope, Setting, derived
from bridgepack.config.recipe.training import AdapterMethod

#: Learning rates of Megatron-Bridge's own SFT and PEFT recipes.
#: Source: megatron/bridge/recipes/common.py of 0.6.2, _sft_common and _peft_common.
DEFAULT_LR: Mapping[str, float] = {"full": 5e-6, "lora": 1e-4, "dora": 1e-4}


_OPTIMIZER = {
    f"optimizer.{name}": f"optimizer.{name}"
    for name in ("min_lr", "weight_decay", "adam_beta1", "adam_beta2", "clip_grad")
}
_ADAPTER = {f"peft.{name}": f"method.{name}" for name in ("target_modules", "dim", "alpha", "dropout")}
#: Path of the host -> field of the recipe with the same value, where it says one.
BOOKKEEPING = {
    "checkpoint.pretrained_checkpoint": "checkpoint.pretrained",
    "checkpoint.save": "checkpoint.folder",
    "checkpoint.load": "checkpoint.folder",
    "checkpoint.save_interval": "checkpoint.save_interval",
    "logger.log_interval": "logging.log_interval",
    "logger.tensorboard_dir": "logging.tensorboard_dir",
    "logger.wandb_project": "logging.wandb_project",
    "logger.mlflow_experiment": "logging.mlflow_experiment",
}
#: Where a tracker is set, what names the run in it -> its field; by default the recipe's name.
RUN_NAMES = {
    "wandb_project": ("logger.wandb_exp_name", "wandb_exp_name"),
    "mlflow_experiment": ("logger.mlflow_run_name", "mlflow_run_name"),
}


def optimizer_settings(scope: Scope) -> Iterator[Setting]:
    """Yield the optimiser and the adapters."""
    if scope.recipe.optimizer.lr is None:
        kind = scope.recipe.method.kind
        because = f"Megatron-Bridge's own for method {kind}"
        yield derived("optimizer.lr", DEFAULT_LR[kind], because, "optimizer.lr")
    else:
        yield scope.of("optimizer.lr", "optimizer.lr")
    yield from scope.said(_OPTIMIZER)
    if isinstance(scope.recipe.method, AdapterMethod):
        yield from scope.said(_ADAPTER, if_set=True)


def kernel_settings(scope: Scope) -> Iterator[Setting]:
    """Yield precision, CUDA graphs, attention and recomputation."""
    graphs, model = scope.recipe.cuda_graphs, scope.recipe.model
    yield scope.of("mixed_precision", "precision.recipe")
    yield scope.of("model.cuda_graph_impl", "cuda_graphs.implementation")
    if graphs.implementation == "transformer_engine":
        yield scope.of("model.cuda_graph_modules", "cuda_graphs.modules", list(graphs.modules))
    if graphs.implementation == "full_iteration":
        because = "the host cannot look at a loss inside a graph"
        yield derived("rerun_state_machine.check_for_nan_in_loss", False, because)
        yield derived("ddp.check_for_nan_in_grad", False, because)
    if graphs.implementation != "none":
        yield derived("model.use_te_rng_tracker", True, "graphs replay random numbers through it")
        yield derived("rng.te_rng_tracker", True, "as model.use_te_rng_tracker")
    if model is not None and model.attention_backend is not None:
        yield scope.of("model.attention_backend", "model.attention_backend")
    if model is not None and model.recompute is not None:
        is_full = model.recompute == "full"
        value = None if model.recompute == "none" else model.recompute
        yield scope.of("model.recompute_granularity", "model.recompute", value)
        yield derived("model.recompute_method", "uniform" if is_full else None, "model.recompute")
        yield derived("model.recompute_num_layers", 1 if is_full else None, "model.recompute")


def bookkeeping_settings(scope: Scope) -> Iterator[Setting]:
    """Yield checkpoints, logs and environment variables."""
    logging = scope.recipe.logging
    yield from scope.said(BOOKKEEPING, if_set=True)
    for tracker, (path, name) in RUN_NAMES.items():
        if getattr(logging, tracker) is not None:
            given = scope.of(path, f"logging.{name}")
            is_given = given.value is not None
            yield given if is_given else derived(path, scope.recipe.name, "the recipe's name", f"logging.{name}")
    for variable, value in scope.recipe.environment.items():
        yield Setting(path=f"env_vars.{variable}", value=value, origin="recipe", field=f"environment.{variable}")
