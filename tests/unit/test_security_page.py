"""SECURITY.md: what each command does with each source, shown by what is planted there."""

import os
import re
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.support.docs_blocks import PROJECT
from tests.support.golden import renewed_by
from tests.support.planted_world import Hub, enter, measure, planted_files
from tests.support.small_builds import Command
from tests.support.trust_table import TABLE, Row, table_text

_VARIABLE = re.compile(r"\bBRIDGEPACK_[A-Z]\w+")


@pytest.fixture(scope="module")
def hub() -> Hub:
    return Hub()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[str, bytes]:
    return planted_files(tmp_path_factory.mktemp("made"), chatml_tokenizer)


@pytest.fixture
def folder(made: dict[str, bytes], hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path / "call", made, hub, monkeypatch)
    return tmp_path / "call"


@pytest.mark.parametrize("row", [row for row in TABLE if row.lines and not row.starts_jobs], ids=lambda row: row.name)
def test_each_cell_is_what_happens(folder: Path, hub: Hub, command: Command, row: Row) -> None:
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # one that runs has the variables of another test
    cells, written = measure(folder, hub, command, row)
    assert cells == {
        source: letters for source, letters in row.cells.items() if letters and source not in ("environment", "folder")
    }
    assert written == set(row.writes)


def test_the_page_has_the_table() -> None:
    page = PROJECT / "SECURITY.md"
    begin, _, rest = page.read_text().partition("<!-- table: tests/support/trust_table.py -->\n")
    _, _, end = rest.partition("<!-- end -->")
    mark = "<!-- table: tests/support/trust_table.py -->"
    renewed = f"{begin}{mark}\n\n{table_text()}\n\n<!-- end -->{end}"
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        page.write_text(renewed)
    assert page.read_text() == renewed, renewed_by(__file__)
    assert "SECURITY.md" in (PROJECT / "README.md").read_text()


def test_cells_that_are_shown_elsewhere_have_a_test() -> None:
    files = {file for row in TABLE for file in row.elsewhere.values()}
    assert [file for file in files if not (PROJECT / file).is_file()] == []


def test_the_page_names_our_variables() -> None:
    """All but those that our own processes hand on, and that of click's completion."""
    names = {name for path in (PROJECT / "src").rglob("*.py") for name in _VARIABLE.findall(path.read_text())}
    internal = {"BRIDGEPACK_RUN", "BRIDGEPACK_FORK_SERVER_RECIPE", "BRIDGEPACK_COMPLETE"}
    assert names - internal == set(_VARIABLE.findall((PROJECT / "SECURITY.md").read_text()))


@pytest.mark.parametrize(
    "words", ["check evil.yaml", "preview evil.yaml", "launch mine.yaml --cluster evil.yaml --dry-run"]
)
def test_yaml_makes_no_objects(folder: Path, command: Command, words: str) -> None:
    text = "!!python/object/apply:os.system ['touch marker-yaml']"
    (folder / "evil.yaml").write_text(f"name: {text}\n_target_: megatron.bridge.training.config.ConfigContainer\n")
    assert command(*words.split()).code == 2
    assert not (folder / "marker-yaml").exists()


def test_a_recipe_found_by_its_module_replaces_nothing_that_is_installed(folder: Path, command: Command) -> None:
    (folder / "mine_by_module.py").write_text("import colorsys\nfrom mine import mine_recipe\n")
    (folder / "colorsys.py").write_text("from pathlib import Path\nPath('marker-folder').touch()\n")
    sys.modules.pop("colorsys", None)
    assert command("recipes", "show", "mine_by_module:mine_recipe").code == 0
    assert (folder / "marker-python").exists()
    assert not (folder / "marker-folder").exists()
