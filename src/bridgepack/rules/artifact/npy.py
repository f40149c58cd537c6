"""Rules on `.npy` shards, the packed format of megatron-bridge 0.3; those of other formats pass them."""

from bridgepack.records import ShardFacts
from bridgepack.rules.engine.facts import ArtifactFacts
from bridgepack.rules.engine.rule import ERROR, WARNING, Found, artifact_rule, wrong

#: Size from which loading a whole file on every rank is a cost to know of.
MAX_NPY_BYTES = 1 << 30
#: Packages whose arrays a pickle rebuilds by functions that the host's unpickler refuses.
_ARRAY_PACKAGES = ("torch", "numpy")


@artifact_rule("BP313", ERROR, "PSB313; data/packing/gpt_sft.py (GPTSFTPackedDataset.__getitem__)")
def npy_values_not_lists(facts: ArtifactFacts) -> Found:
    """A `.npy` shard is no one-dimensional array of dicts of Python lists.

    Why: Silent: with a numpy array for seq_start_id the row's length is added to every start instead of after the last,
        so boundaries are wrong. Crash at start: tensors are refused, and an array of numbers has no keys.
    Bad: {"input_ids": np.array([11, 12, 2]), "loss_mask": np.array([1, 1, 0]), "seq_start_id": np.array([0])}.
    Good: {"input_ids": [11, 12, 2], "loss_mask": [1, 1, 0], "seq_start_id": [0]}.
    Fix: Write the rows as Parquet, or call tolist() on every value before np.save.
    Noticed: dataset build, a later step, or never.
    Evidence: executed with megatron-bridge 0.6.2.
    """
    for shard in _npy_shards(facts):
        if shard.layout_error is not None:
            yield wrong(shard.path, shard.layout_error, "a one-dimensional object array of dicts of lists")
        for key, types in shard.value_types.items():
            yield wrong(f"{shard.path} {key}", f"values of type {', '.join(types)}", "lists")
        for name in shard.forbidden_globals:
            if name.partition(".")[0] in _ARRAY_PACKAGES:
                yield wrong(shard.path, f"values rebuilt by {name}", "lists")


@artifact_rule("BP314", ERROR, "PSB314; utils/safe_pickle.py (safe_load_npy)")
def npy_pickle_unsafe(facts: ArtifactFacts) -> Found:
    """The pickle in a `.npy` shard asks for more than lists, dicts, numbers and arrays of them.

    Why: Crash at start with 0.6, whose unpickler refuses it (exit 1). Silent before: np.load runs the code it names.
    Bad: a pickle that names os.system, or torch.storage._load_from_bytes.
    Good: a pickle of dicts of lists of integers.
    Fix: Do not load the file with numpy or an old host; get the rows from their source again, and write Parquet.
    Noticed: dataset build with 0.6; never with 0.5 and older.
    Evidence: read in the source of megatron-bridge 0.6.2.
    """
    for shard in _npy_shards(facts):
        for name in shard.forbidden_globals:
            yield wrong(shard.path, f"asks for {name}", "lists, dicts and numbers")


@artifact_rule("BP315", WARNING, "PSB315; data/packing/gpt_sft.py (_safe_load_packed_npy)")
def npy_loaded_whole(facts: ArtifactFacts) -> Found:
    """A `.npy` shard is large.

    Why: Slow, or a crash for memory: every rank loads the whole file, ten times its size as lists; its workers copy it.
    Bad: training_4096.npy of 4 GiB, on 8 ranks per node.
    Good: the same rows as Parquet.
    Fix: Write the rows as Parquet; the host reads row groups as it needs them.
    Noticed: dataset build, where memory ends.
    Evidence: read in the source of megatron-bridge 0.6.2; the factor of ten is measured.
    """
    for shard in _npy_shards(facts):
        if (shard.num_bytes or 0) > MAX_NPY_BYTES:
            found = f"{shard.num_bytes} bytes, loaded by every rank"
            yield wrong(shard.path, found, f"at most {MAX_NPY_BYTES}, or Parquet")


def _npy_shards(facts: ArtifactFacts) -> list[ShardFacts]:
    return [shard for shard in facts.all_shards if shard.format == "npy"]
