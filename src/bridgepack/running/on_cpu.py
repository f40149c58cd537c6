"""The training task on a machine without a GPU, to try out data with a tiny model: attention in plain torch, on gloo.

Usage: python -m bridgepack.running.on_cpu --recipe FILE --run-folder FOLDER --artifact FOLDER

The recipe names gloo and the local layers itself, see the tutorial on losses.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bridgepack.canaries.cpu import ENVIRONMENT


def run_on_cpu() -> None:
    """Make training run on CPU, with attention that takes packed rows, until the process ends.

    Source: megatron/bridge/models/gpt_provider.py and models/gpt/gpt_builder.py of 0.6.2 and 0.7.
    """
    from bridgepack.bridge.imports import import_host
    from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    GPTModelBuilder = import_host("models.gpt.gpt_builder").GPTModelBuilder  # noqa: N806
    GPTModelProvider = import_host("models.gpt_provider").GPTModelProvider  # noqa: N806
    provide, build_model = GPTModelProvider.provide, GPTModelBuilder.build_model

    # The class of attention layers is no plain value, so no recipe can name it. Checkpoints hold the config, and the
    # host loads none that names a function of others, so the model's own layers are put back.
    def provide_on_cpu(self: Any, *arguments: Any, **options: Any) -> Any:
        with _reference_layers(self):
            return provide(self, *arguments, **options)

    def build_on_cpu(self: Any, *arguments: Any, **options: Any) -> Any:
        with _reference_layers(self._model_config):
            return build_model(self, *arguments, **options)

    GPTModelProvider.provide, GPTModelBuilder.build_model = provide_on_cpu, build_on_cpu


@contextmanager
def _reference_layers(config: Any) -> Iterator[None]:
    """Have a model's config name layers with the reference attention, until the model is built."""
    from bridgepack.canaries.cpu.reference_attention import reference_layer_spec

    layers, config.transformer_layer_spec = config.transformer_layer_spec, reference_layer_spec
    try:
        yield
    finally:
        config.transformer_layer_spec = layers


def main(arguments: list[str] | None = None) -> int:
    """Train as `scripts/train.py` does, and return the exit code."""
    os.environ.update(ENVIRONMENT)
    run_on_cpu()
    from bridgepack.running.train import main as train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(main())
