"""A process that runs tasks one after the other, started by Python's fork server, and that ends with its caller.

The fork server starts without the caller's state and imports once what tasks need; workers share it.
"""

import gc
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

from bridgepack.data.tasks import Beat, TaskFailure, failure_of, is_meant_for_users
from bridgepack.data.tokenizers.frameworks import hide_frameworks
from bridgepack.data.workers.memory import collect_rarely

#: Settings against threads that libraries start when loaded, because a fork would lose them; and against modules of the
#: current folder, which `python -c` takes before everybody else's.
ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "FASTOKENS_BPE_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
#: Modules for tasks that write token files and shards, and those for tasks that tokenise.
PACKING = ("bridgepack.data.stages.tokenise", "bridgepack.data.shards.write")
TOKENISING = (
    "bridgepack.data.workers.preload",
    "bridgepack.data.sequences.loading",
    *PACKING,
    "tokenizers",
)
#: Environment variable with the recipe whose tokenizer the fork server loads: name and overrides, as JSON.
RECIPE_VARIABLE = "BRIDGEPACK_FORK_SERVER_RECIPE"
_CONTEXT = multiprocessing.get_context("forkserver")
#: multiprocessing's list of children is not thread-safe.
_LOCK = threading.Lock()
_ERROR_OUTPUT, _TAIL_BYTES = 2, 1 << 16
#: Lines below the message of a Rust library that ended the process: the calls, and how to see more of them.
_CALLS = re.compile(r"\s*(\d+: |at |stack backtrace:|note: )")
#: Seconds to wait until the system reports that a process has ended.
_ENDED_S = 1.0


class Worker:
    """A process that runs tasks; not thread-safe."""

    def __init__(self) -> None:
        self.is_limited = False
        self._connection, theirs = multiprocessing.Pipe()
        self._errors = Connection(os.memfd_create("errors"))
        arguments = (theirs, self._errors, str(Path.cwd()), {**os.environ, **ENVIRONMENT})
        with theirs, _starting():
            try:
                self._process = _start(arguments)
            except (EOFError, ConnectionError):  # the fork server died while loading; a new one loads no tokenizer
                time.sleep(_ENDED_S)
                self._process = _start(arguments)

    @property
    def is_over(self) -> bool:
        """Whether the process is known to have ended."""
        return self._connection.closed

    def call(self, function: Callable[[Any, Beat], Any], task: Any, stall_s: float) -> Any:
        """Return `function(task)`, or a TaskFailure if the process died or raised an unexpected error.

        Kills a task whose heartbeat, once started, pauses for `stall_s` seconds.

        Raises:
            BridgepackError, OSError: the function raised it.
        """
        kind, value, last_beat = "beat", cast("Any", -1), -1
        try:
            self._connection.send((function, task))
            while kind == "beat":
                last_beat = value
                if not self._connection.poll(stall_s if last_beat >= 0 else None):
                    self.end()
                    detail = f"no heartbeat for {stall_s:.0f} seconds"
                    return TaskFailure(task=task, kind="stalled", detail=detail, last_beat=last_beat)
                kind, value = self._connection.recv()
        except (EOFError, ConnectionError):
            return self._death(task, last_beat)
        if kind == "error":
            raise value
        return replace(value, task=task) if kind == "failure" else value

    def kill(self) -> None:
        """Kill the process; callable from any thread."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and wait until its memory is free."""
        self._process.kill()
        self._join()

    def _join(self) -> None:
        with _LOCK:
            self._process.join()
        self._connection.close()

    def _death(self, task: Any, last_beat: int) -> TaskFailure:
        """Return its death as a TaskFailure: last line of stderr, and exit code in words, -9 -> `SIGKILL`."""
        self._join()
        code = self._process.exitcode
        assert code is not None
        size = os.fstat(self._errors.fileno()).st_size
        errors = os.pread(self._errors.fileno(), _TAIL_BYTES, max(size - _TAIL_BYTES, 0)).decode(errors="replace")
        lines = [line.strip() for line in errors.splitlines() if line.strip() and not _CALLS.match(line)]
        last_line = lines[-1][:200] if lines else ""
        names = {-item: item.name for item in signal.Signals}
        ending = names.get(code, f"signal {-code}" if code < 0 else f"exit code {code}")
        return TaskFailure(
            task=task,
            kind="died",
            detail=f"{last_line}; the process ended with {ending}" if last_line else f"the process ended with {ending}",
            is_memory=code == -signal.SIGKILL or "memory" in errors,
            last_beat=last_beat,
        )


def preload(modules: Sequence[str], *recipe: object) -> None:
    """Start the fork server if none runs; it imports modules in the background.

    `recipe` are name and overrides of the recipe whose tokenizer workers share.
    """
    _CONTEXT.set_forkserver_preload(list(modules))
    with _starting({RECIPE_VARIABLE: json.dumps(recipe)} if recipe else {}):
        forkserver.ensure_running()


def limit_memory(memory_bytes: int, _: Beat | None = None) -> None:
    """Limit this process to `memory_bytes` more private memory than it has now."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    num_data_pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5])
    limit = num_data_pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _start(arguments: tuple[Any, ...]) -> Any:
    process = _CONTEXT.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    return process


@contextmanager
def _starting(variables: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Start processes that ignore Ctrl-C, start no threads, and do not run the caller's script again.

    A fork server keeps the signal mask and environment that it was started with.
    """
    with _LOCK:
        new_variables = {name: text for name, text in {**ENVIRONMENT, **variables}.items() if name not in os.environ}
        os.environ.update(new_variables)
        resource_tracker.ensure_running()  # otherwise the fork server starts it, and Python 3.12.1 then unblocks Ctrl-C
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            for name in new_variables:
                os.environ.pop(name, None)
            sys.modules["__main__"] = main
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(connection: Connection, errors: Connection, folder: str, environment: Mapping[str, str]) -> None:
    """Run tasks until the caller closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(errors.fileno(), _ERROR_OUTPUT)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    gc.freeze()  # exclude shared objects from garbage collection, which would copy their pages
    collect_rarely()
    hide_frameworks()
    with suppress(OSError):  # if memory runs out, the system should kill replaceable workers before the build
        Path("/proc/self/oom_score_adj").write_text("500", encoding="utf-8")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    while True:
        function, task = connection.recv()
        last = -1

        def beat(number: int) -> None:
            nonlocal last
            last = number
            connection.send(("beat", number))

        try:
            result = ("done", function(task, beat))
        except BaseException as error:  # Rust code that panics raises no Exception
            result = ("error", error) if is_meant_for_users(error) else ("failure", failure_of(error, None, last))
        connection.send(result)
        del function, task, result


def _end_with_caller() -> None:
    """Make the system end this process when the caller ends."""
    caller = multiprocessing.parent_process()
    assert caller is not None
    caller.join()
    os._exit(0)
