"""The training task on a machine without a GPU: `bridgepack.running.train` with what CPU and gloo need.

Usage: torchrun --nproc-per-node 2 tests/support/train_on_cpu.py --recipe FILE --run-folder FOLDER
"""

import gc
import os
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
#: Of a script its own folder is on the path, whose modules would hide others of the same names, and not the project's.
sys.path[:] = [str(PROJECT), *(place for place in sys.path if Path(place).resolve() != Path(__file__).parent)]

from bridgepack.canaries.cpu import ENVIRONMENT  # noqa: E402
from bridgepack.running import on_cpu  # noqa: E402
from tests.support import sabotage  # noqa: E402 (found on that path)


def import_host() -> None:
    """Import everything of megatron-bridge that a run needs, without changing it."""
    from bridgepack.bridge import imports

    for name in ("finetune", "gpt_step", "pretrain", "utils.train_utils"):
        imports.import_host(f"training.{name}")
    imports.import_host("recipes")
    gc.freeze()


def fork_checkpoint_results() -> None:
    """Have the process that collects what checkpoint writers did forked: one that is spawned imports torch again."""
    from megatron.core.dist_checkpointing.strategies import filesystem_async as host

    get_queue = host.get_write_results_queue
    host.get_write_results_queue = lambda mp_mode="fork": get_queue(mp_mode)


def run_on_cpu() -> None:
    """Make training run on CPU, with attention that takes packed rows, until the process ends."""
    on_cpu.run_on_cpu()
    fork_checkpoint_results()


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
