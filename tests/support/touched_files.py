"""Which files of a folder are opened and which are written, by any process and any library: Linux's inotify."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = struct.Struct("iIII")
#: Events of `inotify(7)`.
_ACCESS, _MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE = 0x1, 0x2, 0x8, 0x80, 0x100, 0x200
_READS, _WRITES = _ACCESS, _MODIFY | _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE
_IS_FOLDER, _LOST = 0x40000000, 0x4000


@dataclass(frozen=True)
class TouchedFiles:
    """Paths below the folder, as text relative to it; of folders that are made meanwhile only themselves."""

    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


@contextmanager
def touched_files(root: Path) -> Iterator[TouchedFiles]:
    """Yield what is touched below a folder until the block ends; it is filled at the end."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    touched, folders = TouchedFiles(), {}
    try:
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
            watch = libc.inotify_add_watch(descriptor, os.fsencode(folder), _READS | _WRITES)
            assert watch >= 0, os.strerror(ctypes.get_errno())
            folders[watch] = folder.relative_to(root)
        yield touched
        for watch, event, name in _events(descriptor):
            assert not event & _LOST
            if event & _READS and not event & _IS_FOLDER:
                touched.read.add(str(folders[watch] / name))
            if event & _WRITES:
                touched.written.add(str(folders[watch] / name))
    finally:
        os.close(descriptor)


def _events(descriptor: int) -> Iterator[tuple[int, int, str]]:
    while True:
        try:
            content = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            return
        while content:
            watch, event, _, size = _HEADER.unpack_from(content)
            name, content = content[_HEADER.size : _HEADER.size + size], content[_HEADER.size + size :]
            yield watch, event, os.fsdecode(name.rstrip(b"\0"))
