"""Names token files after everything that their tokens depend on."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import bridgepack
from bridgepack.config.recipe.data import DataSource, Source, as_sources
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.identity import library_versions
from bridgepack.data.reading.inputs import RowView
from bridgepack.data.store.token_file import TOKEN_FILE_VERSION
from bridgepack.errors import DataError
from bridgepack.records.manifests import TOKENIZER_NAMES, YOUNGER_DEFAULTS

#: Settings that apply after tokenising, or that choose between equivalent ways of tokenising.
SIZE_SETTINGS = frozenset({"over_long", "truncation_method", "ends_cut_completions"})
#: Libraries that neither read rows nor make tokens.
_OTHER_LIBRARIES = frozenset({"pyarrow"})
_KEY_CHARACTERS = 32
_SOURCES = ("train", "validation")
#: A source's fields for how often its rows are used.
_USES = {"weight", "epochs", "max_rows"}


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
