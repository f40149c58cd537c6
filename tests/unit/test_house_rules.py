"""Sizes and contents that the house rules limit."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support import format_cases

PROJECT = Path(__file__).parents[2]
MAX_MODULE_LINES = 350
MAX_FUNCTION_LINES = 50
MAX_SCRIPT_LINES = 60
#: `__init__` counts.
MAX_MODULES_OF_A_ROOM, MAX_MODULES_OF_A_PREFIX = 24, 3
MACHINE_SPECIFIC = re.compile(
    r"(?<![\w.$}*])/(work|tmp|root|home|Users)/\w|\bpypi\.org\b|pythonhosted\.org|registry\.npmjs|deb\.debian"
)


def _num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_modules_are_short() -> None:
    modules = [*(PROJECT / "src").rglob("*.py"), *(PROJECT / "scripts").rglob("*.py")]

    assert {str(path): _num_lines(path) for path in modules if _num_lines(path) > MAX_MODULE_LINES} == {}
    assert modules


def test_rooms_are_small_and_folders_group_modules() -> None:
    rooms: dict[Path, list[str]] = {}
    for path in (PROJECT / "src").rglob("*.py"):
        rooms.setdefault(path.parent, []).append(path.name)
    families = []
    for room, names in rooms.items():
        prefixes = Counter(name.partition("_")[0] for name in names if "_" in name and not name.startswith("_"))
        families += [f"{room}: {prefix}_*" for prefix, count in prefixes.items() if count > MAX_MODULES_OF_A_PREFIX]

    assert {str(room): len(names) for room, names in rooms.items() if len(names) > MAX_MODULES_OF_A_ROOM} == {}
    assert families == []
    assert len(rooms) > 20


def test_functions_are_short() -> None:
    num_checked = 0
    too_long = []
    for path in (PROJECT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_checked += 1
                num_lines = (node.end_lineno or 0) - node.lineno + 1
                if num_lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{path.relative_to(PROJECT)}:{node.lineno} {node.name}: {num_lines} lines")

    assert too_long == []
    assert num_checked > 0


def test_scripts_are_short() -> None:
    scripts = [path for path in (PROJECT / "scripts").iterdir() if path.is_file()]

    assert {path.name: _num_lines(path) for path in scripts if _num_lines(path) >= MAX_SCRIPT_LINES} == {}
    assert scripts


def test_files_name_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        content = (PROJECT / name).read_bytes() if (PROJECT / name).is_file() else b""
        if b"\0" not in content:
            lines = enumerate(content.decode("utf-8", errors="replace").splitlines(), 1)
            found += [f"{name}:{number}: {line}" for number, line in lines if MACHINE_SPECIFIC.search(line)]

    assert found == []
    assert listed.stdout


def test_long_json_has_few_lines() -> None:
    files = format_cases.FILES
    stale = [path.name for path in files if path.read_text(encoding="utf-8") != format_cases.formatted(path)]

    assert stale == [], "run python -m tests.support.format_cases"
    assert len(files) > 300
