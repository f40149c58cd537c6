"""Every text of the repository names commands as they are today."""

import re
import subprocess
from pathlib import Path

from bridgepack.cli.main import FORMER

PROJECT = Path(__file__).parents[2]
#: Files with former names: where they are redirected, where that is tested, and the history.
ALLOWED = {"src/bridgepack/cli/main.py", "tests/unit/test_cli.py", "tests/unit/test_command_names.py", "CHANGELOG.md"}
_NAMES = "|".join(FORMER)
#: A former name as a command line, in code marks with what follows, as words of a test, or as a function of Python.
_FORMER = re.compile(
    rf"bridgepack ({_NAMES})\b(?! such)"
    r"|`(recipes new|verify|canary|masks --served)\b"
    r"|masks --served"
    r"|(command|run_cli|words)\(([\w_]+, )?\"(verify|masks|canary|rules)\""
    r"|bridgepack\.(verify|masks|served|canary|canary_self_test|list_rules)\("
)
#: Modules that are named so.
_MODULES = re.compile(r"^Read first: .*$", re.MULTILINE)


def test_no_text_has_the_former_name_of_a_command() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    num_read, places = 0, []
    for name in set(listed.stdout.rstrip("\0").split("\0")) - ALLOWED:
        try:
            text = _MODULES.sub("", (PROJECT / name).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        num_read += 1
        places += [f"{name}: {found[0]}" for found in _FORMER.finditer(text)]

    assert num_read > 500
    assert sorted(places) == []


def test_former_names_are_told_from_those_of_today() -> None:
    for line in ("bridgepack verify packed", "`canary`", "bridgepack recipes new mine", 'command("masks", recipe)'):
        assert _FORMER.search(line), line
    for line in ("bridgepack prove masks packed", "bridgepack store verify", "bridgepack explain", "`prove served`"):
        assert not _FORMER.search(line), line
