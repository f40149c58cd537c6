"""Rules on earlier versions of the host, and on artifacts that they made."""

from __future__ import annotations

from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, ERROR, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, IS_PACKED, SPECS, Run
from bridgepack.rules.run.hybrid_models import has_mamba_layers
from bridgepack.rules.run.packed_paths import explicit_paths, splits_packed_by_host

_TRAIN_PATH = f"{SPECS}.packed_train_data_path"


@rule("BP967", ERROR, when=HAS_SPECS, instead_of="BP308", versions={BRIDGE: ">=0.6"}, noticed="never, or first step")
def artifact_of_earlier_host(run: Run) -> Found:
    """The packs were made by version 0.5.1 or earlier, which padded stored lengths instead of runtime lengths.

    Why: Silent or crash at the first step: every sequence is one token short of the multiple that kernels rely on.
    Bad: pad_seq_to_mult 8, sequences of 8 stored and 7 runtime tokens.
    Good: pad_seq_to_mult 8, sequences of 9 stored and 8 runtime tokens.
    Fix: Pack the data again with 0.6, or with this package.
    Evidence: Megatron-Bridge issues 4056, 4598 and 4489; the stored lengths read in the source of 0.3.1 and 0.6.2.
    Source: PSC407; bridge/data/packing/offline.py:119-215
    """
    if run.pad_seq_to_mult < 2:
        return
    multiple = run.pad_seq_to_mult
    artifact = run.require_artifact()
    if artifact.context.pad_seq_to_mult != multiple:
        raise CannotJudgeError(f"the packs are checked for another multiple than {multiple}")
    for truth in artifact.require_truths():
        if truth.num_misaligned_runtime and not truth.num_misaligned_stored:
            found = f"{truth.num_sequences} sequences, stored lengths multiples of {multiple}, runtime lengths not"
            yield wrong(truth.split, found, f"runtime lengths that are multiples of {multiple}", group=truth.split)


@rule("BP968", ERROR, "PSC408; bridge/training/gpt_step.py:441-451", when=IS_PACKED, versions={BRIDGE: "<0.5"})
def mamba_state_leaks_in_earlier_host(run: Run) -> Found:
    """Packing is on for a model with Mamba layers, in a version that never restarts their state.

    Why: Silent: the state of one sequence runs on into the next, whatever is_hybrid_model says.
    Bad: a model with Mamba layers packed with megatron-bridge 0.4.2.
    Good: the same with megatron-bridge 0.6.2 and is_hybrid_model true.
    Fix: Install megatron-bridge 0.6.2, or train unpacked.
    Evidence: Megatron-Bridge issue 3474 and pull request 3484, released with 0.5.0.
    """
    if has_mamba_layers(run):
        found = f"packed Mamba layers with megatron-bridge {run.versions['megatron-bridge']}"
        yield wrong("dataset.enable_offline_packing", found, "megatron-bridge 0.5 or newer")


@rule("BP969", ERROR, versions={BRIDGE: "<0.4"}, noticed="construction of PackedSequenceSpecs, or dataset build")
def packs_of_first_releases(run: Run) -> Found:
    """The packs that are named are no .npy files, in a version that reads nothing else.

    Why: Crash where the specs are made: packed training data file must be a .npy file. Set afterwards, while the
        dataset is built, as 0.3 reads no Parquet.
    Bad: megatron-bridge 0.3.1, packed_train_data_path training_4096.idx.parquet.
    Good: megatron-bridge 0.3.1, packed_train_data_path training_4096.npy.
    Fix: Install megatron-bridge 0.6.2, or write .npy packs and name them explicitly.
    Evidence: read in the source of 0.3.1.
    Source: PSC409; megatron-bridge 0.3.1, bridge/data/datasets/packed_sequence.py
    """
    for path in explicit_paths(run):
        if not path.is_npy:
            version = run.versions["megatron-bridge"]
            yield wrong(path.setting, f"{path.text} with megatron-bridge {version}", "a .npy file")


@rule("BP970", ERROR, "PSC410; Megatron-Bridge pull requests 1292 and 1867", when=IS_PACKED, versions={BRIDGE: "<0.3"})
def context_parallelism_before_it_packed(run: Run) -> Found:
    """Context parallelism meets packed rows in a version where the two did not work together.

    Why: Crash at the first step, or silent.
    Bad: megatron-bridge 0.2.0, context_parallel_size 2, packing on.
    Good: megatron-bridge 0.6.2, context_parallel_size 2, packing on.
    Fix: Install megatron-bridge 0.6.2.
    Noticed: first step, or never.
    Evidence: Megatron-Bridge pull requests 1292 and 1867.
    """
    if run.context_parallel_size > 1:
        found = f"{run.context_parallel_size} with megatron-bridge {run.versions['megatron-bridge']}"
        yield wrong("model.context_parallel_size", found, "1, or megatron-bridge 0.3 or newer")


@rule("BP960", WARNING, "Megatron-Bridge pull request 4489", when=HAS_SPECS, versions={BRIDGE: "<0.5.1"})
def offsets_filled_up_under_context_parallelism(run: Run) -> Found:
    """Context parallelism cuts packed rows whose offsets this version fills up with -1.

    Why: Silent, by reading: the cut into ranks takes the offsets as they are, and some ranks get other tokens.
    Bad: megatron-bridge 0.4.2, context_parallel_size 2, packs, pad_cu_seqlens false.
    Good: megatron-bridge 0.4.2, context_parallel_size 2, packs, pad_cu_seqlens true; or megatron-bridge 0.5.1.
    Fix: Set pad_cu_seqlens to true with its metadata, or install megatron-bridge 0.5.1 or newer.
    Evidence: read in the source of 0.3.1 and 0.4.2; the cut worked out in Python; not run on a GPU.
    """
    if run.context_parallel_size == 1:
        return
    if not run.flag(f"{SPECS}.pad_cu_seqlens"):
        yield wrong(f"{SPECS}.pad_cu_seqlens", f"false with context_parallel_size {run.context_parallel_size}", "true")


@rule("BP974", WARNING, when=splits_packed_by_host, versions={BRIDGE: "<0.6"})
def packing_inside_job_of_earlier_host(run: Run) -> Found:
    """A version up to 0.5.1 packs sequences to a multiple, which it applies to the stored length.

    Why: Silent or crash at the first step: runtime lengths are one token short of the multiple; chat data crashes.
    Bad: megatron-bridge 0.5.1, pad_seq_to_mult 8, packs made inside the job.
    Good: megatron-bridge 0.5.1, packs made by this package.
    Fix: Install megatron-bridge 0.6.2, or name packs made by this package.
    Noticed: dataset build, first step, or never.
    Evidence: Megatron-Bridge issues 4056, 4598 and 4489.
    Source: PSC407; Megatron-Bridge pull requests 4056 and 4598
    """
    if run.pad_seq_to_mult > 1:
        found = f"{run.pad_seq_to_mult}, packed by megatron-bridge {run.versions['megatron-bridge']}"
        yield wrong(f"{SPECS}.pad_seq_to_mult", found, "1, or packs made otherwise")


@rule("BP975", ADVICE, versions={BRIDGE: "<0.6"}, evidence="read in the source of 0.3.1 and 0.5.1")
def pack_cache_without_fingerprint(run: Run) -> Found:
    """The host finds its own packs again by tokenizer, multiple and size only.

    Why: Silent: packs made for another sequence length, seed, template, loss or data are used without a word.
    Bad: megatron-bridge 0.5.1, packs made inside the job under a dataset_root that was used before.
    Good: megatron-bridge 0.5.1, packed_train_data_path and packed_val_data_path set.
    Fix: Name the packs explicitly, or delete the packed folder before every change.
    Source: PSC415; megatron-bridge 0.5.1, bridge/data/builders/finetuning_dataset.py:339-407
    """
    if splits_packed_by_host(run):
        allowed = "explicit paths to packs"
        yield wrong(_TRAIN_PATH, f"not set, with megatron-bridge {run.versions['megatron-bridge']}", allowed)


@rule("BP041", ERROR, versions={BRIDGE: "<0.6"}, evidence="read in the source of 0.3.1, 0.4.2 and 0.5.1")
def packing_described_without_size(run: Run) -> Found:
    """Packing is described and its size is not positive, which turns it off before 0.6.

    Why: Silent: the host's default is -1, so PackedSequenceSpecs() trains without packing, and every step reads a
        fraction of the tokens.
    Bad: megatron-bridge 0.4.2, packed_sequence_specs PackedSequenceSpecs(packed_sequence_size=-1).
    Good: megatron-bridge 0.4.2, packed_sequence_specs PackedSequenceSpecs(packed_sequence_size=4096).
    Fix: Set packed_sequence_size, or packed_sequence_specs to null.
    Source: PSB003, PSB015; megatron-bridge 0.4.2, bridge/training/config.py:1212
    """
    path = "dataset.packed_sequence_specs"
    if not run.is_set(path):
        return
    size = run.integer(f"{path}.packed_sequence_size", default=-1)
    if size <= 0:
        length = run.seq_length
        yield wrong(
            f"{path}.packed_sequence_size",
            str(size),
            "a positive number of tokens, equal to seq_length",
            to=length,
            because="packs are as long as the model's rows",
        )
