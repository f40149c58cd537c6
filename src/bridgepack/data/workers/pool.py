"""Workers as processes of their own: tasks go to whichever is free, results come in order, the dead are replaced."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any

from bridgepack.data.tasks import Beat, TaskFailure
from bridgepack.data.workers.server import send
from bridgepack.data.workers.server_process import WorkerServer, ending
from bridgepack.errors import DataError

#: A worker that shows no sign of life for so long, after it began to show some, is taken for stuck.
_STALL_S = 600.0
_LOOK_S = 1.0
#: Tasks that wait for a worker, and results that wait for their turn, per worker.
_MAX_WAITING, _MAX_UNREAD = 1, 4
#: Workers replaced in one build; a machine or a tokenizer that needs more is not helped by going on.
_MAX_DEATHS = 200


@dataclass(kw_only=True, eq=False)
class _Worker:
    """One worker and the task that it has."""

    number: int
    connection: Connection
    ticket: _Ticket | None = None
    last_beat: int = -1
    last_seen_s: float = 0.0
    was_stopped: bool = False


@dataclass(kw_only=True, eq=False)
class _Ticket:
    """One task on its way."""

    function: Callable[[Any, Beat], Any]
    task: Any
    is_done: bool = False
    result: Any = None
    error: BaseException | None = None


@dataclass(kw_only=True, eq=False)
class WorkerPool:
    """Runs tasks in workers.

    Attributes:
        server: forks them.
        num_workers: most at a time.
        memory_bytes: what all of them together may use; None for no limit.
        stall_s: seconds without a sign of life after which a worker is ended.
    """

    server: WorkerServer
    num_workers: int
    memory_bytes: int | None = None
    stall_s: float = _STALL_S
    _workers: list[_Worker] = field(default_factory=list)
    _waiting: deque[_Ticket] = field(default_factory=deque)
    _num_deaths: int = 0

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task, in order, as `Runner` says."""
        tickets: deque[_Ticket] = deque()
        waiting_for = iter(tasks)
        try:
            while True:
                while len(self._waiting) < _MAX_WAITING and len(tickets) < _MAX_UNREAD * self.num_workers:
                    new = [_Ticket(function=function, task=task) for task in islice(waiting_for, 1)]
                    if not new:
                        break
                    tickets += new
                    self._waiting += new
                    self._deal(self.num_workers)
                if not tickets:
                    return
                if tickets[0].is_done:
                    yield _outcome(tickets.popleft())
                else:
                    self._look(self.num_workers)
        finally:
            self._waiting = deque(ticket for ticket in self._waiting if ticket not in tickets)

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return what becomes of a task that has all the memory."""
        waiting, self._waiting = self._waiting, deque()
        while any(worker.ticket for worker in self._workers):
            self._look(self.num_workers)
        self._dismiss()
        ticket = _Ticket(function=function, task=task)
        self._waiting.append(ticket)
        while not ticket.is_done:
            self._deal(1)
            self._look(1)
        self._dismiss()
        self._waiting.extend(waiting)
        result: R | TaskFailure = _outcome(ticket)
        return result

    def close(self) -> None:
        """End every worker at once."""
        for worker in self._workers:
            _stop(worker)
            worker.connection.close()
        self._workers.clear()

    def _dismiss(self) -> None:
        """End idle workers, so that what they hold is free."""
        for worker in list(self._workers):
            self._workers.remove(worker)
            worker.connection.close()
            self.server.exit_status(worker.number)

    def _deal(self, num_workers: int) -> None:
        """Give waiting tasks to free workers; start workers where there are fewer than allowed."""
        while self._waiting:
            worker = next((worker for worker in self._workers if worker.ticket is None), None)
            if worker is None and len(self._workers) < num_workers:
                share = None if self.memory_bytes is None else self.memory_bytes // num_workers
                number, connection = self.server.fork(share)
                worker = _Worker(number=number, connection=connection)
                self._workers.append(worker)
            if worker is None:
                return
            ticket = self._waiting.popleft()
            worker.ticket, worker.last_beat, worker.last_seen_s = ticket, -1, time.monotonic()
            try:
                send(worker.connection, (ticket.function, ticket.task))
            except OSError:
                self._bury(worker)

    def _look(self, num_workers: int) -> None:
        """Wait for news of workers and take it in."""
        ready = wait([worker.connection for worker in self._workers], timeout=_LOOK_S)
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            self._hear(worker)
        now_s = time.monotonic()
        for worker in self._workers:
            if worker.last_beat >= 0 and worker.ticket is not None and now_s - worker.last_seen_s > self.stall_s:
                worker.was_stopped = True
                _stop(worker)
        self._deal(num_workers)

    def _hear(self, worker: _Worker) -> None:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        worker.last_seen_s = time.monotonic()
        ticket = worker.ticket
        assert ticket is not None
        if kind == "beat":
            worker.last_beat = value
            return
        ticket.is_done, worker.ticket = True, None
        if kind == "done":
            ticket.result = value
        elif kind == "error":
            ticket.error = value
        else:
            ticket.result = replace(value, task=ticket.task)

    def _bury(self, worker: _Worker) -> None:
        """Take in that a worker died; the task that it had has failed."""
        self._workers.remove(worker)
        worker.connection.close()
        code, errors = self.server.exit_status(worker.number)
        self._num_deaths += 1
        if self._num_deaths > _MAX_DEATHS:
            raise DataError(
                f"{self._num_deaths} worker processes died, the last one with {_last_line(errors)}{ending(code)}. What "
                "is finished is kept. Use fewer --workers, more --memory, or other versions of the libraries."
            )
        ticket = worker.ticket
        if ticket is not None:
            ticket.is_done = True
            seen = f"no sign of life for {self.stall_s:.0f} seconds"
            ticket.result = TaskFailure(
                task=ticket.task,
                kind="stalled" if worker.was_stopped else "died",
                detail=seen if worker.was_stopped else f"{_last_line(errors)}the process ended with {ending(code)}",
                is_memory=(code == -signal.SIGKILL and not worker.was_stopped) or "memory" in errors,
                last_beat=worker.last_beat,
            )


@contextmanager
def worker_pool(server: WorkerServer, num_workers: int, *, memory_bytes: int | None = None) -> Iterator[WorkerPool]:
    """Give a pool; its workers are ended afterwards, in the middle of a task if need be."""
    pool = WorkerPool(server=server, num_workers=num_workers, memory_bytes=memory_bytes)
    try:
        yield pool
    finally:
        pool.close()


def _outcome(ticket: _Ticket) -> Any:
    if ticket.error is not None:
        raise ticket.error
    return ticket.result


def _stop(worker: _Worker) -> None:
    """End a worker; its number is its own until the server was asked for its exit code."""
    try:
        os.kill(worker.number, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_line(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return f"{lines[-1][:200]}; " if lines else ""
