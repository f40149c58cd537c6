"""What `bridgepack inspect` shows: statistics, or a pack's sequences with their text and which parts are trained."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import entries_of_packs, plan_path
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import ArtifactError, TokenizerError
from bridgepack.geometry import aligned_runtime_lengths, runtime_segment_lengths, seq_boundaries
from bridgepack.records import Manifest, PackedRow, Waiting
from bridgepack.records.results import Result


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSpan:
    """A stretch of text whose tokens are either all trained or all untrained."""

    text: str  #: decoded, with special tokens; ids in square brackets if the tokenizer cannot be loaded
    is_trained: bool  #: the loss counts its tokens
    num_tokens: int  #: tokens in the span


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceView:
    """One sequence of a pack."""

    position: int
    file: str | None  #: input file; None if the artifact does not say
    row: int | None  #: row in that file, 1-based
    first_token: int  #: start in its row if the row was split, stored coordinates; otherwise 0
    start: int  #: first token, stored coordinates
    runtime_length: int  #: tokens the model sees, alignment padding not counted
    num_alignment_tokens: int  #: padding to the multiple
    num_trained_tokens: int  #: tokens with stored mask 1
    #: tokens with stored mask 1 whose input is EOS: Megatron-Bridge 0.6 does not train them, 0.7 does
    num_skipped_tokens: int
    spans: tuple[TextSpan, ...]  #: its text, without alignment padding


@dataclass(frozen=True, kw_only=True, slots=True)
class PackView(Result):
    """One pack.

    Attributes:
        index: 0-based position in the split.
        packed_sequence_size: runtime tokens that the pack can hold.
        sequences: in row order.
        note: why the text could not be decoded; None if it was decoded.
    """

    TABLE: ClassVar = "sequences"

    split: str
    index: int
    packed_sequence_size: int
    sequences: tuple[SequenceView, ...]
    note: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactView(Result):
    """An artifact's statistics.

    Attributes:
        folder: the artifact, or its URL.
        manifest: what its build recorded, with the statistics of each split.
        waiting: how long ranks wait for each other in its own run; None if that is not known.
    """

    folder: Path
    manifest: Manifest
    waiting: Waiting | None

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as plain values, with `waiting`."""
        return {**asdict(self.manifest), "waiting": None if self.waiting is None else asdict(self.waiting)}

    def table(self) -> list[dict[str, Any]]:
        """Return the statistics of each split."""
        return [{"split": split.name, **asdict(split.statistics)} for split in self.manifest.splits]


Decoder = tuple[ChatTokenizer | None, str | None]


def view_pack(artifact: Artifact, split: str, index: int, *, decoder: Decoder | None = None) -> PackView:
    """Return one pack of an artifact by its 0-based index, decoded; `decoder` is from `tokenizer_of`, if loaded.

    Raises:
        ArtifactError: the split or pack does not exist or cannot be read.
    """
    row = artifact.row(split, index)
    tokenizer, note = decoder or tokenizer_of(artifact)
    sequences = view_sequences(
        row,
        origins=_origins(artifact, split, index, row),
        tokenizer=tokenizer,
        eos_token_id=int(artifact.manifest.tokenizer["eos_token_id"]),
    )
    return PackView(
        split=split,
        index=index,
        packed_sequence_size=artifact.manifest.packed_sequence_size,
        sequences=sequences,
        note=note,
    )


def view_sequences(
    row: PackedRow,
    *,
    origins: Sequence[tuple[str, int, int, int]] = (),
    tokenizer: ChatTokenizer | None = None,
    eos_token_id: int | None = None,
) -> tuple[SequenceView, ...]:
    """Return the sequences of a row with a valid structure; without a tokenizer, their text is ids.

    `origins` are (file, 1-based row, first token in that row, runtime length) of each sequence, if known.
    """
    bounds = seq_boundaries(row.seq_start_id, len(row.input_ids)).tolist()
    sequences = []
    for position, ((start, stop), origin) in enumerate(zip_longest(pairwise(bounds), origins[: len(bounds) - 1])):
        file, source_row, first_token, length = origin or (None, None, 0, stop - start - 1)
        ids = row.input_ids[start : start + length + 1]
        is_trained = row.loss_mask[start : start + length].astype(bool)
        sequences.append(
            SequenceView(
                position=position,
                file=file,
                row=source_row,
                first_token=first_token,
                start=start,
                runtime_length=length,
                num_alignment_tokens=stop - start - 1 - length,
                num_trained_tokens=int(is_trained.sum()),
                num_skipped_tokens=int((is_trained & (ids[:-1] == eos_token_id)).sum()),
                spans=tuple(text_spans(ids.tolist(), [False, *is_trained.tolist()], tokenizer)),
            )
        )
    return tuple(sequences)


def text_spans(ids: Sequence[int], trained: Sequence[bool], tokenizer: ChatTokenizer | None) -> list[TextSpan]:
    """Return the text of ids as trained and untrained spans; `trained` has one entry per id."""
    cuts = [0, *(index for index in range(1, len(ids)) if trained[index] != trained[index - 1]), len(ids)]
    return [
        TextSpan(text=text_of(ids[start:stop], tokenizer), is_trained=trained[start], num_tokens=stop - start)
        for start, stop in pairwise(cuts)
    ]


def text_of(ids: Sequence[int], tokenizer: ChatTokenizer | None) -> str:
    """Return the text of ids; without a tokenizer, or if an id is out of range, the ids in square brackets."""
    if tokenizer is not None and all(isinstance(token, int) and 0 <= token < 1 << 32 for token in ids):
        return tokenizer.decode(ids)
    return " ".join(f"[{token}]" for token in ids)


def tokenizer_of(artifact: Artifact) -> Decoder:
    """Return the tokenizer that an artifact's manifest names, or the reason why it cannot be loaded."""
    known = artifact.manifest.tokenizer
    config = TokenizerConfig(
        name_or_path=str(known["name_or_path"]),
        revision=known.get("revision"),
        loader=known.get("loader", "transformers"),
    )
    try:
        return load_tokenizer(config), None
    except TokenizerError as error:
        return None, f"text is shown as token ids: {error}"


def _origins(artifact: Artifact, split: str, index: int, row: PackedRow) -> list[tuple[str, int, int, int]]:
    """Return (file, 1-based row, first token in that row, runtime length) of each sequence, from the plan."""
    record = artifact.manifest.split(split)
    entries = entries_of_packs(artifact, split, [index]).get(index, ())
    inputs = dict(enumerate(record.inputs if record else ()))  # an index of -1 means no input
    lengths = np.array([entry.runtime_length for entry in entries], dtype=np.int64)
    planned = aligned_runtime_lengths(lengths, artifact.manifest.pad_seq_to_mult)
    stored = runtime_segment_lengths(row.seq_start_id, len(row.input_ids))
    if entries and (any(entry.file_index not in inputs for entry in entries) or not np.array_equal(planned, stored)):
        raise ArtifactError(
            f"{plan_path(artifact, split)} does not fit pack {index} of {split}, or names inputs that the manifest "
            "does not list: a file was changed after the build. Run `bridgepack verify`; then build the artifact again."
        )
    return [(inputs[item.file_index].path, item.row, item.first_token, item.runtime_length) for item in entries]
