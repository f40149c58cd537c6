"""The fingerprint of an artifact, and the names of token files: digests of everything that they depend on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bridgepack
from bridgepack import __version__
from bridgepack.config.recipe.data import DataSource, Source, as_sources
from bridgepack.config.recipe.recipe import ResolvedRecipe, SFTRecipe
from bridgepack.data.artifact.manifest import FORMAT_VERSION
from bridgepack.data.reading.inputs import RowView
from bridgepack.data.store.token_file import TOKEN_FILE_VERSION
from bridgepack.errors import DataError
from bridgepack.records import InputRecord
from bridgepack.records.manifests import TOKENIZER_NAMES, YOUNGER_DEFAULTS, fingerprint_of

#: Libraries whose version can change a token, a rendered text or a shard's bytes.
_LIBRARIES = ("jinja2", "pyarrow", "tokenizers", "transformers")
#: Settings that apply after tokenising, or that choose between equivalent ways of tokenising.
SIZE_SETTINGS = frozenset({"over_long", "truncation_method", "ends_cut_completions"})
#: Libraries that neither read rows nor make tokens.
_OTHER_LIBRARIES = frozenset({"pyarrow"})
_KEY_CHARACTERS = 32
_SOURCES = ("train", "validation")
#: A source's fields for how often its rows are used.
_USES = {"weight", "epochs", "max_rows"}


def library_versions() -> dict[str, str]:
    """Return bridgepack's version and those of the libraries that can change a row."""
    return {"bridgepack": __version__, **{name: version(name) for name in _LIBRARIES}}


def fingerprint(
    resolved: ResolvedRecipe,
    tokenizer: Mapping[str, Any],
    inputs: Mapping[str, Sequence[InputRecord]],
    *,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Return the fingerprint, hexadecimal; the same on every machine.

    Args:
        resolved: the recipe; of its name, batch and topology, only the resulting multiple counts.
        tokenizer: `ChatTokenizer.identity()`.
        inputs: split -> its input files, in order; only their bytes count, not their paths.
        versions: library -> version, for libraries that make rows; by default those installed.
    """
    assert (resolved.balance is None) == (resolved.recipe.packing.balance.kind == "none")
    return fingerprint_of(
        format_version=FORMAT_VERSION,
        versions=versions or library_versions(),
        inputs=inputs,
        tokenizer=tokenizer,
        recipe=resolved.recipe.model_dump(mode="json"),
        resolved=resolved.explain(),
    )


def tokenization_settings(recipe: SFTRecipe) -> dict[str, Any]:
    """Return dotted path -> value of the recipe fields that tokens depend on."""
    sections = {
        "preprocessing": recipe.preprocessing.model_dump(mode="json", exclude=set(SIZE_SETTINGS)),
        "tokenizer": recipe.tokenizer.model_dump(mode="json", exclude={"engine"}),
        "data": recipe.data.model_dump(mode="json", include={"role_aliases", "max_row_bytes"})
        | {split: [_rows_of(source) for source in as_sources(getattr(recipe.data, split))] for split in _SOURCES},
    }
    return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}


def _rows_of(source: Source) -> dict[str, Any]:
    """Return the fields of a source that affect its rows, without how often they are used."""
    section = DataSource(path=source) if isinstance(source, str) else source
    return section.model_dump(mode="json", exclude=_USES)


def tokenization_identity(recipe: SFTRecipe, tokenizer: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Return everything that can change a token or a mask, except the rows' bytes.

    Args:
        recipe: sizes, seeds, splits and topology are ignored.
        tokenizer: `ChatTokenizer.identity()`; its name is ignored.
        engine: encodes texts. It should not change tokens; if one is found to, tokens made with it are not used again.
    """
    return {
        "token_file_version": TOKEN_FILE_VERSION,
        "code": code_digest(),
        "engine": engine,
        "versions": {name: text for name, text in library_versions().items() if name not in _OTHER_LIBRARIES},
        "tokenizer": {key: value for key, value in tokenizer.items() if key not in TOKENIZER_NAMES},
        "settings": {
            path: value
            for path, value in tokenization_settings(recipe).items()
            if path not in {"data.train", "data.validation"}
            and not path.startswith("tokenizer.")
            and (path.removeprefix("preprocessing."), value) not in YOUNGER_DEFAULTS
        },
    }


def tokenization_key(identity: Mapping[str, Any]) -> str:
    """Return the name of a tokenisation in the store, from its identity."""
    return _digest(identity)


def range_key(tokenization: str, content: str, view: RowView | None = None) -> str:
    """Return the name of a token file; `content` is the sha256 of the range's lines or rows."""
    return _digest([tokenization, content, *([view.names, view.hidden] if view else ())])


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


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS]
