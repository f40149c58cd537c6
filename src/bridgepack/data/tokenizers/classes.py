"""Which class transformers loads a tokenizer's files as, and how it builds those classes that most models name.

A class or a release of transformers that is not known here is left to transformers itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Releases of transformers whose loading is known: from the first to before the last.
#: Source: 5.8.0, 5.10.2 and 5.12.1, compared tokenizer by tokenizer.
_KNOWN_RELEASES = ((5, 8), (5, 13))
#: The class that takes tokenizer.json as it is, and its other names.
GENERIC = "TokenizersBackend"
_GENERIC_NAMES = frozenset({GENERIC, "PreTrainedTokenizer", "PythonBackend"})
_QWEN_END = r"]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}" + _QWEN_END
_QWEN3_5_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}" + _QWEN_END
)
_NO_MARKS = {"continuing_subword_prefix": "", "end_of_word_suffix": "", "unk_token": None}
_NO_AFFIXES = {"continuing_subword_prefix": None, "end_of_word_suffix": None}

Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerClass:
    """What a class of transformers puts in place of what tokenizer.json says.

    Attributes:
        special_tokens: `bos_token` and the like where the files name none.
        model: attributes of the byte-pair model.
        build: (tokenizers.Tokenizer, options of tokenizer_config.json) -> sets normalizer, pre-tokenizer and decoder.
        adds_plain_specials: it adds its special tokens once more, as tokens that no normalizer touches.
    """

    special_tokens: Mapping[str, str | None] = field(default_factory=dict)
    model: Options = field(default_factory=dict)
    build: Callable[[Any, Options], None]
    adds_plain_specials: bool = False


def is_known_release() -> bool:
    """Say whether the installed transformers is one whose loading is known here."""
    try:
        release = tuple(int(part) for part in version("transformers").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return False
    return _KNOWN_RELEASES[0] <= release < _KNOWN_RELEASES[1]


def class_of(named: str | None, model_type: str | None) -> str | None:
    """Return the class that transformers takes; None where that cannot be told here.

    Args:
        named: `tokenizer_class` of tokenizer_config.json.
        model_type: of config.json.

    Source: transformers 5.12.1, models/auto/tokenization_auto.py, AutoTokenizer.from_pretrained.
    """
    if not named:
        return None
    name = named.removesuffix("Fast")
    registered, is_wrong_in_files = _registered_class(model_type)
    if registered is not None and registered.removesuffix("Fast") != name:
        registered = registered.removesuffix("Fast")
        if registered == "MistralCommonBackend":
            return None
        name = registered if is_wrong_in_files or registered in _GENERIC_NAMES else name
    if name in _GENERIC_NAMES:
        return GENERIC
    return name if name in CLASSES else None


def _registered_class(model_type: str | None) -> tuple[str | None, bool]:
    """Return the class registered for a type of model, and whether files of that type are known to name a wrong one."""
    if not model_type:
        return None, False
    source = _source_of_auto_classes()
    found = re.search(rf'\(\s*"{re.escape(model_type)}",\s*"(\w+)"', source)
    wrong = source.partition("MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS: set[str] = {")[2].partition("}")[0]
    is_wrong = f'"{model_type}"' in wrong
    return (found[1] if found else GENERIC if is_wrong else None), is_wrong


def _source_of_auto_classes() -> str:
    """Return the text of transformers' list of classes, which is read because importing it takes seconds."""
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "models/auto/tokenization_auto.py").read_text(encoding="utf-8")


def _build_generic(tokenizer: Any, options: Options) -> None:
    """Leave everything as tokenizer.json has it."""


def _build_qwen(pattern: str) -> Callable[[Any, Options], None]:
    def build(tokenizer: Any, options: Options) -> None:
        from tokenizers import Regex, decoders, normalizers, pre_tokenizers

        tokenizer.normalizer = normalizers.NFC()
        words = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
        has_space = bool(options.get("add_prefix_space"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [words, pre_tokenizers.ByteLevel(add_prefix_space=has_space, use_regex=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()

    return build


def _build_llama(tokenizer: Any, options: Options) -> None:
    from tokenizers import decoders, pre_tokenizers

    has_space = options.get("add_prefix_space") in (None, True)
    scheme = ("always" if options.get("legacy", False) else "first") if has_space else "never"
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)] if has_space else steps)


def _build_gemma(tokenizer: Any, options: Options) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern=" ", behavior="merged_with_previous", invert=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.model.unk_token = str(options["unk_token"])


def _build_gpt2(tokenizer: Any, options: Options) -> None:
    from tokenizers import decoders, pre_tokenizers

    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.get("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()


def _build_gpt_neox(tokenizer: Any, options: Options) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=options.get("add_prefix_space", False), trim_offsets=options.get("trim_offsets", True)
    )
    tokenizer.decoder = decoders.ByteLevel()


_END_OF_TEXT = "<|endoftext|>"
_QWEN_TOKENS = {"unk_token": _END_OF_TEXT, "eos_token": _END_OF_TEXT, "pad_token": _END_OF_TEXT}
_WORDS = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "dropout": None}
_BYTES = {"fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "dropout": None}
#: Source: transformers 5.12.1, tokenization_utils_tokenizers.py and models/*/tokenization_*.py of the same names.
CLASSES: Mapping[str, TokenizerClass] = {
    GENERIC: TokenizerClass(build=_build_generic),
    "Qwen2Tokenizer": TokenizerClass(
        special_tokens=_QWEN_TOKENS,
        model=_WORDS | _NO_MARKS,
        build=_build_qwen(_QWEN2_PATTERN),
        adds_plain_specials=True,
    ),
    "Qwen3_5Tokenizer": TokenizerClass(
        special_tokens=_QWEN_TOKENS, model=_WORDS | _NO_MARKS, build=_build_qwen(_QWEN3_5_PATTERN)
    ),
    "LlamaTokenizer": TokenizerClass(
        special_tokens={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
        model=_BYTES | _NO_AFFIXES | {"unk_token": None},
        build=_build_llama,
    ),
    "GemmaTokenizer": TokenizerClass(
        special_tokens={
            "unk_token": "<unk>",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
        },
        model=_BYTES | _NO_AFFIXES,
        build=_build_gemma,
    ),
    "GPT2Tokenizer": TokenizerClass(
        special_tokens=dict.fromkeys(("unk_token", "bos_token", "eos_token"), _END_OF_TEXT),
        model=_WORDS | _NO_MARKS,
        build=_build_gpt2,
    ),
    "GPTNeoXTokenizer": TokenizerClass(
        special_tokens={
            **dict.fromkeys(("unk_token", "bos_token", "eos_token"), _END_OF_TEXT),
            "pad_token": "<|padding|>",
        },
        model=_WORDS | _NO_MARKS,
        build=_build_gpt_neox,
    ),
}
