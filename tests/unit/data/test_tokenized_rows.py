"""Rows of tokens: pads at the ends are cut off, and a row of several samples is refused with what shows them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.config.recipe.preprocessing import TokenizedPreprocessing
from bridgepack.config.recipe.sample_columns import SAMPLE_COLUMNS
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.plain.tokenized import TokenizedEncoder
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.records import DropReason
from tests.support.messages import mentions
from tests.support.read_rows import ReadingEncoder, encode_examples
from tests.support.small_builds import build, dropped, tokenized_recipe, tokenized_row, write_json_lines
from tests.zoo.tokenizers import CHATML, loaded_tokenizer

PAD, EOS = 0, 2
IDS = [11, 12, 13, EOS]
ROW = tokenized_row(*IDS, num_prompt=2)
TWO = {"input_ids": [*IDS, *IDS], "labels": ROW["labels"] * 2}
EIGHT = tokenized_row(*range(11, 19), num_prompt=2)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    loaded = loaded_tokenizer(tmp_path_factory.mktemp("tokenizer"), CHATML)
    assert loaded.special_token_id("pad") == PAD
    return loaded


def _encoded(tokenizer: ChatTokenizer, row: dict[str, Any], **layout: Any) -> Encoded | RowError:
    encoder = ReadingEncoder(TokenizedEncoder(tokenizer), TokenizedPreprocessing(kind="tokenized"), layout)
    (found,) = encode_examples(encoder, [row])
    return found


def _refusal(tokenizer: ChatTokenizer, row: dict[str, Any], **layout: Any) -> str:
    found = _encoded(tokenizer, row, **layout)
    assert isinstance(found, RowError), found
    assert found.reason == DropReason.INVALID_FIELD
    return found.detail


def _padded(left: int, right: int, **columns: Any) -> dict[str, Any]:
    """Return a row of four tokens with pads."""
    labels = [-100] * left + ROW["labels"] + [-100] * right
    mask = [0] * left + [1] * len(IDS) + [0] * right
    return {"input_ids": [PAD] * left + IDS + [PAD] * right, "labels": labels, "attention_mask": mask, **columns}


#: What must not change: (other columns of a row of four tokens).
WHOLE: list[dict[str, Any]] = [
    {},
    dict.fromkeys(SAMPLE_COLUMNS),
    {"attention_mask": [1, 1, 1, 1], "position_ids": [0, 1, 2, 3], "token_type_ids": [0, 0, 1, 1]},
    {"attention_mask": [True] * 4, "position_ids": np.arange(4)},
    {"length": 4, "num_tokens": 4.0, "seq_lengths": [4], "lengths": np.array([4]), "seqlens": [4, 0, 0]},
    {"cu_seqlens": [0, 4], "cu_seq_lens_q": [0, 4, 4], "seq_boundaries": [0, 4]},
    {"segment_ids": [1, 1, 1, 1], "document_ids": ["a"], "sequence_id": "row-7", "document_id": 17},
    {"length": "short", "num_tokens": True, "sequence_ids": np.zeros(4, dtype=np.int64), "seq_lengths": []},
    {"length": np.int64(4)},
]


@pytest.mark.parametrize("columns", WHOLE)
def test_a_row_of_one_sample_stays_as_it_is(tokenizer: ChatTokenizer, columns: dict[str, Any]) -> None:
    assert _encoded(tokenizer, ROW | columns) == Encoded(IDS, [0, 0, 1, 1])


@pytest.mark.parametrize(("left", "right"), [(3, 0), (0, 2), (1, 1), (0, 1)])
@pytest.mark.parametrize(
    "columns",
    [
        lambda left, right: {},
        lambda left, right: {"position_ids": [1] * left + [0, 1, 2, 3] + [1] * right, "length": 4},
        lambda left, right: {"position_ids": list(range(left + 4 + right)), "num_tokens": left + 4 + right},
        lambda left, right: {"segment_ids": [0] * left + [1] * 4 + [0] * right, "seq_lengths": [4]},
        lambda left, right: {"loss_mask": [0] * left + [0, 0, 1, 1] + [0] * right},
    ],
)
def test_pads_are_cut_off(tokenizer: ChatTokenizer, left: int, right: int, columns: Any) -> None:
    found = _encoded(tokenizer, _padded(left, right, **columns(left, right)))

    assert found == Encoded(IDS, [0, 0, 1, 1])


def test_pads_may_be_ids_that_the_tokenizer_lacks(tokenizer: ChatTokenizer) -> None:
    row = _padded(0, 2)
    row["input_ids"][-2:] = [-1, 10**9]

    assert _encoded(tokenizer, row) == Encoded(IDS, [0, 0, 1, 1])


@given(left=st.integers(0, 4), right=st.integers(0, 4), ids=st.lists(st.integers(1, 300), min_size=1, max_size=9))
def test_a_padded_row_is_the_row_without_pads(tokenizer: ChatTokenizer, left: int, right: int, ids: list[int]) -> None:
    labels = [-100 if token % 3 else token for token in ids]
    padded = {
        "input_ids": [PAD] * left + ids + [PAD] * right,
        "labels": [-100] * left + labels + [-100] * right,
        "attention_mask": [0] * left + [1] * len(ids) + [0] * right,
    }

    assert _encoded(tokenizer, padded) == _encoded(tokenizer, {"input_ids": ids, "labels": labels})


#: (row, what its refusal says)
REFUSED: list[tuple[dict[str, Any], str]] = [
    (_padded(0, 1, labels=[-100, -100, 13, EOS, PAD]), "labels[4] is 0 at a pad, where attention_mask is 0; it must"),
    (_padded(1, 0, loss_mask=[1, 0, 0, 1, 1]), "loss_mask[0] is 1 at a pad, where attention_mask is 0; it must be 0"),
    (ROW | {"attention_mask": [1, 1, 0, 1]}, "attention_mask is 0 at 2, between tokens with 1; only pads at"),
    (ROW | {"attention_mask": [0, 0, 0, 0]}, "attention_mask is 0 everywhere, so the row is only padding"),
    (ROW | {"attention_mask": [1, 1, 1]}, "attention_mask has 3 entries for 4 ids"),
    (ROW | {"attention_mask": [0, 2, 2, 0]}, "attention_mask is 2 at 1; it must hold only 0 and 1"),
    (ROW | {"attention_mask": [-1, -1, -1, -1]}, "attention_mask is -1 at 0; it must hold only 0 and 1"),
    (ROW | {"attention_mask": 1}, "attention_mask is an int; it must be a list of whole numbers"),
    (ROW | {"attention_mask": [0.0, -1e9, 0.5, 0]}, "attention_mask must be a list of whole numbers"),
    (ROW | {"attention_mask": np.tri(4)}, "attention_mask is a list of lists, as packed rows have it; give one"),
    (TWO | {"attention_mask": [1] * 4 + [2] * 4}, "2 samples (attention_mask changes from 1 to 2 at 4); give one"),
    (
        TWO | {"attention_mask": [1] * 4 + [2] * 3 + [0]},
        "2 samples (attention_mask changes from 1 to 2 at 4); give one",
    ),
    (
        TWO | {"position_ids": [0, 1, 2, 3, 0, 1, 2, 3]},
        "the row holds 2 samples (position_ids restart at 4); give one sample per row",
    ),
    (TWO | {"input_pos": [0, 1, 0, 1, 2, 0, 1, 2]}, "the row holds 3 samples (input_pos restart at 2)"),
    (
        _padded(2, 0, position_ids=[0, 0, 0, 1, 0, 1]),
        "the row holds 2 samples (position_ids restart at 4); give one sample per row",
    ),
    (ROW | {"position_ids": [5, 6, 7, 8]}, "position_ids begin with 5; the positions of a sample begin with 0"),
    (ROW | {"position_ids": [0, 1, 7, 8]}, "position_ids go from 1 to 7 at 2; they must count the tokens"),
    (ROW | {"position_ids": [0, 1, 2]}, "position_ids has 3 entries for 4 ids"),
    (ROW | {"position_ids": [[0, 1, 2, 3]] * 3}, "position_ids is a list of lists"),
    (TWO | {"seq_lengths": [4, 4]}, "the row holds 2 samples (seq_lengths has 4, 4); give one sample per row"),
    (TWO | {"seq_lens": [2, 2, 2, 1, 1]}, "the row holds 5 samples (seq_lens has 2, 2, 2, 1, ...); give one"),
    (EIGHT | {"lengths": np.array([3, 5])}, "the row holds 2 samples (lengths has 3, 5)"),
    (EIGHT | {"sequence_lengths": [5]}, "sequence_lengths is 5, but the row has 8 ids; correct or remove the column"),
    (EIGHT | {"length": 7}, "length is 7, but the row has 8 ids; correct or remove the column"),
    (EIGHT | {"num_tokens": 0}, "num_tokens is 0, but the row has 8 ids"),
    (_padded(0, 2, num_tokens=5), "num_tokens is 5, but the row has 6 ids, 4 without pads; correct or remove"),
    (TWO | {"cu_seqlens": [0, 4, 8]}, "the row holds 2 samples (cu_seqlens has 4, 8)"),
    (TWO | {"cu_seq_lens_q": [0, 4, 8, 8]}, "the row holds 2 samples (cu_seq_lens_q has 4, 8)"),
    (EIGHT | {"cu_seqlens": [0, 4]}, "cu_seqlens is 4, but the row has 8 ids"),
    (TWO | {"seq_start_id": [0, 4]}, "the row has seq_start_id, so it is a pack; give its unpacked rows"),
    (TWO | {"segment_ids": [1] * 4 + [2] * 4}, "the row holds 2 samples (segment_ids changes from 1 to 2 at 4)"),
    (TWO | {"sequence_ids": [0] * 4 + [1] * 4}, "the row holds 2 samples (sequence_ids changes from 0 to 1 at 4)"),
    (TWO | {"document_ids": ["a"] * 4 + ["b"] * 4}, "the row holds 2 samples (document_ids changes from 'a' to 'b'"),
    (TWO | {"document_ids": ["a", "b"]}, "document_ids has 2 entries for 8 ids; give one sample per row"),
    (TWO | {"inputs_segmentation": [[1, 1]] * 4}, "inputs_segmentation is a list of lists"),
    (
        {"input_ids": [PAD, PAD, *IDS], "labels": [-100, -100, *ROW["labels"]]},
        "input_ids begins with 2 pad tokens (0), and the row has no attention_mask; add it, with 0 at pads, or cut",
    ),
    (
        {"input_ids": [*IDS, *[PAD] * 3], "labels": [*ROW["labels"], *[PAD] * 3]},
        "input_ids ends with 3 pad tokens (0), and the row has no attention_mask",
    ),
    (
        {"input_ids": IDS, "labels": [12, 13, EOS, -100]},
        "labels[0] is 12; it must be input_ids[0], 11, or -100: labels",
    ),
    ({"input_ids": IDS, "labels": [-100, -100, 13]}, "labels has 3 entries for 4 ids"),
    ({"input_ids": IDS, "labels": [-100, -100, 13, EOS, 7]}, "labels has 5 entries for 4 ids"),
]


@pytest.mark.parametrize(("row", "detail"), REFUSED)
def test_rows_that_are_no_single_sample_are_refused(tokenizer: ChatTokenizer, row: dict[str, Any], detail: str) -> None:
    assert detail in _refusal(tokenizer, row)


@pytest.mark.parametrize("name", sorted(SAMPLE_COLUMNS))
def test_every_column_is_read(tokenizer: ChatTokenizer, name: str) -> None:
    detail = _refusal(tokenizer, EIGHT | {name: [0, 1, 2, 3, 0, 1, 2, 3]})

    assert name in detail


def test_one_pad_token_may_begin_or_end_a_text(tokenizer: ChatTokenizer) -> None:
    row = tokenized_row(PAD, 11, 12, PAD, num_prompt=2)

    assert _encoded(tokenizer, row) == Encoded([PAD, 11, 12, PAD], [0, 0, 1, 1])


def test_columns_that_the_recipe_reads_as_masks_are_no_layout(tokenizer: ChatTokenizer) -> None:
    row = {"input_ids": IDS, "attention_mask": [0, 1, 0, 1], "length": [0, 1, 1, 1]}

    found = _encoded(tokenizer, {"input_ids": IDS, "attention_mask": [0, 1, 0, 1]}, loss_mask="attention_mask")

    assert found == Encoded(IDS, [0, 1, 0, 1])
    assert "length has 1, 1, 1" in _refusal(tokenizer, row, loss_mask="attention_mask")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_build_cuts_pads_and_drops_packs(tmp_path: Path, chatml_tokenizer: Path, kind: str) -> None:
    rows = [ROW | {"attention_mask": [1] * 4}, _padded(3, 2), TWO | {"attention_mask": [1] * 8}]
    rows = [row | {"position_ids": list(range(4)) * 2 if row["labels"] == TWO["labels"] else None} for row in rows]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    if kind == "parquet":
        path = tmp_path / "a.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    recipe = tokenized_recipe(path, chatml_tokenizer, packing__packed_sequence_size=8)

    (split,) = build(recipe, tmp_path / "out").manifest.splits

    assert dropped(tmp_path / "out") == [(3, "invalid_field")]
    assert mentions(split.drop_examples[0].detail, "2 samples (position_ids restart at 4); ", "one sample per row")
    assert split.statistics.num_rows_packed == 2
    report = check_masks(str(tmp_path / "out"), MaskOptions(num_rows=None))
    assert (report.num_agreed, report.num_with_findings) == (2, 0), json.dumps(report.drops)
