"""What `check` says of every recipe that megatron-bridge 0.6.2 ships; the golden file is reviewed by hand.

`BRIDGEPACK_REGENERATE=1 pytest tests/contract/test_recipe_findings.py` writes it anew.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bridgepack.rules.engine.rule import Severity
from tests.support.format_cases import compact
from tests.support.upstream_recipes import findings_of, world_size_of

pytestmark = pytest.mark.bridge
GOLDEN = Path(__file__).parents[1] / "golden" / "recipe_findings.json"


def codes_of(configs: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return module and name of a recipe -> severity -> codes, for those with findings that are no advice."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, config in configs.items():
        findings = findings_of(config, name, world_size_of(name, config))
        for severity in (Severity.ERROR, Severity.WARNING):
            codes = sorted({finding.code for finding in findings if finding.severity == severity})
            if codes:
                found.setdefault(name, {})[str(severity)] = codes
    return found


def test_findings_are_the_golden_ones(upstream_configs: dict[str, Any]) -> None:
    found = codes_of(upstream_configs)
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(compact(dict(sorted(found.items()))) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert len(upstream_configs) == 190
