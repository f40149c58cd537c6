"""`bridgepack check` against reading the same artifact: measures both and writes a table and a JSON file."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchlib.check_options import parse_check
from benchlib.check_report import check_report
from benchlib.check_runs import compare
from benchlib.check_side import CHECK, READ
from benchlib.machine import describe_machine, load_average
from benchlib.packs import write_packs


def sizes(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield what was found for each number of rows and of processes."""
    for num_rows in options.rows:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            write_packs(Path(folder), num_rows, options.packed_sequence_size)
            num_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
            for num_workers in options.workers:
                yield {"num_bytes": num_bytes, **compare(Path(folder), num_workers, options, scratch)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write both files and print the table; return 1 where checking is slower than half of reading."""
    options = parse_check(arguments)
    loads = [load_average()]
    with tempfile.TemporaryDirectory(prefix="bridgepack-bench-") as scratch:
        found = list(sizes(options, Path(scratch)))
    machine = {**describe_machine(), "load_averages": [*loads, load_average()]}
    settings = {name: value for name, value in vars(options).items() if name != "output"}
    result = {"machine": machine, "settings": settings, "sizes": found}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "check_speed.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (options.output / "check_speed.md").write_text(report := check_report(result), encoding="utf-8")
    print(report, end="")
    medians = [size["medians"] for size in found]
    return int(any(median[CHECK]["seconds"] > 2 * median[READ]["seconds"] for median in medians))


if __name__ == "__main__":
    sys.exit(main())
