"""The host's packing metadata: computed from a split's statistics, written and read as its JSON list.

Source: megatron-bridge 0.6.2, `data/packing/algorithms.py` (create_packing_strategy) for the values,
`data/packing/offline.py` (prepare_gpt_sft_packed_data) for the file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from bridgepack.data.files import refuse_special, write_text
from bridgepack.errors import ArtifactError, DataError
from bridgepack.records import SplitStatistics

BRIDGE_METADATA_FILE = "bridge_metadata.json"

type _Count = Annotated[int, Field(ge=0, strict=True)]
type _Mean = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


@with_config(ConfigDict(extra="allow"))
class BridgeMetadataEntry(TypedDict):
    """One split, under the host's names; lengths are runtime tokens with alignment padding."""

    dataset_max_seqlen: _Count  #: longest sequence
    max_samples_per_bin: _Count  #: maximum sequences in one pack
    packing_factor: _Mean  #: mean number of sequences in a pack, two decimals
    packing_efficiency: _Mean  #: percent of the capacity used, two decimals
    pack_size: _Count  #: packed_sequence_size
    min_packed_seqlen: _Count  #: tokens of the emptiest pack


_ENTRIES = TypeAdapter(Annotated[list[BridgeMetadataEntry], Field(min_length=1)])


def bridge_metadata_entry(statistics: SplitStatistics, *, packed_sequence_size: int) -> BridgeMetadataEntry:
    """Return a split's entry, equal to what the host would compute from the same packs.

    Example: packs of 4 + 4 and 8 runtime tokens, packed_sequence_size 10 -> packing_factor 1.5,
    packing_efficiency 80.0, dataset_max_seqlen 8, min_packed_seqlen 8.

    Raises:
        DataError: the split has no packs.
    """
    if statistics.num_packs == 0:
        raise DataError("num_packs is 0; Megatron-Bridge needs at least one pack in a split. Remove the split.")
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
    """Write the whole list, training first; replaces an existing file, never appends to it."""
    write_text(path, _text(entries))


def built_part(content: bytes, num_splits: int) -> bytes:
    """Return the bytes of a metadata file that the build wrote, without entries that the host has appended.

    Source: megatron-bridge 0.6.2, `data/packing/offline.py` (prepare_gpt_sft_packed_data).
    """
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError):
        return content
    has_more = isinstance(entries, list) and len(entries) > num_splits
    return _text(entries[:num_splits]).encode() if has_more else content


def _text(entries: Sequence[Any]) -> str:
    return json.dumps(list(entries), indent=2) + "\n"


def read_bridge_metadata(path: Path) -> list[BridgeMetadataEntry]:
    """Return the file's entries.

    Raises:
        ArtifactError: the file is missing, is not a JSON list of objects, or holds a value of the wrong type.
    """
    try:
        refuse_special(path)
        return _ENTRIES.validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} does not exist; Megatron-Bridge reads it. Rebuild the artifact.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}. Rebuild the artifact.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f", entry {part}" if isinstance(part, int) else f": {part}" for part in first["loc"])
        problem = f"{where} is {first['input']!r:.80}"
        raise ArtifactError(f"{path}{problem}: {first['msg']}. Rebuild the artifact.") from error
