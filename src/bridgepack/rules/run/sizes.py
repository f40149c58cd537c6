"""Rules on lengths in tokens: of the model, the dataset, a pack and one sequence."""

from bridgepack.host.positions import positions_of
from bridgepack.records import Change
from bridgepack.records.messages import say
from bridgepack.rules.judging.base_model import BaseModel
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.families import family_of
from bridgepack.rules.judging.rule import (
    ERROR,
    EXECUTED,
    VALIDATE,
    WARNING,
    Found,
    change,
    fixable_rule,
    rule,
    wrong,
)
from bridgepack.rules.judging.subject import HAS_SPECS, IS_TEXT, SPECS, Run
from bridgepack.rules.run.models.families import NOT_OFFLINE
from bridgepack.rules.run.models.vision_language import refuses_text_packs
from bridgepack.rules.run.reading import FINETUNING_DATASETS, PRETRAINING_DATASETS, fine_tunes, pads_in_collate, truths

_COLLATE_SIZES = (
    *("pad_to_multiple_of", "in_batch_packing_pad_to_multiple_of", "micro_batch_size"),
    *("shuffle_buffer_size", "max_samples_per_sequence", "packing_buffer_size"),
)
_SIZE = f"{SPECS}.packed_sequence_size"
_CAP = f"{SPECS}.max_single_sequence_length"
_MULTIPLE = f"{SPECS}.pad_seq_to_mult"


@fixable_rule("BP003", ERROR, "PSB003; bridge/data/builders/gpt_sft.py:198, training/config.py:1463", when=HAS_SPECS)
def packed_sequence_size_not_positive(run: Run) -> Found:
    """packed_sequence_size is not positive.

    Why: Crash at start: validate() refuses it. The host's default is -1, so it must be set.
    Bad: packed_sequence_size -1. Good: packed_sequence_size 4096 with seq_length 4096.
    Fix: Set {dataset.offline_packing_specs.packed_sequence_size} to {dataset.seq_length}. Noticed: validate().
    """
    if run.packed_sequence_size <= 0:
        length = run.stated_integer("model.seq_length")
        changes = change(_SIZE, length, "packs are as long as model.seq_length") if length and length > 0 else ()
        allowed_values = "a positive number of tokens, equal to seq_length"
        yield wrong(_SIZE, str(run.packed_sequence_size), allowed_values, changes=changes)


@fixable_rule("BP007", ERROR, "PSB007; bridge/training/config.py:1505", noticed=VALIDATE)
def sequence_lengths_differ(run: Run) -> Found:
    """The model and the dataset have different sequence lengths.

    Bad: model.seq_length 8192, dataset.seq_length 4096. Good: both 8192.
    Fix: Set both, and {dataset.offline_packing_specs.packed_sequence_size}, to the same value; an override must change
        all three.
    """
    if run.dataset_kind in FINETUNING_DATASETS | PRETRAINING_DATASETS:
        length = run.integer("dataset.seq_length")
        if length != run.seq_length and length > 0 < run.seq_length:
            actual = say("{length}, and {model.seq_length} is {of_model}", length=length, of_model=run.seq_length)
            yield wrong("dataset.seq_length", actual, "the same length in both", changes=_same_length(run, length))


def _same_length(run: Run, dataset_length: int) -> tuple[Change, ...]:
    """Return the change that makes both lengths equal to packed_sequence_size, or none if it equals neither."""
    size = run.stated_integer(_SIZE)
    why = "packed_sequence_size is that long too"
    if size == dataset_length:
        return change("model.seq_length", size, why)
    return change("dataset.seq_length", size, why) if size == run.seq_length else ()


@rule("BP008", ERROR, when=HAS_SPECS, evidence="executed with the real 0.6.2 (KeyError); read in the source")
def packs_shorter_than_their_sequences(run: Run) -> Found:
    """The host packs sequences that may be longer than a pack.

    Why: Crash while rank 0 packs: a longer sequence raises KeyError. Otherwise packs are shorter than
        {model.seq_length}.
    Bad: seq_length 8192, packed_sequence_size 4096. Good: packed_sequence_size 8192.
    Fix: Make {model.seq_length & dataset.seq_length & dataset.offline_packing_specs.packed_sequence_size} equal.
    Noticed: dataset build, or never.
    Source: PSB008; bridge/data/packing/algorithms.py:270,302, docs/training/packed-sequences.md
    """
    size, length = run.packed_sequence_size, run.seq_length
    if 0 < size < length and not _fits_narrow_packs(run, size):
        actual = say("{size}, and {model.seq_length} is {length}", size=size, length=length)
        yield wrong(_SIZE, actual, say("{length}, as {model.seq_length}", length=length))


@rule("BP042", WARNING, when=HAS_SPECS, noticed="first step, or never")
def packs_wider_than_model(run: Run) -> Found:
    """packed_sequence_size is larger than model.seq_length.

    Why: Crash or silent wherever {model.seq_length} is a size: buffers of overlapped tensor parallelism, and pipeline
        stages with a loader other than `batch`; memory and throughput are estimated too low. Rotary positions are not
        affected, because they restart in every sequence.
    Bad: seq_length 4096, packed_sequence_size 8192. Good: seq_length 8192, max_single_sequence_length 4096.
    Fix: Make {model.seq_length & dataset.seq_length} equal to {dataset.offline_packing_specs.packed_sequence_size}, and
        cap single sequences with {dataset.offline_packing_specs.max_single_sequence_length}.
    Evidence: read in the source; the host's documentation requires equal lengths. Before 0.6 seq_length was the cap.
    Source: PSB008; docs/training/packed-sequences.md, bridge/data/batch_utils.py, training/train.py:882
    """
    size, length = run.packed_sequence_size, run.seq_length
    if size > length > 0:
        yield wrong("model.seq_length", f"{length}, and packs hold {size} tokens", str(size))


@rule("BP031", WARNING, "PSB008; docs/training/packed-sequences.md", when=HAS_SPECS)
def packs_narrower_than_model(run: Run) -> Found:
    """packed_sequence_size is smaller than model.seq_length, with sequences that fit into the packs.

    Why: Slow: no pack is as long as {model.seq_length}, so memory and batches are planned for packs that do not exist.
    Bad: seq_length 8192, packed_sequence_size 4096 with packs that exist already. Good: seq_length 4096.
    Fix: Make {model.seq_length & dataset.seq_length} equal to {dataset.offline_packing_specs.packed_sequence_size}.
    Evidence: read in the source; the host's documentation requires equal lengths.
    """
    size, length = run.packed_sequence_size, run.seq_length
    if 0 < size < length and _fits_narrow_packs(run, size):
        yield wrong("model.seq_length", f"{length}, and packs hold {size} tokens", str(size))


def _fits_narrow_packs(run: Run, size: int) -> bool:
    """Return whether no sequence can be longer than a pack: they are capped, or the packs exist."""
    cap = run.stated_integer(_CAP)
    if cap is not None and cap <= size:
        return True
    paths = [f"{SPECS}.packed_train_data_path"]
    paths += [f"{SPECS}.packed_val_data_path"] if run.flag("dataset.do_validation") else []
    return all(run.value(path) is not None for path in paths)


@rule("BP009", ERROR, "PSB009; bridge/data/packing/config.py:49", when=HAS_SPECS)
def sequence_cap_out_of_range(run: Run) -> Found:
    """max_single_sequence_length is not positive, or larger than packed_sequence_size.

    Why: Crash when the specs are made, or later, while packing: a sequence longer than a pack raises KeyError.
    Bad: packed_sequence_size 4096, max_single_sequence_length 8192. Good: max_single_sequence_length 2048.
    Fix: Lower {dataset.offline_packing_specs.max_single_sequence_length}, or leave it unset; longer sequences are cut
        to it.
    Noticed: construction of PackedSequenceSpecs.
    """
    cap, size = run.integer_or_none(_CAP), run.packed_sequence_size
    if cap is not None and (cap <= 0 or cap > size > 0):
        yield wrong(_CAP, str(cap), f"1 to {size}" if size > 0 else "a positive number")


@fixable_rule("BP010", ERROR, when=HAS_SPECS, noticed="first step", evidence=EXECUTED)
def pad_seq_to_mult_not_positive(run: Run) -> Found:
    """pad_seq_to_mult is null, zero or negative.

    Why: Crash at the first batch: the specs accept null, the collate compares it with 1 (TypeError in a DataLoader
        worker). The specs refuse zero and negative numbers.
    Bad: pad_seq_to_mult null. Good: pad_seq_to_mult 1, or 2 x context parallelism.
    Fix: Set {dataset.offline_packing_specs.pad_seq_to_mult} to 1, or to the multiple that context and sequence
        parallelism need.
    Source: PSB010; bridge/data/packing/config.py:47, data/packing/gpt_sft.py:205
    """
    multiple = run.integer_or_none(_MULTIPLE)
    if multiple is None or multiple <= 0:
        multiple_needed, why = run.recommended_pad_seq_to_mult, "the smallest multiple that this topology needs"
        actual, allowed_values = (
            "null" if multiple is None else str(multiple),
            f"a positive number; {multiple_needed} here",
        )
        yield wrong(
            _MULTIPLE, actual, allowed_values, to=multiple_needed, because=why, needs_repack=multiple_needed > 1
        )


@fixable_rule("BP036", ERROR, "PSB007; bridge/data/builders/gpt_sft.py:191", when=fine_tunes, noticed=VALIDATE)
def seq_length_not_positive(run: Run) -> Found:
    """model.seq_length or dataset.seq_length is not positive.

    Bad: dataset.seq_length 0. Good: dataset.seq_length 4096.
    Fix: Set {model.seq_length & dataset.seq_length} to the number of tokens in a pack.
    """
    for path in ("model.seq_length", "dataset.seq_length"):
        length = run.integer_or_none(path)
        if length is None or length <= 0:
            size = run.stated_integer(_SIZE) or 0
            changes = change(path, size, "packs are that long") if size > 0 else ()
            yield wrong(path, str(length), "a positive number of tokens", changes=changes)


@rule("BP039", ERROR, when=pads_in_collate, noticed=VALIDATE)
def collate_size_not_positive(run: Run) -> Found:
    """A multiple, buffer size or batch size of a dataset that packs in its collate is zero or negative.

    Bad: DirectHFSFTDatasetConfig, pad_to_multiple_of 0. Good: pad_to_multiple_of 128.
    Fix: Set it to a positive number; a multiple of 1 changes nothing.
    Source: PSC202, PSC210; bridge/data/builders/energon.py:153, data/builders/direct_hf_sft.py:92
    """
    for path in (f"dataset.{name}" for name in _COLLATE_SIZES):
        size = run.stated_integer(path)
        if size is not None and size <= 0:
            yield wrong(path, str(size), "a positive number")


@rule("BP022", WARNING, "PSB022; bridge/recipes/utils/dataset_utils.py:150", when=IS_TEXT)
def text_not_packed(run: Run) -> Found:
    """A text dataset is fine-tuned without packing.

    Why: Slow: every row is one sequence and padding. You may have lost packing: the runner's --dataset presets replace
        the recipe's dataset, and most of them turn packing off and reset pad_seq_to_mult to 1.
    Bad: a recipe that packs, run with --dataset tulu3. Good: enable_offline_packing true after it.
    Fix: Turn offline packing on, or ignore this finding. Check the config after overrides, not the recipe. Families
        whose shipped recipes turn packing off, and classes that take no packs (BP943), are not reported.
    """
    family = family_of(run.loaded_config)
    packs_otherwise = family is None or family.name not in NOT_OFFLINE
    if not run.is_packed and packs_otherwise and not refuses_text_packs(run):
        yield wrong("dataset.enable_offline_packing", "off", "true, to fill packs with text")


def _scaling(run: Run) -> float:
    """Return the factor by which the run scales rotary embeddings; 1 without scaling."""
    if "yarn" in (run.stated_value("model.position_embedding_type"), run.stated_value("model.rope_type")):
        names = ("yarn_rotary_scaling_factor", "rotary_scaling_factor")
        factors = [run.number_or_none(f"model.{name}") for name in names if run.is_set(f"model.{name}")]
        return next(filter(None, factors), 1.0)
    if run.is_on("model.rope_scaling"):
        return run.number_or_none("model.rope_scaling_factor") or 1.0
    path = "model.seq_len_interpolation_factor"
    return (run.number_or_none(path) if run.is_set(path) else None) or 1.0


def _longest(run: Run) -> tuple[int, str]:
    """Return the length of the longest sequence, or of the longest that may be packed without packs; and what it is."""
    if run.artifact is not None:
        return max(truth.max_runtime_length for truth in truths(run)), "the longest sequence"
    return run.stated_integer(_CAP) or run.packed_sequence_size, "sequences of up to"


@rule("BP640", WARNING, when=HAS_SPECS, evidence="the models' config.json, as read by megatron-bridge 0.6.2")
def positions_beyond_training(run: Run) -> Found:
    """A sequence may be longer than the positions that the model was trained for, without scaling.

    Why: Silent: rotary embeddings extrapolate: attention over positions that the model never saw is poor at first, and
        the model that results is deployed with a config.json that does not say so. Packs may be longer, sequences not.
    Bad: Qwen3-8B, of 40,960 positions, max_single_sequence_length 131072. Good: 40960, or YaRN with a factor of 4.
    Fix: Set {dataset.offline_packing_specs.max_single_sequence_length} to the model's positions. Or scale:
        {model.position_embedding_type} yarn with {model.yarn_rotary_scaling_factor},
        {model.yarn_original_max_position_embeddings} and the same in the exported config.json.
    Noticed: never. Source: core/models/common/embeddings/rotary_pos_embedding.py
    """
    model = run.stated_value("model.hf_model_id")
    positions = positions_of(model) if isinstance(model, str) else None
    if positions is None and isinstance(base := run.slow_facts.base_model(), BaseModel):
        positions, model = base.positions, base.name
    if positions is None:
        raise CannotJudgeError("the positions of the model are not known")
    scaling = _scaling(run)
    is_own = scaling == 1 and not run.is_stated("model._target_")  # the settings do not say how the model scales
    max_positions = int(positions.most * (1 if is_own else scaling / positions.factor))
    longest, name = _longest(run)
    if longest > max_positions:
        actual = f"{name} {longest:,} tokens for {model}"
        yield wrong(_CAP, actual, f"at most {max_positions:,}, its positions, or a larger scaling of them")
