"""The benchmark as a Markdown page: what ran where, the table, and whether the rows were the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchlib.machine import machine_line
from benchlib.settings import FIRST_FIT_SHUFFLE, LOSS_MODE, PACKED_SEQUENCE_SIZE, PAD_SEQ_TO_MULT, SEED
from benchlib.table import markdown_table

_ROWS_EQUAL = {True: "the same", False: "**different**", None: "not compared"}


def markdown_report(result: Mapping[str, Any]) -> str:
    """Return the page; `result` is what the JSON file holds."""
    settings, sizes = result["settings"], result["sizes"]
    equal = "; ".join(f"{size['num_rows']:,} rows: {_ROWS_EQUAL[size['rows_equal']]}" for size in sizes)
    repeated = [size for size in sizes if size["num_distinct_rows"] < size["num_rows"]]
    lines = [
        "# bridgepack build against Megatron-Bridge's preparation",
        "",
        machine_line(result["machine"]),
        "",
        f"Data: {settings['data']}; tokenizer: {settings['tokenizer']}.",
        f"packed_sequence_size {PACKED_SEQUENCE_SIZE}, pad_seq_to_mult {PAD_SEQ_TO_MULT}, loss_mode {LOSS_MODE}, "
        f"seed {SEED}. Medians of {settings['repeats']}, each build in a fresh process, the builds taking turns. "
        "`build s` is without Python's start and imports. Memory is of the process with all it started, shared pages "
        "once. The last four columns are upstream's best, for each by itself, divided by bridgepack's.",
        "",
        markdown_table(sizes),
        f"Packed rows of both sides with {FIRST_FIT_SHUFFLE}: {equal}.",
        *(f"{size['num_rows']:,} rows are {size['num_distinct_rows']:,} chats over and over." for size in repeated),
    ]
    return "\n".join(lines) + "\n"
