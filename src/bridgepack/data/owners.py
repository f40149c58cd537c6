"""Who owns a folder, by a file that is created exclusively and names its process.

For file systems without flock, and for folders that several machines write to.
Weaker than flock, which ends with its process: what a killed process leaves is taken over only where that process is
seen to be gone, so on the same machine; or by the same work on another one, as where a scheduler moved it.
"""

import errno
import json
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bridgepack.user_files import read_text

#: Errors of flock on file systems without it, such as Lustre that is mounted without it.
WITHOUT_FLOCK = frozenset({errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP})
_START_FIELD = 19  # of /proc/PID/stat, behind the name in brackets; the first one there is the state
_ENDED_STATES = ("Z", "X")


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process of a machine."""

    host: str  #: name of the machine
    machine: str  #: its boot, and the process's namespace of ids: what must be equal for `pid` to mean the same
    pid: int
    started: str  #: when the process started, as the kernel counts, so that another one with its id is another one
    since: str  #: time in words
    work: str = ""  #: what it does, so that the same again is told from something else; empty if that cannot be told
    fingerprint: str = ""  #: of the packs that it reads

    @classmethod
    def this_process(cls, *, work: str = "", fingerprint: str = "") -> "Owner":
        """Return the owner that this process is."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        pid = os.getpid()
        place = {"host": socket.gethostname(), "machine": _machine()}
        return cls(**place, pid=pid, started=_start_of(pid), since=now, work=work, fingerprint=fingerprint)

    @property
    def is_here(self) -> bool:
        """Whether the process is, or was, one of this machine, as it is since its start."""
        return bool(self.machine) and self.machine == _machine() and self.host == socket.gethostname()

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended; never of another machine."""
        return self.is_here and _start_of(self.pid) != self.started

    def is_process(self, process: "Owner") -> bool:
        """Return whether both are one process."""
        return (self.machine, self.pid, self.started) == (process.machine, process.pid, process.started)

    def continues(self, previous: "Owner") -> bool:
        """Return whether this does the same work on another machine, so that it goes on where that one ended."""
        is_same = bool(self.work) and (self.work, self.fingerprint) == (previous.work, previous.fingerprint)
        return is_same and not previous.is_here

    @property
    def text(self) -> str:
        """Return the owner in words."""
        return f"process {self.pid} on {self.host}, since {self.since}"


def claim(path: Path, process: Owner | None = None) -> Owner | None:
    """Make this process the owner that a file names; return None, or the other owner if it may live.

    The file of an owner that is gone, or whose work `process` continues, is taken over. An owner that cannot be read
    counts as living.

    Args:
        path: the file.
        process: this process, with its work.

    Raises:
        OSError: the file cannot be written.
    """
    process = process or Owner.this_process()
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            owner = _read(path)
            if not owner.is_gone and not process.continues(owner):
                return owner
            _set_aside(path, owner)
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(asdict(process), stream)
        return None


def release(path: Path) -> None:
    """Remove the file of an owner that this process is; another's stays."""
    with suppress(OSError):
        if _read(path).is_process(Owner.this_process()):
            path.unlink()


def _set_aside(path: Path, owner: Owner) -> None:
    """Remove the file of an owner that is gone, unless another process has taken it over meanwhile."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        path.rename(aside)
        if _read(aside) != owner:
            with suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()


def _read(path: Path) -> Owner:
    try:
        return Owner(**json.loads(read_text(path)))
    except FileNotFoundError:
        return Owner(host=socket.gethostname(), machine=_machine(), pid=0, started="gone", since="")
    except (OSError, ValueError, TypeError, RecursionError):
        return Owner(host="an unknown machine", machine="", pid=0, started="", since="an unknown time")


def _machine() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _start_of(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none, or it has ended."""
    with suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        fields = stat.rpartition(")")[2].split()
        return "" if fields[0] in _ENDED_STATES else fields[_START_FIELD]
    return ""
