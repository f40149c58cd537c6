"""Notebooks as pages: their texts, code and outputs, as the notebook's file holds them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def notebook_page(notebook: Path) -> str:
    """Return a notebook as Markdown, with the outputs that its file holds.

    Code is in `py` fences: a test runs the notebook itself, so that `python` snippets are not run a second time.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    own = f"[The notebook]({notebook.name}) itself; its file is beside this page in `docs/tutorials`."
    first, *others = ["\n\n".join(_parts(cell)) for cell in cells]
    return "\n\n".join([first, own, *others]) + "\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```py\n{text}\n```"
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield f"```\n{''.join(output['text'])}```"
        elif "text/html" in output["data"]:
            yield "".join(output["data"]["text/html"])
        else:
            yield f"```\n{''.join(output['data']['text/plain'])}\n```"
