"""The training task on a machine without a GPU, to try out data with a tiny model: attention in plain torch, on gloo.

Usage: python -m bridgepack.running.on_cpu --recipe FILE --run-folder FOLDER --artifact FOLDER

The recipe names gloo and the local layers itself, see the tutorial on losses.
"""

import os
import sys
from typing import Any

from bridgepack.canaries.cpu import ENVIRONMENT


def run_on_cpu() -> None:
    """Make training run on CPU, with attention that takes packed rows, until the process ends.

    Source: megatron/bridge/models/gpt_provider.py and models/gpt/gpt_builder.py of 0.6.2 and 0.7.
    """
    from bridgepack.bridge.imports import import_host
    from bridgepack.canaries.cpu.reference_attention import reference_layer_spec
    from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    GPTModelBuilder = import_host("models.gpt.gpt_builder").GPTModelBuilder  # noqa: N806
    GPTModelProvider = import_host("models.gpt_provider").GPTModelProvider  # noqa: N806
    provide, build_model = GPTModelProvider.provide, GPTModelBuilder.build_model

    # The class of attention layers is no plain value, so no recipe can name it.
    def provide_on_cpu(self: Any, *arguments: Any, **options: Any) -> Any:
        self.transformer_layer_spec = reference_layer_spec
        return provide(self, *arguments, **options)

    def build_on_cpu(self: Any, *arguments: Any, **options: Any) -> Any:
        self._model_config.transformer_layer_spec = reference_layer_spec
        return build_model(self, *arguments, **options)

    GPTModelProvider.provide, GPTModelBuilder.build_model = provide_on_cpu, build_on_cpu


def main(arguments: list[str] | None = None) -> int:
    """Train as `scripts/train.py` does, and return the exit code."""
    os.environ.update(ENVIRONMENT)
    run_on_cpu()
    from bridgepack.running.train import main as train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(main())
