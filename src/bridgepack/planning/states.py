"""Bytes of a weight, its gradient and its states of the optimiser, from the settings of a recipe's run."""

from collections.abc import Mapping
from typing import Any

from bridgepack.bridge.plain import value_at
from bridgepack.host.facts import ReleaseFacts
from bridgepack.planning.layout import States

_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "uint8": 1.0}
#: Bytes of bf16 weights and of fp32 numbers.
_WEIGHT, _FP32 = 2.0, 4.0
#: States of an optimiser of which the ranks share none: one momentum, two moments.
_MUON, _MOMENTS = 1, 2


def states_of(values: Mapping[str, Any], facts: ReleaseFacts) -> States:
    """Return the bytes of a weight for plain values of a ConfigContainer; `facts` are those of its release.

    Sources: megatron/core/optimizer/distrib_optimizer.py and optimizer_config.py of 0.19.2; precision-aware optimisers
    keep gradients, weights and moments in the formats that the settings name.
    """
    optimizer = values.get("optimizer") or {}
    gradient = _FP32 if _reduces_in_fp32(values, facts) else _WEIGHT
    if optimizer.get("use_precision_aware_optimizer"):
        names = ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
        split_bytes = sum(_bytes(optimizer.get(name)) for name in names)
    else:
        is_muon = "muon" in str(optimizer.get("optimizer"))
        split_bytes = _FP32 * (1 + (_MUON if is_muon else _MOMENTS))
    is_shared = any(value_at(values, f"{section}.use_distributed_optimizer") for section in ("optimizer", "ddp"))
    rank_bytes = _WEIGHT + gradient
    return States(own=rank_bytes, shared=split_bytes) if is_shared else States(own=rank_bytes + split_bytes, shared=0.0)


def _reduces_in_fp32(values: Mapping[str, Any], facts: ReleaseFacts) -> bool:
    """Return whether gradients are kept in fp32; mixed precision writes over the setting of `ddp`."""
    precision = values.get("mixed_precision")
    settings = facts.precision_by_name(precision) if isinstance(precision, str) else precision
    decides = settings if isinstance(settings, Mapping) else values.get("ddp") or {}
    return bool(decides.get("grad_reduce_in_fp32", True))


def _bytes(dtype: Any) -> float:
    name = dtype.get("_target_") if isinstance(dtype, Mapping) else dtype
    return _BYTES.get(str(name).rpartition(".")[2], _FP32)
