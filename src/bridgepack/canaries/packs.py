"""Chooses real packs, cuts long ones, renumbers their tokens, and lays them out for a topology."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bridgepack import geometry
from bridgepack.canaries.records import IntArray
from bridgepack.host import HostRelease
from bridgepack.records import PackedRow
from bridgepack.records.sequences import is_learned

#: The vocabulary is a multiple of it, so that tensor-parallel ranks share it evenly.
_VOCAB_MULTIPLE = 128
#: Of sequences that are cut where it can be, so that context-parallel ranks share them as they were aligned.
_CUT_MULTIPLE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """One sequence without alignment padding."""

    input_ids: IntArray  #: shape [stored tokens], int64
    #: shape [stored tokens], int64, label-aligned: 1 where the host trains the next token
    loss_mask: IntArray

    @property
    def runtime_length(self) -> int:
        """Tokens that the model sees."""
        return len(self.input_ids) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack:
    """One chosen pack."""

    number: int  #: number of the pack in its split
    row: PackedRow  #: as stored, with renumbered tokens; shorter if it was cut
    sequences: tuple[TokenSequence, ...]  #: of it, in order
    num_sequences_left_out: int = 0  #: sequences removed because the pack is long
    is_cut: bool = False  #: whether its remaining sequences were cut


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenPacks:
    """The packs that are compared."""

    packs: tuple[Pack, ...]  #: in the order of their numbers
    eos_token_id: int  #: renumbered
    vocab_size: int  #: of the renumbered tokens
    num_untrained_eos: (
        int  #: labels whose mask asks for training and whose input is EOS, if the host does not train them
    )
    fingerprint: str  #: sha256 of their contents

    @property
    def sequences(self) -> tuple[TokenSequence, ...]:
        """All sequences, pack after pack."""
        return tuple(sequence for pack in self.packs for sequence in pack.sequences)

    @property
    def num_cut(self) -> int:
        """Number of shortened packs."""
        return sum(bool(pack.num_sequences_left_out or pack.is_cut) for pack in self.packs)


def lengths_of(row: PackedRow) -> IntArray:
    """Return the physical runtime length of each sequence of a pack; shape [num_sequences], int64."""
    return geometry.runtime_segment_lengths(row.seq_start_id.astype(np.int64), len(row.input_ids))


def choice_of(num_sequences: IntArray, longest: IntArray, num_packs: int) -> list[int]:
    """Return `num_packs` packs, ascending: those with most sequences, the longest and the fewest, then the first.

    Arrays have shape [packs], int64; `longest` is the longest sequence of each, in runtime tokens.

    Example: sequences [3, 9, 1, 4], longest [5, 2, 9, 4], 2 packs -> [1, 2].
    """
    rankings = [np.argsort(-num_sequences, kind="stable"), np.argsort(-longest, kind="stable")]
    rankings += [np.argsort(num_sequences, kind="stable"), np.arange(len(num_sequences))]
    return sorted(list(dict.fromkeys(np.stack(rankings, axis=1).ravel().tolist()))[:num_packs])


def chosen_packs(
    rows: Mapping[int, PackedRow], *, eos_token_id: int, max_tokens: int, release: HostRelease
) -> ChosenPacks:
    """Return packs, by their numbers, as a host trains them; those longer than `max_tokens` lose sequences."""
    cut = {number: _shorten(row, max_tokens) for number, row in sorted(rows.items())}
    vocabulary = np.unique(np.concatenate([np.asarray([eos_token_id]), *(row.input_ids for row, _, _ in cut.values())]))
    eos = int(np.searchsorted(vocabulary, eos_token_id))
    packs, num_untrained = [], 0
    for number, (row, left_out, is_cut) in cut.items():
        compact_row = replace(row, input_ids=np.searchsorted(vocabulary, row.input_ids).astype(np.int32))
        sequences = sequences_of(compact_row, eos, release)
        num_untrained += int((compact_row.loss_mask != 0).sum()) - sum(
            int(sequence.loss_mask.sum()) for sequence in sequences
        )
        packs.append(
            Pack(number=number, row=compact_row, sequences=sequences, num_sequences_left_out=left_out, is_cut=is_cut)
        )
    return ChosenPacks(
        packs=tuple(packs),
        eos_token_id=eos,
        vocab_size=geometry.ceil_to_multiple(len(vocabulary), _VOCAB_MULTIPLE),
        num_untrained_eos=num_untrained,
        fingerprint=_fingerprint(packs),
    )


def sequences_of(row: PackedRow, eos_token_id: int, release: HostRelease) -> tuple[TokenSequence, ...]:
    """Return the sequences of a pack without alignment padding, masks as a host trains them.

    Padding is EOS at the end of a sequence; EOS at the end of the content goes with it where no label after it is
    trained.
    """
    bounds = geometry.seq_boundaries(row.seq_start_id.astype(np.int64), len(row.input_ids))
    sequences = []
    for start, stop in pairwise(bounds.tolist()):
        ids = row.input_ids[start:stop].astype(np.int64)
        mask = is_learned(row.loss_mask[start:stop], ids, eos_token_id=eos_token_id, release=release).astype(np.int64)
        mask[-1] = 0
        content = np.flatnonzero((ids[:-1] != eos_token_id) | (mask[:-1] != 0))
        end = int(content[-1]) + 2 if len(content) else 2
        sequences.append(TokenSequence(input_ids=ids[:end], loss_mask=mask[:end]))
    return tuple(sequences)


def laid_out(sequences: Sequence[TokenSequence], multiple: int, eos_token_id: int) -> PackedRow:
    """Return sequences as one stored pack, each padded with EOS so that its runtime length is a multiple.

    Example: lengths 3 and 2, multiple 4 -> stored lengths 5 and 5.
    """
    ids, masks, starts = [], [], [0]
    for sequence in sequences:
        padding = geometry.ceil_to_multiple(sequence.runtime_length, multiple) - sequence.runtime_length
        ids.append(np.pad(sequence.input_ids, (0, padding), constant_values=eos_token_id))
        masks.append(np.pad(sequence.loss_mask, (0, padding)))
        starts.append(starts[-1] + len(ids[-1]))
    return PackedRow(
        input_ids=np.concatenate(ids).astype(np.int32),
        loss_mask=np.concatenate(masks).astype(np.int8),
        seq_start_id=np.asarray(starts[:-1], dtype=np.int32),
    )


def _shorten(row: PackedRow, max_tokens: int) -> tuple[PackedRow, int, bool]:
    """Return a pack of at most so many runtime tokens, how many sequences it lost, and whether sequences were cut.

    What is compared is where sequences meet: two are cut to half where the first whole one would be left alone.
    """
    lengths = lengths_of(row)
    new_lengths = np.minimum(lengths, max_tokens)
    if len(new_lengths) > 1 and new_lengths[:2].sum() > max_tokens:
        half = max_tokens // 2
        new_lengths = np.minimum(lengths, max(half - half % _CUT_MULTIPLE, min(half, _CUT_MULTIPLE), 1))
    num_kept = max(int(np.searchsorted(np.cumsum(new_lengths), max_tokens, side="right")), 1)
    is_cut = bool((new_lengths < lengths)[:num_kept].any())
    if num_kept == len(lengths) and not is_cut:
        return row, 0, False
    new_lengths, starts = new_lengths[:num_kept], row.seq_start_id[:num_kept].astype(np.int64)
    places = np.concatenate(
        [np.arange(first, first + length + 1) for first, length in zip(starts, new_lengths, strict=True)]
    )
    stops, mask = np.cumsum(new_lengths + 1), row.loss_mask[places]
    mask[stops - 1] = 0
    starts = np.append(0, stops[:-1]).astype(row.seq_start_id.dtype)
    shorter = PackedRow(input_ids=row.input_ids[places], loss_mask=mask, seq_start_id=starts)
    return shorter, len(lengths) - num_kept, is_cut


def _fingerprint(packs: Sequence[Pack]) -> str:
    digest = hashlib.sha256()
    for pack in packs:
        for values in (pack.row.input_ids, pack.row.loss_mask, pack.row.seq_start_id):
            digest.update(np.ascontiguousarray(values, dtype="<i8").tobytes())
            digest.update(b"|")
    return digest.hexdigest()
