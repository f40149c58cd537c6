"""Runs of the training task on CPU, each in processes of its own that are forked from one that has the host imported.

Usage: python -m tests.support.guarded_runs REQUESTS.json RESULTS.json

The requests are a list of `RunRequest`, the results a list of `RunResult`. There is no launcher: what ends one process
has to end the others by itself. A process that does not end in time is killed, and its exit code is None.
"""

import dataclasses
import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import resource
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.bridge.environment import environment_here
from bridgepack.canaries.cpu import ENVIRONMENT
from bridgepack.canaries.processes import die_with_parent
from tests.support import sabotage
from tests.support.train_on_cpu import import_host, run_on_cpu

#: What every process of a run would import for itself; none of it keeps a function of the host that damage replaces.
_PRELOADED = (
    *("bridgepack.running.train", "bridgepack.data.artifact.checking", "bridgepack.rules.registry"),
    *("bridgepack.bridge.writing.write", "bridgepack.planning.balance", "bridgepack.canaries.cpu.reference_attention"),
)


#: Its processes end what they started: of a run that saves, the manager of its writers.
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One run."""

    world_size: int
    arguments: tuple[str, ...]
    #: Folder for what each process prints.
    log: str
    #: What is broken, of `sabotage`.
    damage: str = ""
    #: Ranks in which it is broken; every rank where there are none.
    ranks: tuple[int, ...] = ()
    timeout_s: float = 120.0
    #: Variables of its processes.
    variables: dict[str, str] = field(default_factory=dict)
    #: File that the run makes; once it is there, the rival runs to its end, and then this run is killed.
    awaits: str = ""
    rival: "RunRequest | None" = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """How a run ended."""

    #: Of each rank; None for one that had to be killed.
    exit_codes: list[int | None]
    seconds: float
    outputs: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0  #: of all its processes, with those of its rival
    #: How its rival ended, while it ran.
    rival: "RunResult | None" = None


def main(requests_path: str, results_path: str) -> None:
    os.environ.update(ENVIRONMENT)
    import_host()
    for name in _PRELOADED:
        importlib.import_module(name)
    environment_here()
    gc.freeze()
    requests = [_request(values) for values in json.loads(Path(requests_path).read_text())]
    results = [dataclasses.asdict(_run(request)) for request in requests]
    Path(results_path).write_text(json.dumps(results))


def _request(values: dict[str, Any]) -> RunRequest:
    rival = values.get("rival")
    return RunRequest(**{**values, "rival": None if rival is None else _request(rival)})


def _run(request: RunRequest) -> RunResult:
    folder = Path(request.log)
    folder.mkdir(parents=True, exist_ok=True)
    begun, port, ranks = time.monotonic(), _free_port(), range(request.world_size)
    cpu_before_s = _cpu_seconds_of_children()
    processes = [_FORK.Process(target=_be_rank, args=(request, rank, port, folder / f"rank{rank}")) for rank in ranks]
    for process in processes:
        process.start()
    rival = _run_beside(request, processes)
    for process in processes:
        process.join(max(0.0, begun + request.timeout_s - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    return RunResult(
        exit_codes=codes,
        seconds=time.monotonic() - begun,
        cpu_seconds=_cpu_seconds_of_children() - cpu_before_s,
        outputs=[(folder / f"rank{rank}").read_text(errors="replace") for rank in ranks],
        rival=rival,
    )


def _cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run_beside(request: RunRequest, processes: Sequence[Any]) -> RunResult | None:
    """Run the rival of a run that has come to its file, and kill the run then."""
    if request.rival is None:
        return None
    while not Path(request.awaits).is_file() and all(process.is_alive() for process in processes):
        time.sleep(0.1)
    rival = _run(request.rival)
    for process in processes:
        process.kill()
    return rival


def _be_rank(request: RunRequest, rank: int, port: int, log: Path) -> None:
    die_with_parent()
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    faulthandler.dump_traceback_later(0.9 * request.timeout_s)
    sys.exit(_rank(request, rank, port))


def _rank(request: RunRequest, rank: int, port: int) -> int:
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request.world_size, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in own.items()}})
    os.environ.update(request.variables)
    run_on_cpu()
    if request.damage and (not request.ranks or rank in request.ranks):
        sabotage.apply(request.damage)
    from bridgepack.running.train import main as train

    return train(list(request.arguments))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
