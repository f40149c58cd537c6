"""CPU seconds of the tests by file, with those of the processes that they waited for.

`BRIDGEPACK_CPU_SECONDS=FILE python -m pytest -p tests.support.cpu_seconds` writes a JSON line for each test: file,
test, CPU seconds, wall seconds, and one for each fork of the process that has the host imported, under the test that
asked for it. `python -m tests.support.cpu_seconds FILE [OTHER]` prints the sums by file, largest first, of another run
beside them. What a process spends that nobody waits for (a daemon of Ray, Slurm) is not counted.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def write(file: str, test: str, cpu_s: float, wall_s: float) -> None:
    """Add a line to the file, from any process of the run."""
    line = {"file": file, "test": test, "cpu_s": round(cpu_s, 3), "wall_s": round(wall_s, 3)}
    with Path(os.environ["BRIDGEPACK_CPU_SECONDS"]).open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the file anew; a run that a test starts belongs to that test."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        config.pluginmanager.unregister(sys.modules[__name__])
    elif not hasattr(config, "workerinput"):
        Path(os.environ["BRIDGEPACK_CPU_SECONDS"]).write_text("")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Write what a process spent since its start, when it has collected the tests."""
    began = time.monotonic()
    result = yield
    write("(start and collection)", "", _cpu_s(), time.monotonic() - began)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write what a test spent, with its fixtures."""
    before, began = _cpu_s(), time.monotonic()
    result = yield
    write(item.nodeid.partition("::")[0], item.name, _cpu_s() - before, time.monotonic() - began)
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Write what is left of the whole run, in the process that waits for all others: imports of the host, the ends."""
    began = time.monotonic()
    result = yield
    if not hasattr(session.config, "workerinput"):
        spent = sum(by_file(Path(os.environ["BRIDGEPACK_CPU_SECONDS"])).values())
        write("(end)", "", _cpu_s() - spent, time.monotonic() - began)
    return result


def by_file(path: Path) -> Counter[str]:
    """Return file -> CPU seconds."""
    sums: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        sums[entry["file"]] += entry["cpu_s"]
    return sums


def main(paths: list[str]) -> None:
    """Print the table."""
    tables = [by_file(Path(path)) for path in paths]
    names = sorted({name for table in tables for name in table}, key=lambda name: -max(table[name] for table in tables))
    for name in ["total", *names]:
        sums = (sum(table.values()) if name == "total" else table[name] for table in tables)
        sys.stdout.write("".join(f"{cpu_s:9.1f}" for cpu_s in sums) + f"  {name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
