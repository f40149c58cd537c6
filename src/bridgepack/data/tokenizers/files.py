"""Reads a tokenizer's files as data, without loading it: ids and their tokens, special tokens, the chat template."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bridgepack.data.tokenizers.slow_vocabularies import slow_vocabulary
from bridgepack.user_files import MAX_BYTES, MAX_LARGE_BYTES, read_bytes, read_text, text_if_there

#: Files that ids come from, the surest first; of those that cannot be read, only the bytes can be compared.
_VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model", "tekken.json", "tiktoken.model", "*.tiktoken")
#: Other files of a tokenizer, all of them text, and the endings of vocabularies that are none.
_CONFIG, _SPECIAL_TOKENS, _MORE_TOKENS = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_TEXTS = (
    *(_CONFIG, _SPECIAL_TOKENS, _MORE_TOKENS, "config.json", "generation_config.json"),
    *("chat_template.jinja", "chat_template.json", "vocab.txt", "merges.txt"),
)
_BINARY = (".model",)
#: Templates of other names, which transformers reads, too.
_MORE_TEMPLATES = "additional_chat_templates/*.jinja"
#: Special tokens in the order in which transformers gives ids to those that the vocabulary lacks.
_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
#: What reading a file of the wrong form raises.
_WRONG_FORM = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer as its files have it; each is read when it is first asked for."""

    folder: Path
    file: str  #: name of the file that ids come from, e.g. `tokenizer.json`

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        """Name -> sha256 of each file in the folder that ids can come from, the surest first."""
        hashes: dict[str, str] = {}
        for pattern in _VOCABULARIES:
            with suppress(OSError):
                files = sorted(path for path in self.folder.glob(pattern) if path.is_file())
                hashes |= {path.name: _sha256(path) for path in files}
        return hashes

    @cached_property
    def tokens(self) -> Mapping[int, str]:
        """Id -> token, with added tokens; empty if the file's form is not read here, or cannot be."""
        try:
            vocabulary = {int(index): str(text) for text, index in self._vocabulary()}
        except _WRONG_FORM:
            return {}
        return {**vocabulary, **self.more_tokens} if vocabulary else {}

    @cached_property
    def more_tokens(self) -> Mapping[int, str]:
        """Id -> token, of the tokens that were added to the vocabulary, special or not."""
        try:
            return {int(index): str(text) for text, index in self._more_tokens()}
        except _WRONG_FORM:
            return {}

    @cached_property
    def num_ids(self) -> int | None:
        """Number of ids, of which each is smaller; None if not known.

        Special tokens that no file gives an id get the next ones, as transformers loads them.
        """
        if not self.tokens:
            return None
        special = {text for name in _NAMES if (text := self._special_text(name)) is not None}
        return max(self.tokens) + 1 + len(special.difference(self.tokens.values()))

    def special_id(self, name: str) -> int | None:
        """Return the id of `bos`, `eos`, `pad` or another special token; None if the files do not tell."""
        text = self._special_text(name)
        ids = {token: index for index, token in self._listed_tokens.items()}
        if text is not None and text not in ids:
            ids = {token: index for index, token in {**self.tokens, **self.more_tokens}.items()}
        return ids.get(text or "")

    @cached_property
    def chat_template(self) -> str | None:
        """Text of the chat template, the default one of several; None if there is none."""
        if (text := text_if_there(self.folder / "chat_template.jinja")) is not None:
            return text
        for name in (_CONFIG, "chat_template.json"):
            template = read_object(self.folder / name).get("chat_template")
            if isinstance(template, list):
                by_name = {part.get("name"): part.get("template") for part in template if isinstance(part, Mapping)}
                template = by_name.get("default")
            if isinstance(template, str):
                return template
        return None

    @cached_property
    def _content(self) -> Any:
        return json.loads(read_text(self.folder / self.file, max_bytes=MAX_LARGE_BYTES))

    def _vocabulary(self) -> Iterator[tuple[str, int]]:
        """Yield (token, id) of the tokens that texts are cut into."""
        if self.file == "tokenizer.json":
            vocabulary = self._content["model"]["vocab"]
            yield from vocabulary.items() if isinstance(vocabulary, dict) else _pieces(vocabulary)
        elif self.file == "vocab.json":
            yield from self._content.items()
        else:
            yield from slow_vocabulary(self.folder / self.file, lists_special_tokens=bool(self._listed_tokens))

    def _more_tokens(self) -> Iterator[tuple[str, int]]:
        """Yield (token, id) of the tokens that were added to them."""
        if self.file == "tokenizer.json":
            yield from ((token["content"], token["id"]) for token in self._content.get("added_tokens") or ())
        yield from read_object(self.folder / _MORE_TOKENS).items()
        yield from ((text, index) for index, text in self._listed_tokens.items())

    @cached_property
    def _listed_tokens(self) -> Mapping[int, str]:
        """Id -> token, of those that the small config lists."""
        decoder = self._config.get("added_tokens_decoder")
        return {int(index): str(token["content"]) for index, token in decoder.items()} if decoder else {}

    def _special_text(self, name: str) -> str | None:
        """Return the text of a special token, which is written as itself or with its flags."""
        token = self._config.get(f"{name}_token", self._special_tokens.get(f"{name}_token"))
        text = token.get("content") if isinstance(token, Mapping) else token
        return text if isinstance(text, str) else None

    @cached_property
    def _config(self) -> Mapping[str, Any]:
        return read_object(self.folder / _CONFIG)

    @cached_property
    def _special_tokens(self) -> Mapping[str, Any]:
        return read_object(self.folder / _SPECIAL_TOKENS)


def tokenizer_files(folder: Path) -> TokenizerFiles | None:
    """Return the tokenizer in a folder, or None if it has no file that ids come from.

    Raises:
        ConfigError: it has one that cannot be read.
    """
    refuse_unreadable_files(folder)
    for pattern in _VOCABULARIES:
        with suppress(OSError):
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    return TokenizerFiles(folder=folder, file=path.name)
    return None


def read_object(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; empty if there is no such file, or it holds something else.

    Raises:
        ConfigError: there is one that cannot be read.
    """
    with suppress(ValueError, RecursionError):
        content = json.loads(text_if_there(path) or "{}")
        return content if isinstance(content, dict) else {}
    return {}


def refuse_unreadable_files(folder: Path) -> None:
    """Refuse a tokenizer's files that are no regular ones, are too large, or are not UTF-8 where they are text.

    transformers opens them by itself, and would wait for a pipe or read a device to its end.

    Raises:
        ConfigError: the folder has one.
    """
    patterns = (*_VOCABULARIES, *_TEXTS, _MORE_TEMPLATES)
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted([*folder.iterdir(), *folder.glob(_MORE_TEMPLATES)]):  # links that lead nowhere, too
            if any(path.match(pattern) for pattern in patterns):
                encoding = "latin-1" if path.suffix in _BINARY else "utf-8"
                is_large = any(path.match(pattern) for pattern in _VOCABULARIES)
                text_if_there(path, max_bytes=MAX_LARGE_BYTES if is_large else MAX_BYTES, encoding=encoding)


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, max_bytes=MAX_LARGE_BYTES)).hexdigest()


def _pieces(pieces: Any) -> Iterator[tuple[str, int]]:
    """Yield (piece, id) of a vocabulary with scores, `[["<unk>", 0.0], ..]`."""
    yield from ((str(piece[0]), index) for index, piece in enumerate(pieces))
