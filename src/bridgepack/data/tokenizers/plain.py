"""Loads a tokenizer's folder with `tokenizers` alone, to what transformers would make of it, in a tenth of the time.

`load_plain` says None wherever the folder holds something that it does not know to be plain; transformers loads it
then. What it gives is compared with what transformers gives, byte by byte, in tests/unit/data/test_plain_tokenizers.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.classes import CLASSES, GENERIC, TokenizerClass, class_of, is_known_release
from bridgepack.data.tokenizers.loaded import PlainTokenizer

TOKENIZER_FILE, CONFIG_FILE, TEMPLATE_FILE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
MODEL_FILE, SPECIAL_TOKENS_FILE = "config.json", "special_tokens_map.json"
#: What else transformers looks at; a folder with one of these is not plain.
_OTHER_FILES = ("added_tokens.json", "additional_chat_templates", "tekken.json")
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
#: Settings that change what a tokenizer does in ways that only transformers knows.
_NOT_PLAIN = (
    "auto_map",
    "fast_tokenizer_files",
    "fix_mistral_regex",
    "init_inputs",
    "split_special_tokens",
    "model_specific_special_tokens",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
)
#: Settings of a byte-pair model.
_OF_MODEL = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
#: Where a token begins in its text has no part in which it is.
_WITHOUT_OFFSETS = re.compile(rb'"trim_offsets":(true|false),?')


class _NotPlainError(Exception):
    """The folder holds something that only transformers knows how to load."""


def load_plain(folder: Path, config: TokenizerConfig) -> PlainTokenizer | None:
    """Return the tokenizer in a folder, as transformers would load it; None where the folder is not plain.

    Args:
        folder: with tokenizer.json and tokenizer_config.json.
        config: of the recipe.
    """
    if config.trust_remote_code or not is_known_release() or any((folder / name).exists() for name in _OTHER_FILES):
        return None
    try:
        return _loaded(folder, config)
    except (_NotPlainError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    except Exception:  # tokenizers raises a bare Exception for a file that it cannot read; transformers words it
        return None


def _loaded(folder: Path, config: TokenizerConfig) -> PlainTokenizer:
    from tokenizers import Tokenizer

    options = _read_object(folder / CONFIG_FILE)
    if any(options.get(name) for name in _NOT_PLAIN):
        raise _NotPlainError
    kind = _class_of(folder, config, options)
    content = (folder / TOKENIZER_FILE).read_bytes()
    tokenizer = Tokenizer.from_buffer(content)
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        raise _NotPlainError
    is_bpe = type(tokenizer.model).__name__ == "BPE"
    if not is_bpe and (kind is not CLASSES[GENERIC] or options.get("clean_up_tokenization_spaces")):
        raise _NotPlainError
    declared = _declared_tokens(content)
    if _as_texts(tokenizer.get_added_tokens_decoder()) != _as_texts(declared):
        raise _NotPlainError
    _merge_special_tokens_file(folder, options)
    in_file = _what_encodes(tokenizer)
    added = _added_tokens(options, declared)
    named, extra = _special_tokens(options, added, kind)
    _make_class(tokenizer, kind, {**options, **named})
    _add_tokens(tokenizer, added, named, extra)
    if tokenizer.post_processor is None:
        _let_nothing_be_added(tokenizer)
    if kind.adds_plain_specials:
        _add_plain_specials(tokenizer, named, extra)
    is_as_in_file = _what_encodes(tokenizer) == in_file
    template = _template(folder, options)
    return PlainTokenizer(tokenizer, named, template, encoding_json=content if is_as_in_file else None)


def _what_encodes(tokenizer: Any) -> list[Any]:
    """Return all that decides which ids a text gets, but the vocabulary and the merges, which nothing here changes."""
    steps = [tokenizer.normalizer, tokenizer.pre_tokenizer]
    states = [step and _WITHOUT_OFFSETS.sub(b"", step.__getstate__()) for step in steps]
    settings = [getattr(tokenizer.model, name, None) for name in _OF_MODEL]
    return [*states, *settings, _as_texts(tokenizer.get_added_tokens_decoder())]


def _class_of(folder: Path, config: TokenizerConfig, options: Mapping[str, Any]) -> TokenizerClass:
    if config.loader == "tokenizer_json":
        return CLASSES[GENERIC]
    model = _read_object(folder / MODEL_FILE) if (folder / MODEL_FILE).exists() else {}
    name = class_of(options.get("tokenizer_class"), model.get("model_type"))
    if name is None or "model_name" in model:
        raise _NotPlainError
    return CLASSES[name]


def _template(folder: Path, options: Mapping[str, Any]) -> Any:
    """Return the chat template; where there are several, all by name."""
    path = folder / TEMPLATE_FILE
    found = path.read_text(encoding="utf-8") if path.exists() else options.get("chat_template")
    return {entry["name"]: entry["template"] for entry in found} if isinstance(found, list) else found


def _declared_tokens(content: bytes) -> dict[int, Any]:
    """Return the added tokens that a tokenizer.json lists, by the ids that it gives them."""
    start = content.index(b'"added_tokens"')
    stop = content.index(b'"normalizer"', start)
    entries = json.loads(content[content.index(b"[", start) : content.rindex(b"]", start, stop) + 1])
    return {int(entry["id"]): _token(entry) for entry in entries}


def _token(entry: Mapping[str, Any]) -> Any:
    from tokenizers import AddedToken

    return AddedToken(**{name: value for name, value in entry.items() if name not in ("id", "__type")})


def _as_texts(tokens: Mapping[int, Any]) -> dict[int, str]:
    return {index: repr(token) for index, token in tokens.items()}


def _merge_special_tokens_file(folder: Path, options: dict[str, Any]) -> None:
    """Take in special_tokens_map.json, which counts where tokenizer_config.json lists no added tokens."""
    path = folder / SPECIAL_TOKENS_FILE
    if "additional_special_tokens" in options:
        options.setdefault("extra_special_tokens", options.pop("additional_special_tokens"))
    if "added_tokens_decoder" in options or not path.exists():
        return
    for name, value in _read_object(path).items():
        if isinstance(value, Mapping) and name != "extra_special_tokens":
            options[name] = _token({**value, "special": True})
        elif isinstance(value, str) and name in _NAMED:
            options[name] = value
        elif name == "additional_special_tokens" and _are_texts(value):
            options.setdefault("extra_special_tokens", value)
        else:
            raise _NotPlainError


def _added_tokens(options: Mapping[str, Any], declared: dict[int, Any]) -> dict[int, Any]:
    """Return the added tokens that count: those of tokenizer_config.json, or else those of tokenizer.json."""
    listed = options.get("added_tokens_decoder")
    return declared if listed is None else {int(index): _token(entry) for index, entry in listed.items()}


def _special_tokens(
    options: dict[str, Any], added: Mapping[int, Any], kind: TokenizerClass
) -> tuple[dict[str, Any], list[Any]]:
    """Return the named special tokens, each text or AddedToken, and the others."""
    by_text = {token.content: token for token in added.values()}
    named: dict[str, Any] = {}
    for name in _NAMED:
        value = _special_token(options.get(name)) if name in options else kind.special_tokens.get(name)
        in_files = name in options and value is not None
        named[name] = by_text.get(str(getattr(value, "content", value)), value) if in_files else value
    extra = options.get("extra_special_tokens")
    others = {name: value for name, value in options.items() if name.endswith("_token") and name not in _NAMED}
    own = {name: _special_token(value) for name, value in others.items() if isinstance(value, Mapping)}
    own.update({name: value for name, value in others.items() if isinstance(value, str)})
    if isinstance(extra, Mapping):
        own.update({name: _special_token(value) for name, value in extra.items()})
        extra = None
    if extra is not None and not _are_texts(extra):
        raise _NotPlainError
    return {**{name: value for name, value in named.items() if value is not None}, **own}, list(extra or ())


def _special_token(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get("__type") != "AddedToken":
            raise _NotPlainError
        return _token(value)
    if value is not None and not isinstance(value, str) and not hasattr(value, "content"):
        raise _NotPlainError
    return value


def _make_class(tokenizer: Any, kind: TokenizerClass, options: Mapping[str, Any]) -> None:
    kind.build(tokenizer, {"unk_token": None, **options})
    model = tokenizer.model
    for name, value in kind.model.items():
        setattr(model, name, value)


def _add_tokens(tokenizer: Any, added: Mapping[int, Any], named: Mapping[str, Any], extra: Sequence[Any]) -> None:
    """Add the tokens that tokenizer.json lacks, in the order in which transformers adds them.

    Source: transformers 5.12.1, tokenization_utils_tokenizers.py, TokenizersBackend.__init__.
    """
    from tokenizers import AddedToken

    present = tokenizer.get_added_tokens_decoder()
    known = {repr(token) for token in present.values()}
    wanted = [token for _, token in sorted(added.items()) if repr(token) not in known]
    texts = {token.content for token in present.values()} | {token.content for token in wanted}
    names = {_text(token) for token in named.values()}
    for token in [*named.values(), *extra]:
        if _text(token) not in texts and token not in wanted:
            wanted.append(token)
    for token in wanted:
        if not isinstance(token, str) and not token.special and token.content in names:
            token.special = True
    tokens = [AddedToken(token, special=True) if isinstance(token, str) else token for token in wanted]
    if tokens:
        tokenizer.add_tokens(tokens)


def _add_plain_specials(tokenizer: Any, named: Mapping[str, Any], extra: Sequence[Any]) -> None:
    from tokenizers import AddedToken

    texts = dict.fromkeys(_text(token) for token in [*named.values(), *extra])
    tokenizer.add_tokens([AddedToken(text, special=True) for text in texts])


def _let_nothing_be_added(tokenizer: Any) -> None:
    from tokenizers import processors

    tokenizer.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])


def _text(token: Any) -> str:
    return token if isinstance(token, str) else str(token.content)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _read_object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise _NotPlainError
    return value
