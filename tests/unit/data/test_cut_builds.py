"""Builds that cut conversations between exchanges: what counts rows, what counts pieces, what proves them."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bridgepack.api import check, inspect, report
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.sequences.over_long import HistoryCut
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.trace.trace import trace_source
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.reporting.results.artifacts import manifest_blocks
from bridgepack.reporting.results.packs import pack_blocks
from bridgepack.reporting.screen import screen
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.thoughtful import said
from tests.unit.data.test_split_builds import _assert_adds_up
from tests.zoo import exchanges
from tests.zoo.tokenizers import write_tokenizer

CUTS = ["truncate_history", "split_exchanges"]
SYSTEM = said("system", "answer in one line")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("exchanges"), exchanges.FAMILIES["exchanges"])


def _exchange(number: int, num_words: int = 1) -> list[thoughtful.Message]:
    return [said("user", f"ask {number}"), said("assistant", f"say {number} " + "word " * num_words)]


def _row(*exchanges: list[thoughtful.Message]) -> list[thoughtful.Message]:
    return [SYSTEM, *(turn for exchange in exchanges for turn in exchange)]


def _recipe(train: Any, tokenizer: Path, action: str, **changes: Any) -> SFTRecipe:
    packing = {"packed_sequence_size": 64}
    recipe = small.small_recipe(train, tokenizer, preprocessing={"kind": "chat", "over_long": action}, packing=packing)
    return small.with_changes(recipe, changes)


def _assert_proved(folder: Path, num_rows: int) -> None:
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(folder, options).outcome == "same"
    masks = check_masks(folder, MaskOptions(num_rows=None))
    assert (masks.outcome, masks.num_rows_read) == ("agree", num_rows)
    assert not [finding for finding in check(folder).findings if finding.severity == "error"]


@pytest.mark.parametrize("action", CUTS)
def test_trace_inspect_and_diff_know_the_row(tmp_path: Path, tokenizer: Path, action: str) -> None:
    long = _row(*(_exchange(number, 4) for number in range(6)))
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [_row(_exchange(9)), long])
    built = small.build(_recipe(source, tokenizer, action), tmp_path / "out")
    split = built.manifest.splits[0]

    _assert_adds_up(built.output, built.manifest)
    _assert_proved(built.output, 2)
    run = TracedRun(Artifact(built.output), RunOptions(overrides={"batch.global_batch_size": 1}))
    sequences = [one.sequence for one in trace_source(run, "a.jsonl", 2, limit=9).placements]
    trained = ["".join(span.text for span in one.spans if span.is_trained) for one in sequences]
    numbers = [[number for number in range(6) if f"say {number}" in text] for text in trained]
    if action == "truncate_history":
        num_cut = split.statistics.num_cut_exchanges
        assert 0 < num_cut < 6
        assert numbers == [list(range(num_cut, 6))]
    else:
        assert [number for members in numbers for number in members] == list(range(6))
        assert len(numbers) > 2
        firsts = [one.first_token for one in sequences]
        lengths = [one.runtime_length + 1 for one in sequences]
        assert firsts == [sum(lengths[:index]) for index in range(len(lengths))]
        assert (split.statistics.num_split, split.statistics.num_pieces) == (1, len(numbers))
    packs = [inspect(built.output, pack=pack) for pack in range(split.statistics.num_packs)]
    rows = [item.row for pack in packs for item in pack.sequences]
    assert Counter(rows) == {1: 1, 2: len(numbers)}
    shown = [(one.row, one.piece, one.num_pieces, one.cut, one.cut_detail) for pack in packs for one in pack.sequences]
    if action == "truncate_history":
        detail = f"{num_cut} exchanges, {2 * num_cut} turns are left out, so that at most 64 runtime tokens remain"
        assert sorted(shown) == [(1, 0, 0, "", ""), (2, 0, 0, action, detail)]
        heading = f"; cut on purpose, preprocessing.over_long {action}: {detail}"
    else:
        pieces = [(2, number + 1, len(numbers), action, "") for number in range(len(numbers))]
        assert sorted(shown) == [(1, 0, 0, "", ""), *pieces]
        heading = f", piece 1 of {len(numbers)}, "
    assert heading in "".join(screen(pack_blocks(pack)) for pack in packs)
    page = report(built.output, output=tmp_path / "page.html").files["output"].read_text()
    assert f"cut on purpose, preprocessing.over_long {action}" in page
    same = diff_artifacts(built.output, built.output).splits[0]
    assert (same.num_unchanged, same.num_lost, same.num_gained) == (1 + len(numbers), 0, 0)


@pytest.mark.parametrize("cut", [HistoryCut(0, 1), HistoryCut(1, 2), HistoryCut(1287, 2574), HistoryCut(1_000_000, 0)])
def test_what_was_cut_is_read_again_from_the_ledger(cut: HistoryCut) -> None:
    assert HistoryCut.of_detail(cut.detail(4096)) == cut


def test_a_row_without_an_equal_piece_is_packed_in_part_but_loses_nothing(tmp_path: Path, tokenizer: Path) -> None:
    wide = [_exchange(number, 8) for number in range(3)]
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [_row(*wide), _row(wide[0], _exchange(5, 9)), _row(wide[0])])

    built = small.build(_recipe(source, tokenizer, "split_exchanges", data__deduplicate="exact"), tmp_path / "out")

    split = built.manifest.splits[0]
    assert (split.dropped_pieces, split.drops) == ({"duplicate": 1}, {"duplicate": 1})
    assert [drop.row for drop in split.piece_examples] == [2]
    assert (split.statistics.num_rows_packed, split.statistics.num_partly_packed) == (2, 1)
    text = screen(manifest_blocks(built.manifest, built.output))
    assert re.search(r"pieces dropped +1, of 1 rows .*\n    duplicate", text)
    assert not [finding for finding in check(built.output).findings if finding.code == "BP510"]
    _assert_adds_up(built.output, built.manifest)
    _assert_proved(built.output, 3)


@pytest.mark.parametrize("action", [pytest.param(CUTS[0], marks=pytest.mark.full), CUTS[1]])
def test_validation_is_by_row_and_bytes_are_the_same_for_any_workers(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    rows = [_row(*(_exchange(number % 50, 7) for number in range(first, first + 1 + first % 5))) for first in range(80)]
    source = thoughtful.write_rows(tmp_path / "a.jsonl", rows)
    recipe = _recipe(source, tokenizer, action, data__validation_fraction=0.3, data__deduplicate="exact")
    built = small.build(recipe, tmp_path / "one")
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 1000)
    small.build(recipe, tmp_path / "two", num_workers=2, store=tmp_path / "store")

    assert small.data_bytes(tmp_path / "one") == small.data_bytes(tmp_path / "two")
    _assert_adds_up(built.output, built.manifest)
    training, validation = (
        set(pq.read_table(built.output / "plan" / f"{split.name}.parquet")["row"].to_pylist())
        for split in built.manifest.splits
    )
    assert training
    assert validation
    assert not training & validation
    _assert_proved(built.output, 80)


@pytest.mark.parametrize("action", CUTS)
def test_mixtures_count_rows_and_use_all_pieces_of_a_row(tmp_path: Path, tokenizer: Path, action: str) -> None:
    many = [_row(*(_exchange(number, 8) for _ in range(3))) for number in range(20)]
    few = [_row(_exchange(number)) for number in range(100, 120)]
    paths = [
        str(thoughtful.write_rows(tmp_path / f"{name}.jsonl", rows)) for name, rows in (("many", many), ("few", few))
    ]
    train = [{"path": paths[0], "max_rows": 5}, {"path": paths[1], "epochs": 2}]
    num_pieces = 3 if action == "split_exchanges" else 1

    built = small.build(_recipe(train, tokenizer, action), tmp_path / "limited")

    numbers, (first, second) = built.manifest.splits[0].statistics, built.manifest.splits[0].sources
    assert (first.num_sequences, second.num_sequences, second.num_repeated) == (5 * num_pieces, 40, 20)
    assert (numbers.num_rows_packed, built.manifest.splits[0].drops) == (25, {"not_sampled": 15})
    _assert_adds_up(built.output, built.manifest)
    weighted = [{"path": path, "weight": 1} for path in paths]
    mixture = {"data__mixture": {"by": "rows", "total": 40}}
    again = small.build(_recipe(weighted, tokenizer, action, **mixture), tmp_path / "weighted")
    assert [source.share_got for source in again.manifest.splits[0].sources] == [0.5, 0.5]
    assert [source.num_sequences for source in again.manifest.splits[0].sources] == [20 * num_pieces, 20]
    for folder in (built.output, again.output):
        _assert_proved(folder, 40)


def test_pieces_and_cuts_of_other_actions_are_told_apart(tmp_path: Path, tokenizer: Path) -> None:
    """The first row is two sequences with `split_conversations`, the second is longer than a sequence."""
    rows = [thoughtful.TWO_THOUGHTS, [said("user", "x"), said("assistant", "word " * 30)]]
    source = thoughtful.write_rows(tmp_path / "a.jsonl", rows)

    def shown(action: str, split_conversations: str) -> set[tuple[int, int, int, str]]:
        settings = {"preprocessing__split_conversations": split_conversations}
        folder = tmp_path / f"{action}-{split_conversations}"
        built = small.build(_recipe(source, tokenizer, action, **settings), folder)
        numbers = built.manifest.splits[0].statistics
        packs = [inspect(folder, pack=pack) for pack in range(numbers.num_packs)]
        return {(one.row or 0, one.piece, one.num_pieces, one.cut) for pack in packs for one in pack.sequences}

    alone = (1, 0, 0, "")
    assert shown("truncate", "never") == {alone, (2, 0, 0, "truncate")}
    pieces = {(2, number, 2, "split") for number in (1, 2)}
    assert shown("split", "never") == {alone, *pieces}
    both = {(1, 1, 2, ""), (1, 2, 2, "")}
    assert shown("split", "when_context_differs") == {*both, *pieces}
