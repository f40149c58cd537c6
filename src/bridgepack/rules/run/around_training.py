"""Rules on packing inside the job, file systems, and packs of earlier versions of the host."""

from bridgepack.records import TRAIN
from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, place, rule, wrong
from bridgepack.rules.judging.subject import HAS_SPECS, IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.data.packed_paths import cached_packs, explicit_paths, raw_root, splits_packed_by_host
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
    Fix: Build the packs before the job, set {dist.distributed_timeout_minutes} higher, or raise
        {dataset.offline_packing_specs.num_tokenizer_workers}.
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
        actual = f"{timeout_s // 60} minutes while rank 0 packs more than {at_most} rows of {raw}"
        yield wrong("dist.distributed_timeout_minutes", actual, _MADE_BEFORE)


@rule("BP962", WARNING, when=HAS_SPECS, noticed="dataset build", evidence="read in 0.6.2; Bridge #4207, #4865")
def packs_on_one_node(run: Run) -> Found:
    """Packs are in a folder that the job's other nodes cannot see.

    Why: Crash while the dataset is built: only rank 0 packs, so the other nodes get no dataset, and fail on None or
        hang.
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
    """The host counts FLOPs as if every pack were one sequence.

    Why: Silent: with context parallelism the host counts attention over whole packs, so it logs too high a throughput.
    Bad: context_parallel_size 2, packs, MFU taken from the log. Good: MFU from the manifest's lengths.
    Fix: Compute FLOPs from the sequence lengths; compare runs by tokens per second.
    Evidence: read in 0.6.2; Bridge #4161.
    """
    actual, allowed_values = (
        f"{run.context_parallel_size} with packs",
        "1 for a throughput that counts packed sequences",
    )
    yield wrong("model.context_parallel_size", actual, allowed_values)


@rule("BP966", ADVICE, when=PACKS_OFFLINE, noticed="first step", evidence="read in 0.6.2; the cost is inferred")
def whole_artifact_read_for_throughput(run: Run) -> Found:
    """Every rank reads all packs into Python lists to count FLOPs.

    Why: Slow: for a large artifact the first step takes minutes and much memory. The host does this only for LoRA of
        Llama-3-70B on SQuAD.
    Bad: LoRA, hf_model_id meta-llama/Meta-Llama-3-70B, hf_dataset squad, packing on. Good: any other dataset.
    Fix: Use a local {dataset.dataset_root}.
    Source: PSC406; bridge/training/utils/flop_utils.py:762-795; bridge/data/packing/algorithms.py:346-420
    """
    if not run.stated_value("peft"):
        return
    name = next((run.stated_value(f"dataset.hf_dataset.{key}") for key in ("dataset_name", "path_or_dataset")), None)
    # The host reads a field of the model, which a model that is built from parts does not have.
    is_built_from_parts = str(run.stated_value("model._target_")).endswith("ModelConfig")
    model_id = "" if is_built_from_parts else run.text_or_none("model.hf_model_id") or ""
    if name in ("squad", "rajpurkar/squad") and "Meta-Llama-3-70B" in model_id:
        yield wrong("dataset.hf_dataset", f"{name} with {model_id}", "packs of a local dataset")


@rule("BP971", ADVICE, "PSC411; bridge/data/packing/offline.py:48-68,246-318", noticed="dataset build")
def packing_needs_much_memory(run: Run) -> Found:
    """Rank 0 packs a large file inside the job and holds all its tokens as Python objects.

    Why: Crash while the dataset is built: memory runs out, at about 60 to 100 bytes for each token.
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

    Why: Crash in a later run: a killed job leaves half a file that looks finished. Two jobs that write at once mix
        their metadata.
    Bad: packs made inside the job under a shared dataset_root. Good: packs built before the job.
    Fix: Build the packs before the job, and check them. Noticed: dataset build of a later run.
    Source: PSC413; bridge/data/packing/parquet.py:81-110; bridge/data/packing/offline.py:292-309
    """
    splits = " and ".join(splits_packed_by_host(run))
    yield wrong(_TRAIN_PATH, f"{splits} packed inside the job", _MADE_BEFORE)


@rule("BP967", ERROR, when=HAS_SPECS, noticed="never, or first step", instead_of="BP308")
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
            actual = (
                f"{count_text(truth.num_sequences, 'sequence')}, stored lengths multiples of {multiple}, "
                "runtime lengths not"
            )
            yield wrong(
                place(truth.split), actual, f"runtime lengths that are multiples of {multiple}", group=truth.split
            )
