"""The process that has the host imported, and forks the ranks of each step off itself.

Usage: python -m bridgepack.canary.worker, with one JSON request a line on standard input, and one answer a line on
standard output. It ends when standard input does, or the process that started it.
"""

import ctypes
import dataclasses
import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from bridgepack.canary.records import Layout, RunRequest
from bridgepack.errors import BridgepackError

#: PR_SET_PDEATHSIG of linux/prctl.h: no process outlives the one that started it.
_SET_DEATH_SIGNAL = 1
_TAIL_LINES = 12


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
                config, answer = _opened(request)
            else:
                answer = _run(config, RunRequest(**{**request["run"], "layout": Layout(**request["run"]["layout"])}))
        except BridgepackError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
    return 0


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, where the kernel can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _opened(request: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    from bridgepack.canary.host import opened

    config, facts = opened(request)
    for name in ("gpt_step", "train", "setup", "utils.train_utils"):
        importlib.import_module(f"megatron.bridge.training.{name}")
    return config, dataclasses.asdict(facts)


def _run(config: Any, request: RunRequest) -> dict[str, Any]:
    """Run a step on as many processes as it has ranks; where one fails, the others are ended."""
    gc.freeze()  # what ranks share is not looked through again, which would also copy it
    fork = multiprocessing.get_context("fork")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    ranks = [
        fork.Process(target=_rank, args=(config, request, rank, port)) for rank in range(request.layout.world_size)
    ]
    for process in ranks:
        process.start()
    end = time.monotonic() + request.timeout_s
    while (left := end - time.monotonic()) > 0 and not any(process.exitcode for process in ranks):
        running = [process.sentinel for process in ranks if process.exitcode is None]
        if not running:
            break
        wait(running, left)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
        process.join()
    failed = next((rank for rank, code in enumerate(codes) if code), None)
    tail = [] if failed is None else _last_lines(Path(request.folder) / f"rank{failed}.log")
    reason = _reason(tail, failed, codes)
    if failed is None and None in codes:
        reason = f"it did not end within {request.timeout_s:.0f} s"
    return {"exit_codes": codes, "tail": "\n".join(tail), "reason": reason}


def _rank(config: Any, request: RunRequest, rank: int, port: int) -> None:
    """Be one rank of the step; what it prints goes to a file of its own."""
    die_with_parent()
    log = os.open(Path(request.folder) / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.dump_traceback_later(0.95 * request.timeout_s)
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request.layout.world_size, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in own.items()}})
    if request.kernel == "reference":
        from bridgepack.canary.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

        run_cuda_calls_on_cpu(is_wide=request.precision == "float64")
        run_the_rest_on_cpu()
    from bridgepack.canary.step import Step

    step = Step(config, request)
    try:
        step.run()
    finally:
        Path(request.folder, f"rank{rank}.pickle").write_bytes(pickle.dumps(step.seen()))


def _last_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [line for line in lines if line.strip()][-_TAIL_LINES:]


def _reason(tail: list[str], failed: int | None, codes: Sequence[int | None]) -> str:
    if failed is None:
        return ""
    code = codes[failed]
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", most often because memory ran out" if -code == signal.SIGKILL else ""
        return f"rank {failed} was killed by {name}{hint}"
    error = next((line for line in reversed(tail) if not line.startswith((" ", "["))), "no message")
    return f"rank {failed}: {error}"


if __name__ == "__main__":
    sys.exit(main())
