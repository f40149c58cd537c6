"""The training task on a machine without a GPU: `bridgepack.running.train` with what CPU and gloo need.

Usage: torchrun --nproc-per-node 2 tests/support/train_on_cpu.py --recipe FILE --run-folder FOLDER
"""

from __future__ import annotations

import importlib
import os
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PROJECT = Path(__file__).parents[2]
#: Of a script its own folder is on the path, whose modules would hide others of the same names, and not the project's.
sys.path[:] = [str(PROJECT), *(place for place in sys.path if Path(place).resolve() != Path(__file__).parent)]

from tests.support import sabotage  # noqa: E402 (found on that path)

#: Nothing is compiled (torch 2.13 compiled by dynamo trains to other losses), nothing is fetched.
ENVIRONMENT = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def import_host() -> None:
    """Import everything of megatron-bridge that a run needs, without changing it."""
    from bridgepack.bridge.import_on_cpu import install_import_hook

    install_import_hook()
    for name in ("finetune", "gpt_step", "pretrain", "utils.train_utils"):
        importlib.import_module(f"megatron.bridge.training.{name}")


def run_on_cpu() -> None:
    """Make training run on CPU, with attention that takes packed rows, until the process ends."""
    import megatron.core.utils as core_utils
    from megatron.bridge.models.gpt_provider import GPTModelProvider

    from tests.support.cpu_training import run_cuda_calls_on_cpu
    from tests.support.tiny_recipes import run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    provide = GPTModelProvider.provide

    def provide_on_cpu(self: Any, *arguments: Any, **options: Any) -> Any:
        # The class of attention layers is no plain value, so no recipe can name it.
        self.transformer_layer_spec = _layer_spec
        return provide(self, *arguments, **options)

    GPTModelProvider.provide = provide_on_cpu
    # megatron/core/utils.py:2441 asks TransformerEngine for a context rank's part of a pack.
    core_utils.tex = SimpleNamespace(thd_get_partitioned_indices=_tokens_of_context_rank)


def _tokens_of_context_rank(cu_seqlens: Any, num_tokens: int, num_ranks: int, rank: int) -> Any:
    """Return the tokens of a rank: of each sequence, cut into twice as many parts as ranks, one from either end."""
    import torch

    tokens = []
    for start, end in pairwise(cu_seqlens.tolist()):
        parts = torch.arange(start, end).chunk(2 * num_ranks)
        tokens += [parts[rank], parts[-1 - rank]] if end > start else []
    assert sum(map(len, tokens)) * num_ranks == num_tokens
    return torch.cat(tokens)


def _layer_spec(config: Any) -> Any:
    from tests.support.tiny_recipes import thd_layer_spec

    spec = thd_layer_spec(config)
    if config.context_parallel_size > 1:
        spec.submodules.self_attention.submodules.core_attention = _own_part_attention()
    return spec


def _own_part_attention() -> type:
    """Return attention over a context rank's own part of each sequence.

    megatron-core's local attention refuses context parallelism, and what ranks exchange is TransformerEngine's. So the
    numbers are wrong; which boundaries each rank gets, and which tokens it trains, are not.
    """
    import copy

    from tests.support.cpu_training import ThdAttention

    class OwnPartAttention(ThdAttention):
        def __init__(self, config: Any, *arguments: Any, **options: Any) -> None:
            self.num_parts = config.context_parallel_size
            alone = copy.copy(config)
            alone.context_parallel_size = 1
            super().__init__(alone, *arguments, **options)

        def forward(self, *arguments: Any, packed_seq_params: Any = None, **options: Any) -> Any:
            if packed_seq_params is None:
                return super().forward(*arguments, **options)
            own = copy.copy(packed_seq_params)
            own.cu_seqlens_q = own.cu_seqlens_q // self.num_parts
            if own.cu_seqlens_q_padded is not None:
                own.cu_seqlens_q_padded = own.cu_seqlens_q_padded // self.num_parts
            return super().forward(*arguments, packed_seq_params=own, **options)

    return OwnPartAttention


def main(arguments: list[str]) -> int:
    """Train as `scripts/train.py` does, and return its exit code."""
    os.environ.update(ENVIRONMENT)
    import_host()
    run_on_cpu()
    damage, ranks = os.environ.get("BRIDGEPACK_TEST_DAMAGE"), os.environ.get("BRIDGEPACK_TEST_RANKS", "").split()
    if damage and os.environ.get("RANK", "0") in ranks:
        sabotage.apply(damage)
    from bridgepack.running.train import main as train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
