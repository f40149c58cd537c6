"""What megatron-bridge's training loop does on a machine without a GPU, and how attention is called in it."""

from typing import Any

from bridgepack.canaries.cpu.reference_attention import ReferenceAttention, local_spec_with


class ThdAttention(ReferenceAttention):  # type: ignore[misc]
    """The reference attention, which counts its forward passes over packed sequences and over anything else."""

    num_thd_calls = 0
    num_dense_calls = 0

    def forward(self, *arguments: Any, packed_seq_params: Any = None, **options: Any) -> Any:
        if packed_seq_params is None:
            self.num_dense_calls += 1
        else:
            self.num_thd_calls += 1
        return super().forward(*arguments, packed_seq_params=packed_seq_params, **options)


def thd_layer_spec(config: Any) -> Any:
    """Return megatron-core's local layers of a model's kind with `ThdAttention` in each of them."""
    return local_spec_with(ThdAttention, config)


def train(entry_point: Any, config: Any, forward_step: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the host's losses with the numbers of skipped steps and of attention calls, and the model's modules."""
    from megatron.bridge.training.callbacks import CallbackManager

    losses: list[float] = []
    eval_losses: list[float] = []
    skipped: list[bool] = []
    norms: list[float] = []
    modules: dict[str, Any] = {}

    def see_step(context: Any) -> None:
        losses.append(float(context.loss_dict["lm loss"]))
        skipped.append(bool(context.skipped_iter))
        norms.append(float(context.grad_norm))
        modules.update(context.model[0].named_modules())

    callbacks = CallbackManager()
    callbacks.register("on_train_step_end", see_step)
    callbacks.register("on_eval_end", lambda context: eval_losses.append(float(context.total_loss_dict["lm loss"])))
    entry_point(config, forward_step, callbacks=callbacks)
    layers = [module for module in modules.values() if isinstance(module, ThdAttention)]
    calls = {name: sum(getattr(layer, name) for layer in layers) for name in ("num_thd_calls", "num_dense_calls")}
    seen = {"losses": losses, "eval_losses": eval_losses, "grad_norms": norms, "num_skipped_steps": sum(skipped)}
    return {**seen, **calls}, modules
