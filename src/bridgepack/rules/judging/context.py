"""Facts that rules use beside the rows: geometry, tokenizer, loss mode; and the error for a missing fact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.host import TARGET, HostRelease, why_unknown
from bridgepack.records import Manifest

#: The most frequent reasons of skipped rules.
NO_PACKS = "no packs were given; run `bridgepack build`, then check with --artifact FOLDER"
NO_ENVIRONMENT = "no environment was given; add --environment here, or a file of pip freeze"
#: Kinds of rows whose texts are encoded without a chat template.
_PLAIN_TEXT = ("prompt_completion", "text")


class CannotJudgeError(Exception):
    """A fact that a rule needs is missing; `judge` reports the rule as skipped with this reason, never as passed."""

    def __init__(self, text: str) -> None:
        """Keep the reason: a message, if it names settings."""
        super().__init__(text)
        self.text = text


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
    never_trained = tokenizer.get("never_trained")
    return CheckContext(
        packed_sequence_size=manifest.packed_sequence_size,
        pad_seq_to_mult=manifest.pad_seq_to_mult,
        eos_token_id=_integer(tokenizer.get("eos_token_id")),
        vocab_size=_integer(tokenizer.get("vocab_size")),
        loss_mode="full" if preprocessing.get("kind") == "text" else loss_mode if isinstance(loss_mode, str) else None,
        end_of_turn_ids=_end_of_turn_ids(preprocessing, tokenizer),
        never_trained=never_trained if isinstance(never_trained, Mapping) else None,
        bos_token_id=_integer(tokenizer.get("bos_token_id")),
        expects_bos=_expects_bos(manifest.recipe, tokenizer.get("adds_bos")),
        labels_after_eos=None if after_eos is None else str(after_eos),
    )


def require[T](value: T | None, reason: str) -> T:
    """Return the value, or raise `CannotJudgeError` with the reason if it is None."""
    if value is None:
        raise CannotJudgeError(reason)
    return value


def require_known_release(release: HostRelease) -> HostRelease:
    """Return a release whose habits are known, or raise `CannotJudgeError`."""
    reason = why_unknown(release)
    if reason is not None:
        raise CannotJudgeError(reason)
    return release


def require_known[T](value: T | None, value_name: str) -> T:
    """Return the value, or raise `CannotJudgeError` if it is None."""
    return require(value, f"{value_name} is not known")


def _end_of_turn_ids(preprocessing: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the tokens that end the model's answer, or None if the input rows were already tokenized."""
    kind, ids = preprocessing.get("kind"), tokenizer.get("end_of_turn_ids")
    if kind in _PLAIN_TEXT:
        eos = _integer(tokenizer.get("eos_token_id"))
        return None if eos is None else (eos,)
    return tuple(ids) if kind != "tokenized" and isinstance(ids, (list, tuple)) else None


def _expects_bos(recipe: Mapping[str, Any], adds_bos: Any) -> bool | None:
    """Return whether sequences begin with BOS if they are as served: texts to which the tokenizer adds it.

    None without such texts, or if that is unknown. Later pieces of split texts begin without BOS, so where they are
    split and the recipe adds it, nothing is expected.
    """
    sections = [part for kind in _PLAIN_TEXT if (part := section_of_kind(recipe, kind)) is not None]
    if not sections or not isinstance(adds_bos, bool):
        return None
    is_split = any(part.get("over_long") == "split" for part in sections)
    is_mixed = len(_kinds(recipe)) > 1
    if (is_split or is_mixed) and all(part.get("add_bos") for part in sections):
        return False
    return adds_bos


def section_of_kind(recipe: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return a recipe's settings for rows of a kind, empty if they are the defaults; None if it has no such rows."""
    preprocessing = section(recipe, "preprocessing")
    if kind not in _kinds(recipe):
        return None
    if preprocessing.get("kind") == kind:
        return preprocessing
    sections = [part for part in preprocessing.get("others") or () if isinstance(part, Mapping)]
    return next((part for part in sections if part.get("kind") == kind), {})


def _kinds(recipe: Mapping[str, Any]) -> set[str]:
    """Return the kinds of a recipe's rows: its own, and those of its sources' layouts."""
    data = section(recipe, "data")
    waiting, kinds = [data.get("train"), data.get("validation")], {str(section(recipe, "preprocessing").get("kind"))}
    while waiting:
        source = waiting.pop()
        if isinstance(source, (list, tuple)):
            waiting += source
        elif isinstance(source, Mapping):
            waiting.append(source.get("sources"))
            kinds |= {str(kind) for kind in [section(source, "layout").get("kind")] if kind}
    return kinds


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping at a key, or an empty one if there is none."""
    inner = values.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
