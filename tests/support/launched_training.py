"""Lets the tasks of a launch run on a machine without a GPU, in the processes that a cluster starts.

`task_environment` puts a sitecustomize in front of PYTHONPATH. A training process then does what
`tests.support.train_on_cpu` does, and writes the random weights that it starts from; a launch, a build or a check does
not see torch, which it does not need and which takes seconds to import.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from bridgepack.canaries.cpu import ENVIRONMENT
from tests.support.host_forks import run_forked
from tests.support.leftover_processes import VARIABLE
from tests.support.small_builds import WITHOUT_TORCH

PROJECT = Path(__file__).parents[2]
_SITE = (
    WITHOUT_TORCH
    + """
if "-m" in sys.orig_argv[1:3] and "bridgepack.running.train" in sys.orig_argv[2:4]:  # not torchrun, which starts it
    from tests.support.launched_training import begin_training
    begin_training()
elif {"launch", "bridgepack.running.build", "bridgepack.running.check"} & set(sys.orig_argv):
    hide_torch()
"""
)


def task_environment(folder: Path) -> dict[str, str]:
    """Return variables for the tasks of a launch; `folder` gets the sitecustomize and caches."""
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE)
    paths = (str(site), str(PROJECT), *(str(Path(path).resolve()) for path in filter(None, sys.path)))
    return {
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HOME": str(folder / "hf-home"),
        "MEGATRON_CONFIG_LOCK_DIR": str(folder),
    }


def begin_training() -> None:
    """Prepare a process that trains alone; one rank of many does it in a fork that has the host, and ends with it."""
    num_ranks = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
    if num_ranks == 1 or VARIABLE not in os.environ:
        train_on_cpu()
        return
    # sitecustomize runs before sys.argv is made
    arguments = sys.orig_argv[sys.orig_argv.index("bridgepack.running.train") + 1 :]
    os._exit(run_forked("tests.support.launched_training", arguments, os.environ))


def train_on_cpu() -> None:
    """Make finetune() train on CPU, from random weights that it writes first, until the process ends."""
    from tests.support.train_on_cpu import import_host, run_on_cpu

    import_host()
    run_on_cpu()
    import megatron.bridge.training.finetune as host

    from bridgepack.bridge.live import copy_of

    finetune = host.finetune

    def finetune_from_random_weights(config: Any, forward_step: Any, callbacks: Any = None) -> None:
        _write_random_weights(copy_of(config))
        finetune(config, forward_step, callbacks=callbacks)

    host.finetune = finetune_from_random_weights


def _write_random_weights(config: Any) -> None:
    """Write the checkpoint that a run starts from, where it is missing: one step of pretrain() at a rate of nothing.

    The processes meet at the next port: torch would take what it finds at this one for the run's own.
    """
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.utils.common_utils import get_master_port_safe

    from bridgepack.bridge.forward_steps import forward_step_for

    folder = config.checkpoint.pretrained_checkpoint
    if Path(folder).exists():
        return
    config.checkpoint.save, config.checkpoint.load, config.checkpoint.pretrained_checkpoint = folder, None, None
    config.checkpoint.save_interval = config.train.train_iters = 1
    config.optimizer.lr = config.optimizer.min_lr = 1e-9
    port = get_master_port_safe()
    os.environ["MASTER_PORT"] = str(port + 1)
    pretrain(config, forward_step_for(config))
    os.environ["MASTER_PORT"] = str(port)


if __name__ == "__main__":
    train_on_cpu()
    runpy.run_module("bridgepack.running.train", run_name="__main__", alter_sys=True)
