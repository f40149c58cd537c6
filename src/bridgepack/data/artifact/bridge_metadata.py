"""The host's packing metadata: computed from a split's statistics, written and read as its JSON list.

Source: megatron-bridge 0.6.2, `data/packing/algorithms.py` (create_packing_strategy) for the values,
`data/packing/offline.py` (prepare_gpt_sft_packed_data) for the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from bridgepack.data.files import write_text
from bridgepack.errors import ArtifactError, DataError
from bridgepack.records import SplitStatistics

BRIDGE_METADATA_FILE = "bridge_metadata.json"

_COUNTS = ("dataset_max_seqlen", "max_samples_per_bin", "pack_size", "min_packed_seqlen")
_MEANS = ("packing_factor", "packing_efficiency")


class BridgeMetadataEntry(TypedDict):
    """One split, under the host's names; lengths are runtime tokens with alignment padding.

    Attributes:
        dataset_max_seqlen: longest sequence.
        max_samples_per_bin: most sequences in one pack.
        packing_factor: mean number of sequences in a pack, two decimals.
        packing_efficiency: percent of the capacity used, two decimals.
        pack_size: packed_sequence_size.
        min_packed_seqlen: tokens of the emptiest pack.
    """

    dataset_max_seqlen: int
    max_samples_per_bin: int
    packing_factor: float
    packing_efficiency: float
    pack_size: int
    min_packed_seqlen: int


def bridge_metadata_entry(statistics: SplitStatistics, *, packed_sequence_size: int) -> BridgeMetadataEntry:
    """Return a split's entry, equal to what the host would compute from the same packs.

    Example: packs of 4 + 4 and 8 runtime tokens, packed_sequence_size 10 -> packing_factor 1.5,
    packing_efficiency 80.0, dataset_max_seqlen 8, min_packed_seqlen 8.

    Raises:
        DataError: the split has no packs.
    """
    if statistics.num_packs == 0:
        raise DataError("num_packs is 0; the host needs at least one pack in a split. Leave the split out.")
    mean_pack_tokens = (statistics.num_tokens + statistics.num_alignment_tokens) / statistics.num_packs
    return BridgeMetadataEntry(
        dataset_max_seqlen=statistics.max_runtime_length,
        max_samples_per_bin=statistics.max_sequences_per_pack,
        packing_factor=round(statistics.num_sequences / statistics.num_packs, 2),
        packing_efficiency=round(mean_pack_tokens / packed_sequence_size * 100, 2),
        pack_size=packed_sequence_size,
        min_packed_seqlen=statistics.min_pack_tokens,
    )


def write_bridge_metadata(path: Path, entries: Sequence[BridgeMetadataEntry]) -> None:
    """Write the whole list, training first; an existing file is replaced, never appended to."""
    write_text(path, json.dumps(list(entries), indent=2) + "\n")


def read_bridge_metadata(path: Path) -> list[BridgeMetadataEntry]:
    """Return the file's entries.

    Raises:
        ArtifactError: the file is missing, is no JSON list of objects, or holds a value of another kind.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} does not exist; the host reads it. Rebuild the artifact.") from error
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be read as JSON: {error}. Rebuild the artifact.") from error
    if not isinstance(content, list) or not content:
        raise ArtifactError(
            f"{path} holds {_shown(content)}; it must be a JSON list with one object per split. Rebuild the artifact."
        )
    for position, entry in enumerate(content):
        _check_entry(entry, where=f"{path}, entry {position}")
    return cast(list[BridgeMetadataEntry], content)


def _check_entry(entry: Any, *, where: str) -> None:
    if not isinstance(entry, Mapping):
        raise ArtifactError(f"{where} is {_shown(entry)}; it must be an object. Rebuild the artifact.")
    for name in (*_COUNTS, *_MEANS):
        if name not in entry:
            raise ArtifactError(f"{where}: {name} is missing; the host reads it. Rebuild the artifact.")
        value = entry[name]
        is_number = type(value) is int or (name in _MEANS and type(value) is float)
        if not is_number or not 0 <= value < float("inf"):
            kind = "a non-negative integer" if name in _COUNTS else "a finite non-negative number"
            message = f"{where}: {name} is {_shown(value)}; it must be {kind}. Rebuild the artifact."
            raise ArtifactError(message)


def _shown(value: Any) -> str:
    return json.dumps(value)[:80]
