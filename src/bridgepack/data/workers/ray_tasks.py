"""Runs tasks in a Ray worker, which prepares itself once."""

import faulthandler
import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from bridgepack.data.identity import code_digest, library_versions
from bridgepack.data.tasks import Beat, InThisProcess, TaskFailure, is_meant_for_users
from bridgepack.data.tokenizers.frameworks import hide_frameworks, import_transformers
from bridgepack.data.workers.memory import MIN_WORKER_BYTES, collect_rarely, memory_share
from bridgepack.data.workers.pool import STALL_S
from bridgepack.data.workers.process import ENVIRONMENT, limit_memory
from bridgepack.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """Setup of a process before it runs tasks."""

    folders: tuple[str, ...]  #: folders that every node must see; relative paths start at the first
    memory_bytes: int | None  #: memory that a build may use on each machine; by default a share of free memory
    #: loads what tasks need and returns the tokenizer's identity; None if they need nothing
    load: Callable[[], Mapping[str, Any]] | None = None
    identity: Mapping[str, Any] | None = None  #: required result of `load`, so that every node makes the same tokens
    #: required software: library -> version, with Python's version and a digest of bridgepack's source
    software: Mapping[str, str] = field(default_factory=lambda: _software())


def run_task(setup: bytes, call: bytes, num_slots: int) -> bytes:
    """Return the pickled outcome of a task: its result, a TaskFailure, or the error that it raised for users.

    Pickled, because Ray returns arrays as views of its own memory, which would never be freed; `setup`, a WorkerSetup,
    and `call`, (function, task), are too. `num_slots` are concurrent tasks on this machine.
    """
    outcome: Any
    try:
        function, task = pickle.loads(call)  # noqa: S301 (from the build itself, through Ray)
        _prepare(setup, num_slots)
        outcome = InThisProcess().run_alone(partial(_watch, function), task)
    except Exception as error:
        if not is_meant_for_users(error):
            raise
        outcome = error
    finally:
        faulthandler.cancel_dump_traceback_later()
    if isinstance(outcome, TaskFailure):
        outcome = replace(outcome, task=None)
    return pickle.dumps(outcome)


def _watch(function: Callable[[Any, Beat], Any], task: Any, beat: Beat) -> Any:
    """Return a task's result; ends this process if the heartbeat stalls, and Ray then restarts the task."""

    def beat_and_wait(number: int) -> None:
        beat(number)
        if number < 0:
            faulthandler.cancel_dump_traceback_later()
        else:
            faulthandler.dump_traceback_later(STALL_S, exit=True)

    return function(task, beat_and_wait)


@lru_cache(maxsize=1)
def _prepare(setup: bytes, num_slots: int) -> None:
    """Load what tasks need, once per Ray worker, and limit its memory.

    Raises:
        ConfigError: names the machine, and what is missing there or differs from the build's machine.
        BridgepackError: the tokenizer cannot be loaded.
    """
    worker_setup: WorkerSetup = pickle.loads(setup)  # noqa: S301 (from the build itself, through Ray)
    node, software = f"the Ray node {socket.gethostname()}", _software()
    if differences := [
        f"{name} {software.get(name)}" for name, text in worker_setup.software.items() if software.get(name) != text
    ]:
        raise ConfigError(
            f"{node} has software that differs from the build's machine: {', '.join(differences)}. Install the same "
            "versions everywhere; otherwise the artifact's bytes would depend on the nodes."
        )
    if missing_folders := [folder for folder in worker_setup.folders if not Path(folder).is_dir()]:
        raise ConfigError(
            f"{node} does not see {missing_folders[0]!r}. The current folder, --output and --store must be on a file "
            "system that all nodes share."
        )
    os.chdir(worker_setup.folders[0])
    os.environ.update(ENVIRONMENT)
    collect_rarely()
    hide_frameworks()
    if worker_setup.load:  # it imports transformers, which takes twice as long otherwise
        import_transformers()
    identity, build_identity = worker_setup.load() if worker_setup.load else {}, worker_setup.identity or {}
    if names := sorted(name for name in {*identity, *build_identity} if identity.get(name) != build_identity.get(name)):
        raise ConfigError(
            f"{node} has a tokenizer that differs from the build's machine in {', '.join(names)}. Install the same "
            "versions there, and name a tokenizer folder that all nodes share."
        )
    limit_memory(max(memory_share(worker_setup.memory_bytes) // max(num_slots, 1), MIN_WORKER_BYTES))


def _software() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:2])), **library_versions()}
    return {"bridgepack's source": code_digest(), **versions}
