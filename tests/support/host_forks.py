"""Runs modules in forks of one process that has megatron-bridge imported, for all processes of a run of the tests.

Importing the host takes 7 to 20 CPU seconds. The first process that asks starts the server (host_server.py), which ends
when no process that asked is left. A fork ends when the process that waits for it does. Where `FIRST` names folders
that stand first on the path, with another host or another bridgepack, they have a server of their own.

Usage: python -m tests.support.host_forks MODULE ARGUMENT...
"""

import dataclasses
import functools
import hashlib
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

#: Variable with the folders that stand first on the path of a server and its forks.
FIRST = "BRIDGEPACK_TEST_FIRST"
#: A server serves others, too, while one of them runs its last file.
_END_LIMIT_S = 900.0
#: What bridgepack starts to ask the host becomes a fork.
_SITE = """
import sys
for module in {"bridgepack.bridge.validating.child", "bridgepack.canaries.processes"} & set(sys.orig_argv[1:4]):
    from tests.support.host_forks import become_fork
    become_fork(module)
"""


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
    folder: Path | None = None,
    limit_s: float | None = None,
) -> int:
    """Return the exit code of `python -m MODULE` in a folder and an environment, with our input and two outputs.

    Raises:
        TimeoutError: it did not end in time, and was ended.
    """
    first = variables.get(FIRST, "")
    hold(first)
    values = {"module": module, "arguments": list(arguments), "variables": dict(variables)}
    request = {**values, "folder": str(folder or Path.cwd())}
    with _connected(first) as connection:
        connection.settimeout(limit_s)
        socket.send_fds(connection, [json.dumps(request).encode()], (0, *outputs))
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


def become_fork(module: str) -> None:
    """Do in a fork what this process was started for with `python -m MODULE`, and end as it does."""
    arguments = sys.orig_argv[sys.orig_argv.index(module) + 1 :]  # sitecustomize runs before sys.argv is made
    os._exit(run_forked(module, arguments, os.environ))


def write_site(folder: Path) -> None:
    """Have processes that bridgepack starts to ask the host become forks, where a folder stands on their path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE)


def release() -> None:
    """Let the servers end; where this process started them, wait for that."""
    for server in _servers().values():
        server.connection.close()
        if server.process is not None:
            server.process.wait(_END_LIMIT_S)
    _servers().clear()


def hold(first: str = "") -> None:
    """Start the server if there is none, and keep it until this process ends."""
    if first not in _servers():
        _servers()[first] = _server(first)


@functools.cache
def _servers() -> dict[str, _Server]:
    return {}


def _server(first: str) -> _Server:
    try:
        return _Server(connection=_connected(first), process=None)
    except ConnectionRefusedError:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.host_server", _address(first)[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, FIRST: first, "PYTHONPATH": os.pathsep.join(filter(None, [first, *sys.path]))},
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()  # it listens, or that of another process does
        return _Server(connection=_connected(first), process=process)


def _connected(first: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(_address(first))
    except OSError:
        connection.close()
        raise
    return connection


def _address(first: str) -> str:
    """Return a name without a file."""
    return f"\0bridgepack-host-{os.environ[VARIABLE]}-{hashlib.sha256(first.encode()).hexdigest()[:16]}"


if __name__ == "__main__":
    sys.exit(run_forked(sys.argv[1], sys.argv[2:], os.environ))
