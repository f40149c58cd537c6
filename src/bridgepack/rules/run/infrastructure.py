"""Rules on what happens around training: packing inside the job, file systems, numbers that the host reports."""

from __future__ import annotations

from bridgepack.records import TRAIN
from bridgepack.rules.engine.rule import ADVICE, DATASET_BUILD, FIRST_STEP, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.packed_paths import cached_packs, explicit_paths, raw_root, splits_packed_by_host

_WORKERS = f"{SPECS}.num_tokenizer_workers"
#: Rows of JSON Lines that one process certainly does not tokenise in a second. An estimate on the fast side.
_ROWS_PER_WORKER_S = 2000
#: Bytes of a raw file from which one process does not hold its tokens easily: 64 GiB of Python objects at about
#: 4 bytes a token and 80 bytes an object.
_LARGE_RAW_BYTES = 64 * 2**30 // 20
#: Folders that are on one node only.
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/local", "/localscratch", "/mnt/local", "/mnt/nvme", "/raid")
#: GPUs of the widest common node.
_GPUS_PER_NODE = 8


def _raw_training_file(run: Run) -> str | None:
    """Return the raw training file that rank 0 will pack when the job starts; None where packs are there already."""
    if TRAIN not in splits_packed_by_host(run):
        return None
    files = run.require_files()
    if cached_packs(run, TRAIN, files) and not run.flag("dataset.hf_rewrite"):
        return None
    return f"{raw_root(run)}/{TRAIN}.jsonl"


@rule("BP961", WARNING, noticed=DATASET_BUILD)
def packing_outlasts_timeout(run: Run) -> Found:
    """Rank 0 packs a large file inside the job, longer than the other ranks wait in a barrier.

    Why: Crash while the dataset is built: "Watchdog caught collective operation timeout", after every GPU has idled.
    Bad: 3 million rows to tokenise by one process, distributed_timeout_minutes 10.
    Good: packs made beforehand, packed_train_data_path set.
    Fix: Build the packs before the job, set dist.distributed_timeout_minutes higher, or raise num_tokenizer_workers.
    Evidence: the barrier read in the source of 0.6.2; the time is an estimate of 2000 rows a second and process.
    Source: PSC401; bridge/data/builders/gpt_sft.py:733-742; bridge/data/packing/offline.py:48-68;
        bridge/training/initialize.py:744
    """
    raw = _raw_training_file(run)
    if raw is None or run.world_size == 1:
        return
    timeout_s = 60 * run.integer("dist.distributed_timeout_minutes", default=10)
    workers = max(1, run.integer(_WORKERS, default=1))
    at_most = timeout_s * workers * _ROWS_PER_WORKER_S
    num_rows = run.require_files().num_lines(raw, at_most=at_most + 1)
    if num_rows is not None and num_rows > at_most:
        found = f"{timeout_s // 60} minutes while rank 0 packs more than {at_most} rows of {raw}"
        yield wrong("dist.distributed_timeout_minutes", found, "packs made before the job")


@rule("BP962", WARNING, "PSC402; bridge/data/builders/gpt_sft.py:441-458,733-742", when=HAS_SPECS)
def packs_on_one_node(run: Run) -> Found:
    """Packs lie in a folder that other nodes of the job do not see.

    Why: Crash while the dataset is built: only rank 0 packs, the other nodes get no dataset and fail on None or hang.
    Bad: 16 GPUs, dataset_root in /dev/shm.
    Good: 16 GPUs, dataset_root on a file system that every node mounts.
    Fix: Move the data to a shared file system, or copy finished packs to every node and set explicit paths.
    Noticed: dataset build.
    Evidence: read in the source of 0.6.2; Megatron-Bridge issues 4207 and 4865.
    """
    if run.world_size <= _GPUS_PER_NODE:
        return
    settings = {path.setting: path.text for path in explicit_paths(run)}
    if splits_packed_by_host(run):
        settings |= {
            name: run.text_or_none(name) or ""
            for name in ("dataset.dataset_root", "dataset.hf_output_root")
            if run.is_stated(name)
        }
    for name, path in settings.items():
        if any(path == folder or path.startswith(f"{folder}/") for folder in _NODE_LOCAL):
            yield wrong(name, f"{path} for {run.world_size} GPUs", "a folder that every node mounts")


@rule("BP963", ADVICE, when=splits_packed_by_host, noticed=DATASET_BUILD)
def packs_written_and_read_at_once(run: Run) -> Found:
    """Rank 0 writes packs that other nodes read at once, where a network file system may not show them yet.

    Why: Crash while the dataset is built: Parquet files are looked for again for 45 seconds, metadata is not.
    Bad: 16 GPUs, packs made inside the job.
    Good: packs made beforehand, packed_train_data_path set.
    Fix: Build the packs before the job.
    Evidence: read in the source of 0.6.2; Megatron-Bridge issue 4207.
    Source: PSC403; bridge/data/packing/paths.py:244-294; bridge/data/builders/gpt_sft.py:441-447
    """
    if run.world_size > _GPUS_PER_NODE:
        allowed = "packs made before the job"
        yield wrong(f"{SPECS}.packed_train_data_path", f"packs made by rank 0 of {run.world_size} GPUs", allowed)


@rule("BP965", ADVICE, "PSC405; bridge/training/gpt_step.py:395-405", when=IS_PACKED)
def throughput_ignores_packing(run: Run) -> Found:
    """Operations per second are counted as if every row were one sequence.

    Why: Silent: with context parallelism the host counts attention over whole rows, so its throughput reads too high.
    Bad: context_parallel_size 2, packed rows, MFU taken from the log.
    Good: MFU computed from the lengths in the artifact's manifest.
    Fix: Compute operations from the lengths of the sequences; compare runs by tokens per second.
    Evidence: read in the source of 0.6.2; Megatron-Bridge issue 4161.
    """
    if run.context_parallel_size > 1:
        allowed = "1 for a throughput that counts packed sequences"
        yield wrong("model.context_parallel_size", f"{run.context_parallel_size} with packed rows", allowed)


@rule("BP966", ADVICE, when=PACKS_OFFLINE, noticed=FIRST_STEP)
def whole_artifact_read_for_throughput(run: Run) -> Found:
    """Every rank reads all packs into Python lists to count operations.

    Why: Slow: once, in the first step, minutes and memory for a large artifact; only LoRA of Llama-3-70B on SQuAD.
    Bad: LoRA, hf_model_id meta-llama/Meta-Llama-3-70B, hf_dataset squad, packing on.
    Good: the same model with any other dataset.
    Fix: Name the dataset by a local dataset_root.
    Evidence: read in the source of 0.6.2; the cost is inferred.
    Source: PSC406; bridge/training/utils/flop_utils.py:762-795; bridge/data/packing/algorithms.py:346-420
    """
    if not run.stated("peft"):
        return
    name = next((run.stated(f"dataset.hf_dataset.{key}") for key in ("dataset_name", "path_or_dataset")), None)
    model_id = run.text_or_none("model.hf_model_id") or ""
    if name in ("squad", "rajpurkar/squad") and "Meta-Llama-3-70B" in model_id:
        yield wrong("dataset.hf_dataset", f"{name} with {model_id}", "packs of a local dataset")


@rule("BP971", ADVICE, "PSC411; bridge/data/packing/offline.py:48-68,246-318", noticed=DATASET_BUILD)
def packing_needs_much_memory(run: Run) -> Found:
    """Rank 0 packs a large file inside the job and holds all of its tokens as Python objects.

    Why: Crash while the dataset is built: killed for memory, at about 60 to 100 bytes a token.
    Bad: training.jsonl of 40 GB packed inside the job: about 10 billion tokens, 800 GB.
    Good: packs made beforehand.
    Fix: Build the packs before the job; this package streams them from disk.
    Evidence: read in the source of 0.6.2; the bytes are inferred.
    """
    raw = _raw_training_file(run)
    num_bytes = None if raw is None else run.require_files().num_bytes(raw)
    if num_bytes is not None and num_bytes > _LARGE_RAW_BYTES:
        found = f"{raw} of {num_bytes / 2**30:.0f} GiB packed inside the job"
        yield wrong(f"{SPECS}.packed_train_data_path", found, "packs made before the job")


@rule("BP972", ADVICE, "PSC412; bridge/data/packing/offline.py:52-68", noticed=DATASET_BUILD)
def tokenizer_workers_need_descriptors(run: Run) -> Found:
    """Several processes tokenise inside the job, which needs more open files than usual limits allow.

    Why: Crash while the dataset is built: "Too many open files" where the hard limit is low; the host raises only the
        soft one.
    Bad: num_tokenizer_workers 32, ulimit -Hn 4096.
    Good: packs made beforehand, or ulimit -Hn 1048576.
    Fix: Raise the hard limit of open files in the job's script, or build the packs before the job.
    Evidence: read in the source of 0.6.2.
    """
    if splits_packed_by_host(run):
        workers = run.integer(_WORKERS, default=1)
        if workers > 1:
            yield wrong(_WORKERS, f"{workers} inside the job", "1, or a high limit of open files")


@rule("BP973", ADVICE, "PSC413; bridge/data/packing/parquet.py:81-110; bridge/data/packing/offline.py:292-309")
def packs_written_without_a_lock(run: Run) -> Found:
    """The job writes packs in place and without a lock under a folder that other jobs may use.

    Why: Crash in a later run: a job killed while it writes leaves half a file that the next takes for finished; two
        jobs at once write into each other's metadata.
    Bad: packs made inside the job under a shared dataset_root.
    Good: packs made beforehand, written under another name and renamed.
    Fix: Build the packs before the job, and check them.
    Noticed: dataset build of a later run.
    Evidence: read in the source of 0.6.2; the killed job is inferred.
    """
    splits = splits_packed_by_host(run)
    if splits:
        allowed = "packs made before the job"
        yield wrong(f"{SPECS}.packed_train_data_path", f"{' and '.join(splits)} packed inside the job", allowed)
