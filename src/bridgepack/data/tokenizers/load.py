"""Loads and probes the recipe's tokenizer; owns the import of transformers."""

import copy
import json
import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.files import hub_or_cache
from bridgepack.data.tokenizers.files import refuse_unreadable_files
from bridgepack.data.tokenizers.flags import fill_special_tokens
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError, about
from bridgepack.user_files import read_text, reason_of

#: Words and digits that every tokenizer must preserve; texts in other scripts may be outside its purpose.
_PLAIN = ("Hello world. The quick brown fox jumps over the lazy dog!", "It was 1984, not 2650 or 73?")
#: Field that names the tokenizer.
_NAME = "tokenizer.name_or_path"
#: Vocabulary files; a folder without any of them has no tokenizer.
_VOCABULARIES = "tokenizer.json, or vocab.json with merges.txt, or tokenizer.model"
#: Maximum percentage of the first rows' letters and digits that a tokenizer may lose, e.g. in names or other scripts.
_MOST_LOST_PERCENT = 10
#: Maximum size of a chat template; the longest of models are a hundredth of that.
_MOST_TEMPLATE_BYTES = 4 << 20
#: What to do about a tokenizer that cannot be loaded for a reason not known here.
_ADVICE = (
    "Give a folder with tokenizer.json and tokenizer_config.json, or a Hugging Face id that this machine can reach"
)
#: transformers' words for a missing file; some are code, of which a tokenizer_config.json has the name.
_LACKING_FILE = re.compile(r"does not appear to have a file named (\S+\.py)\b")
#: Maximum characters of an added token, special or not: long ones take minutes to compare with others.
_MOST_CHARACTERS = 10_000
#: Files with special tokens, which transformers adds one by one.
_TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
#: Text that every language model's tokenizer keeps: words, spaces, line ends, indentation, digits, other scripts.
_PROBE = "Hello world, 12345.\n    def f(x):\n\treturn x  # na\u00efve \u4f60\u597d\n"


def load_tokenizer(config: TokenizerConfig) -> ChatTokenizer:
    """Return the recipe's tokenizer.

    Raises:
        TokenizerError: it cannot be loaded, has no end-of-sequence token or a token of absurd length, or its template
            file cannot be read.
    """
    quiet_transformers()
    refuse_missing_folder(config)
    with about(_NAME):
        refuse_unreadable_files(Path(config.name_or_path))
    _refuse_long_tokens_in(config)
    tokenizer = _from_pretrained(config)
    if not isinstance(tokenizer.model_max_length, (int, float)):
        raise TokenizerError(
            f"tokenizer.name_or_path is {config.name_or_path!r}; model_max_length of its tokenizer_config.json is "
            f"{tokenizer.model_max_length!r}; allowed: a number. Correct it, or remove it.",
            field=_NAME,
        )
    _refuse_long_tokens(tokenizer, config)
    template = tokenizer.chat_template if config.chat_template is None else _template_file(config.chat_template)
    lost_flags = fill_special_tokens(tokenizer)
    if not tokenizer.special_tokens_map.get("eos_token"):
        raise TokenizerError(
            f"tokenizer.name_or_path is {config.name_or_path!r}; it has no eos_token, with which Megatron-Bridge pads "
            "and ends sequences. Add eos_token to its tokenizer_config.json.",
            field=_NAME,
        )
    loses_text = _loses_text(tokenizer, config)
    chat_tokenizer = ChatTokenizer(tokenizer, config, template, loses_text=loses_text, lost_flags=lost_flags)
    refuse_lost_text(chat_tokenizer, _PLAIN, of_what="plain words and digits", most_percent=0)
    return chat_tokenizer


def refuse_lost_text(
    tokenizer: ChatTokenizer, texts: Iterable[str], *, of_what: str, most_percent: int = _MOST_LOST_PERCENT
) -> None:
    """Refuse a tokenizer that loses text.

    Raises:
        TokenizerError: encoding and decoding loses too many letters and digits.
    """
    lost_percent = 100 * _lost_fraction(tokenizer, texts)
    if lost_percent <= most_percent:
        return
    why = f"the folder has no {_VOCABULARIES}" if _is_bare(tokenizer.config) else "its vocabulary lacks them"
    advice = "Copy the whole tokenizer there, or name one that fits this data"
    if tokenizer.loses_text:
        why = "transformers loads it as a class that loses text, which its tokenizer.json keeps"
        advice = "Set tokenizer.loader to tokenizer_json"
    where = f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}"
    raise TokenizerError(f"{where}; it loses {lost_percent:.0f}% of {of_what}: {why}. {advice}.")


def _is_bare(config: TokenizerConfig) -> bool:
    names = {path.name for path in Path(config.name_or_path).glob("*")}
    return bool(names) and not any(name.startswith(("tokenizer.", "vocab")) for name in names)


def quiet_transformers() -> None:
    """Make transformers log only errors, whether or not it is imported yet."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    for name in ("transformers", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)


def refuse_missing_folder(config: TokenizerConfig) -> None:
    """Refuse a tokenizer folder that is empty or missing; ids on the hub are fine.

    Raises:
        TokenizerError: the folder is empty or missing.
    """
    where = f"{_NAME} is {config.name_or_path!r}"
    path = Path(config.name_or_path)
    if path.is_dir() and not any(path.iterdir()):
        message = f"{where}; the folder is empty. It must hold tokenizer.json and tokenizer_config.json."
        raise TokenizerError(message, field=_NAME)
    has_local_parent = path.parent != Path() and path.parent.is_dir()
    if not path.exists() and (path.is_absolute() or config.name_or_path.startswith((".", "~")) or has_local_parent):
        raise TokenizerError(
            f"{where}; there is no such folder. Give a tokenizer folder, relative to the current folder or absolute, "
            "or a Hugging Face id.",
            field=_NAME,
        )


def _from_pretrained(config: TokenizerConfig) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    loader = PreTrainedTokenizerFast if config.loader == "tokenizer_json" else AutoTokenizer
    try:
        with hub_or_cache(config.name_or_path), _sharing_backends():
            return loader.from_pretrained(
                config.name_or_path, revision=config.revision, trust_remote_code=config.trust_remote_code
            )
    except Exception as error:  # tokenizers raises a bare Exception for an unreadable tokenizer.json
        reason, advice = " ".join(str(error).split()), _ADVICE
        if _is_bare(config):
            reason = f"the folder has no {_VOCABULARIES}"
        elif not config.trust_remote_code and "custom code" in reason:
            reason = "transformers loads it with code from its own files only"
            advice = "Set tokenizer.trust_remote_code to true if you trust that code, or try tokenizer.loader: "
            advice += "tokenizer_json, which runs none"
        elif config.trust_remote_code and (lacking := _LACKING_FILE.search(reason)):
            reason = f"{lacking[1]}, which has its code, is not there"
            advice = "Copy it there, or try tokenizer.loader: tokenizer_json, which needs none"
        raise TokenizerError(
            f"tokenizer.name_or_path is {config.name_or_path!r}; it cannot be loaded: {reason[:300]}. {advice}.",
            field=_NAME,
        ) from None


@contextmanager
def _sharing_backends() -> Iterator[None]:
    """Let transformers keep the `tokenizers.Tokenizer` that it reads: copying it takes half of a load's time."""
    from tokenizers import Tokenizer

    deepcopy = copy.deepcopy

    def copy_of(value: Any, *arguments: Any) -> Any:
        return value if isinstance(value, Tokenizer) else deepcopy(value, *arguments)

    copy.deepcopy = copy_of  # type: ignore[assignment]
    try:
        yield
    finally:
        copy.deepcopy = deepcopy


def _refuse_long_tokens_in(config: TokenizerConfig) -> None:
    """Refuse long tokens in a folder's small files, before transformers takes minutes to add them."""
    for name in _TOKEN_FILES:
        try:
            settings = json.loads(read_text(Path(config.name_or_path) / name))
        except (OSError, ValueError, RecursionError):
            continue  # not there, or loading says what is wrong with it
        for field, value in settings.items() if isinstance(settings, dict) else ():
            for text in (field, *_texts_in(value)) if field != "chat_template" else ():
                _refuse_long_token(text, "added token" if text is field else field, config)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


def _refuse_long_tokens(tokenizer: Any, config: TokenizerConfig) -> None:
    names = {text: name for name, text in tokenizer.special_tokens_map.items() if isinstance(text, str)}
    for token in tokenizer.added_tokens_decoder.values():
        text = str(token.content)
        _refuse_long_token(text, names.get(text, "added token"), config)


def _refuse_long_token(text: str, name: str, config: TokenizerConfig) -> None:
    if len(text) > _MOST_CHARACTERS:
        raise TokenizerError(
            f"tokenizer.name_or_path is {config.name_or_path!r}; its {name} {text[:20]!r}... has {len(text):,} "
            f"characters; allowed: at most {_MOST_CHARACTERS:,}. Correct it in its tokenizer_config.json or "
            "tokenizer.json.",
            field=_NAME,
        )


def _template_file(name: str) -> str:
    try:
        text = read_text(Path(name), max_bytes=_MOST_TEMPLATE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"tokenizer.chat_template is {name!r}; it cannot be read: {reason_of(error)}. Give the path of a UTF-8 "
            "Jinja file.",
            field="tokenizer.chat_template",
        ) from None
    if text.startswith("\ufeff"):
        raise TokenizerError(
            f"tokenizer.chat_template is {name!r}; it begins with a byte order mark, which would begin every sequence. "
            "Save it as UTF-8 without one.",
            field="tokenizer.chat_template",
        )
    return text


def _loses_text(tokenizer: Any, config: TokenizerConfig) -> bool:
    """Return whether decoding changes a probe text, although the tokenizer's own tokenizer.json preserves it.

    For example, transformers 5.12 loads DeepSeek-V3's files as a tokenizer without spaces or line ends.
    """
    if tokenizer.decode(tokenizer.encode(_PROBE, add_special_tokens=False)) == _PROBE:
        return False
    from tokenizers import Tokenizer
    from transformers.utils.hub import cached_file

    try:
        file_tokenizer = Tokenizer.from_file(
            cached_file(config.name_or_path, "tokenizer.json", revision=config.revision)
        )
    except Exception:  # tokenizers raises a bare Exception for an unreadable file
        return False
    return bool(
        file_tokenizer.decode(file_tokenizer.encode(_PROBE, add_special_tokens=False).ids, skip_special_tokens=False)
        == _PROBE
    )


def _lost_fraction(tokenizer: ChatTokenizer, texts: Iterable[str]) -> float:
    """Return the fraction (0-1) of letters and digits that texts lose by encoding and decoding.

    Ignores Unicode composition, accents and case, because many tokenizers normalise these.
    """
    num_lost = num_characters = 0
    for text in texts:
        before = _letters(text)
        num_lost += (before - _letters(tokenizer.decode(tokenizer.encode(text)))).total()
        num_characters += before.total()
    return num_lost / num_characters if num_characters else 0.0


def _letters(text: str) -> Counter[str]:
    return Counter(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))
