"""Columns of type JSON are decoded wherever they stand, and texts that hold JSON are left alone."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Features, Json, LargeList, List, Value, load_dataset

from bridgepack.config.recipe.data import DataSource, Source
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.reading.kept_rows import recipe_with_rows
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import read_range, rows_apart
from bridgepack.errors import RowError
from tests.support.messages import mentions
from tests.support.small_builds import build, data_bytes, dropped, small_recipe, write_json_lines

FIELDS = {"role": Value("string"), "content": Value("string"), "tool_calls": List(Json()), "extra": Json()}
FEATURES = Features(
    {"messages": List(FIELDS), "tools": List(Json()), "more": LargeList({"deep": Json()}), "plain": Value("string")}
)
CALL = {"type": "function", "function": {"name": "depth", "arguments": {"lake": None, "units": [1, None]}}}
SCHEMA = {"type": "function", "function": {"name": "depth", "parameters": {"properties": {"lake": {"default": None}}}}}
FIRST = {
    "messages": [{"role": "user", "content": "Deep?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}],
    "tools": [SCHEMA],
    "more": [{"deep": {"a": None}}, {"deep": [None, 12345678901234567890]}],
    "plain": '{"a": 1}',
}
SECOND = {"messages": [{"role": "user", "content": "x", "extra": {"é": [{}]}}], "plain": "x"}


def _read(source: Source, scratch: Path) -> list[Any]:
    """Return the rows of a source; the same however they are read."""
    (file,) = find_inputs((source,), "data.train", "training", scratch)
    parts = list(iter_ranges(file, sha256="", max_row_bytes=1 << 25))
    found = [item for part in parts for _, item in read_range(file, part)]
    apart = [item for part in parts for rows in rows_apart(file, part) for _, item in rows]
    assert [str(item) for item in found] == [str(item) for item in apart]
    return found


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Return a data set of two rows, saved as `saved`, rows.parquet and hub/rows.parquet of the current folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    found = Dataset.from_list([FIRST, SECOND], features=FEATURES)
    found.save_to_disk("saved")
    found.to_parquet("rows.parquet")
    Path("hub").mkdir()
    found.to_parquet("hub/rows.parquet")
    return found


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("source", ["saved", "rows.parquet", DataSource(dataset="hub")])
def test_nested_json_is_decoded(tmp_path: Path, source: Source) -> None:
    first, second = _read(source, tmp_path / "scratch")

    assert first == FIRST
    assert second == SECOND


def test_rows_in_memory_are_decoded(tmp_path: Path, saved: Dataset, chatml_tokenizer: Path) -> None:
    recipe = small_recipe("x", chatml_tokenizer).model_dump(mode="json", exclude_unset=True)

    kept = recipe_with_rows({**recipe, "data": {"train": saved}}, None, output=None, store=tmp_path / "store")

    assert _read(str(kept.data.train), tmp_path) == [FIRST, SECOND]


def test_columns_that_only_the_features_name_are_decoded(tmp_path: Path, saved: Dataset) -> None:
    tools = pa.array([[json.dumps(SCHEMA)], None], pa.list_(pa.string()))
    table = pa.table({"tools": tools, "plain": pa.array(["{}", "[]"])})
    metadata = saved.features.arrow_schema.metadata
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "named.parquet")
    pq.write_table(table, tmp_path / "texts.parquet")
    pq.write_table(table.replace_schema_metadata({"huggingface": "{}"}), tmp_path / "odd.parquet")

    assert _read("named.parquet", tmp_path) == [{"tools": [SCHEMA], "plain": "{}"}, {"plain": "[]"}]
    for name in ("texts.parquet", "odd.parquet"):
        assert _read(name, tmp_path)[0] == {"tools": [json.dumps(SCHEMA)], "plain": "{}"}


def _json(texts: list[str | None], storage: Any = None) -> Any:
    kind = pa.json_(storage or pa.string())
    return pa.ExtensionArray.from_storage(kind, pa.array(texts, kind.storage_type))


@pytest.mark.parametrize("name", ["rows.parquet", "logical.parquet", "rows.arrow"])
@pytest.mark.parametrize("storage", [pa.string(), pa.large_string()], ids=str)
def test_type_of_arrow_is_decoded(tmp_path: Path, name: str, storage: Any) -> None:
    texts = _json([json.dumps(SCHEMA), None, "null", "not JSON", '"\\ud800"'], storage)
    items = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 3, 3], pa.int32()), _json(["1", "[null]", "{}"], storage))
    pairs = pa.MapArray.from_arrays(pa.array([0, 1, 1, 1, 1, 1], pa.int32()), pa.array(["k"]), _json(["[1]"], storage))
    table = pa.table({"tools": texts, "items": items, "pairs": pairs, "plain": pa.array(["{}"] * 5)})
    path = tmp_path / name
    if name.endswith(".arrow"):
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path, store_schema=name != "logical.parquet")

    first, second, third, fourth, fifth = _read(str(path), tmp_path)

    assert first == {"tools": SCHEMA, "items": [1, [None]], "pairs": {"k": [1]}, "plain": "{}"}
    assert second == {"items": [], "pairs": {}, "plain": "{}"}
    assert third == {"tools": None, "items": [{}], "pairs": {}, "plain": "{}"}
    for bad in (fourth, fifth):
        assert isinstance(bad, RowError)
        assert str(bad).startswith("invalid_json: column tools ")
        assert " that is not JSON: " in str(bad)


@pytest.mark.parametrize("column", ["tools", "content"])
def test_json_with_a_repeated_key_drops_its_row(tmp_path: Path, column: str) -> None:
    texts = ['[{"type": "text", "text": "a", "text": "b"}]', '[{"type": "text", "text": "a"}]']
    pq.write_table(
        pa.table({column: pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))}), tmp_path / "a.parquet"
    )

    bad, good = _read(str(tmp_path / "a.parquet"), tmp_path)

    assert good == {column: [{"type": "text", "text": "a"}]}
    assert mentions(bad, f"invalid_json: column {column} ", 'the key "text" twice')


#: Content as its author wrote it, in a column whose values have several types.
CONTENTS = [
    "Tall.",
    "42",
    "true",
    "null",
    "[]",
    '{"a": 1}',
    '[{"a": 1}]',
    '{"a": 1, "a": 2}',
    '"quoted',
    None,
    [{"type": "text", "text": "9"}],
]


def test_texts_that_are_json_by_chance_stay_texts(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "assistant", "content": content}]} for content in CONTENTS]
    Dataset.from_list(rows, on_mixed_types="use_json").to_parquet(tmp_path / "rows.parquet")

    found = _read(str(tmp_path / "rows.parquet"), tmp_path)

    assert [row["messages"][0]["content"] for row in found] == CONTENTS


def test_tools_of_several_schemas_train_the_same_from_any_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chatml_tokenizer: Path
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    rows = [
        {"messages": [{"role": "user", "content": "Deep?"}, {"role": "assistant", "content": "200 m."}], "tools": tools}
        for tools in (
            [
                {
                    "type": "function",
                    "function": {"name": "depth", "parameters": {"properties": {"lake": {"enum": [1]}}}},
                }
            ],
            [
                {
                    "type": "function",
                    "function": {"name": "height", "parameters": {"properties": {"peak": {"type": "integer"}}}},
                }
            ],
        )
    ]
    Path("hub").mkdir()
    write_json_lines(Path("hub/rows.jsonl"), rows)
    loaded = load_dataset("hub", split="train")
    assert "Json" in str(loaded.features)
    loaded.save_to_disk("saved")
    loaded.to_parquet("rows.parquet")
    packing = {"packing": {"packed_sequence_size": 512}}
    build(small_recipe("hub/rows.jsonl", chatml_tokenizer, **packing), tmp_path / "expected")

    for index, source in enumerate(("saved", "rows.parquet", {"dataset": "hub"})):
        recipe = small_recipe([source], chatml_tokenizer, **packing)
        build(recipe, tmp_path / f"out{index}")
        assert data_bytes(tmp_path / f"out{index}") == data_bytes(tmp_path / "expected")
        assert dropped(tmp_path / f"out{index}") == []
