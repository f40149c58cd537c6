"""Some packs of an artifact as text for a page: all trained stretches are kept, long stretches are shortened."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.inspection import (
    PackView,
    SequenceView,
    TextSpan,
    tokenizer_of,
    view_pack,
    view_sequences,
)
from bridgepack.errors import ArtifactError
from bridgepack.records import PackedRow
from bridgepack.report.text import without_middle

#: Maximum characters of a stretch, of a pack, and maximum stretches of a sequence.
_SPAN_CHARACTERS, _PACK_CHARACTERS, _NUM_SPANS = 600, 24_000, 40
_BATCH_TOKENS = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A pack, shortened for the page."""

    why: str  #: why it is shown
    view: PackView  #: the pack with the sequences that are shown
    num_sequences: int  #: sequences of the whole pack
    num_tokens: int  #: runtime tokens of the whole pack, with alignment padding


def excerpts(
    artifact: Artifact | ArtifactOnDisk, split: str, chosen: dict[str, int], size: int | None
) -> list[Excerpt]:
    """Return excerpts of the chosen packs, each pack once.

    Args:
        artifact: the artifact; its manifest names the tokenizer, without which token ids are shown.
        split: split of the packs.
        chosen: reason for showing a pack -> the pack.
        size: packed_sequence_size in runtime tokens; None if unknown.

    Raises:
        ArtifactError: a pack cannot be read.
    """
    reasons = {pack: ", ".join(why for why, other in chosen.items() if other == pack) for pack in chosen.values()}
    if isinstance(artifact, Artifact):
        decoder = tokenizer_of(artifact)
        views = {pack: view_pack(artifact, split, pack, decoder=decoder) for pack in reasons}
        return [_excerpt(why, views[pack]) for pack, why in reasons.items()]
    note = "text is shown as token ids: the tokenizer of these packs is unknown"
    rows = _rows(artifact, split, set(reasons))
    return [
        _excerpt(
            why,
            PackView(
                split=split,
                index=pack,
                packed_sequence_size=size or 0,
                sequences=view_sequences(rows[pack]),
                note=note,
            ),
        )
        for pack, why in reasons.items()
    ]


def _rows(artifact: ArtifactOnDisk, split: str, packs: set[int]) -> dict[int, PackedRow]:
    found: dict[int, PackedRow] = {}
    first = 0
    for shard in artifact.shard_facts(split):
        for batch in artifact.iter_shard_batches(shard.path, max_tokens=_BATCH_TOKENS):
            found |= {pack: batch.row(pack - first) for pack in packs if first <= pack < first + batch.num_rows}
            first += batch.num_rows
    if len(found) < len(packs):
        raise ArtifactError(f"{split} has {first} packs, not pack {max(packs)}. Build the artifact again.")
    return found


def _excerpt(why: str, view: PackView) -> Excerpt:
    return Excerpt(
        why=why,
        view=replace(view, sequences=tuple(_shown(view.sequences))),
        num_sequences=len(view.sequences),
        num_tokens=sum(item.runtime_length + item.num_alignment_tokens for item in view.sequences),
    )


def _shown(sequences: tuple[SequenceView, ...]) -> Iterator[SequenceView]:
    room = _PACK_CHARACTERS
    for sequence in sequences:
        shown = sequence.spans[:_NUM_SPANS]
        spans = tuple(replace(span, text=without_middle(span.text, _SPAN_CHARACTERS)) for span in shown)
        num_hidden = len(sequence.spans) - len(spans)
        if num_hidden:
            text = f"[... {num_hidden:,} more stretches ...]"
            num_tokens = sum(span.num_tokens for span in sequence.spans[_NUM_SPANS:])
            spans = (*spans, TextSpan(text=text, is_trained=False, num_tokens=num_tokens))
        if room <= 0:
            return
        room -= sum(len(span.text) for span in spans)
        yield replace(sequence, spans=spans)
