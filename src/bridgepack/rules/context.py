"""What rules know beside the rows: geometry, tokenizer, loss mode; and how a rule says that it lacks something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.records import Manifest


class CannotJudgeError(Exception):
    """A rule lacks its subject; the engine reports it as skipped, with this reason, never as passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext:
    """What rows are judged against; None is "not known", and rules that need it are skipped.

    Attributes:
        packed_sequence_size: runtime tokens a pack can hold.
        pad_seq_to_mult: multiple of every sequence's physical runtime length.
        eos_token_id: token that ends a sequence and pads it to the multiple.
        vocab_size: number of ids the tokenizer can produce, added tokens included.
        padded_vocab_size: rows of the model's embedding, at least `vocab_size`.
        loss_mode: what the recipe trains, e.g. `assistant` or `full`.
    """

    packed_sequence_size: int | None = None
    pad_seq_to_mult: int | None = None
    eos_token_id: int | None = None
    vocab_size: int | None = None
    padded_vocab_size: int | None = None
    loss_mode: str | None = None


def context_from_manifest(manifest: Manifest, *, padded_vocab_size: int | None = None) -> CheckContext:
    """Return what a manifest says its rows must satisfy."""
    preprocessing = manifest.recipe.get("preprocessing")
    loss_mode = preprocessing.get("loss_mode") if isinstance(preprocessing, Mapping) else None
    return CheckContext(
        packed_sequence_size=manifest.packed_sequence_size,
        pad_seq_to_mult=manifest.pad_seq_to_mult,
        eos_token_id=_integer(manifest.tokenizer.get("eos_token_id")),
        vocab_size=_integer(manifest.tokenizer.get("vocab_size")),
        padded_vocab_size=padded_vocab_size,
        loss_mode=loss_mode if isinstance(loss_mode, str) else None,
    )


def known[T](value: T | None, what: str) -> T:
    """Return the value.

    Raises:
        CannotJudgeError: it is None.
    """
    if value is None:
        raise CannotJudgeError(f"{what} is not known")
    return value


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
