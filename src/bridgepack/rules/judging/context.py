"""Facts that rules use beside the rows: geometry, tokenizer, loss mode; and the error for a missing fact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.host import TARGET, HostRelease
from bridgepack.records import Manifest

#: The most frequent reasons of skipped rules.
NO_PACKS = "no packs were given; run `bridgepack build`, then check with --artifact FOLDER"
NO_ENVIRONMENT = "no environment was given; add --environment here, or a file of pip freeze"


class CannotJudgeError(Exception):
    """A fact that a rule needs is missing; `judge` reports the rule as skipped with this reason, never as passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext:
    """Facts that rows are judged against; None means unknown: rules that need the fact are skipped."""

    packed_sequence_size: int | None = None  #: runtime tokens a pack can hold
    pad_seq_to_mult: int | None = None  #: multiple of every sequence's physical runtime length
    eos_token_id: int | None = None  #: token that ends a sequence and pads it to the multiple
    vocab_size: int | None = None  #: number of ids the tokenizer can produce, added tokens included
    padded_vocab_size: int | None = None  #: rows of the model's embedding, at least `vocab_size`
    loss_mode: str | None = None  #: the recipe's loss mode, e.g. `assistant` or `full`.
    #: tokens that end the model's answer, e.g. `<|im_end|>`; empty if it ends with plain text
    end_of_turn_ids: tuple[int, ...] | None = None
    never_trained: Mapping[str, int] | None = None  #: text -> id of the tokens that the host never trains
    bos_token_id: int | None = None  #: token that a text begins with; None if the tokenizer has none
    #: whether sequences are texts without a chat template to which the tokenizer adds BOS
    expects_bos: bool | None = None
    #: `preprocessing.labels_after_eos` of the recipe; None for artifacts from before that setting and of other tools
    labels_after_eos: str | None = None
    release: HostRelease = TARGET  #: of the host that reads the rows; one newer than all known is like the newest


def context_from_manifest(manifest: Manifest) -> CheckContext:
    """Return the facts of a manifest that its rows are judged against."""
    preprocessing, tokenizer = section(manifest.recipe, "preprocessing"), manifest.tokenizer
    loss_mode, after_eos = preprocessing.get("loss_mode"), preprocessing.get("labels_after_eos")
    never_trained, adds_bos = tokenizer.get("never_trained"), tokenizer.get("adds_bos")
    is_plain_text = preprocessing.get("kind") == "prompt_completion"
    return CheckContext(
        packed_sequence_size=manifest.packed_sequence_size,
        pad_seq_to_mult=manifest.pad_seq_to_mult,
        eos_token_id=_integer(tokenizer.get("eos_token_id")),
        vocab_size=_integer(tokenizer.get("vocab_size")),
        loss_mode=loss_mode if isinstance(loss_mode, str) else None,
        end_of_turn_ids=_end_of_turn_ids(preprocessing, tokenizer),
        never_trained=never_trained if isinstance(never_trained, Mapping) else None,
        bos_token_id=_integer(tokenizer.get("bos_token_id")),
        expects_bos=adds_bos if is_plain_text and isinstance(adds_bos, bool) else None,
        labels_after_eos=None if after_eos is None else str(after_eos),
    )


def require[T](value: T | None, reason: str) -> T:
    """Return the value, or raise `CannotJudgeError` with the reason if it is None."""
    if value is None:
        raise CannotJudgeError(reason)
    return value


def require_known[T](value: T | None, what: str) -> T:
    """Return the value, or raise `CannotJudgeError` if it is None."""
    return require(value, f"{what} is not known")


def _end_of_turn_ids(preprocessing: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the tokens that end the model's answer, or None if the input rows were already tokenized."""
    kind, ids = preprocessing.get("kind"), tokenizer.get("end_of_turn_ids")
    if kind == "prompt_completion":
        eos = _integer(tokenizer.get("eos_token_id"))
        return None if eos is None else (eos,)
    return tuple(ids) if kind != "tokenized" and isinstance(ids, (list, tuple)) else None


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping at a key, or an empty one if there is none."""
    inner = values.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
