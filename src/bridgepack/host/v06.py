"""Megatron-Bridge 0.6, whose names are the canonical ones. Source: the wheels of 0.6.0 to 0.6.2."""

from pathlib import Path

from bridgepack.host.release import HostRelease

V06 = HostRelease(
    name="0.6",
    versions=">=0.6,<0.7",
    bridge="0.6.2",
    core="0.19.2",
    engine="2.17.1",
    bases=Path(__file__).with_name("bases_v06.json"),
    # core/models/gpt/experimental_attention_variant_module_specs.py:141-148
    attention_variants=frozenset({"gated_delta_net", "dsa"}),
    core_works=">=0.18",
    core_released=">=0.19.dev0,<0.20.dev0",
    python=">=3.12,<3.13",
    transformers=">=5.8,<=5.12.1",
    # Source: importing megatron.bridge 0.6.2, its recipes, data and training loop without each of them.
    needs=(
        *("megatron-bridge", "megatron-core", "torch", "triton", "transformers", "accelerate", "datasets", "diffusers"),
        *("einops", "megatron-energon", "multi-storage-client", "nvidia-modelopt", "nvidia-resiliency-ext"),
        *("omegaconf", "opentelemetry-api", "peft", "pillow", "rich", "six", "tensorboard"),
    ),
    withdrawn=("0.6.1",),
)
