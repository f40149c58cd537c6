"""One measurement in this process. usage: MODULE:FUNCTION ARGUMENTS_AS_JSON RESULT."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchlib.cpu import cpu_seconds


@contextmanager
def timed(found: dict[str, float], prefix: str = "") -> Iterator[None]:
    """Put the seconds of a block, and the CPU seconds of this process and all it started, into `found`."""
    cpu_s, begin = cpu_seconds(), time.perf_counter()
    yield
    found[f"{prefix}seconds"] = time.perf_counter() - begin
    found[f"{prefix}cpu_s"] = cpu_seconds() - cpu_s


def main() -> None:
    function, arguments, result = sys.argv[1:]
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
