"""Progress on a terminal, and none elsewhere."""

from pathlib import Path

import pytest

from bridgepack.report.progress import TerminalProgress
from bridgepack.report.text import printable
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


@pytest.mark.parametrize("is_enabled", [True, False, None])
def test_stages_of_a_build(
    tmp_path: Path, chatml_tokenizer: Path, capfd: pytest.CaptureFixture[str], is_enabled: bool | None
) -> None:
    train = write_json_lines(tmp_path / "a.jsonl", [tokenized_row(5, 6, 7)] * 1234)
    recipe = tokenized_recipe(train, chatml_tokenizer)

    with TerminalProgress(is_enabled=is_enabled) as progress:
        build(recipe, tmp_path / "out", progress=progress)

    output, errors = capfd.readouterr()
    assert output == ""
    if is_enabled:
        for text in ("Hashing inputs", "1 files", "Tokenising training", "1,234 rows", "Packing training", "packs"):
            assert text in errors
    else:
        assert errors == ""


def test_bars_end_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with TerminalProgress(is_enabled=True) as progress:
            progress.start("Stage", None, "things")
            progress.advance(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert "3 things" in capfd.readouterr().err


def test_control_characters_are_replaced_and_lines_stay() -> None:
    assert printable("a\x1b[2Jb\tc\nd\x07é\u202e😀") == "a�[2Jb\tc\nd�é�😀"


def test_log_lines_are_ten_seconds_apart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    monkeypatch.setattr("bridgepack.report.progress.time.monotonic", lambda: now_s)
    with TerminalProgress() as progress:
        progress.start("Tokenising", 600, "rows")
        for _ in range(60):
            now_s += 0.5
            progress.advance(1_000, work=10)

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Tokenising: 33%, 20,000 rows, 2,000/s"
    assert [line.split(" ")[1] for line in lines] == ["33%,", "67%,", "100%,"]
