"""Runs the tests of a fault's room on a copy of the package that has the fault: `python -m tests.mutants.run [NAME..]`.

Prints a JSON line for each: name, killed, the test that failed, CPU and wall seconds. NAME is a fault or a room.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.mutants import unshrunk
from tests.mutants.behaviours import BEHAVIOURS, SEAMS
from tests.mutants.edits import EDITS
from tests.mutants.rooms import PROJECT, ROOMS

#: Maximum wall seconds of one fault.
_LIMIT_S = 900.0
_OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-p", "unshrunk", f"--hypothesis-profile={unshrunk.NAME}")
_PACKAGE = "bridgepack"
MUTANTS = PROJECT / "tests" / "mutants"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def names_of(arguments: list[str]) -> list[str]:
    """Return the names of the faults that are wanted by their own name or by that of their room; all by default."""
    names = sorted([*(edit.name for edit in EDITS), *BEHAVIOURS], key=lambda name: list(ROOMS).index(_room(name)))
    return [name for name in names if not arguments or {name, _room(name)} & {*arguments}]


def apply(name: str, package: Path) -> None:
    """Put the fault of a name into a copy of the package."""
    for edit in EDITS:
        if edit.name == name:
            path = package / edit.file
            text = path.read_text()
            assert text.count(edit.old) == 1, f"{name}: {edit.old!r} stands {text.count(edit.old)} times in {edit.file}"
            path.write_text(text.replace(edit.old, edit.new))
            return
    file, function = SEAMS[BEHAVIOURS[name][0]]
    shutil.copyfile(MUTANTS / "behaviours.py", package / "_behaviours.py")
    with (package / file).open("a") as source:
        source.write(
            f"\n\nfrom {_PACKAGE} import _behaviours\n\n{function} = _behaviours.fault_in({function}, {name!r})\n"
        )


def run(name: str, checkout: Path = PROJECT) -> dict[str, Any]:
    """Return whether the tests of a checkout notice a fault, and which one does."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result: dict[str, Any] = {"name": name, "killed": False, "by": ""}
    with tempfile.TemporaryDirectory() as folder:
        package = shutil.copytree(checkout / "src" / _PACKAGE, Path(folder) / _PACKAGE)
        apply(name, package)
        shutil.copy(MUTANTS / "unshrunk.py", folder)
        environment = {**os.environ, "PYTHONPATH": folder}
        for tests in ROOMS[_room(name)]:
            rest_s = max(_LIMIT_S - (time.monotonic() - began), 1)
            command = [sys.executable, "-m", "pytest", *_OPTIONS, f"tests/{tests}"]
            try:
                ran = subprocess.run(
                    command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=rest_s
                )
            except subprocess.TimeoutExpired:
                result["by"] = f"not within {_LIMIT_S:.0f} s"
                break
            if ran.returncode:
                assert ran.returncode in (1, 2), ran.stdout + ran.stderr
                result |= {"killed": True, "by": next(iter(_FAILED.findall(ran.stdout)), tests)}
                break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**result, "cpu_s": round(cpu_s, 1), "wall_s": round(time.monotonic() - began, 1)}


def _room(name: str) -> str:
    return name.partition(":")[0]


def main(arguments: list[str]) -> None:
    """Print what becomes of each fault; `--checkout FOLDER` takes the package and the tests of another one."""
    checkout = PROJECT
    if "--checkout" in arguments:
        at = arguments.index("--checkout")
        checkout = Path(arguments[at + 1]).resolve()
        del arguments[at : at + 2]
    for name in names_of(arguments):
        sys.stdout.write(json.dumps(run(name, checkout)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
