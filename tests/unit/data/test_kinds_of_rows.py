"""One artifact from chats, documents, prompts and token ids: each source is read by its own kind of settings."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bridgepack.api import check, inspect
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import ConfigError, DataError
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.trace.trace import trace_source
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records import Manifest
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.read_rows import encoder_of, given_row

PROSE = "The wind rose in the night. Nobody slept."
LONG = " ".join([PROSE] * 12)
CHATS = [small.chat_row(f"What is {count} + 2?", f"It is {count + 2}.") for count in range(6)]
DOCUMENTS = [{"text": f"{count}: {PROSE}"} for count in range(4)]
PAIRS = [{"prompt": f"Count to {count}.", "completion": "one two three"} for count in range(3)]
IDS = [small.tokenized_row(5, 6, 7, 8, num_prompt=2), small.tokenized_row(9, 10, 11)]


@pytest.fixture
def sources(tmp_path: Path) -> list[dict[str, Any]]:
    """Return the sources of a chat recipe: chats, documents, prompts with completions, and ids."""
    given = {
        "chats": (CHATS, None),
        "documents": ([*DOCUMENTS, {"text": LONG}], {"kind": "text"}),
        "pairs": (PAIRS, {"kind": "prompt_completion", "prompt": "{prompt}", "completion": "{completion}"}),
        "ids": (IDS, {"kind": "tokenized"}),
    }
    found = []
    for name, (rows, layout) in given.items():
        path = small.write_json_lines(tmp_path / f"{name}.jsonl", rows)
        found.append({"path": str(path), **({"layout": layout} if layout else {})})
    return found


def _recipe(sources: Any, tokenizer: Path, **sections: Any) -> SFTRecipe:
    packing = {"packed_sequence_size": 64}
    return small.small_recipe("", tokenizer, **{"data": {"train": sources}, "packing": packing, **sections})


def _tokenizer(folder: Path) -> ChatTokenizer:
    return load_tokenizer(small.small_recipe("a", folder).tokenizer)


def _sequences(folder: Path, split: str = "training") -> dict[tuple[int, int, int], tuple[list[int], list[int]]]:
    """Return (file, row, first token) -> (ids, label-aligned mask) of every sequence; packs have no padding."""
    artifact = Artifact(folder)
    rows = [batch.row(index) for batch in artifact.iter_batches(split) for index in range(batch.num_rows)]
    has_pieces = artifact.manifest.splits[0].statistics.num_pieces
    names = ("pack", "file_index", "row", *(("first_token",) if has_pieces else ()))
    found: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for columns in iter_plan_columns(artifact, split, names):
        pack, file, row, *first = (column.tolist() for column in columns)
        position: Counter[int] = Counter()
        for index, number in enumerate(pack):
            bounds = [*rows[number].seq_start_id.tolist(), len(rows[number].input_ids)]
            start, stop = bounds[position[number]], bounds[position[number] + 1]
            position[number] += 1
            key = (file[index], row[index], first[0][index] if first else 0)
            found[key] = rows[number].input_ids[start:stop].tolist(), rows[number].loss_mask[start:stop].tolist()
    return found


def test_each_source_becomes_what_its_kind_says(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    tokenizer = _tokenizer(chatml_tokenizer)
    manifest = small.build(_recipe(sources, chatml_tokenizer), tmp_path / "out").manifest

    found = _sequences(tmp_path / "out")

    small.assert_balanced(manifest)
    assert Counter(file for file, _, _ in found) == {0: 6, 1: 4, 2: 3, 3: 2}
    assert manifest.splits[0].drops == {"over_long": 1}
    text = tokenizer.encode(DOCUMENTS[1]["text"])
    assert found[1, 2, 0] == ([*text, 2], [1] * len(text) + [0])
    prompt, completion = (tokenizer.encode(PAIRS[0][name]) for name in ("prompt", "completion"))
    assert found[2, 1, 0] == (
        [*prompt, *completion, 2],
        [0] * (len(prompt) - 1) + [1] * (len(completion) + 1) + [0],
    )
    assert found[3, 1, 0] == ([5, 6, 7, 8], [0, 1, 1, 0])
    alone = small.build(_recipe(sources[:1], chatml_tokenizer), tmp_path / "alone")
    assert alone.manifest.splits[0].statistics.num_sequences == 6
    assert {key: value for key, value in found.items() if key[0] == 0} == _sequences(tmp_path / "alone")


def test_answers_of_chats_between_rows_of_other_kinds(sources: list[dict[str, Any]], chatml_tokenizer: Path) -> None:
    """The segments of a batch are those of each chat alone, where its tokens are."""
    recipe = _recipe(sources, chatml_tokenizer)
    encoder = encoder_of(recipe, _tokenizer(chatml_tokenizer))
    rows = [CHATS[0], DOCUMENTS[0], CHATS[1], CHATS[2], DOCUMENTS[1]]
    values = [encoder.prepare(given_row(row)).value for row in rows]

    batch = encoder.encode(values)

    for index, value in enumerate(values):
        first = int(batch.offsets[index])
        places = [(item.message, item.start - first, item.stop - first) for item in batch.segments.of_row(index)]
        alone = encoder.encode([value]).segments.of_row(0)
        assert places == [(item.message, item.start, item.stop) for item in alone]
        assert [message for message, _, _ in places] == ([1, 1, 1] if "messages" in rows[index] else [])


def test_documents_are_split_where_chats_are_dropped(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    long_chat = small.chat_row("Tell me.", LONG)
    small.write_json_lines(tmp_path / "chats.jsonl", [*CHATS, long_chat])
    settings = {"kind": "chat", "others": [{"kind": "text", "over_long": "split"}]}
    recipe = _recipe(sources, chatml_tokenizer, preprocessing=settings)
    whole = [*_tokenizer(chatml_tokenizer).encode(LONG), 2]

    manifest = small.build(recipe, tmp_path / "out").manifest

    numbers, found = manifest.splits[0].statistics, _sequences(tmp_path / "out")
    pieces = {first: ids for (file, row, first), (ids, _) in sorted(found.items()) if (file, row) == (1, 5)}
    num_pieces = -(-(len(whole) - 1) // 64)
    small.assert_balanced(manifest)
    assert [(drop.file_index, drop.row, drop.reason) for drop in manifest.splits[0].drop_examples] == [
        (0, 7, "over_long")
    ]
    assert list(pieces) == [64 * index for index in range(num_pieces)]
    assert [token for ids in pieces.values() for token in ids[:-1]] == whole[:-1]
    assert (numbers.num_split, numbers.num_pieces, numbers.num_truncated) == (1, num_pieces, 0)


def test_truncated_chats_stand_beside_split_documents(tmp_path: Path, chatml_tokenizer: Path) -> None:
    chats = small.write_json_lines(tmp_path / "chats.jsonl", [small.chat_row("Tell me.", LONG), CHATS[0]])
    texts = small.write_json_lines(tmp_path / "texts.jsonl", [{"text": LONG}])
    settings = {"kind": "chat", "over_long": "truncate", "others": [{"kind": "text", "over_long": "split"}]}
    data = [str(chats), {"path": str(texts), "layout": {"kind": "text"}}]

    manifest = small.build(_recipe(data, chatml_tokenizer, preprocessing=settings), tmp_path / "out").manifest

    numbers = manifest.splits[0].statistics
    small.assert_balanced(manifest)
    assert (numbers.num_truncated, numbers.num_split, numbers.num_rows_packed) == (1, 1, 3)
    plan = pq.read_table(tmp_path / "out" / "plan" / "training.parquet").to_pylist()
    assert [(one["file_index"], one["row"]) for one in plan if one["is_truncated"]] == [(0, 1)]
    assert {one["first_token"] for one in plan if one["file_index"] == 1} == {*range(0, 385, 64)}
    assert verify_artifact(tmp_path / "out", VerifyOptions(num_packs=None)).outcome == "same"


def test_proofs_know_every_kind(tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path) -> None:
    settings = {"kind": "chat", "others": [{"kind": "text", "over_long": "split"}]}
    recipe = _recipe(sources, chatml_tokenizer, preprocessing=settings)
    folder = small.build(recipe, tmp_path / "out").output

    masks = check_masks(recipe, MaskOptions(num_rows=None))

    assert masks.outcome == "agree"
    assert (masks.num_agreed, masks.num_sequences) == (16, 16)
    judged = {one.name: (one.num_judged, one.num_in_part, one.num_not_judged) for one in masks.derivations}
    assert judged["everything"] == (5, 0, 0)
    assert judged["source columns"] == (2, 0, 0)
    assert judged["separate parts"] == (3, 0, 0)
    assert judged["incremental rendering"] == (6, 0, 0)
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(folder, options).outcome == "same"
    run = TracedRun(Artifact(folder), RunOptions(overrides={"batch.global_batch_size": 1}))
    trace = trace_source(run, "documents.jsonl", 5, limit=20)
    assert [placement.sequence.first_token for placement in trace.placements][:3] == [0, 64, 128]
    assert {finding.code for finding in check(folder).findings if finding.severity == "error"} == set()
    assert {item.row for pack in range(2) for item in inspect(folder, pack=pack).sequences}


def test_masks_find_a_document_whose_mask_is_wrong(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridgepack.data.sequences.plain import documents

    texts = small.write_json_lines(tmp_path / "texts.jsonl", DOCUMENTS)
    recipe = _recipe(str(texts), chatml_tokenizer, preprocessing={"kind": "text"})
    whole = documents.TextEncoder.encode

    def encode(encoder: Any, rows: Any) -> Any:
        flat = whole(encoder, rows)
        flat.loss_mask[3] = 0
        return flat

    monkeypatch.setattr(documents.TextEncoder, "encode", encode)

    report = check_masks(recipe, MaskOptions(num_rows=None))

    assert report.outcome == "disagree"
    assert report.num_with_findings == 1


@pytest.mark.parametrize("by", ["tokens", "rows"])
def test_a_mixture_takes_rows_whole(tmp_path: Path, chatml_tokenizer: Path, by: str) -> None:
    """20 chats and 12 documents, some of three pieces, at 1:1."""
    chats = [small.chat_row(f"What is {count} + 2?", f"It is {count + 2}.") for count in range(20)]
    texts = [{"text": LONG if count % 3 == 0 else f"{count}: {PROSE}"} for count in range(12)]
    data = [
        {"path": str(small.write_json_lines(tmp_path / "chats.jsonl", chats)), "weight": 1.0},
        {
            "path": str(small.write_json_lines(tmp_path / "texts.jsonl", texts)),
            "layout": {"kind": "text"},
            "weight": 1.0,
        },
    ]
    settings = {"kind": "chat", "over_long": "split"}
    total = 24 if by == "rows" else 3000
    recipe = _recipe(data, chatml_tokenizer, preprocessing=settings).override(
        {"data.mixture": {"by": by, "total": total}}
    )

    manifest = small.build(recipe, tmp_path / "out").manifest

    split = manifest.splits[0]
    small.assert_balanced(manifest)
    uses = _uses(tmp_path / "out")
    for (file, row), pieces in uses.items():
        assert len(set(pieces.values())) == 1, f"row {row} of file {file} is used in part"
    num_rows = Counter(file for (file, _), pieces in uses.items() for _ in range(next(iter(pieces.values()))))
    if by == "rows":
        assert num_rows == {0: 12, 1: 12}
        assert split.statistics.num_repeated == 0
        assert split.drops == {"not_sampled": 8}
        assert [source.share_got for source in split.sources] == [0.5, 0.5]
    else:
        assert [round(source.share_got, 1) for source in split.sources] == [0.5, 0.5]
        assert abs(split.statistics.num_tokens - total) < 150
    assert verify_artifact(tmp_path / "out", VerifyOptions(num_packs=None)).outcome == "same"


def _uses(folder: Path) -> dict[tuple[int, int], Counter[int]]:
    """Return (file, row) -> first token of a piece -> how often it is packed."""
    found: dict[tuple[int, int], Counter[int]] = {}
    for columns in iter_plan_columns(Artifact(folder), "training", ("file_index", "row", "first_token")):
        for file, row, first in zip(*(column.tolist() for column in columns), strict=True):
            found.setdefault((file, row), Counter())[first] += 1
    return found


def test_repack_and_workers_know_the_kinds(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    settings = {"kind": "chat", "others": [{"kind": "text", "over_long": "split"}]}
    recipe = _recipe(sources, chatml_tokenizer, preprocessing=settings)
    one = small.build(recipe, tmp_path / "one").output
    small.build(recipe, tmp_path / "two", num_workers=2)
    changes = {"packing.packed_sequence_size": 48, "preprocessing.others.0.over_long": "truncate"}

    again = repack_artifact(one, changes, output=tmp_path / "again", options=BuildOptions(num_workers=0))

    small.build(recipe.override(changes), tmp_path / "direct")
    assert small.file_bytes(tmp_path / "one") == small.file_bytes(tmp_path / "two")
    files, direct = (small.file_bytes(tmp_path / name) for name in ("again", "direct"))
    assert {name: files[name] for name in files if name != "manifest.json"} == {
        name: direct[name] for name in direct if name != "manifest.json"
    }
    assert again.manifest.served is None  # the sample of the source was cut otherwise
    assert again.manifest.splits[0].statistics.num_truncated == 1


def test_equal_rows_of_two_kinds_are_duplicates(tmp_path: Path, chatml_tokenizer: Path) -> None:
    ids = [*_tokenizer(chatml_tokenizer).encode(PROSE), 2]
    texts = small.write_json_lines(tmp_path / "texts.jsonl", [{"text": PROSE}, {"text": PROSE}])
    rows = small.write_json_lines(tmp_path / "ids.jsonl", [small.tokenized_row(*ids)])
    data = {"train": [str(texts), {"path": str(rows), "layout": {"kind": "tokenized"}}], "deduplicate": "exact"}

    manifest = small.build(
        small.small_recipe(
            "", chatml_tokenizer, data=data, preprocessing={"kind": "text"}, packing={"packed_sequence_size": 64}
        ),
        tmp_path / "out",
    ).manifest

    assert small.dropped(tmp_path / "out") == [(2, "duplicate"), (1, "duplicate")]
    assert manifest.splits[0].statistics.num_sequences == 1


def test_validation_rows_are_of_every_kind(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    data = {"train": sources, "validation_fraction": 0.4}
    recipe = _recipe(sources, chatml_tokenizer, data=data)

    manifest = small.build(recipe, tmp_path / "out").manifest

    small.assert_balanced(manifest)
    assert sum(split.statistics.num_rows_in for split in manifest.splits) == 16
    assert {file for file, _, _ in _sequences(tmp_path / "out", "validation")} == {0, 2, 3}
    assert {file for file, _, _ in _sequences(tmp_path / "out")} == {0, 1, 2, 3}


def test_tokens_in_the_store_depend_on_the_settings_of_other_kinds(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    recipe = _recipe(sources, chatml_tokenizer)
    with_bos = recipe.override({"preprocessing.others": [{"kind": "text", "add_bos": True}]})
    store = tmp_path / "store"

    small.build(recipe, tmp_path / "one", store=store)
    small.build(with_bos, tmp_path / "two", store=store)

    assert _sequences(tmp_path / "two")[1, 1, 0][0] == [0, *_sequences(tmp_path / "one")[1, 1, 0][0]]


def test_rows_of_several_kinds_are_encoded_in_their_order(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    from bridgepack.config.recipe.data import as_sources
    from bridgepack.data.layouts.reader import readers_of
    from bridgepack.data.reading.inputs import find_inputs

    recipe = _recipe(sources, chatml_tokenizer)
    encoder, read = encoder_of(recipe, _tokenizer(chatml_tokenizer)), readers_of(recipe)
    rows = [(0, CHATS[0]), (1, DOCUMENTS[0]), (3, IDS[0]), (0, CHATS[1]), (2, PAIRS[0]), (1, DOCUMENTS[1])]
    files = find_inputs(as_sources(recipe.data.train), "data.train", "training", tmp_path, read)
    seen = [files[place].view.read(row) for place, row in rows]  # type: ignore[union-attr]

    flat = encoder.encode([encoder.prepare(row).value for row in seen])

    for index, row in enumerate(seen):
        alone = encoder.encode([encoder.prepare(row).value])
        own = slice(flat.offsets[index], flat.offsets[index + 1])
        assert flat.input_ids[own].tolist() == alone.input_ids.tolist()
        assert flat.loss_mask[own].tolist() == alone.loss_mask.tolist()
        assert flat.num_context[index] == alone.num_context[0]
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("preprocessing", "layout", "message"),
    [
        ({"kind": "chat"}, "data", "they must be equal"),
        (
            {"kind": "chat", "others": [{"kind": "tokenized"}]},
            "source",
            "section of kind tokenized",
        ),
        ({"kind": "chat", "others": [{"kind": "chat"}]}, "source", "kind chat, whose settings"),
        (
            {"kind": "chat", "others": [{"kind": "text", "labels_after_eos": "train"}]},
            "source",
            r"others\.0\.labels_after_eos is train, and labels_after_eos is mask",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    preprocessing: dict[str, Any], layout: str, message: str
) -> None:
    text = {"layout": {"kind": "text"}}
    data = {"train": "a.jsonl", **text} if layout == "data" else {"train": ["a.jsonl", {"path": "b.jsonl", **text}]}

    with pytest.raises(ConfigError, match=message):
        small.small_recipe("", "x", data=data, preprocessing=preprocessing)


def test_a_layout_is_detected_beside_one_that_is_written(tmp_path: Path, chatml_tokenizer: Path) -> None:
    chats = small.write_json_lines(tmp_path / "chats.jsonl", [{"talk": CHATS[0]["messages"]}])
    texts = small.write_json_lines(tmp_path / "texts.jsonl", DOCUMENTS)
    data = [str(chats), {"path": str(texts), "layout": {"kind": "text"}}]
    recipe = _recipe(data, chatml_tokenizer, preprocessing={"kind": "chat"})

    assert small.build(recipe, tmp_path / "out").manifest.splits[0].statistics.num_sequences == 5


def test_a_build_that_stops_names_the_setting_of_the_kind(tmp_path: Path, chatml_tokenizer: Path) -> None:
    texts = small.write_json_lines(tmp_path / "texts.jsonl", [{"text": LONG}])
    chats = small.write_json_lines(tmp_path / "chats.jsonl", CHATS)
    data = [str(chats), {"path": str(texts), "layout": {"kind": "text"}}]
    settings = {"kind": "chat", "others": [{"kind": "text", "over_long": "error"}]}

    with pytest.raises(DataError, match=r"texts\.jsonl row 1: over_long"):
        small.build(_recipe(data, chatml_tokenizer, preprocessing=settings), tmp_path / "out")


def test_an_artifact_says_how_each_source_was_read(
    tmp_path: Path, sources: list[dict[str, Any]], chatml_tokenizer: Path
) -> None:
    manifest: Manifest = small.build(_recipe(sources, chatml_tokenizer), tmp_path / "out").manifest

    kinds = [source["layout"] and source["layout"]["kind"] for source in manifest.recipe["data"]["train"]]
    assert kinds == [None, "text", "prompt_completion", "tokenized"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["fingerprint"] == manifest.fingerprint


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"BP532"}),
        ({"preprocessing.others": [{"kind": "text", "add_bos": True}]}, set()),
        ({"preprocessing.others": [{"kind": "text", "add_bos": True, "over_long": "split"}]}, set()),
    ],
    ids=["without", "with", "with, split"],
)
def test_documents_without_bos_are_told_beside_chats(
    tmp_path: Path, chatml_tokenizer: Path, changes: dict[str, Any], expected: set[str]
) -> None:
    """The tokenizer puts BOS before every text, as Gemma's does."""
    folder = shutil.copytree(chatml_tokenizer, tmp_path / "tokenizer")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    chats = small.write_json_lines(tmp_path / "chats.jsonl", CHATS)
    texts = small.write_json_lines(tmp_path / "texts.jsonl", [*DOCUMENTS, {"text": LONG}])
    data = [str(chats), {"path": str(texts), "layout": {"kind": "text"}}]

    manifest = small.build(_recipe(data, folder).override(changes), tmp_path / "out").manifest

    assert manifest.tokenizer["adds_bos"]
    assert {finding.code for finding in check(tmp_path / "out").findings} & {"BP532"} == expected


def test_chats_in_documents_are_reported(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello"
    texts = small.write_json_lines(tmp_path / "texts.jsonl", [*DOCUMENTS, {"text": rendered}])

    small.build(_recipe(str(texts), chatml_tokenizer, preprocessing={"kind": "text"}), tmp_path / "out")

    (found,) = [finding for finding in check(tmp_path / "out").findings if finding.code == "BP559"]
    assert "1 of 5 sequences" in str(found)
    assert mentions(found, "texts.jsonl row 5: ", "turns of a chat, '<|im_start|>'")
