"""The file system of this machine, for rules on runs."""

import glob
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path


class Files:
    """Files of this machine, as the run will see them; an unreadable path counts as missing."""

    def exists(self, path: str) -> bool:
        """Return whether the file or folder exists."""
        return os.path.exists(path)  # noqa: PTH110 (says False for a path that cannot be read)

    def is_folder(self, path: str) -> bool:
        """Return whether the path is an existing folder."""
        return os.path.isdir(path)  # noqa: PTH112

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if it is not a folder."""
        with suppress(OSError):
            return tuple(sorted(os.listdir(folder)))  # noqa: PTH208
        return ()

    def matches(self, pattern: str) -> tuple[str, ...]:
        """Return the paths that match a shell pattern (`*`, `?`, not recursive), sorted."""
        return tuple(sorted(glob.glob(pattern)))  # noqa: PTH207 (as the host resolves it)

    def num_bytes(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it is not a file."""
        with suppress(OSError):
            return Path(path).stat().st_size if Path(path).is_file() else None
        return None

    def num_lines(self, path: str, *, at_most: int) -> int | None:
        """Return the number of non-blank lines of a file, at most `at_most`; None if it cannot be read."""
        if not Path(path).is_file():
            return None
        with suppress(OSError), Path(path).open("rb") as file:
            return sum(1 for _ in islice(filter(bytes.strip, file), at_most))
        return None

    def modified_s(self, path: str) -> float | None:
        """Return a path's modification time in seconds since the epoch; None if it does not exist."""
        with suppress(OSError):
            return Path(path).stat().st_mtime
        return None

    def is_writable(self, path: str) -> bool:
        """Return whether a file can be created in the folder, or in the nearest existing parent folder."""
        folder = Path(path).absolute()
        while not self.exists(str(folder)) and folder != folder.parent:
            folder = folder.parent
        return os.access(folder, os.W_OK)
