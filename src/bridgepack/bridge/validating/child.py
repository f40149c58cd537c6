"""The process that has the host imported and is asked once: a pickled question on standard input, JSON as answer.

`python -m bridgepack.bridge.validating.child SCRATCH`; Python calls that would write outside SCRATCH, start a process
or connect are refused.
"""

import ctypes
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bridgepack.bridge.imports import HostImportError, import_host
from bridgepack.bridge.validating.verdict import CannotAskError, Question, verdict_of, with_overrides
from bridgepack.errors import ConfigError
from bridgepack.records import HostVerdict

#: PR_SET_PDEATHSIG of linux/prctl.h: no process outlives the one that started it.
_SET_DEATH_SIGNAL = 1
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events of changes -> positions of the paths that they change.
_CHANGES = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), (0, 1)),
}
_PROCESSES = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"})

#: Their second argument is the address.
_CONNECTIONS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


def main() -> int:
    """Answer one question."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the host prints is no answer
    try:
        verdict = _verdict(sys.stdin.buffer.read(), Path(sys.argv[1]).resolve())
    except HostImportError as error:
        verdict = HostVerdict(state="not importable", reason=error.reason)
    except ConfigError as error:
        verdict = HostVerdict(state="not importable", reason=str(error))
    except CannotAskError as error:
        verdict = HostVerdict(state="not judged", reason=str(error))
    json.dump(asdict(verdict), answers)
    answers.close()
    return 0


def _verdict(text: bytes, scratch: Path) -> HostVerdict:
    question: Question = pickle.loads(text)  # noqa: S301  # the process that started this one wrote it
    import_host("recipes")
    _ask_once_for_models()
    config = with_overrides(_live(question.pickled), question.overrides) if question.pickled else None
    return verdict_of(question, config, guard=_nothing_reaches_the_machine(scratch))


def _ask_once_for_models() -> None:
    """Keep the host from trying again, with longer and longer pauses, for the config of a model that is not here."""
    auto_bridge = import_host("models.conversion.auto_bridge")
    auto_bridge.safe_load_config_with_retry = partial(auto_bridge.safe_load_config_with_retry, max_retries=0)


def _live(container_pickle: bytes) -> Any:
    try:
        return pickle.loads(container_pickle)  # noqa: S301
    # Every class in it may fail in its own way.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise CannotAskError(f"the ConfigContainer cannot be handed to another process: {reason}") from error


@contextmanager
def _nothing_reaches_the_machine(scratch: Path) -> Iterator[None]:
    """Refuse writing outside a folder, starting processes and connecting; Python calls the hook before it does them."""
    is_on = [True]

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if not is_on[0]:
            return
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
            _require_inside(scratch, arguments[0])
        for position in _CHANGES.get(event, ()):
            _require_inside(scratch, arguments[position])
        if event in _PROCESSES:
            raise PermissionError(f"starts a process ({event}), which is not allowed here")
        if event in _CONNECTIONS:
            raise PermissionError(f"connects to {arguments[1]!r} ({event}), which is not allowed here")

    sys.addaudithook(refuse)
    try:
        yield
    finally:
        is_on[0] = False


def _require_inside(scratch: Path, path: Any) -> None:
    """Raise `PermissionError` unless a path is in the folder, or is a file descriptor or a device."""
    if isinstance(path, int):
        return
    place = Path(os.fsdecode(path)).resolve()
    is_device = place.is_relative_to("/dev") and not place.is_relative_to("/dev/shm")  # which holds ordinary files
    if not place.is_relative_to(scratch) and not is_device:
        raise PermissionError(f"writes {str(place)!r}, which is not allowed here")


if __name__ == "__main__":
    sys.exit(main())
