"""Step 3 of a check, facts: the run's tokenizer, or that of its packs, and the tokenizer of its model."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from bridgepack.bridge.bases import base_of
from bridgepack.bridge.model_folder import ModelFolder, read_model_folder
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.shipped import is_shipped_model
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import folder_in_cache
from bridgepack.data.tokenizers.files import TokenizerFiles, tokenizer_files
from bridgepack.host.vocabularies import vocabulary_of
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.judging.tokenizers import TokenizerFacts, TokenizerPair, short_name
from bridgepack.user_files import text_if_there

#: Why the tokenizers are not compared.
_NO_TOKENIZER = "the run has no tokenizer of Hugging Face"
_NAME, _WEIGHTS, _RESUMED = "tokenizer.tokenizer_model", "checkpoint.pretrained_checkpoint", "checkpoint.load"
_HUB_MODEL, _VOCAB_SIZE = "model.hf_model_id", "model.vocab_size"
#: Files of which a model or a tokenizer in the cache has at least one.
_IN_CACHE = ("tokenizer.json", "tokenizer_config.json", "config.json", "tokenizer.model", "vocab.json")
#: Maximum models that are looked at from an adapter to the model that it was trained on.
_MAX_BASES = 4
_NO_TEMPLATE = hashlib.sha256(b"").hexdigest()


def tokenizers_of(
    run: Run, recipe: SFTRecipe | None, packs: ArtifactFacts | None, *, looks_at_files: bool
) -> TokenizerPair | str:
    """Return the tokenizers of a run and of its model, as far as they are known, or why they are not compared.

    With packs, the run's is the one that they were made with.
    """
    if (name := _text(run, _NAME)) is None:
        return _NO_TOKENIZER
    manifest = None if packs is None or packs.manifest is None else packs.manifest.tokenizer
    of_weights = list(models_of_weights(run)) if looks_at_files else []
    of_base = list(_models_of_base(run, recipe)) if looks_at_files else []
    with_tokenizer = next((model for model in (*of_weights, *of_base) if model.tokenizer is not None), None)
    is_of_weights = with_tokenizer in of_weights if of_weights else _starts_from_base(run, recipe)
    surest = of_weights or (of_base if is_of_weights else [])
    with_ends = next((model for model in surest if model.token_ids("eos")), None)
    of_run = _facts_of_run(run, name, manifest, looks_at_files=looks_at_files)
    names = list(_names(run, recipe, of_weights))
    return TokenizerPair(
        of_run=of_run,
        of_model=_facts_of_model(
            names[0] if names else "the model", with_tokenizer, with_ends, is_of_weights=is_of_weights
        ),
        vocab_size=_vocab_size(run, recipe, of_weights or of_base),
        is_of_weights=is_of_weights,
        is_named_alike=any(
            short_name(text) == short_name(of_run.name) for text in chain(names, _tokenizers_of_recipes(run))
        ),
    )


def models_of_weights(run: Run) -> Iterator[ModelFolder]:
    """Yield the model that the run starts from, where it is here: its folder, what it was trained on or made from."""
    place = _text(run, _WEIGHTS) or _text(run, _RESUMED)
    for _ in range(_MAX_BASES):
        if place is None or (folder := _folder(place)) is None:
            return
        model = read_model_folder(folder)
        yield model
        for name in (model.tokenizer_name, model.hub_id, _text_in(model.config, "_name_or_path")):
            if name and name != place and (source := _folder(name)) is not None and source != folder:
                yield read_model_folder(source)
        place = model.base


def _models_of_base(run: Run, recipe: SFTRecipe | None) -> Iterator[ModelFolder]:
    """Yield the models that the base of the run was made from, where they are here."""
    for name in _base_names(run, recipe):
        if (folder := _folder(name)) is not None:
            yield read_model_folder(folder)


def _names(run: Run, recipe: SFTRecipe | None, of_weights: list[ModelFolder]) -> Iterator[str]:
    """Yield the names of the model and of its tokenizer."""
    names: list[str | None] = []
    for model in of_weights:
        names += [model.hub_id, model.tokenizer_name, model.base, _text_in(model.config, "_name_or_path")]
    yield from filter(None, (*names, *_base_names(run, recipe), _text(run, _WEIGHTS)))


def _base_names(run: Run, recipe: SFTRecipe | None) -> list[str]:
    """Return the names of the model that the base of the run was made from, and of its tokenizer."""
    names = (_model_named_in(recipe), _text(run, _HUB_MODEL), _base_tokenizer(recipe))
    return list(dict.fromkeys(filter(None, names)))


def _starts_from_base(run: Run, recipe: SFTRecipe | None) -> bool:
    """Return whether weights that are not here are, by their name, those of the base, and not made from it."""
    weights = _text(run, _WEIGHTS)
    return weights is None or short_name(weights) in map(short_name, _base_names(run, recipe))


def _tokenizers_of_recipes(run: Run) -> Iterator[str]:
    """Yield the tokenizers of the host's own recipes for the model's id, or for its class and size."""
    hub_id = _text(run, _HUB_MODEL)
    kind = (_text(run, "model._target_"), _integer(run, _VOCAB_SIZE))
    for model, tokenizer in run.versions.release.facts.models_of_tokenizers:
        if hub_id == model.get("hf_model_id") if hub_id else kind == (model.get("_target_"), model.get("vocab_size")):
            yield tokenizer


def _facts_of_run(run: Run, name: str, manifest: Mapping[str, Any] | None, *, looks_at_files: bool) -> TokenizerFacts:
    kwargs = run.stated_value("tokenizer.hf_tokenizer_kwargs")
    revision = _text_in(kwargs, "revision") if isinstance(kwargs, Mapping) else None
    files = _files(name, revision) if looks_at_files else None
    if manifest is None:
        template = _template_of(run)
        facts = _facts_of_files(name, files)
        return facts if template is None else replace(facts, template_hashes=_template_hashes(template))
    made_with, hashes = _text_in(manifest, "name_or_path") or name, manifest.get("files")
    of_packs = _files(made_with, _text_in(manifest, "revision")) if looks_at_files else None
    size, template_hash = manifest.get("vocab_size"), manifest.get("chat_template_sha256")
    hashes = hashes if isinstance(hashes, Mapping) else {}
    of_both = next(
        (
            candidate
            for candidate in (of_packs, files)
            if candidate is not None and _is_of_packs(candidate, hashes, size)
        ),
        None,
    )
    facts = _facts_of_files(made_with, of_both)
    return replace(
        facts,
        hashes={str(file): str(sha256) for file, sha256 in hashes.items()},
        num_ids=size if type(size) is int else None,
        end_ids=_ids(manifest.get("eos_token_id")),
        end_of_turn_ids=_ids(manifest.get("end_of_turn_ids")),
        template_hashes=(template_hash,) if isinstance(template_hash, str) and template_hash != _NO_TEMPLATE else (),
    )


def _is_of_packs(files: TokenizerFiles, hashes: Mapping[str, Any], size: Any) -> bool:
    """Return whether packs with these hashes of files and this number of ids were made with a tokenizer."""
    are_equal = [hashes[name] == sha256 for name, sha256 in files.hashes.items() if name in hashes]
    return all(are_equal) if are_equal else files.num_ids == size


def _facts_of_model(
    name: str, with_tokenizer: ModelFolder | None, with_ends: ModelFolder | None, *, is_of_weights: bool
) -> TokenizerFacts:
    """Return what is known of the model's tokenizer; of a base that may not be the model, its vocabulary alone."""
    files = None if with_tokenizer is None else with_tokenizer.tokenizer
    facts = _facts_of_files(name if files is None else str(files.folder), files)
    if not is_of_weights:
        facts = replace(facts, end_ids=frozenset(), pad_ids=frozenset(), template_hashes=())
    if with_ends is None:
        return facts
    return replace(
        facts,
        end_ids=facts.end_ids | with_ends.token_ids("eos"),
        pad_ids=facts.pad_ids | with_ends.token_ids("pad"),
    )


def _facts_of_files(name: str, files: TokenizerFiles | None) -> TokenizerFacts:
    if files is None:
        return TokenizerFacts(name=name)
    return TokenizerFacts(
        name=name,
        hashes=files.hashes,
        tokens=files.tokens,
        more_tokens=files.more_tokens,
        num_ids=files.num_ids,
        end_ids=_ids(files.special_id("eos")),
        pad_ids=_ids(files.special_id("pad")),
        template_hashes=() if files.chat_template is None else _template_hashes(files.chat_template),
    )


def _vocab_size(run: Run, recipe: SFTRecipe | None, models: list[ModelFolder]) -> int | None:
    """Return the rows of the model's embedding: as set, as the weights' config says, or as the base has."""
    size = None if run.stated_value("tokenizer.use_tokenizer_vocab_size") is True else _integer(run, _VOCAB_SIZE)
    sizes = [size, *(model.vocab_size for model in models)]
    for name in _base_names(run, recipe):
        settings = run.versions.release.facts.model_by_name(name)
        sizes += [None if settings is None else settings.get("vocab_size"), vocabulary_of(name)]
    return next((size for size in sizes if type(size) is int), None)


def _files(name: str, revision: str | None) -> TokenizerFiles | None:
    path = Path(name)
    if path.is_file():
        return TokenizerFiles(folder=path.parent, file=path.name)
    folder = _folder(name, revision)
    return None if folder is None else tokenizer_files(folder)


def _folder(name: str, revision: str | None = None) -> Path | None:
    """Return the folder of a name on this machine: the folder itself, or that of an id in the hub's cache."""
    if Path(name).is_dir():
        return Path(name)
    return folder_in_cache(name, _IN_CACHE, revision)


def _model_named_in(recipe: SFTRecipe | None) -> str | None:
    """Return the id or folder that a recipe names as its model; None if it names a recipe of the host."""
    model = None if recipe is None else recipe.model
    return None if model is None or is_shipped_model(model) else model.name


def _base_tokenizer(recipe: SFTRecipe | None) -> str | None:
    """Return the tokenizer of the host's recipe that a recipe is based on."""
    if recipe is None or recipe.model is None or not is_shipped_model(recipe.model):
        return None
    name = value_at(base_of(recipe), _NAME)
    return name if isinstance(name, str) else None


def _template_of(run: Run) -> str | None:
    """Return the chat template that the run sets instead of its tokenizer's."""
    path = _text(run, "tokenizer.chat_template_path")
    return _text(run, "tokenizer.chat_template") or (None if path is None else text_if_there(Path(path)))


def _template_hashes(template: str) -> tuple[str, ...]:
    """Return the sha256 of a template as it is, without white space around it, and with the line end of a file."""
    text = template.strip()
    return tuple(hashlib.sha256(form.encode()).hexdigest() for form in (template, text, f"{text}\n"))


def _text(run: Run, path: str) -> str | None:
    value = run.stated_value(path)
    return str(value) if isinstance(value, (str, Path)) and str(value).strip() else None


def _text_in(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value else None


def _integer(run: Run, path: str) -> int | None:
    value = run.stated_value(path)
    return value if type(value) is int else None


def _ids(value: Any) -> frozenset[int]:
    return frozenset(index for index in (value if isinstance(value, (list, tuple)) else [value]) if type(index) is int)
