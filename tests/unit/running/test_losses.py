"""Losses by source: which pack a row is, what goes into the run's folder, and the names that trackers get."""

import json
from pathlib import Path

import numpy as np
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.running.losses.lines import append_losses, source_losses, tracker_names, tracker_values
from bridgepack.running.losses.packs import Doubt, Segments, SplitPacks
from tests.support import small_builds as small

#: Two sources; the last rows of both are equal, and each row fills most of a pack.
ROWS = {
    "a": [small.tokenized_row(*range(10, 21)), small.tokenized_row(30, 31, 32), small.tokenized_row(*range(60, 72))],
    "b": [small.tokenized_row(*range(40, 52)), small.tokenized_row(*range(60, 72))],
}


@pytest.fixture
def packs(tmp_path: Path, chatml_tokenizer: Path) -> SplitPacks:
    sources = [
        {"path": str(small.write_json_lines(tmp_path / f"{name}.jsonl", rows)), "name": name}
        for name, rows in ROWS.items()
    ]
    recipe = small.tokenized_recipe(sources, chatml_tokenizer, packing__algorithm="sequential")
    small.build(recipe, tmp_path / "out")
    return SplitPacks.of(Artifact(tmp_path / "out"), "training")


def test_sources_of_one_name_are_one(tmp_path: Path, chatml_tokenizer: Path) -> None:
    """Two splits of a data set have its name; as two sources, one line of the interval would hide the other."""
    names = {"first": "chats", "other": "code", "second": "chats"}
    sources = []
    for place, (file, name) in enumerate(names.items()):
        rows = [small.tokenized_row(*range(10 + 20 * place, 22 + 20 * place))]
        sources.append({"path": str(small.write_json_lines(tmp_path / f"{file}.jsonl", rows)), "name": name})
    small.build(small.tokenized_recipe(sources, chatml_tokenizer, packing__algorithm="sequential"), tmp_path / "out")
    packs = SplitPacks.of(Artifact(tmp_path / "out"), "training")

    assert (packs.names, packs.num_trained_tokens) == (("chats", "code"), (22, 11))
    assert packs.sources.tolist() == [0, 1, 0]


def test_three_rows_of_ten_thousand_have_their_source(tmp_path: Path, chatml_tokenizer: Path) -> None:
    """Every pack is found by its digest, and the three rows of the second source are where the packs have them."""
    rng = np.random.default_rng(5)
    common = (small.tokenized_row(*rng.integers(10, 200, 4).tolist()) for _ in range(9_997))
    files = {"common": common, "rare": [small.tokenized_row(*[300 + row] * 4) for row in range(3)]}
    sources = [
        {"path": str(small.write_json_lines(tmp_path / f"{name}.jsonl", rows)), "name": name}
        for name, rows in files.items()
    ]
    recipe = small.tokenized_recipe(sources, chatml_tokenizer, packing__packed_sequence_size=512)
    artifact = Artifact(small.build(recipe, tmp_path / "out").output)
    packs, sources_of_ids = SplitPacks.of(artifact, "training"), []
    for pack in range(artifact.split("training").statistics.num_packs):
        row = artifact.row("training", pack)
        is_input = np.ones(len(row.input_ids), dtype=bool)
        is_input[np.append(row.seq_start_id[1:], len(row.input_ids)) - 1] = False
        ends = np.append(row.seq_start_id[1:], len(row.input_ids)) - np.arange(1, len(row.seq_start_id) + 1)
        ids, mask = row.input_ids[is_input].astype(np.int64), row.loss_mask[is_input] != 0
        segments = packs.find(ids, mask, np.append(0, ends))
        assert isinstance(segments, Segments)
        assert segments.pack == pack
        sources_of_ids += [(int(ids[end - 1]), source) for end, source in zip(ends, segments.sources, strict=True)]

    assert len(sources_of_ids) == 10_000
    assert sorted(ids for ids, source in sources_of_ids if source == 1) == [300, 301, 302]


def _find(packs: SplitPacks, ids: list[int], ends: list[int], *, num_prompt: int = 0) -> Segments | Doubt | None:
    """Find a row of 16 tokens with a tail; the mask is 1 from the second token of a sequence on."""
    is_trained = np.zeros(16, dtype=bool)
    for start, stop in zip([0, *ends], ends, strict=False):
        is_trained[start + num_prompt : stop] = True
    tokens = np.array(ids + [packs.eos_token_id] * (16 - len(ids)), dtype=np.int64)
    return packs.find(tokens, is_trained, np.array([0, *ends, 16, 16]))


def test_a_row_is_the_pack_whose_tokens_mask_and_boundaries_it_has(packs: SplitPacks) -> None:
    found = _find(packs, [*range(10, 20), 30, 31], [10, 12])

    assert isinstance(found, Segments)
    assert (found.pack, found.ends.tolist(), found.sources.tolist()) == (0, [10, 12], [0, 0])
    assert packs.names == ("a", "b")


@pytest.mark.parametrize(
    ("ids", "ends", "num_prompt"),
    [
        ([*range(11, 21), 30, 31], [10, 12], 0),
        ([*range(10, 20), 30, 31], [10, 12], 1),
        ([*range(10, 20), 30, 31], [9, 12], 0),
        ([*range(10, 20)], [10], 0),
        ([*range(60, 71)], [11], 0),
    ],
    ids=["other tokens", "another mask", "other boundaries", "a part", "equal rows of two sources"],
)
def test_a_row_in_doubt_has_no_source(packs: SplitPacks, ids: list[int], ends: list[int], num_prompt: int) -> None:
    assert isinstance(_find(packs, ids, ends, num_prompt=num_prompt), Doubt)


def test_a_row_of_which_nothing_is_trained_is_left_out(packs: SplitPacks) -> None:
    assert packs.find(np.arange(16), np.zeros(16, dtype=bool), np.array([0, 16])) is None


def test_lines_have_the_sources_of_an_interval(tmp_path: Path) -> None:
    sums = [(6.0, 3.0), (0.0, 0.0), (2.5, 5.0)]
    losses = source_losses(["a", "b"], sums, split="training", first_step=1, step=2)
    append_losses(tmp_path / "run", losses)
    append_losses(tmp_path / "run", losses[:1])

    lines = [json.loads(line) for line in (tmp_path / "run" / "by-source.jsonl").read_text().splitlines()]
    place = {"step": 2, "first_step": 1, "split": "training", "unattributed": 5, "start": 1}
    assert lines[:2] == [
        {**place, "source": "a", "loss_sum": 6.0, "num_trained_tokens": 3},
        {**place, "source": None, "loss_sum": 2.5, "num_trained_tokens": 5},
    ]
    assert len(lines) == 3
    assert tracker_values(losses, {"a": "a", "b": "b"}) == {"lm loss/a": 2.0}


def test_names_of_sources_are_those_that_trackers_take() -> None:
    names = ["a/b", "a_b", "größe: 1", "..", "a/../b", "a"]

    assert tracker_names(names, [1] * 6) == {
        "a/b": "a/b",
        "a_b": "a_b 2",
        "größe: 1": "gr__e_ 1",
        "..": "_",
        "a/../b": "a/b 3",
        "a": "a",
    }


def test_trackers_show_64_sources_and_the_rest_together() -> None:
    names = [f"s{number}" for number in range(66)]
    labels = tracker_names(names, list(range(66)))
    sums = [(float(number), 1.0) for number in range(66)]
    losses = source_losses(names, [*sums, (0.0, 0.0)], split="validation", first_step=4, step=4)

    values = tracker_values(losses, labels)

    assert len(values) == 64
    assert values["lm loss/other validation"] == 1.0  # of 0, 1 and 2
    assert values["lm loss/s3 validation"] == 3.0
