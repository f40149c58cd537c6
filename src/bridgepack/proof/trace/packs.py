"""Packs for a trace: sequences with their sources, and the tokens of each context-parallel rank."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import entries_of_packs
from bridgepack.geometry import IntArray, seq_boundaries
from bridgepack.proof.packs import read_packs, shard_index, split_record, trained_of
from bridgepack.proof.trace.records import ContextSlice, TokenRange, TracedPack, TracedSequence, TracedSource
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import slice_row


class PackTracer:
    """Some packs of a split, read once and then looked up."""

    def __init__(self, artifact: Artifact, split: str, packs: Iterable[int]) -> None:
        """Read the packs.

        Raises:
            ArtifactError: the split, a shard or the plan cannot be read.
            ConfigError: the pack does not exist.
        """
        wanted = set(packs)
        self._artifact = artifact
        self._record = split_record(artifact, split)
        self._index = shard_index(artifact, split)
        self._rows = read_packs(artifact, split, wanted)
        self._entries = entries_of_packs(artifact, split, wanted)
        self._eos_token_id = int(artifact.manifest.tokenizer["eos_token_id"])
        self._sources = [item.source for item in self._record.inputs]
        self._sequences = {pack: self._sequences_of(pack, row) for pack, row in self._rows.items()}

    def traced(
        self, pack: int, *, is_filler: bool = False, has_sequences: bool = True, context_parallel_size: int = 1
    ) -> TracedPack:
        """Return one pack."""
        sequences = self._sequences[pack]
        place = self._index.place_of(pack)
        return TracedPack(
            pack=pack,
            shard=place.shard,
            shard_row=place.row,
            is_filler=is_filler,
            num_sequences=len(sequences),
            num_tokens=sum(sequence.runtime_length for sequence in sequences),
            num_trained_tokens=0 if is_filler else sum(sequence.num_trained_tokens for sequence in sequences),
            sequences=sequences if has_sequences else (),
            context=self.context_slices(pack, context_parallel_size) if context_parallel_size > 1 else (),
        )

    def sources_of(self, packs: Iterable[int]) -> tuple[TracedSource, ...]:
        """Return the packs' totals per source; empty if the artifact does not record sources."""
        rows: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        tokens: Counter[int] = Counter()
        trained: Counter[int] = Counter()
        for pack in packs:
            entries = self._entries.get(pack, ())
            for entry, sequence in zip(entries, self._sequences[pack], strict=False):
                source = self._sources[entry.file_index] if 0 <= entry.file_index < len(self._sources) else -1
                rows[source].add((entry.file_index, entry.row))
                tokens[source] += sequence.runtime_length
                trained[source] += sequence.num_trained_tokens
        return tuple(
            TracedSource(
                name=record.name,
                num_rows=len(rows[source]),
                num_tokens=tokens[source],
                num_trained_tokens=trained[source],
            )
            for source, record in enumerate(self._record.sources)
            if source in rows
        )

    def context_slices(self, pack: int, context_parallel_size: int) -> tuple[ContextSlice, ...]:
        """Return each context-parallel rank's tokens of a pack, as the host's forward step slices it.

        Raises:
            ArtifactError: the row is malformed.
            ConfigError: `context_parallel_size` is below 1.
        """
        manifest = self._artifact.manifest
        settings = CollateSettings(
            packed_sequence_size=manifest.packed_sequence_size,
            pad_seq_to_mult=manifest.pad_seq_to_mult,
            eos_token_id=self._eos_token_id,
            pad_to_max_length=True,
        )
        batch = predict_batch([self._rows[pack]], settings)
        slices = slice_row(batch, 0, context_parallel_size)
        offsets = np.asarray(batch.physical_offsets[0], dtype=np.int64)
        num_sequences = len(self._rows[pack].seq_start_id)
        return tuple(
            ContextSlice(
                context_rank=rank,
                num_tokens=slices.positions.shape[1],
                num_trained_tokens=int(slices.trained_tokens[rank]),
                ranges=token_ranges(slices.positions[rank], offsets, num_sequences),
            )
            for rank in range(context_parallel_size)
        )

    def _sequences_of(self, pack: int, row: PackedRow) -> tuple[TracedSequence, ...]:
        known, inputs = {entry.position: entry for entry in self._entries.get(pack, ())}, self._record.inputs
        found = []
        bounds = seq_boundaries(row.seq_start_id.astype(np.int64), len(row.input_ids))
        for position, (start, stop) in enumerate(pairwise(bounds.tolist())):
            entry = known.get(position)
            found.append(
                TracedSequence(
                    position=position,
                    file=inputs[entry.file_index].path if entry and 0 <= entry.file_index < len(inputs) else None,
                    row=entry.row if entry else None,
                    runtime_length=entry.runtime_length if entry else max(stop - start - 1, 0),
                    num_trained_tokens=trained_of(row, start, stop, self._eos_token_id),
                    is_truncated=entry is not None and entry.is_truncated,
                    first_token=entry.first_token if entry else 0,
                )
            )
        return tuple(found)


def token_ranges(positions: IntArray, offsets: IntArray, num_sequences: int) -> tuple[TokenRange, ...]:
    """Return runs of consecutive positions, each inside one sequence.

    Example: positions [0, 1, 6, 7] of offsets [0, 4, 8] -> sequence 0 tokens 0 to 2, sequence 1 tokens 2 to 4.

    Args:
        positions: shape [num_tokens], runtime, in a rank's order.
        offsets: shape [num_segments + 1], runtime: starts of the sequences and the tail.
        num_sequences: number of segments that are sequences; the rest is the tail.
    """
    segments = np.searchsorted(offsets, positions, side="right") - 1
    is_new = (np.diff(positions) != 1) | (np.diff(segments) != 0)
    cuts = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(positions)]
    found = []
    for first, stop in pairwise(cuts):
        if first == stop:
            continue
        segment = min(int(segments[first]), num_sequences)
        begin = int(offsets[min(segment, len(offsets) - 1)])
        found.append(
            TokenRange(
                sequence=segment if segment < num_sequences else None,
                start=int(positions[first]) - begin,
                stop=int(positions[stop - 1]) - begin + 1,
            )
        )
    return tuple(found)
