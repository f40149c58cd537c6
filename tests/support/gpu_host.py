"""The pretended GPU host under which tests ask Megatron-Bridge's own checks."""

from bridgepack.bridge.validating.gpu_host import GPUS, TRANSFORMER_ENGINE_VERSION, pretend_gpu_host

__all__ = ["GPUS", "TRANSFORMER_ENGINE_VERSION", "pretend_gpu_host"]
