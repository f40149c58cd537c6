"""Mutations of an artifact's files: bytes, and shards that are missing, swapped, copied, renamed, moved."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.artifact_mutations import (
    OTHER_SHARD,
    SHARD,
    VALIDATION_SHARD,
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


def _flip(folder: Path, position: int) -> None:
    content = bytearray(_bytes(folder))
    content[position] ^= 0xFF
    _set_bytes(folder, bytes(content))


def _footer_begin(folder: Path) -> int:
    content = _bytes(folder)
    return len(content) - _TAIL_BYTES - int.from_bytes(content[-_TAIL_BYTES:-4], "little")


@breaks_file("BP341", "BP342", "BP343")
def half_of_a_shard(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder)[: len(_bytes(folder)) // 2])


@breaks_file("BP341", "BP342", "BP343")
def shard_without_its_last_byte(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder)[:-1])


@breaks_file("BP341", "BP342", "BP343")
def shard_without_its_first_byte(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder)[1:])


@breaks_file("BP341", "BP342", "BP343")
def footer_without_data(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder)[_footer_begin(folder) :])


@breaks_file("BP341", "BP342", "BP343")
def data_without_footer(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder)[: _footer_begin(folder)])


@breaks_file("BP341", "BP342", "BP343")
def empty_file(folder: Path) -> None:
    _set_bytes(folder, b"")


@breaks_file("BP341", "BP343")
def data_overwritten_with_zeros(folder: Path) -> None:
    content, begin = _bytes(folder), _footer_begin(folder)
    _set_bytes(folder, content[:4] + bytes(begin - 4) + content[begin:])


@breaks_file("BP343")
def flipped_byte_of_data(folder: Path) -> None:
    _flip(folder, _footer_begin(folder) // 2)


@breaks_file("BP343")
def flipped_byte_of_the_writers_name(folder: Path) -> None:
    _flip(folder, _bytes(folder).rindex(b"parquet-cpp-arrow"))


@breaks_file("BP301", "BP343")
def flipped_bits_of_a_columns_name(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder).replace(b"input_ids", b"input_idr"))


@breaks_file("BP341", "BP343")
def columns_name_that_is_no_text(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder).replace(b"input_ids", b"input\xffids"))


@breaks_file("BP341", "BP343")
def columns_path_that_is_no_text(folder: Path) -> None:
    name = _bytes(folder).rindex(b"input_ids")
    _flip(folder, name)


@breaks_file("BP341", "BP343")
def flipped_byte_of_the_footers_length(folder: Path) -> None:
    _flip(folder, -5)


@breaks_file("BP341", "BP343")
def flipped_byte_of_the_magic(folder: Path) -> None:
    _flip(folder, -1)


@breaks_file("BP341", "BP342", "BP343")
def bytes_appended(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder) + b"\n")


@breaks_file("BP341", "BP342", "BP343")
def pointer_of_git_lfs(folder: Path) -> None:
    _set_bytes(folder, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 18791\n")


@breaks_file("BP341", "BP342", "BP343")
def compressed_file(folder: Path) -> None:
    _set_bytes(folder, gzip.compress(_bytes(folder)))


@breaks_file("BP340")
def folder_in_place_of_a_shard(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).mkdir()


@breaks_file("BP340")
def shard_deleted(folder: Path) -> None:
    (folder / SHARD).unlink()


@breaks_file("BP340", where=VALIDATION_SHARD)
def validation_deleted(folder: Path) -> None:
    shutil.rmtree(folder / "validation")


@breaks_file("BP340")
def training_deleted(folder: Path) -> None:
    shutil.rmtree(folder / "training")


@breaks_file("BP340")
def link_that_leads_nowhere(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(folder / "training" / "gone.idx.parquet")


@breaks_file("BP340", "BP345")
def shard_renamed(folder: Path) -> None:
    (folder / SHARD).rename(folder / "training" / "shard-00009-of-00003.idx.parquet")


@breaks_file("BP340", "BP345")
def shard_moved_to_validation(folder: Path) -> None:
    (folder / SHARD).rename(folder / "validation" / "shard-00001-of-00002.idx.parquet")


@breaks_file("BP343")
def shards_of_one_split_swapped(folder: Path) -> None:
    one, other = _bytes(folder), _bytes(folder, OTHER_SHARD)
    _set_bytes(folder, other)
    _set_bytes(folder, one, OTHER_SHARD)


@breaks_file("BP343", "BP344")
def shards_of_two_splits_swapped(folder: Path) -> None:
    one, other = _bytes(folder), _bytes(folder, VALIDATION_SHARD)
    _set_bytes(folder, other)
    _set_bytes(folder, one, VALIDATION_SHARD)


@breaks_file("BP343", "BP346", where=OTHER_SHARD)
def shard_overwritten_with_another(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder), OTHER_SHARD)


@breaks_file("BP343", "BP344", "BP346", "BP320", where=VALIDATION_SHARD)
def validation_overwritten_with_training(folder: Path) -> None:
    _set_bytes(folder, _bytes(folder), VALIDATION_SHARD)


@breaks_file("BP343", "BP331")
def shard_of_an_artifact_with_another_multiple(folder: Path) -> None:
    shutil.copy(folder.parent / "plain" / SHARD, folder / SHARD)


@breaks("BP331", "BP348", where=SHARD)
def shard_of_an_artifact_with_another_multiple_listed(folder: Path) -> None:
    shutil.copy(folder.parent / "plain" / SHARD, folder / SHARD)
    restate_record(folder, SHARD)


@breaks("BP330", "BP348", where=SHARD)
def shard_of_an_artifact_with_wider_packs_listed(folder: Path) -> None:
    shutil.copy(folder.parent / "wide" / SHARD, folder / SHARD)
    restate_record(folder, SHARD)


@breaks_file("BP343")
def shard_of_an_artifact_with_another_seed(folder: Path) -> None:
    shutil.copy(folder.parent / "shuffled" / SHARD, folder / SHARD)


@breaks("BP345", where="training/shard-00003-of-00004.idx.parquet")
def shard_copied(folder: Path) -> None:
    shutil.copy(folder / SHARD, folder / "training" / "shard-00003-of-00004.idx.parquet")


@breaks("BP345", where="validation/copy.pq")
def shard_copied_to_validation(folder: Path) -> None:
    shutil.copy(folder / SHARD, folder / "validation" / "copy.pq")


@breaks("BP345", where="training/left-over.parquet")
def unreadable_shard_left_over(folder: Path) -> None:
    (folder / "training" / "left-over.parquet").write_bytes(_bytes(folder)[:100])


@breaks("BP345", where="training_256.idx.parquet")
def packs_of_the_host_beside_the_manifest(folder: Path) -> None:
    shutil.copy(folder / SHARD, folder / "training_256.idx.parquet")


@breaks("BP346", "BP348", where="training/shard-00003-of-00004.idx.parquet")
def shard_copied_and_listed(folder: Path) -> None:
    name = "training/shard-00003-of-00004.idx.parquet"
    shutil.copy(folder / SHARD, folder / name)
    edit_manifest(folder, lambda manifest: _list(manifest, record_of(folder / name, name)))


@breaks("BP346", "BP348", where=SHARD)
def shard_listed_twice(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: _list(manifest, record_of(folder / SHARD, SHARD)))


@breaks("BP345", "BP348", where=SHARD)
def shard_no_longer_listed(folder: Path) -> None:
    def remove(manifest: dict[str, Any]) -> None:
        records = manifest["splits"][0]["shards"]
        records[:] = [record for record in records if record["path"] != SHARD]

    edit_manifest(folder, remove)


@breaks("BP346", "BP320", where=VALIDATION_SHARD)
def training_listed_as_validation(folder: Path) -> None:
    shutil.copy(folder / SHARD, folder / VALIDATION_SHARD)
    restate_record(folder, VALIDATION_SHARD)


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


@breaks("BP348", where="training num_packs")
def row_removed_and_listed(folder: Path) -> None:
    rewrite_rows(folder, lambda rows: rows.pop())


@breaks("BP348", where="training num_packs")
def row_repeated(folder: Path) -> None:
    rewrite_rows(folder, lambda rows: rows.append(rows[0]))


@breaks("BP348", where="training num_packs")
def shard_emptied_and_listed(folder: Path) -> None:
    rewrite_rows(folder, lambda rows: rows.clear())


@breaks("BP350", where="training/deeper/")
def shard_in_a_deeper_folder(folder: Path) -> None:
    _move_listed(folder, "training/deeper/shard-00001-of-00003.idx.parquet")


@breaks("BP350", where="training/../")
def shard_reached_through_its_parent(folder: Path) -> None:
    _move_listed(folder, "training/../elsewhere/shard-00001-of-00003.idx.parquet")


@breaks("BP350", where="validation/shard-00001")
def shard_listed_by_another_split(folder: Path) -> None:
    _move_listed(folder, "validation/shard-00001-of-00002.idx.parquet")


@breaks("BP350", where="training/shard-00001-of-00003.bin")
def shard_with_a_name_that_the_host_skips(folder: Path) -> None:
    _move_listed(folder, "training/shard-00001-of-00003.bin")


@breaks("BP350", where="training/.shard")
def shard_with_a_hidden_name(folder: Path) -> None:
    _move_listed(folder, "training/.shard-00001-of-00003.idx.parquet")


@breaks("BP350", where=f"{os.sep}")
def shard_with_an_absolute_path(folder: Path) -> None:
    _move_listed(folder, str(folder / SHARD))


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
