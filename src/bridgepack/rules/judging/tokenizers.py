"""What is known of the run's tokenizer and of its model's, and how their vocabularies differ."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath

#: Why the tokenizers of a run and of its model are not compared, where nobody looked.
NO_TOKENIZERS = "the tokenizers of the run and of its model were not looked at"
#: Folder of a model in the Hugging Face cache: `models--meta-llama--Llama-3.2-1B`.
_CACHE_FOLDER = re.compile(r"models--[^/]+?--(.+)")
#: Tokens that models have for later use, e.g. `<|reserved_special_token_3|>`, `<unused12>`, `<SPECIAL_9>`, `[PAD7]`.
_RESERVED = re.compile(
    r"[<\[>].*(reserved|unused|holder|dummy|filler|extra_?(id_?)?\d|(special|control|pad|blank|unk)_?\d).*[>\]<]",
    re.IGNORECASE,
)
#: Fraction of the embedding's rows that the tokenizer of a model uses at least: those of public models use 0.97.
_LEAST_USED = 0.9


@dataclass(frozen=True, kw_only=True)
class TokenizerFacts:
    """A tokenizer as far as it is known; what is not known is empty or None."""

    name: str  #: as messages name it, e.g. the path that the user wrote
    hashes: Mapping[str, str] = field(default_factory=dict)  #: file that ids come from -> sha256, the surest first
    tokens: Mapping[int, str] = field(default_factory=dict)  #: id -> token, with `more_tokens`
    more_tokens: Mapping[int, str] = field(default_factory=dict)  #: id -> token that was added to the vocabulary
    num_ids: int | None = None  #: number of ids; every id is smaller
    end_ids: frozenset[int] = frozenset()  #: that end a sequence: of a model, all that its configs name
    pad_ids: frozenset[int] = frozenset()  #: that pad sequences
    end_of_turn_ids: frozenset[int] = frozenset()  #: that the chat template writes behind an answer
    #: sha256 of the chat template: as it is, and with other white space around it
    template_hashes: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        """The chat template, named by its place and hash."""
        return f"that of {self.name}, sha256 {self.template_hashes[0][:12]}" if self.template_hashes else "none"

    def text_of(self, index: int) -> str:
        """Return an id with its token, as `151645 '<|im_end|>'`."""
        token = self.tokens.get(index, self.more_tokens.get(index))
        return f"{index} {'(no token)' if self.tokens else ''}".strip() if token is None else f"{index} {token[:40]!r}"

    def texts_of(self, ids: Iterable[int], *, at_most: int = 3) -> str:
        """Return the first of some ids with their tokens, and how many more there are."""
        in_order = sorted(ids)
        more = f" and {len(in_order) - at_most:,} more" if len(in_order) > at_most else ""
        return ", ".join(map(self.text_of, in_order[:at_most])) + more


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularyDifference:
    """Ids by which the vocabulary of a run's tokenizer differs from its model's."""

    changed: frozenset[int]  #: the id has another token, and the model's was not for later use
    lacking: frozenset[int]  #: added tokens of the model that the run's tokenizer does not have
    extra: frozenset[int]  #: tokens of the run's tokenizer that the model does not have, some in the place of reserved


@dataclass(frozen=True, kw_only=True)
class TokenizerPair:
    """The run's tokenizer, or the one that its packs were made with, and the model's."""

    of_run: TokenizerFacts
    of_model: TokenizerFacts
    vocab_size: int | None  #: rows of the model's embedding
    #: whether the model's tokenizer is that of the weights; otherwise it is that of the base, which weights that are
    #: here and do not tell may not have
    is_of_weights: bool
    is_named_alike: bool  #: the run's tokenizer has the name of the model or of the model's tokenizer

    @cached_property
    def has_same_file(self) -> bool | None:
        """Whether the file that ids come from is the same; None if there is none to compare."""
        name = next((name for name in self.of_model.hashes if name in self.of_run.hashes), None)
        return None if name is None else self.of_model.hashes[name] == self.of_run.hashes[name]

    @cached_property
    def difference(self) -> VocabularyDifference | None:
        """How the vocabularies differ; None if one of them is not known.

        Beside the same file, other tokens may be added, in added_tokens.json or tokenizer_config.json.
        """
        run, model, no_ids = self.of_run.tokens, self.of_model.tokens, frozenset[int]()
        if not (run and model):
            return VocabularyDifference(changed=no_ids, lacking=no_ids, extra=no_ids) if self.has_same_file else None
        difference = difference_of(run, model, self.of_model.more_tokens)
        return replace(difference, changed=no_ids) if self.has_same_file else difference

    @cached_property
    def is_other_model(self) -> bool:
        """Whether the run's tokenizer is certainly or probably another model's, which says all there is to say."""
        return bool(self.difference and self.difference.changed) or self.is_too_small

    @cached_property
    def is_too_small(self) -> bool:
        """Whether the run's tokenizer uses so little of the embedding that the model's is hardly the same.

        Only where nothing but its size is known of the model's, not even a name that is that of the run's.
        """
        is_known = self.difference is not None or self.is_named_alike
        if is_known or self.vocab_size is None or self.of_run.num_ids is None:
            return False
        return self.of_run.num_ids < _LEAST_USED * self.vocab_size


def difference_of(
    run: Mapping[int, str], model: Mapping[int, str], more_of_model: Mapping[int, str]
) -> VocabularyDifference:
    """Return how the vocabulary of a run's tokenizer, id -> token, differs from its model's.

    A reserved token of the model may have a new name, and one of the run's may stand where the model has an added
    token. Any other id with another token, and a token with another id, is a change.

    Example: `{0: "a", 1: "<tool>"}`, `{0: "a", 1: "<unused1>"}` -> extra 1.
    """
    texts = set(run.values())
    changes, lacks, extras = set(), set(), set(run.keys() - model.keys())
    for index, text in model.items():
        in_run = run.get(index)
        if in_run == text:
            continue
        if is_reserved(text):
            if in_run is not None and not is_reserved(in_run):
                extras.add(index)
        elif text in texts:
            changes.add(index)
        elif in_run is None or index in more_of_model or is_reserved(in_run):
            lacks.add(index)
        else:
            changes.add(index)
    return VocabularyDifference(changed=frozenset(changes), lacking=frozenset(lacks), extra=frozenset(extras))


def is_reserved(token: str) -> bool:
    """Return whether a token's text says that it is for later use, e.g. `<|reserved_special_token_3|>`."""
    return _RESERVED.fullmatch(token) is not None


def short_name(name_or_path: str) -> str:
    """Return a model's short name: `meta-llama/Llama-3.2-1B` and `/models/Llama-3.2-1B/` -> `llama-3.2-1b`."""
    parts = PurePath(name_or_path).parts
    snapshot = next((match[1] for match in map(_CACHE_FOLDER.fullmatch, parts) if match), None)
    return (snapshot or (parts[-1] if parts else "")).lower()
