"""Reads a tokenizer's files as data, without loading it: ids and their tokens, special tokens, the chat template."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

#: Files that ids come from, the surest first. The first two are read; of the others, only the bytes can be compared.
_VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model", "tekken.json", "tiktoken.model", "*.tiktoken")
_CONFIG, _SPECIAL_TOKENS, _MORE_TOKENS = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
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
    def sha256(self) -> str | None:
        """Hash of the file that ids come from; None if it cannot be read."""
        with suppress(OSError):
            return hashlib.sha256((self.folder / self.file).read_bytes()).hexdigest()
        return None

    @cached_property
    def tokens(self) -> Mapping[int, str]:
        """Id -> token, with added and special tokens; empty if its form is not read here, or cannot be.

        Special tokens that no file gives an id have the next ids, as transformers loads them.
        """
        try:
            tokens = {int(index): str(text) for text, index in self._vocabulary()}
            special = [text for name in _NAMES if (text := self._special_text(name)) is not None]
        except _WRONG_FORM:
            return {}
        for text in dict.fromkeys(special):
            if tokens and text not in tokens.values():
                tokens[max(tokens) + 1] = text
        return tokens

    @property
    def num_ids(self) -> int | None:
        """Number of ids, of which each is smaller; None if not known."""
        return max(self.tokens) + 1 if self.tokens else None

    def special_id(self, name: str) -> int | None:
        """Return the id of `bos`, `eos`, `pad` or another special token; None if the files do not tell."""
        with suppress(*_WRONG_FORM):
            text = self._special_text(name)
            return (
                None if text is None else next((index for index, token in self.tokens.items() if token == text), None)
            )
        return None

    @cached_property
    def chat_template(self) -> str | None:
        """The chat template, the default one of several; None if there is none."""
        with suppress(OSError, ValueError):
            return (self.folder / "chat_template.jinja").read_text(encoding="utf-8")
        for name in (_CONFIG, "chat_template.json"):
            template = read_object(self.folder / name).get("chat_template")
            if isinstance(template, list):
                by_name = {part.get("name"): part.get("template") for part in template if isinstance(part, Mapping)}
                template = by_name.get("default")
            if isinstance(template, str):
                return template
        return None

    def _vocabulary(self) -> Iterator[tuple[str, int]]:
        """Yield (token, id); later ones replace earlier ones of the same id."""
        if self.file not in _VOCABULARIES[:2]:
            return
        content = json.loads((self.folder / self.file).read_text(encoding="utf-8"))
        if self.file == "tokenizer.json":
            vocabulary = content["model"]["vocab"]
            yield from vocabulary.items() if isinstance(vocabulary, dict) else _pieces(vocabulary)
            yield from ((str(token["content"]), int(token["id"])) for token in content.get("added_tokens") or ())
        else:
            yield from content.items()
            yield from read_object(self.folder / _MORE_TOKENS).items()
        for index, token in (self._config.get("added_tokens_decoder") or {}).items():
            yield str(token["content"]), int(index)

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
    """Return the tokenizer in a folder, or None if it has no file that ids come from."""
    for pattern in _VOCABULARIES:
        with suppress(OSError):
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    return TokenizerFiles(folder=folder, file=path.name)
    return None


def read_object(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; empty if there is no such file, or it holds something else."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def _pieces(pieces: Any) -> Iterator[tuple[str, int]]:
    """Yield the pieces of a vocabulary with scores, `[["<unk>", 0.0], ..]`, with their places."""
    yield from ((str(piece[0]), index) for index, piece in enumerate(pieces))
