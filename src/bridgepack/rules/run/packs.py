"""Rules on how packs are used: the fields of offline_packing_specs that hang together, positions, seeds, counters."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ADVICE, ERROR, Violation
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import SPECS, RunSubject
from bridgepack.rules.versions import BRIDGE

#: Whole numbers up to here are exact in float32.
MAX_EXACT_FLOAT32 = 1 << 24


@rule("BP402", ERROR, "PSB402; megatron/bridge/training/config.py:1169, megatron/bridge/data/packing/gpt_sft.py:79")
def padded_cu_seqlens_without_full_width(subject: RunSubject) -> Iterator[Violation]:
    """pad_cu_seqlens is on and rows are not padded to their full width.

    Why: Crash at start: validate() refuses it; static cu_seqlens are of use only with rows of static width.
    Bad: pad_cu_seqlens true, dataset_kwargs {}.
    Good: pad_cu_seqlens true, dataset_kwargs {pad_to_max_length: true}.
    Fix: Set dataset_kwargs.pad_to_max_length to true; the host looks for the literal true.
    Noticed: validate().
    """
    if subject.has_specs and subject.settings.flag(f"{SPECS}.pad_cu_seqlens") and not subject.pads_to_max_length:
        yield Violation(
            where=f"{SPECS}.pad_cu_seqlens",
            found="true with rows that are not padded to their full width",
            allowed="dataset_kwargs.pad_to_max_length true",
            changes=change("dataset.dataset_kwargs.pad_to_max_length", True, "pad_cu_seqlens needs it"),
        )


@rule("BP324", ERROR, "PSB324; megatron/bridge/data/packing/config.py", versions={BRIDGE: "<0.7"})
def blend_of_packs(subject: RunSubject) -> Iterator[Violation]:
    """offline_packing_specs asks for a weighted blend of packs, which this version does not have.

    Why: Crash when the config is made: TypeError, unexpected keyword argument 'packed_train_data_blend'.
    Bad: packed_train_data_blend [[0.7, "a/*.parquet"], [0.3, "b/*.parquet"]].
    Good: packed_train_data_path "all/*.parquet".
    Fix: Mix the sources before packing, with the weights as repetitions, and name the packs by a glob.
    Noticed: construction.
    Evidence: Megatron-Bridge #5289, open.
    """
    if not subject.packs_offline:
        return
    for field in ("packed_train_data_blend", "packed_val_data_blend"):
        if subject.settings.is_stated(f"{SPECS}.{field}") and subject.settings.value(f"{SPECS}.{field}") is not None:
            yield Violation(where=f"{SPECS}.{field}", found="set", allowed="not set; packed_train_data_path")


@rule("BP521", ADVICE, "PSB521; megatron/bridge/data/packing/gpt_sft.py:201")
def absolute_positions_with_packs(subject: RunSubject) -> Iterator[Violation]:
    """The model uses position ids, which begin at 0 in each sequence and are 0 in a row's tail.

    Why: Silent: with learned or multimodal positions this is part of what is trained; with plain rotary positions it is
        not looked at.
    Bad: position_embedding_type learned_absolute with offline packing.
    Good: position_embedding_type rope with offline packing.
    Fix: Nothing, where positions are meant to begin at 0 in each sequence.
    Evidence: executed with the real 0.6.2 collate.
    """
    if not subject.packs_offline:
        return
    kind = subject.settings.text_or_none("model.position_embedding_type")
    if kind in ("learned_absolute", "mrope"):
        yield Violation(
            where="model.position_embedding_type", found=str(kind), allowed="rope, or positions per sequence"
        )


@rule("BP522", ADVICE, "PSB522; megatron/bridge/data/packing/gpt_sft.py:68")
def numpy_seeded_by_dataset(subject: RunSubject) -> Iterator[Violation]:
    """Building the packed dataset seeds numpy's generator with dataset.seed, which is not rng.seed.

    Why: Silent: code of yours that draws from numpy's generator draws the same on every rank, whatever rng.seed.
    Bad: dataset.seed 1234, rng.seed 5678.
    Good: both 5678.
    Fix: Give such code a generator of its own.
    """
    if not subject.packs_offline:
        return
    seed, expected = subject.settings.value("dataset.seed"), subject.settings.value("rng.seed")
    if seed != expected:
        yield Violation(where="dataset.seed", found=str(seed), allowed=f"{expected}, as rng.seed")


@rule("BP523", ADVICE, "PSB523; megatron/bridge/training/losses.py:68")
def nan_not_looked_for(subject: RunSubject) -> Iterator[Violation]:
    """Rows are packed and nobody looks for NaN in the loss.

    Why: Silent: the mask is multiplied with the losses, and 0 * NaN is NaN, so one NaN in a row's padding spoils the
        step. Wrong attention boundaries show up in this way.
    Bad: rerun_state_machine.check_for_nan_in_loss false.
    Good: rerun_state_machine.check_for_nan_in_loss true.
    Fix: Set it to true, at least for the first steps; graphs of the full iteration cannot have it.
    Evidence: read in the source; Megatron-Bridge #2914, #3117.
    """
    if not subject.is_packed:
        return
    if not subject.settings.flag("rerun_state_machine.check_for_nan_in_loss"):
        yield Violation(where="rerun_state_machine.check_for_nan_in_loss", found="false", allowed="true")


@rule("BP524", ADVICE, "PSB524; megatron/bridge/training/losses.py:102")
def token_counts_beyond_float32(subject: RunSubject) -> Iterator[Violation]:
    """A step can train more tokens than float32 counts exactly.

    Why: Silent: the reported loss is a sum divided by a count that is rounded; the gradient is not affected.
    Bad: global_batch_size 8192 with packed_sequence_size 4096: 33554432 tokens.
    Good: global_batch_size 8 with packed_sequence_size 4096.
    Fix: Nothing; do not compare reported losses beyond the seventh digit.
    """
    if not subject.has_specs:
        return
    num_tokens = subject.global_batch_size * subject.packed_sequence_size
    if num_tokens > MAX_EXACT_FLOAT32:
        yield Violation(where="train.global_batch_size", found=f"{num_tokens} tokens", allowed=str(MAX_EXACT_FLOAT32))
