"""The first few sequences that differ between two artifacts, with their text."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import text_of, tokenizer_of
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.geometry import IntArray
from bridgepack.proof.diff.records import Fate, MovedTokens, SequenceDifference, SequencePlace
from bridgepack.proof.diff.tables import Matched, SequenceTable, earliest
from bridgepack.proof.packs import read_packs
from bridgepack.proof.verify.derive import first_difference

#: Number of tokens to show of a sequence.
_TOKENS_SHOWN = 24
_TOKENS_BEFORE = 8
_RANGES_KEPT = 20


class DifferenceReader:
    """Reads differing sequences from their packs."""

    def __init__(
        self, artifacts: tuple[Artifact, Artifact], split: str, tables: tuple[SequenceTable, SequenceTable]
    ) -> None:
        """Take the artifacts; reads nothing yet."""
        self._artifacts, self._split, self._tables = artifacts, split, tables
        self._tokenizers: dict[int, ChatTokenizer | None] = {}
        self._inputs = [
            record.inputs if record is not None else ()
            for record in (artifact.manifest.split(split) for artifact in artifacts)
        ]

    def differences(self, matched: Matched, limit: int) -> Iterator[SequenceDifference]:
        """Yield the first few differences of each kind, in the order of input rows.

        Raises:
            ArtifactError: a shard cannot be read.
        """
        found: tuple[tuple[Fate, tuple[IntArray | None, IntArray | None]], ...] = (
            ("lost", (matched.lost, None)),
            ("gained", (None, matched.gained)),
            ("retokenized", matched.retokenized),
            ("mask_moved", matched.masks),
            ("moved", matched.moved),
        )
        for fate, sides in found:
            side, indices = next((side, indices) for side, indices in enumerate(sides) if indices is not None)
            for at in earliest(self._tables[side], indices, limit).tolist():
                ours, theirs = (None if indices is None else int(indices[at]) for indices in sides)
                if ours is None or theirs is None:
                    yield self._alone(fate, side, int(indices[at]))
                else:
                    yield self._pair(fate, ours, theirs)

    def _alone(self, fate: Fate, side: int, index: int) -> SequenceDifference:
        place = self._place(side, index)
        own = {item.sha256 for item in self._inputs[side] if item.path == place.file}
        return SequenceDifference(
            fate=fate,
            first=place if side == 0 else None,
            second=place if side == 1 else None,
            is_same_input=bool(own & {item.sha256 for item in self._inputs[1 - side]}),
            text=(self._text(side, self._tokens(side, index)[0][:_TOKENS_SHOWN]),),
        )

    def _pair(self, fate: Fate, ours: int, theirs: int) -> SequenceDifference:
        (before, mask), (after, other_mask) = self._tokens(0, ours), self._tokens(1, theirs)
        token = first_difference(before, after)
        start = max((token or 0) - _TOKENS_BEFORE, 0)
        shown = slice(start, start + _TOKENS_SHOWN)
        texts = [self._text(0, before[shown])]
        if fate == "retokenized":
            texts.append(self._text(1, after[shown]))
        moved = np.flatnonzero(mask != other_mask) if fate == "mask_moved" else np.empty(0, dtype=np.int64)
        files = self._tables[0].files[ours], self._tables[1].files[theirs]
        return SequenceDifference(
            fate=fate,
            first=self._place(0, ours),
            second=self._place(1, theirs),
            is_same_input=self._inputs[0][files[0]].sha256 == self._inputs[1][files[1]].sha256,
            token=token,
            text=tuple(texts),
            masks=tuple(self._moved(after, other_mask, moved)),
            num_mask_tokens=len(moved),
        )

    def _moved(self, ids: npt.NDArray[Any], mask: npt.NDArray[Any], labels: IntArray) -> Iterator[MovedTokens]:
        """Yield runs of labels whose mask changed in the same direction; label `i` is token `i + 1`."""
        if not len(labels):
            return
        trained = mask[labels] != 0
        cuts = np.flatnonzero((np.diff(labels) != 1) | (trained[1:] != trained[:-1])) + 1
        for first, stop in list(pairwise([0, *cuts.tolist(), len(labels)]))[:_RANGES_KEPT]:
            start, end = int(labels[first]) + 1, int(labels[stop - 1]) + 2
            text = self._text(1, ids[start:end])
            yield MovedTokens(start=start, stop=end, is_trained_now=bool(trained[first]), text=text)

    def _tokens(self, side: int, index: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return (ids, label-aligned mask) of one sequence, without alignment padding."""
        table = self._tables[side]
        pack, position, length = int(table.packs[index]), int(table.positions[index]), int(table.lengths[index])
        row = read_packs(self._artifacts[side], self._split, [pack])[pack]
        start = int(row.seq_start_id[position])
        return row.input_ids[start : start + length + 1], row.loss_mask[start : start + length]

    def _place(self, side: int, index: int) -> SequencePlace:
        table = self._tables[side]
        return SequencePlace(
            file=self._inputs[side][table.files[index]].path,
            row=int(table.rows[index]),
            pack=int(table.packs[index]),
            position=int(table.positions[index]),
            runtime_length=int(table.lengths[index]),
        )

    def _text(self, side: int, ids: npt.NDArray[Any]) -> str:
        if side not in self._tokenizers:
            self._tokenizers[side], _ = tokenizer_of(self._artifacts[side])
        return text_of(ids.tolist(), self._tokenizers[side])
