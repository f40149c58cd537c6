"""Imports megatron-bridge and what commands take, and forks for each request of host_forks.py until none is connected.

Usage: python -m tests.support.host_server NAME
"""

import gc
import json
import multiprocessing
import os
import runpy
import selectors
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bridgepack import api
from bridgepack.canaries.cpu import ENVIRONMENT
from bridgepack.canaries.processes import die_with_parent
from tests.support import cpu_seconds

#: Its forks end what they started.
_FORK = multiprocessing.get_context("fork")
_MAX_REQUEST_BYTES = 1 << 20
#: A server that nobody asks ends.
_FIRST_LIMIT_S = 60.0


@dataclass(kw_only=True, slots=True)
class _Server:
    """Connections, and the fork that each waits for."""

    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    forks: dict[socket.socket, Any] = field(default_factory=dict)

    def serve(self, listener: socket.socket) -> None:
        self.selector.register(listener, selectors.EVENT_READ)
        while events := self.selector.select(None if self.forks else _FIRST_LIMIT_S):
            for key, _ in events:
                if key.fileobj is listener:
                    self._accept(listener)
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)
                else:
                    self._tell_end(key.data)
            if not self.forks:
                return

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self.selector.register(connection, selectors.EVENT_READ)
        self.forks[connection] = None

    def _hear(self, connection: socket.socket) -> None:
        """Start the fork that a connection asks for; end it where the connection has ended."""
        data, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
        if data:
            request = json.loads(data)
            test = request["variables"].get("PYTEST_CURRENT_TEST", "(forks of the host)").partition("::")[0]
            process = _FORK.Process(target=_run, args=(request, descriptors), name=test)
            process.start()
            for descriptor in descriptors:
                os.close(descriptor)
            self.forks[connection] = process
            self.selector.register(process.sentinel, selectors.EVENT_READ, connection)
            return
        process = self.forks.pop(connection)
        if process is not None:
            process.kill()
            self._join(process)
        self.selector.unregister(connection)
        connection.close()

    def _tell_end(self, connection: socket.socket) -> None:
        process = self.forks.get(connection)
        if process is not None:
            self.forks[connection] = None
            self._join(process)
            with suppress(OSError):  # nobody waits any more
                connection.send(str(process.exitcode).encode())

    def _join(self, process: Any) -> None:
        """Wait for a fork, and write what it spent where the CPU seconds of tests are counted."""
        self.selector.unregister(process.sentinel)
        before = os.times()
        process.join()
        after = os.times()
        if "BRIDGEPACK_CPU_SECONDS" in os.environ:
            spent_s = after.children_user + after.children_system - before.children_user - before.children_system
            cpu_seconds.write(process.name, "", spent_s, after.elapsed - before.elapsed)


def _run(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    die_with_parent()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    # The server's own remember whether they can seek.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    first = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [request["folder"], *(place for place in first if place not in sys.path)]
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def main(name: str) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"\0{name}")
    except OSError:  # another process has just started one
        return
    listener.listen(64)
    os.write(1, b"\n")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT)
    from tests.support.train_on_cpu import import_host

    import_host()
    for function in dir(api):  # what they import costs a command a third of a second
        getattr(api, function)
    gc.freeze()
    _Server().serve(listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
