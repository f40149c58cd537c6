"""What a Ray worker does with a task: hand it to a process of its own, which may die without the Ray worker."""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bridgepack.data.identity import library_versions
from bridgepack.data.store.keys import code_digest
from bridgepack.data.tasks import TaskFailure, is_meant_for_users
from bridgepack.data.workers.memory import MIN_WORKER_BYTES, memory_share
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.server_process import PACKING, TOKENISING, WorkerServer
from bridgepack.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """What a process needs before it runs tasks.

    Attributes:
        folder: that relative paths start at.
        memory_bytes: that a build may use on each machine; by default a share of what is free there.
        load: loads what tasks need and returns the tokenizer's identity; None where tasks need nothing.
        identity: what it must return, so that every node makes the same tokens.
        code: digest of bridgepack's source where the build began; nodes that join later must have it, too.
    """

    folder: str
    memory_bytes: int | None
    load: Callable[[], Mapping[str, Any]] | None = None
    identity: Mapping[str, Any] | None = None
    code: str = field(default_factory=code_digest)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a build must know of a node before it sends tasks there.

    Attributes:
        host: name of the machine.
        code: digest of bridgepack's source.
        versions: library -> version, and Python's.
        missing: shared folders that are not there, or not the same ones, or cannot be written.
    """

    host: str
    code: str
    versions: Mapping[str, str]
    missing: tuple[str, ...]


def run_task(setup: bytes, call: bytes, num_slots: int) -> bytes:
    """Return what became of a task, pickled: ("done", result or TaskFailure), or ("error", what it raised for users).

    Bytes, because Ray hands out arrays as views of its own memory, which would never be free again.

    Args:
        setup: a WorkerSetup, pickled.
        call: function and task, pickled.
        num_slots: tasks that this machine runs at a time.
    """
    try:
        function, task = pickle.loads(call)  # noqa: S301 (Ray brought it from the build itself)
        [outcome] = _pool(setup, num_slots).run(function, [task])
    except Exception as error:
        if not is_meant_for_users(error):
            raise
        return pickle.dumps(("error", error))
    if isinstance(outcome, TaskFailure):
        outcome = replace(outcome, task=None)
    return pickle.dumps(("done", outcome), protocol=pickle.HIGHEST_PROTOCOL)


def node_facts(marks: Mapping[str, str]) -> NodeFacts:
    """Return facts about the node that this runs on.

    Args:
        marks: file in a folder that all nodes must share -> its text.
    """
    missing = []
    for name, text in marks.items():
        path = Path(name)
        try:
            is_shared = path.read_text(encoding="utf-8") == text and os.access(path.parent, os.W_OK)
        except OSError:
            is_shared = False
        if not is_shared:
            missing.append(str(path.parent))
    return NodeFacts(
        host=socket.gethostname(), code=code_digest(), versions=software_versions(), missing=tuple(missing)
    )


def software_versions() -> dict[str, str]:
    """Return what must be the same wherever tasks run."""
    return {"python": ".".join(map(str, sys.version_info[:2])), **library_versions()}


def new_mark() -> str:
    """Return a text that no other build writes."""
    return secrets.token_hex(16)


@lru_cache(maxsize=1)
def _pool(setup: bytes, num_slots: int) -> WorkerPool:
    """Return a pool of one process, kept for the next task; it ends with the Ray worker.

    Raises:
        ConfigError: when bridgepack or the tokenizer is another one here.
        BridgepackError: when the tokenizer cannot be loaded.
    """
    wanted: WorkerSetup = pickle.loads(setup)  # noqa: S301 (Ray brought it from the build itself)
    if code_digest() != wanted.code:
        raise ConfigError(
            f"{socket.gethostname()} has another bridgepack than where the build began. Install the same one there."
        )
    server = WorkerServer(PACKING if wanted.load is None else TOKENISING)
    try:
        server.prepare(_ChangeFolder(wanted.folder))
        if wanted.load is not None:
            _refuse_other_identity(server.prepare(wanted.load), wanted.identity or {})
    except BaseException:
        server.close()
        raise
    share = max(memory_share(wanted.memory_bytes) // max(num_slots, 1), MIN_WORKER_BYTES)
    return WorkerPool(server=server, num_workers=1, memory_bytes=share)


@dataclass(frozen=True)
class _ChangeFolder:
    """Lets a process work in a folder."""

    folder: str

    def __call__(self) -> None:
        """Go there.

        Raises:
            ConfigError: when it is not there.
        """
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ConfigError(
                f"{socket.gethostname()} has no folder {self.folder!r} ({error.strerror}), which relative paths start "
                "at. Begin the build in a folder that all nodes share."
            ) from None


def _refuse_other_identity(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if found != wanted:
        names = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        raise ConfigError(
            f"the tokenizer is another one on {socket.gethostname()} than where the build began: {', '.join(names)} "
            "differ. Install the same versions there, and name a tokenizer folder that all nodes share."
        )
