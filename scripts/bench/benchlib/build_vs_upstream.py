"""`bridgepack build` against Megatron-Bridge's own preparation: measures both and writes a table and a JSON file."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchlib.chats import read_chats, train_tokenizer, write_chats
from benchlib.comparison import compare
from benchlib.machine import describe_machine, load_average
from benchlib.options import parse, settings_of
from benchlib.report import markdown_report
from benchlib.runs import Inputs
from benchlib.variants import variants_for
from bridgepack.errors import BridgepackError

_tell = partial(print, file=sys.stderr, flush=True)


def run(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Return the machine, the settings and what was found at every size, as plain values."""
    chats, sizes = read_chats(options.data, scratch), []
    tokenizer = options.tokenizer or train_tokenizer(chats, scratch)
    variants = variants_for(options.workers, options.upstream_workers)
    machine = {**describe_machine(), "load_averages": [load_average()]}
    for num_rows in options.rows:
        data = scratch / f"{num_rows}.jsonl"
        size = {"num_rows": num_rows, "num_distinct_rows": write_chats(chats, num_rows, data)}
        inputs = Inputs(data=data, tokenizer=tokenizer, limit_s=options.limit)
        found = compare(variants, inputs, scratch / "builds", num_repetitions=options.repeats, tell=_tell)
        sizes.append({**size, "num_bytes": data.stat().st_size, **found})
        machine["load_averages"].append(load_average())
    return {"machine": machine, "settings": settings_of(options), "sizes": sizes}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write both files, print the table and return the exit code."""
    options = parse(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bridgepack-bench-") as scratch:
            result = run(options, Path(scratch))
    except BridgepackError as error:
        _tell(f"error: {error}")
        return 2
    target = options.output / "build_vs_upstream"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".json").write_text(json.dumps(result, indent=2, default=str) + "\n", encoding="utf-8")
    target.with_suffix(".md").write_text(report := markdown_report(result), encoding="utf-8")
    print(report, end="")
    return 0 if all(size["rows_equal"] is not False for size in result["sizes"]) else 1


if __name__ == "__main__":
    sys.exit(main())
