"""Connects to a Ray cluster, or starts one on this machine."""

import logging
import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bridgepack.data.tasks import Progress, Runner
from bridgepack.data.workers.ray_runner import RayRunner, alive_nodes, first_sentence, num_cpus
from bridgepack.data.workers.ray_tasks import WorkerSetup
from bridgepack.errors import ConfigError

ADDRESS_VARIABLE = "RAY_ADDRESS"
_ADDRESS = re.compile(r"(?P<host>[^\s:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_INSTALL = 'In a clone of bridgepack: pip install -e ".[ray]"'
_CONNECT_S = 10.0
#: Memory of Ray's object store on a one-machine cluster: tasks carry file names and few bytes.
_OBJECT_STORE_BYTES = 128 << 20
#: Settings for a cluster started here: no usage reports to Ray's makers, no warnings about devices.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RaySettings:
    """Which cluster a build runs on."""

    #: `HOST:PORT` of its head, or `auto` for the cluster of this machine; None starts one here
    address: str | None
    num_workers: int | None = None  #: maximum concurrent tasks; by default the cluster's CPUs


def ray_settings(address: str | None, num_workers: int | None = None) -> RaySettings:
    """Return checked settings, without starting anything.

    Raises:
        ConfigError: Ray is not installed, or the address is invalid.
    """
    named = address if address is not None else os.environ.get(ADDRESS_VARIABLE) or None
    where = "--ray-address" if address is not None else ADDRESS_VARIABLE
    if named is not None and named not in {"auto", "local"} and not _ADDRESS.fullmatch(named):
        client = named.startswith("ray://")
        advice = (
            "The Ray client is not supported: run the build on a node of the cluster, e.g. with `ray job submit`."
            if client
            else "Give the address that `ray start --head` prints, or omit the option to start Ray on this machine."
        )
        raise ConfigError(f"{where} is {named!r}; allowed: HOST:PORT, auto, local. {advice}")
    _import_ray()
    return RaySettings(address=None if named == "local" else named, num_workers=num_workers)


@contextmanager
def ray_runner(settings: RaySettings, setup: WorkerSetup, here: Runner, progress: Progress) -> Iterator[RayRunner]:
    """Yield a runner on the cluster; stops a cluster that it started. `here` runs tasks on this machine.

    Raises:
        ConfigError: the cluster cannot be reached.
    """
    ray = _import_ray()
    progress.start("Connecting to Ray" if settings.address else "Starting Ray here", None, "nodes")
    with _connected(ray, settings), _silenced(ray):
        nodes = alive_nodes(ray)
        progress.advance(len(nodes))
        progress.finish()
        yield RayRunner(
            ray=ray,
            setup=setup,
            num_workers=settings.num_workers,
            slots_per_node=max(1, *(num_cpus(node) for node in nodes)),
            here=here,
        )


def _import_ray() -> Any:
    for name, value in _QUIET.items():  # Ray reads some of them when it is imported
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"--engine ray needs Ray, which cannot be imported ({error}). {_INSTALL}, or use --engine local."
        ) from None
    return ray


@contextmanager
def _connected(ray: Any, settings: RaySettings) -> Iterator[None]:
    """Connect to a cluster while the block runs; keeps an existing connection."""
    if ray.is_initialized():
        yield
        return
    with ExitStack() as stack:
        options: dict[str, Any] = {}
        if settings.address is not None:
            _refuse_silent_address(settings.address)
        else:
            # The system limits the length of socket names, which include the temporary folder.
            folder = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
            options = {
                "num_cpus": settings.num_workers or len(os.sched_getaffinity(0)),
                "num_gpus": 0,
                "object_store_memory": _OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "_temp_dir": stack.enter_context(folder),
            }
        stack.callback(ray.shutdown)
        _init(ray, settings.address or "local", options)
        yield


def _init(ray: Any, address: str, options: Mapping[str, Any]) -> None:
    before = signal.getsignal(signal.SIGTERM)  # connecting to Ray replaces this process's SIGTERM handler
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError, SystemExit) as error:
        where = "Ray cannot be started on this machine" if address == "local" else f"Ray at {address!r} does not answer"
        raise ConfigError(
            f"{where}: {first_sentence(error)}. Check `ray status` on the cluster's head, and that it runs the same "
            f"version of Ray as this machine, {ray.__version__}."
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _refuse_silent_address(address: str) -> None:
    """Refuse an address that does not answer, which Ray would try to reach for minutes.

    Raises:
        ConfigError: the address does not answer.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--ray-address is {address!r}; it does not answer: {error}. Give the address that `ray start --head` "
            "prints, or omit the option to start Ray on this machine."
        ) from None


@contextmanager
def _silenced(ray: Any) -> Iterator[None]:
    """Suppress Ray's long messages about dead nodes, with raylets' logs; the runner reports them in one sentence.

    Ray has no setting for this.
    """
    module = ray._private.worker
    before = module.print_to_stdstream
    module.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        module.print_to_stdstream = before
