"""The sources of an artifact, from which its packs are derived again; and the comparison with a rebuild of all."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import (
    DROPPED_ROWS_FILE,
    LOST_CONTENT_FILE,
    PLAN_FOLDER,
    Artifact,
    changed_files,
    digests_file,
)
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.build import build_artifact
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.results import BuildOptions
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.diff.diff import diff_open_artifacts
from bridgepack.proof.sources import SourceRows, found_sources
from bridgepack.proof.verify.ingredients import aligned_files, compare_inputs, compare_tokenizer, compare_versions
from bridgepack.proof.verify.records import Check, Ingredient
from bridgepack.records import ROW_COLUMNS, PackedRow
from bridgepack.records.words import count_text

#: Disk space for a rebuild, as a multiple of the artifact: its tokens are stored a second time meanwhile.
_SPACE_FACTOR = 5
_GONE = "sources are missing; --num-packs compares the packs that do not need them"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Sources that packs are derived from."""

    giver: Callable[[str], SourceRows]  #: split -> giver of its rows
    #: (folder, maximum processes, progress) -> folder of the whole artifact, made again
    whole: Callable[[Path, int, Progress], Path]
    checks: tuple[Check, ...]
    changed: tuple[Ingredient, ...] = ()  #: ingredients that have changed
    why_nothing: str | None = None  #: why nothing can be derived; None if some packs can
    why_not_whole: str | None = None  #: why the whole artifact cannot be derived; None if it can


@contextmanager
def opened_origin(artifact: Artifact, recipe: SFTRecipe, progress: Progress) -> Iterator[Origin]:
    """Yield the input files and tokenizer of a recipe as an origin, compared with the manifest."""
    with found_sources(recipe, artifact.manifest) as sources:
        inputs, changed_inputs = compare_inputs(artifact, sources, progress)
        checks, tokenizer_changes, is_loaded = compare_tokenizer(artifact, recipe)

        def giver(split: str) -> SourceRows:
            records = artifact.split(split).inputs
            files, _ = aligned_files(records, sources, split)
            return SourceRows(recipe=recipe, names=tuple(item.path for item in records), files=tuple(files))

        def build_whole(output: Path, num_workers: int, display: Progress) -> Path:
            options = BuildOptions(num_workers=num_workers, store=output.with_name("tokens"))
            balance = artifact.manifest.balance
            return build_artifact(recipe, output=output, options=options, progress=display, balance=balance).output

        is_gone = sources.gone or any(item.now is None for item in changed_inputs)
        yield Origin(
            giver=giver,
            whole=build_whole,
            checks=(inputs, *checks),
            changed=(*changed_inputs, *tokenizer_changes, *compare_versions(artifact)),
            why_nothing=None if is_loaded else "the tokenizer cannot be loaded",
            why_not_whole=_GONE if is_gone else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """Result of comparing an artifact with its rebuild."""

    checks: list[Check] = field(default_factory=list)
    #: split -> packs that differ, are unreadable, or exist in only one of both
    packs: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare_rebuilt(
    artifact: Artifact, origin: Origin, *, scratch: Path | None, num_workers: int, progress: Progress
) -> Rebuilt:
    """Return the differences between an artifact and a rebuild of the same recipe.

    Raises:
        ConfigError: there is too little space, or the folder does not exist.
        BridgepackError: the artifact cannot be built.
    """
    _check_space(artifact, scratch)
    with tempfile.TemporaryDirectory(prefix="bridgepack-verify-", dir=scratch) as folder:
        rebuilt = Artifact(origin.whole(Path(folder) / "artifact", num_workers, progress))
        result = Rebuilt()
        for split in artifact.manifest.splits:
            result.checks.append(_compare_split(artifact, rebuilt, split.name, result))
        result.checks.append(_compare_others(artifact, rebuilt))
        if any(result.packs.values()):
            result.notes.extend(_fates(artifact, rebuilt))
        return result


def _fates(artifact: Artifact, rebuilt: Artifact) -> Iterator[str]:
    """Yield the differences of sequences, if the artifact's rows still match its plan."""
    if any(path.startswith(PLAN_FOLDER) for path in changed_files(artifact.folder, artifact.manifest)):
        return
    try:
        report = diff_open_artifacts(artifact, rebuilt, limit=0)
    except ArtifactError:
        return
    for split in report.splits:
        yield (
            f"{split.name} sequences: {split.num_unchanged} as the sources give them, {split.num_repacked} of these in "
            f"another place; {split.num_moved} of another row, {split.num_retokenized} with other tokens, "
            f"{split.num_masks_moved} with another mask, {split.num_lost} only in the artifact, "
            f"{split.num_gained} only in what the sources give"
        )


def _compare_split(artifact: Artifact, rebuilt: Artifact, split: str, result: Rebuilt) -> Check:
    name, rebuilt_split = f"{split} shards", rebuilt.manifest.split(split)
    if rebuilt_split is None:
        return Check(name=name, outcome="differs", detail=f"the sources give no {split} split")
    names = [shard.path for shard in artifact.split(split).shards]
    if names == [shard.path for shard in rebuilt_split.shards] and all(
        _are_equal(artifact, rebuilt, path) for path in names
    ):
        return Check(name=name, outcome="same", detail=f"{len(names)} are byte for byte what the sources give")
    differing_packs = result.packs[split] = list(_differing_packs(artifact, rebuilt, split))
    if differing_packs:
        return Check(
            name=name,
            outcome="differs",
            detail=f"{count_text(len(differing_packs), 'pack')} are not what the sources give",
        )
    if artifact.manifest.versions != rebuilt.manifest.versions:
        detail = "every pack is what the sources give; only versions of libraries differ"
        return Check(name=name, outcome="same", detail=detail)
    return Check(name=name, outcome="differs", detail="the bytes of the files differ; their packs are the same")


def _differing_packs(artifact: Artifact, rebuilt: Artifact, split: str) -> Iterator[int]:
    for pack, (ours, theirs) in enumerate(zip_longest(_rows(artifact, split), _rows(rebuilt, split))):
        is_in_both = ours is not None and theirs is not None
        if not (is_in_both and all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in ROW_COLUMNS)):
            yield pack


def _rows(artifact: Artifact, split: str) -> Iterator[PackedRow]:
    try:
        for batch in artifact.iter_batches(split):
            yield from map(batch.row, range(batch.num_rows))
    except ArtifactError:
        return


def _compare_others(artifact: Artifact, rebuilt: Artifact) -> Check:
    """Return the comparison of plan, ledgers and metadata; a plan's bytes depend on pyarrow's version."""
    names = [BRIDGE_METADATA_FILE, *(f"{PLAN_FOLDER}/{name}" for name in (DROPPED_ROWS_FILE, LOST_CONTENT_FILE))]
    if artifact.manifest.versions == rebuilt.manifest.versions:
        names += [f"{PLAN_FOLDER}/{split.name}.parquet" for split in rebuilt.manifest.splits]
        files = {record.path for record in artifact.manifest.files}
        names += [name for split in rebuilt.manifest.splits if (name := digests_file(split.name)) in files]
    differing_names = [name for name in names if not _are_equal(artifact, rebuilt, name)]
    if differing_names:
        return Check(
            name="other files", outcome="differs", detail=f"{', '.join(differing_names)}: not what the sources give"
        )
    return Check(name="other files", outcome="same", detail=f"{', '.join(names)}: what the sources give")


def _are_equal(artifact: Artifact, rebuilt: Artifact, name: str) -> bool:
    path, rebuilt_path = artifact.folder / name, rebuilt.folder / name
    return path.is_file() and rebuilt_path.is_file() and hash_file(path) == hash_file(rebuilt_path)


def _check_space(artifact: Artifact, scratch: Path | None) -> None:
    folder = scratch or Path(tempfile.gettempdir())
    if not folder.is_dir():
        raise ConfigError(f"--scratch is {str(folder)!r}; there is no such folder. Make it, or choose another.")
    space = _SPACE_FACTOR * sum(shard.num_bytes for split in artifact.manifest.splits for shard in split.shards)
    free = shutil.disk_usage(folder).free
    if free < space:
        raise ConfigError(
            f"{str(folder)!r} has {free / 1e9:.1f} GB free; rebuilding the artifact takes about {space / 1e9:.1f} "
            "GB. Choose another --scratch, or compare a sample with --num-packs, which needs no space."
        )
