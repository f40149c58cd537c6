"""The digests of a split's packs: a file of the plan, or in artifacts without it, read from the packs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.artifact.artifact import Artifact, digests_file
from bridgepack.data.files import replaced_when_whole
from bridgepack.data.reading.remote import arrow_source
from bridgepack.data.shards.digests import Digests, digests_of_rows
from bridgepack.data.shards.row_groups import arrow_array, numpy_array
from bridgepack.errors import ArtifactError

_COLUMN = "digest"


def write_digests(path: Path, parts: Sequence[Digests]) -> None:
    """Write the digests of a split's packs, in the order of the packs; each part has shape [num_packs], uint64."""
    table = pa.table({_COLUMN: arrow_array(np.concatenate(parts))})
    with replaced_when_whole(path) as temporary:
        pq.write_table(table, temporary, compression="none", use_dictionary=False, store_schema=False)


def has_digests(artifact: Artifact, split: str) -> bool:
    """Return whether an artifact's manifest lists the digests of a split."""
    return any(record.path == digests_file(split) for record in artifact.manifest.files)


def digests_of_split(artifact: Artifact, split: str) -> Digests:
    """Return the digests of a split's packs, in order; shape [num_packs], uint64.

    Without the file it reads all packs, which takes seconds for a billion tokens.

    Raises:
        ArtifactError: the split does not exist, or its digests or packs cannot be read.
    """
    num_packs = artifact.split(split).statistics.num_packs
    if not has_digests(artifact, split):
        eos_token_id = int(artifact.manifest.tokenizer["eos_token_id"])
        parts = [digests_of_rows(batch, eos_token_id=eos_token_id) for batch in artifact.iter_batches(split)]
        digests = np.concatenate([np.empty(0, np.uint64), *parts])
    else:
        path = artifact.folder / digests_file(split)
        try:
            digests = numpy_array(pq.read_table(arrow_source(path), columns=[_COLUMN])[_COLUMN].combine_chunks())
        except (pa.ArrowException, OSError, LookupError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ArtifactError(f"{path} cannot be read: {reason}. Build the artifact again.") from None
    if digests.dtype != np.uint64 or len(digests) != num_packs:
        raise ArtifactError(
            f"the digests of {split} in {str(artifact.folder)!r} are {len(digests)} values of type {digests.dtype}; "
            f"allowed: {num_packs} of type uint64, one for each pack. Build the artifact again."
        )
    return digests
