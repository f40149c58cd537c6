"""The lengths of a split's sequences and what they add up to, from its plan or its rows.

Memory holds the distinct lengths, 24 bytes per pack, and the sequences of the few packs that are samples.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray, aligned_runtime_lengths

#: Packs whose sequences are samples.
_DRAWN_PACKS = 12
#: Stored tokens read at a time.
_BATCH_TOKENS = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitLengths:
    """The lengths of a split, in runtime tokens with alignment padding."""

    lengths: IntArray  #: distinct lengths of its sequences, ascending; shape [num_lengths], int64
    counts: IntArray  #: number of sequences of each length; shape [num_lengths], int64
    pack_tokens: IntArray  #: runtime tokens of each pack; shape [num_packs], int64
    pack_sequences: IntArray  #: number of sequences in each pack; shape [num_packs], int64
    #: attention work of each pack, the sum of its squared lengths; shape [num_packs], float64
    pack_costs: npt.NDArray[np.float64]
    samples: dict[int, IntArray]  #: pack -> lengths of its sequences in row order, for evenly spaced packs

    @property
    def num_packs(self) -> int:
        """Number of packs."""
        return len(self.pack_tokens)

    @property
    def emptiest(self) -> int:
        """The first pack with the fewest tokens."""
        return int(np.argmin(self.pack_tokens))

    def quantile(self, fraction: float) -> int:
        """Return the smallest length that at least `fraction` (0-1) of the sequences do not exceed.

        Example: lengths 1, 2, 3, 4 with 0.5 -> 2.
        """
        rank = np.searchsorted(np.cumsum(self.counts), fraction * self.counts.sum())
        return int(self.lengths[min(int(rank), len(self.lengths) - 1)])


def lengths_of_plan(artifact: Artifact, split: str, num_packs: int) -> SplitLengths:
    """Return a split's lengths from the artifact's plan.

    Raises:
        ArtifactError: the plan is missing, cannot be read, or names other packs.
    """
    multiple = artifact.manifest.pad_seq_to_mult
    columns = iter_plan_columns(artifact, split, ("pack", "runtime_length"))
    return _sum_lengths(((packs, aligned_runtime_lengths(lengths, multiple)) for packs, lengths in columns), num_packs)


def lengths_of_rows(artifact: ArtifactOnDisk, split: str, num_packs: int) -> SplitLengths:
    """Return a split's lengths from its rows, which must be valid.

    Raises:
        ArtifactError: the rows cannot be read.
    """
    return _sum_lengths(_parts_of_rows(artifact, split), num_packs)


def _parts_of_rows(artifact: ArtifactOnDisk, split: str) -> Iterator[tuple[IntArray, IntArray]]:
    first = 0
    for shard in artifact.shard_facts(split):
        for batch in artifact.parts.iter_batches(shard.path, max_tokens=_BATCH_TOKENS):
            rows = np.repeat(np.arange(batch.num_rows), np.diff(batch.start_offsets))
            starts = batch.seq_start_id.astype(np.int64) + batch.token_offsets[rows]
            yield rows + first, np.diff(np.append(starts, batch.token_offsets[-1])) - 1
            first += batch.num_rows


def _sum_lengths(parts: Iterable[tuple[IntArray, IntArray]], num_packs: int) -> SplitLengths:
    """Return the combined lengths of parts; each part is (packs, lengths) of its sequences, in pack order."""
    histogram: Counter[int] = Counter()
    pack_tokens, pack_sequences = np.zeros(num_packs, dtype=np.int64), np.zeros(num_packs, dtype=np.int64)
    pack_costs = np.zeros(num_packs)
    places = np.unique(np.linspace(0, num_packs - 1, min(num_packs, _DRAWN_PACKS)).astype(np.int64))
    samples: dict[int, list[IntArray]] = {int(pack): [] for pack in places}
    for packs, lengths in parts:
        if not len(packs):
            continue
        if packs.min() < 0 or packs.max() >= num_packs:
            raise ArtifactError(f"the plan has pack {packs.max()} of {num_packs} packs. Build the artifact again.")
        values, counts = np.unique(lengths, return_counts=True)
        histogram.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        for sums, addends in ((pack_tokens, lengths), (pack_sequences, 1), (pack_costs, lengths.astype(float) ** 2)):
            np.add.at(sums, packs, addends)
        for pack in np.intersect1d(packs, places).tolist():
            samples[pack].append(lengths[packs == pack])
    if not histogram:
        raise ArtifactError("the split has no sequences. Build the artifact again.")
    distinct = sorted(histogram)
    return SplitLengths(
        lengths=np.array(distinct, dtype=np.int64),
        counts=np.array([histogram[length] for length in distinct], dtype=np.int64),
        pack_tokens=pack_tokens,
        pack_sequences=pack_sequences,
        pack_costs=pack_costs,
        samples={pack: np.concatenate(chunks) for pack, chunks in samples.items() if chunks},
    )
