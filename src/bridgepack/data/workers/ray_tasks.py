"""What a Ray worker does with a task: run it with what it loaded once, or hand it to a process that may die."""

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

from bridgepack.data.identity import library_versions
from bridgepack.data.store.keys import code_digest
from bridgepack.data.tasks import Beat, InThisProcess, TaskFailure, is_meant_for_users
from bridgepack.data.tokenizers.frameworks import hide_frameworks
from bridgepack.data.workers.memory import MIN_WORKER_BYTES, collect_rarely, memory_share
from bridgepack.data.workers.pool import STALL_S, WorkerPool
from bridgepack.data.workers.process import ENVIRONMENT, PACKING, TOKENISING, limit_memory, preload
from bridgepack.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """What a process needs before it runs tasks."""

    folder: str  #: that relative paths start at
    memory_bytes: int | None  #: that a build may use on each machine; by default a share of what is free there
    #: loads what tasks need and returns the tokenizer's identity; None where tasks need nothing
    load: Callable[[], Mapping[str, Any]] | None = None
    identity: Mapping[str, Any] | None = None  #: what it must return, so that every node makes the same tokens
    marks: Mapping[str, str] = field(default_factory=dict)  #: file in a folder that all nodes must share -> its text
    #: what a node must have, too: library -> version, Python's, and a digest of bridgepack's source
    software: Mapping[str, str] = field(default_factory=lambda: _software())


def run_task(setup: bytes, call: bytes, num_slots: int) -> bytes:
    """Return what became of a task, pickled: ("done", result or TaskFailure), or ("error", what it raised for users).

    Bytes, because Ray hands out arrays as views of its own memory, which would never be free again.

    Args:
        setup: a WorkerSetup, pickled.
        call: function and task, pickled.
        num_slots: tasks that this machine runs at a time.
    """

    def run(function: Callable[[Any, Beat], Any], task: Any) -> Any:
        _prepare(setup, num_slots)
        try:
            return InThisProcess().run_alone(partial(_watched, function), task)
        finally:
            faulthandler.cancel_dump_traceback_later()

    return _pickled(run, call)


def run_task_apart(setup: bytes, call: bytes) -> bytes:
    """Return the same of a task that may end its process: in one of its own, so that its last sign of life is known."""

    def run(function: Callable[[Any, Beat], Any], task: Any) -> Any:
        wanted = _checked(setup)
        preload(PACKING if wanted.load is None else TOKENISING)
        with WorkerPool(memory_bytes=memory_share(wanted.memory_bytes), warm_up=wanted.load) as pool:
            return pool.run_alone(function, task)

    return _pickled(run, call)


def _pickled(run: Callable[..., Any], call: bytes) -> bytes:
    try:
        outcome = run(*pickle.loads(call))  # noqa: S301 (Ray brought it from the build itself)
    except Exception as error:
        if not is_meant_for_users(error):
            raise
        return pickle.dumps(("error", error))
    if isinstance(outcome, TaskFailure):
        outcome = replace(outcome, task=None)
    return pickle.dumps(("done", outcome), protocol=pickle.HIGHEST_PROTOCOL)


def _watched(function: Callable[[Any, Beat], Any], task: Any, beat: Beat) -> Any:
    """Run a task that ends this process when it shows no sign of life; Ray then begins it again."""

    def seen(number: int) -> None:
        beat(number)
        if number < 0:
            faulthandler.cancel_dump_traceback_later()
        else:
            faulthandler.dump_traceback_later(STALL_S, exit=True)

    return function(task, seen)


@lru_cache(maxsize=1)
def _prepare(setup: bytes, num_slots: int) -> None:
    """Load what tasks need, once in a Ray worker, and limit the memory that they may take.

    Raises:
        ConfigError: as `_checked`; or the tokenizer is another one here.
        BridgepackError: when the tokenizer cannot be loaded.
    """
    wanted = _checked(setup)
    collect_rarely()
    hide_frameworks()
    found, expected = wanted.load() if wanted.load else {}, wanted.identity or {}
    names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    if names:
        raise ConfigError(
            f"the tokenizer is another one on {socket.gethostname()} than where the build began: {', '.join(names)} "
            "differ. Install the same versions there, and name a tokenizer folder that all nodes share."
        )
    limit_memory(max(memory_share(wanted.memory_bytes) // max(num_slots, 1), MIN_WORKER_BYTES))


@lru_cache(maxsize=1)
def _checked(setup: bytes) -> WorkerSetup:
    """Return a setup, once this process is where the build began, and what it has is the same.

    Raises:
        ConfigError: naming the machine, and what is another one or missing.
    """
    wanted: WorkerSetup = pickle.loads(setup)  # noqa: S301 (Ray brought it from the build itself)
    host, here = socket.gethostname(), _software()
    other = [f"{name} {here.get(name)}" for name, text in wanted.software.items() if here.get(name) != text]
    if other:
        raise ConfigError(
            f"the Ray node {host} has other software than where the build began: {', '.join(other)}. Install the same "
            "versions everywhere; otherwise the bytes would depend on which node made them."
        )
    unseen = [str(Path(name).parent) for name, text in wanted.marks.items() if not _is_seen(Path(name), text)]
    if unseen:
        raise ConfigError(
            f"the Ray node {host} does not see, or cannot write, {unseen[0]!r}. --output and --store must be on a file "
            "system that all nodes share."
        )
    try:
        os.chdir(wanted.folder)
    except OSError as error:
        raise ConfigError(
            f"the Ray node {host} has no folder {wanted.folder!r} ({error.strerror}), which relative paths start "
            "at. Begin the build in a folder that all nodes share."
        ) from None
    os.environ.update(ENVIRONMENT)
    return wanted


def _software() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:2])), **library_versions()}
    return {"bridgepack's source": code_digest(), **versions}


def _is_seen(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path.parent, os.W_OK)
    except OSError:
        return False
