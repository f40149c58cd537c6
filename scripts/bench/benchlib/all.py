"""All benchmarks: measures everything and writes one table and one JSON file."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from benchlib.all_options import parse_all
from benchlib.all_report import all_report
from benchlib.all_runs import run
from bridgepack.errors import BridgepackError


def main(arguments: list[str] | None = None) -> int:
    """Measure, write both files, print the table; return 1 where something is wrong beyond time."""
    options = parse_all(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bridgepack-bench-") as scratch:
            result = run(options, Path(scratch))
    except BridgepackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "all.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (options.output / "all.md").write_text(report := all_report(result), encoding="utf-8")
    print(report, end="")
    return int(any(finding["complaints"] for finding in result["findings"]))


if __name__ == "__main__":
    sys.exit(main())
