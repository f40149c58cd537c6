"""Mutations of an artifact's files: bytes, and shards that are missing, swapped, copied, renamed, moved."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.artifact_mutations import (
    OTHER_SHARD,
    SHARD,
    VALIDATION_SHARD,
    Mutation,
    Row,
    breaks,
    breaks_file,
    edit_json,
    put_folder,
    read_rows,
    record_of,
    restate_record,
    rewrite_rows,
    training_shards,
)

#: Magic bytes and length at a Parquet file's end.
_TAIL_BYTES = 8
_NEW_SHARD = "training/shard-00003-of-00004.idx.parquet"
_TORN = "BP341 BP342 BP343"


def _bytes_changed(codes: str, change: Callable[[bytes], bytes]) -> Mutation:
    return breaks_file(codes, lambda folder: (folder / SHARD).write_bytes(change((folder / SHARD).read_bytes())))


def _flipped(codes: str, position: Callable[[bytes], int]) -> Mutation:
    """Return a mutation of the bits of one byte."""

    def flip(content: bytes) -> bytes:
        flipped = bytearray(content)
        flipped[position(content)] ^= 0xFF
        return bytes(flipped)

    return _bytes_changed(codes, flip)


def _footer_begin(content: bytes) -> int:
    return len(content) - _TAIL_BYTES - int.from_bytes(content[-_TAIL_BYTES:-4], "little")


def _shard(codes: str, change: Callable[[Path], object]) -> Mutation:
    """Return a mutation of the file of `SHARD`; `change` takes its path."""
    return breaks_file(codes, lambda folder: change(folder / SHARD))


def _renamed(name: str) -> Mutation:
    return breaks_file("BP340 BP345", lambda folder: (folder / SHARD).rename(folder / name))


def _swapped(codes: str, other: str) -> Mutation:
    def swap(folder: Path) -> None:
        one, content = (folder / SHARD).read_bytes(), (folder / other).read_bytes()
        (folder / SHARD).write_bytes(content)
        (folder / other).write_bytes(one)

    return breaks_file(codes, swap)


def _copied(make: Any, codes: str, source: str, target: str, where: str = "", *, is_listed: bool = False) -> Mutation:
    """Return a mutation that copies a shard; `make` is `breaks` or `breaks_file`."""

    def copy(folder: Path) -> None:
        shutil.copy(folder / source, folder / target)
        if is_listed:
            restate_record(folder, target)

    return make(codes, copy, where=where or target)  # type: ignore[no-any-return]


def _listed(codes: str, change: Callable[[Path, list[dict[str, Any]]], object], where: str = SHARD) -> Mutation:
    """Return a mutation of the records of training's shards."""
    return breaks(
        codes,
        lambda folder: edit_json(folder, lambda manifest: change(folder, manifest["splits"][0]["shards"])),
        where=where,
    )


def _moved(where: str, name: str = "") -> Mutation:
    """Return a mutation that moves `SHARD` to where the host does not look for it, and lists it there."""

    def move(folder: Path, records: list[dict[str, Any]]) -> None:
        place = (name or where).format(folder=folder)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / SHARD).rename(folder / place)
        for record in (record for record in records if record["path"] == SHARD):
            record["path"] = place

    return _listed("BP350", move, where)


def _rows(codes: str, change: Callable[[list[Row]], object]) -> Mutation:
    return breaks(codes, lambda folder: rewrite_rows(folder, change), where="training num_packs")


def _without_rows(folder: Path) -> None:
    for shard in training_shards(folder):
        rewrite_rows(folder, lambda rows: rows.clear(), shard=shard)


def _link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("gone.idx.parquet"))


def _without_a_row(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(0, table.num_rows - 1), path)


def _leak(folder: Path) -> None:
    copied = read_rows(folder, SHARD)[:2]
    rewrite_rows(folder, lambda rows: rows.extend(copied), shard=VALIDATION_SHARD)


def _copy_and_list(folder: Path, records: list[dict[str, Any]]) -> None:
    shutil.copy(folder / SHARD, folder / _NEW_SHARD)
    records.append(record_of(folder / _NEW_SHARD, _NEW_SHARD))


GIT_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 18791\n"
half_of_a_shard = _bytes_changed(_TORN, lambda content: content[: len(content) // 2])
shard_without_its_last_byte = _bytes_changed(_TORN, lambda content: content[:-1])
shard_without_its_first_byte = _bytes_changed(_TORN, lambda content: content[1:])
footer_without_data = _bytes_changed(_TORN, lambda content: content[_footer_begin(content) :])
data_without_footer = _bytes_changed(_TORN, lambda content: content[: _footer_begin(content)])
empty_file = _bytes_changed(_TORN, lambda _: b"")
data_overwritten_with_zeros = _bytes_changed(
    "BP341 BP343", lambda content: content[:4] + bytes(_footer_begin(content) - 4) + content[_footer_begin(content) :]
)
flipped_byte_of_data = _flipped("BP343", lambda content: _footer_begin(content) // 2)
flipped_byte_of_the_writers_name = _flipped("BP343", lambda content: content.rindex(b"parquet-cpp-arrow"))
another_column_s_name = _bytes_changed("BP301 BP343", lambda content: content.replace(b"input_ids", b"input_idr"))
column_s_name_that_is_no_text = _bytes_changed("BP341 BP343", lambda old: old.replace(b"input_ids", b"input\xffids"))
column_s_path_that_is_no_text = _flipped("BP341 BP343", lambda content: content.rindex(b"input_ids"))
flipped_byte_of_the_footers_length = _flipped("BP341 BP343", lambda _: -5)
flipped_byte_of_the_magic = _flipped("BP341 BP343", lambda _: -1)
bytes_appended = _bytes_changed(_TORN, lambda content: content + b"\n")
pointer_of_git_lfs = _bytes_changed(_TORN, lambda _: GIT_LFS)
compressed_file = _bytes_changed(_TORN, gzip.compress)
folder_in_place_of_a_shard = _shard("BP340", put_folder)
shard_deleted = _shard("BP340", lambda path: path.unlink())
validation_deleted = breaks_file("BP340", lambda folder: shutil.rmtree(folder / "validation"), where=VALIDATION_SHARD)
training_deleted = _shard("BP340", lambda path: shutil.rmtree(path.parent))
link_that_leads_nowhere = _shard("BP340", _link_to_nowhere)
shard_renamed = _renamed("training/shard-00009-of-00003.idx.parquet")
shard_moved_to_validation = _renamed("validation/shard-00001-of-00002.idx.parquet")
shards_of_one_split_swapped = _swapped("BP343", OTHER_SHARD)
shards_of_two_splits_swapped = _swapped("BP343 BP344", VALIDATION_SHARD)
shard_overwritten_with_another = _copied(breaks_file, "BP343 BP346", SHARD, OTHER_SHARD)
validation_overwritten_with_training = _copied(breaks_file, "BP343 BP344 BP346 BP320", SHARD, VALIDATION_SHARD)
shard_of_an_artifact_with_another_multiple = _copied(breaks_file, "BP343 BP331", f"../plain/{SHARD}", SHARD)
shard_with_another_multiple_listed = _copied(breaks, "BP331 BP348", f"../plain/{SHARD}", SHARD, is_listed=True)
shard_of_an_artifact_with_wider_packs_listed = _copied(breaks, "BP330 BP348", f"../wide/{SHARD}", SHARD, is_listed=True)
shard_of_an_artifact_with_another_seed = _copied(breaks_file, "BP343", f"../shuffled/{SHARD}", SHARD)
shard_copied = _copied(breaks, "BP345", SHARD, _NEW_SHARD)
shard_copied_to_validation = _copied(breaks, "BP345", SHARD, "validation/copy.pq")
unreadable_shard_left_over = breaks(
    "BP345",
    lambda folder: (folder / "training/left-over.parquet").write_bytes((folder / SHARD).read_bytes()[:100]),
    where="training/left-over.parquet",
)
packs_of_the_host_beside_the_manifest = _copied(breaks, "BP345", SHARD, "training_256.idx.parquet")
shard_copied_and_listed = _listed("BP346 BP348", _copy_and_list, _NEW_SHARD)
shard_listed_twice = _listed("BP346 BP348", lambda folder, records: records.append(record_of(folder / SHARD, SHARD)))
shard_no_longer_listed = _listed("BP345 BP348", lambda _, records: records.pop(1))
training_listed_as_validation = _copied(breaks, "BP346 BP320", SHARD, VALIDATION_SHARD, is_listed=True)
rows_of_training_in_validation = breaks("BP320", _leak, where="training/")
every_shard_without_rows = breaks("BP302", _without_rows, where="training")
row_removed = _shard("BP344 BP343", _without_a_row)
row_removed_and_listed = _rows("BP348", lambda rows: rows.pop())
row_repeated = _rows("BP348", lambda rows: rows.append(rows[0]))
shard_emptied_and_listed = _rows("BP348", lambda rows: rows.clear())
shard_in_a_deeper_folder = _moved("training/deeper/", "training/deeper/shard-00001-of-00003.idx.parquet")
shard_reached_through_its_parent = _moved("training/../", "training/../elsewhere/shard-00001-of-00003.idx.parquet")
shard_listed_by_another_split = _moved("validation/shard-00001", "validation/shard-00001-of-00002.idx.parquet")
shard_with_a_name_that_the_host_skips = _moved("training/shard-00001-of-00003.bin")
shard_with_a_hidden_name = _moved("training/.shard", "training/.shard-00001-of-00003.idx.parquet")
shard_with_an_absolute_path = _moved(os.sep, f"{{folder}}/{SHARD}")
