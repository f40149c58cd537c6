"""Rows of SECURITY.md's table whose lines start jobs, shown by what is planted; `test_canary.py` has the other.

Each of the five lines starts processes of its own; those that ask the host are forks of one that has it.
"""

from pathlib import Path

import pytest

from tests.support.planted_world import done_and_expected
from tests.support.small_builds import Command


@pytest.mark.usefixtures("asks_in_forks")
@pytest.mark.parametrize("name", ["check --real-validate", "launch"])
def test_each_cell_is_what_happens(
    name: str,
    chatml_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "call"))  # where a user's own module is installed
    done, expected = done_and_expected(name, tmp_path, chatml_tokenizer, monkeypatch, command)
    assert done == expected
