"""Settings of the optimiser, the kernels, checkpoints and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridgepack.bridge.wiring.settings import Scope, Setting, derived
from bridgepack.config.recipe.training import AdapterMethod

#: Learning rates of Megatron-Bridge's own SFT and PEFT recipes.
#: Source: megatron/bridge/recipes/common.py of 0.6.2, _sft_common and _peft_common.
DEFAULT_LR: Mapping[str, float] = {"full": 5e-6, "lora": 1e-4, "dora": 1e-4}


def optimizer_settings(scope: Scope) -> Iterator[Setting]:
    """Yield the optimiser and the adapters."""
    if scope.recipe.optimizer.lr is None:
        kind = scope.recipe.method.kind
        because = f"Megatron-Bridge's own for method {kind}"
        yield derived("optimizer.lr", DEFAULT_LR[kind], because, "optimizer.lr")
    else:
        yield scope.of("optimizer.lr", "optimizer.lr")
    for name in ("min_lr", "weight_decay", "adam_beta1", "adam_beta2", "clip_grad"):
        yield scope.of(f"optimizer.{name}", f"optimizer.{name}")
    if isinstance(scope.recipe.method, AdapterMethod):
        if scope.recipe.method.target_modules is not None:
            yield scope.of("peft.target_modules", "method.target_modules", list(scope.recipe.method.target_modules))
        for name in ("dim", "alpha", "dropout"):
            yield scope.of(f"peft.{name}", f"method.{name}")


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
    checkpoint, logging, name = scope.recipe.checkpoint, scope.recipe.logging, scope.recipe.name
    if checkpoint.pretrained is not None:
        yield scope.of("checkpoint.pretrained_checkpoint", "checkpoint.pretrained")
    if checkpoint.folder is not None:
        yield scope.of("checkpoint.save", "checkpoint.folder")
        yield scope.of("checkpoint.load", "checkpoint.folder")
    if checkpoint.save_interval is not None:
        yield scope.of("checkpoint.save_interval", "checkpoint.save_interval")
    yield scope.of("logger.log_interval", "logging.log_interval")
    for field in ("tensorboard_dir", "wandb_project", "mlflow_experiment"):
        if getattr(logging, field) is not None:
            yield scope.of(f"logger.{field}", f"logging.{field}")
    if logging.wandb_project is not None:
        yield _named(scope, "logger.wandb_exp_name", "logging.wandb_exp_name", logging.wandb_exp_name, name)
    if logging.mlflow_experiment is not None:
        yield _named(scope, "logger.mlflow_run_name", "logging.mlflow_run_name", logging.mlflow_run_name, name)
    for variable, value in scope.recipe.environment.items():
        yield Setting(path=f"env_vars.{variable}", value=value, origin="recipe", field=f"environment.{variable}")


def _named(scope: Scope, path: str, field: str, value: str | None, name: str) -> Setting:
    if value is None:
        return derived(path, name, "the recipe's name", field)
    return scope.of(path, field)
