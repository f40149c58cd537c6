"""Mutations of what an artifact's manifest claims, and of whether it can be read at all."""

from collections.abc import Callable
from typing import Any

from tests.support.artifact_mutations import MANIFEST, OTHER_SHARD, SHARD, Mutation, breaks, edit_json, put_folder

TRAINING = ("splits", 0)
STATISTICS = (*TRAINING, "statistics")
INPUT = (*TRAINING, "inputs", 0)


def _at(manifest: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        manifest = manifest[key]
    return manifest


def _edit(
    codes: str, where: str, change: Callable[[Any], object], path: tuple[Any, ...] = (), **fields: Any
) -> Mutation:
    """Return a mutation of what is at `path`."""
    return breaks(
        codes, lambda folder: edit_json(folder, lambda manifest: change(_at(manifest, path))), where=where, **fields
    )


def _update(codes: str, where: str, path: tuple[Any, ...] = (), base: str = "aligned", **values: Any) -> Mutation:
    return _edit(codes, where, lambda found: found.update(values), path, base=base)


def _add(codes: str, where: str, **amounts: int) -> Mutation:
    """Return a mutation that adds to statistics of training."""
    return _edit(
        codes,
        where,
        lambda found: found.update({name: found[name] + amount for name, amount in amounts.items()}),
        STATISTICS,
    )


def _clear(codes: str, where: str, *path: Any) -> Mutation:
    return _edit(codes, where, lambda found: found.clear(), path)


def _histogram(change: Callable[[list[list[int]]], list[list[int]]]) -> Mutation:
    return _edit(
        "BP348",
        "training length_histogram",
        lambda found: found.__setitem__(slice(None), change(found)),
        (*STATISTICS, "length_histogram"),
    )


def _record(codes: str, where: str = SHARD, **changes: Any) -> Mutation:
    """Return a mutation of the record of `SHARD`."""
    return _edit(codes, where, lambda record: record.update(changes), (*TRAINING, "shards", 1), fits_manifest=False)


def _unreadable(message: str, path: tuple[Any, ...] = (), /, **values: Any) -> Mutation:
    """Return a mutation after which the check ends with an error: it sets values, and removes what becomes `...`."""

    def change(manifest: Any) -> None:
        found = _at(manifest, path)
        found.update(values)
        for name in [name for name, value in values.items() if value is ...]:
            del found[name]

    return breaks("", lambda folder: edit_json(folder, change), message=message)


def _bytes(change: Callable[[bytes], bytes], message: str = "cannot be read") -> Mutation:
    """Return a mutation of the bytes, after which the check ends with an error."""
    return breaks(
        "", lambda folder: (folder / MANIFEST).write_bytes(change((folder / MANIFEST).read_bytes())), message=message
    )


def _exchange_names(manifest: Any) -> None:
    one, other = manifest["splits"]
    one["name"], other["name"] = other["name"], one["name"]


number_of_rows_changed = _record("BP344", num_rows=5)
size_changed = _record("BP342", num_bytes=5)
checksum_changed = _record("BP343", sha256="0" * 64)
checksum_emptied = _record("BP343", sha256="")
shard_under_another_name = _record("BP340 BP345", "training/shard-7", path="training/shard-7-of-3.idx.parquet")
record_of_another_shard = _record("BP346 BP345", OTHER_SHARD, path=OTHER_SHARD)
more_packs = _add("BP348", "training num_packs", num_packs=1)
more_sequences = _add("BP348 BP349", "training num_sequences", num_sequences=1)
more_sequences_and_rows = _add("BP348", "training num_sequences", num_sequences=1, num_rows_in=1)
more_tokens = _add("BP348", "training num_tokens", num_tokens=1)
tokens_called_padding = _add("BP348", "training num_alignment_tokens", num_tokens=-5000, num_alignment_tokens=5000)
fewer_trained_tokens = _add("BP348", "training num_trained_tokens", num_trained_tokens=-1)
longer_sequences = _add("BP348", "training max_runtime_length", max_runtime_length=8)
fewer_sequences_per_pack = _add("BP348", "training max_sequences_per_pack", max_sequences_per_pack=-1)
emptier_packs = _add("BP348", "training min_pack_tokens", min_pack_tokens=-8)
histogram_with_another_sum = _edit(
    "BP348", "training sum of length_histogram", lambda found: found["length_histogram"].pop(), STATISTICS
)
histogram_of_longer_sequences = _histogram(lambda buckets: [[2 * bound, count] for bound, count in buckets])
histogram_of_shorter_sequences = _histogram(lambda buckets: [[bound // 2, count] for bound, count in buckets])
histogram_with_a_gap = _histogram(lambda buckets: [[32, 0], [4096, sum(count for _, count in buckets)]])
histogram_with_a_negative_count = _histogram(lambda buckets: [[16, -1], [32, buckets[0][1] + 1], *buckets[1:]])
more_rows_read = _add("BP349", "training num_rows_in", num_rows_in=1)
drops_changed = _update("BP349", "training num_rows_in", (*TRAINING, "drops"), over_long=0)
drops_emptied = _clear("BP349", "training num_rows_in", *TRAINING, "drops")
drops_that_cancel = _update("BP349", "training", (*TRAINING, "drops"), missing_field=3, empty=-3)
more_sequences_cut_than_there_are = _add("BP349", "training num_truncated", num_truncated=10**6)
more_rows_split_than_pieces = _add("BP349", "training num_split", num_split=1)
rows_packed_in_part_without_a_dropped_piece = _add("BP349", "training num_partly_packed", num_partly_packed=1)
input_with_other_rows = _update("BP349", "training inputs", INPUT, num_rows=7)
training_called_train = _update("BP347 BP302", "splits[0]", TRAINING, name="train")
split_listed_twice = _edit("BP347", "splits[2]", lambda manifest: manifest["splits"].append(manifest["splits"][1]))
validation_no_longer_listed = _edit("BP345 BP408", "validation/", lambda manifest: manifest["splits"].pop())
training_no_longer_listed = _edit("BP302 BP345", MANIFEST, lambda manifest: manifest["splits"].pop(0))
no_split_listed = _clear("BP302 BP345", MANIFEST, "splits")
no_shard_listed = _clear("BP302 BP345", "training", *TRAINING, "shards")
splits_exchanged = _edit("BP350", SHARD, _exchange_names)
smaller_packs = _update("BP330 BP351", "training/", packed_sequence_size=128)
larger_packs = _update("BP351 BP410", "packed_sequence_size", packed_sequence_size=512)
packs_beyond_int32 = _update("BP321", "packed_sequence_size", packed_sequence_size=2**31)
packs_of_no_token = _update("BP321 BP330", "packed_sequence_size", packed_sequence_size=0)
larger_multiple = _update("BP331 BP351", "training/", pad_seq_to_mult=16)
smaller_multiple = _update("BP351", "pad_seq_to_mult", pad_seq_to_mult=4)
multiple_of_zero = _update("BP351", "pad_seq_to_mult", base="plain", pad_seq_to_mult=0)
negative_multiple = _update("BP351", "pad_seq_to_mult", pad_seq_to_mult=-8)
fingerprint_emptied = _update("BP351", "fingerprint", fingerprint="")
fingerprint_of_another_kind = _update("BP351", "fingerprint", fingerprint="unknown")
tokenizer_emptied = _clear("BP351", "eos_token_id", "tokenizer")
vocabulary_as_text = _update("BP351", "vocab_size", ("tokenizer",), vocab_size="400")
smaller_vocabulary = _update("BP311", "training/", ("tokenizer",), vocab_size=100)
eos_of_another_tokenizer = _update("BP334", "training", ("tokenizer",), eos_token_id=0)
eos_out_of_vocabulary = _update("BP351", "eos_token_id", ("tokenizer",), eos_token_id=400)
tokenizer_that_loses_text = _update("BP501", MANIFEST, ("tokenizer",), loses_text=True)
recipe_of_another_artifact = _update("BP351", "packed_sequence_size", ("recipe", "packing"), packed_sequence_size=4096)
recipe_emptied = _clear("BP351", "fingerprint", "recipe")
seed_of_another_recipe = _update("BP351", "fingerprint", ("recipe", "packing"), seed=7)
loss_mode_of_another_recipe = _update("BP351", "fingerprint", ("recipe", "preprocessing"), loss_mode="full")
resolved_values_emptied = _clear("BP351", "fingerprint", "resolved")
larger_vocabulary = _update("BP351", "fingerprint", ("tokenizer",), vocab_size=1 << 20)
chat_template_of_another_tokenizer = _update("BP351", "fingerprint", ("tokenizer",), chat_template_sha256="0" * 64)
inputs_of_another_artifact = _update("BP351", "fingerprint", INPUT, sha256="0" * 64)
inputs_emptied = _clear("BP351", "fingerprint", *TRAINING, "inputs")
library_of_another_version = _update("BP351", "fingerprint", ("versions",), tokenizers="0.1")

folder_in_place_of_the_manifest = breaks("", lambda folder: put_folder(folder / MANIFEST), message="cannot be read")
manifest_cut_off = _bytes(lambda content: content[: len(content) // 2])
manifest_empty = _bytes(lambda _: b"")
manifest_as_yaml = _bytes(lambda _: b"format_version: 1\n")
manifest_of_zeros = _bytes(lambda content: bytes(len(content)))
manifest_in_another_encoding = _bytes(lambda content: content.decode().encode("utf-16"))
manifest_nested_too_deep = _bytes(lambda _: b"[" * 100_000)
manifest_as_a_list = _bytes(lambda _: b"[1]", "format_version is None")
format_of_the_future = _unreadable("format_version is 1; this bridgepack reads 6", format_version=1)
format_missing = _unreadable("format_version is None", format_version=...)
format_as_text = _unreadable("format_version is '2'", format_version="2")
splits_missing = _unreadable("splits: Field required", splits=...)
splits_null = _unreadable("splits: Input should be a valid tuple", splits=None)
packed_sequence_size_as_words = _unreadable("packed_sequence_size: ", packed_sequence_size="many")
_RECORD = (*TRAINING, "shards", 1)
number_of_rows_infinite = _unreadable("splits.0.shards.1.num_rows: ", _RECORD, num_rows=float("inf"))
path_null = _unreadable("splits.0.shards.1.path: ", _RECORD, path=None)
statistic_missing = _unreadable("splits.0.statistics.num_packs: Field required", STATISTICS, num_packs=...)
drops_as_lists = _unreadable("splits.0.drops.over_long: ", (*TRAINING, "drops"), over_long=[1])
