"""The notebook of the tutorials, in a real kernel: what each cell prints and shows is what its file holds."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from bridgepack.examples.__main__ import write_examples
from tests.support.docs_blocks import PROJECT

pytestmark = pytest.mark.full
NOTEBOOK = PROJECT / "docs/tutorials/notebook.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The notebook after all its cells ran in a folder as scripts/quickstart leaves it."""
    folder = tmp_path_factory.mktemp("notebook")
    write_examples(folder / "quickstart", limit=200, vocab_size=600)
    place = folder / "docs/tutorials"  # as Jupyter starts it
    place.mkdir(parents=True)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(place)}})
        yield client.execute()


def _without_numbers_of_rules(text: str) -> str:
    """Return a text without how many rules ran and how many did not, so that a new rule leaves the file as it is."""
    text = re.sub(r"\d+ rules ran, \d+ did not", "… rules ran, … did not", text)
    text = re.sub(
        r"\d+ (rules run|rules passed|need packs|need the environment|skipped|for other versions)", r"… \1", text
    )
    return re.sub(r"(<dt>rules that [a-z ]+</dt><dd>)\d+", r"\1…", text)


def _shown(cell: Mapping[str, Any]) -> list[Any]:
    """Return what a cell prints and shows, without its progress, which has times."""
    outputs = [output for output in cell["outputs"] if output.get("name") != "stderr"]
    return [
        {"stream": "".join(output["text"])}
        if output["output_type"] == "stream"
        else {kind: _without_numbers_of_rules("".join(text)) for kind, text in output["data"].items()}
        for output in outputs
    ]


def test_notebook_runs_and_shows_what_its_file_holds(executed: Any) -> None:
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        _write(kept, executed)
        kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert "… rules ran, … did not" in NOTEBOOK.read_text(encoding="utf-8")
    assert [_shown(cell) for cell in kept["cells"] if cell["cell_type"] == "code"] == [
        _shown(cell) for cell in executed.cells if cell.cell_type == "code"
    ]
    assert (
        sum("text/html" in output for cell in executed.cells if cell.cell_type == "code" for output in _shown(cell)) > 5
    )


def test_a_notebook_shows_progress_unasked(executed: Any) -> None:
    progress = [
        "".join(output["text"])
        for cell in executed.cells
        if cell.cell_type == "code" and "bridgepack.build(" in cell.source
        for output in cell["outputs"]
        if output.get("name") == "stderr"
    ]
    assert "100%" in "".join(progress)
    assert "rows" in "".join(progress)


def _write(kept: dict[str, Any], executed: Any) -> None:
    for cell, ran in zip(kept["cells"], executed.cells, strict=True):
        if cell["cell_type"] == "code":
            outputs = [json.loads(json.dumps(output)) for output in ran["outputs"] if output.get("name") != "stderr"]
            for output in outputs:
                output.pop("metadata", None)
                if "execution_count" in output:
                    output |= {"execution_count": None, "metadata": {}}
                for place in (output, output.get("data", {})):
                    for name in {"text", "text/plain", "text/html"} & place.keys():
                        place[name] = _without_numbers_of_rules(place[name]).splitlines(keepends=True)
            cell["outputs"] = outputs
    NOTEBOOK.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
