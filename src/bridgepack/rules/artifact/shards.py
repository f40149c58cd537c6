"""Rules on the files of an artifact, Parquet and `.npy`: present, readable, valid content, bytes as in the manifest."""

from collections import defaultdict

from bridgepack.records import LOSS_MASK, ROW_COLUMNS, Manifest, ShardFacts, ShardRecord
from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import require
from bridgepack.rules.judging.facts import MANIFEST_FILE, ArtifactFacts, element_of, is_usable
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, artifact_rule, wrong

#: Maximum stored tokens of a row group before reading one row is slow: four times the best range, 32k to 64k.
MAX_ROW_GROUP_TOKENS = 262_144
#: Maximum shards of a split: each stays open in every DataLoader worker, and 1024 open files is the usual limit.
MAX_SHARDS = 128
#: Arrow `list` offsets are int32.
MAX_LIST_ELEMENTS = 2**31 - 1
#: Maximum file size before loading it whole on every rank is reported.
MAX_NPY_BYTES = 1 << 30
#: Packages whose arrays are pickled with functions that the host's unpickler refuses.
_ARRAY_PACKAGES = ("torch", "numpy")


@artifact_rule("BP301", ERROR, "PSB301")
def column_missing(facts: ArtifactFacts) -> Found:
    """A shard lacks one of input_ids, loss_mask, seq_start_id.

    Why: Crash at start: the host checks the schema of every shard.
    Bad: a shard with the columns input_ids and loss_mask.
    Good: a shard with the columns input_ids, loss_mask and seq_start_id.
    Fix: Write all three columns; do not replace a missing loss_mask with ones.
    """
    for shard in _readable(facts):
        missing = [name for name in ROW_COLUMNS if name not in shard.columns]
        if missing:
            yield wrong(shard.path, f"no {', no '.join(missing)}", ", ".join(ROW_COLUMNS))


@artifact_rule("BP325", ERROR, "PSB307")
def column_not_integer_list(facts: ArtifactFacts) -> Found:
    """A column is not a list of integers.

    Why: Crash later: the host slices a list per pack and makes integer tensors of it, in a DataLoader worker.
    Bad: input_ids of type list<element: string>. Good: input_ids of type list<element: int32>.
    Fix: Write input_ids and seq_start_id as lists of int32, loss_mask as a list of int8.
    """
    for shard in _readable(facts):
        for name in ROW_COLUMNS:
            if name in shard.columns and not is_usable(name, shard.columns[name]):
                yield wrong(f"{shard.path} column {name}", shard.columns[name], "a list of integers")


@artifact_rule("BP326", WARNING, "PSB310")
def loss_mask_stored_as_float(facts: ArtifactFacts) -> Found:
    """loss_mask is a list of floating-point numbers.

    Why: Silent: weights between 0 and 1 become 0, because the host casts the mask to integers.
    Bad: loss_mask of type list<element: float>. Good: loss_mask of type list<element: int8>.
    Fix: Write loss_mask as a list of int8.
    """
    for shard in _readable(facts):
        element = element_of(shard.columns.get(LOSS_MASK, ""))
        if element.endswith(("float", "double")):
            yield wrong(f"{shard.path} column {LOSS_MASK}", shard.columns[LOSS_MASK], "a list of int8")


@artifact_rule("BP316", WARNING, "PSB316")
def row_group_too_large(facts: ArtifactFacts) -> Found:
    """A row group of several packs holds too many tokens.

    Why: Slow: reading one pack reads its whole row group: 18 times slower with 500 packs of 4096 tokens than with 16.
    Bad: row groups of 500 packs of 4096 tokens. Good: row groups of 16 packs of 4096 tokens.
    Fix: Write row groups of 32k to 64k tokens, or of a single pack if packs are longer.
    """
    for shard in _readable(facts):
        sizes = zip(shard.row_group_tokens, shard.row_group_rows, strict=True)
        large = [(tokens, rows) for tokens, rows in sizes if tokens > MAX_ROW_GROUP_TOKENS and rows > 1]
        if large:
            actual = f"{max(large)[0]} stored tokens in a row group of {max(large)[1]} packs"
            yield wrong(shard.path, actual, f"at most {MAX_ROW_GROUP_TOKENS}, or one pack")


@artifact_rule("BP317", WARNING, "PSB317")
def list_offsets_overflow(facts: ArtifactFacts) -> Found:
    """A row group holds more list elements than int32 offsets can count.

    Why: Crash at the first read of the row group, or when the host gets a chunked column, which it does not expect.
    Bad: a row group of 2**31 tokens of type list<element: int32>.
    Good: a row group of 65536 tokens of type list<element: int32>. Fix: Write small row groups and several shards.
    """
    for shard in _readable(facts):
        if max(shard.row_group_tokens, default=0) > MAX_LIST_ELEMENTS:
            actual = f"{max(shard.row_group_tokens)} stored tokens in a row group"
            yield wrong(shard.path, actual, f"at most {MAX_LIST_ELEMENTS}")


@artifact_rule("BP323", WARNING, "PSB323")
def too_many_shards(facts: ArtifactFacts) -> Found:
    """A split has too many shards.

    Why: Crash later: each visited shard stays open in every DataLoader worker, until there are too many open files
        (OSError).
    Bad: 2000 shards in one split. Good: 64 shards in one split. Fix: Write fewer, larger shards, or raise `ulimit -n`.
    """
    for split, shards in facts.shards.items():
        if len(shards) > MAX_SHARDS:
            yield wrong(split, f"{count_text(len(shards), 'shard')}", f"at most {MAX_SHARDS}")


@artifact_rule("BP340", ERROR, "PSB204")
def shard_missing(facts: ArtifactFacts) -> Found:
    """A shard is missing.

    Why: Silent: the host trains on the other shards of a glob or folder; a single missing file it packs again.
    Bad: the manifest lists shards 0 and 1, the folder holds shard 0. Good: the folder holds both.
    Fix: Copy the artifact again, completely, or build it again.
    """
    for shard in facts.all_shards:
        if not shard.exists:
            yield wrong(shard.path, shard.read_error or "no such file", "every shard of the artifact")


@artifact_rule("BP341", ERROR, "PSB301")
def shard_unreadable(facts: ArtifactFacts) -> Found:
    """A shard cannot be opened, or its packs cannot be read to the end.

    Why: Crash at start if the footer is damaged. If a row group is damaged, the run crashes later, when a pack of it is
        read.
    Bad: a file cut off in the middle; a pack that is null. Good: a file that reads to its end.
    Fix: Copy the shard again, or build the artifact again.
    """
    for shard in facts.all_shards:
        if shard.layout_error is not None or shard.forbidden_globals:
            continue  # BP313 and BP314 say what it holds
        error = shard.read_error if shard.exists else None
        error = error or facts.unreadable_shards.get(shard.path)
        if error is not None:
            yield wrong(shard.path, error, "a file that reads to its end")


@artifact_rule("BP342", ERROR, "bridgepack manifest")
def shard_size_differs(facts: ArtifactFacts) -> Found:
    """A shard's size differs from the manifest.

    Why: Crash or silent: the file was cut off or replaced after the artifact was built.
    Bad: 900 bytes, 1000 in the manifest. Good: 1000 bytes, 1000 in the manifest.
    Fix: Copy the shard again, or build the artifact again.
    """
    for shard, record in _promised_shards(facts):
        if shard.num_bytes is not None and shard.num_bytes != record.num_bytes:
            yield wrong(shard.path, f"{shard.num_bytes} bytes", f"{record.num_bytes} bytes")


@artifact_rule("BP343", ERROR, "bridgepack manifest")
def shard_checksum_differs(facts: ArtifactFacts) -> Found:
    """A shard's checksum differs from the manifest.

    Why: Silent: the packs are not the packs that were built and checked.
    Bad: sha256 bb..., aa... in the manifest. Good: sha256 aa..., aa... in the manifest.
    Fix: Copy the shard again, or build the artifact again; never edit a shard in place.
    """
    pairs = [(shard, record) for shard, record in _promised_shards(facts) if shard.sha256 is not None]
    for shard, record in require(pairs or None, "no checksum was computed"):
        if shard.sha256 != record.sha256:
            yield wrong(shard.path, f"sha256 {shard.sha256}", f"sha256 {record.sha256}")


@artifact_rule("BP344", ERROR, "bridgepack manifest")
def shard_pack_count_differs(facts: ArtifactFacts) -> Found:
    """A shard's number of packs differs from the manifest.

    Why: Silent: step counts and epochs are computed from the manifest.
    Bad: 3 packs, 4 in the manifest. Good: 4 packs, 4 in the manifest.
    Fix: Copy the shard again, or build the artifact again.
    """
    for shard, record in _promised_shards(facts):
        if shard.num_rows is not None and shard.num_rows != record.num_rows:
            yield wrong(shard.path, f"{count_text(shard.num_rows, 'pack')}", f"{count_text(record.num_rows, 'pack')}")


@artifact_rule("BP345", ERROR, "PSB212")
def shard_not_listed(facts: ArtifactFacts) -> Found:
    """The artifact's folder contains a file that its manifest does not list.

    Why: Silent: the host trains on every Parquet file that a folder or a glob contains.
    Bad: training/old.idx.parquet beside the shards of the manifest.
    Good: only the files of the manifest, report.html, README.md and hidden files.
    Fix: Move the file out of the artifact.
    """
    facts.require_manifest()
    for path in facts.unlisted_files:
        yield wrong(path, f"not in {MANIFEST_FILE}", "only files of the manifest")


@artifact_rule("BP353", ERROR, "bridgepack manifest")
def file_differs(facts: ArtifactFacts) -> Found:
    """A file beside the shards is not the one that was built: missing, changed, or a link out of the artifact.

    Why: Silent: plan and ledger name the wrong source rows, or the host reads wrong bounds from its metadata.
    Bad: plan/training.parquet of another artifact.
    Good: plan/training.parquet as it was built; bridge_metadata.json with entries that the host has appended.
    Fix: Copy the file again, or build the artifact again.
    """
    manifest = facts.require_manifest()
    require(manifest.files or None, f"a manifest of format version {manifest.format_version} lists only shards")
    for path, problem in facts.changed_files.items():
        yield wrong(path, problem, "the file that was built")


@artifact_rule("BP346", ERROR, "PSB320")
def shard_repeated(facts: ArtifactFacts) -> Found:
    """Two shards have the same bytes, or one shard is listed twice.

    Why: Silent: its packs are trained twice as often, or the validation split is training data.
    Bad: training/shard-00000 and validation/shard-00000 with one sha256. Good: shards that differ.
    Fix: Remove the copy and build the artifact again.
    """
    records = _records(facts.manifest) if facts.manifest else {}
    places = defaultdict(list)
    for shard in facts.all_shards:
        record = records.get(shard.path)
        places[shard.sha256 or (record and record.sha256) or shard.path].append(shard.path)
    for paths in places.values():
        for path in paths[1:]:
            yield wrong(path, f"same bytes as {paths[0]}", "every shard once")


@artifact_rule("BP313", ERROR, "PSB313; data/packing/gpt_sft.py (GPTSFTPackedDataset.__getitem__)")
def npy_values_not_lists(facts: ArtifactFacts) -> Found:
    """A `.npy` shard is not a one-dimensional array of dicts of Python lists.

    Why: Silent: if seq_start_id is a numpy array, the host adds the pack's length to every start instead of appending
        it, so boundaries are wrong. Crash at start: tensors are refused, and an array of numbers has no keys.
    Bad: {"input_ids": np.array([11, 12, 2]), "loss_mask": np.array([1, 1, 0]), "seq_start_id": np.array([0])}.
    Good: {"input_ids": [11, 12, 2], "loss_mask": [1, 1, 0], "seq_start_id": [0]}.
    Fix: Write the packs as Parquet, or call tolist() on every value before np.save.
    Noticed: dataset build, a later step, or never. Evidence: executed with megatron-bridge 0.6.2.
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
    """The pickle in a `.npy` shard imports more than lists, dicts, numbers and arrays of them.

    Why: Crash at start: the host's unpickler refuses it (exit 1). Anything that loads it with np.load runs the code.
    Bad: a pickle that names os.system, or torch.storage._load_from_bytes. Good: a pickle of dicts of lists of integers.
    Fix: Do not load the file with numpy; rebuild the packs from their source as Parquet.
    Noticed: dataset build. Evidence: read in the source of megatron-bridge 0.6.2.
    """
    for shard in _npy_shards(facts):
        for name in shard.forbidden_globals:
            yield wrong(shard.path, f"imports {name}", "lists, dicts and numbers")


@artifact_rule("BP315", WARNING, "PSB315; data/packing/gpt_sft.py (_safe_load_packed_npy)")
def npy_loaded_whole(facts: ArtifactFacts) -> Found:
    """A `.npy` shard is large.

    Why: Slow, or it runs out of memory: every rank loads the whole file as lists of ten times its size; its workers
        copy them.
    Bad: training_4096.npy of 4 GiB, on 8 ranks per node. Good: the same packs as Parquet.
    Fix: Write the packs as Parquet; the host reads row groups as it needs them.
    Noticed: dataset build, if memory runs out.
    Evidence: read in the source of megatron-bridge 0.6.2; the factor of ten is measured.
    """
    for shard in _npy_shards(facts):
        if (shard.num_bytes or 0) > MAX_NPY_BYTES:
            actual = f"{shard.num_bytes} bytes, loaded by every rank"
            yield wrong(shard.path, actual, f"at most {MAX_NPY_BYTES}, or Parquet")


def _npy_shards(facts: ArtifactFacts) -> list[ShardFacts]:
    return [shard for shard in facts.all_shards if shard.format == "npy"]


def _readable(facts: ArtifactFacts) -> list[ShardFacts]:
    shards = [shard for shard in facts.all_shards if shard.exists and shard.read_error is None]
    return require(shards or None, "no shard could be opened")


def _records(manifest: Manifest) -> dict[str, ShardRecord]:
    return {record.path: record for split in manifest.splits for record in split.shards}


def _promised_shards(facts: ArtifactFacts) -> list[tuple[ShardFacts, ShardRecord]]:
    records = _records(facts.require_manifest())
    return [(shard, records[shard.path]) for shard in facts.all_shards if shard.path in records]
