"""What is said of ranks that fail, and of the process that they are forked from."""

import sys
from pathlib import Path

import pytest

from bridgepack.canary.processes import HostProcess
from bridgepack.canary.worker import _reason
from bridgepack.errors import ConfigError


def test_the_last_error_is_the_reason() -> None:
    tail = ["Traceback (most recent call last):", '  File "step.py", line 1', "RuntimeError: sizes differ", "  ^^^"]

    assert _reason(tail, 2, [None, 0, 1]) == "rank 2: RuntimeError: sizes differ"
    assert _reason(tail, None, [0]) == ""


def test_a_rank_that_was_killed_most_often_wanted_memory() -> None:
    assert _reason([], 1, [None, -9]) == "rank 1 was killed by SIGKILL, most often because memory ran out"
    assert _reason([], 1, [None, -11]) == "rank 1 was killed by SIGSEGV"


def test_a_host_process_that_ends_is_told_with_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no memory left >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    with (
        HostProcess(tmp_path, is_on_cpu=True) as host,
        pytest.raises(ConfigError, match=r"(?s)ended with code 3\. Its last lines:\n  no memory left"),
    ):
        host.open({}, None, tmp_path)
