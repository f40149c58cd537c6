"""Which pack a micro batch is, by its digest, and the sources of its sequences.

The batch itself says what it holds, so neither the loader's order nor a checkpoint has to be predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.digests import digests_of_split
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.shards.digests import Digests, pack_digest
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray, aligned_runtime_lengths

#: Physical offsets of a packed batch, the first of these that it has.
#: Source: megatron/bridge/training/gpt_step.py of 0.6.2 and 0.7 (_cu_seqlens_for_cp_partition).
_OFFSETS = ("cu_seqlens_q_padded", "cu_seqlens_q", "cu_seqlens")


@dataclass(frozen=True, kw_only=True, slots=True)
class Segments:
    """The sequences of a micro batch."""

    pack: int  #: row of the split, from 0
    num_tokens: int  #: of the micro batch, its tail included
    ends: IntArray  #: shape [num_sequences], int64, physical runtime offsets
    sources: npt.NDArray[np.int16]  #: shape [num_sequences], int16


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """Why a micro batch is not attributed to sources."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPacks:
    """A split's packs by digest; about 16 bytes a pack and 6 bytes a sequence."""

    names: tuple[str, ...]  #: of the split's sources
    num_trained_tokens: tuple[int, ...]  #: of each source in the split
    eos_token_id: int
    digests: Digests  #: ascending; shape [num_packs], uint64
    packs: npt.NDArray[np.int32]  #: the pack of each digest; shape [num_packs], int32
    first_sequences: IntArray  #: of each pack; shape [num_packs + 1], int64
    lengths: npt.NDArray[np.int32]  #: physical runtime lengths; shape [num_sequences], int32
    sources: npt.NDArray[np.int16]  #: shape [num_sequences], int16

    @classmethod
    def of(cls, artifact: Artifact, split: str) -> Self:
        """Return a split's packs.

        Raises:
            ArtifactError: the plan or the digests are missing, cannot be read, or do not fit the manifest.
        """
        record = artifact.split(split)
        columns = list(iter_plan_columns(artifact, split, ("pack", "file_index", "runtime_length")))
        packs, files, lengths = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        digests = digests_of_split(artifact, split)
        if (np.diff(packs) < 0).any() or packs[-1] != len(digests) - 1 or files.max() >= len(record.inputs):
            raise ArtifactError(
                f"the plan of {split} in {str(artifact.folder)!r} does not fit its manifest. Build the artifact again."
            )
        order = np.argsort(digests, kind="stable")
        # sources of one name, such as two splits of a data set, are one: their losses could not be told apart
        sizes: dict[str, int] = {}
        for source in record.sources:
            sizes["/".join(source.name)] = sizes.get("/".join(source.name), 0) + source.num_trained_tokens
        numbers = {name: number for number, name in enumerate(sizes)}
        number_of = np.array([numbers["/".join(source.name)] for source in record.sources], dtype=np.int16)
        return cls(
            names=tuple(sizes),
            num_trained_tokens=tuple(sizes.values()),
            eos_token_id=int(artifact.manifest.tokenizer["eos_token_id"]),
            digests=digests[order],
            packs=order.astype(np.int32),
            first_sequences=np.searchsorted(packs, np.arange(len(digests) + 1)),
            lengths=aligned_runtime_lengths(lengths, artifact.manifest.pad_seq_to_mult).astype(np.int32),
            sources=number_of[[item.source for item in record.inputs]][files],
        )

    def segments_of(self, batch: Any) -> Segments | Doubt | None:
        """Return the sequences of a batch as the loader gives it; None if none of its tokens is trained."""
        try:
            tokens, mask = batch["tokens"], batch["loss_mask"]
            offsets = next(batch[name] for name in _OFFSETS if batch.get(name) is not None)
        except (TypeError, AttributeError, KeyError, StopIteration):
            return Doubt(reason="its rows are not packed")
        try:
            rows, masks, bounds = tokens.numpy(), mask.numpy(), offsets.numpy()
        except TypeError:  # as torch says it
            return Doubt(reason="it is on the device already")
        if len(rows) != 1:
            return Doubt(reason=f"it has {len(rows)} rows, where only one row can be told apart")
        return self.find(rows[0], masks[0] != 0, bounds.reshape(-1))

    def find(
        self, tokens: npt.NDArray[np.int64], is_trained: npt.NDArray[np.bool_], offsets: npt.NDArray[Any]
    ) -> Segments | Doubt | None:
        """Return the sequences of a row; arrays have shapes [width], [width] and [num_boundaries].

        The last segment may be a tail that belongs to no sequence; none of its tokens is trained.
        """
        if not is_trained.any():
            return None
        ends = offsets[1:][offsets[1:] > offsets[:-1]]  # the host repeats the last one, or fills up with zeros
        is_counted = is_trained & (tokens != self.eos_token_id)
        for stop in ends[-2:].tolist():
            if stop <= len(tokens) and not is_trained[stop:].any():
                matches = self._packs_with(pack_digest(tokens[:stop], is_counted[:stop]))
                if matches:
                    return self._segments_of_equals(matches, ends, len(tokens))
        return Doubt(reason="no pack of the artifact has its tokens and mask")

    def _packs_with(self, digest: int) -> Sequence[int]:
        key = np.uint64(digest)
        first = stop = int(self.digests.searchsorted(key))
        while stop < len(self.digests) and self.digests[stop] == key:
            stop += 1
        return [int(pack) for pack in self.packs[first:stop]]

    def _segments_of_equals(self, matches: Sequence[int], ends: npt.NDArray[Any], num_tokens: int) -> Segments | Doubt:
        """Return the sequences of equal packs, which must have the batch's boundaries and equal sources."""
        candidates = [self._segments(pack, num_tokens) for pack in matches]
        first = candidates[0]
        if any(not np.array_equal(ends[: len(item.ends)], item.ends) for item in candidates):
            return Doubt(reason=f"its boundaries are not those of pack {first.pack}, whose tokens it has")
        if any(not np.array_equal(item.sources, first.sources) for item in candidates):
            packs = ", ".join(map(str, matches[:4]))
            return Doubt(reason=f"packs {packs} are equal, and their rows are of different sources")
        return first

    def _segments(self, pack: int, num_tokens: int) -> Segments:
        members = slice(int(self.first_sequences[pack]), int(self.first_sequences[pack + 1]))
        ends = np.cumsum(self.lengths[members], dtype=np.int64)
        return Segments(pack=pack, num_tokens=num_tokens, ends=ends, sources=self.sources[members])
