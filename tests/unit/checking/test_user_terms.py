"""Findings name settings as the user does, and nothing else in them changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.records import Finding
from tests.unit.rules.run_cases import RECIPE


def findings_on(recipe: dict[str, Any], folder: Path) -> dict[str, Finding]:
    file = folder / "mine.yaml"
    file.write_text(json.dumps(recipe), encoding="utf-8")
    return {finding.code: finding for finding in check_target(file, CheckOptions()).findings}


def test_a_file_with_the_name_of_a_setting_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/model.seq_length").touch()
    finding = findings_on({**RECIPE, "data": {"train": ["data/model.seq_length"]}}, tmp_path)["BP854"]
    assert finding.where == "data.train"
    assert finding.found.startswith("data/model.seq_length;")
