"""How a launch tells of its tasks while it goes on, and how it ends when it is interrupted."""

from collections.abc import Callable
from pathlib import Path

from bridgepack.records.launches import LaunchResult, State

#: Called with a task's name and its new state.
type Listener = Callable[[str, State], None]
#: Lines of a log that are kept, bytes read from its end for them, and characters of a line.
_LOG_LINES, _LOG_BYTES, _LINE_WIDTH = 20, 50_000, 400


class LaunchInterrupt(KeyboardInterrupt):
    """The launch was interrupted; its processes on this machine have been ended.

    Attributes:
        result: the state of each task.
        code: exit code of a command that was interrupted so: 130, 143 by SIGTERM, 129 by SIGHUP.
    """

    def __init__(self, result: LaunchResult, code: int = 130) -> None:
        super().__init__("interrupted")
        self.result, self.code = result, code


def log_end(log: str) -> tuple[str, ...]:
    """Return the last lines of a log; empty if it is no file on this machine."""
    path = Path(log)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            content = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    lines = content.splitlines()[-_LOG_LINES:]
    return tuple(line if len(line) <= _LINE_WIDTH else f"{line[:_LINE_WIDTH]} ..." for line in lines)
