"""What `bridgepack losses` says of a run: its sources, the rows of a step, rows far above their source."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bridgepack
from bridgepack.errors import ConfigError
from bridgepack.records.losses import SourceLoss
from bridgepack.reporting.blocks import MarkedText, Picture, Table
from bridgepack.reporting.results import blocks_of
from bridgepack.reporting.screen import screen
from tests.support import small_builds as small
from tests.support.loss_runs import write_loss_run
from tests.support.messages import mentions

NUM_ROWS, NUM_TOKENS, BAD_ROW = 60, 7, 23


@pytest.fixture
def run(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run that read each pack twice; row 23 of `b` has 2 more than the others of `b`."""
    rows = {
        name: [small.tokenized_row(*[first + n] * 8) for n in range(NUM_ROWS)] for name, first in (("a", 5), ("b", 90))
    }
    sources = [
        {"path": str(small.write_json_lines(tmp_path / f"{name}.jsonl", some)), "name": name}
        for name, some in rows.items()
    ]
    small.build(small.tokenized_recipe(sources, chatml_tokenizer), tmp_path / "packs")
    lines = [_line(step, name, split) for step in (1, 2) for name in "ab" for split in ("training", "validation")]
    write_loss_run(tmp_path / "run", tmp_path / "packs", lines, loss_of=_loss, num_tokens=NUM_TOKENS)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def _loss(source: int, row: int, step: int) -> float:
    return 1.0 + 4.0 * source - 0.25 * step + (2.0 if (source, row) == (1, BAD_ROW) else 0.0)


def _line(step: int, source: str, split: str) -> SourceLoss:
    return SourceLoss(
        step=step, first_step=step, split=split, source=source, loss_sum=10.0 / step, num_trained_tokens=5
    )


def test_sources_are_shown_as_a_table_and_pictures(run: Path) -> None:
    report = bridgepack.losses(run)
    blocks = blocks_of(report)

    table = next(block for block in blocks if isinstance(block, Table))
    assert table.rows == [
        (split, name, "2.0000", "1.0000", "-1.0000", "10") for split in ("training", "validation") for name in "ab"
    ]
    pictures = [block for block in blocks if isinstance(block, Picture)]
    assert [picture.title for picture in pictures] == [
        "a, training", "a, validation", "b, training", "b, validation",
    ]  # fmt: skip
    assert [(bar.label, bar.value, bar.height) for bar in pictures[0].bars] == [
        ("1", "2.0000", 100.0),
        ("2", "1.0000", 50.0),
    ]
    assert "█" in screen(blocks)
    assert len(report.to_pandas()) == 8


def test_a_row_far_above_its_own_source_is_named_with_its_text(run: Path) -> None:
    report = bridgepack.losses(run, num_rows=3)

    first = report.rows[0]
    assert (Path(first.file).name, first.row, first.source, first.steps) == ("b.jsonl", BAD_ROW, "b", (1, 2))
    assert first.loss == pytest.approx(1 + 4 - 0.375 + 2)
    assert first.source_loss == pytest.approx(1 + 4 - 0.375 + 2 / NUM_ROWS)
    assert report.num_rows == 2 * NUM_ROWS
    assert first.sequence is not None
    assert (first.sequence.row, first.sequence.num_trained_tokens) == (BAD_ROW, NUM_TOKENS)
    texts = _texts(report)
    assert len(texts) == 3
    assert mentions(texts[0].heading, f"row {BAD_ROW}", "6.6250", "step 1, 2")


def _texts(report: Any) -> list[MarkedText]:
    parts = (block for part in blocks_of(report) for block in getattr(part, "blocks", ()))
    return [block for block in parts if isinstance(block, MarkedText)]


def test_a_step_names_its_rows(run: Path) -> None:
    report = bridgepack.losses(run, step=2, num_rows=130)

    assert len(report.rows) == report.num_rows == 2 * NUM_ROWS
    assert report.rows[0].row == BAD_ROW
    assert [row.loss for row in report.rows[1:]] == pytest.approx([4.5] * (NUM_ROWS - 1) + [0.5] * NUM_ROWS)
    answer = bridgepack.losses(run, step=2)
    assert mentions(_texts(answer)[0].heading, f"row {BAD_ROW}: loss 6.5000")
    assert len(answer.rows) == len(_texts(answer)) == 20


def test_all_rows_are_written(run: Path, tmp_path: Path) -> None:
    report = bridgepack.losses(run, output=tmp_path / "rows.parquet")

    assert report.files == {"output": tmp_path / "rows.parquet"}
    lines = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    keys = {(Path(line["file"]).name, line["row"], line["first_token"], line["epoch"]) for line in lines}
    assert keys == {(f"{name}.jsonl", row, 0, epoch) for name in "ab" for row in range(1, 61) for epoch in (1, 2)}
    assert len(lines) == len(keys)
    for line in lines:
        source = "ab".index(line["source"])
        assert line["epoch"] == line["step"]
        assert line["loss_sum"] == NUM_TOKENS * _loss(source, line["row"], line["step"])
        assert (line["split"], line["num_trained_tokens"]) == ("training", NUM_TOKENS)


@pytest.mark.parametrize("options", [(), ("--num-rows", 2), ("--step", 1, "--num-rows", 1, "--split", "training")])
def test_the_command_prints_what_the_function_returns(
    run: Path, command: small.Command, options: tuple[Any, ...]
) -> None:
    names = [str(name)[2:].replace("-", "_") for name in options[::2]]
    report = bridgepack.losses(run, **dict(zip(names, options[1::2], strict=True)))

    assert json.loads(command("losses", run, *options, "--json").output) == json.loads(json.dumps(report.to_dict()))
    assert command("losses", run, *options).output.rstrip("\n") == screen(blocks_of(report)).rstrip("\n")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda run: {"run": run / "gone"}, ["run is", "gone", "no such folder"]),
        (lambda run: {"step": 7}, ["--step is 7", "1 to 2"]),
        (lambda run: {"split": "test"}, ["split is 'test'", "training or validation"]),
        (lambda run: {"split": "validation", "num_rows": 1}, ["losses of validation rows", "losses.by_row true"]),
        (lambda run: {"output": "rows.csv"}, ["--output is", ".parquet"]),
        (lambda run: (run / "run.json").unlink() or {"num_rows": 1}, ["--artifact"]),
        (lambda run: (run / "losses/by-source.jsonl").unlink() or {}, ["no losses by source", "losses.by_source true"]),
    ],
    ids=["no run", "no such step", "no such split", "no rows", "suffix", "unknown packs", "no losses"],
)
def test_what_is_not_there_is_refused(run: Path, change: Callable[[Path], dict[str, Any]], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        bridgepack.losses(**{"run": run, **change(run)})

    assert mentions(str(error.value), *parts)
