"""What builds share through the store, what they do not, and what happens when something is wrong with it or a file."""

import gzip
import json
import os
import re
import shutil
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.store import token_file as token_files
from bridgepack.data.store.store import default_store, opened_store, store_at, store_folder
from bridgepack.data.store.token_file import check_token_file, read_token_index, token_arrays, write_token_file
from bridgepack.data.store.upkeep import list_store, prune_store, verify_store
from bridgepack.errors import StoreError
from bridgepack.records.sequences import RowNote
from tests.support.messages import mentions
from tests.support.packed_rows import token_batch
from tests.support.small_builds import build, file_bytes, tokenized_recipe, tokenized_row, with_changes

ROWS = [tokenized_row(*([10 + index % 200] * (2 + index % 9))) for index in range(300)]


def _lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _counts(result: Any) -> tuple[int, int]:
    return result.kept.num_ranges_tokenized, result.kept.num_ranges_found


def _token_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tokens"))


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut files into ranges of about a kilobyte."""
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 2000)


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    """Return a recipe for 300 small rows and a bad one."""
    (tmp_path / "a.jsonl").write_bytes(_lines([*ROWS, {}]))
    return tokenized_recipe(tmp_path / "a.jsonl", chatml_tokenizer)


@pytest.mark.parametrize(
    "changes",
    [
        {"packing__packed_sequence_size": 32, "parallelism__context_parallel_size": 2},
        {"packing__max_sequence_length": 4, "preprocessing__over_long": "truncate"},
        {"packing__seed": 7, "data__validation_fraction": 0.3, "name": "other"},
    ],
)
def test_recipes_with_the_same_tokens_share_them(tmp_path: Path, recipe: SFTRecipe, changes: dict[str, Any]) -> None:
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    changed = with_changes(recipe, changes)

    assert _counts(build(changed, tmp_path / "shared")) == (0, num_ranges)
    assert _counts(build(changed, tmp_path / "alone", store=tmp_path / "elsewhere")) == (num_ranges, 0)
    assert file_bytes(tmp_path / "shared") == file_bytes(tmp_path / "alone")
    assert num_ranges > 5


def test_recipe_that_makes_other_tokens_shares_none(tmp_path: Path, recipe: SFTRecipe) -> None:
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))

    changed = with_changes(
        recipe, {"data__layout": {"kind": "tokenized", "loss_mask": "loss_mask"}, "data__max_row_bytes": 1000}
    )

    with pytest.raises(Exception, match="no sequences left"):
        build(changed, tmp_path / "other")
    assert len(_token_files(tmp_path)) == 2 * num_ranges


def test_file_is_tokenised_where_it_changed_and_at_its_new_end(tmp_path: Path, recipe: SFTRecipe) -> None:
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    rows = [*ROWS[:150], tokenized_row(*([7] * len(ROWS[150]["input_ids"]))), *ROWS[151:], {}]
    (tmp_path / "a.jsonl").write_bytes(_lines(rows))

    made, found = _counts(build(recipe, tmp_path / "out"))
    (tmp_path / "a.jsonl").write_bytes(_lines([*rows, *ROWS[:20]]))
    made_later, found_later = _counts(build(recipe, tmp_path / "out"))

    assert made + found >= num_ranges - 1
    assert found >= (num_ranges - 2) // 2
    assert found_later == made + found - 1
    assert made_later <= 3


def test_same_lines_elsewhere_and_compressed_are_not_tokenised_again(tmp_path: Path, recipe: SFTRecipe) -> None:
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    both = with_changes(recipe, {"data__train": [str(tmp_path / "b.jsonl.gz"), str(tmp_path / "a.jsonl")]})

    assert _counts(build(both, tmp_path / "both")) == (0, 2 * num_ranges)
    assert _counts(build(with_changes(both, {"packing__seed": 3}), tmp_path / "again")) == (0, 2 * num_ranges)
    assert len(_token_files(tmp_path)) == num_ranges


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),  # as a failure of the machine may leave it
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: path.write_bytes(
            path.read_bytes()[:70] + bytes([path.read_bytes()[70] ^ 1]) + path.read_bytes()[71:]
        ),
    ],
)
def test_broken_or_missing_tokens_are_made_again(tmp_path: Path, recipe: SFTRecipe, name: str, damage: Any) -> None:
    if name.endswith("gz"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    recipe = with_changes(recipe, {"data__train": str(tmp_path / name)})
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    before = file_bytes(tmp_path / "out")
    damage(_token_files(tmp_path)[3])

    again = build(with_changes(recipe, {"packing__seed": 5}), tmp_path / "other")
    back = build(recipe, tmp_path / "back")

    assert again.kept.num_ranges_tokenized == 1
    assert _counts(back) == (0, num_ranges)
    assert file_bytes(tmp_path / "back") == before


def test_folder_in_place_of_tokens_stops_the_build_and_is_kept(tmp_path: Path, recipe: SFTRecipe) -> None:
    build(recipe, tmp_path / "out")
    path = _token_files(tmp_path)[3]
    path.unlink()
    (path / "mine").mkdir(parents=True)

    with pytest.raises(StoreError) as raised:
        build(with_changes(recipe, {"packing__seed": 5}), tmp_path / "other")

    assert mentions(raised.value, f"'{path}'", "is a folder. ", "`bridgepack store verify --remove`")
    assert (path / "mine").is_dir()
    assert not (tmp_path / "other").exists()


def _swap(one: Path, other: Path) -> None:
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])


def _write_shorter(path: Path) -> None:
    """Write a sound file that says to be of the same rows, but has only the first."""
    whole, arrays = check_token_file(path), token_arrays(path)
    assert whole is not None
    with write_token_file(path, replace(whole, num_rows=1)) as writer:
        writer.add(token_batch([arrays.sequence(0)]), EOS)


@pytest.mark.parametrize(
    ("attack", "num_wrong"),
    [(_swap, 2), (lambda one, other: one.write_bytes(other.read_bytes()), 1), (lambda one, _: _write_shorter(one), 1)],
)
def test_tokens_of_other_rows_are_not_used(tmp_path: Path, recipe: SFTRecipe, attack: Any, num_wrong: int) -> None:
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    before = file_bytes(tmp_path / "out")
    attack(*_token_files(tmp_path)[2:4])

    again = build(recipe, tmp_path / "again")

    assert _counts(again) == (num_wrong, num_ranges - num_wrong)
    assert file_bytes(tmp_path / "again") == before


def test_tokens_of_other_rows_are_found_by_verify(tmp_path: Path, recipe: SFTRecipe) -> None:
    build(recipe, tmp_path / "out")
    store, swapped = default_store(tmp_path / "out"), _token_files(tmp_path)[2:4]
    _swap(*swapped)

    verified = verify_store(store, removes=True)

    assert [Path(name) for name, _ in verified.broken] == swapped
    assert all("of other rows" in reason for _, reason in verified.broken)
    assert verify_store(store).broken == ()


@pytest.mark.on_disk
def test_store_is_listed_and_pruned(tmp_path: Path, recipe: SFTRecipe) -> None:
    store = tmp_path / ".bridgepack" / "tokens"
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    build(with_changes(recipe, {"data__max_row_bytes": 2000}), tmp_path / "other")

    listing = list_store(store)
    assert [entry.num_ranges for entry in listing.tokenizations] == [num_ranges] * 2
    assert {(Path(entry.output).name, entry.is_there) for entry in listing.artifacts} == {
        ("out", True),
        ("other", True),
    }
    assert prune_store(store, is_unused=True).removed == ()

    (store / "inputs").mkdir()  # of an earlier version
    (store / "inputs" / "a.json").write_text("{}")
    shutil.rmtree(tmp_path / "other")
    dry = prune_store(store, is_unused=True, is_dry_run=True)
    assert (len(dry.removed), len(_token_files(store))) == (num_ranges, 2 * num_ranges)
    assert (store / "inputs").exists()
    assert prune_store(store, is_unused=True).removed == dry.removed
    assert not (store / "inputs").exists()
    assert [entry.num_ranges for entry in list_store(store).tokenizations] == [num_ranges]
    assert len(list_store(store).artifacts) == 1


def test_store_is_pruned_by_age_and_by_size(tmp_path: Path, recipe: SFTRecipe) -> None:
    store = tmp_path / ".bridgepack" / "tokens"
    num_ranges, _ = _counts(build(recipe, tmp_path / "out"))
    files = _token_files(store)
    for age, path in enumerate(files):
        os.utime(path, (time.time() - 86400 * age,) * 2)

    assert len(prune_store(store, older_than_s=2.5 * 86400).removed) == num_ranges - 3
    size = files[0].stat().st_size + files[1].stat().st_size
    pruned = prune_store(store, max_bytes=size)
    assert [Path(name) for name, _, _ in pruned.removed] == [files[2]]
    assert _token_files(store) == sorted(files[:2])


@pytest.mark.on_disk
def test_nothing_is_removed_while_a_build_uses_the_store(tmp_path: Path) -> None:
    with opened_store(tmp_path / "store"), opened_store(tmp_path / "store"):
        with pytest.raises(StoreError, match=r"build is using .*store"):
            prune_store(tmp_path / "store", is_unused=True)
        with pytest.raises(StoreError, match=r"build is using .*store"):
            verify_store(tmp_path / "store", removes=True)
        assert verify_store(tmp_path / "store").num_files == 0
    with (
        store_at(tmp_path / "store", is_emptied=True),
        pytest.raises(StoreError, match="files are being removed"),
        opened_store(tmp_path / "store"),
    ):
        pass


def test_folder_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()

    with pytest.raises(StoreError, match=r"mine.* folder with other files"), opened_store(tmp_path / "mine"):
        pass
    with pytest.raises(StoreError, match=r"mine.* not a token store"):
        list_store(tmp_path / "mine")
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "name", ["../a.tokens", "/etc/a.tokens", "tokenizations/../../a.tokens", "tokenizations/k/ab/manifest.json"]
)
def test_record_that_names_a_file_outside_the_store_is_refused(tmp_path: Path, name: str) -> None:
    with (
        opened_store(tmp_path / "store") as store,
        pytest.raises(StoreError, match=f"{re.escape(name)}.* not a token file"),
    ):
        store.path_of(name)


def test_url_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_folder("deep/store") == Path("deep/store")
    with pytest.raises(StoreError, match=r"the token store is 's3://bucket/store', a URL; .*Choose a local"):
        store_folder("s3://bucket/store")
    monkeypatch.setenv("BRIDGEPACK_STORE", "s3://bucket/store")
    with pytest.raises(StoreError, match="a URL"):
        default_store(tmp_path / "out")


def _half_written(store: Path, tokenization: str) -> Path:
    path = store / "tokenizations" / tokenization / "a0" / ".a0b1.tokens.1-2.tmp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("half")
    return path


@pytest.mark.on_disk
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("error", [None, FileNotFoundError])
def test_what_ended_workers_left_goes_with_their_build(
    tmp_path: Path, others: int, error: type[OSError] | None
) -> None:
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(opened_store(tmp_path / "store"))
        with pytest.raises(error) if error else nullcontext(), opened_store(tmp_path / "store") as store:
            store.write_identity("mine", {})
            mine, other = (_half_written(tmp_path / "store", name) for name in ("mine", "other"))
            if error:
                raise error

        assert mine.exists() == bool(others)
        assert other.exists()


EOS = 2
A, B, C = ([11, 12, 13, 2], [0, 0, 1, 1]), ([21, 22, 2], [0, 1, 1]), ([31, 32], [1, 1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with A and B, then C, and two drops."""
    return _write(tmp_path / "a.tokens")


def _write(path: Path) -> Path:
    with write_token_file(path) as writer:
        writer.add(token_batch([A, B], drops=[RowNote(2, "too_short", "1 token")], num_blank_lines=2), EOS)
        writer.add(token_batch([C], first_row=3), EOS)
        writer.add_dropped_row(RowNote(5, "too_short", "1 token"))
    return path


@pytest.mark.parametrize("num_kept", [0, 4 * 8, 4 * 9])
def test_many_ids_are_spooled_to_the_same_file(path: Path, monkeypatch: pytest.MonkeyPatch, num_kept: int) -> None:
    monkeypatch.setattr(token_files, "_KEPT_BYTES", num_kept)

    assert _write(path.with_name("b.tokens")).read_bytes() == path.read_bytes()
    assert token_arrays(path).input_ids.tolist() == [*A[0], *B[0], *C[0]]


def test_pipe_is_no_token_file(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)

    for read in (check_token_file, read_token_index, token_arrays):
        with pytest.raises(StoreError, match=f"{re.escape(str(path))}.* not a regular file"):
            read(path)
    path.unlink()
    path.mkdir()
    for read in (check_token_file, read_token_index, token_arrays):
        with pytest.raises(StoreError, match=f"{re.escape(str(path))}.* is a folder"):
            read(path)


def test_every_changed_byte_and_every_cut_is_seen(path: Path) -> None:
    whole = path.read_bytes()
    num_checked = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError, match="cannot be used"):
            check_token_file(path)
        path.write_bytes(whole[:place])
        with pytest.raises(StoreError, match="cannot be used"):
            read_token_index(path)
        num_checked += 1
    path.write_bytes(whole)
    check_token_file(path)
    assert num_checked > 50


def test_file_that_is_not_there_and_one_of_another_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="it does not exist"):
        check_token_file(path.with_name("none"))
    monkeypatch.setattr(token_files, "_MARK", b"bptoken9")
    with pytest.raises(StoreError, match=r"truncated, or not .* of version 6"):
        read_token_index(path)
