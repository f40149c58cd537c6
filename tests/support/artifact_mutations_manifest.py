"""Mutations of what an artifact's manifest claims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import (
    MANIFEST,
    OTHER_SHARD,
    SHARD,
    breaks,
    breaks_file,
    edit_manifest,
)

Content = dict[str, Any]


def _statistics(folder: Path, **changes: int) -> None:
    """Add to statistics of training."""

    def change(manifest: Content) -> None:
        statistics = manifest["splits"][0]["statistics"]
        statistics.update({name: statistics[name] + amount for name, amount in changes.items()})

    edit_manifest(folder, change)


def _histogram(folder: Path, change: Callable[[list[list[int]]], list[list[int]]]) -> None:
    """Change the histogram of training."""

    def replace(manifest: Content) -> None:
        statistics = manifest["splits"][0]["statistics"]
        statistics["length_histogram"] = change(statistics["length_histogram"])

    edit_manifest(folder, replace)


def _record(folder: Path, **changes: Any) -> None:
    """Change the record of `SHARD`."""
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["shards"][1].update(changes))


@breaks_file("BP344")
def number_of_rows_changed(folder: Path) -> None:
    _record(folder, num_rows=5)


@breaks_file("BP342")
def size_changed(folder: Path) -> None:
    _record(folder, num_bytes=5)


@breaks_file("BP343")
def checksum_changed(folder: Path) -> None:
    _record(folder, sha256="0" * 64)


@breaks_file("BP343")
def checksum_emptied(folder: Path) -> None:
    _record(folder, sha256="")


@breaks_file("BP340", "BP345", where="training/shard-00007")
def shard_listed_under_another_name(folder: Path) -> None:
    _record(folder, path="training/shard-00007-of-00003.idx.parquet")


@breaks_file("BP346", "BP345", where=OTHER_SHARD)
def record_of_another_shard(folder: Path) -> None:
    _record(folder, path=OTHER_SHARD)


@breaks("BP348", where="training num_packs")
def more_packs(folder: Path) -> None:
    _statistics(folder, num_packs=1)


@breaks("BP348", "BP349", where="training num_sequences")
def more_sequences(folder: Path) -> None:
    _statistics(folder, num_sequences=1)


@breaks("BP348", where="training num_sequences")
def more_sequences_and_rows(folder: Path) -> None:
    _statistics(folder, num_sequences=1, num_rows_in=1)


@breaks("BP348", where="training num_tokens")
def more_tokens(folder: Path) -> None:
    _statistics(folder, num_tokens=1)


@breaks("BP348", where="training num_alignment_tokens")
def tokens_called_padding(folder: Path) -> None:
    _statistics(folder, num_tokens=-5000, num_alignment_tokens=5000)


@breaks("BP348", where="training num_trained_tokens")
def fewer_trained_tokens(folder: Path) -> None:
    _statistics(folder, num_trained_tokens=-1)


@breaks("BP348", where="training max_runtime_length")
def longer_sequences(folder: Path) -> None:
    _statistics(folder, max_runtime_length=8)


@breaks("BP348", where="training max_sequences_per_pack")
def fewer_sequences_per_pack(folder: Path) -> None:
    _statistics(folder, max_sequences_per_pack=-1)


@breaks("BP348", where="training min_pack_tokens")
def emptier_packs(folder: Path) -> None:
    _statistics(folder, min_pack_tokens=-8)


@breaks("BP348", where="training sum of length_histogram")
def histogram_with_another_sum(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["statistics"]["length_histogram"].pop())


@breaks("BP348", where="training length_histogram")
def histogram_of_longer_sequences(folder: Path) -> None:
    _histogram(folder, lambda buckets: [[2 * bound, count] for bound, count in buckets])


@breaks("BP348", where="training length_histogram")
def histogram_of_shorter_sequences(folder: Path) -> None:
    _histogram(folder, lambda buckets: [[bound // 2, count] for bound, count in buckets])


@breaks("BP348", where="training length_histogram")
def histogram_with_a_gap(folder: Path) -> None:
    _histogram(folder, lambda buckets: [[32, 0], [4096, sum(count for _, count in buckets)]])


@breaks("BP348", where="training length_histogram")
def histogram_with_a_negative_count(folder: Path) -> None:
    _histogram(folder, lambda buckets: [[16, -1], [32, buckets[0][1] + 1], *buckets[1:]])


@breaks("BP349", where="training num_rows_in")
def more_rows_read(folder: Path) -> None:
    _statistics(folder, num_rows_in=1)


@breaks("BP349", where="training num_rows_in")
def drops_changed(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].update(over_long=0))


@breaks("BP349", where="training num_rows_in")
def drops_emptied(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].clear())


@breaks("BP349", where="training")
def drops_that_cancel(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].update(missing_field=3, empty=-3))


@breaks("BP349", where="training num_truncated")
def more_sequences_cut_than_there_are(folder: Path) -> None:
    _statistics(folder, num_truncated=10**6)


@breaks("BP349", where="training inputs")
def input_with_other_rows(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["inputs"][0].update(num_rows=7))


@breaks("BP347", "BP302", where="splits[0]")
def training_called_train(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0].update(name="train"))


@breaks("BP347", where="splits[2]")
def split_listed_twice(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"].append(manifest["splits"][1]))


@breaks("BP345", "BP408", where="validation/")
def validation_no_longer_listed(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"].pop())


@breaks("BP302", "BP345", where=MANIFEST)
def training_no_longer_listed(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"].pop(0))


@breaks("BP302", "BP345", where=MANIFEST)
def no_split_listed(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"].clear())


@breaks("BP302", "BP345", where="training")
def no_shard_listed(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["shards"].clear())


@breaks("BP350", where=SHARD)
def splits_exchanged(folder: Path) -> None:
    def change(manifest: Content) -> None:
        one, other = manifest["splits"]
        one["name"], other["name"] = other["name"], one["name"]

    edit_manifest(folder, change)


@breaks("BP330", "BP351", where="training/")
def smaller_packs(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=128))


@breaks("BP351", "BP410", where="packed_sequence_size")
def larger_packs(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=512))


@breaks("BP321", where="packed_sequence_size")
def packs_beyond_int32(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=2**31))


@breaks("BP321", "BP330", where="packed_sequence_size")
def packs_of_no_token(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=0))


@breaks("BP331", "BP351", where="training/")
def larger_multiple(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=16))


@breaks("BP351", where="pad_seq_to_mult")
def smaller_multiple(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=4))


@breaks("BP351", where="pad_seq_to_mult", base="plain")
def multiple_of_zero(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=0))


@breaks("BP351", where="pad_seq_to_mult")
def negative_multiple(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=-8))


@breaks("BP351", where="fingerprint")
def fingerprint_emptied(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(fingerprint=""))


@breaks("BP351", where="fingerprint")
def fingerprint_of_another_kind(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(fingerprint="unknown"))


@breaks("BP351", where="eos_token_id")
def tokenizer_emptied(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].clear())


@breaks("BP351", where="vocab_size")
def vocabulary_as_text(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size="400"))


@breaks("BP311", where="training/")
def smaller_vocabulary(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size=100))


@breaks("BP334", where="training")
def eos_of_another_tokenizer(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(eos_token_id=0))


@breaks("BP351", where="eos_token_id")
def eos_out_of_vocabulary(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(eos_token_id=400))


@breaks("BP501", where=MANIFEST)
def tokenizer_that_loses_text(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(loses_text=True))


@breaks("BP351", where="packed_sequence_size")
def recipe_of_another_artifact(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["recipe"]["packing"].update(packed_sequence_size=4096))


@breaks("BP351", where="fingerprint")
def recipe_emptied(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["recipe"].clear())


@breaks("BP351", where="fingerprint")
def seed_of_another_recipe(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["recipe"]["packing"].update(seed=7))


@breaks("BP351", where="fingerprint")
def loss_mode_of_another_recipe(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["recipe"]["preprocessing"].update(loss_mode="full"))


@breaks("BP351", where="fingerprint")
def resolved_values_emptied(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["resolved"].clear())


@breaks("BP351", where="fingerprint")
def larger_vocabulary(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size=1 << 20))


@breaks("BP351", where="fingerprint")
def chat_template_of_another_tokenizer(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(chat_template_sha256="0" * 64))


@breaks("BP351", where="fingerprint")
def inputs_of_another_artifact(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["inputs"][0].update(sha256="0" * 64))


@breaks("BP351", where="fingerprint")
def inputs_emptied(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["inputs"].clear())


@breaks("BP351", where="fingerprint")
def library_of_another_version(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["versions"].update(tokenizers="0.1"))
