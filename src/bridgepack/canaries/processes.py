"""The process that has the host imported, and forks the ranks of each step off itself, and how it is asked.

`python -m bridgepack.canaries.processes` takes one JSON request a line on standard input, and writes one answer a line
on standard output. It ends when standard input does, or the process that started it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from bridgepack.bridge.imports import import_host
from bridgepack.canaries.cpu import COMPUTING
from bridgepack.canaries.records import HostFacts, RunOutcome, RunRequest
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.replay.settings import Topology

_LOG = "host.log"
_TAIL_LINES = 12


class HostProcess(AbstractContextManager["HostProcess"]):
    """A process that answers one request after another, until the block ends."""

    def __init__(self, folder: Path, *, is_on_cpu: bool) -> None:
        hidden_gpus = {"CUDA_VISIBLE_DEVICES": ""} if is_on_cpu else {}
        # It finds what this process has found, wherever either of them was started.
        paths = os.pathsep.join(filter(None, sys.path))
        folders = {"PYTHONPATH": paths, "MEGATRON_CONFIG_LOCK_DIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
        self._log = folder / _LOG
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bridgepack.canaries.processes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env={**os.environ, **COMPUTING, **hidden_gpus, **folders},
            )

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # and so its ranks
        self._process.wait()

    def open(self, recipe: dict[str, Any], artifact: Path | None, folder: Path) -> HostFacts:
        """Load a recipe, in plain values; a model of its family goes to the folder where its own is not here.

        Raises:
            ConfigError: it cannot be loaded here, or the canary does not cover its model.
        """
        answer = self._ask(
            {"kind": "open", "recipe": recipe, "artifact": str(artifact or folder), "folder": str(folder)}
        )
        return HostFacts(**{**answer, "notes": tuple(answer["notes"])})

    def run(self, request: RunRequest) -> RunOutcome:
        """Run a step and return the records of its ranks; raises ConfigError if the process ended."""
        answer = self._ask({"kind": "run", "run": asdict(request)})
        paths = (Path(request.folder) / f"rank{rank}.pickle" for rank in range(request.topology.world_size))
        # our own process wrote them into our folder
        ranks = tuple(pickle.loads(path.read_bytes()) for path in paths if path.is_file())  # noqa: S301
        return RunOutcome(
            exit_codes=tuple(answer["exit_codes"]), ranks=ranks, tail=answer["tail"], reason=answer["reason"]
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            tail = "\n".join(f"  {line}" for line in _last_lines(self._log))
            why = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise ConfigError(f"the process that runs Megatron-Bridge {why}. Its last lines:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ConfigError(answer["error"])
        return answer


#: PR_SET_PDEATHSIG of linux/prctl.h: no process outlives the one that started it.
_SET_DEATH_SIGNAL = 1


def main() -> int:
    """Answer requests until there are no more."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    config: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["kind"] == "open":
                config, answer = _open_container(request)
            else:
                answer = _run(
                    config, RunRequest(**{**request["run"], "topology": Topology(**request["run"]["topology"])})
                )
        except BridgepackError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
    return 0


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, where the kernel can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _open_container(request: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    from bridgepack.canaries.host import open_container

    config, facts = open_container(request)
    for name in ("gpt_step", "train", "setup", "utils.train_utils"):
        import_host(f"training.{name}")
    return config, asdict(facts)


def _run(config: Any, request: RunRequest) -> dict[str, Any]:
    """Run a step on as many processes as it has ranks; where one fails, the others are ended."""
    gc.freeze()  # what ranks share is not looked through again, which would also copy it
    fork = multiprocessing.get_context("fork")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    ranks = [
        fork.Process(target=_rank, args=(config, request, rank, port)) for rank in range(request.topology.world_size)
    ]
    for process in ranks:
        process.start()
    end = time.monotonic() + request.timeout_s
    while (remaining_s := end - time.monotonic()) > 0 and not any(process.exitcode for process in ranks):
        running = [process.sentinel for process in ranks if process.exitcode is None]
        if not running:
            break
        wait(running, remaining_s)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
        process.join()
    failed_rank = next((rank for rank, code in enumerate(codes) if code), None)
    tail = [] if failed_rank is None else _last_lines(Path(request.folder) / f"rank{failed_rank}.log")
    reason = _reason(tail, failed_rank, codes)
    if failed_rank is None and None in codes:
        reason = f"it did not end within {request.timeout_s:.0f} s"
    return {"exit_codes": codes, "tail": "\n".join(tail), "reason": reason}


def _rank(config: Any, request: RunRequest, rank: int, port: int) -> None:
    """Be one rank of the step; what it prints goes to a file of its own."""
    die_with_parent()
    log = os.open(Path(request.folder) / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.dump_traceback_later(0.95 * request.timeout_s)
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request.topology.world_size, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in variables.items()}})
    if request.kernel == "reference":
        from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

        run_cuda_calls_on_cpu(is_wide=request.precision == "float64")
        run_the_rest_on_cpu()
    from bridgepack.canaries.step import Step

    step = Step(config, request)
    try:
        step.run()
    finally:
        Path(request.folder, f"rank{rank}.pickle").write_bytes(pickle.dumps(step.record()))


def _last_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [line for line in lines if line.strip()][-_TAIL_LINES:]


def _reason(tail: list[str], failed_rank: int | None, codes: Sequence[int | None]) -> str:
    if failed_rank is None:
        return ""
    code = codes[failed_rank]
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", most often because memory ran out" if -code == signal.SIGKILL else ""
        return f"rank {failed_rank} was killed by {name}{hint}"
    error = next((line for line in reversed(tail) if not line.startswith((" ", "["))), "no message")
    return f"rank {failed_rank}: {error}"


if __name__ == "__main__":
    sys.exit(main())
