"""What the commands have in common: exit codes, and printing."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

CLEAN, FINDINGS, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130


def echo(text: str) -> None:
    """Print; a reader that has gone away, as `head` does, is no error."""
    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: Any) -> None:
    """Print plain values as one JSON document."""
    echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
