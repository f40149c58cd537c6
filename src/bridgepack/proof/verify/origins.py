"""What an artifact is derived from anew: its sources, or stored tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.store.store import TokenStore
from bridgepack.data.tasks import Progress
from bridgepack.errors import StoreError
from bridgepack.proof.packs import split_record
from bridgepack.proof.sources import SourceRows, built_anew, found_sources
from bridgepack.proof.verify.derive import RowGiver
from bridgepack.proof.verify.ingredients import aligned_files, compare_inputs, compare_tokenizer, compare_versions
from bridgepack.proof.verify.records import Check, Ingredient
from bridgepack.proof.verify.stored_rows import StoredTokens, found_tokens, packed_anew

_SOURCES_UNCHANGED = (
    "inputs, tokenizer, template and libraries are those of the manifest: shard and manifest were changed together, or "
    "the build that made them was another"
)
_STORE_UNCHANGED = (
    "the stored tokens have their checksums: shard and manifest were changed together, or the build that made them was "
    "another"
)
_NOT_WHOLE = "sources are gone; --sample compares what can be derived without them"


class Origin(Protocol):
    """What packs are derived from.

    Attributes:
        name: `sources` or `store`.
        gives: what it does, for messages: `the sources give`.
        checks: of itself.
        changed: what of it is not what it was.
        why_nothing: why nothing can be derived; None where something can.
        why_not_whole: why the whole artifact cannot be; None where it can.
        no_other_cause: what is left where nothing else explains a difference.
        space_factor: space that deriving everything takes, as a multiple of the artifact.
    """

    name: Literal["sources", "store"]
    gives: str
    checks: tuple[Check, ...]
    changed: tuple[Ingredient, ...]
    why_nothing: str | None
    why_not_whole: str | None
    no_other_cause: str
    space_factor: int

    def giver(self, split: str) -> RowGiver:
        """Return what gives the rows of a split."""

    def whole(self, output: Path, *, num_workers: int, progress: Progress) -> Path:
        """Make the whole artifact anew and return its folder."""


class SourceOrigin:
    """The input files and the tokenizer of a recipe."""

    name: Literal["sources", "store"] = "sources"
    gives = "the sources give"
    no_other_cause = _SOURCES_UNCHANGED
    #: Tokens are stored once more meanwhile.
    space_factor = 5

    def __init__(self, artifact: Artifact, recipe: SFTRecipe, progress: Progress) -> None:
        self._artifact, self._recipe, self._progress = artifact, recipe, progress

    @contextmanager
    def opened(self) -> Iterator[SourceOrigin]:
        """Give this origin with its sources found and compared with the manifest."""
        with found_sources(self._recipe) as sources:
            self._sources = sources
            inputs, changed_inputs = compare_inputs(self._artifact, sources, self._progress)
            checks, changed, is_loaded = compare_tokenizer(self._artifact, self._recipe)
            self.checks: tuple[Check, ...] = (inputs, *checks)
            self.changed: tuple[Ingredient, ...] = (*changed_inputs, *changed, *compare_versions(self._artifact))
            self.why_nothing: str | None = None if is_loaded else "the tokenizer cannot be loaded"
            is_gone = sources.gone or any(item.now is None for item in changed_inputs)
            self.why_not_whole: str | None = _NOT_WHOLE if is_gone else None
            yield self

    def giver(self, split: str) -> RowGiver:
        """Return what gives the rows of a split."""
        records = split_record(self._artifact, split).inputs
        files, _ = aligned_files(records, self._sources, split)
        return SourceRows(recipe=self._recipe, names=tuple(item.path for item in records), files=tuple(files))

    def whole(self, output: Path, *, num_workers: int, progress: Progress) -> Path:
        """Build the artifact anew and return its folder."""
        return built_anew(self._recipe, output, num_workers=num_workers, progress=progress)


class StoreOrigin:
    """The stored tokens that an artifact was made of."""

    name: Literal["sources", "store"] = "store"
    gives = "the stored tokens give"
    no_other_cause = _STORE_UNCHANGED
    space_factor = 3
    changed: tuple[Ingredient, ...] = ()

    def __init__(self, artifact: Artifact, recipe: SFTRecipe, store: TokenStore) -> None:
        self._artifact, self._recipe, self._store = artifact, recipe, store
        self._tokens: StoredTokens | None = None
        self.why_nothing: str | None = None
        self.why_not_whole: str | None = None
        self.checks: tuple[Check, ...] = (self._check(),)

    def giver(self, split: str) -> RowGiver:
        """Return what gives the rows of a split."""
        assert self._tokens is not None
        return self._tokens.giver(self._artifact, self._recipe, split)

    def whole(self, output: Path, *, num_workers: int, progress: Progress) -> Path:
        """Pack the stored tokens anew and return the artifact's folder."""
        return packed_anew(self._artifact, self._store, output, num_workers=num_workers, progress=progress)

    def _check(self) -> Check:
        try:
            tokens = found_tokens(self._artifact, self._store)
            missing, problem = tokens.missing(), tokens.tokenizer_problem(self._artifact)
        except StoreError as error:
            self.why_nothing = "the token store cannot give them"
            return Check(name="token store", outcome="could not run", detail=str(error))
        self._tokens = tokens
        if problem is not None:
            return Check(name="token store", outcome="differs", detail=problem)
        if missing:
            self.why_not_whole = "tokens are gone from the store; --sample compares what can be derived without them"
            detail = f"{len(missing)} of {tokens.num_files} token files are gone from {str(self._store.folder)!r}"
            return Check(name="token store", outcome="could not run", detail=detail)
        detail = f"{tokens.num_files} token files are there, made by the tokenizer of the manifest"
        return Check(name="token store", outcome="same", detail=detail)
