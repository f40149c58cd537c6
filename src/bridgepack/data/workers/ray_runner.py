"""Runs tasks on a Ray cluster, or on one started here; Ray restarts tasks when a worker or node dies."""

import logging
import os
import pickle
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bridgepack.data.tasks import Beat, Progress, Runner, TaskFailure, in_order
from bridgepack.data.workers.ray_tasks import WorkerSetup, run_task
from bridgepack.errors import ConfigError

_LOG = logging.getLogger(__name__)
#: Retries by Ray of a task whose worker or node died.
_MAX_RETRIES = 3
#: Tasks in flight, and results waiting for their turn, per task that can run at a time.
_MAX_IN_FLIGHT, _MAX_UNREAD = 2, 4
ADDRESS_VARIABLE = "RAY_ADDRESS"
_ADDRESS = re.compile(r"(?P<host>[^\s:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})", re.ASCII)
_INSTALL = 'In a clone of bridgepack: pip install -e ".[ray]"'
_CONNECT_S = 10.0
#: How long the head may be silent; Ray itself waits for a minute, and then ends the process with exit code 1.
_SILENCE_S, _RETRY_S = 10.0, 1.0
#: Memory of Ray's object store on a one-machine cluster: tasks carry file names and few bytes.
_OBJECT_STORE_BYTES = 128 << 20
#: Settings for a cluster started here: no usage reports to Ray's makers, no warnings about devices.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}


@dataclass(kw_only=True, eq=False)
class RayRunner:
    """Runs tasks on the cluster that this process is connected to."""

    ray: Any  #: the module
    setup: WorkerSetup  #: setup of a process before its first task
    num_workers: int | None  #: maximum concurrent tasks; None for the cluster's CPUs
    slots_per_node: int  #: maximum concurrent tasks per machine
    here: Runner  #: runs tasks on this machine whose Ray workers always die
    head: str | None = None  #: `HOST:PORT` of the cluster's head; None for a cluster that was started here
    is_lost: bool = False  #: whether the head does not answer any more
    _nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    #: of each run, what Ray knows its tasks by that were not yielded
    _unread: list[dict[Future[bytes], Any]] = field(default_factory=list)

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield the outcome of each task, in order; see `Runner`.

        Raises:
            BridgepackError, OSError: a task raised it.
            ConfigError: a worker cannot start, e.g. without bridgepack, or the cluster's head has died.
        """
        remote = self.ray.remote(run_task).options(max_retries=_MAX_RETRIES, num_cpus=1)
        setup = pickle.dumps(self.setup)
        references: dict[Future[bytes], Any] = {}
        self._unread.append(references)

        def submit(task: T) -> Future[bytes]:
            reference = remote.remote(setup, pickle.dumps((function, task)), self.slots_per_node)
            future: Future[bytes] = reference.future()
            references[future] = reference
            return future

        try:
            for task, future in in_order(submit, tasks, self._limits):
                del references[future]
                yield self._outcome(task, future)
        finally:
            self._cancel(references)

    def cancel_all(self) -> None:
        """Cancel tasks that were not yielded: where a build is interrupted, its generators end after its connection."""
        for references in self._unread:
            self._cancel(references)

    def _cancel(self, references: dict[Future[bytes], Any]) -> None:
        if self.is_lost:
            references.clear()  # asking a dead head would wait for a minute
        while references:
            _, reference = references.popitem()
            self.ray.cancel(reference, force=True)  # Ray's workers run one task; only killing the worker stops it

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return the outcome of a task in a process on this machine, which may die."""
        return self.here.run_alone(function, task)

    def _refuse_lost_head(self) -> None:
        """Look whether the head answers; what was finished is in the store, so another build goes on from there.

        Raises:
            ConfigError: it does not for `_SILENCE_S`.
        """
        if self.head is None:
            return
        end_s = time.monotonic() + _SILENCE_S
        while (reason := _silence_of(self.head, timeout_s=_SILENCE_S)) is not None:
            if time.monotonic() > end_s:
                self.is_lost = True
                raise ConfigError(
                    f"the head of the Ray cluster, {self.head}, does not answer any more: {reason}. Start the cluster "
                    "again, then run the build again: it goes on from what was finished."
                )
            time.sleep(_RETRY_S)

    def _limits(self) -> tuple[int, int]:
        """Return (maximum tasks in flight, maximum tasks in flight or unread) for the nodes that are now alive."""
        self._refuse_lost_head()
        nodes = {node["NodeID"]: node for node in alive_nodes(self.ray)}
        for node in self._nodes.keys() - nodes.keys():
            _LOG.warning(
                "the Ray node %s is gone; its tasks restart on other nodes, and its finished work is kept",
                self._nodes[node]["NodeManagerHostname"],
            )
        self._nodes = nodes
        num_slots = max(1, sum(map(num_cpus, nodes.values())))
        if self.num_workers is None:
            return _MAX_IN_FLIGHT * num_slots, _MAX_UNREAD * num_slots
        return min(num_slots, self.num_workers), _MAX_UNREAD * min(num_slots, self.num_workers)

    def _outcome(self, task: Any, future: Future[bytes]) -> Any:
        exceptions = self.ray.exceptions
        try:
            outcome = pickle.loads(future.result())  # noqa: S301 (from a worker of this build, through Ray)
        except exceptions.RayTaskError as error:
            last_line = str(error).strip().splitlines()[-1].strip()
            raise ConfigError(
                f"a Ray worker cannot run bridgepack: {last_line[:300]}. Install the same bridgepack, with the same "
                "libraries, on every node."
            ) from None
        except exceptions.RayError as error:
            return TaskFailure(
                task=task,
                kind="died",
                detail=f"Ray, after {_MAX_RETRIES + 1} tries: {first_sentence(error)}",
                is_memory=isinstance(error, exceptions.OutOfMemoryError),
            )
        if isinstance(outcome, BaseException):
            raise outcome
        return replace(outcome, task=task) if isinstance(outcome, TaskFailure) else outcome


def alive_nodes(ray: Any) -> list[Mapping[str, Any]]:
    """Return Ray's descriptions of the cluster's live nodes."""
    return [node for node in ray.nodes() if node["Alive"]]


def num_cpus(node: Mapping[str, Any]) -> int:
    """Return a node's number of CPUs, each of which runs one task at a time."""
    return int(node["Resources"].get("CPU", 0))


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error, because Ray's messages fill pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0][:200]


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
    target = address if address is not None else os.environ.get(ADDRESS_VARIABLE) or None
    where = "--ray-address" if address is not None else ADDRESS_VARIABLE
    if target is not None and target not in {"auto", "local"} and not _ADDRESS.fullmatch(target):
        client = target.startswith("ray://")
        advice = (
            "The Ray client is not supported: run the build on a node of the cluster, e.g. with `ray job submit`."
            if client
            else "Give the address that `ray start --head` prints, or omit the option to start Ray on this machine."
        )
        raise ConfigError(f"{where} is {target!r}; allowed: HOST:PORT, auto, local. {advice}")
    _import_ray()
    return RaySettings(address=None if target == "local" else target, num_workers=num_workers)


@contextmanager
def ray_runner(
    settings: RaySettings, setup: WorkerSetup, local_runner: Runner, progress: Progress
) -> Iterator[RayRunner]:
    """Yield a runner on the cluster; stops a cluster that it started. `local_runner` runs tasks on this machine.

    Raises:
        ConfigError: the cluster cannot be reached.
    """
    ray = _import_ray()
    progress.start("Connecting to Ray" if settings.address else "Starting Ray here", None, "nodes")
    with _connect(ray, settings), _silence(ray):
        nodes = alive_nodes(ray)
        progress.advance(len(nodes))
        progress.finish()
        runner = RayRunner(
            ray=ray,
            setup=setup,
            num_workers=settings.num_workers,
            slots_per_node=max(1, *(num_cpus(node) for node in nodes)),
            here=local_runner,
            head=_head_of(ray, settings),
        )
        try:
            yield runner
        finally:
            runner.cancel_all()  # without a connection, `cancel` would first make one


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
def _connect(ray: Any, settings: RaySettings) -> Iterator[None]:
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
            f"version of Ray as this machine, {ray.__version__}. If `ray start` said that token authentication is "
            "enabled, set RAY_AUTH_MODE=token here, too, with the cluster's token in RAY_AUTH_TOKEN or "
            "~/.ray/auth_token."
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _refuse_silent_address(address: str) -> None:
    """Refuse an address that does not answer, which Ray would try to reach for minutes.

    Raises:
        ConfigError: the address does not answer.
    """
    if (reason := _silence_of(address, timeout_s=_CONNECT_S)) is not None:
        raise ConfigError(
            f"--ray-address is {address!r}; it does not answer: {reason}. Give the address that `ray start --head` "
            "prints, or omit the option to start Ray on this machine."
        )


def _silence_of(address: str, *, timeout_s: float) -> str | None:
    """Return why `HOST:PORT` does not answer; None if it does, or if the address is no such text."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return None
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=timeout_s).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return None


def _head_of(ray: Any, settings: RaySettings) -> str | None:
    """Return `HOST:PORT` of the head of a cluster that was not started here."""
    if settings.address is None or _ADDRESS.fullmatch(settings.address):
        return settings.address
    return str(ray.get_runtime_context().gcs_address)


@contextmanager
def _silence(ray: Any) -> Iterator[None]:
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
