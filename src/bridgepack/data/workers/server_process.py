"""The process that workers are forked from, as the process that started it sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

from bridgepack.data.workers.server import ENVIRONMENT, send
from bridgepack.errors import DataError

#: What a server has time for when it is to end.
_GOODBYE_S = 0.5
#: Modules of the tasks that write token files and shards, and of those that tokenise, too.
PACKING = ("bridgepack.data.stages.range_tasks", "bridgepack.data.stages.shard_tasks")
TOKENISING = (
    "bridgepack.data.sequences.loading",
    "bridgepack.data.workers.stage_loading",
    "bridgepack.data.tokenizers.engine_sample",
    *PACKING,
    "tokenizers",
)
_LOADING_DIED = (
    "the process that loads the tokenizer ended {}, most often because memory ran out. What is finished is kept; free "
    "memory and run the same command again."
)


class WorkerServer:
    """The process that workers are forked from."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """Start it; it begins to import these modules, for all workers."""
        ours, theirs = socket.socketpair()
        with theirs, _interrupts_held():
            self._process = subprocess.Popen(
                [sys.executable, "-c", _program(theirs.fileno(), modules)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT},
            )
        self._connection = Connection(ours.detach())
        self._num_begun = 0

    def prepare[T](self, function: Callable[[], T]) -> T:
        """Run a function in the server, for every worker that is forked afterwards, and return its result.

        Raises:
            BridgepackError: what it raised.
            DataError: when the server dies.
        """
        self.begin(function)
        result: T = self.prepared()
        return result

    def begin(self, function: Callable[[], Any]) -> None:
        """Begin to prepare, or let it wait for its turn; `prepared` waits for the end."""
        self._send(("prepare", function))
        self._num_begun += 1

    def prepared(self) -> Any:
        """Return what the function gave that was begun first, of those that were not asked for yet."""
        kind, value = self._receive()
        self._num_begun -= 1
        return _value(kind, value)

    def aside[T](self, function: Callable[[], T]) -> Callable[[], T]:
        """Run a function in a process of its own, with what is loaded before it; return what waits for its result.

        That raises what `prepare` raises.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._send(("aside", function))
            reduction.send_handle(self._connection, theirs.fileno(), self._process.pid)
        return partial(self._from_aside, Connection(ours.detach()))

    def _from_aside(self, connection: Connection) -> Any:
        with connection:
            try:
                kind, value = connection.recv()
            except (EOFError, OSError):
                raise DataError(_LOADING_DIED.format("without a word")) from None
        return _value(kind, value)

    def fork(self, memory_bytes: int | None) -> tuple[int, Connection]:
        """Start a worker that may use this much memory of its own; return its process number and the way to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._send(("fork", memory_bytes))
            reduction.send_handle(self._connection, theirs.fileno(), self._process.pid)
            number = int(self._receive())
        return number, Connection(ours.detach())

    def exit_status(self, number: int) -> tuple[int, str]:
        """Wait for a worker's end and return its exit code, negative for a signal, and its last errors."""
        self._send(("wait", number))
        status, errors = self._receive()
        return int(status), str(errors)

    def close(self) -> None:
        """End the server; workers end with the pool that has them, and the server takes leave of them."""
        self._connection.close()
        try:
            self._process.wait(0 if self._num_begun else _GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, request: Any) -> None:
        try:
            send(self._connection, request)
        except OSError:
            raise self._death() from None

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None

    def _death(self) -> DataError:
        return DataError(_LOADING_DIED.format(f"with {ending(self._process.wait())}"))


@contextmanager
def worker_server(modules: Sequence[str] = ()) -> Iterator[WorkerServer]:
    """Give a server that imports these modules, and ends afterwards."""
    server = WorkerServer(modules)
    try:
        yield server
    finally:
        server.close()


def ending(code: int) -> str:
    """Return an exit code in words: -9 -> `SIGKILL`, 3 -> `exit code 3`."""
    if code >= 0:
        return f"exit code {code}"
    names = {int(item): item.name for item in signal.Signals}
    return names.get(-code, f"signal {-code}")


def _program(descriptor: int, modules: Sequence[str]) -> str:
    """Return the Python of a server, which finds the modules that this process finds."""
    load = "from bridgepack.data.workers.server import main"
    return f"import sys; sys.path[:] = {sys.path!r}; {load}; main({descriptor}, {tuple(modules)!r})"


def _value(kind: str, value: Any) -> Any:
    if kind == "error":
        raise value
    if kind == "trace":
        raise RuntimeError(f"a worker process could not be prepared:\n{value}")
    return value


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back; a process that starts meanwhile never gets it, and leaves it to this one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
