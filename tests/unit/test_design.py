"""The ways through the code that the design page shows: five steps each, of files and functions that exist."""

import ast
import re

from tests.support.docs_blocks import PROJECT

SOURCE = PROJECT / "src" / "bridgepack"
_DEFINITION = re.compile(r"`([\w/]+\.py):([\w.]+)`")


def ways() -> dict[str, str]:
    """Return the title of each way -> its text."""
    text = (PROJECT / "docs" / "design.md").read_text(encoding="utf-8")
    section = text.partition("## Three ways through the code\n")[2].partition("\n## ")[0]
    return dict(part.split("\n", 1) for part in section.split("### ")[1:])


def is_defined(path: str, name: str) -> bool:
    """Return whether a module defines a function or a class, or a class in it a method: `RowReader.read`."""
    body = ast.parse((SOURCE / path).read_text(encoding="utf-8")).body
    for part in name.split("."):
        node = next((item for item in body if getattr(item, "name", None) == part), None)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            return False
        body = node.body
    return True


def test_a_row_a_check_and_a_launch_have_five_steps_that_exist() -> None:
    assert [title.partition(",")[0] for title in ways()] == ["A row", "A check", "A launch"]
    for text in ways().values():
        steps = re.findall(r"^(\d)\. \*\*.*?(?=^\d\. |\Z)", text, re.MULTILINE | re.DOTALL)
        assert steps == ["1", "2", "3", "4", "5"]
        names = _DEFINITION.findall(text)
        assert len(names) > 5
        assert [name for name in names if not is_defined(*name)] == []
    assert not is_defined("rules/judging/report.py", "CheckReport.no_such_method")
