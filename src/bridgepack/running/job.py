"""The processes of a job: this process's rank, approval by rank 0, and ending all processes together.

Nothing here runs between the steps of a healthy job: one thread per process sleeps until a key appears in the store
that torch.distributed itself is set up with. A failing process thus ends the others at once, under any launcher: none
keeps waiting in a collective for a dead process.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

from bridgepack.bridge.imports import import_host
from bridgepack.errors import ConfigError
from bridgepack.records.words import is_whole_number

_STOP, _APPROVED, _TOLD, _SEEN, _DONE = "stop", "approved", "told", "seen", "done"
#: Timeout for all processes to join: nodes start and read Python from slow disks.
_JOIN_TIMEOUT = timedelta(minutes=30)
#: Length of one wait on the store, repeated while the job runs; torch logs the end of each and keeps milliseconds
#: in 31 bits.
_NAP = timedelta(days=20)
#: Time an ending process waits for the others to notice.
_GRACE_S = 15.0
#: Time a process may continue after rank 0 has ended, as at the end of a successful run.
_LOST_GRACE_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Rank and world size of this process."""

    rank: int = 0  #: from 0
    world_size: int = 1  #: number of processes

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Identity:
        """Return the identity set by the launcher: torchrun, else Slurm, else a single process.

        Source: megatron/core/_rank_utils.py and _slurm_utils.py of 0.19.2 (safe_get_rank, safe_get_world_size).

        Raises:
            ConfigError: a variable is not a number, or the rank is not below the world size.
        """
        rank = _number(environment, "RANK", "SLURM_PROCID", default=0)
        world_size = _number(environment, "WORLD_SIZE", "SLURM_NTASKS", default=1)
        if not 0 <= rank < world_size:
            raise ConfigError(
                f"RANK is {rank} and WORLD_SIZE is {world_size}; allowed: ranks from 0 to {world_size - 1}. "
                "Start the processes with torchrun, srun or nemo-run."
            )
        return cls(rank=rank, world_size=world_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Why all processes of a job end."""

    exit_code: int  #: exit code of every process
    message: str  #: printed by the first process
    record: dict[str, Any] = field(default_factory=dict)  #: record for the run's folder; empty for none


class Job:
    """This process as part of its job."""

    def __init__(self, identity: Identity, *, report: Callable[[Stop], None]) -> None:
        """Create a job of one process; `join` connects the others. The first process reports why all end."""
        self.identity, self._report = identity, report
        self._store: Any = None
        self._watcher: threading.Thread | None = None
        self._finished = threading.Event()

    @property
    def is_first(self) -> bool:
        """True for rank 0, which writes and prints."""
        return self.identity.rank == 0

    def join(self) -> None:
        """Wait until all processes have joined; from then on, end this process when one of them ends all.

        Raises:
            ConfigError: they do not join in time, or no rendezvous address is set.
        """
        if self.identity.world_size == 1:
            _choose_free_port()
            return
        _ensure_meeting_place()
        import torch.distributed as dist

        rank, world_size = self.identity.rank, self.identity.world_size
        host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        try:
            store, _, _ = next(dist.rendezvous(f"env://?rank={rank}&world_size={world_size}", timeout=_JOIN_TIMEOUT))
            # A store connection serves one call at a time, so the sleeping thread needs its own.
            second_store = dist.TCPStore(
                host, int(port), is_master=False, wait_for_workers=False, timeout=_JOIN_TIMEOUT
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigError(
                f"the {world_size} processes of the job cannot connect at {host}:{port} (MASTER_ADDR and MASTER_PORT): "
                f"{error}. Check that all of them started, and that this address can be reached from every node."
            ) from None
        self._store, prefix_store = dist.PrefixStore("bridgepack", store), dist.PrefixStore("bridgepack", second_store)
        self._watcher = threading.Thread(target=self._watch, args=(prefix_store,), name="bridgepack-job", daemon=True)
        self._watcher.start()

    def approve(self) -> None:
        """Let the other processes continue; called by the first one."""
        if self._store is not None:
            self._store.set(_APPROVED, "1")

    def await_approval(self) -> None:
        """Wait until the first process approves; if it refuses, this process ends."""
        while self._store is not None:
            try:
                self._store.wait([_APPROVED], _NAP)
            except RuntimeError:  # the wait timed out; if the first process is gone, the watching thread ends this one
                time.sleep(1.0)
            else:
                return

    def stop(self, stop: Stop) -> None:
        """End all processes of the job; the first reason given counts. A single process only reports it.

        With several processes this call does not return.
        """
        if self._store is None:
            self._report(stop)
            return
        with contextlib.suppress(RuntimeError):  # the store ended with the first process: nobody is left to tell
            self._store.compare_set(_STOP, "", json.dumps(asdict(stop), default=str))
            time.sleep(2 * _GRACE_S)  # the watching thread ends this process meanwhile
        _leave(stop.exit_code, message=stop.message)

    def is_stopping(self, wait_s: float = 0.0) -> bool:
        """Return whether a process is ending all, now or within `wait_s` seconds."""
        if self._store is None:
            return False
        try:
            return _is_soon(lambda: bool(self._store.check([_STOP])), wait_s)
        except RuntimeError:  # the store ended with the first process
            return True

    def finish(self) -> None:
        """Stop watching because this process is done; the first one waits until all others are done."""
        self._finished.set()
        if self._store is None or self._watcher is None:
            return
        with contextlib.suppress(RuntimeError):  # the first process has already ended: nothing to wait for
            self._store.add(_DONE, 1)
            if self.is_first:
                _is_soon(lambda: self._store.add(_DONE, 0) >= self.identity.world_size)
                self._store.set(_STOP, "")
                self._await_others(self._store)
            self._watcher.join(_GRACE_S)

    def _watch(self, store: Any) -> None:
        from torch.distributed import DistNetworkError

        text = None
        while text is None:
            try:
                store.wait([_STOP], _NAP)
                text = store.get(_STOP)
            except DistNetworkError:  # the first process has ended, as also after a successful run
                if not self._finished.wait(_LOST_GRACE_S):
                    rank = self.identity.rank
                    _leave(1, message=f"rank {rank}: rank 0 ended without a reason; this rank ends too")
                return
            except RuntimeError:  # the wait timed out
                time.sleep(0.1)
        if text:
            self._end(Stop(**json.loads(text)), store)
        if not self.is_first:  # all are done
            store.add(_SEEN, 1)

    def _end(self, stop: Stop, store: Any) -> NoReturn:
        """End this process after the first one has reported why; a launcher kills it as soon as any other ends."""
        message = "" if self.is_first else stop.message
        with contextlib.suppress(RuntimeError):
            if self.is_first:
                self._report(stop)
                store.set(_TOLD, "1")
                self._await_others(store)
            else:
                store.wait([_TOLD], timedelta(seconds=_GRACE_S))
                store.add(_SEEN, 1)
                message = ""
        _leave(stop.exit_code, message=message)

    def _await_others(self, store: Any) -> None:
        _is_soon(lambda: store.add(_SEEN, 0) >= self.identity.world_size - 1)


def _leave(exit_code: int, *, message: str) -> NoReturn:
    """End the process at once, because other threads hang in collectives that will never complete."""
    if message:
        sys.stderr.write(f"{message}\n")
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _number(environment: Mapping[str, str], *names: str, default: int) -> int:
    for name in names:
        text = environment.get(name)
        if text:
            if not is_whole_number(text):
                raise ConfigError(f"{name} is {text!r}; allowed: a whole number. The launcher sets it; do not set it.")
            return int(text)
    return default


def _ensure_meeting_place() -> None:
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return
    utilities = import_host("utils.common_utils")
    os.environ.setdefault("MASTER_ADDR", utilities.get_master_addr_safe())
    os.environ.setdefault("MASTER_PORT", str(utilities.get_master_port_safe()))


def _choose_free_port() -> None:
    """Let a process that is alone meet itself at a port that nobody listens at, so that two runs share a machine.

    Otherwise Megatron-Bridge takes 29500 (utils/common_utils.py, get_master_port_safe); it has a port for each job of
    Slurm.
    """
    if "MASTER_PORT" not in os.environ and "SLURM_JOB_ID" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])


def _is_soon(is_so: Callable[[], bool], wait_s: float = _GRACE_S) -> bool:
    deadline = time.monotonic() + wait_s
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
