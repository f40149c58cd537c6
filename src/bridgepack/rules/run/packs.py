"""Rules on how packs are used: the fields of offline_packing_specs that hang together, positions, seeds, counters."""

from __future__ import annotations

from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, ERROR, Found, change, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, IS_PACKED, PACKS_OFFLINE, SPECS, Run

#: Whole numbers up to here are exact in float32.
MAX_EXACT_FLOAT32 = 1 << 24


@rule("BP402", ERROR, "PSB402; bridge/training/config.py:1169, bridge/data/packing/gpt_sft.py:79", when=HAS_SPECS)
def padded_cu_seqlens_without_full_width(run: Run) -> Found:
    """pad_cu_seqlens is on and rows are not padded to their full width.

    Why: Crash at start: validate() refuses it; static cu_seqlens are of use only with rows of static width.
    Bad: pad_cu_seqlens true, dataset_kwargs {}.
    Good: pad_cu_seqlens true, dataset_kwargs {pad_to_max_length: true}.
    Fix: Set dataset_kwargs.pad_to_max_length to true; the host looks for the literal true.
    Noticed: validate().
    """
    if run.flag(f"{SPECS}.pad_cu_seqlens") and not run.pads_to_max_length:
        yield wrong(
            f"{SPECS}.pad_cu_seqlens",
            "true with rows that are not padded to their full width",
            "dataset_kwargs.pad_to_max_length true",
            changes=change("dataset.dataset_kwargs.pad_to_max_length", True, "pad_cu_seqlens needs it"),
        )


@rule("BP324", ERROR, "PSB324; bridge/data/packing/config.py", when=PACKS_OFFLINE, versions={BRIDGE: "<0.7"})
def blend_of_packs(run: Run) -> Found:
    """offline_packing_specs asks for a weighted blend of packs, which this version does not have.

    Why: Crash when the config is made: TypeError, unexpected keyword argument 'packed_train_data_blend'.
    Bad: packed_train_data_blend [[0.7, "a/*.parquet"], [0.3, "b/*.parquet"]].
    Good: packed_train_data_path "all/*.parquet".
    Fix: Mix the sources before packing, with the weights as repetitions, and name the packs by a glob.
    Noticed: construction.
    Evidence: Megatron-Bridge #5289, open.
    """
    for field in ("packed_train_data_blend", "packed_val_data_blend"):
        if run.is_stated(f"{SPECS}.{field}") and run.value(f"{SPECS}.{field}") is not None:
            yield wrong(f"{SPECS}.{field}", "set", "not set; packed_train_data_path")


@rule("BP521", ADVICE, "PSB521; bridge/data/packing/gpt_sft.py:201", when=PACKS_OFFLINE)
def absolute_positions_with_packs(run: Run) -> Found:
    """The model uses position ids, which begin at 0 in each sequence and are 0 in a row's tail.

    Why: Silent: with learned or multimodal positions this is part of what is trained; with plain rotary positions it is
        not looked at.
    Bad: position_embedding_type learned_absolute with offline packing.
    Good: position_embedding_type rope with offline packing.
    Fix: Nothing, where positions are meant to begin at 0 in each sequence.
    Evidence: executed with the real 0.6.2 collate.
    """
    kind = run.text_or_none("model.position_embedding_type")
    if kind in ("learned_absolute", "mrope"):
        yield wrong("model.position_embedding_type", str(kind), "rope, or positions per sequence")


@rule("BP522", ADVICE, "PSB522; bridge/data/packing/gpt_sft.py:68", when=PACKS_OFFLINE)
def numpy_seeded_by_dataset(run: Run) -> Found:
    """Building the packed dataset seeds numpy's generator with dataset.seed, which is not rng.seed.

    Why: Silent: code of yours that draws from numpy's generator draws the same on every rank, whatever rng.seed.
    Bad: dataset.seed 1234, rng.seed 5678.
    Good: both 5678.
    Fix: Give such code a generator of its own.
    """
    seed, expected = run.value("dataset.seed"), run.value("rng.seed")
    if seed != expected:
        yield wrong("dataset.seed", str(seed), f"{expected}, as rng.seed")


@rule("BP523", ADVICE, "PSB523; bridge/training/losses.py:68", when=IS_PACKED)
def nan_not_looked_for(run: Run) -> Found:
    """Rows are packed and nobody looks for NaN in the loss.

    Why: Silent: the mask is multiplied with the losses, and 0 * NaN is NaN, so one NaN in a row's padding spoils the
        step. Wrong attention boundaries show up in this way.
    Bad: rerun_state_machine.check_for_nan_in_loss false.
    Good: rerun_state_machine.check_for_nan_in_loss true.
    Fix: Set it to true, at least for the first steps; graphs of the full iteration cannot have it.
    Evidence: read in the source; Megatron-Bridge #2914, #3117.
    """
    if not run.flag("rerun_state_machine.check_for_nan_in_loss"):
        yield wrong("rerun_state_machine.check_for_nan_in_loss", "false", "true")


@rule("BP524", ADVICE, "PSB524; bridge/training/losses.py:102", when=HAS_SPECS)
def token_counts_beyond_float32(run: Run) -> Found:
    """A step can train more tokens than float32 counts exactly.

    Why: Silent: the reported loss is a sum divided by a count that is rounded; the gradient is not affected.
    Bad: global_batch_size 8192 with packed_sequence_size 4096: 33554432 tokens.
    Good: global_batch_size 8 with packed_sequence_size 4096.
    Fix: Nothing; do not compare reported losses beyond the seventh digit.
    """
    num_tokens = run.global_batch_size * run.packed_sequence_size
    if num_tokens > MAX_EXACT_FLOAT32:
        yield wrong("train.global_batch_size", f"{num_tokens} tokens", str(MAX_EXACT_FLOAT32))
