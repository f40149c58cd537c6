"""Whatever the lengths: shares got are shares asked to one sequence, uses are even, and the ledger balances."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridgepack.config.recipe.data import DataSource, MixtureConfig
from bridgepack.data.stages.finish import SEQUENCE
from bridgepack.data.stages.mixture import mixed
from bridgepack.data.stages.notes import Notes
from bridgepack.data.stages.split import TokenizedSplit
from bridgepack.records import InputRecord

LENGTHS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=30), min_size=1, max_size=5)
WEIGHTS = st.lists(st.integers(1, 9), min_size=5, max_size=5)


def _split(lengths: list[list[int]]) -> TokenizedSplit:
    """Return a split with one file and one token file for each source, whose runtime lengths are given."""
    sizes = np.array([len(rows) for rows in lengths])
    sequences = np.zeros(sizes.sum(), dtype=SEQUENCE)
    sequences["store_file"] = np.repeat(np.arange(len(lengths)), sizes)
    sequences["index"] = sequences["row_offset"] = np.concatenate([np.arange(size) for size in sizes])
    sequences["num_trained"] = np.concatenate(lengths)
    sequences["stored_length"] = sequences["num_trained"] + 1
    return TokenizedSplit(
        name="training",
        inputs=tuple(
            InputRecord(path=str(number), num_bytes=1, sha256="", num_rows=int(size), source=number)
            for number, size in enumerate(sizes)
        ),
        token_files=tuple(Path(str(number)) for number in range(len(lengths))),
        file_indices=np.arange(len(lengths)),
        first_rows=np.ones(len(lengths), dtype=np.int64),
        sequences=sequences,
        splits_rows=False,
        num_split=0,
        num_untrained_pieces=0,
        num_rows_in=len(sequences),
        num_rows_of_files=sizes,
        num_blank_lines=0,
        drops=Notes(counts={}, examples=(), ledgers=()),
        losses=Notes(counts={}, examples=(), ledgers=()),
    )


def _uses(split: TokenizedSplit, found: TokenizedSplit) -> list[list[int]]:
    """Return how often each sequence of each source is used."""
    places = found.sequences["store_file"].astype(np.int64) * 1000 + found.sequences["index"]
    sizes = [record.num_rows for record in split.inputs]
    return [[int((places == file * 1000 + row).sum()) for row in range(size)] for file, size in enumerate(sizes)]


def _assert_sound(split: TokenizedSplit, found: TokenizedSplit) -> None:
    uses = _uses(split, found)
    assert all(max(of_one) - min(of_one) <= 1 for of_one in uses)
    assert split.num_rows_in == found.num_sequences - found.num_repeated + sum(found.drops.counts.values())
    assert [record.num_sequences for record in found.sources] == [sum(of_one) for of_one in uses]
    assert sum(record.share_got for record in found.sources) > 1 - 1e-9


@given(lengths=LENGTHS, weights=WEIGHTS, total=st.none() | st.integers(1, 3000), by_rows=st.booleans())
def test_shares(lengths: list[list[int]], weights: list[int], total: int | None, by_rows: bool) -> None:
    split, num_sources = _split(lengths), len(lengths)
    sizes = [len(rows) if by_rows else sum(rows) for rows in lengths]
    whole = sum(weights[:num_sources])
    least = min(size * whole / weight for size, weight in zip(sizes, weights, strict=False))
    asked = [(total or least) * weight / whole for weight in weights[:num_sources]]
    assume(all(one >= (1 if by_rows else max(rows)) for one, rows in zip(asked, lengths, strict=True)))
    sources = [DataSource(path=str(number), weight=weights[number]) for number in range(num_sources)]
    mixture = MixtureConfig(by="rows" if by_rows else "tokens", total=total)

    found = mixed(split, sources, mixture, seed=7)

    _assert_sound(split, found)
    for number, rows in enumerate(lengths):
        uses = _uses(split, found)[number]
        got = sum(use * (1 if by_rows else length) for use, length in zip(uses, rows, strict=True))
        assert abs(got - asked[number]) <= (1 if by_rows else max(rows)) / 2 + 1e-6
        if total is None:
            assert max(uses) == 1


@given(lengths=LENGTHS, quarters=st.lists(st.integers(1, 20), min_size=5, max_size=5))
def test_epochs(lengths: list[list[int]], quarters: list[int]) -> None:
    split = _split(lengths)
    assume(all(len(rows) * quarter >= 4 for rows, quarter in zip(lengths, quarters, strict=False)))
    sources = [DataSource(path=str(number), epochs=quarters[number] / 4) for number in range(len(lengths))]

    found = mixed(split, sources, MixtureConfig(), seed=7)

    _assert_sound(split, found)
    for number, rows in enumerate(lengths):
        assert abs(sum(_uses(split, found)[number]) - quarters[number] / 4 * len(rows)) <= 0.5


@given(lengths=LENGTHS, other=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_the_choice_in_a_source_does_not_depend_on_others(lengths: list[list[int]], other: list[int]) -> None:
    limits = [DataSource(path=str(number), max_rows=3) for number in range(len(lengths) + 1)]
    alone = _uses(_split(lengths), mixed(_split(lengths), limits[:-1], MixtureConfig(), seed=7))
    beside = _uses(_split([other, *lengths]), mixed(_split([other, *lengths]), limits, MixtureConfig(), seed=7))
    assert beside[1:] == alone
    assert sum(map(sum, alone)) == sum(min(len(rows), 3) for rows in lengths)


@pytest.mark.parametrize(
    ("lengths", "source", "total", "uses"),
    [
        ([4, 4], {"weight": 1}, 6, 2),  # 6 is as near to 8 as to 4, and a half goes up
        ([4, 4], {"weight": 1}, 5, 1),
        ([4, 4], {"weight": 1}, 7, 2),
        ([4, 4], {"weight": 1}, 2, 1),
        ([4, 4], {"weight": 1}, 8, 2),
        ([4, 4], {"weight": 1}, 10, 3),
        ([4, 4], {"weight": 1}, 9, 2),
        ([4, 4], {"weight": 1}, 16, 4),
        ([2, 2, 2], {"epochs": 0.5}, None, 2),
        ([2, 2, 2], {"epochs": 1.5}, None, 5),
        ([2, 2, 2, 2], {"epochs": 0.375}, None, 2),
        ([2, 2, 2, 2], {"epochs": 0.25}, None, 1),
        ([2], {"epochs": 0.5}, None, 1),
        ([2], {"epochs": 2.0}, None, 2),
    ],
)
def test_halves_of_a_sequence_go_up(lengths: list[int], source: dict[str, Any], total: int | None, uses: int) -> None:
    found = mixed(_split([lengths]), [DataSource(path="0", **source)], MixtureConfig(total=total), seed=7)

    assert found.num_sequences == uses
    assert found.num_repeated == max(uses - len(lengths), 0)
    assert found.sources[0].num_tokens == uses * lengths[0]
