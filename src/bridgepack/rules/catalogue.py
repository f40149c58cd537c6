"""The rule catalogue: which rule, or which place in the code, answers for each of its entries."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def read_catalogue() -> dict[str, dict[str, Any]]:
    """Return number in the catalogue -> what answers for it.

    `rules`: codes of the rules. `by_construction`: the place in this package that makes it impossible.
    `not_checkable`: why it cannot be judged before a run.
    """
    text = (files("bridgepack.rules") / "catalogue.json").read_text(encoding="utf-8")
    catalogue: dict[str, dict[str, Any]] = json.loads(text)
    return catalogue
