"""Forks of the process that has megatron-bridge imported: what they inherit, how they end, and that they do."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.host_forks import run_forked
from tests.support.processes import is_running, wait_until

pytestmark = [pytest.mark.bridge, pytest.mark.full]

_MODULE = """
import os, sys, time
print(os.getpid(), os.environ["WORD"], "megatron.bridge" in sys.modules, __name__, *sys.argv[1:], flush=True)
print("and this", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module in the working folder of the fork."""
    (tmp_path / "said.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    return "said"


def test_a_fork_has_the_host_and_its_own_arguments_variables_output_and_exit_code(module: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as output, (tmp_path / "errors").open("w") as errors:
        outputs = (output.fileno(), errors.fileno())
        assert run_forked(module, ["0", "b"], {**os.environ, "WORD": "a"}, outputs) == 7

    pid, *words = (tmp_path / "out").read_text().split()
    assert words == ["a", "True", "__main__", "0", "b"]
    assert (tmp_path / "errors").read_text() == "and this\n"
    assert int(pid) not in (os.getpid(), os.getppid())
    assert module not in sys.modules


def test_a_fork_that_nobody_waits_for_any_more_ends(module: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as output, pytest.raises(TimeoutError):
        run_forked(module, ["600"], {**os.environ, "WORD": "a"}, (output.fileno(), output.fileno()), limit_s=30)

    pid = (tmp_path / "out").read_text().split()[0]
    wait_until(lambda: not is_running(pid), limit_s=30)
