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


number_of_rows_changed = breaks_file("BP344")(lambda folder: _record(folder, num_rows=5))
size_changed = breaks_file("BP342")(lambda folder: _record(folder, num_bytes=5))
checksum_changed = breaks_file("BP343")(lambda folder: _record(folder, sha256="0" * 64))
checksum_emptied = breaks_file("BP343")(lambda folder: _record(folder, sha256=""))
shard_listed_under_another_name = breaks_file("BP340", "BP345", where="training/shard-00007")(
    lambda folder: _record(folder, path="training/shard-00007-of-00003.idx.parquet")
)
record_of_another_shard = breaks_file("BP346", "BP345", where=OTHER_SHARD)(
    lambda folder: _record(folder, path=OTHER_SHARD)
)
more_packs = breaks("BP348", where="training num_packs")(lambda folder: _statistics(folder, num_packs=1))
more_sequences = breaks("BP348", "BP349", where="training num_sequences")(
    lambda folder: _statistics(folder, num_sequences=1)
)
more_sequences_and_rows = breaks("BP348", where="training num_sequences")(
    lambda folder: _statistics(folder, num_sequences=1, num_rows_in=1)
)
more_tokens = breaks("BP348", where="training num_tokens")(lambda folder: _statistics(folder, num_tokens=1))
tokens_called_padding = breaks("BP348", where="training num_alignment_tokens")(
    lambda folder: _statistics(folder, num_tokens=-5000, num_alignment_tokens=5000)
)
fewer_trained_tokens = breaks("BP348", where="training num_trained_tokens")(
    lambda folder: _statistics(folder, num_trained_tokens=-1)
)
longer_sequences = breaks("BP348", where="training max_runtime_length")(
    lambda folder: _statistics(folder, max_runtime_length=8)
)
fewer_sequences_per_pack = breaks("BP348", where="training max_sequences_per_pack")(
    lambda folder: _statistics(folder, max_sequences_per_pack=-1)
)
emptier_packs = breaks("BP348", where="training min_pack_tokens")(
    lambda folder: _statistics(folder, min_pack_tokens=-8)
)
histogram_with_another_sum = breaks("BP348", where="training sum of length_histogram")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["statistics"]["length_histogram"].pop())
)
histogram_of_longer_sequences = breaks("BP348", where="training length_histogram")(
    lambda folder: _histogram(folder, lambda buckets: [[2 * bound, count] for bound, count in buckets])
)
histogram_of_shorter_sequences = breaks("BP348", where="training length_histogram")(
    lambda folder: _histogram(folder, lambda buckets: [[bound // 2, count] for bound, count in buckets])
)
histogram_with_a_gap = breaks("BP348", where="training length_histogram")(
    lambda folder: _histogram(folder, lambda buckets: [[32, 0], [4096, sum(count for _, count in buckets)]])
)
histogram_with_a_negative_count = breaks("BP348", where="training length_histogram")(
    lambda folder: _histogram(folder, lambda buckets: [[16, -1], [32, buckets[0][1] + 1], *buckets[1:]])
)
more_rows_read = breaks("BP349", where="training num_rows_in")(lambda folder: _statistics(folder, num_rows_in=1))
drops_changed = breaks("BP349", where="training num_rows_in")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].update(over_long=0))
)
drops_emptied = breaks("BP349", where="training num_rows_in")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].clear())
)
drops_that_cancel = breaks("BP349", where="training")(
    lambda folder: edit_manifest(
        folder, lambda manifest: manifest["splits"][0]["drops"].update(missing_field=3, empty=-3)
    )
)
more_sequences_cut_than_there_are = breaks("BP349", where="training num_truncated")(
    lambda folder: _statistics(folder, num_truncated=10**6)
)
input_with_other_rows = breaks("BP349", where="training inputs")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["inputs"][0].update(num_rows=7))
)
training_called_train = breaks("BP347", "BP302", where="splits[0]")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0].update(name="train"))
)
split_listed_twice = breaks("BP347", where="splits[2]")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"].append(manifest["splits"][1]))
)
validation_no_longer_listed = breaks("BP345", "BP408", where="validation/")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"].pop())
)
training_no_longer_listed = breaks("BP302", "BP345", where=MANIFEST)(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"].pop(0))
)
no_split_listed = breaks("BP302", "BP345", where=MANIFEST)(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"].clear())
)
no_shard_listed = breaks("BP302", "BP345", where="training")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["shards"].clear())
)


@breaks("BP350", where=SHARD)
def splits_exchanged(folder: Path) -> None:
    def change(manifest: Content) -> None:
        one, other = manifest["splits"]
        one["name"], other["name"] = other["name"], one["name"]

    edit_manifest(folder, change)


smaller_packs = breaks("BP330", "BP351", where="training/")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=128))
)
larger_packs = breaks("BP351", "BP410", where="packed_sequence_size")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=512))
)
packs_beyond_int32 = breaks("BP321", where="packed_sequence_size")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=2**31))
)
packs_of_no_token = breaks("BP321", "BP330", where="packed_sequence_size")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size=0))
)
larger_multiple = breaks("BP331", "BP351", where="training/")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=16))
)
smaller_multiple = breaks("BP351", where="pad_seq_to_mult")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=4))
)
multiple_of_zero = breaks("BP351", where="pad_seq_to_mult", base="plain")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=0))
)
negative_multiple = breaks("BP351", where="pad_seq_to_mult")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(pad_seq_to_mult=-8))
)
fingerprint_emptied = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(fingerprint=""))
)
fingerprint_of_another_kind = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(fingerprint="unknown"))
)
tokenizer_emptied = breaks("BP351", where="eos_token_id")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].clear())
)
vocabulary_as_text = breaks("BP351", where="vocab_size")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size="400"))
)
smaller_vocabulary = breaks("BP311", where="training/")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size=100))
)
eos_of_another_tokenizer = breaks("BP334", where="training")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(eos_token_id=0))
)
eos_out_of_vocabulary = breaks("BP351", where="eos_token_id")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(eos_token_id=400))
)
tokenizer_that_loses_text = breaks("BP501", where=MANIFEST)(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(loses_text=True))
)
recipe_of_another_artifact = breaks("BP351", where="packed_sequence_size")(
    lambda folder: edit_manifest(
        folder, lambda manifest: manifest["recipe"]["packing"].update(packed_sequence_size=4096)
    )
)
recipe_emptied = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["recipe"].clear())
)
seed_of_another_recipe = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["recipe"]["packing"].update(seed=7))
)
loss_mode_of_another_recipe = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["recipe"]["preprocessing"].update(loss_mode="full"))
)
resolved_values_emptied = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["resolved"].clear())
)
larger_vocabulary = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(vocab_size=1 << 20))
)
chat_template_of_another_tokenizer = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["tokenizer"].update(chat_template_sha256="0" * 64))
)
inputs_of_another_artifact = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["inputs"][0].update(sha256="0" * 64))
)
inputs_emptied = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["inputs"].clear())
)
library_of_another_version = breaks("BP351", where="fingerprint")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["versions"].update(tokenizers="0.1"))
)
