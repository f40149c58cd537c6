"""Counts how attention is called where megatron-bridge trains on a machine without a GPU."""

from typing import Any

from bridgepack.canary.cpu.reference_attention import ReferenceAttention, local_spec_with


class ThdAttention(ReferenceAttention):  # type: ignore[misc]
    """The reference attention, which counts how it was called.

    Attributes:
        num_thd_calls: forward passes over packed sequences.
        num_dense_calls: forward passes over anything else.
    """

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
