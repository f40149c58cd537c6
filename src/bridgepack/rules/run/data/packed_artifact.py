"""Rules that compare packs with the run that reads them: sizes, splits, tokens, fill."""

import re
from pathlib import PurePosixPath

from bridgepack.host.roots import canonical_name_of
from bridgepack.records import TRAIN
from bridgepack.records.messages import say
from bridgepack.rules.judging.context import require_known
from bridgepack.rules.judging.facts import MANIFEST_FILE, ArtifactFacts
from bridgepack.rules.judging.rule import (
    ADVICE,
    ERROR,
    EXECUTED,
    WARNING,
    Found,
    change,
    fixable_rule,
    place,
    rule,
    wrong,
)
from bridgepack.rules.judging.subject import HAS_SPECS, IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.data.packed_paths import (
    METADATA_SETTING,
    PATH_SETTINGS,
    VALIDATION,
    longest_sequence,
    metadata_unread,
    resolve_path,
    visible_paths,
)
from bridgepack.rules.run.reading import truths

#: Settings that a finding shows.
_SETTINGS = 5
#: Shard names of Nemotron's data preparation.
_NEMOTRON_SHARD = re.compile(r"shard_\d{6}\.parquet")


@rule("BP106", ERROR, when=HAS_SPECS, instead_of="BP121")
def artifact_sequences_not_divisible(run: Run) -> Found:
    """Sequence lengths of the artifact are not multiples of 2 x context_parallel_size of training or evaluation.

    Why: Crash at the first step with unfused RoPE. With fused RoPE there is no error. The host does not compare packs
        with the run: only the name of its own cache folder has the multiple.
    Bad: sequences of 3 and 2 runtime tokens, context_parallel_size 2. Good: sequences of 4 and 4 runtime tokens.
    Fix: Pack again with the {dataset.offline_packing_specs.pad_seq_to_mult} that this run needs, or lower
        {model.context_parallel_size}.
    Evidence: read in the source; Bridge #4489. Source: PSB106; core/models/common/embeddings/rope_utils.py:222
    """
    for truth in truths(run):
        if truth.runtime_length_gcd % run.needed_sequence_multiple:
            actual = f"lengths that are multiples of {truth.runtime_length_gcd} only"
            yield wrong(place(truth.split), actual, f"multiples of {run.needed_sequence_multiple}")


@rule("BP635", ERROR, when=HAS_SPECS, evidence="read in Nemotron's data_prep (recipes/sft.py, utils/splits.py)")
def packs_prepared_by_nemotron(run: Run) -> Found:
    """The packs were made by Nemotron's data preparation, which does not pad sequences, but this run needs padding.

    Why: Crash or silent, as in BP106 and BP421: Nemotron's tool never pads sequences and never writes metadata.
    Bad: packs /out/splits/train/shard_000000.parquet beside /out/runs, context_parallel_size 2. Good: without it.
    Fix: Build the packs with bridgepack from the same rows, or turn off the settings that need padding.
    Source: NVIDIA-NeMo/Nemotron, data_prep; Bridge #5080. Noticed: first step, or never.
    """
    requirements = (
        [f"sequences that {run.needed_sequence_multiple} divides"] if run.needed_sequence_multiple > 1 else []
    )
    requirements += ["the metadata of pad_cu_seqlens"] if run.flag(f"{SPECS}.pad_cu_seqlens") else []
    if not requirements:
        return
    for path, files in visible_paths(run):
        actual = resolve_path(path, files)
        if actual and all(_NEMOTRON_SHARD.fullmatch(PurePosixPath(name).name) for name in actual):
            folder = PurePosixPath(actual[0]).parent
            beside = (folder / "receipts", folder.parent.parent / "runs", folder.parent.parent / "blend.json")
            if any(files.exists(str(place)) for place in beside):
                text = f"{path.text}, packs of Nemotron's data preparation, which pads nothing"
                yield wrong(path.setting, text, f"packs with {' and '.join(requirements)}")


@rule("BP107", ERROR, "PSB107; bridge/data/packing/gpt_sft.py:199", when=HAS_SPECS, noticed="a later step")
def artifact_pack_exceeds_run(run: Run) -> Found:
    """A pack of the artifact is wider than this run's packed_sequence_size.

    Why: Crash when the pack is read, perhaps hours later: an AssertionError without a message in a DataLoader worker.
    Bad: a pack of 4096 runtime tokens, packed_sequence_size 2048. Good: packed_sequence_size 4096.
    Fix: Raise {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} to the size
        of the artifact's packs, or pack again.
    Evidence: executed with the real 0.6.2.
    """
    for truth in truths(run):
        if truth.max_row_width > run.packed_sequence_size:
            actual = f"a pack of {truth.max_row_width} runtime tokens"
            yield wrong(place(truth.split), actual, f"at most {run.packed_sequence_size}, packed_sequence_size")


def _size_made_for(facts: ArtifactFacts) -> int:
    """Return the artifact's packed_sequence_size from its manifest, else the pack_size of all metadata entries."""
    if facts.context.packed_sequence_size is not None:
        return facts.context.packed_sequence_size
    content = facts.metadata.content
    entries = content if isinstance(content, list) else []
    sizes = {entry.get("pack_size") for entry in entries if isinstance(entry, dict)}
    size = sizes.pop() if len(sizes) == 1 else None
    return require_known(size if type(size) is int else None, "the artifact's packed_sequence_size")


@rule("BP108", WARNING, "PSB108, PSB410", when=HAS_SPECS)
def artifact_packed_for_smaller_size(run: Run) -> Found:
    """The artifact's packed_sequence_size is smaller than this run's.

    Why: Slow: every pack has padding at its end, so a step trains fewer tokens than the settings say.
    Bad: an artifact for 4096, packed_sequence_size 8192. Good: an artifact for 8192.
    Fix: Set {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length} to the
        artifact's, or pack again.
    """
    made_for, size = _size_made_for(run.require_artifact()), run.packed_sequence_size
    if 0 < made_for < size:
        yield wrong(f"{SPECS}.packed_sequence_size", f"{size}, with packs for {made_for}", str(made_for))


@fixable_rule("BP121", WARNING, "PSB106; bridge/data/packing/gpt_sft.py:205, 239", when=HAS_SPECS)
def artifact_multiple_differs(run: Run) -> Found:
    """This run's pad_seq_to_mult differs from the artifact's.

    Why: Silent: with 1 the host treats padding inside sequences as tokens; with more than 1 it looks for padding at the
        end of every sequence, and derives pack widths from a multiple that the packs do not have.
    Bad: an artifact with pad_seq_to_mult 4, a run with 1. Good: a run with 4.
    Fix: Set {dataset.offline_packing_specs.pad_seq_to_mult} to the artifact's if this run's parallelism allows it, or
        pack again.
    """
    made_with = require_known(run.require_artifact().context.pad_seq_to_mult, "the artifact's pad_seq_to_mult")
    multiple, where = run.pad_seq_to_mult, f"{SPECS}.pad_seq_to_mult"
    if made_with == multiple or (multiple > 1 and made_with % multiple == 0):
        return
    actual = f"{multiple}, with packs padded to {made_with}"
    if made_with % run.needed_sequence_multiple == 0:
        yield wrong(where, actual, str(made_with), to=made_with, because="the artifact was packed with it")
    else:
        yield wrong(where, actual, "packs made with this multiple")


@rule("BP117", WARNING, "bridgepack manifest", when=PACKS_OFFLINE)
def packs_of_other_settings(run: Run) -> Found:
    """The recipe's data, seed or other settings about rows differ from those that the packs were built with.

    Why: Silent: the run trains what is in the packs, which is not what the recipe says.
    Bad: packing.seed 7, packs with 1234. Good: the same recipe as in the packs' manifest.
    Fix: Build the packs again with this recipe, or set the fields to the packs' values. A file elsewhere under the same
        name counts as the same; other rules name differing sizes, tokenizers, templates and loss modes.
    """
    run.require_artifact()
    if settings := run.slow_facts.require_other_settings():
        more = f"; and {len(settings) - _SETTINGS} more" if len(settings) > _SETTINGS else ""
        where = ", ".join(setting.partition(" ")[0] for setting in settings[:_SETTINGS])
        yield wrong(place(where), "; ".join(settings[:_SETTINGS]) + more, "the settings that the packs were built with")


@rule("BP122", WARNING, "PSB206", when=HAS_SPECS, noticed="dataset build, or never", evidence=EXECUTED)
def artifact_lacks_validation(run: Run) -> Found:
    """The run validates, but the artifact has no validation split.

    Why: Crash when the dataset is built, or silent: the host looks for other packs, or packs validation.jsonl itself.
    Bad: do_validation true, an artifact with the split training only. Good: an artifact with training and validation.
    Fix: Build the artifact with validation data, or set {dataset.do_validation} to false.
    """
    splits = run.require_artifact().shards
    if run.flag("dataset.do_validation") and TRAIN in splits and VALIDATION not in splits:
        actual, allowed_values = f"an artifact with {', '.join(splits)} only", "an artifact with a validation split"
        yield wrong(PATH_SETTINGS[VALIDATION], actual, allowed_values)


@rule("BP220", WARNING, "PSB220, PSB216, PSB616", when=HAS_SPECS)
def artifact_sequences_longer_than_run(run: Run) -> Found:
    """The artifact has sequences longer than this run's limit.

    Why: Silent: the host reads explicit packs unchanged; seq_length and max_single_sequence_length have no effect on
        them. A tool that packs before the run does not see the run's overrides.
    Bad: a sequence of 4096 runtime tokens, dataset.seq_length 2048. Good: at most 2048 runtime tokens.
    Fix: Change the settings to those of the artifact, or pack again with the run's settings.
    """
    for truth in truths(run):
        if truth.max_runtime_length > longest_sequence(run):
            actual = f"a sequence of {truth.max_runtime_length} runtime tokens"
            yield wrong(place(truth.split), actual, f"at most {longest_sequence(run)}, this run's limit")


@rule("BP421", ERROR, "PSB401, PSB405, PSB409; bridge/data/packing/gpt_sft.py:79", when=HAS_SPECS, evidence=EXECUTED)
def padded_boundaries_without_metadata(run: Run) -> Found:
    """pad_cu_seqlens is on, but the metadata that it needs is not set, or a split is missing in it.

    Why: Crash when the dataset is built, or at the first pack that has more sequences than the metadata says.
    Bad: pad_cu_seqlens true, explicit packs, packed_metadata_path null. Good: packed_metadata_path set.
    Fix: Set {dataset.offline_packing_specs.packed_metadata_path} to the packs' metadata file, with an entry per split.
    Noticed: dataset build.
    """
    if not run.flag(f"{SPECS}.pad_cu_seqlens") or run.text_or_none(PATH_SETTINGS[TRAIN]) is None:
        return
    metadata = run.text_or_none(METADATA_SETTING)
    if metadata is None:
        yield wrong(METADATA_SETTING, "null, with pad_cu_seqlens", "the packs' metadata file")
    else:
        yield from metadata_unread(run, metadata)
    if run.artifact is not None and not run.artifact.metadata.exists:
        yield wrong(
            place(run.artifact.metadata.path), "no such file, with pad_cu_seqlens", f"a file beside {MANIFEST_FILE}"
        )


@fixable_rule(
    "BP402",
    ERROR,
    "PSB402; bridge/training/config.py:1169, bridge/data/packing/gpt_sft.py:79",
    when=HAS_SPECS,
)
def padded_cu_seqlens_without_full_width(run: Run) -> Found:
    """pad_cu_seqlens is on, but packs are not padded to their full width.

    Why: Crash at start: validate() refuses it; static cu_seqlens need packs of static width.
    Bad: pad_cu_seqlens true, dataset_kwargs {}. Good: dataset_kwargs {pad_to_max_length: true}.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to the literal true. Noticed: validate().
    """
    if run.flag(f"{SPECS}.pad_cu_seqlens") and not run.pads_to_max_length:
        actual, path = "true with packs that are not padded to their full width", "dataset_kwargs.pad_to_max_length"
        changes = change(f"dataset.{path}", True, "pad_cu_seqlens needs it")
        yield wrong(f"{SPECS}.pad_cu_seqlens", actual, f"{path} true", changes=changes)


_SPECS_CLASS = canonical_name_of("data.packing.config.PackedSequenceSpecs")


@rule("BP324", ERROR, "PSB324; bridge/data/packing/config.py", when=PACKS_OFFLINE)
def blend_of_packs(run: Run) -> Found:
    """offline_packing_specs has a weighted blend of packs, which this release does not support.

    Why: Crash when the config is made: the host raises TypeError for the unexpected keyword argument
        'packed_train_data_blend'.
    Bad: packed_train_data_blend [[0.7, "a/*.parquet"], [0.3, "b/*.parquet"]]. Good: packed_train_data_path "*.parquet".
    Fix: Mix the sources before packing, with the weights as repetitions, and set
        {dataset.offline_packing_specs.packed_train_data_path} to a glob.
    Noticed: construction. Evidence: Bridge #5289, open.
    """
    for field in ("packed_train_data_blend", "packed_val_data_blend"):
        if run.is_set(f"{SPECS}.{field}") and field not in run.release.facts.types_of(_SPECS_CLASS):
            yield wrong(f"{SPECS}.{field}", "set", "not set; packed_train_data_path")


@rule("BP522", ADVICE, "PSB522; bridge/data/packing/gpt_sft.py:68", when=PACKS_OFFLINE)
def numpy_seeded_by_dataset(run: Run) -> Found:
    """Building the packed dataset seeds numpy's global generator with dataset.seed, which differs from rng.seed.

    Why: Silent: your own code that uses numpy's global generator gets the same numbers on every rank, for any
        {rng.seed}.
    Bad: dataset.seed 1234, rng.seed 5678. Good: both 5678. Fix: Use a separate generator in such code.
    """
    seed, run_seed = run.value("dataset.seed"), run.value("rng.seed")
    if seed != run_seed:
        yield wrong("dataset.seed", str(seed), say("{seed}, as {rng.seed}", seed=run_seed))


@rule("BP523", ADVICE, "PSB523; bridge/training/losses.py:68", when=IS_PACKED)
def nan_not_looked_for(run: Run) -> Found:
    """The run trains packs, but the loss is not checked for NaN.

    Why: Silent: the mask is multiplied with the losses, and 0 * NaN is NaN, so one NaN in a pack's padding ruins the
        step. Wrong attention boundaries often cause such a NaN.
    Bad: rerun_state_machine.check_for_nan_in_loss false. Good: check_for_nan_in_loss true.
    Fix: Set it to true, at least for the first steps; full-iteration CUDA graphs do not support it.
    Evidence: read in the source; Bridge #2914, #3117.
    """
    path = "rerun_state_machine.check_for_nan_in_loss"
    if not run.flag(path):
        yield wrong(path, "false", "true")


#: Minimum rows of a split for its fill to be meaningful, and the fill, 0-1, below which it is reported.
#: Source: rule catalogue PSB115.
_MIN_ROWS, _MIN_FILL_FRACTION = 64, 0.9
#: Share of alignment padding, 0-1, above which it is reported.
_MAX_ALIGNMENT_FRACTION = 0.1


@rule("BP115", WARNING, when=HAS_SPECS, evidence="read in the source; splits of few packs are left out")
def packs_poorly_filled(run: Run) -> Found:
    """Packs have far fewer tokens than packed_sequence_size, padding inside sequences included.

    Why: Slow: attention and matrix products run over the padding at the end of every pack.
    Bad: 1000 packs of 3000 tokens on average, packed_sequence_size 4096: 73%. Good: 4000 on average: 98%.
    Fix: Raise {dataset.offline_packing_specs.packed_sequence_size}; 8192 is the host's own first target. Sequences
        nearly as long as a pack leave no room for others. Noticed: never; the host logs it when it packs.
    Source: PSB115; bridge/data/packing/algorithms.py:226, docs/training/packed-sequences.md
    """
    size = run.packed_sequence_size
    for truth in truths(run):
        fill = truth.mean_row_width / size if size > 0 else 1.0
        if truth.num_rows >= _MIN_ROWS and fill < _MIN_FILL_FRACTION:
            actual = f"packs are filled to {fill:.0%}: {truth.mean_row_width:.0f} of {size} runtime tokens"
            yield wrong(place(truth.split), actual, f"{_MIN_FILL_FRACTION:.0%} or more")


@rule("BP120", WARNING, "PSB115, PSB118", when=HAS_SPECS, evidence="inferred; the numbers are the manifest's")
def alignment_wastes_tokens(run: Run) -> Found:
    """More than 10% of the tokens in packs are padding to pad_seq_to_mult.

    Why: Slow: packs look full, but much of them is padding, most with short sequences and a large multiple.
    Bad: 1000 tokens, 200 of them padding inside sequences. Good: 20 of them.
    Fix: Lower the multiple: 2 x {model.context_parallel_size} is enough with
        {dataset.dataset_kwargs.pad_to_max_length}; or lower context parallelism.
    Noticed: never; the host's packing_efficiency counts the padding as tokens.
    """
    for split in run.require_artifact().require_manifest().splits:
        padding = split.statistics.num_alignment_tokens
        physical = split.statistics.num_tokens + padding
        if physical and padding / physical > _MAX_ALIGNMENT_FRACTION:
            actual = f"{padding} of {physical} tokens are alignment: {1 - padding / physical:.0%} useful"
            yield wrong(place(split.name), actual, f"{1 - _MAX_ALIGNMENT_FRACTION:.0%} useful or more")
