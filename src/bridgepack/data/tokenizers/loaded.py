"""A loaded tokenizer behind one interface: of `tokenizers` alone, or an object of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

#: Special tokens by name, as templates see them and as transformers lists them.
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class LoadedTokenizer(Protocol):
    """What `ChatTokenizer` needs of a tokenizer."""

    @property
    def backend(self) -> Any:
        """The `tokenizers.Tokenizer`; None where the tokenizer is written in Python."""
        ...

    @property
    def chat_template(self) -> Any:
        """Jinja source; None or something else where there is no single template."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Name -> text of those that are set: `bos_token`, `eos_token` and so on."""
        ...

    def special_token_id(self, name: str) -> int | None:
        """Return the id of `bos_token`, `eos_token` and so on; None where it is not set."""
        ...

    def set_special_tokens(self, tokens: Mapping[str, str]) -> None:
        """Set special tokens by name; one that the vocabulary lacks is added to it."""
        ...

    def added_tokens(self) -> Mapping[int, Any]:
        """Return id -> `tokenizers.AddedToken`."""
        ...

    def num_tokens(self) -> int:
        """Return the number of different texts that have an id."""
        ...

    def vocabulary(self) -> Mapping[str, int]:
        """Return text -> id, added tokens included."""
        ...

    def encoding_json(self) -> bytes:
        """Return a tokenizer.json that gives the ids that the backend gives; only where there is a backend."""
        ...

    def encode(self, text: str, *, adds_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text."""
        ...

    def decode(self, input_ids: Sequence[int]) -> str:
        """Return the text of some ids, special tokens included."""
        ...


class PlainTokenizer:
    """A `tokenizers.Tokenizer` with the names of its special tokens."""

    def __init__(
        self,
        backend: Any,
        special_tokens: Mapping[str, Any],
        chat_template: Any,
        *,
        encoding_json: bytes | None = None,
    ) -> None:
        """Wrap a tokenizer.

        Args:
            backend: the `tokenizers.Tokenizer`, with every special token in it.
            special_tokens: name -> text or AddedToken.
            chat_template: as the files have it.
            encoding_json: its tokenizer.json, where that gives the same ids; writing a large one takes 0.2 s.
        """
        self.backend = backend
        self._encoding_json = encoding_json
        self.chat_template = chat_template
        texts = {name: str(getattr(token, "content", token)) for name, token in special_tokens.items()}
        order = [*(name for name in _NAMED if name in texts), *(name for name in texts if name not in _NAMED)]
        self.special_tokens = {name: texts[name] for name in order}

    def special_token_id(self, name: str) -> int | None:
        """Return the id of a named token, or that of the unknown token where the vocabulary lacks it."""
        text = self.special_tokens.get(name)
        if text is None:
            return None
        index = self.backend.token_to_id(text)
        if index is not None:
            return int(index)
        return None if name == "unk_token" else self.special_token_id("unk_token")

    def set_special_tokens(self, tokens: Mapping[str, str]) -> None:
        """Set special tokens by name, as transformers' `add_special_tokens` does."""
        from tokenizers import AddedToken

        flags = dict.fromkeys(("lstrip", "rstrip", "normalized"), False)
        self.backend.add_special_tokens([AddedToken(text, special=True, **flags) for text in tokens.values()])
        self._encoding_json = None
        self.special_tokens = {**self.special_tokens, **tokens}

    def added_tokens(self) -> Mapping[int, Any]:
        """Return id -> `tokenizers.AddedToken`."""
        found: Mapping[int, Any] = self.backend.get_added_tokens_decoder()
        return found

    def num_tokens(self) -> int:
        """Return the number of different texts that have an id."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def vocabulary(self) -> Mapping[str, int]:
        """Return text -> id, added tokens included."""
        found: Mapping[str, int] = self.backend.get_vocab(with_added_tokens=True)
        return found

    def encoding_json(self) -> bytes:
        """Return a tokenizer.json that gives the ids that the backend gives."""
        return self._encoding_json or str(self.backend.to_str()).encode()

    def encode(self, text: str, *, adds_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text."""
        return list(self.backend.encode(text, add_special_tokens=adds_special_tokens).ids)

    def decode(self, input_ids: Sequence[int]) -> str:
        """Return the text of some ids, special tokens included."""
        return str(self.backend.decode(list(input_ids), skip_special_tokens=False))


class TransformersTokenizer:
    """A tokenizer of transformers, which may be written in Python."""

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a tokenizer as transformers loaded it."""
        self._tokenizer = tokenizer

    @property
    def backend(self) -> Any:
        """The `tokenizers.Tokenizer`; None where the tokenizer is written in Python."""
        return getattr(self._tokenizer, "backend_tokenizer", None)

    @property
    def chat_template(self) -> Any:
        """Jinja source; None or something else where there is no single template."""
        return self._tokenizer.chat_template

    @property
    def special_tokens(self) -> Mapping[str, Any]:
        """Name -> text of those that are set; some releases also give a list of the others."""
        found: Mapping[str, Any] = self._tokenizer.special_tokens_map
        return found

    def special_token_id(self, name: str) -> int | None:
        """Return the id of `bos_token`, `eos_token` and so on; None where it is not set."""
        value = getattr(self._tokenizer, f"{name}_id")
        return None if value is None else int(value)

    def set_special_tokens(self, tokens: Mapping[str, str]) -> None:
        """Set special tokens by name; one that the vocabulary lacks is added to it."""
        self._tokenizer.add_special_tokens(dict(tokens))

    def added_tokens(self) -> Mapping[int, Any]:
        """Return id -> `tokenizers.AddedToken`."""
        found: Mapping[int, Any] = self._tokenizer.added_tokens_decoder
        return found

    def num_tokens(self) -> int:
        """Return the number of different texts that have an id."""
        return len(self._tokenizer)

    def vocabulary(self) -> Mapping[str, int]:
        """Return text -> id, added tokens included."""
        found: Mapping[str, int] = self._tokenizer.get_vocab()
        return found

    def encoding_json(self) -> bytes:
        """Return a tokenizer.json that gives the ids that the backend gives."""
        return str(self.backend.to_str()).encode()

    def encode(self, text: str, *, adds_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=adds_special_tokens))

    def decode(self, input_ids: Sequence[int]) -> str:
        """Return the text of some ids, special tokens included."""
        return str(self._tokenizer.decode(list(input_ids), skip_special_tokens=False))
