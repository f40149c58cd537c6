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
    breaks,
    breaks_file,
    edit_manifest,
    read_rows,
    record_of,
    restate_record,
    rewrite_rows,
    training_shards,
)

#: Magic bytes and length at a Parquet file's end.
_TAIL_BYTES = 8


def _set_bytes(folder: Path, content: bytes, shard: str = SHARD) -> None:
    (folder / shard).write_bytes(content)


def _bytes(folder: Path, shard: str = SHARD) -> bytes:
    return (folder / shard).read_bytes()


def _bytes_changed(codes: str, change: Callable[[bytes], bytes]) -> Mutation:
    """Return a mutation of the bytes of `SHARD`."""
    return breaks_file(*codes.split())(lambda folder: _set_bytes(folder, change(_bytes(folder))))


def _flip(content: bytes, position: int) -> bytes:
    flipped = bytearray(content)
    flipped[position] ^= 0xFF
    return bytes(flipped)


def _footer_begin(content: bytes) -> int:
    return len(content) - _TAIL_BYTES - int.from_bytes(content[-_TAIL_BYTES:-4], "little")


def _swap(folder: Path, other: str) -> None:
    one, content = _bytes(folder), _bytes(folder, other)
    _set_bytes(folder, content)
    _set_bytes(folder, one, other)


def _copy_listed(folder: Path, source: Path, shard: str) -> None:
    shutil.copy(source, folder / shard)
    restate_record(folder, shard)


def _list(manifest: dict[str, Any], record: dict[str, Any]) -> None:
    manifest["splits"][0]["shards"].append(record)


def _move_listed(folder: Path, name: str) -> None:
    """Move `SHARD` and list it under its new name."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / SHARD).rename(folder / name)

    def rename(manifest: dict[str, Any]) -> None:
        for record in manifest["splits"][0]["shards"]:
            if record["path"] == SHARD:
                record["path"] = name

    edit_manifest(folder, rename)


def _moved(where: str, name: str = "") -> Mutation:
    """Return a mutation that moves `SHARD` to where the host does not look for it, and lists it there."""
    return breaks("BP350", where=where)(lambda folder: _move_listed(folder, name or where))


GIT_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 18791\n"
half_of_a_shard = _bytes_changed("BP341 BP342 BP343", lambda content: content[: len(content) // 2])
shard_without_its_last_byte = _bytes_changed("BP341 BP342 BP343", lambda content: content[:-1])
shard_without_its_first_byte = _bytes_changed("BP341 BP342 BP343", lambda content: content[1:])
footer_without_data = _bytes_changed("BP341 BP342 BP343", lambda content: content[_footer_begin(content) :])
data_without_footer = _bytes_changed("BP341 BP342 BP343", lambda content: content[: _footer_begin(content)])
empty_file = _bytes_changed("BP341 BP342 BP343", lambda _: b"")
data_overwritten_with_zeros = _bytes_changed(
    "BP341 BP343",
    lambda content: content[:4] + bytes(_footer_begin(content) - 4) + content[_footer_begin(content) :],
)
flipped_byte_of_data = _bytes_changed("BP343", lambda content: _flip(content, _footer_begin(content) // 2))
flipped_byte_of_the_writers_name = _bytes_changed(
    "BP343", lambda content: _flip(content, content.rindex(b"parquet-cpp-arrow"))
)
flipped_bits_of_a_columns_name = _bytes_changed(
    "BP301 BP343", lambda content: content.replace(b"input_ids", b"input_idr")
)
columns_name_that_is_no_text = _bytes_changed(
    "BP341 BP343", lambda content: content.replace(b"input_ids", b"input\xffids")
)
columns_path_that_is_no_text = _bytes_changed(
    "BP341 BP343", lambda content: _flip(content, content.rindex(b"input_ids"))
)
flipped_byte_of_the_footers_length = _bytes_changed("BP341 BP343", lambda content: _flip(content, -5))
flipped_byte_of_the_magic = _bytes_changed("BP341 BP343", lambda content: _flip(content, -1))
bytes_appended = _bytes_changed("BP341 BP342 BP343", lambda content: content + b"\n")
pointer_of_git_lfs = _bytes_changed("BP341 BP342 BP343", lambda _: GIT_LFS)
compressed_file = _bytes_changed("BP341 BP342 BP343", gzip.compress)


@breaks_file("BP340")
def folder_in_place_of_a_shard(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).mkdir()


shard_deleted = breaks_file("BP340")(lambda folder: (folder / SHARD).unlink())
validation_deleted = breaks_file("BP340", where=VALIDATION_SHARD)(lambda folder: shutil.rmtree(folder / "validation"))
training_deleted = breaks_file("BP340")(lambda folder: shutil.rmtree(folder / "training"))


@breaks_file("BP340")
def link_that_leads_nowhere(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(folder / "training" / "gone.idx.parquet")


shard_renamed = breaks_file("BP340", "BP345")(
    lambda folder: (folder / SHARD).rename(folder / "training" / "shard-00009-of-00003.idx.parquet")
)
shard_moved_to_validation = breaks_file("BP340", "BP345")(
    lambda folder: (folder / SHARD).rename(folder / "validation" / "shard-00001-of-00002.idx.parquet")
)


shards_of_one_split_swapped = breaks_file("BP343")(lambda folder: _swap(folder, OTHER_SHARD))
shards_of_two_splits_swapped = breaks_file("BP343", "BP344")(lambda folder: _swap(folder, VALIDATION_SHARD))
shard_overwritten_with_another = breaks_file("BP343", "BP346", where=OTHER_SHARD)(
    lambda folder: _set_bytes(folder, _bytes(folder), OTHER_SHARD)
)
validation_overwritten_with_training = breaks_file("BP343", "BP344", "BP346", "BP320", where=VALIDATION_SHARD)(
    lambda folder: _set_bytes(folder, _bytes(folder), VALIDATION_SHARD)
)
shard_of_an_artifact_with_another_multiple = breaks_file("BP343", "BP331")(
    lambda folder: shutil.copy(folder.parent / "plain" / SHARD, folder / SHARD)
)


shard_of_an_artifact_with_another_multiple_listed = breaks("BP331", "BP348", where=SHARD)(
    lambda folder: _copy_listed(folder, folder.parent / "plain" / SHARD, SHARD)
)
shard_of_an_artifact_with_wider_packs_listed = breaks("BP330", "BP348", where=SHARD)(
    lambda folder: _copy_listed(folder, folder.parent / "wide" / SHARD, SHARD)
)
shard_of_an_artifact_with_another_seed = breaks_file("BP343")(
    lambda folder: shutil.copy(folder.parent / "shuffled" / SHARD, folder / SHARD)
)
shard_copied = breaks("BP345", where="training/shard-00003-of-00004.idx.parquet")(
    lambda folder: shutil.copy(folder / SHARD, folder / "training" / "shard-00003-of-00004.idx.parquet")
)
shard_copied_to_validation = breaks("BP345", where="validation/copy.pq")(
    lambda folder: shutil.copy(folder / SHARD, folder / "validation" / "copy.pq")
)
unreadable_shard_left_over = breaks("BP345", where="training/left-over.parquet")(
    lambda folder: (folder / "training" / "left-over.parquet").write_bytes(_bytes(folder)[:100])
)
packs_of_the_host_beside_the_manifest = breaks("BP345", where="training_256.idx.parquet")(
    lambda folder: shutil.copy(folder / SHARD, folder / "training_256.idx.parquet")
)


@breaks("BP346", "BP348", where="training/shard-00003-of-00004.idx.parquet")
def shard_copied_and_listed(folder: Path) -> None:
    name = "training/shard-00003-of-00004.idx.parquet"
    shutil.copy(folder / SHARD, folder / name)
    edit_manifest(folder, lambda manifest: _list(manifest, record_of(folder / name, name)))


shard_listed_twice = breaks("BP346", "BP348", where=SHARD)(
    lambda folder: edit_manifest(folder, lambda manifest: _list(manifest, record_of(folder / SHARD, SHARD)))
)


@breaks("BP345", "BP348", where=SHARD)
def shard_no_longer_listed(folder: Path) -> None:
    def remove(manifest: dict[str, Any]) -> None:
        records = manifest["splits"][0]["shards"]
        records[:] = [record for record in records if record["path"] != SHARD]

    edit_manifest(folder, remove)


training_listed_as_validation = breaks("BP346", "BP320", where=VALIDATION_SHARD)(
    lambda folder: _copy_listed(folder, folder / SHARD, VALIDATION_SHARD)
)


@breaks("BP320", where="training/")
def rows_of_training_in_validation(folder: Path) -> None:
    copied = read_rows(folder, SHARD)[:2]
    rewrite_rows(folder, lambda rows: rows.extend(copied), shard=VALIDATION_SHARD)


@breaks("BP302", where="training")
def every_shard_without_rows(folder: Path) -> None:
    for shard in training_shards(folder):
        rewrite_rows(folder, lambda rows: rows.clear(), shard=shard)


@breaks_file("BP344", "BP343")
def row_removed(folder: Path) -> None:
    table = pq.ParquetFile(folder / SHARD).read()
    pq.write_table(table.slice(0, table.num_rows - 1), folder / SHARD)


row_removed_and_listed = breaks("BP348", where="training num_packs")(
    lambda folder: rewrite_rows(folder, lambda rows: rows.pop())
)
row_repeated = breaks("BP348", where="training num_packs")(
    lambda folder: rewrite_rows(folder, lambda rows: rows.append(rows[0]))
)
shard_emptied_and_listed = breaks("BP348", where="training num_packs")(
    lambda folder: rewrite_rows(folder, lambda rows: rows.clear())
)
shard_in_a_deeper_folder = _moved("training/deeper/", "training/deeper/shard-00001-of-00003.idx.parquet")
shard_reached_through_its_parent = _moved("training/../", "training/../elsewhere/shard-00001-of-00003.idx.parquet")
shard_listed_by_another_split = _moved("validation/shard-00001", "validation/shard-00001-of-00002.idx.parquet")
shard_with_a_name_that_the_host_skips = _moved("training/shard-00001-of-00003.bin")
shard_with_a_hidden_name = _moved("training/.shard", "training/.shard-00001-of-00003.idx.parquet")
shard_with_an_absolute_path = breaks("BP350", where=f"{os.sep}")(
    lambda folder: _move_listed(folder, str(folder / SHARD))
)
