"""The fingerprint of an artifact, and the names of token files: digests of everything that they depend on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bridgepack
from bridgepack import __version__
from bridgepack.config.recipe.data import DataConfig, DataSource, Source, as_sources
from bridgepack.config.recipe.fingerprint import fingerprint_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.resolved import ResolvedRecipe
from bridgepack.config.section import younger_fields
from bridgepack.data.artifact.manifest import FORMAT_VERSION
from bridgepack.data.store.token_file import TOKEN_FILE_VERSION
from bridgepack.errors import DataError
from bridgepack.records import InputRecord
from bridgepack.records.manifests import TOKENIZER_NAMES

#: Libraries whose version can change a token, a rendered text or a shard's bytes.
_LIBRARIES = ("jinja2", "pyarrow", "tokenizers", "transformers")
#: Settings that apply after tokenising, or that choose between equivalent ways of tokenising.
_LATER_SETTINGS = {"over_long", "truncation_method", "ends_cut_completions", "labels_after_eos"}
_KEY_CHARACTERS = 32


def library_versions() -> dict[str, str]:
    """Return bridgepack's version and those of the libraries that can change a row."""
    return {"bridgepack": __version__, **_installed_versions()}


@cache
def _installed_versions() -> Mapping[str, str]:
    """Return library -> its version, read once in a process, which cannot load another; reading takes 10 ms each."""
    return {name: version(name) for name in _LIBRARIES}


def fingerprint(
    resolved_recipe: ResolvedRecipe,
    tokenizer: Mapping[str, Any],
    inputs: Mapping[str, Sequence[InputRecord]],
    *,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Return the fingerprint, as `fingerprint_of`; `versions` are by default those of the installed libraries."""
    assert (resolved_recipe.balance is None) == (resolved_recipe.recipe.packing.balance.kind == "none")
    return fingerprint_of(
        format_version=FORMAT_VERSION,
        versions=versions or library_versions(),
        inputs=inputs,
        tokenizer=tokenizer,
        recipe=resolved_recipe.recipe.model_dump(mode="json"),
        resolved_values=resolved_recipe.explain(),
        has_validation_sets=resolved_recipe.recipe.data.has_validation_sets,
    )


def tokenization_settings(recipe: SFTRecipe) -> dict[str, Any]:
    """Return dotted path -> value of the recipe fields that tokens depend on."""

    def rows_of(source: Source) -> dict[str, Any]:
        section = DataSource(path=source) if isinstance(source, str) else source
        return section.model_dump(mode="json", exclude={"weight", "epochs", "max_rows"})  # how often they are used

    sections = {
        "preprocessing": recipe.applied_preprocessing.model_dump(
            mode="json", exclude={**dict.fromkeys(_LATER_SETTINGS, True), "others": {"__all__": _LATER_SETTINGS}}
        ),
        "tokenizer": recipe.tokenizer.model_dump(mode="json", exclude={"engine"}),
        "data": recipe.data.model_dump(mode="json", include={"role_aliases", "max_row_bytes", "layout"})
        | {split: list(map(rows_of, as_sources(getattr(recipe.data, split)))) for split in ("train", "validation")},
    }
    settings = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    if recipe.host_habits:
        settings["preprocessing.host_habits"] = sorted(recipe.host_habits)
    action = getattr(recipe.chat_preprocessing, "over_long", "drop")
    if action in ("truncate_history", "split_exchanges"):  # what is left of a row depends on the length
        settings["preprocessing.over_long"] = action
        settings["packing.max_sequence_length"] = recipe.resolve().max_sequence_length.value
    return settings


def tokenization_identity(recipe: SFTRecipe, tokenizer: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Return everything that can change a token or a mask, except the rows' bytes.

    `tokenizer` is `ChatTokenizer.identity()`. The engine should not change tokens; if one is found to, tokens made with
    it are not used again.
    """
    sections = {"preprocessing": type(recipe.preprocessing), "data": DataConfig}
    younger = {
        f"{name}.{field}": value
        for name, section in sections.items()
        for field, value in younger_fields(section).items()
    }
    return {
        "token_file_version": TOKEN_FILE_VERSION,
        "code": code_digest(),
        "engine": engine,
        # pyarrow neither reads rows nor makes tokens
        "versions": {name: text for name, text in library_versions().items() if name != "pyarrow"},
        "tokenizer": {key: value for key, value in tokenizer.items() if key not in TOKENIZER_NAMES},
        "settings": {
            path: value
            for path, value in tokenization_settings(recipe).items()
            if path not in {"data.train", "data.validation"}
            and not path.startswith("tokenizer.")
            and (path not in younger or value != younger[path])
        },
    }


def store_key(value: Any) -> str:
    """Return the name of a tokenisation or a token file in the store: a digest of everything that it depends on."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of bridgepack's source, because other releases and edited checkouts may tokenise differently."""
    return source_digest(Path(bridgepack.__file__).parent)


def source_digest(package: Path) -> str:
    """Return a digest of the paths and bytes of all Python files in a package, at any depth.

    Raises:
        DataError: there are no Python files to digest.
    """
    sources = sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).parts)
    if not sources:
        raise DataError(f"{package} has no Python files to identify its version. Install bridgepack again.")
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:_KEY_CHARACTERS]
