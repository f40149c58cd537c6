"""Notes what every rank of a step gets and computes: the model's inputs, attention's boundaries, losses."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bridgepack.canary.records import FloatArray, IntArray, SeenBatch


class Watch:
    """What a rank saw of its micro batches."""

    def __init__(self, model: Any, rows: list[int]) -> None:
        """Hook into a pipeline stage; the loader fills `rows` in the order of micro batches."""
        self._rows = rows
        self._batches: list[dict[str, Any]] = []
        self.loss = 0.0
        self.num_trained = 0
        self.router_margin: float | None = None
        model.register_forward_pre_hook(self._see_inputs, with_kwargs=True)
        is_first = True
        for name, module in model.named_modules():
            if name.endswith("core_attention") and is_first:
                module.register_forward_pre_hook(self._see_boundaries, with_kwargs=True)
                is_first = False
            if name.endswith(".router"):
                self._watch_router(module)

    def wrap(self, forward_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return the host's forward step, of which the mask and the losses are noted."""

        def watched(*arguments: Any, **options: Any) -> Any:
            seen: dict[str, Any] = {}
            self._batches.append(seen)
            output, loss_function = forward_step(*arguments, **options)
            seen["loss_mask"] = _whole_numbers(loss_function.args[0])

            def noted(output_tensor: Any) -> Any:
                seen["losses"] = _reals(output_tensor)
                loss, num_tokens, report = loss_function(output_tensor)
                self.loss += float(loss.detach())
                self.num_trained += int(num_tokens)
                return loss, num_tokens, report

            return output, noted

        return watched

    def batches(self) -> tuple[SeenBatch, ...]:
        """Return what was seen."""
        return tuple(SeenBatch(row=row, **seen) for row, seen in zip(self._rows, self._batches, strict=False))

    def _see_inputs(self, _model: Any, _arguments: Any, options: dict[str, Any]) -> None:
        seen = self._batches[-1]
        seen["was_called"] = True
        seen["tokens"] = _whole_numbers(options.get("input_ids"))
        seen["position_ids"] = _whole_numbers(options.get("position_ids"))
        seen["labels"] = _whole_numbers(options.get("labels"))
        self._see_boundaries(_model, _arguments, options)

    def _see_boundaries(self, _module: Any, _arguments: Any, options: dict[str, Any]) -> None:
        """Note the boundaries that a stage is called with, then those that get as far as its attention."""
        packed, seen = options.get("packed_seq_params"), self._batches[-1]
        seen["offsets"] = seen["max_seqlen"] = None
        if packed is not None:
            padded = packed.cu_seqlens_q_padded
            seen["offsets"] = _whole_numbers(packed.cu_seqlens_q if padded is None else padded)
            seen["max_seqlen"] = int(packed.max_seqlen_q)

    def _watch_router(self, router: Any) -> None:
        """Note how far an expert that is chosen is from one that is not, in logits; megatron-core's TopKRouter."""
        gating, num_chosen = router.gating, router.topk

        def noted(*arguments: Any, **options: Any) -> Any:
            logits = gating(*arguments, **options)
            if num_chosen < logits.shape[-1]:
                best = logits.detach().double().topk(num_chosen + 1, dim=-1).values
                margin = float((best[..., -2] - best[..., -1]).min())
                self.router_margin = margin if self.router_margin is None else min(margin, self.router_margin)
            return logits

        router.gating = noted


def _whole_numbers(tensor: Any) -> IntArray | None:
    if tensor is None:
        return None
    numbers: IntArray = tensor.detach().cpu().numpy().reshape(-1).astype(np.int64)
    return numbers


def _reals(tensor: Any) -> FloatArray:
    reals: FloatArray = tensor.detach().double().cpu().numpy().reshape(-1).copy()
    return reals
