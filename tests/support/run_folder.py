"""The folder that a run of the tests works in: in memory where there is room, and gone with the run."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 4 << 30
_PREFIX = "bridgepack-tests-"
#: A file that a run holds a lock on as long as it lives.
_LOCK = "run.lock"


def folder_in_memory(memory: Path = MEMORY) -> Path | None:
    """Return a new folder, or None where memory has no 4 GB free or runs no programs; folders of killed runs go.

    The lock on a folder ends with its run: closing the file is left to the kernel.
    """
    if not memory.is_dir() or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return None
    _remove_abandoned(memory)
    if min(shutil.disk_usage(memory).free, _available_bytes()) < NEEDED_BYTES:
        return None
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=memory))
    lock = folder / f"{_LOCK}.new"
    fcntl.flock(os.open(lock, os.O_CREAT), fcntl.LOCK_EX)
    lock.rename(folder / _LOCK)  # only now does another run look at it
    return folder


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def _remove_abandoned(memory: Path) -> None:
    for lock in memory.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDONLY)
        except OSError:  # another user's, or just removed
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
