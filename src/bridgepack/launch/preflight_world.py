"""What an executor of nemo-run says about a run: how many processes, on which files, with arguments split by whom."""

from __future__ import annotations

from typing import Any

from nemo_run import DockerExecutor, Executor, LocalExecutor, LocalTunnel, SlurmExecutor

from bridgepack.errors import ConfigError

#: Words of a command that start a process for each GPU themselves.
_STARTERS = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "mpirun", "srun", "ft_launcher")


def world_size_of(executor: Executor, *, command: str = "python") -> int:
    """Return the number of processes that an executor starts, over all nodes.

    torchrun and ft start nodes x processes per node. Without them a task is started once on this machine and in a
    container, and by srun `ntasks_per_node` times on each node.

    Source: nemo_run/run/torchx_backend/packaging.py, `package`; nemo_run/core/execution/slurm.py.

    Raises:
        ConfigError: it does not say.
    """
    starter = next((word for word in _STARTERS if word in command), None)
    if starter is not None:
        raise ConfigError(_unknown(executor, f"the command starts processes itself, by {starter}"))
    if _has_launcher(executor):
        return _whole(executor, executor.nnodes()) * _whole(executor, executor.nproc_per_node())
    if isinstance(executor, (LocalExecutor, DockerExecutor)):
        return 1
    if isinstance(executor, SlurmExecutor):
        return _whole(executor, executor.nodes) * _whole(executor, executor.ntasks_per_node)
    raise ConfigError(_unknown(executor, 'it has no launcher="torchrun", so what starts the processes is not known'))


def sees_this_machine(executor: Executor) -> bool:
    """Say whether the run sees the files of this machine under the same paths."""
    if isinstance(executor, LocalExecutor):
        return True
    return (
        isinstance(executor, SlurmExecutor)
        and isinstance(executor.tunnel, LocalTunnel)
        and executor.container_image is None
    )


def reads_arguments_by_shell(executor: Executor) -> bool:
    """Say whether a shell splits the arguments of a script, so that quotes in them go.

    Source: nemo_run/run/torchx_backend: torchrun's and ft's components quote every argument; on this machine a list is
    handed over; everybody else joins them with spaces into a script.
    """
    return not _has_launcher(executor) and not isinstance(executor, LocalExecutor)


def _has_launcher(executor: Executor) -> bool:
    """Say whether torchrun, or ft which is like it, starts the processes; the executor stays as it is."""
    launcher: Any = executor.launcher
    name = launcher if isinstance(launcher, str) else type(launcher).__name__
    return name.lower() in {"torchrun", "ft", "faulttolerance"}


def _whole(executor: Executor, number: Any) -> int:
    if type(number) is not int or number < 1:
        raise ConfigError(_unknown(executor, f"it has {number!r} for one of its sizes"))
    return number


def _unknown(executor: Executor, why: str) -> str:
    return (
        f"the number of GPUs cannot be told from the {type(executor).__name__}: {why}. "
        "Give it: PreflightPlugin(world_size=N)."
    )
