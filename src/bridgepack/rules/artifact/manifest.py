"""Rules that compare the manifest with the packs of the shards."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bridgepack import __version__
from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.records import SPLITS, TRAIN, Manifest, SplitRecord, SplitStatistics
from bridgepack.records.flags import lost_flags_in
from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import CannotJudgeError, require_known, section
from bridgepack.rules.judging.environment import is_in, version_of
from bridgepack.rules.judging.facts import MANIFEST_FILE, ArtifactFacts
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, artifact_rule, wrong
from bridgepack.rules.judging.truth import SplitTruth

#: cu_seqlens are int32.
MAX_PACKED_SEQUENCE_SIZE = 2**31 - 1

#: Releases of transformers whose renders were compared, by tests/unit/data/test_renders_of_transformers.py.
RENDERS_COMPARED = "<5.25"

_SHA256 = re.compile(r"[0-9a-f]{64}")
#: File names that the host's loader finds in a folder. Source: megatron-bridge 0.6.2, data/packing/paths.py.
_FOUND_BY_HOST = re.compile(r"[^./][^/]*\.(?:parquet|pq|npy)")


@artifact_rule("BP302", ERROR, "PSB302, PSB512")
def split_empty(facts: ArtifactFacts) -> Found:
    """A split has no packs, or an artifact has no training split.

    Why: Crash at start: the host refuses a packed dataset of 0 packs.
    Bad: a training split whose only shard has 0 packs. Good: a training split with at least one pack.
    Fix: Read in the drop ledger why all rows were dropped, or remove the split from the recipe.
    """
    if facts.manifest is not None and TRAIN not in facts.shards:
        yield wrong(MANIFEST_FILE, f"splits {', '.join(facts.shards) or 'none'}", TRAIN)
    for split, shards in facts.shards.items():
        if all(shard.num_rows == 0 for shard in shards):
            yield wrong(split, f"0 packs in {count_text(len(shards), 'shard')}", "at least 1 pack")


@artifact_rule("BP308", ERROR, "PSB308")
def stored_lengths_aligned(facts: ArtifactFacts) -> Found:
    """Stored lengths are multiples of pad_seq_to_mult; the runtime lengths should be.

    Why: Crash or silent: the model sees stored - 1 tokens, so every sequence is one token short. Packs of
        megatron-bridge 0.5.1 and older, and of producers without the extra last token, look like this.
    Bad: sequences of 4 and 8 stored tokens, pad_seq_to_mult 4.
    Good: sequences of 5 and 9 stored tokens, pad_seq_to_mult 4.
    Fix: Build again with this version; do not pad the stored lengths.
    """
    multiple = require_known(facts.context.pad_seq_to_mult, "pad_seq_to_mult")
    for truth in facts.require_truths():
        if truth.num_misaligned_runtime and not truth.num_misaligned_stored:
            lengths = f"all {truth.num_sequences} stored lengths are multiples of {multiple}"
            yield wrong(truth.split, lengths, f"stored lengths of 1 + a multiple of {multiple}")


@artifact_rule("BP501", WARNING, "tokenizer probe")
def tokenizer_loses_text(facts: ArtifactFacts) -> Found:
    """The tokenizer that made the packs does not decode text back to itself, although its own tokenizer.json does.

    Why: Silent: the model is trained on text without spaces or line ends. transformers 5.12 loads DeepSeek-V3's
        tokenizer as a class that does this, also inside Megatron-Bridge.
    Bad: a tokenizer that decodes its own encoding of "Hello world" to "Helloworld".
    Good: a tokenizer that decodes its own encoding of "Hello world" to "Hello world".
    Fix: Set tokenizer.loader to tokenizer_json, or use another version of transformers, and build again.
    """
    if facts.require_manifest().tokenizer.get("loses_text"):
        yield wrong(MANIFEST_FILE, "tokenizer.loses_text is true", "false")


@artifact_rule("BP527", WARNING, "core/tokenizers/text/libraries/huggingface_tokenizer.py; tokenizer probe")
def token_flags_lost(facts: ArtifactFacts) -> Found:
    """Megatron-Core takes a flag of an added token away that changes the tokens beside it; servers keep the flag.

    Why: Silent: its wrapper sets special tokens that the tokenizer lacks to EOS or BOS, by their texts alone. Such a
        token no longer takes the white space beside it with it (lstrip, rstrip), so every turn is trained with other
        tokens than a server sends.
    Bad: lost_flags has `<|im_end|>`, rstrip. Good: no lost_flags.
    Fix: Name the token as sep_token, cls_token or bos_token in tokenizer_config.json, as the finding says, and build
        again: the wrapper then sets nothing. Evidence: executed with Megatron-Core's wrapper and texts at build time.
    """
    for token in lost_flags_in(facts.require_manifest().tokenizer):
        fix = f"{token.cure[0].upper()}{token.cure[1:]}, and build again."
        yield wrong(f"{MANIFEST_FILE} tokenizer.lost_flags", token.loss, "none", fix=fix)


@artifact_rule(
    "BP529", ADVICE, "transformers 5.24, utils/chat_template_utils.py", evidence="executed with 4.57 and 5.24"
)
def renders_of_untested_transformers(facts: ArtifactFacts) -> Found:
    """The release of transformers that made the packs is newer than the newest whose renders were compared.

    Why: Silent: releases have rendered the same chat otherwise; 5.24 moves thoughts to the field that a template reads.
    Bad: versions.transformers 99.0. Good: versions.transformers 5.12.1.
    Fix: Compare some rows with `bridgepack prove masks` and `prove served`, which render with it, or build with an
        older transformers.
    """
    manifest = facts.require_manifest()
    version = version_of(str(manifest.versions.get("transformers", "")))
    if version is not None and not is_in(version, RENDERS_COMPARED):
        yield wrong(f"{MANIFEST_FILE} versions.transformers", str(version), RENDERS_COMPARED)


@artifact_rule("BP320", WARNING, "PSB320")
def sequence_in_two_splits(facts: ArtifactFacts) -> Found:
    """The same sequence is in two splits.

    Why: Silent: the validation loss is measured on training data.
    Bad: input_ids [11, 12, 2] in training and in validation. Good: input_ids [11, 12, 2] in training only.
    Fix: Set data.deduplicate to exact, or deduplicate the inputs before they are split, and build again.
    """
    if len(facts.require_truths()) < 2:
        raise CannotJudgeError("only one split has packs")
    for sequences in facts.shared_sequences:
        yield wrong(sequences.where, sequences.share, f"none of them in {sequences.other}")


@artifact_rule("BP321", ERROR, "PSB321")
def pack_size_overflows_int32(facts: ArtifactFacts) -> Found:
    """packed_sequence_size is less than 1, or too large for the host's int32 cu_seqlens.

    Why: Crash at the first collate: the boundaries overflow. Bad: packed_sequence_size 2147483648. Good:
        packed_sequence_size 8192.
    Fix: Lower packed_sequence_size.
    """
    size = require_known(facts.context.packed_sequence_size, "packed_sequence_size")
    if not 1 <= size <= MAX_PACKED_SEQUENCE_SIZE:
        yield wrong(f"{MANIFEST_FILE} packed_sequence_size", str(size), f"1 to {MAX_PACKED_SEQUENCE_SIZE}")


@artifact_rule("BP347", ERROR, "megatron-bridge 0.6.2, data/builders/gpt_sft.py")
def split_name_unknown(facts: ArtifactFacts) -> Found:
    """A split of the manifest is neither training nor validation, or is listed twice.

    Why: Silent: the host looks for these two names only, so the split is never read.
    Bad: a split named train. Good: a split named training. Fix: Build again; splits are named training and validation.
    """
    names = [split.name for split in facts.require_manifest().splits]
    for position, name in enumerate(names):
        where = f"{MANIFEST_FILE} splits[{position}].name"
        if name not in SPLITS:
            yield wrong(where, name, " or ".join(SPLITS))
        elif name in names[:position]:
            yield wrong(where, f"{name}, for the second time", "each split once")


@artifact_rule("BP350", ERROR, "PSB212")
def shard_in_wrong_folder(facts: ArtifactFacts) -> Found:
    """A split lists a shard that is outside its own folder, or whose file name the host does not look for.

    Why: Silent: the host reads folders, so validation packs are trained, or training packs are left out.
    Bad: the split validation lists training/shard-00000-of-00001.idx.parquet; training/deeper/shard.idx.parquet.
    Good: the split validation lists validation/shard-00000-of-00001.idx.parquet.
    Fix: Build again; a build writes each shard into the folder of its split.
    """
    for split in facts.require_manifest().splits:
        for shard in split.shards:
            folder, _, name = shard.path.rpartition("/")
            if folder != split.name or not _FOUND_BY_HOST.fullmatch(name):
                yield wrong(shard.path, f"listed by {split.name}", f"{split.name}/NAME.parquet or .pq")


@artifact_rule("BP348", ERROR, "bridgepack manifest")
def statistics_differ(facts: ArtifactFacts) -> Found:
    """A statistic of the manifest does not match the packs.

    Why: Silent: step counts, batch sizes and the host's metadata are derived from it.
    Bad: num_trained_tokens 5, the masks hold 4 ones. Good: num_trained_tokens 4, the masks hold 4 ones.
    Fix: Build again; if the checksums match, report a bug of bridgepack.
    """
    manifest = facts.require_manifest()
    for truth in facts.require_complete_truths():
        split = manifest.split(truth.split)
        if split is None:
            continue
        place = f"{MANIFEST_FILE} {truth.split}"
        for name, value, actual in (*_claims(split.statistics, truth), *_claims_of_sources(split)):
            if value != actual:
                yield wrong(f"{place} {name}", str(value), f"{actual}, from the packs", group=f"{place} {name}")
        limit, value = truth.max_alignment_tokens, split.statistics.num_alignment_tokens
        if facts.context.eos_token_id is not None and value > limit:
            name = "num_alignment_tokens"
            yield wrong(f"{place} {name}", str(value), f"at most {limit}, from the packs", group=f"{place} {name}")
        yield from _wrong_histogram(split, truth)


@artifact_rule("BP349", ERROR, "bridgepack manifest")
def drops_not_balanced(facts: ArtifactFacts) -> Found:
    """The counts do not add up: input rows must equal rows read, and rows read must equal sequences plus drops.

    Why: Silent: examples were lost or repeated without a reason in the ledger.
    Bad: 10 rows read, 7 sequences, 2 drops. Good: 10 rows read, 7 sequences, 3 drops.
    Fix: Build again; if it happens again, report a bug of bridgepack.
    """
    manifest = facts.require_manifest()
    yield from _unbalanced_inputs(manifest)
    for split in manifest.splits:
        place = f"{MANIFEST_FILE} {split.name}"
        statistics, num_drops = split.statistics, sum(split.drops.values())
        for reason, count in split.drops.items():
            if count < 0:
                yield wrong(f"{place} drops.{reason}", str(count), "at least 0")
        if not 0 <= statistics.num_truncated <= statistics.num_sequences:
            bounds = f"0 to {statistics.num_sequences}, its sequences"
            yield wrong(f"{place} num_truncated", str(statistics.num_truncated), bounds)
        num_repeated = statistics.num_repeated
        if not 0 <= num_repeated < max(statistics.num_sequences, 1):
            yield wrong(f"{place} num_repeated", str(num_repeated), f"0 to {statistics.num_sequences - 1}")
        if not 0 <= statistics.num_split <= statistics.num_pieces <= statistics.num_sequences:
            bounds = f"0 to {count_text(statistics.num_pieces, 'piece')}, of {statistics.num_sequences} sequences"
            yield wrong(f"{place} num_split", str(statistics.num_split), bounds)
        limit = min(statistics.num_split, sum(split.dropped_pieces.values()))
        if not 0 <= statistics.num_partly_packed <= limit:
            bounds = f"0 to {limit}: split rows with a dropped piece"
            yield wrong(f"{place} num_partly_packed", str(statistics.num_partly_packed), bounds)
        if statistics.num_rows_in != statistics.num_rows_packed + num_drops:
            repetitions = f" - {num_repeated} repeated" if num_repeated else ""
            pieces = f" - {count_text(statistics.num_pieces, 'piece')} + {statistics.num_split} split rows"
            parts = f"{count_text(statistics.num_sequences, 'sequence')}{repetitions}"
            parts += pieces if statistics.num_pieces else ""
            yield wrong(
                f"{place} num_rows_in",
                f"{count_text(statistics.num_rows_in, 'row')} read",
                f"{parts} + {num_drops} drops",
            )


@artifact_rule("BP351", ERROR, "bridgepack manifest")
def manifest_contradicts_itself(facts: ArtifactFacts) -> Found:
    """A value of the manifest is impossible, or differs from the recipe in the same manifest.

    Why: Silent: packs are judged against it, so a wrong or missing value lets wrong packs pass.
    Bad: pad_seq_to_mult 4, the recipe resolved to 8; a tokenizer without eos_token_id; an empty fingerprint.
    Good: pad_seq_to_mult 8, the recipe resolved to 8.
    Fix: Copy the manifest again, or build the artifact again; never edit a manifest.
    """
    manifest = facts.require_manifest()
    packing, multiple = section(manifest.recipe, "packing"), section(manifest.resolved, "pad_seq_to_mult")
    size = manifest.packed_sequence_size
    vocab_size, eos = manifest.tokenizer.get("vocab_size"), manifest.tokenizer.get("eos_token_id")
    limit = vocab_size if type(vocab_size) is int else 0
    is_ours = manifest.versions.get("bridgepack") == __version__
    fingerprint = manifest.fingerprint
    own_fingerprint = fingerprint_of_manifest(manifest) if is_ours else fingerprint
    for field, is_right, text, claim in (
        ("fingerprint", _SHA256.fullmatch(fingerprint), fingerprint, "a sha256, 64 hexadecimal digits"),
        ("fingerprint", own_fingerprint == fingerprint, fingerprint, f"{own_fingerprint}, computed from the manifest"),
        ("pad_seq_to_mult", manifest.pad_seq_to_mult >= 1, manifest.pad_seq_to_mult, "at least 1"),
        _agreeing("pad_seq_to_mult", manifest.pad_seq_to_mult, multiple.get("value"), "to which the recipe resolved"),
        _agreeing("packed_sequence_size", size, packing.get("packed_sequence_size"), "as in its recipe"),
        ("tokenizer.vocab_size", limit > 0, vocab_size, "the number of token ids, at least 1"),
        ("tokenizer.eos_token_id", type(eos) is int and 0 <= eos < limit, eos, "an id of the vocabulary"),
    ):
        if not is_right:
            yield wrong(f"{MANIFEST_FILE} {field}", repr(text), claim, group=field)


def _agreeing(field: str, value: int, counterpart: Any, origin: str) -> tuple[str, bool, int, str]:
    """Return (field, is right, value, allowed); right if the manifest's other place has the same value or none."""
    return field, counterpart in (None, value), value, f"{counterpart}, {origin}"


def _unbalanced_inputs(manifest: Manifest) -> Found:
    """Yield input files whose rows are not the rows read; with validation_fraction the splits share files."""
    is_shared = bool(section(manifest.recipe, "data").get("validation_fraction"))
    groups = [manifest.splits] if is_shared else [(split,) for split in manifest.splits]
    for group in groups:
        inputs = group[0].inputs if group else ()
        num_rows, num_read = sum(file.num_rows for file in inputs), sum(split.statistics.num_rows_in for split in group)
        if inputs and num_rows != num_read:
            where = f"{MANIFEST_FILE} {group[0].name} inputs"
            yield wrong(where, f"{count_text(num_rows, 'row')} in the files", f"{count_text(num_read, 'row')} read")


def _wrong_histogram(split: SplitRecord, truth: SplitTruth) -> Found:
    """Yield a finding if the buckets cannot hold the split's tokens, or the longest sequence is not in the last bucket.

    Buckets count logical lengths; alignment adds less than pad_seq_to_mult tokens to each.
    """
    histogram = [(bound, count) for bound, count in split.statistics.length_histogram if count]
    bounds = [bound for bound, _ in split.statistics.length_histogram]
    below = dict(zip(bounds, [0, *bounds], strict=False))
    lower = sum((below[bound] + 1) * count for bound, count in histogram)
    upper = sum(bound * count for bound, count in histogram)
    doubles = all(2 * bound == above for bound, above in pairwise(bounds)) and all(count > 0 for _, count in histogram)
    longest = below[histogram[-1][0]] if histogram else 0
    if doubles and lower <= split.statistics.num_tokens <= upper and longest < truth.max_runtime_length:
        return
    where = f"{MANIFEST_FILE} {split.name} length_histogram"
    text = f"{lower} to {upper} tokens, the longest sequence above {longest}"
    claim = f"{count_text(split.statistics.num_tokens, 'token')}, the longest sequence {truth.max_runtime_length}"
    yield wrong(where, text, claim, group=where)


def _claims_of_sources(split: SplitRecord) -> Iterator[tuple[str, int, int]]:
    """Yield (name, sum over the sources, value of the split)."""
    for name in ("num_rows_in", "num_sequences", "num_repeated", "num_tokens", "num_trained_tokens"):
        if split.sources:
            value = sum(getattr(source, name) for source in split.sources)
            yield f"sources {name}", value, getattr(split.statistics, name)
    counts = [source.num_packs for source in split.sources if source.num_packs is not None]
    if counts:
        yield "sources num_packs", sum(counts), split.statistics.num_packs


def _claims(statistics: SplitStatistics, truth: SplitTruth) -> Iterator[tuple[str, int, int]]:
    """Yield (name, value in the manifest, value from the packs)."""
    num_tokens = statistics.num_tokens + statistics.num_alignment_tokens
    yield "num_packs", statistics.num_packs, truth.num_rows
    yield "num_sequences", statistics.num_sequences, truth.num_sequences
    yield "num_tokens + num_alignment_tokens", num_tokens, truth.num_tokens
    yield "num_trained_tokens", statistics.num_trained_tokens, truth.num_trained_tokens
    yield "max_runtime_length", statistics.max_runtime_length, truth.max_runtime_length
    yield "max_sequences_per_pack", statistics.max_sequences_per_pack, truth.max_sequences_per_row
    yield "min_pack_tokens", statistics.min_pack_tokens, truth.min_row_width
    yield "sum of length_histogram", sum(count for _, count in statistics.length_histogram), truth.num_sequences
