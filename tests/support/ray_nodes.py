"""A Ray cluster of two nodes on this machine: two raylets with a CPU each, and processes to end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.small_builds import environment

_STORE_BYTES = 80 << 20
#: Ray takes half a minute to notice that a node is gone; here it takes a few seconds.
_SETTINGS = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 5}


class RayNodes:
    """A head and another node."""

    def __init__(self, cluster: Any, other: Any) -> None:
        self._cluster = cluster
        self._other = other
        self.address = str(cluster.address)

    def workers_of_other(self) -> list[int]:
        """Return the process numbers of the other node's workers that have a task."""
        return [pid for pid in _children(_raylet(self._other)) if b"run_task" in _command(pid)]

    def end_worker(self) -> bool:
        """Kill one of them; False where there is none."""
        for pid in self.workers_of_other():
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    @contextmanager
    def paused_head(self) -> Iterator[None]:
        """Stop the head's workers for a while, so that what the other node does is not done before it is looked at."""
        workers = [pid for pid in _children(_raylet(self._cluster.head_node)) if _command(pid).startswith(b"ray::")]
        _signal_all(workers, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(workers, signal.SIGCONT)

    def end_other(self) -> None:
        """Kill the other node: its raylet, and with it its workers."""
        self._cluster.remove_node(self._other, allow_graceful=False)


@contextmanager
def two_ray_nodes(folder: Path) -> Iterator[RayNodes]:
    """Give a cluster whose workers find this package; the name of `folder` is short, because sockets lie in it."""
    from ray.cluster_utils import Cluster

    variables = {
        "RAY_TMPDIR": str(folder),
        "PYTHONPATH": environment(folder)["PYTHONPATH"],
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    with mock.patch.dict(os.environ, variables):
        head = {**node, "_system_config": _SETTINGS}
        cluster = _started(lambda: Cluster(initialize_head=True, head_node_args=head))
        try:
            yield RayNodes(cluster, _started(lambda: cluster.add_node(**node)))
        finally:
            cluster.shutdown()


def _started(start: Callable[[], Any]) -> Any:
    """Return what is started; tries again, because Ray gives up after 30 s, too few on a machine that is busy."""
    for _ in range(2):
        with suppress(Exception):  # Ray raises no class of its own
            return start()
    return start()


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def _signal_all(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(parent: int) -> list[int]:
    return [int(pid) for file in Path(f"/proc/{parent}/task").glob("*/children") for pid in file.read_text().split()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
