"""Rules that compare the host's metadata file with the packs of the shards.

The host reads three values over all entries: max(max_samples_per_bin), max(dataset_max_seqlen) and
min(min_packed_seqlen). Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py (collate_fn).
"""

from collections.abc import Mapping
from typing import Any

from bridgepack.rules.judging.context import CannotJudgeError, require_known
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, artifact_rule, wrong
from bridgepack.rules.judging.truth import SplitTruth

MAX_SEQUENCES = "max_samples_per_bin"
MAX_LENGTH = "dataset_max_seqlen"
MIN_WIDTH = "min_packed_seqlen"
PACK_SIZE = "pack_size"
REQUIRED_KEYS = (MAX_SEQUENCES, MAX_LENGTH, MIN_WIDTH)
_SHAPE = "one JSON list, an object per split"


@artifact_rule("BP401", WARNING, "PSB401")
def metadata_missing(facts: ArtifactFacts) -> Found:
    """The artifact has no metadata file.

    Why: Crash at start with pad_cu_seqlens, which needs the file. Without pad_cu_seqlens the host does not read it.
    Bad: a manifest and shards only. Good: a manifest, shards and bridge_metadata.json.
    Fix: Copy the artifact again, completely, or build it again.
    """
    facts.require_manifest()
    if not facts.metadata.exists:
        yield wrong(facts.metadata.path, "no such file", _SHAPE)


@artifact_rule("BP403", ERROR, "PSB403")
def metadata_not_a_list_of_objects(facts: ArtifactFacts) -> Found:
    """The metadata file is not a JSON list of objects.

    Why: Crash at start or at the first collate: the host raises JSONDecodeError or TypeError, or takes the max() of an
        empty sequence.
    Bad: an object at the top, one object per line, or []. Good: [{...training...}, {...validation...}].
    Fix: Write one JSON list with an object per split; `bridgepack build` does.
    """
    problem = _problem(facts)
    if problem is not None:
        yield wrong(facts.metadata.path, problem, _SHAPE)


@artifact_rule("BP404", ERROR, "PSB404")
def metadata_key_missing(facts: ArtifactFacts) -> Found:
    """A value that the host reads is missing in an entry, or is not an integer.

    Why: Crash at the first collate with pad_cu_seqlens: the host raises a KeyError.
    Bad: [{"max_samples_per_bin": 2, "dataset_max_seqlen": 3}].
    Good: [{"max_samples_per_bin": 2, "dataset_max_seqlen": 3, "min_packed_seqlen": 5}].
    Fix: Build again; metadata of old versions lacks min_packed_seqlen.
    """
    for position, entry in enumerate(_entries(facts)):
        for key in REQUIRED_KEYS:
            if type(entry.get(key)) is not int:
                actual = repr(entry[key]) if key in entry else "no such key"
                yield wrong(f"{facts.metadata.path}[{position}].{key}", actual, "an integer")


@artifact_rule("BP405", ERROR, "PSB405")
def metadata_max_samples_too_small(facts: ArtifactFacts) -> Found:
    """A pack has more sequences than the metadata's largest max_samples_per_bin.

    Why: Silent with pad_cu_seqlens: cu_seqlens of this pack have another shape, and CUDA graphs replay a stale one.
    Bad: max_samples_per_bin 1, a pack of 2 sequences. Good: max_samples_per_bin 2, a pack of 2 sequences.
    Fix: Build again, or take max_samples_per_bin from the packs.
    """
    return _too_small(facts, MAX_SEQUENCES, max(truth.max_sequences_per_row for truth in facts.require_truths()))


@artifact_rule("BP406", ERROR, "PSB406")
def metadata_max_length_too_small(facts: ArtifactFacts) -> Found:
    """A sequence is longer, in runtime tokens, than the metadata's largest dataset_max_seqlen.

    Why: Silent with pad_cu_seqlens: the attention kernel gets a max_seqlen that is too small, and computes wrong
        results or reads memory that is not its own. Bad: dataset_max_seqlen 2, a sequence of 3 runtime tokens.
    Good: dataset_max_seqlen 3, a sequence of 3 runtime tokens.
    Fix: Build again, or take dataset_max_seqlen from the packs: stored length - 1.
    """
    return _too_small(facts, MAX_LENGTH, max(truth.max_runtime_length for truth in facts.require_truths()))


@artifact_rule("BP407", WARNING, "PSB407")
def metadata_min_width_too_large(facts: ArtifactFacts) -> Found:
    """A pack is narrower, in runtime tokens, than the metadata's smallest min_packed_seqlen.

    Why: Silent with pad_cu_seqlens: the padding at the pack's end is longer than the max_seqlen that the kernel gets.
    Bad: min_packed_seqlen 6, a pack of 5 runtime tokens. Good: min_packed_seqlen 5, a pack of 5 runtime tokens.
    Fix: Build again, or take min_packed_seqlen from the packs.
    """
    smallest = min(_values(facts, MIN_WIDTH))
    narrowest = min(truth.min_row_width for truth in facts.require_truths())
    if smallest > narrowest:
        yield wrong(f"{facts.metadata.path} {MIN_WIDTH}", str(smallest), f"at most {narrowest}, the narrowest pack")


@artifact_rule("BP408", WARNING, "PSB408")
def metadata_has_stale_entries(facts: ArtifactFacts) -> Found:
    """The metadata has more entries than the artifact has splits.

    Why: Silent: the host appends an entry per packing run; old entries enlarge max_seqlen, which costs time and memory.
    Bad: three entries, two splits. Good: two entries, two splits.
    Fix: Delete the metadata file together with the packs, and build again.
    """
    num_entries, num_splits = len(_entries(facts)), len(facts.shards)
    if num_entries > num_splits:
        yield wrong(facts.metadata.path, f"{num_entries} entries", f"{num_splits}, one per split")


@artifact_rule("BP409", WARNING, "PSB409")
def metadata_entry_missing(facts: ArtifactFacts) -> Found:
    """The metadata has fewer entries than the artifact has splits.

    Why: Silent with pad_cu_seqlens: the shapes of the other split's packs differ.
    Bad: one entry, two splits. Good: two entries, two splits. Fix: Build again; there is one entry per split.
    """
    num_entries, num_splits = len(_entries(facts)), len(facts.shards)
    if num_entries < num_splits:
        yield wrong(facts.metadata.path, f"{num_entries} entries", f"{num_splits}, one per split")


@artifact_rule("BP410", WARNING, "PSB410")
def metadata_pack_size_differs(facts: ArtifactFacts) -> Found:
    """An entry's pack_size is not the artifact's packed_sequence_size.

    Why: Silent: the host never compares them; the file belongs to other packs.
    Bad: pack_size 4096, packed_sequence_size 8192. Good: pack_size 8192, packed_sequence_size 8192.
    Fix: Use the metadata file of this artifact, or build again.
    """
    size = require_known(facts.context.packed_sequence_size, "packed_sequence_size")
    for position, entry in enumerate(_entries(facts)):
        if entry.get(PACK_SIZE) != size:
            yield wrong(f"{facts.metadata.path}[{position}].{PACK_SIZE}", str(entry.get(PACK_SIZE)), str(size))


@artifact_rule("BP412", WARNING, "PSB411")
def metadata_differs_from_packs(facts: ArtifactFacts) -> Found:
    """A bound of a split's entry is wider than its packs need, or its packing_factor or packing_efficiency is wrong.

    Why: Slow with pad_cu_seqlens: bounds that are too wide cost time and memory. A wrong factor or efficiency misleads
        whoever reads it.
    Bad: dataset_max_seqlen 100, longest sequence 3 runtime tokens.
    Good: dataset_max_seqlen 3, longest sequence 3 runtime tokens. Fix: Build again, or take the values from the packs.
    """
    entries, splits = _entries(facts), list(facts.shards)
    if len(entries) != len(splits):
        raise CannotJudgeError("the metadata does not have one entry per split")
    size = require_known(facts.context.packed_sequence_size, "packed_sequence_size")
    if size < 1:
        raise CannotJudgeError("packed_sequence_size is less than 1 (BP321)")
    for truth in facts.require_complete_truths():
        position = splits.index(truth.split)
        for key, actual in _expected_values(truth, size).items():
            if _misleads(entries[position], key, actual, is_ours=facts.manifest is not None):
                where = f"{facts.metadata.path}[{position}].{key}"
                actual_text = repr(entries[position][key]) if key in entries[position] else "no such key"
                yield wrong(where, actual_text, f"{actual}, from the packs of {truth.split}", group=where)


def _expected_values(truth: SplitTruth, size: int) -> Mapping[str, float]:
    """Return an entry's values, without pack_size, as the host computes them.

    Source: megatron-bridge 0.6.2, data/packing/algorithms.py (create_packing_strategy).
    """
    return {
        MAX_LENGTH: truth.max_runtime_length,
        MAX_SEQUENCES: truth.max_sequences_per_row,
        MIN_WIDTH: truth.min_row_width,
        "packing_factor": round(truth.num_sequences / truth.num_rows, 2),
        "packing_efficiency": round(truth.num_tokens / truth.num_rows / size * 100, 2),
    }


def _misleads(entry: Mapping[str, Any], key: str, actual: float, *, is_ours: bool) -> bool:
    """Return whether a value is wrong; other rules report bounds that are too narrow or not integers."""
    claim = entry.get(key)
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        return key not in REQUIRED_KEYS and (is_ours or key in entry)
    if key in (MAX_LENGTH, MAX_SEQUENCES):
        return claim > actual
    return claim < actual if key == MIN_WIDTH else claim != actual


def _problem(facts: ArtifactFacts) -> str | None:
    """Return why the file is not a list of objects, or None if it is one."""
    metadata = facts.metadata
    if not metadata.exists:
        raise CannotJudgeError("the metadata file is missing")
    if metadata.read_error is not None or not isinstance(metadata.content, list):
        return metadata.read_error or f"{type(metadata.content).__name__} at the top"
    other_types = [type(entry).__name__ for entry in metadata.content if not isinstance(entry, dict)]
    if not metadata.content:
        return "an empty list"
    return f"{other_types[0]} in the list" if other_types else None


def _entries(facts: ArtifactFacts) -> list[Mapping[str, Any]]:
    if _problem(facts) is not None:
        raise CannotJudgeError("the metadata file is not a list of objects (BP403)")
    entries: list[Mapping[str, Any]] = facts.metadata.content
    return entries


def _values(facts: ArtifactFacts, key: str) -> list[int]:
    values: list[Any] = [entry.get(key) for entry in _entries(facts)]
    if any(type(value) is not int for value in values):
        raise CannotJudgeError(f"an entry of the metadata has no integer {key} (BP404)")
    return values


def _too_small(facts: ArtifactFacts, key: str, actual: int) -> Found:
    claim = max(_values(facts, key))
    if claim < actual:
        yield wrong(f"{facts.metadata.path} {key}", str(claim), f"at least {actual}, from the packs")
