"""A tokenizer loaded with `tokenizers` alone is, byte by byte, the one that transformers loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.classes import CLASSES
from bridgepack.data.tokenizers.loaded import LoadedTokenizer, PlainTokenizer, TransformersTokenizer
from bridgepack.data.tokenizers.plain import load_plain
from bridgepack.examples import train_chatml_tokenizer

TEXTS = (
    "Hello world, 12345.\n    def f(x):\n\treturn x  # naïve 你好\n",
    "<|im_start|>user\n  hi <|im_end|>\n<|endoftext|><extra_0> <image>e\u0301",
    "",
    " lead and trail \n\n",
)
_ENCODING = ("added_tokens", "normalizer", "pre_tokenizer", "model")
CLASS_NAMES = sorted({"PreTrainedTokenizerFast", *CLASSES, *(f"{name}Fast" for name in CLASSES)})
Options = Mapping[str, Any]


def _reference(folder: Path, loader: str) -> TransformersTokenizer:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast, logging

    logging.set_verbosity_error()
    kind = PreTrainedTokenizerFast if loader == "tokenizer_json" else AutoTokenizer
    return TransformersTokenizer(kind.from_pretrained(str(folder)))


def _assert_same(folder: Path, loader: str = "transformers") -> None:
    plain = load_plain(folder, TokenizerConfig(name_or_path=str(folder), loader=loader))
    assert plain is not None
    reference = _reference(folder, loader)

    for tokenizer in (plain, reference):
        tokenizer.backend.no_truncation()
        tokenizer.backend.no_padding()
    assert json.loads(plain.backend.to_str()) == json.loads(reference.backend.to_str())
    _assert_same_encoding(plain)
    assert plain.special_tokens == reference.special_tokens
    assert plain.chat_template == reference.chat_template
    for name in ("bos_token", "eos_token", "unk_token", "sep_token"):
        assert plain.special_token_id(name) == reference.special_token_id(name)
    stand_ins = {"sep_token": "<|im_end|>", "cls_token": "<new>"}
    for tokenizer in (plain, reference):
        tokenizer.set_special_tokens(stand_ins)
    _assert_same_encoding(plain)
    assert plain.special_tokens == reference.special_tokens
    assert plain.num_tokens() == reference.num_tokens()
    assert plain.vocabulary() == reference.vocabulary()
    assert {index: repr(token) for index, token in plain.added_tokens().items()} == {
        index: repr(token) for index, token in reference.added_tokens().items()
    }
    for text in TEXTS:
        for adds in (False, True):
            assert _outcome(plain, text, adds=adds) == _outcome(reference, text, adds=adds)


def _assert_same_encoding(plain: PlainTokenizer) -> None:
    """Assert that fast engines load what encodes as the tokenizer does."""
    loaded = Tokenizer.from_buffer(plain.encoding_json())
    loaded.no_truncation()
    loaded.no_padding()
    theirs, ours = (_without_offsets(json.loads(one.to_str())) for one in (loaded, plain.backend))
    assert [theirs[name] for name in _ENCODING] == [ours[name] for name in _ENCODING]


def _without_offsets(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_offsets(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_offsets(item) for name, item in value.items() if name != "trim_offsets"}


def _outcome(tokenizer: LoadedTokenizer, text: str, *, adds: bool) -> tuple[list[int], str] | str:
    """Return ids and their text, or what `tokenizers` says of a vocabulary that cannot encode it."""
    try:
        ids = tokenizer.encode(text, adds_special_tokens=adds)
    except Exception as error:
        return str(error)
    return ids, tokenizer.decode(ids)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_chatml_tokenizer(tmp_path_factory.mktemp("trained"), ["a small text of small words"], vocab_size=300)


def _variant(trained: Path, folder: Path, *, config: Options, files: Options | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    own = json.loads((trained / "tokenizer_config.json").read_text())
    (folder / "tokenizer.json").write_text((trained / "tokenizer.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, **config}))
    for name, value in (files or {}).items():
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


@pytest.mark.reference_data
@pytest.mark.parametrize("loader", ["transformers", "tokenizer_json"])
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
def test_reference_tokenizers(reference_data: Path, name: str, loader: str) -> None:
    _assert_same(reference_data / "tokenizers" / name, loader)


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_classes(trained: Path, tmp_path: Path, name: str) -> None:
    _assert_same(_variant(trained, tmp_path, config={"tokenizer_class": name}))


TOKENS = st.sampled_from(("<|im_end|>", "<|endoftext|>", "<extra_0>", "small", "<image>", None))
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "image_token")
FLAGS = st.fixed_dictionaries(dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), st.booleans()))
ADDED = st.builds(
    lambda text, flags: {"__type": "AddedToken", "content": text, **flags}, TOKENS.filter(lambda text: text), FLAGS
)
CONFIGS = st.fixed_dictionaries(
    {"tokenizer_class": st.sampled_from(CLASS_NAMES), "eos_token": TOKENS.filter(lambda text: text) | ADDED},
    optional=dict.fromkeys((name for name in NAMES if name != "eos_token"), TOKENS | ADDED)
    | {
        "additional_special_tokens": st.lists(TOKENS.filter(lambda text: text), max_size=3),
        "extra_special_tokens": st.lists(TOKENS.filter(lambda text: text), max_size=2)
        | st.dictionaries(st.sampled_from(("audio_token", "video_token")), TOKENS.filter(lambda text: text)),
        "add_bos_token": st.booleans(),
        "add_eos_token": st.booleans(),
        "add_prefix_space": st.sampled_from((True, False, None)),
        "legacy": st.booleans(),
        "clean_up_tokenization_spaces": st.booleans(),
        "chat_template": st.sampled_from(("{{ messages }}", [{"name": "default", "template": "x"}])),
    },
)
SPECIAL_MAPS = st.none() | st.dictionaries(
    st.sampled_from(NAMES[:7]),
    TOKENS.filter(lambda text: text)
    | st.builds(lambda text, flags: {"content": text, **flags}, TOKENS.filter(lambda text: text), FLAGS),
    max_size=3,
)
MODELS = st.sampled_from((None, "llama", "qwen2", "qwen3", "deepseek_v3", "gemma2", "gpt2", "no_such_type"))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=CONFIGS, special_map=SPECIAL_MAPS, model_type=MODELS, lists_added=st.booleans())
def test_any_configuration(
    trained: Path,
    tmp_path_factory: pytest.TempPathFactory,
    config: Options,
    special_map: Options | None,
    model_type: str | None,
    lists_added: bool,
) -> None:
    files: dict[str, Any] = {}
    if special_map is not None:
        files["special_tokens_map.json"] = special_map
    if model_type is not None:
        files["config.json"] = {"model_type": model_type, "transformers_version": "5.12.1"}
    if lists_added:
        tokens = json.loads((trained / "tokenizer.json").read_text())["added_tokens"]
        listed = {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in tokens}
        config = {**config, "added_tokens_decoder": listed}
    folder = _variant(trained, tmp_path_factory.mktemp("variant"), config=config, files=files)

    if load_plain(folder, TokenizerConfig(name_or_path=str(folder))) is not None:
        _assert_same(folder)


@pytest.mark.parametrize(
    ("config", "files"),
    [
        ({"tokenizer_class": "BertTokenizer"}, {}),
        ({"tokenizer_class": None}, {}),
        ({"auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}}, {}),
        ({"split_special_tokens": True}, {}),
        ({}, {"added_tokens.json": {"<added>": 400}}),
        ({}, {"tokenizer.json": "{}"}),
        ({"tokenizer_class": "MistralTokenizer"}, {"config.json": {"model_type": "mistral"}}),
    ],
)
def test_what_is_not_plain(trained: Path, tmp_path: Path, config: Options, files: Options) -> None:
    folder = _variant(trained, tmp_path, config=config, files=files)

    assert load_plain(folder, TokenizerConfig(name_or_path=str(folder))) is None


def test_code_of_others_is_left_to_transformers(trained: Path) -> None:
    assert load_plain(trained, TokenizerConfig(name_or_path=str(trained), trust_remote_code=True)) is None


def test_truncation_and_padding_are_left_to_transformers(trained: Path, tmp_path: Path) -> None:
    tokenizer = json.loads((trained / "tokenizer.json").read_text())
    tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    folder = _variant(trained, tmp_path, config={}, files={"tokenizer.json": tokenizer})

    assert load_plain(folder, TokenizerConfig(name_or_path=str(folder))) is None


@pytest.mark.parametrize(
    ("changes", "is_given"),
    [
        ({}, True),
        ({"normalizer": {"type": "NFKC"}}, False),
        ({"pre_tokenizer": {"type": "Whitespace"}}, False),
        ({"model": {"ignore_merges": True}}, False),
        ({"model": {"fuse_unk": True}}, False),
        ({"added_tokens": []}, False),
    ],
)
def test_engines_are_given_the_file_where_it_encodes_alike(
    trained: Path, tmp_path: Path, changes: Options, *, is_given: bool
) -> None:
    first = _variant(trained, tmp_path / "first", config={"tokenizer_class": "Qwen2Tokenizer"})
    as_loaded = load_plain(first, TokenizerConfig(name_or_path=str(first)))
    assert as_loaded is not None
    content = json.loads(as_loaded.backend.to_str())
    for name, value in changes.items():
        content[name] = {**content[name], **value} if name == "model" else value
    second = _variant(
        trained, tmp_path / "second", config={"tokenizer_class": "Qwen2Tokenizer"}, files={"tokenizer.json": content}
    )

    loaded = load_plain(second, TokenizerConfig(name_or_path=str(second)))

    assert loaded is not None
    assert (loaded.encoding_json() == (second / "tokenizer.json").read_bytes()) is is_given
    _assert_same_encoding(loaded)
