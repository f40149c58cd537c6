"""Every fault of `tests/mutants` still applies: its line stands once in the source, its function is there."""

import ast
from pathlib import Path

import pytest

from tests.mutants.behaviours import BEHAVIOURS, SEAMS
from tests.mutants.edits import EDITS, Edit
from tests.mutants.rooms import PROJECT, ROOMS
from tests.mutants.run import apply, names_of

PACKAGE = PROJECT / "src" / "bridgepack"


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_line_stands_once_and_is_still_python(edit: Edit, tmp_path: Path) -> None:
    copy = tmp_path / edit.file
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text((PACKAGE / edit.file).read_text())

    apply(edit.name, tmp_path)

    assert ast.dump(ast.parse(copy.read_text())) != ast.dump(ast.parse((PACKAGE / edit.file).read_text()))


@pytest.mark.parametrize("seam", SEAMS)
def test_the_function_of_a_behaviour_is_there(seam: str) -> None:
    file, function = SEAMS[seam]
    body: list[ast.stmt] = ast.parse((PACKAGE / file).read_text()).body
    for name in function.split("."):
        (body,) = [node.body for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name]

    assert {used for used, _ in BEHAVIOURS.values()} == set(SEAMS)


def test_rooms_have_faults_and_tests() -> None:
    names = names_of([])

    assert len(names) == len(set(names)) == 104
    assert {name.partition(":")[0] for name in names} == set(ROOMS)
    assert all((PROJECT / "tests" / place).exists() for places in ROOMS.values() for place in places)
