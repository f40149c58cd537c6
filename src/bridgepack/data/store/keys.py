"""What tokens depend on, and the names of token files that follow from it."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.sources import DataSource, Source, as_sources
from bridgepack.data.identity import library_versions
from bridgepack.data.reading.inputs import RowView
from bridgepack.data.store.token_file import TOKEN_FILE_VERSION
from bridgepack.errors import DataError
from bridgepack.records.fingerprints import TOKENIZER_NAMES, YOUNGER_DEFAULTS

#: Settings that act on whole sequences after they were tokenised, or choose among equal ways of tokenising.
SIZE_SETTINGS = frozenset({"over_long", "truncation_method", "ends_cut_completions"})
#: Libraries that read no row and make no token.
_OTHER_LIBRARIES = frozenset({"pyarrow"})
_KEY_CHARACTERS = 32
_SOURCES = ("train", "validation")
#: Fields of a source that say how often its rows are used.
_USES = {"weight", "epochs", "max_rows"}


def tokenization_settings(recipe: SFTRecipe) -> dict[str, Any]:
    """Return the fields of a recipe that tokens depend on: dotted path -> value."""
    sections = {
        "preprocessing": recipe.preprocessing.model_dump(mode="json", exclude=set(SIZE_SETTINGS)),
        "tokenizer": recipe.tokenizer.model_dump(mode="json", exclude={"engine"}),
        "data": recipe.data.model_dump(mode="json", include={"role_aliases", "max_row_bytes"})
        | {split: [_rows_of(source) for source in as_sources(getattr(recipe.data, split))] for split in _SOURCES},
    }
    return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}


def _rows_of(source: Source) -> dict[str, Any]:
    """Return what of a source decides about its rows, without how often they are used."""
    section = DataSource(path=source) if isinstance(source, str) else source
    return section.model_dump(mode="json", exclude=_USES)


def tokenization_identity(recipe: SFTRecipe, tokenizer: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Return everything but the rows' bytes that can change a token or a mask.

    Args:
        recipe: its sizes, seeds, splits and topology do not count.
        tokenizer: `ChatTokenizer.identity()`; what it is called does not count.
        engine: what encodes texts. It ought to change nothing; one that is found to do so leaves its tokens behind.
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
    """Return the name of a tokenisation in the store."""
    return _digest(identity)


def range_key(tokenization: str, content: str, view: RowView | None = None) -> str:
    """Return the name of a token file of a tokenisation, whose content is a sha256 of its lines or rows."""
    return _digest([tokenization, content, *([view.names, view.hidden] if view else ())])


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of this package's own source: another release, or an edited checkout, may tokenise otherwise."""
    return source_digest(Path(bridgepack.__file__).parent)


def source_digest(package: Path) -> str:
    """Return a digest of every Python file of a package, at whatever depth, by its path and its bytes.

    Raises:
        DataError: there is no Python file, so the digest would stand for nothing.
    """
    sources = sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).parts)
    if not sources:
        raise DataError(f"{package} holds no Python files, so tokens cannot be told from those of other code.")
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:_KEY_CHARACTERS]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS]
