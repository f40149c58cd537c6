"""A preview says what the build makes of the same rows; of a sample, within a few percent, and it says so."""

import gzip
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading import sampling
from bridgepack.data.reading.inputs import InputFile
from bridgepack.errors import ConfigError, DataError
from bridgepack.planning import sample
from bridgepack.planning.resolved import resolved_view
from bridgepack.reporting.results.previews import preview_blocks
from bridgepack.reporting.screen import screen
from tests.support.messages import mentions
from tests.support.small_builds import (
    Command,
    build,
    chat_row,
    small_recipe,
    tokenized_recipe,
    tokenized_row,
    write_json_lines,
    write_recipe,
)

RANDOM = np.random.default_rng(7)
ROWS = [tokenized_row(*([10 + index % 200] * int(length))) for index, length in enumerate(RANDOM.integers(3, 40, 3000))]


def _recipe(path: Path | list[str], tokenizer: Path, **changes: Any) -> SFTRecipe:
    size = {"packing__packed_sequence_size": 64, **changes}
    return tokenized_recipe([str(path)] if isinstance(path, Path) else path, tokenizer, **size)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of some kilobytes be as large ones are, and a busy machine read them all."""
    monkeypatch.setattr(sample, "_DEADLINE_S", 3600.0)
    monkeypatch.setattr(sampling, "_WINDOW_BYTES", 1000)
    monkeypatch.setattr(sampling, "_WINDOW_ROWS", 5)
    monkeypatch.setattr(sampling, "_WHOLE_BYTES", 64_000)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data__validation_fraction": 0.2},
        {"preprocessing__over_long": "truncate", "packing__max_sequence_length": 16},
        {"packing__max_sequence_length": 16, "parallelism__context_parallel_size": 2},
        {"packing__algorithm": "first_fit_shuffle", "packing__max_sequences_per_pack": 3},
    ],
)
def test_small_data_are_read_to_their_end_and_give_the_numbers_of_the_build(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    rows = [*ROWS[:400], {}, {"input_ids": [5], "loss_mask": [1]}, *ROWS[400:500]]
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    recipe = _recipe(path, chatml_tokenizer, **changes)

    preview = bridgepack.preview(recipe)
    splits = build(recipe, tmp_path / "out").manifest.splits

    assert not preview.is_sample
    assert preview.num_packs == {split.name: split.statistics.num_packs for split in splits}
    assert dict(resolved_view(recipe).num_packs) == preview.num_packs
    (source,) = preview.sources
    assert source.num_sequences == sum(split.statistics.num_sequences for split in splits)
    assert {drop.kind: drop.num_rows for drop in source.drops}["missing_field"] == 1
    assert sum(drop.num_rows for drop in source.drops) == sum(sum(split.drops.values()) for split in splits)
    assert source.tokens is not None
    assert source.tokens.max <= max(split.statistics.max_runtime_length for split in splits)
    trained = sum(split.statistics.num_trained_tokens for split in splits)
    assert source.tokens.trained_fraction == pytest.approx(trained / sum(s.statistics.num_tokens for s in splits))
    example = next(drop.example for drop in source.drops if drop.kind == "missing_field")
    assert example.startswith(f"{path} row 401: ")
    assert [sequence.row for sequence in source.sequences] == sorted(sequence.row or 0 for sequence in source.sequences)


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "json", "parquet", "arrow"])
def test_a_sample_is_projected_within_a_few_percent_and_says_so(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, small_windows: None, form: str
) -> None:
    path, table = tmp_path / f"rows.{form}", pa.Table.from_pylist(ROWS)
    text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    if form == "parquet":
        pq.write_table(table, path, row_group_size=100)
    elif form == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_bytes({"jsonl": text, "json": json.dumps(ROWS).encode(), "jsonl.gz": gzip.compress(text)}[form])
    recipe = _recipe(path, chatml_tokenizer)

    preview = bridgepack.preview(recipe, num_rows=1)

    num_packs = build(recipe, tmp_path / "out").manifest.splits[0].statistics.num_packs
    assert preview.num_packs["training"] == pytest.approx(num_packs, rel=0.08)
    (source,) = preview.sources
    if source.is_sample:
        assert source.num_rows_read < len(ROWS)
        assert source.num_rows == pytest.approx(len(ROWS), rel=0.08)
        assert "are of this sample" in screen(preview_blocks(preview))
    assert source.is_sample == (form not in {"jsonl.gz", "json"})  # these are read from their beginning, 16 MB of them


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_the_same_rows_are_read_each_time_and_how_many_is_said(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, small_windows: None, form: str
) -> None:
    monkeypatch.setattr(sample, "_BUDGET_BYTES", 50_000)
    path = write_json_lines(tmp_path / "rows.jsonl", ROWS)
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path := tmp_path / "rows.parquet", row_group_size=100)
    recipe = _recipe(path, chatml_tokenizer)

    first = bridgepack.preview(recipe, num_rows=3)
    slow_clock = SimpleNamespace(monotonic=iter(np.arange(0.0, 50.0, 0.1)).__next__)
    monkeypatch.setattr(sample, "time", slow_clock)
    second = bridgepack.preview(recipe, num_rows=3)

    assert second.to_dict() == first.to_dict()
    (source,) = first.sources
    total = "3,000" if form == "parquet" else f"about {source.num_rows:,}"
    said = f"a sample of {source.num_rows_read:,} of {total} rows: all figures are of this sample"
    assert said in screen(preview_blocks(first))
    assert 100 < source.num_rows_read < 1000
    assert first.num_sequences is not None
    assert first.num_sequences["training"] == pytest.approx(len(ROWS), rel=0.08)


def test_all_of_a_small_file_is_read_and_said(tmp_path: Path, chatml_tokenizer: Path) -> None:
    preview = bridgepack.preview(_recipe(write_json_lines(tmp_path / "rows.jsonl", ROWS[:2400]), chatml_tokenizer))

    assert (preview.is_sample, preview.num_sequences, preview.stopped_early) == (False, {"training": 2400}, False)
    assert "  rows read           all 2,400 rows\n" in screen(preview_blocks(preview))


def test_parts_of_a_large_file_are_sampled_at_other_places_than_their_beginnings(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [{"text": f"{number:0100}"} for number in range(100_000)])

    found = sampling.file_windows(InputFile(path=path, label="rows", kind="jsonl"), max_row_bytes=1 << 20)

    starts = sorted(window.part.start for window in found.windows)
    parts = [start * sampling.MAX_WINDOWS // path.stat().st_size for start in starts]
    assert parts == [*range(sampling.MAX_WINDOWS)]
    assert len({start % (path.stat().st_size // sampling.MAX_WINDOWS) // 1000 for start in starts}) > 30


def test_a_sample_that_took_too_long_says_that_it_depends_on_the_time(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, small_windows: None
) -> None:
    monkeypatch.setattr(sample, "_DEADLINE_S", 0.0)
    recipe = _recipe(write_json_lines(tmp_path / "rows.jsonl", ROWS), chatml_tokenizer)
    short = _recipe(write_json_lines(tmp_path / "short.jsonl", ROWS[:1]), chatml_tokenizer)

    preview = bridgepack.preview(recipe)

    assert (preview.stopped_early, preview.sources[0].is_sample) == (True, True)
    assert mentions(screen(preview_blocks(preview)), "warning: reading stopped after 60 s, ", "another run ")
    assert not bridgepack.preview(short).stopped_early


def test_lines_of_a_large_file_are_read_once(tmp_path: Path, chatml_tokenizer: Path, small_windows: None) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [*ROWS, tokenized_row(*[7] * 2000), *ROWS[:10]])
    (source,) = bridgepack.preview(_recipe(path, chatml_tokenizer, data__max_row_bytes=3000), num_rows=3).sources

    assert {drop.kind for drop in source.drops} <= {"row_too_large"}
    assert [sequence.row for sequence in source.sequences] == [1, 2, 3]
    assert 0 < source.num_rows_read < 1500


@pytest.mark.parametrize("form", ["jsonl.gz", "json"])
def test_rest_of_a_large_stream_is_projected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(sampling, "_HEAD_BYTES", 1 << 20)
    rows = [{"text": f"{index} {RANDOM.random()}"} for index in range(150_000)]
    path, lines = tmp_path / f"rows.{form}", "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(json.dumps(rows).encode() if form == "json" else gzip.compress(lines))
    compression = "gz" if form.endswith("gz") else None
    file = InputFile(path=path, label="rows", kind=form.partition(".")[0], compression=compression)

    found = sampling.file_windows(file, max_row_bytes=1 << 20)

    windows = list(found.windows)
    size = sum(window.size for window in windows)
    assert size < found.total / 2
    num_rows = sum(window.part.num_rows for window in windows) * found.total / size
    assert num_rows == pytest.approx(len(rows), rel=0.2)  # the codec reads ahead, which counts in so short a beginning


def test_a_window_of_wide_rows_has_a_megabyte_of_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": [RANDOM.bytes(150_000).hex() for _ in range(20)]}), path)

    windows = list(sampling.file_windows(InputFile(path=path, label="rows", kind="parquet"), max_row_bytes=1).windows)

    assert [window.part.num_rows for window in windows] == [3] * 6 + [2]


def test_every_file_is_looked_at_and_of_many_some(tmp_path: Path, chatml_tokenizer: Path) -> None:
    for index in range(20):
        write_json_lines(tmp_path / "many" / f"{index:02d}.jsonl", ROWS[:10])
    few = [str(tmp_path / "many" / f"{index:02d}.jsonl") for index in range(3)]

    (source,) = bridgepack.preview(_recipe(tmp_path / "many", chatml_tokenizer)).sources

    assert (source.num_files, source.num_rows, source.num_rows_read, source.is_sample) == (20, 200, 80, True)
    assert len(bridgepack.preview(_recipe(few, chatml_tokenizer)).sources) == 3


def test_rows_that_stop_a_build_are_shown_and_named(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(*[5] * 90)])
    recipe = _recipe(path, chatml_tokenizer, data__on_bad_row="error", preprocessing__over_long="error")

    preview = bridgepack.preview(recipe)

    assert (preview.num_packs, preview.run) == ({"training": 0}, None)
    assert set(preview.stops) == {"data.on_bad_row", "preprocessing.over_long"}
    text = screen(preview_blocks(preview))
    assert "none: no row would " in text
    assert "preprocessing.over_long is error: a build " in text


@pytest.mark.parametrize(
    ("num_gpus", "cure"),
    [
        (1, "Set batch.tokens_per_step to at most 448 (7 packs)."),
        (2, "Set batch.tokens_per_step to at most 384 (6 packs)."),
        (8, "8 packs, for the data-parallel ranks. Use fewer GPUs"),
    ],
)
def test_a_batch_larger_than_the_data_names_its_field_and_the_most(
    tmp_path: Path, chatml_tokenizer: Path, num_gpus: int, cure: str
) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(*[5] * 65)] * 7)
    recipe = _recipe(path, chatml_tokenizer, batch__tokens_per_step=1 << 19, parallelism__num_gpus=num_gpus)

    text = screen(preview_blocks(bridgepack.preview(recipe)))

    assert mentions(text, "warning: training cannot start: 7 packs < global batch 8,192. ", cure)


def test_what_cannot_be_read_is_an_error(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path / "none.jsonl", chatml_tokenizer)
    with pytest.raises(DataError, match=r"none\.jsonl.* no such file"):
        bridgepack.preview(recipe)
    (tmp_path / "none.jsonl").write_text("\n \n")
    with pytest.raises(DataError, match="has no rows"):
        bridgepack.preview(recipe)
    with pytest.raises(ConfigError, match=r"num_rows is -1; allowed: .* from 0"):
        bridgepack.preview(recipe, num_rows=-1)


@pytest.mark.parametrize("num_files", [2, 20])
def test_empty_files_beside_others_hold_nothing(tmp_path: Path, chatml_tokenizer: Path, num_files: int) -> None:
    for number in range(num_files):
        write_json_lines(tmp_path / f"{number:02}.jsonl", ROWS[number : number + number % 2])

    preview = bridgepack.preview(_recipe(tmp_path / "*.jsonl", chatml_tokenizer))

    assert sum(source.num_rows for source in preview.sources) == pytest.approx(num_files / 2, rel=0.2)
    assert preview.num_packs["training"] > 0
    assert "sequences" in screen(preview_blocks(preview))


def test_a_tokenizer_that_loses_text_is_told(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridgepack.data.tokenizers.load._loses_text", lambda *_: True)
    fresh = shutil.copytree(chatml_tokenizer, tmp_path / "tokenizer")  # one that was loaded before is not asked again
    recipe = _recipe(write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(1, 2, 3)]), fresh)

    text = screen(preview_blocks(bridgepack.preview(recipe)))

    assert mentions(text, "warning: ", " of transformers ", " loses text")


def test_the_command_marks_trained_text_and_escapes(tmp_path: Path, chatml_tokenizer: Path, command: Command) -> None:
    rows = write_json_lines(tmp_path / "rows.jsonl", [chat_row("red \x1b[31m", "answer"), {"messages": []}])
    recipe = small_recipe(rows, chatml_tokenizer, packing={"packed_sequence_size": 64})
    write_recipe(tmp_path / "recipe.yaml", recipe)

    ran = command("preview", tmp_path / "recipe.yaml", "-n", "1")
    as_json = json.loads(command("preview", tmp_path / "recipe.yaml", "--json").output)

    assert (ran.code, "\x1b" in ran.output) == (0, False)
    for told in ("⟦answer", "messages: list of {role, content}", "empty_conversation"):
        assert told in ran.output
    assert (as_json["sources"][0]["num_sequences"], as_json["num_packs"]) == (1, {"training": 1})
    assert not list(tmp_path.glob("**/manifest.json"))
