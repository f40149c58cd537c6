"""What a Ray worker does with a task: run it with what it loaded once."""

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
from bridgepack.data.workers.pool import STALL_S
from bridgepack.data.workers.process import ENVIRONMENT, limit_memory
from bridgepack.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """What a process needs before it runs tasks."""

    folders: tuple[str, ...]  #: that every node must see; relative paths start at the first
    memory_bytes: int | None  #: that a build may use on each machine; by default a share of what is free there
    #: loads what tasks need and returns the tokenizer's identity; None where tasks need nothing
    load: Callable[[], Mapping[str, Any]] | None = None
    identity: Mapping[str, Any] | None = None  #: what it must return, so that every node makes the same tokens
    #: what a node must have, too: library -> version, Python's, and a digest of bridgepack's source
    software: Mapping[str, str] = field(default_factory=lambda: _software())


def run_task(setup: bytes, call: bytes, num_slots: int) -> bytes:
    """Return what became of a task, pickled: its result, a TaskFailure, or the error that it raised for users.

    Bytes, because Ray hands out arrays as views of its own memory, which would never be free again.

    Args:
        setup: a WorkerSetup, pickled.
        call: function and task, pickled.
        num_slots: tasks that this machine runs at a time.
    """
    outcome: Any
    try:
        function, task = pickle.loads(call)  # noqa: S301 (Ray brought it from the build itself)
        _prepare(setup, num_slots)
        outcome = InThisProcess().run_alone(partial(_watched, function), task)
    except Exception as error:
        if not is_meant_for_users(error):
            raise
        outcome = error
    finally:
        faulthandler.cancel_dump_traceback_later()
    if isinstance(outcome, TaskFailure):
        outcome = replace(outcome, task=None)
    return pickle.dumps(outcome)


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
        ConfigError: naming the machine, and what is another one than where the build began, or missing.
        BridgepackError: when the tokenizer cannot be loaded.
    """
    wanted: WorkerSetup = pickle.loads(setup)  # noqa: S301 (Ray brought it from the build itself)
    node, here = f"the Ray node {socket.gethostname()}", _software()
    if other := [f"{name} {here.get(name)}" for name, text in wanted.software.items() if here.get(name) != text]:
        raise ConfigError(
            f"{node} has other software than where the build began: {', '.join(other)}. Install the same versions "
            "everywhere; otherwise the bytes would depend on which node made them."
        )
    if unseen := [folder for folder in wanted.folders if not Path(folder).is_dir()]:
        raise ConfigError(
            f"{node} does not see {unseen[0]!r}. The current folder, --output and --store must be on a file system "
            "that all nodes share."
        )
    os.chdir(wanted.folders[0])
    os.environ.update(ENVIRONMENT)
    collect_rarely()
    hide_frameworks()
    found, expected = wanted.load() if wanted.load else {}, wanted.identity or {}
    if names := sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name)):
        raise ConfigError(
            f"{node} has another tokenizer than where the build began: {', '.join(names)} differ. Install the same "
            "versions there, and name a tokenizer folder that all nodes share."
        )
    limit_memory(max(memory_share(wanted.memory_bytes) // max(num_slots, 1), MIN_WORKER_BYTES))


def _software() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:2])), **library_versions()}
    return {"bridgepack's source": code_digest(), **versions}
