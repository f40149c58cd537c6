"""The two origins for deriving an artifact again: its sources, or stored tokens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
from bridgepack.proof.verify.stored_rows import packed_anew, record_of, stored_rows, token_files, tokenizer_problem

_CHANGED_TOGETHER = "shard and manifest were changed together, or another build made them"
_SAMPLE = "--sample compares the packs that do not need them"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where packs are derived from."""

    name: Literal["sources", "store"]  #: `sources` or `store`
    gives: str  #: phrase for messages: `the sources give`
    giver: Callable[[str], RowGiver]  #: split -> giver of its rows
    #: (folder, maximum processes, progress) -> folder of the whole artifact, made again
    whole: Callable[[Path, int, Progress], Path]
    checks: tuple[Check, ...]
    changed: tuple[Ingredient, ...] = ()  #: ingredients that have changed
    why_nothing: str | None = None  #: why nothing can be derived; None if some packs can
    why_not_whole: str | None = None  #: why the whole artifact cannot be derived; None if it can
    no_other_cause: str  #: remaining cause if nothing else explains a difference
    space_factor: int  #: disk space for deriving everything, as a multiple of the artifact


@contextmanager
def source_origin(artifact: Artifact, recipe: SFTRecipe, progress: Progress) -> Iterator[Origin]:
    """Yield the input files and tokenizer of a recipe as an origin, compared with the manifest."""
    with found_sources(recipe) as sources:
        inputs, changed_inputs = compare_inputs(artifact, sources, progress)
        checks, changed, is_loaded = compare_tokenizer(artifact, recipe)

        def giver(split: str) -> RowGiver:
            records = split_record(artifact, split).inputs
            files, _ = aligned_files(records, sources, split)
            return SourceRows(recipe=recipe, names=tuple(item.path for item in records), files=tuple(files))

        is_gone = sources.gone or any(item.now is None for item in changed_inputs)
        yield Origin(
            name="sources",
            gives="the sources give",
            giver=giver,
            whole=lambda output, workers, shown: built_anew(
                recipe, output, balance=artifact.manifest.balance, num_workers=workers, progress=shown
            ),
            checks=(inputs, *checks),
            changed=(*changed_inputs, *changed, *compare_versions(artifact)),
            why_nothing=None if is_loaded else "the tokenizer cannot be loaded",
            why_not_whole=f"sources are missing; {_SAMPLE}" if is_gone else None,
            no_other_cause=f"inputs, tokenizer, template and libraries are those of the manifest: {_CHANGED_TOGETHER}",
            space_factor=5,  # tokens are stored a second time meanwhile
        )


def store_origin(artifact: Artifact, recipe: SFTRecipe, store: TokenStore) -> Origin:
    """Return the stored tokens that an artifact was made from, as an origin."""
    check, is_whole = _checked_tokens(artifact, store)
    return Origin(
        name="store",
        gives="the stored tokens give",
        giver=lambda split: stored_rows(artifact, recipe, store, record_of(artifact, store), split),
        whole=lambda output, workers, shown: packed_anew(artifact, store, output, num_workers=workers, progress=shown),
        checks=(check,),
        why_nothing="the token store cannot give them" if is_whole is None else None,
        why_not_whole=f"tokens are missing from the store; {_SAMPLE}" if is_whole is False else None,
        no_other_cause=f"the stored tokens have their checksums: {_CHANGED_TOGETHER}",
        space_factor=3,
    )


def _checked_tokens(artifact: Artifact, store: TokenStore) -> tuple[Check, bool | None]:
    """Return (check of an artifact's tokens in the store, whether all are there; None if none can be used)."""
    try:
        files = token_files(store, record_of(artifact, store))
        problem = tokenizer_problem(artifact, files)
    except StoreError as error:
        return Check(name="token store", outcome="could not run", detail=str(error)), None
    num_gone = sum(not path.is_file() for path in files)
    if problem is not None:
        return Check(name="token store", outcome="differs", detail=problem), True
    if num_gone:
        detail = f"{num_gone} of {len(files)} token files are missing from {str(store.folder)!r}"
        return Check(name="token store", outcome="could not run", detail=detail), False
    detail = f"all {len(files)} token files exist, made with the manifest's tokenizer"
    return Check(name="token store", outcome="same", detail=detail), True
