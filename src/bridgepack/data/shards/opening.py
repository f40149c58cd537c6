"""Finds Parquet files whose footers crash the process that opens them, before this process opens them.

Some damaged footers make Arrow's C++ code abort instead of raising. A file that matches the manifest is opened
directly; any other file is first opened in a child process.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bridgepack.data.reading.cloud_path import CloudPath

#: Reason for files that cannot be opened in a child process, because they are not local.
_NOT_RECORDED = "it does not match the manifest and is in an object store; copy it to this machine to see more"
#: Reads every part of a footer that is used, and prints a line per file; Arrow's exceptions will occur again later.
_OPEN_FOOTERS = """
import resource, sys
import pyarrow.parquet as pq
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for path in sys.stdin.read().split("\\0"):
    try:
        with pq.ParquetFile(path) as file:
            file.schema_arrow
            for group in range(file.metadata.num_row_groups):
                file.metadata.row_group(group).to_dict()
    except Exception:
        pass
    print(flush=True)
"""


def why_not_openable(paths: Sequence[Path]) -> dict[Path, str]:
    """Return path -> how opening it crashes a process, for files that do; each crash starts another child process.

    Returns nothing if child processes cannot run at all.
    """
    reasons: dict[Path, str] = {}
    waiting = [path for path in paths if not isinstance(path, CloudPath)]
    reasons |= {path: _NOT_RECORDED for path in paths if isinstance(path, CloudPath)}
    while waiting:
        names = "\0".join(map(str, waiting))
        child = subprocess.run(
            [sys.executable, "-c", _OPEN_FOOTERS], input=names, capture_output=True, text=True, check=False
        )
        num_opened = child.stdout.count("\n")
        if child.returncode >= 0 or num_opened == len(waiting):
            break
        name, said = signal.Signals(-child.returncode).name, " ".join(child.stderr.split())[:200]
        reasons[waiting[num_opened]] = f"opening it crashes the process with {name}" + (f": {said}" if said else "")
        waiting = waiting[num_opened + 1 :]
    return reasons
