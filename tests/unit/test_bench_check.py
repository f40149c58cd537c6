"""The benchmark of checks runs at a tiny size, on packs that are sound; no time is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture(autouse=True)
def benchlib_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setenv("PYTHONPATH", str(BENCH))


def test_reading_and_checking_see_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchlib.check_speed import main

    sizes = ["--rows", "30", "--packed-sequence-size", "512", "--workers", "1", "--repeats", "1"]
    main([*sizes, "--output", str(tmp_path)])

    found = json.loads((tmp_path / "check_speed.json").read_text())["sizes"]
    assert [(size["num_rows"], size["num_workers"], size["codes"]) for size in found] == [(31, 1, [])]
    runs = found[0]["runs"]
    assert {(run["num_rows"], run["num_tokens"]) for side in ("read", "check") for run in runs[side]} == {
        (31, 31 * 514)
    }
    assert capsys.readouterr().out == (tmp_path / "check_speed.md").read_text()
    assert "| 31 | 15,934 |" in (tmp_path / "check_speed.md").read_text()
