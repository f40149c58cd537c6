"""Compares inputs, tokenizer, chat template and libraries with those in an artifact's manifest."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.identity import library_versions
from bridgepack.data.reading.inputs import InputFile, hash_file
from bridgepack.data.tasks import Progress
from bridgepack.errors import DataError, TokenizerError
from bridgepack.proof.sources import FoundSources, tokenizer_identity
from bridgepack.proof.verify.records import Check, Ingredient
from bridgepack.records import VALIDATION, InputRecord
from bridgepack.records.fingerprints import TOKENIZER_NAMES

#: Parts of the tokenizer's identity that make the template.
_TEMPLATE = ("chat_template_sha256", "template_date", "chat_template_kwargs")
#: Parts that follow from the template.
_FROM_TEMPLATE = ("end_of_turn_ids", "drops_tool_names")
#: Files of a tokenizer that contain its template, and so change with it.
_TEMPLATE_FILES = ("chat_template", "tokenizer_config.json")
_NAMED = 3
_SHORT = 12


def compare_inputs(
    artifact: Artifact, sources: FoundSources, progress: Progress
) -> tuple[Check, tuple[Ingredient, ...]]:
    """Return whether the input files match the hashes in the manifest, after reading all of them."""
    changed: list[Ingredient] = []
    num_files = 0
    for split in artifact.manifest.splits:
        if split.name == VALIDATION and (artifact.manifest.recipe.get("data") or {}).get("validation_fraction"):
            continue  # its rows are part of training
        files, extra = aligned_files(split.inputs, sources, split.name)
        there = [file for file in files if file is not None]
        progress.start(f"Hashing {split.name} inputs", sum(file.num_bytes for file in there), "files")
        changed += _changed_inputs(split.inputs, files, progress)
        changed += [Ingredient(cause="input changed", name=file.label, then=None, now="") for file in extra]
        progress.finish()
        num_files += len(split.inputs)
    if sources.gone:
        named = "; ".join([*sources.gone, *map(describe_ingredient, changed)][:_NAMED])
        return Check(name="inputs", outcome="could not run", detail=named), tuple(changed)
    return _check("inputs", changed, f"{num_files} match their sha256 in the manifest"), tuple(changed)


def compare_tokenizer(artifact: Artifact, recipe: SFTRecipe) -> tuple[tuple[Check, ...], tuple[Ingredient, ...], bool]:
    """Return whether tokenizer and chat template match the manifest, and whether they could be loaded."""
    then = artifact.manifest.tokenizer
    try:
        now = tokenizer_identity(recipe)
    except TokenizerError as error:
        return (Check(name="tokenizer", outcome="could not run", detail=str(error)),), (), False
    template = tuple(
        Ingredient(cause="chat template changed", name=name, then=_text(then.get(name)), now=_text(now.get(name)))
        for name in _TEMPLATE
        if then.get(name) != now.get(name)
    )
    rest = tuple(_tokenizer_changes(then, now, has_other_template=bool(template)))
    checks = (
        _check("tokenizer", rest, f"{now['name_or_path']} has the manifest's files and token ids"),
        _check("chat template", template, "matches its sha256 in the manifest"),
    )
    return checks, (*template, *rest), True


def compare_versions(artifact: Artifact) -> tuple[Ingredient, ...]:
    """Return the libraries whose version has changed since the build."""
    then, now = artifact.manifest.versions, library_versions()
    return tuple(
        Ingredient(cause="library version changed", name=name, then=then.get(name), now=now.get(name))
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name)
    )


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
    found: list[InputFile | None] = []
    for index, record in enumerate(records):
        is_in_place = index < len(names) and names[index] == record.path
        place = index if is_in_place else next((at for at, name in enumerate(names) if name == record.path), None)
        found.append(None if place is None else files[place])
    known = {record.path for record in records}
    return found, [file for file in files if file.label not in known]


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
    for name in dict.fromkeys([*then, *now]):
        if name in left_out or as_text(then.get(name)) == as_text(now.get(name)):
            continue
        if name != "files":
            yield Ingredient(cause="tokenizer changed", name=name, then=_text(then.get(name)), now=_text(now.get(name)))
            continue
        before, after = dict(then.get(name) or {}), dict(now.get(name) or {})
        for file in dict.fromkeys([*before, *after]):
            is_template = has_other_template and file.startswith(_TEMPLATE_FILES)
            if before.get(file) != after.get(file) and not is_template:
                yield Ingredient(cause="tokenizer changed", name=file, then=before.get(file), now=after.get(file))


def _check(name: str, changed: Sequence[Ingredient], when_same: str) -> Check:
    if not changed:
        return Check(name=name, outcome="same", detail=when_same)
    return Check(name=name, outcome="differs", detail="; ".join(describe_ingredient(item) for item in changed[:_NAMED]))


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


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
