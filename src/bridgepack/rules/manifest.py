"""Rules on what a manifest claims, against the rows that were streamed."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.records import SPLITS, TRAIN, SplitStatistics
from bridgepack.rules.context import CannotJudgeError, known
from bridgepack.rules.rule import MANIFEST_FILE, ArtifactFacts, Severity, Violation, artifact_rule
from bridgepack.rules.truth import SplitTruth

#: cu_seqlens are int32.
MAX_PACKED_SEQUENCE_SIZE = 2**31 - 1


@artifact_rule(code="BP302", name="split-empty", severity=Severity.ERROR, source="PSB302, PSB512")
def split_empty(facts: ArtifactFacts) -> Iterator[Violation]:
    """A split has no rows, or an artifact has no training split.

    Why: Crash at start: the host refuses a packed dataset of 0 rows.
    Bad: a training split whose only shard has 0 rows.
    Good: a training split with at least one row.
    Fix: Look in the drop ledger for why nothing was left, or leave the split out.
    """
    if facts.manifest is not None and TRAIN not in facts.shards:
        yield Violation(where=MANIFEST_FILE, found=f"splits {', '.join(facts.shards) or 'none'}", allowed=TRAIN)
    for split, shards in facts.shards.items():
        if all(shard.num_rows == 0 for shard in shards):
            yield Violation(where=split, found=f"0 rows in {len(shards)} shards", allowed="at least 1 row")


@artifact_rule(code="BP308", name="stored-lengths-aligned", severity=Severity.ERROR, source="PSB308")
def stored_lengths_aligned(facts: ArtifactFacts) -> Iterator[Violation]:
    """All stored lengths are multiples of pad_seq_to_mult, and the runtime lengths are not.

    Why: Crash or silent: the model sees stored - 1 tokens, so every sequence is one short of the multiple. Packs of
        megatron-bridge 0.5.1 and older, and of producers without the extra last token, look like this.
    Bad: sequences of 4 and 8 stored tokens, pad_seq_to_mult 4.
    Good: sequences of 5 and 9 stored tokens, pad_seq_to_mult 4.
    Fix: Build again with this version; do not pad the stored lengths.
    """
    multiple = known(facts.context.pad_seq_to_mult, "pad_seq_to_mult")
    for truth in facts.require_truths():
        if truth.num_misaligned_runtime and not truth.num_misaligned_stored:
            found = f"all {truth.num_sequences} stored lengths are multiples of {multiple}"
            yield Violation(where=truth.split, found=found, allowed=f"stored lengths of 1 + a multiple of {multiple}")


@artifact_rule(code="BP501", name="tokenizer-loses-text", severity=Severity.WARNING, source="tokenizer probe")
def tokenizer_loses_text(facts: ArtifactFacts) -> Iterator[Violation]:
    """The tokenizer that made the rows does not give text back, although its own tokenizer.json does.

    Why: Silent: the model is trained on text without spaces or line ends. transformers 5.12 loads DeepSeek-V3's files
        as a class that does this, for Megatron-Bridge too.
    Bad: a tokenizer that decodes its own encoding of "Hello world" to "Helloworld".
    Good: a tokenizer that decodes its own encoding of "Hello world" to "Hello world".
    Fix: Set tokenizer.loader to tokenizer_json, or use another version of transformers, and build again.
    """
    if facts.manifest is None:
        raise CannotJudgeError("there is no manifest")
    if facts.manifest.tokenizer.get("loses_text"):
        yield Violation(where=MANIFEST_FILE, found="tokenizer.loses_text is true", allowed="false")


@artifact_rule(code="BP320", name="sequence-in-two-splits", severity=Severity.WARNING, source="PSB320")
def sequence_in_two_splits(facts: ArtifactFacts) -> Iterator[Violation]:
    """The same sequence lies in two splits.

    Why: Silent: the validation loss is measured on training data.
    Bad: input_ids [11, 12, 2] in training and in validation.
    Good: input_ids [11, 12, 2] in training only.
    Fix: Deduplicate the inputs before they are split.
    """
    if len(facts.require_truths()) < 2:
        raise CannotJudgeError("there is only one split with rows")
    for shared in facts.shared:
        yield Violation(where=shared.where, found=shared.found, allowed=f"none of them in {shared.other}")


@artifact_rule(code="BP321", name="pack-size-overflows-int32", severity=Severity.ERROR, source="PSB321")
def pack_size_overflows_int32(facts: ArtifactFacts) -> Iterator[Violation]:
    """packed_sequence_size does not fit the host's cu_seqlens, which are int32.

    Why: Crash at the first collate: overflow.
    Bad: packed_sequence_size 2147483648.
    Good: packed_sequence_size 8192.
    Fix: Lower packed_sequence_size.
    """
    size = known(facts.context.packed_sequence_size, "packed_sequence_size")
    if size > MAX_PACKED_SEQUENCE_SIZE:
        where = f"{MANIFEST_FILE} packed_sequence_size"
        yield Violation(where=where, found=str(size), allowed=f"1 to {MAX_PACKED_SEQUENCE_SIZE}")


@artifact_rule(
    code="BP347",
    name="split-name-unknown",
    severity=Severity.ERROR,
    source="megatron-bridge 0.6.2, data/builders/gpt_sft.py",
)
def split_name_unknown(facts: ArtifactFacts) -> Iterator[Violation]:
    """A split of the manifest is neither training nor validation, or is there twice.

    Why: Silent: the host has no place for it, so it is never read.
    Bad: a split named train.
    Good: a split named training.
    Fix: Build again; splits are named training and validation.
    """
    names = [split.name for split in facts.require_manifest().splits]
    for position, name in enumerate(names):
        where = f"{MANIFEST_FILE} splits[{position}].name"
        if name not in SPLITS:
            yield Violation(where=where, found=name, allowed=" or ".join(SPLITS))
        elif name in names[:position]:
            yield Violation(where=where, found=f"{name}, for the second time", allowed="each split once")


@artifact_rule(code="BP350", name="shard-in-wrong-folder", severity=Severity.ERROR, source="PSB212")
def shard_in_wrong_folder(facts: ArtifactFacts) -> Iterator[Violation]:
    """A split lists a shard outside its own folder.

    Why: Silent: the host reads folders, so validation rows are trained, or training rows are left out.
    Bad: the split validation lists training/shard-00000-of-00001.idx.parquet.
    Good: the split validation lists validation/shard-00000-of-00001.idx.parquet.
    Fix: Build again; shards lie in the folder of their split.
    """
    for split in facts.require_manifest().splits:
        for shard in split.shards:
            if not shard.path.startswith(f"{split.name}/"):
                yield Violation(where=shard.path, found=f"listed by {split.name}", allowed=f"a path in {split.name}/")


@artifact_rule(code="BP348", name="statistics-differ", severity=Severity.ERROR, source="bridgepack manifest")
def statistics_differ(facts: ArtifactFacts) -> Iterator[Violation]:
    """A statistic of the manifest is not what the rows hold.

    Why: Silent: step counts, batch sizes and the host's metadata are derived from it.
    Bad: num_trained_tokens 5, the masks hold 4 ones.
    Good: num_trained_tokens 4, the masks hold 4 ones.
    Fix: Build again; where the checksums hold, report it as a bug of bridgepack.
    """
    manifest = facts.require_manifest()
    for truth in facts.require_complete_truths():
        split = manifest.split(truth.split)
        if split is None:
            continue
        for name, claimed, actual in _claims(split.statistics, truth):
            if claimed != actual:
                where = f"{MANIFEST_FILE} {truth.split} {name}"
                yield Violation(where=where, found=str(claimed), allowed=f"{actual}, from the rows", group=where)
        most, claimed = truth.max_alignment_tokens, split.statistics.num_alignment_tokens
        if facts.context.eos_token_id is not None and claimed > most:
            where = f"{MANIFEST_FILE} {truth.split} num_alignment_tokens"
            yield Violation(where=where, found=str(claimed), allowed=f"at most {most}, from the rows", group=where)


@artifact_rule(code="BP349", name="drops-not-balanced", severity=Severity.ERROR, source="bridgepack manifest")
def drops_not_balanced(facts: ArtifactFacts) -> Iterator[Violation]:
    """Rows read are not sequences plus drops.

    Why: Silent: examples were lost or repeated without a reason in the ledger.
    Bad: 10 rows read, 7 sequences, 2 drops.
    Good: 10 rows read, 7 sequences, 3 drops.
    Fix: Build again; report it as a bug of bridgepack where it stays.
    """
    for split in facts.require_manifest().splits:
        statistics, num_drops = split.statistics, sum(split.drops.values())
        if statistics.num_rows_in != statistics.num_sequences + num_drops:
            found = f"{statistics.num_rows_in} rows read"
            allowed = f"{statistics.num_sequences} sequences + {num_drops} drops"
            yield Violation(where=f"{MANIFEST_FILE} {split.name} num_rows_in", found=found, allowed=allowed)


def _claims(statistics: SplitStatistics, truth: SplitTruth) -> Iterator[tuple[str, int, int]]:
    """Yield (name, claimed, actual)."""
    num_tokens = statistics.num_tokens + statistics.num_alignment_tokens
    yield "num_packs", statistics.num_packs, truth.num_rows
    yield "num_sequences", statistics.num_sequences, truth.num_sequences
    yield "num_tokens + num_alignment_tokens", num_tokens, truth.num_tokens
    yield "num_trained_tokens", statistics.num_trained_tokens, truth.num_trained_tokens
    yield "max_runtime_length", statistics.max_runtime_length, truth.max_runtime_length
    yield "max_sequences_per_pack", statistics.max_sequences_per_pack, truth.max_sequences_per_row
    yield "min_pack_tokens", statistics.min_pack_tokens, truth.min_row_width
    yield "sum of length_histogram", sum(count for _, count in statistics.length_histogram), truth.num_sequences


RULES = (
    split_empty,
    stored_lengths_aligned,
    tokenizer_loses_text,
    sequence_in_two_splits,
    pack_size_overflows_int32,
    split_name_unknown,
    shard_in_wrong_folder,
    statistics_differ,
    drops_not_balanced,
)
