"""Starts the process with the host imported, sends it requests for steps, and ends it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bridgepack.canary.cpu import COMPUTING
from bridgepack.canary.records import HostFacts, RunOutcome, RunRequest
from bridgepack.errors import ConfigError

_LOG = "host.log"
_ANSWER_TAIL_LINES = 12


class HostProcess(AbstractContextManager["HostProcess"]):
    """A process that answers one request after another, until the block ends."""

    def __init__(self, folder: Path, *, is_on_cpu: bool) -> None:
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if is_on_cpu else {}
        # It finds what this process has found, wherever either of them was started.
        paths = os.pathsep.join(filter(None, sys.path))
        own = {"PYTHONPATH": paths, "MEGATRON_CONFIG_LOCK_DIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
        self._log = folder / _LOG
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bridgepack.canary.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env={**os.environ, **COMPUTING, **hidden, **own},
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
        """Run a step and return the records of its ranks.

        Raises:
            ConfigError: the process ended.
        """
        answer = self._ask({"kind": "run", "run": asdict(request)})
        paths = (Path(request.folder) / f"rank{rank}.pickle" for rank in range(request.layout.world_size))
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
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            tail = "\n".join(f"  {line}" for line in lines[-_ANSWER_TAIL_LINES:])
            why = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise ConfigError(f"the process that runs Megatron-Bridge {why}. Its last lines:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ConfigError(answer["error"])
        return answer
