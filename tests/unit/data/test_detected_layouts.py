"""Without a layout, the layouts that fit are detected where data is read, recorded, and used again by proofs."""

import gzip
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.artifact.plan import iter_dropped_rows
from bridgepack.data.repack import repack_artifact
from bridgepack.errors import ConfigError, DataError
from bridgepack.planning.preview import preview_recipe
from bridgepack.proof.sources import found_sources
from tests.support.messages import mentions
from tests.support.small_builds import build, chat_row, data_bytes, small_recipe, write_json_lines

Row = dict[str, Any]
CHATS = [chat_row(f"What is {number} + 2?", f"It is {number + 2}.") for number in range(4)]
PAIRS = [{"prompt": f"Count to {number}.", "completion": f"One to {number}."} for number in range(3)]
#: Each row has all columns, as in a table: null where another shape has a value.
MIXED = [{"messages": None, "prompt": None, "completion": None, **row} for row in (*CHATS, *PAIRS)]


def _recipe(train: Any, tokenizer: Path, **sections: Any) -> Any:
    return small_recipe(train, tokenizer, **{"packing": {"packed_sequence_size": 64}, **sections})


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "json", "parquet"])
def test_messages_in_some_rows_and_prompts_in_others_are_all_read(
    tmp_path: Path, chatml_tokenizer: Path, form: str
) -> None:
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(MIXED), path)
    else:
        lines = [json.dumps(row) for row in MIXED]
        text = (f"[{','.join(lines)}]" if form == "json" else "\n".join(lines)).encode()
        path.write_bytes(gzip.compress(text) if form.endswith("gz") else text)

    manifest = build(_recipe(path, chatml_tokenizer), tmp_path / "out").manifest

    (split,) = manifest.splits
    assert (split.statistics.num_sequences, split.drops) == (7, {})
    assert split.inputs[0].read_as == {"messages": 4, "prompt_completion": 3}
    assert manifest.resolved["layout"]["value"]["training"][0]["names"] == ["messages", "prompt_completion"]
    assert read_manifest(tmp_path / "out").fingerprint == fingerprint_of_manifest(read_manifest(tmp_path / "out"))


def test_a_written_list_reads_the_same_rows(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", MIXED)
    texts = [{"role": "user", "content": "{prompt}"}, {"role": "assistant", "content": "{completion}"}]
    parts: list[Any] = [texts, [{"from_column": "messages"}]]
    layouts = [{"kind": "chat", "messages": messages} for messages in parts]
    data = {"train": str(path), "layout": layouts}

    detected = build(_recipe(path, chatml_tokenizer), tmp_path / "detected")
    written = build(_recipe("", chatml_tokenizer, data=data), tmp_path / "written")

    assert data_bytes(detected.output) == data_bytes(written.output)
    assert detected.manifest.fingerprint != written.manifest.fingerprint
    assert written.manifest.splits[0].inputs[0].read_as == {"prompt, completion": 3, "messages": 4}
    assert "layout" not in written.manifest.resolved


def test_a_row_is_read_by_the_layout_with_most_of_its_columns(tmp_path: Path, chatml_tokenizer: Path) -> None:
    answered = [{**row, "response": None} for row in CHATS]
    open_turns = [{"messages": CHATS[0]["messages"][:1], "response": "It is two."}]
    path = write_json_lines(tmp_path / "rows.jsonl", [*answered, *open_turns])

    (split,) = build(_recipe(path, chatml_tokenizer), tmp_path / "out").manifest.splits

    assert (split.drops, split.unread, split.lost_content) == ({}, (), {})
    assert split.inputs[0].read_as == {"messages": 4, "turns_and_answer": 1}


def test_a_list_of_which_none_fits_names_all(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [{"text": "No chat."}])
    parts = [[{"from_column": name}] for name in ("messages", "asked with care")]
    data = {"train": str(path), "layout": [{"kind": "chat", "messages": messages} for messages in parts]}

    with pytest.raises(DataError, match=r"none of messages, asked .*care; .*: text; make its"):
        build(_recipe("", chatml_tokenizer, data=data), tmp_path / "out")


def test_the_place_of_the_data_and_the_number_of_sources_change_nothing(tmp_path: Path, chatml_tokenizer: Path) -> None:
    for folder in ("one", "other"):
        write_json_lines(tmp_path / folder / "a.jsonl", MIXED)
        write_json_lines(tmp_path / folder / "b.jsonl", MIXED)
    sources = [[str(tmp_path / "one")], [str(tmp_path / "other" / name) for name in ("a.jsonl", "b.jsonl")]]

    made = [build(_recipe(train, chatml_tokenizer), tmp_path / f"out{index}") for index, train in enumerate(sources)]

    assert made[0].manifest.fingerprint == made[1].manifest.fingerprint
    assert data_bytes(made[0].output) == data_bytes(made[1].output)


def test_what_was_detected_is_part_of_the_fingerprint(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [*MIXED[4:], *MIXED[:4]]
    recipe = _recipe(write_json_lines(tmp_path / "rows.jsonl", rows), chatml_tokenizer)
    build(recipe, tmp_path / "out")

    manifest = read_manifest(tmp_path / "out")
    assert fingerprint_of_manifest(manifest) == manifest.fingerprint
    manifest.resolved["layout"]["value"]["training"][0]["layouts"].reverse()
    assert fingerprint_of_manifest(manifest) != manifest.fingerprint


def test_a_later_file_of_another_shape_drops_its_rows_by_name(tmp_path: Path, chatml_tokenizer: Path) -> None:
    write_json_lines(tmp_path / "data" / "a.jsonl", CHATS)
    write_json_lines(tmp_path / "data" / "b.jsonl", PAIRS)

    manifest = build(_recipe(tmp_path / "data", chatml_tokenizer), tmp_path / "out").manifest

    (split,) = manifest.splits
    assert split.drops == {"missing_field": 3}
    assert [record.read_as for record in split.inputs] == [{"messages": 4}, {"messages": 0}]
    dropped = list(iter_dropped_rows(Artifact(tmp_path / "out")))
    assert {Path(row.file).name for row in dropped} == {"b.jsonl"}
    assert all(mentions(row.detail, "is read as messages", "first rows") for row in dropped)
    assert len(dropped) == 3


def _cure_of(artifact: Path) -> str:
    (detail,) = {row.detail for row in iter_dropped_rows(Artifact(artifact))}
    return detail.partition("first rows are; ")[2]


def _layout_in(cure: str) -> Any:
    """Return the layout that a cure says to write, as it would be read from a recipe."""
    text = cure[min(cure.index(mark) for mark in "[{" if mark in cure) :]
    depths = accumulate((mark in "{[") - (mark in "}]") for mark in text)
    return YAML(typ="safe").load(text[: next(index for index, depth in enumerate(depths) if depth == 0) + 1])


def test_the_cure_of_a_later_file_of_another_shape_keeps_the_rows_of_the_first(
    tmp_path: Path, chatml_tokenizer: Path
) -> None:
    write_json_lines(tmp_path / "data" / "a.jsonl", CHATS)
    write_json_lines(tmp_path / "data" / "b.jsonl", PAIRS)
    questions = write_json_lines(tmp_path / "c.jsonl", [{"question": "Why?", "answer": "It is so."}])
    recipe = _recipe(tmp_path / "data", chatml_tokenizer)
    build(recipe, tmp_path / "out")
    cure = _cure_of(tmp_path / "out")
    sources = [{"path": str(tmp_path / "data"), "layout": _layout_in(cure)}, str(questions)]

    alone = build(recipe.override({"data.layout": _layout_in(cure)}), tmp_path / "alone").manifest
    beside_another = build(_recipe(sources, chatml_tokenizer), tmp_path / "two").manifest

    assert mentions(cure, "set data.layout to ", "layout of its source")
    assert (alone.splits[0].statistics.num_sequences, alone.splits[0].drops) == (7, {})
    assert (beside_another.splits[0].statistics.num_sequences, beside_another.splits[0].drops) == (8, {})


def test_the_cure_of_a_later_file_of_another_kind_gives_it_a_source(tmp_path: Path, chatml_tokenizer: Path) -> None:
    chats = write_json_lines(tmp_path / "data" / "a.jsonl", CHATS)
    documents = write_json_lines(tmp_path / "data" / "b.jsonl", [{"text": "It rained all night."}])
    build(_recipe(tmp_path / "data", chatml_tokenizer), tmp_path / "out")
    cure = _cure_of(tmp_path / "out")

    sources = [str(chats), {"path": str(documents), "layout": _layout_in(cure)}]
    manifest = build(_recipe(sources, chatml_tokenizer), tmp_path / "followed").manifest

    assert mentions(cure, "source of its own", "layout: {kind: text}")
    assert (manifest.splits[0].statistics.num_sequences, manifest.splits[0].drops) == (5, {})


@pytest.mark.parametrize("first", [b"", b"\n\n", b"{broken\n[1, 2]\n{}\n"])
def test_the_first_file_with_a_row_decides(tmp_path: Path, chatml_tokenizer: Path, first: bytes) -> None:
    write_json_lines(tmp_path / "data" / "b.jsonl", PAIRS)
    write_json_lines(tmp_path / "data" / "c.jsonl", CHATS)
    (tmp_path / "data" / "a.jsonl").write_bytes(first)

    (split,) = build(_recipe(tmp_path / "data", chatml_tokenizer), tmp_path / "out").manifest.splits

    assert split.statistics.num_sequences == 3
    assert [record.read_as for record in split.inputs[1:]] == [{"prompt_completion": 3}, {"prompt_completion": 0}]


def test_rows_of_which_none_can_be_read_are_dropped_with_their_reasons(tmp_path: Path, chatml_tokenizer: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{broken\n{}\n")

    with pytest.raises(DataError, match=r"all 2 rows were dropped \(invalid_json 1, missing_field 1\)"):
        build(_recipe(tmp_path / "a.jsonl", chatml_tokenizer), tmp_path / "out")


def test_a_missing_file_is_named_before_a_layout_is_looked_for(tmp_path: Path, chatml_tokenizer: Path) -> None:
    with pytest.raises(DataError, match=r"data\.train is .*none\.jsonl'; .*no such file"):
        build(_recipe(tmp_path / "none.jsonl", chatml_tokenizer), tmp_path / "out")


def test_an_error_names_the_field_and_the_file(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = write_json_lines(tmp_path / "texts.jsonl", [{"text": "A document, and no more."}])
    data = {"train": str(write_json_lines(tmp_path / "chats.jsonl", CHATS)), "validation": str(path)}

    with pytest.raises(ConfigError) as caught:
        build(_recipe("", chatml_tokenizer, data=data), tmp_path / "out")

    assert mentions(caught.value, f"data.validation: {path}: ", "chat, but as text")


def test_resolving_opens_no_file_and_says_that_it_is_detected() -> None:
    recipe = _recipe("none.jsonl", "no/tokenizer")  # type: ignore[arg-type]

    assert recipe.resolve().explain()["layout"]["value"] == "detected from the data"


def test_the_preview_says_what_is_read_and_what_can_be_chosen(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(write_json_lines(tmp_path / "rows.jsonl", PAIRS), chatml_tokenizer)
    (source,) = preview_recipe(recipe).sources
    (plain,) = preview_recipe(recipe.override({"preprocessing": {"kind": "prompt_completion"}})).sources

    assert (source.read_as, source.kind) == ({"prompt_completion": 3}, "chat")
    assert (plain.read_as, plain.kind) == ({"prompt_completion": 3}, "prompt_completion")


def test_proofs_read_as_the_build_did_though_the_first_file_has_changed(tmp_path: Path, chatml_tokenizer: Path) -> None:
    write_json_lines(tmp_path / "data" / "a.jsonl", CHATS[:1])
    write_json_lines(tmp_path / "data" / "b.jsonl", CHATS[1:])
    output = build(_recipe(tmp_path / "data", chatml_tokenizer), tmp_path / "out").output
    write_json_lines(tmp_path / "data" / "a.jsonl", PAIRS)

    manifest = read_manifest(output)
    recipe = small_recipe(tmp_path / "data", chatml_tokenizer)
    names = []
    for recorded in (manifest, None):
        with found_sources(recipe, recorded) as sources:
            names.append([file.view.reading.names for file in sources.files["training"] if file.view is not None])
    assert names == [[("messages",)] * 2, [("prompt_completion",)] * 2]


def test_repacking_keeps_what_was_detected(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", MIXED)
    recipe = _recipe(path, chatml_tokenizer)
    build(recipe, tmp_path / "out")

    result = repack_artifact(tmp_path / "out", {"packing.packed_sequence_size": 128}, output=tmp_path / "wide")
    again = build(recipe.override({"packing.packed_sequence_size": 128}), tmp_path / "again")

    assert result.manifest.fingerprint == again.manifest.fingerprint
    assert result.manifest.splits[0].inputs[0].read_as == {"messages": 4, "prompt_completion": 3}
