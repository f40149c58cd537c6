"""Rules on packing inside the job, file systems, and earlier versions of the host."""

from bridgepack.records import TRAIN
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, ERROR, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.data.packed_paths import cached_packs, explicit_paths, raw_root, splits_packed_by_host
from bridgepack.rules.run.models.families import has_mamba_layers
from bridgepack.rules.run.reading import splits_context

_WORKERS, _TRAIN_PATH = f"{SPECS}.num_tokenizer_workers", f"{SPECS}.packed_train_data_path"
_MADE_BEFORE = "packs built before the job"
#: JSON Lines rows per second that one process tokenises at most: an upper estimate.
_ROWS_PER_WORKER_S = 2000
#: Maximum bytes of a raw file before its tokens exceed 64 GiB as Python objects, at about 4 bytes of text a token
#: and 80 bytes an object.
_LARGE_RAW_BYTES = 64 * 2**30 // 20
#: Folders that are on one node only.
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/local", "/localscratch", "/mnt/local", "/mnt/nvme", "/raid")
#: GPUs of the widest common node.
_GPUS_PER_NODE = 8


def _raw_training_file(run: Run) -> str | None:
    """Return the raw training file that rank 0 packs when the job starts, or None if its packs already exist."""
    if TRAIN not in splits_packed_by_host(run):
        return None
    files = run.require_files()
    if cached_packs(run, TRAIN, files) and not run.flag("dataset.hf_rewrite"):
        return None
    return f"{raw_root(run)}/{TRAIN}.jsonl"


@rule("BP961", WARNING, evidence="the barrier read in 0.6.2; the time is an estimate of 2000 rows a second and process")
def packing_outlasts_timeout(run: Run) -> Found:
    """Rank 0 packs a large file inside the job for longer than the timeout of the barrier where the other ranks wait.

    Why: Crash while the dataset is built: "Watchdog caught collective operation timeout", after all GPUs idled.
    Bad: 3 million rows, one process, distributed_timeout_minutes 10. Good: packs built before the job.
    Fix: Build the packs before the job, set dist.distributed_timeout_minutes higher, or raise num_tokenizer_workers.
    Noticed: dataset build.
    Source: PSC401; bridge/data/builders/gpt_sft.py:733-742; bridge/data/packing/offline.py:48-68;
        bridge/training/initialize.py:744
    """
    raw = _raw_training_file(run)
    if raw is None or run.world_size == 1:
        return
    timeout_s = 60 * run.integer("dist.distributed_timeout_minutes", default=10)
    at_most = timeout_s * max(1, run.integer(_WORKERS, default=1)) * _ROWS_PER_WORKER_S
    num_rows = run.require_files().num_lines(raw, at_most=at_most + 1)
    if num_rows is not None and num_rows > at_most:
        found = f"{timeout_s // 60} minutes while rank 0 packs more than {at_most} rows of {raw}"
        yield wrong("dist.distributed_timeout_minutes", found, _MADE_BEFORE)


@rule("BP962", WARNING, when=HAS_SPECS, noticed="dataset build", evidence="read in 0.6.2; Bridge #4207, #4865")
def packs_on_one_node(run: Run) -> Found:
    """Packs are in a folder that the job's other nodes cannot see.

    Why: Crash while the dataset is built: only rank 0 packs, the other nodes get no dataset and fail on None or hang.
    Bad: 16 GPUs, dataset_root in /dev/shm. Good: dataset_root on a file system that every node mounts.
    Fix: Move the data to a shared file system, or copy finished packs to every node and set explicit paths.
    Source: PSC402; bridge/data/builders/gpt_sft.py:441-458,733-742
    """
    if run.world_size <= _GPUS_PER_NODE:
        return
    settings = {path.setting: path.text for path in explicit_paths(run)}
    if splits_packed_by_host(run):
        roots = ("dataset.dataset_root", "dataset.hf_output_root")
        settings |= {name: run.text_or_none(name) or "" for name in roots if run.is_stated(name)}
    for name, path in settings.items():
        if any(path == folder or path.startswith(f"{folder}/") for folder in _NODE_LOCAL):
            yield wrong(name, f"{path} for {run.world_size} GPUs", "a folder that every node mounts")


@rule("BP963", ADVICE, when=splits_packed_by_host, noticed="dataset build", evidence="read in 0.6.2; Bridge #4207")
def packs_written_and_read_at_once(run: Run) -> Found:
    """Other nodes read packs right after rank 0 wrote them, when a network file system may not show them yet.

    Why: Crash while the dataset is built: the host retries Parquet files for 45 seconds, but not the metadata.
    Bad: 16 GPUs, packs made inside the job. Good: packs built before the job, packed_train_data_path set.
    Fix: Build the packs before the job.
    Source: PSC403; bridge/data/packing/paths.py:244-294; bridge/data/builders/gpt_sft.py:441-447
    """
    if run.world_size > _GPUS_PER_NODE:
        yield wrong(_TRAIN_PATH, f"packs made by rank 0 of {run.world_size} GPUs", _MADE_BEFORE)


@rule("BP965", ADVICE, "PSC405; bridge/training/gpt_step.py:395-405", when=(IS_PACKED, splits_context))
def throughput_ignores_packing(run: Run) -> Found:
    """The host counts FLOPs as if every row were one sequence.

    Why: Silent: with context parallelism the host counts attention over whole rows, so it logs too high a throughput.
    Bad: context_parallel_size 2, packed rows, MFU taken from the log. Good: MFU from the manifest's lengths.
    Fix: Compute FLOPs from the sequence lengths; compare runs by tokens per second.
    Evidence: read in 0.6.2; Bridge #4161.
    """
    found, allowed = f"{run.context_parallel_size} with packed rows", "1 for a throughput that counts packed sequences"
    yield wrong("model.context_parallel_size", found, allowed)


@rule("BP966", ADVICE, when=PACKS_OFFLINE, noticed="first step", evidence="read in 0.6.2; the cost is inferred")
def whole_artifact_read_for_throughput(run: Run) -> Found:
    """Every rank reads all packs into Python lists to count FLOPs.

    Why: Slow: for a large artifact the first step takes minutes and much memory; only LoRA of Llama-3-70B on SQuAD.
    Bad: LoRA, hf_model_id meta-llama/Meta-Llama-3-70B, hf_dataset squad, packing on. Good: any other dataset.
    Fix: Use a local dataset_root.
    Source: PSC406; bridge/training/utils/flop_utils.py:762-795; bridge/data/packing/algorithms.py:346-420
    """
    if not run.stated("peft"):
        return
    name = next((run.stated(f"dataset.hf_dataset.{key}") for key in ("dataset_name", "path_or_dataset")), None)
    model_id = run.text_or_none("model.hf_model_id") or ""
    if name in ("squad", "rajpurkar/squad") and "Meta-Llama-3-70B" in model_id:
        yield wrong("dataset.hf_dataset", f"{name} with {model_id}", "packs of a local dataset")


@rule("BP971", ADVICE, "PSC411; bridge/data/packing/offline.py:48-68,246-318", noticed="dataset build")
def packing_needs_much_memory(run: Run) -> Found:
    """Rank 0 packs a large file inside the job and holds all its tokens as Python objects.

    Why: Crash while the dataset is built: out of memory, at about 60 to 100 bytes a token.
    Bad: training.jsonl of 40 GB packed inside the job: about 10 billion tokens, 800 GB. Good: packs built before.
    Fix: Build the packs before the job with `bridgepack build`, which streams them from disk.
    Evidence: read in 0.6.2; the bytes are inferred.
    """
    raw = _raw_training_file(run)
    num_bytes = None if raw is None else run.require_files().num_bytes(raw)
    if num_bytes is not None and num_bytes > _LARGE_RAW_BYTES:
        yield wrong(_TRAIN_PATH, f"{raw} of {num_bytes / 2**30:.0f} GiB packed inside the job", _MADE_BEFORE)


@rule("BP972", ADVICE, when=splits_packed_by_host, noticed="dataset build", evidence="read in 0.6.2")
def tokenizer_workers_need_descriptors(run: Run) -> Found:
    """Several processes tokenise inside the job, which needs more open files than the usual limit.

    Why: Crash while the dataset is built: "Too many open files" if the hard limit is low; the host raises only the
        soft limit.
    Bad: num_tokenizer_workers 32, ulimit -Hn 4096. Good: packs built before the job, or ulimit -Hn 1048576.
    Fix: Raise the hard limit of open files in the job's script, or build the packs before the job.
    Source: PSC412; bridge/data/packing/offline.py:52-68
    """
    workers = run.integer(_WORKERS, default=1)
    if workers > 1:
        yield wrong(_WORKERS, f"{workers} inside the job", "1, or a high limit of open files")


@rule("BP973", ADVICE, when=splits_packed_by_host, evidence="read in 0.6.2; the killed job is inferred")
def packs_written_without_a_lock(run: Run) -> Found:
    """The job writes packs in place, without a lock, into a folder that other jobs may use.

    Why: Crash in a later run: a killed job leaves half a file that looks finished; two jobs at once mix their metadata.
    Bad: packs made inside the job under a shared dataset_root. Good: packs built before the job.
    Fix: Build the packs before the job, and check them. Noticed: dataset build of a later run.
    Source: PSC413; bridge/data/packing/parquet.py:81-110; bridge/data/packing/offline.py:292-309
    """
    splits = " and ".join(splits_packed_by_host(run))
    yield wrong(_TRAIN_PATH, f"{splits} packed inside the job", _MADE_BEFORE)


@rule("BP967", ERROR, when=HAS_SPECS, versions={BRIDGE: ">=0.6"}, noticed="never, or first step", instead_of="BP308")
def artifact_of_earlier_host(run: Run) -> Found:
    """The packs were made by version 0.5.1 or earlier, which padded stored lengths instead of runtime lengths.

    Why: Silent or crash at the first step: every sequence is one token short of the multiple that kernels rely on.
    Bad: pad_seq_to_mult 8, sequences of 8 stored and 7 runtime tokens. Good: 9 stored and 8 runtime.
    Fix: Pack the data again with 0.6, or with `bridgepack build`.
    Evidence: Bridge #4056, #4598, #4489; the stored lengths read in 0.3.1 and 0.6.2.
    Source: PSC407; bridge/data/packing/offline.py:119-215
    """
    multiple = run.pad_seq_to_mult
    if multiple < 2:
        return
    artifact = run.require_artifact()
    if artifact.context.pad_seq_to_mult != multiple:
        raise CannotJudgeError(f"the packs are checked with a pad_seq_to_mult that is not {multiple}")
    for truth in artifact.require_truths():
        if truth.num_misaligned_runtime and not truth.num_misaligned_stored:
            found = f"{truth.num_sequences} sequences, stored lengths multiples of {multiple}, runtime lengths not"
            yield wrong(truth.split, found, f"runtime lengths that are multiples of {multiple}", group=truth.split)


@rule("BP968", ERROR, when=(IS_PACKED, has_mamba_layers), versions={BRIDGE: "<0.5"})
def mamba_state_leaks_in_earlier_host(run: Run) -> Found:
    """Packing is on for a model with Mamba layers, and this version never resets their state.

    Why: Silent: the state of one sequence leaks into the next, with either value of is_hybrid_model.
    Bad: a model with Mamba layers packed with megatron-bridge 0.4.2. Good: 0.6.2 and is_hybrid_model true.
    Fix: Install megatron-bridge 0.6.2, or train unpacked. Evidence: Bridge #3474, #3484, released with 0.5.0.
    Source: PSC408; bridge/training/gpt_step.py:441-451
    """
    found = f"packed Mamba layers with megatron-bridge {run.versions[BRIDGE]}"
    yield wrong("dataset.enable_offline_packing", found, "megatron-bridge 0.5 or newer")


@rule("BP969", ERROR, versions={BRIDGE: "<0.4"}, evidence="read in the source of 0.3.1")
def packs_of_first_releases(run: Run) -> Found:
    """The run's packs are not .npy files, and this version reads nothing else.

    Why: Crash when the specs are made: packed training data file must be a .npy file. If the path is set later, crash
        while the dataset is built, as 0.3 does not read Parquet.
    Bad: megatron-bridge 0.3.1, training_4096.idx.parquet. Good: training_4096.npy.
    Fix: Install megatron-bridge 0.6.2, or write .npy packs and set explicit paths.
    Noticed: construction of PackedSequenceSpecs, or dataset build.
    Source: PSC409; megatron-bridge 0.3.1, bridge/data/datasets/packed_sequence.py
    """
    for path in explicit_paths(run):
        if not path.is_npy:
            yield wrong(path.setting, f"{path.text} with megatron-bridge {run.versions[BRIDGE]}", "a .npy file")


@rule("BP970", ERROR, "PSC410; Bridge #1292, #1867", when=(IS_PACKED, splits_context), versions={BRIDGE: "<0.3"})
def context_parallelism_before_it_packed(run: Run) -> Found:
    """Context parallelism is on with packed rows, and this version does not support the two together.

    Why: Crash at the first step, or silent.
    Bad: megatron-bridge 0.2.0, context_parallel_size 2, packing on. Good: megatron-bridge 0.6.2.
    Fix: Install megatron-bridge 0.6.2. Noticed: first step, or never. Evidence: Bridge #1292, #1867.
    """
    found = f"{run.context_parallel_size} with megatron-bridge {run.versions[BRIDGE]}"
    yield wrong("model.context_parallel_size", found, "1, or megatron-bridge 0.3 or newer")


@rule("BP960", WARNING, "Megatron-Bridge #4489", when=(HAS_SPECS, splits_context), versions={BRIDGE: "<0.5.1"})
def offsets_filled_up_under_context_parallelism(run: Run) -> Found:
    """Context parallelism splits packed rows by cu_seqlens that this version pads with -1.

    Why: Silent, as read in the source: the split uses the -1 entries as offsets, so some ranks get wrong tokens.
    Bad: megatron-bridge 0.4.2, CP 2, packs, pad_cu_seqlens false. Good: pad_cu_seqlens true.
    Fix: Set pad_cu_seqlens to true with its metadata, or install megatron-bridge 0.5.1 or newer.
    Evidence: read in 0.3.1 and 0.4.2; the split computed in Python; not run on a GPU.
    """
    if not run.flag(f"{SPECS}.pad_cu_seqlens"):
        yield wrong(f"{SPECS}.pad_cu_seqlens", f"false with context_parallel_size {run.context_parallel_size}", "true")


@rule("BP974", WARNING, "PSC407; Bridge #4056, #4598", when=splits_packed_by_host, versions={BRIDGE: "<0.6"})
def packing_inside_job_of_earlier_host(run: Run) -> Found:
    """A version up to 0.5.1 packs the data, and applies pad_seq_to_mult to stored lengths instead of runtime lengths.

    Why: Silent or crash at the first step: runtime lengths are one token short of the multiple; chat data crashes.
    Bad: megatron-bridge 0.5.1, pad_seq_to_mult 8, packs made inside the job. Good: packs built by `bridgepack build`.
    Fix: Install megatron-bridge 0.6.2, or use packs built by `bridgepack build`.
    Noticed: dataset build, first step, or never. Evidence: Bridge #4056, #4598, #4489.
    """
    if run.pad_seq_to_mult > 1:
        found = f"{run.pad_seq_to_mult}, packed by megatron-bridge {run.versions[BRIDGE]}"
        yield wrong(f"{SPECS}.pad_seq_to_mult", found, "1, or packs built by `bridgepack build`")


@rule("BP975", ADVICE, when=splits_packed_by_host, versions={BRIDGE: "<0.6"}, evidence="read in 0.3.1 and 0.5.1")
def pack_cache_without_fingerprint(run: Run) -> Found:
    """The host identifies its cached packs by tokenizer, multiple and size only.

    Why: Silent: cached packs with another sequence length, seed, template, loss mask or data are used silently.
    Bad: megatron-bridge 0.5.1, packs made inside the job, a dataset_root used before. Good: explicit paths.
    Fix: Set explicit paths to the packs, or delete the packed folder after every change.
    Source: PSC415; megatron-bridge 0.5.1, bridge/data/builders/finetuning_dataset.py:339-407
    """
    yield wrong(_TRAIN_PATH, f"not set, with megatron-bridge {run.versions[BRIDGE]}", "explicit paths to packs")


@rule("BP041", ERROR, versions={BRIDGE: "<0.6"}, evidence="read in 0.3.1, 0.4.2 and 0.5.1")
def packing_described_without_size(run: Run) -> Found:
    """packed_sequence_specs is set with a size that is not positive, which turns packing off before 0.6.

    Why: Silent: the default is -1, so PackedSequenceSpecs() does not pack, and steps train a fraction of the tokens.
    Bad: PackedSequenceSpecs(packed_sequence_size=-1). Good: PackedSequenceSpecs(packed_sequence_size=4096).
    Fix: Set packed_sequence_size, or packed_sequence_specs to null.
    Source: PSB003, PSB015; megatron-bridge 0.4.2, bridge/training/config.py:1212
    """
    path = "dataset.packed_sequence_specs"
    size = run.integer(f"{path}.packed_sequence_size", default=-1) if run.is_set(path) else 1
    if size <= 0:
        allowed, why = "a positive number of tokens, equal to seq_length", "packs are as long as the model's rows"
        yield wrong(f"{path}.packed_sequence_size", str(size), allowed, to=run.seq_length, because=why)
