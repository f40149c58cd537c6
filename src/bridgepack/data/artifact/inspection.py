"""What `bridgepack inspect` shows: statistics, or a pack's sequences with their text and which parts are trained."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, ClassVar

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.origins import Origin, origins_of
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError
from bridgepack.geometry import seq_boundaries
from bridgepack.records import Manifest, PackedRow, Waiting
from bridgepack.records.results import Result
from bridgepack.records.words import count_text


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
    piece: int = 0  #: which of the packed sequences of its row, from 1; 0 if it is the only one
    num_pieces: int = 0  #: packed sequences of its row; 0 if it is the only one
    #: value of `preprocessing.over_long` that cut it, or its row, on purpose; empty if none did
    cut: str = ""
    cut_detail: str = ""  #: exchanges and turns that no sequence of its row shows, if any


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

    def headline(self) -> str:
        """Return what came out, in one line."""
        return (
            f"{self.split} pack {self.index}: {count_text(len(self.sequences), 'sequence')}, "
            f"{self.num_used_tokens:,} of {self.packed_sequence_size:,} runtime tokens"
        )

    @property
    def num_used_tokens(self) -> int:
        """Runtime tokens of its sequences, with alignment padding."""
        return sum(item.runtime_length + item.num_alignment_tokens for item in self.sequences)


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

    def headline(self) -> str:
        """Return what came out, in one line."""
        return f"{self.folder}: {self.manifest.headline()}"

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
        origins=origins_of(artifact, split, index, row),
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
    origins: Sequence[Origin] = (),
    tokenizer: ChatTokenizer | None = None,
    eos_token_id: int | None = None,
) -> tuple[SequenceView, ...]:
    """Return the sequences of a row with a valid structure; without a tokenizer, their text is ids.

    `origins` are those of each sequence, if known.
    """
    bounds = seq_boundaries(row.seq_start_id, len(row.input_ids)).tolist()
    sequences = []
    for position, ((start, stop), origin) in enumerate(zip_longest(pairwise(bounds), origins[: len(bounds) - 1])):
        length = origin.runtime_length if origin else stop - start - 1
        ids = row.input_ids[start : start + length + 1]
        is_trained = row.loss_mask[start : start + length].astype(bool)
        sequences.append(
            SequenceView(
                position=position,
                file=origin.file if origin else None,
                row=origin.row if origin else None,
                first_token=origin.first_token if origin else 0,
                piece=origin.piece if origin else 0,
                num_pieces=origin.num_pieces if origin else 0,
                cut=origin.cut if origin else "",
                cut_detail=origin.cut_detail if origin else "",
                start=start,
                runtime_length=length,
                num_alignment_tokens=stop - start - 1 - length,
                num_trained_tokens=int(is_trained.sum()),
                num_skipped_tokens=int((is_trained & (ids[:-1] == eos_token_id)).sum()),
                spans=tuple(text_spans(ids.tolist(), [False, *is_trained.tolist()], tokenizer)),
            )
        )
    return tuple(sequences)


def text_spans(ids: Sequence[int], is_trained: Sequence[bool], tokenizer: ChatTokenizer | None) -> list[TextSpan]:
    """Return the text of ids as trained and untrained spans; `is_trained` has one entry per id."""
    cuts = [0, *(index for index in range(1, len(ids)) if is_trained[index] != is_trained[index - 1]), len(ids)]
    return [
        TextSpan(text=text_of(ids[start:stop], tokenizer), is_trained=is_trained[start], num_tokens=stop - start)
        for start, stop in pairwise(cuts)
    ]


def text_of(ids: Sequence[int], tokenizer: ChatTokenizer | None) -> str:
    """Return the text of ids; without a tokenizer, or if an id is out of range, the ids in square brackets."""
    if tokenizer is not None and all(isinstance(token, int) and 0 <= token < 1 << 32 for token in ids):
        return tokenizer.decode(ids)
    return " ".join(f"[{token}]" for token in ids)


def tokenizer_of(artifact: Artifact) -> Decoder:
    """Return the tokenizer that an artifact's manifest names, or the reason why it cannot be loaded."""
    identity = artifact.manifest.tokenizer
    config = TokenizerConfig(
        name_or_path=str(identity["name_or_path"]),
        revision=identity.get("revision"),
        loader=identity.get("loader", "transformers"),
    )
    try:
        return load_tokenizer(config), None
    except TokenizerError as error:
        return None, f"text is shown as token ids: {error}"
