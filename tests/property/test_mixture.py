"""Whatever the lengths: shares got are shares asked to one sequence, uses are even, and the ledger balances."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridgepack.config.recipe.data import DataSource, MixtureConfig
from bridgepack.data.sequences.over_long import HistoryCut
from bridgepack.data.stages.finish import SEQUENCE
from bridgepack.data.stages.mixture import mix_sources
from bridgepack.data.stages.notes import Notes
from bridgepack.data.stages.split import TokenizedSplit
from bridgepack.errors import DataError
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
        num_pieces=0,
        num_partly_packed=0,
        num_untrained_pieces=0,
        num_rows_in=len(sequences),
        num_rows_of_files=sizes,
        num_blank_lines=0,
        drops=Notes(counts={}, examples=(), ledgers=()),
        dropped_pieces=Notes(counts={}, examples=(), ledgers=()),
        losses=Notes(counts={}, examples=(), ledgers=()),
        cut=HistoryCut(),
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

    found = mix_sources(split, sources, mixture, seed=7)

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

    found = mix_sources(split, sources, MixtureConfig(), seed=7)

    _assert_sound(split, found)
    for number, rows in enumerate(lengths):
        assert abs(sum(_uses(split, found)[number]) - quarters[number] / 4 * len(rows)) <= 0.5


@given(lengths=LENGTHS, other=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_the_choice_in_a_source_does_not_depend_on_others(lengths: list[list[int]], other: list[int]) -> None:
    limits = [DataSource(path=str(number), max_rows=3) for number in range(len(lengths) + 1)]
    alone = _uses(_split(lengths), mix_sources(_split(lengths), limits[:-1], MixtureConfig(), seed=7))
    beside = _uses(_split([other, *lengths]), mix_sources(_split([other, *lengths]), limits, MixtureConfig(), seed=7))
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
    found = mix_sources(_split([lengths]), [DataSource(path="0", **source)], MixtureConfig(total=total), seed=7)

    assert found.num_sequences == uses
    assert found.num_repeated == max(uses - len(lengths), 0)
    assert found.sources[0].num_tokens == uses * lengths[0]


A, B, C = [4] * 4, [6] * 2, [2] * 10


@pytest.mark.parametrize(
    ("first", "second", "total", "uses", "asked"),
    [
        # 24 of 36 tokens to the mixture, of which 6 to A: half a sequence goes up
        ({"weight": 2, "parts": ({"weight": 1}, {"weight": 3})}, {"weight": 1}, 36, [2, 3, 6], [6, 18, 12]),
        # without repetition the mixture gives 4 x min(16 / 1, 12 / 3) = 16 tokens, all give 3 x min(16 / 2, 20 / 1)
        ({"weight": 2, "parts": ({"weight": 1}, {"weight": 3})}, {"weight": 1}, None, [1, 2, 4], [4, 12, 8]),
        # parts without weights share by their sizes: 20 x 16 / 28 and 20 x 12 / 28 tokens
        ({"weight": 1, "parts": ({}, {})}, {"weight": 1}, None, [3, 1, 10], [80 / 7, 60 / 7, 20]),
        # 1.5 times the 16 tokens that its weights give
        ({"epochs": 1.5, "parts": ({"weight": 1}, {"weight": 3})}, {}, None, [2, 3, 10], [6, 18, 20]),
        ({"parts": ({"weight": 1}, {"weight": 3})}, {"epochs": 0.5}, None, [1, 2, 5], [4, 12, 10]),
        ({"epochs": 2, "parts": ({"epochs": 0.5}, {})}, {"epochs": 0.3}, None, [4, 4, 3], None),
        ({"epochs": 0.5, "parts": ({"epochs": 0.5}, {})}, {"epochs": 1}, None, [1, 1, 10], None),
    ],
)
def test_mixtures_inside_a_mixture(
    first: dict[str, Any], second: dict[str, Any], total: int | None, uses: list[int], asked: list[float] | None
) -> None:
    parts = [DataSource(path=str(number), **part) for number, part in enumerate(first["parts"])]
    outer = DataSource(name="outer", sources=parts, **{name: first[name] for name in first if name != "parts"})
    split = _split([A, B, C])

    found = mix_sources(split, [outer, DataSource(path="2", **second)], MixtureConfig(total=total), seed=7)

    records, lengths = found.sources, (4, 6, 2)
    assert [record.name for record in records] == [("outer", "0"), ("outer", "1"), ("2",)]
    assert [record.num_sequences for record in records] == uses
    assert [record.num_rows_in for record in records] == [4, 2, 10]
    assert [record.num_repeated for record in records] == [
        max(n - size, 0) for n, size in zip(uses, (4, 2, 10), strict=True)
    ]
    assert [record.num_tokens for record in records] == [n * length for n, length in zip(uses, lengths, strict=True)]
    assert [record.num_trained_tokens for record in records] == [
        n * length for n, length in zip(uses, lengths, strict=True)
    ]
    num_tokens = sum(n * length for n, length in zip(uses, lengths, strict=True))
    assert [record.share_got for record in records] == [
        n * one / num_tokens for n, one in zip(uses, lengths, strict=True)
    ]
    shares = [None] * 3 if asked is None else [pytest.approx(one / sum(asked)) for one in asked]
    assert [record.share_asked for record in records] == shares
    assert found.drops.counts.get("not_sampled", 0) == sum(
        max(n - use, 0) for n, use in zip((4, 2, 10), uses, strict=True)
    )


@pytest.mark.parametrize(
    ("source", "aside", "uses"),
    [
        ({"max_rows": 8}, (0.25, False), 6),
        ({"max_rows": 8}, (0.25, True), 2),
        ({"max_rows": 8, "epochs": 3}, (0.25, True), 2),  # rows that are set aside are used once
        ({"max_rows": 8, "weight": 1}, (0.25, True), 2),
        ({"max_rows": 8, "epochs": 3}, (0.25, False), 18),
        ({"max_rows": 8, "epochs": 0.5}, (0.0, False), 4),
        ({}, (0.0, False), 10),
        ({"max_rows": 11}, (0.0, False), 10),
    ],
)
def test_most_rows_count_those_set_aside(source: dict[str, Any], aside: tuple[float, bool], uses: int) -> None:
    found = mix_sources(_split([C]), [DataSource(path="0", **source)], MixtureConfig(), seed=7, aside=aside)

    assert found.num_sequences == uses


def test_rows_are_chosen_by_their_places_in_the_source() -> None:
    split = _split([C, C, C])
    inputs = tuple(replace(record, source=number) for record, number in zip(split.inputs, (0, 1, 1), strict=True))
    split = replace(split, inputs=inputs)
    sources = [DataSource(path="a", max_rows=4), DataSource(path="b", max_rows=4)]

    chosen = [_uses(split, mix_sources(split, sources, MixtureConfig(), seed=seed)) for seed in (7, 8)]
    rows = [[[row for row, use in enumerate(of_one) if use] for of_one in found] for found in chosen]

    # the same in every release: artifacts are built again only if something changes
    assert rows == [[[3, 6, 7, 9], [9], [4, 6, 8]], [[1, 5, 6, 9], [5, 6, 9], [2]]]


def test_repeated_passes_follow_each_other() -> None:
    found = mix_sources(_split([[4, 4, 4]]), [DataSource(path="0", epochs=2.0)], MixtureConfig(), seed=7)
    once = _split([[4, 4, 4]])

    assert found.sequences["index"].tolist() == [0, 1, 2, 0, 1, 2]
    assert mix_sources(once, ["0"], MixtureConfig(), seed=7).sequences.tolist() == once.sequences.tolist()
    assert (found.num_repeated, found.drops.counts) == (3, {})


def test_a_mixture_of_rows_takes_rows() -> None:
    sources = [DataSource(path="0", weight=1), DataSource(path="1", weight=1)]

    found = mix_sources(_split([A, C]), sources, MixtureConfig(by="rows"), seed=7)

    assert [record.num_sequences for record in found.sources] == [4, 4]
    assert [record.share_got for record in found.sources] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("sources", "total", "message"),
    [
        (
            [{"weight": 1000}, {"weight": 1}],
            None,
            r"the source '1' \(weight 1.0\) gives no sequences: .* ask for 0.0 tok",
        ),
        (
            [{"epochs": 0.01}, {}],
            None,
            r"the source '0' \(epochs 0.01\) gives no sequences: .* ask for 0.01 epochs of its 4",
        ),
        (
            [{"weight": 1}, {"weight": 1}],
            10**12,
            r"training split would have \d[\d,]+ sequences",
        ),
    ],
)
def test_mixtures_that_are_refused(sources: list[dict[str, Any]], total: int | None, message: str) -> None:
    parts = [DataSource(path=str(number), **source) for number, source in enumerate(sources)]

    with pytest.raises(DataError, match=message):
        mix_sources(_split([A, C]), parts, MixtureConfig(total=total), seed=7)
