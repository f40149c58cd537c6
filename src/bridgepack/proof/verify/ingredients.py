"""Compares an artifact with its manifest: its files, and the inputs, tokenizer and libraries that are here now."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import (
    DROPPED_ROWS_FILE,
    PLAN_FOLDER,
    Artifact,
    changed_files,
    shard_problem,
    unlisted_files,
)
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, bridge_metadata_entry, read_bridge_metadata
from bridgepack.data.artifact.plan import DroppedRow, iter_dropped_rows, iter_plan_columns, plan_path
from bridgepack.data.identity import library_versions
from bridgepack.data.reading.inputs import InputFile, hash_file
from bridgepack.data.tasks import Progress
from bridgepack.errors import BridgepackError, DataError, TokenizerError
from bridgepack.geometry import IntArray
from bridgepack.proof.sources import FoundSources, tokenizer_identity
from bridgepack.proof.verify.records import Cause, Check, Ingredient
from bridgepack.records import VALIDATION, DropReason, InputRecord
from bridgepack.records.manifests import TOKENIZER_NAMES, SplitRecord
from bridgepack.records.words import count_text

#: Parts of the tokenizer's identity that make the template.
_TEMPLATE = ("chat_template_sha256", "template_date", "chat_template_kwargs")
#: Parts that follow from the template.
_FROM_TEMPLATE = ("template", "end_of_turn_ids", "drops_tool_names", "forms", "trimmed_openings")
#: Files of a tokenizer that contain its template, and so change with it.
_TEMPLATE_FILES = ("chat_template", "tokenizer_config.json")
_NAMED = 3
_SHORT = 12
_ROWS, _PIECES = "rows", "pieces of rows"


def compare_inputs(
    artifact: Artifact, sources: FoundSources, progress: Progress
) -> tuple[Check, tuple[Ingredient, ...]]:
    """Return whether the input files match the hashes in the manifest, after reading all of them."""
    changes: list[Ingredient] = []
    num_files = 0
    for split in artifact.manifest.splits:
        if split.name == VALIDATION and (artifact.manifest.recipe.get("data") or {}).get("validation_fraction"):
            continue  # its rows are part of training
        files, extra = aligned_files(split.inputs, sources, split.name)
        present_files = [file for file in files if file is not None]
        progress.start(f"Hashing {split.name} inputs", sum(file.num_bytes for file in present_files), "files")
        changes += _changed_inputs(split.inputs, files, progress)
        changes += [Ingredient(cause="input changed", name=file.label, then=None, now="") for file in extra]
        progress.finish()
        num_files += len(split.inputs)
    if sources.gone:
        reasons = [*sources.gone, *map(describe_ingredient, changes)][:_NAMED]
        problems = "; ".join(reason.removesuffix(".") for reason in reasons)
        return Check(name="inputs", outcome="could not run", detail=problems), tuple(changes)
    return _check("inputs", changes, f"sha256 of {count_text(num_files, 'file')} as in the manifest"), tuple(changes)


def compare_tokenizer(artifact: Artifact, recipe: SFTRecipe) -> tuple[tuple[Check, ...], tuple[Ingredient, ...], bool]:
    """Return whether tokenizer and chat template match the manifest, and whether they could be loaded."""
    then = artifact.manifest.tokenizer
    try:
        now = tokenizer_identity(recipe)
    except TokenizerError as error:
        return (Check(name="tokenizer", outcome="could not run", detail=str(error)),), (), False
    template = tuple(_changes("chat template changed", then, now, _TEMPLATE))
    tokenizer_changes = tuple(_tokenizer_changes(then, now, has_other_template=bool(template)))
    checks = (
        _check("tokenizer", tokenizer_changes, f"{now['name_or_path']} has the manifest's files and token ids"),
        _check("chat template", template, "matches its sha256 in the manifest"),
    )
    return checks, (*template, *tokenizer_changes), True


def compare_versions(artifact: Artifact) -> tuple[Ingredient, ...]:
    """Return the libraries whose version has changed since the build."""
    return tuple(_changes("library version changed", artifact.manifest.versions, library_versions()))


def aligned_files(
    records: Sequence[InputRecord], sources: FoundSources, split: str
) -> tuple[list[InputFile | None], list[InputFile]]:
    """Return (present file of each of a split's inputs, None if missing; new files).

    Matches by name; if names have changed, as after a move, by position in the list.
    """
    files = list(sources.files.get(split, ()))
    names = [file.label for file in files]
    if not sources.gone and len(files) == len(records) and set(names).isdisjoint(item.path for item in records):
        return list(files), []
    input_files: list[InputFile | None] = []
    for index, record in enumerate(records):
        is_in_place = index < len(names) and names[index] == record.path
        place = index if is_in_place else next((at for at, name in enumerate(names) if name == record.path), None)
        input_files.append(None if place is None else files[place])
    record_paths = {record.path for record in records}
    return input_files, [file for file in files if file.label not in record_paths]


def _changed_inputs(
    records: Sequence[InputRecord], files: Sequence[InputFile | None], progress: Progress
) -> Iterator[Ingredient]:
    for record, file in zip(records, files, strict=True):
        digest = None
        if file is not None:
            try:
                digest = hash_file(file.path)
            except DataError as error:
                digest = str(error)
            progress.advance(1, work=file.num_bytes)
        if digest != record.sha256:
            yield Ingredient(cause="input changed", name=record.path, then=record.sha256, now=digest)


def _tokenizer_changes(
    then: Mapping[str, Any], now: Mapping[str, Any], *, has_other_template: bool
) -> Iterator[Ingredient]:
    left_out = {*TOKENIZER_NAMES, *_TEMPLATE, *(_FROM_TEMPLATE if has_other_template else ())}
    for item in _changes("tokenizer changed", then, now):
        if item.name == "files":
            files = _changes("tokenizer changed", then.get("files") or {}, now.get("files") or {})
            yield from (file for file in files if not (has_other_template and file.name.startswith(_TEMPLATE_FILES)))
        elif item.name not in left_out:
            yield item


def _changes(
    cause: Cause, then: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str] | None = None
) -> Iterator[Ingredient]:
    for name in dict.fromkeys([*then, *now]) if names is None else names:
        before, after = then.get(name), now.get(name)
        if as_text(before) != as_text(after):
            yield Ingredient(
                cause=cause,
                name=name,
                then=None if before is None else str(before),
                now=None if after is None else str(after),
            )


def _check(name: str, changes: Sequence[Ingredient], when_same: str) -> Check:
    if not changes:
        return Check(name=name, outcome="same", detail=when_same)
    return Check(name=name, outcome="differs", detail="; ".join(describe_ingredient(item) for item in changes[:_NAMED]))


def describe_ingredient(item: Ingredient) -> str:
    """Return what changed, in words: `data/chats.jsonl was 0a1b, is 2c3d`."""
    if item.now is None:
        return f"{item.name} is gone"
    if item.then is None:
        return f"{item.name} is new"
    return f"{item.name} was {item.then[:_SHORT]}, is {item.now[:_SHORT]}"


def as_text(value: Any) -> str:
    """Return a value as text, equal for equal values, whether they have lists or a manifest's tuples."""
    return json.dumps(value, sort_keys=True, default=str)


_PLAN_COLUMNS = ("pack", "position", "file_index", "row")


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """Result of checking an artifact's files."""

    checks: tuple[Check, ...]
    changed_shards: tuple[str, ...]  #: names of shards that do not match the manifest, in order
    changed_plans: tuple[str, ...]  #: names of plan files that do not match; they cannot be used
    is_manifest_changed: bool  #: the manifest was changed after the build


def check_integrity(artifact: Artifact, progress: Progress) -> Integrity:
    """Return whether the files of an artifact match its manifest, after reading every shard."""
    manifest = artifact.manifest
    shard_problems = _changed_shards(artifact, progress)
    problems = list(shard_problems.values())
    num_shards = sum(len(split.shards) for split in manifest.splits)
    file_problems = changed_files(artifact.folder, manifest)
    wrong = [f"{path}: {problem}" for path, problem in file_problems.items()]
    wrong += [f"{path}: the manifest does not list it" for path in unlisted_files(artifact.folder, manifest)]
    checks = (
        _run_check("manifest", _manifest, artifact, f"matches its fingerprint, {manifest.fingerprint[:_SHORT]}"),
        _run_check(
            "shards",
            lambda _: _items_text(problems),
            artifact,
            f"sha256 of {count_text(num_shards, 'file')} as in the manifest",
        ),
        _run_check(
            "files",
            lambda _: _items_text(wrong),
            artifact,
            f"sha256 of {count_text(len(manifest.files), 'other file')} as in the manifest",
        ),
        _run_check("metadata", _metadata, artifact, f"{BRIDGE_METADATA_FILE} matches the statistics"),
        _run_check("plan", _plan, artifact, "matches the manifest's counts of sequences, tokens and dropped rows"),
    )
    is_manifest_changed = checks[0].outcome == "differs"
    return Integrity(
        checks=checks,
        changed_shards=tuple(shard_problems),
        changed_plans=tuple(path for path in file_problems if path.startswith(PLAN_FOLDER)),
        is_manifest_changed=is_manifest_changed,
    )


def _run_check(name: str, problem_of: Callable[[Artifact], str | None], artifact: Artifact, when_same: str) -> Check:
    try:
        problem = problem_of(artifact)
    except BridgepackError as error:
        problem = str(error)
    return Check(name=name, outcome="differs" if problem else "same", detail=problem or when_same)


def _manifest(artifact: Artifact) -> str | None:
    manifest = artifact.manifest
    fingerprint = fingerprint_of_manifest(manifest)
    if fingerprint == manifest.fingerprint:
        return None
    return (
        f"its fingerprint is {manifest.fingerprint[:_SHORT]}, but its values give {fingerprint[:_SHORT]}: recipe, "
        "inputs, tokenizer or versions in it were changed after the build"
    )


def _changed_shards(artifact: Artifact, progress: Progress) -> dict[str, str]:
    """Return name -> problem of every shard that does not match the manifest."""
    shards = [shard for split in artifact.manifest.splits for shard in split.shards]
    progress.start("Hashing shards", sum(shard.num_bytes for shard in shards), "shards")
    problems: dict[str, str] = {}
    for shard in shards:
        problem = shard_problem(artifact.folder, shard)
        if problem is not None:
            problems[shard.path] = f"{shard.path}: {problem}"
        progress.advance(1, work=shard.num_bytes)
    progress.finish()
    return problems


def _metadata(artifact: Artifact) -> str | None:
    splits, size = artifact.manifest.splits, artifact.manifest.packed_sequence_size
    manifest_entries = [bridge_metadata_entry(split.statistics, packed_sequence_size=size) for split in splits]
    file_entries = read_bridge_metadata(artifact.folder / BRIDGE_METADATA_FILE)
    for split, manifest_entry, entry in zip(splits, manifest_entries, file_entries, strict=False):
        for name, value in manifest_entry.items():
            if entry.get(name) != value:
                return f"{BRIDGE_METADATA_FILE}: {name} of {split.name} is {entry.get(name)}; its packs give {value}"
    if len(file_entries) != len(manifest_entries):
        return f"{BRIDGE_METADATA_FILE} has {len(file_entries)} splits; the manifest has {len(manifest_entries)}"
    return None


def _plan(artifact: Artifact) -> str | None:
    for split in artifact.manifest.splits:
        numbers, num_sequences, num_tokens = split.statistics, 0, 0
        problem = _plan_problem(artifact, split)
        if problem is not None:
            return problem
        for (part,) in iter_plan_columns(artifact, split.name, ("runtime_length",)):
            num_sequences, num_tokens = num_sequences + len(part), num_tokens + int(part.sum())
        if (num_sequences, num_tokens) != (numbers.num_sequences, numbers.num_tokens):
            return (
                f"plan/{split.name}.parquet has {count_text(num_sequences, 'sequence')} of "
                f"{num_tokens} tokens; the manifest says "
                f"{numbers.num_sequences} of {numbers.num_tokens}"
            )
    return _ledger(artifact)


def _plan_problem(artifact: Artifact, split: SplitRecord) -> str | None:
    """Return what is wrong with the numbers of a split's plan; None if nothing is.

    Example: packs [0 0 1], positions [0 1 0] of 2 packs -> None; positions [0 0 0] -> "... line 2 ...".
    """
    name = plan_path(artifact, split.name).relative_to(artifact.folder)
    pack, position, num_before = -1, -1, 0
    for packs, positions, files, rows in iter_plan_columns(artifact, split.name, _PLAN_COLUMNS):
        if not len(packs):
            continue
        wrong = _first(_is_out_of_order(packs, positions, pack, position))
        if wrong is not None:
            problem = f"is sequence {positions[wrong]} of pack {packs[wrong]}, which does not follow the one before"
            return f"{name} line {num_before + wrong + 1} {problem}"
        wrong = _first((files < 0) | (files >= len(split.inputs)) | (rows < 1))
        if wrong is not None:
            problem = (
                f"is row {rows[wrong]} of input {files[wrong]}; the manifest has {len(split.inputs)}, counted from 0"
            )
            return f"{name} line {num_before + wrong + 1} {problem}"
        pack, position, num_before = int(packs[-1]), int(positions[-1]), num_before + len(packs)
    num_packs = split.statistics.num_packs
    return None if pack + 1 == num_packs else f"{name} has {pack + 1} packs; the manifest says {num_packs}"


def _is_out_of_order(packs: IntArray, positions: IntArray, pack: int, position: int) -> npt.NDArray[np.bool_]:
    packs, positions = np.append(pack, packs), np.append(position, positions)
    is_next = (packs[1:] == packs[:-1]) & (positions[1:] == positions[:-1] + 1)
    is_first = (packs[1:] == packs[:-1] + 1) & (positions[1:] == 0)
    is_next &= packs[1:] >= 0  # before the first sequence there is no pack -1 to continue
    is_wrong: npt.NDArray[np.bool_] = ~(is_next | is_first)
    return is_wrong


def _first(is_wrong: npt.NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(is_wrong)
    return int(places[0]) if len(places) else None


def _ledger(artifact: Artifact) -> str | None:
    ledger_counts = Counter((drop.split, drop.reason, _noun(drop)) for drop in iter_dropped_rows(artifact))
    manifest_counts = Counter(
        {
            (split.name, reason, noun): count
            for split in artifact.manifest.splits
            for noun, drops in ((_ROWS, split.drops), (_PIECES, split.dropped_pieces))
            for reason, count in drops.items()
            if reason != DropReason.NOT_SAMPLED  # the plan lists the chosen ones
        }
    )
    for place in sorted({*ledger_counts, *manifest_counts}):
        split, reason, noun = place
        if ledger_counts[place] != manifest_counts[place]:
            return (
                f"plan/{DROPPED_ROWS_FILE} has {ledger_counts[place]} {noun} dropped from {split} as {reason}; the "
                f"manifest says {manifest_counts[place]}"
            )
    return None


def _noun(drop: DroppedRow) -> str:
    return _ROWS if drop.first_token is None else _PIECES


def _items_text(items: list[str]) -> str:
    more = f"; ... {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return "; ".join(items[:_NAMED]) + more
