"""Finds Parquet files whose footers end the process that opens them, before this one does.

Some damaged footers make Arrow's C++ code abort instead of raising. A file that is what a manifest says is opened as it
is; any other one is opened in a child process first.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bridgepack.data.reading.cloud_path import CloudPath

#: Said of what nobody opens, for a child process has no file of it.
_NOT_RECORDED = "it is not what the manifest says, and lies in an object store; copy it to this machine to see more"
#: Reads all that is read of a footer, and says so of each file; what Arrow raises, it raises again where it matters.
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
    """Return how opening ends a process, for each file that does; they are opened in one child, and one more for each.

    Where the child cannot run at all, nothing is known and nothing is returned.
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
        reasons[waiting[num_opened]] = f"opening it ends the process with {name}" + (f": {said}" if said else "")
        waiting = waiting[num_opened + 1 :]
    return reasons
