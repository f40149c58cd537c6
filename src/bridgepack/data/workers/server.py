"""A process that loads what tasks need once and forks workers from it: alike, quickly, and as often as one dies.

It is started anew, not forked from the caller, so it has one thread and nothing of the caller's; workers share what it
loaded. Requests come over a socket; when the other end goes away, it ends, and so do its workers.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import resource
import select
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from bridgepack.data.tasks import failure_of, is_meant_for_users
from bridgepack.data.tokenizers.frameworks import hide_frameworks
from bridgepack.data.workers.garbage import collect_rarely
from bridgepack.errors import BridgepackError

_TAIL_BYTES = 2000
_OUTPUT = 2
#: Threads that libraries would start on loading, and that a fork would lose.
ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def main(descriptor: int, modules: Sequence[str]) -> None:
    """Import modules, then serve requests until the other end goes away.

    Requests: ("prepare", function) answers what it returns; ("aside", function) and a socket answer that over the
    socket, from a process of its own; ("fork", memory limit in bytes or None) and a socket answer the worker's process
    number; ("wait", number) answers its exit status and the end of its error output.
    """
    collect_rarely()
    hide_frameworks()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    connection = Connection(descriptor)
    outputs: dict[int, int] = {}
    _import(modules)
    while True:
        try:
            name, argument = connection.recv()
        except (EOFError, ConnectionResetError):
            _wait_for_workers()
            os._exit(0)  # taking a tokenizer apart takes a third of a second
        if name == "prepare":
            send(connection, _prepared(argument))
        elif name == "aside":
            _run_aside(connection, argument)
        elif name == "fork":
            send(connection, _fork(connection, argument, outputs))
        else:
            send(connection, (_exit_status(argument), _tail(outputs.pop(argument))))


def _import(modules: Sequence[str]) -> None:
    """Import now what every worker would import for itself, while the caller is still busy with its own imports."""
    with suppress(ImportError):  # whoever needs it says so
        for name in modules:
            importlib.import_module(name)


def send(connection: Connection, message: object) -> None:
    """Send what `recv` of the other end returns.

    `Connection.send` would lend out the buffer of a BytesIO. Where Ctrl-C leaves it in a traceback, CPython 3.12 can
    crash as it ends: "deallocated BytesIO object has exported buffers".
    """
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def _wait_for_workers() -> None:
    """Wait for the workers, which end when their callers go away."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _prepared(function: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", function()
    except BridgepackError as error:
        return "error", error
    except Exception:  # told to the caller, who raises it
        return "trace", traceback.format_exc()


def _run_aside(connection: Connection, function: Callable[[], Any]) -> None:
    """Run a function in a process that has what was loaded so far, and go on meanwhile."""
    with Connection(reduction.recv_handle(connection)) as answer:
        if os.fork():
            return
        connection.close()
        try:
            threading.Thread(target=_end_with_caller, args=(answer.fileno(),), daemon=True).start()
            send(answer, _prepared(function))
        finally:
            os._exit(0)


def _fork(connection: Connection, memory_bytes: int | None, outputs: dict[int, int]) -> int:
    descriptor = reduction.recv_handle(connection)
    output = os.memfd_create("errors")
    gc.freeze()  # what workers share is not looked through again, which would also copy it
    number = os.fork()
    if number == 0:
        connection.close()
        os.dup2(output, _OUTPUT)
        _work(descriptor, memory_bytes)
    os.close(descriptor)
    outputs[number] = output
    return number


def _exit_status(number: int) -> int:
    _, status = os.waitpid(number, 0)
    return os.waitstatus_to_exitcode(status)


def _tail(output: int) -> str:
    size = os.fstat(output).st_size
    content = os.pread(output, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
    os.close(output)
    return content.decode(errors="replace")


def _work(descriptor: int, memory_bytes: int | None) -> NoReturn:
    """Run tasks until the other end goes away; never return into the server's own work."""
    try:
        _be_killed_first()
        if memory_bytes is not None:
            _limit_memory(memory_bytes)
        threading.Thread(target=_end_with_caller, args=(descriptor,), daemon=True).start()
        _run_tasks(Connection(descriptor))
    except BaseException:  # there is nobody above to tell
        traceback.print_exc()
    finally:
        os._exit(1)


def _run_tasks(connection: Connection) -> None:
    while True:
        function, task = connection.recv()
        last = -1

        def beat(number: int) -> None:
            nonlocal last
            last = number
            send(connection, ("beat", number))

        try:
            result = ("done", function(task, beat))
        except BaseException as error:  # Rust code that panics raises no Exception
            result = ("error", error) if is_meant_for_users(error) else ("failure", failure_of(error, None, last))
        send(connection, result)
        del function, task, result


def _end_with_caller(descriptor: int) -> None:
    """End when the other end of the socket goes away, whatever this process is doing."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


def _limit_memory(memory_bytes: int) -> None:
    """Let this process have this much more memory of its own than what it shares with the server."""
    used = _private_bytes()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = used + memory_bytes if hard == resource.RLIM_INFINITY else min(used + memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _private_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def _be_killed_first() -> None:
    """Ask the system to end workers, which can be replaced, before the build itself when memory runs out."""
    try:
        Path("/proc/self/oom_score_adj").write_text("500", encoding="utf-8")
    except OSError:
        return
