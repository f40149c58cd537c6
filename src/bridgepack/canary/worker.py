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
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.canary.records import Layout, RunRequest
from bridgepack.errors import BridgepackError

#: PR_SET_PDEATHSIG of linux/prctl.h: no process outlives the one that started it.
_SET_DEATH_SIGNAL = 1
_TAIL_LINES = 12
_POLL_S = 0.02
_FAILED = 70


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
    folder, port, size = Path(request.folder), _free_port(), request.layout.world_size
    gc.freeze()  # what ranks share is not looked through again, which would also copy it
    processes = {_forked(config, request, rank, port): rank for rank in range(size)}
    codes: dict[int, int | None] = {}
    begun = time.monotonic()
    while len(codes) < size and time.monotonic() - begun < request.timeout_s and not any(codes.values()):
        for process, rank in processes.items():
            if rank not in codes:
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    codes[rank] = os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    failed = next((rank for rank, code in codes.items() if code), None)
    is_late = failed is None and len(codes) < size
    for process, rank in processes.items():
        if rank not in codes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            codes[rank] = None
    tail = [] if failed is None else _last_lines(folder / f"rank{failed}.log")
    reason = f"it did not end within {request.timeout_s:.0f} s" if is_late else _reason(tail, failed, codes)
    return {"exit_codes": [codes[rank] for rank in range(size)], "tail": "\n".join(tail), "reason": reason}


def _forked(config: Any, request: RunRequest, rank: int, port: int) -> int:
    """Return the id of a process that is one rank of the step."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = _FAILED
    try:
        die_with_parent()
        target = os.open(Path(request.folder) / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        faulthandler.dump_traceback_later(0.95 * request.timeout_s)
        code = _rank(config, request, rank, port)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _rank(config: Any, request: RunRequest, rank: int, port: int) -> int:
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request.layout.world_size, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in own.items()}})
    if request.kernel == "reference":
        from bridgepack.canary.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

        run_cuda_calls_on_cpu(is_wide=request.precision == "float64")
        run_the_rest_on_cpu()
    from bridgepack.canary.step import Step, seen_path

    step = Step(config, request)
    try:
        step.run()
    finally:
        seen_path(request.folder, rank).write_bytes(pickle.dumps(step.seen()))
    return 0


def _last_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [line for line in lines if line.strip()][-_TAIL_LINES:]


def _reason(tail: list[str], failed: int | None, codes: Mapping[int, int | None]) -> str:
    """Return why a rank failed: its last error, or the signal that ended it."""
    if failed is None:
        return ""
    code = codes[failed]
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", most often for want of memory" if -code == signal.SIGKILL else ""
        return f"rank {failed} was ended by {name}{hint}"
    error = next((line for line in reversed(tail) if not line.startswith((" ", "["))), "no message")
    return f"rank {failed}: {error}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
