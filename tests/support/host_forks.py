"""Runs modules in forks of one process that has megatron-bridge imported, for all processes of a run of the tests.

Importing the host takes 7 to 20 CPU seconds. The first process that asks starts the server (host_server.py), which ends
when no process that asked is left. A fork ends when the process that waits for it does.

Usage: python -m tests.support.host_forks MODULE ARGUMENT...
"""

import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.leftover_processes import VARIABLE

#: A server serves others, too, while one of them runs its last file.
_END_LIMIT_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Server:
    """The server, which lives while this process is connected."""

    connection: socket.socket
    process: subprocess.Popen[bytes] | None  #: where this process started it


def run_forked(
    module: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    outputs: tuple[int, int] = (1, 2),
    *,
    limit_s: float | None = None,
) -> int:
    """Return the exit code of `python -m MODULE` with an environment, and with its output in two descriptors.

    Raises:
        TimeoutError: it did not end in time, and was ended.
    """
    hold()
    request = {"module": module, "arguments": list(arguments), "variables": dict(variables), "folder": str(Path.cwd())}
    with _connected() as connection:
        connection.settimeout(limit_s)
        socket.send_fds(connection, [json.dumps(request).encode()], outputs)
        answer = connection.recv(64)
    assert answer, "the process that has the host imported has ended"
    return int(answer)


def asked(module: str, requests: Iterable[Any], folder: Path, *, limit_s: float = 600, **variables: str) -> list[Any]:
    """Return what a module of tests/support makes of requests, which are dataclasses, in a fork with the host."""
    requests_path, results_path = folder / "requests.json", folder / "results.json"
    requests_path.write_text(json.dumps([dataclasses.asdict(request) for request in requests]))
    environment = {**os.environ, "HF_HOME": str(folder / "hf-home"), **variables}
    with tempfile.TemporaryFile("w+") as log:
        places = [str(requests_path), str(results_path)]
        code = run_forked(module, places, environment, (log.fileno(), log.fileno()), limit_s=limit_s)
        log.seek(0)
        assert code == 0, log.read()[-5000:]
    return list(json.loads(results_path.read_text()))


def release() -> None:
    """Let the server end; where this process started it, wait for that."""
    if hold.cache_info().currsize:
        server = hold()
        server.connection.close()
        if server.process is not None:
            server.process.wait(_END_LIMIT_S)
        hold.cache_clear()


@functools.cache
def hold() -> _Server:
    """Start the server if there is none, and keep it until this process ends."""
    try:
        return _Server(connection=_connected(), process=None)
    except ConnectionRefusedError:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.host_server", _address()[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()  # it listens, or that of another process does
        return _Server(connection=_connected(), process=process)


def _connected() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(_address())
    except OSError:
        connection.close()
        raise
    return connection


def _address() -> str:
    return f"\0bridgepack-host-{os.environ[VARIABLE]}"  # a name without a file


if __name__ == "__main__":
    sys.exit(run_forked(sys.argv[1], sys.argv[2:], os.environ))
