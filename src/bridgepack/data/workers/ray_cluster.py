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
#: For Ray's own store, on a cluster of one machine: tasks carry names of files, and few bytes.
_OBJECT_STORE_BYTES = 128 << 20
#: For a cluster that is started here: no report to Ray's makers, no warnings about devices.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RaySettings:
    """Which cluster a build runs on."""

    #: `HOST:PORT` of its head, or `auto` for the one that runs on this machine; None starts one here
    address: str | None
    num_workers: int | None = None  #: most tasks at a time; by default the cluster's CPUs


def ray_settings(address: str | None, num_workers: int | None = None) -> RaySettings:
    """Return settings that can work, before anything is started.

    Raises:
        ConfigError: when Ray is not installed, or the address is none.
    """
    named = address if address is not None else os.environ.get(ADDRESS_VARIABLE) or None
    where = "--ray-address" if address is not None else ADDRESS_VARIABLE
    if named is not None and named not in {"auto", "local"} and not _ADDRESS.fullmatch(named):
        client = named.startswith("ray://")
        advice = (
            "The Ray client is not supported: run the build on a node of the cluster, e.g. with `ray job submit`."
            if client
            else "Give the address that `ray start --head` prints, or leave it out to start Ray on this machine."
        )
        raise ConfigError(f"{where} is {named!r}; allowed: HOST:PORT, auto, local. {advice}")
    _import_ray()
    return RaySettings(address=None if named == "local" else named, num_workers=num_workers)


@contextmanager
def ray_runner(settings: RaySettings, setup: WorkerSetup, here: Runner, progress: Progress) -> Iterator[RayRunner]:
    """Give a runner on the cluster; what was started here is stopped at the end. `here` is of this machine.

    Raises:
        ConfigError: when the cluster cannot be reached.
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
    for name, value in _QUIET.items():  # Ray reads some of it when it is imported
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
    """Be connected to a cluster, in the end to none; a connection that was there before stays."""
    if ray.is_initialized():
        yield
        return
    with ExitStack() as stack:
        options: dict[str, Any] = {}
        if settings.address is not None:
            _refuse_silent_address(settings.address)
        else:
            # Names of sockets below a temporary folder must not be longer than the system allows.
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
    before = signal.getsignal(signal.SIGTERM)  # connecting to Ray changes how this process takes being asked to end
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError, SystemExit) as error:
        where = "Ray cannot be started on this machine" if address == "local" else f"Ray at {address!r} does not answer"
        raise ConfigError(
            f"{where}: {first_sentence(error)}. Check `ray status` on the cluster's head, and that its Ray has the "
            f"same version as the one here, {ray.__version__}."
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _refuse_silent_address(address: str) -> None:
    """Ray tries for minutes to reach an address where nobody is.

    Raises:
        ConfigError: when nobody answers there.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--ray-address is {address!r}; nobody answers there: {error}. Give the address that `ray start --head` "
            "prints, or leave it out to start Ray on this machine."
        ) from None


@contextmanager
def _silenced(ray: Any) -> Iterator[None]:
    """Keep pages on nodes that died, raylets' logs among them, out of the output; the runner has a sentence for it.

    Ray has no setting for that.
    """
    module = ray._private.worker
    before = module.print_to_stdstream
    module.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        module.print_to_stdstream = before
