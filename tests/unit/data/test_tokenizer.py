"""Tokenizers that do more or less than they should, probes of their templates, and completions that do not fit."""

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoder import PromptCompletionEncoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.templates.identity import identity_of
from bridgepack.data.templates.probe import drops_tool_names, end_of_turn_ids
from bridgepack.data.tokenizers.load import load_tokenizer, refuse_lost_text
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.examples import train_chatml_tokenizer
from bridgepack.records import DropReason
from tests.support.cutting import cut, policy_for
from tests.support.messages import mentions
from tests.support.read_rows import ReadingEncoder, encode_examples
from tests.support.small_builds import AS_HOST, build, chat_row, small_recipe, tokenized_recipe, write_json_lines
from tests.zoo.tokenizers import CHATML, THINKING, Family, TokenizerJson, loaded_tokenizer, write_tokenizer

QUESTION = {"role": "user", "content": "What does the user ask?"}
HALF = "\ud83d"
ANSWER = {"role": "assistant", "content": "The user asks what the user asks."}
TEXT = "Hello world, 12345.\n    def f(x):\n\treturn x"
TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
#: What is left of a tokenizer whose tokenizer.json was not copied: its control tokens.
BARE = {
    "tokenizer_class": "Qwen2Tokenizer",
    "eos_token": "<|im_end|>",
    "added_tokens_decoder": {
        "0": {"content": "<|im_end|>", **dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)}
    },
}
CALLS = "{% for call in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>\n{% endfor %}"


def _cut_and_pad(tokenizer: TokenizerJson) -> None:
    tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None}
    tokenizer["padding"] = {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}


def test_truncation_and_padding_in_tokenizer_json_do_not_count(tmp_path: Path) -> None:
    examples = [{"prompt": QUESTION["content"], "completion": ANSWER["content"]}]
    results = []
    for name, family in (("plain", CHATML), ("cutting", replace(CHATML, edit=_cut_and_pad))):
        tokenizer = loaded_tokenizer(tmp_path / name, family)
        settings = PromptCompletionPreprocessing(kind="prompt_completion")
        results.append(encode_examples(PromptCompletionEncoder(tokenizer, settings), examples))

    assert results[0] == results[1]
    assert isinstance(results[0][0], Encoded)
    assert json.loads((tmp_path / "cutting" / "tokenizer.json").read_text())["truncation"]["max_length"] == 4


@pytest.mark.parametrize("loader", ["transformers", "tokenizer_json"])
def test_tokenizer_is_read_once_and_equals_that_of_transformers(tmp_path: Path, loader: str) -> None:
    from transformers import AutoTokenizer

    train_chatml_tokenizer(tmp_path, ["one two"])
    deepcopy, copied = copy.deepcopy, []

    def counted(value: Any, *arguments: Any) -> Any:
        copied.append(type(value))
        return deepcopy(value, *arguments)

    expected = AutoTokenizer.from_pretrained(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "deepcopy", counted)
        loaded = load_tokenizer(TokenizerConfig(name_or_path=str(tmp_path), loader=loader))
        assert copy.deepcopy is counted
        with pytest.raises(TokenizerError):
            load_tokenizer(TokenizerConfig(name_or_path=str(tmp_path / "missing")))
        assert copy.deepcopy is counted
    assert copied
    assert type(expected.backend_tokenizer) not in copied
    assert loaded.backend.to_str() == expected.backend_tokenizer.to_str()


def test_template_that_is_not_jinja_stops_the_build(tmp_path: Path) -> None:
    broken = "{%- for message in messages -%}\n{{ message.content \n{%- endfor -%}<|im_start|>assistant<|im_end|>"
    tokenizer = loaded_tokenizer(tmp_path, replace(CHATML, template=broken))

    for forms in ({}, AS_HOST):
        with pytest.raises(TokenizerError, match=r"line 3 .*chat template .*not valid Jinja"):
            chat_encoder(tokenizer, ChatPreprocessing(**forms))


_TURNS = (
    "{# <|im_start|>assistant<|im_end|> #}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "found"),
    [
        (
            "{% if true %}" * 200 + _TURNS + "{% endif %}" * 200,
            r"nested too deeply .*\(IndentationError\)",
        ),
        ("{% for _ in [1] %}" * 30 + _TURNS + "{% endfor %}" * 30, "nested too deeply.*allowed: 20 loops"),
        (
            "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}" + _TURNS,
            r"nested too deeply .*\(RecursionError\)",
        ),
        (_TURNS + "{{ [1, 2, 3] | random }}", "uses the filter `random`"),
        (_TURNS + "{{ [[1, 2], [3, 4]] | map('random') | list }}", "uses the filter `random`"),
        (_TURNS + "{% if false %}{{ lipsum(n=1) }}{% endif %}", "uses the function `lipsum`"),
    ],
)
def test_template_that_cannot_be_compiled_or_repeated_stops_the_build(
    tmp_path: Path, template: str, found: str
) -> None:
    tokenizer = loaded_tokenizer(tmp_path, replace(CHATML, template=template))

    for forms in ({}, AS_HOST):
        with pytest.raises(TokenizerError, match=f"its chat template .*{found}.*or set tokenizer.chat_template"):
            chat_encoder(tokenizer, ChatPreprocessing(**forms))


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("{% set name = 'rand' ~ 'om' %}{{ [1, 2] | map(name) | join }}", "it uses `random` or `lipsum`"),
        ("{{ 'text'.upper }}", "writes a Python object"),
        ("{{ [1] | map('string') }}", "writes a Python object"),
        ("{{ joiner() ~ '' }}", "writes a Python object"),
        ("{{ messages | select | upper }}", "writes a Python object"),
        ("{{ (messages | select | string) | replace(' at', '') }}", "writes a Python object"),
        ("{{ (messages | select | string)[-9:-1] }}", "writes a Python object"),
        ("{{ (range | string) | replace('0x', '') | reverse }}", "writes a Python object"),
        ("{{ ('%s' % messages[0].items)[-5:] }}", "writes a Python object"),
        ("{{ '{}'.format([range])[-5:] }}", "writes a Python object"),
        ("{{ ('%(a)s' | format(a=range))[-5:] }}", "writes a Python object"),
        ("{% set text %}{{ cycler('a') }}{% endset %}{{ text[-5:] }}", "writes a Python object"),
        ("{% macro write() %}{{ namespace(a=range) }}{% endmacro %}{{ write()[-5:] }}", "writes a Python object"),
        ("{{ (joiner() ~ '')[-5:] }}", "writes a Python object"),
        ("{{ (messages[0].keys() - ['x']) | join }}", "it writes the members"),
        ("{{ messages[0].items() - [] - [] }}", "it writes the members"),
        ("{% for key in messages[0].keys() - ['x'] %}{{ key }}{% endfor %}", "it writes the members"),
        ("{{ (messages[0].keys() - ['x']) | sort | join }}{{ (messages[0].keys() - ['role']) | first }}", None),
        ("{{ (messages[0].keys() - ['x']) | length }}{{ 'role' in messages[0].keys() - ['x'] }}{{ 7 - 3 % 2 }}", None),
        ("{{ messages[0].content | trim | upper }}{{ '%s' % messages[0].content }}{{ namespace(a=1) }}", None),
        ("{{ strftime_now('%H%M%S%f') }}", "it writes the time"),
        ("{{ strftime_now('%c') }}", "it writes the time"),
        ("{{ strftime_now('%d %b %Y, %A') }}", None),
        ("{{ raise_exception | upper }}", "writes a Python object"),
        ("{% set lipsum = 'mine' %}{{ lipsum }}", None),
        ("{{ '<f at 0x7f00>' }}", None),
    ],
)
def test_rows_of_templates_that_write_another_text_in_every_run_are_dropped(
    tmp_path: Path, end: str, why: str | None
) -> None:
    tokenizer = loaded_tokenizer(tmp_path, replace(CHATML, template=_TURNS + end))
    messages = [{"role": "user", "content": "What is <object at 0x7fA0>?"}, {"role": "assistant", "content": "A list."}]

    if why is None:
        assert "<object at 0x7fA0>" in tokenizer.render_text(messages, None)
        return
    with pytest.raises(RowError, match=f"template_error: .* rejects the row: .*{why}"):
        tokenizer.render_text(messages, None)


@pytest.mark.parametrize(
    ("templates", "found"),
    [([], "has no chat template. Set"), (["default", "tool_use"], r"several named chat templates \(default, ")],
)
def test_chats_need_one_template(tmp_path: Path, templates: list[str], found: str) -> None:
    path = write_tokenizer(tmp_path, CHATML) / "tokenizer_config.json"
    (tmp_path / "chat_template.jinja").unlink()
    named = [{"name": name, "template": CHATML.template} for name in templates]
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": named or None}))

    with pytest.raises(TokenizerError, match=found):
        chat_encoder(load_tokenizer(TokenizerConfig(name_or_path=str(tmp_path))), ChatPreprocessing())


#: A tokenizer with code of its own, as Kimi-K3's, which has no template in Jinja.
RENDERING_CODE = """\
from transformers import PreTrainedTokenizerFast


class OwnTokenizer(PreTrainedTokenizerFast):
    def apply_chat_template(self, conversation, thinking=True, **kwargs):
        return "".join(turn["content"] for turn in conversation)
"""


def test_chats_that_a_tokenizer_renders_in_python_need_a_template_and_markers(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, CHATML) / "tokenizer_config.json"
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenization_own.py").write_text(RENDERING_CODE)
    code = {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]}
    named = {"tokenizer_class": "OwnTokenizer", "auto_map": code, "chat_template": None}
    path.write_text(json.dumps({**json.loads(path.read_text()), **named}))
    config = TokenizerConfig(name_or_path=str(tmp_path), trust_remote_code=True)

    found = (
        r"no chat template in Jinja: its class OwnTokenizer renders chats in Python.* preprocessing.assistant_markers"
    )
    with pytest.raises(TokenizerError, match=found):
        chat_encoder(load_tokenizer(config), ChatPreprocessing())


def test_template_that_is_a_pipe_a_device_or_huge_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    places = {tmp_path / "pipe": "a regular file", Path("/dev/zero"): "a regular file", tmp_path / "huge": "more than"}
    folder = str(write_tokenizer(tmp_path / "tokenizer", CHATML))
    for place, reason in places.items():
        with pytest.raises(TokenizerError, match=rf"tokenizer\.chat_template is '{place}'.*{reason}"):
            load_tokenizer(TokenizerConfig(name_or_path=folder, chat_template=str(place)))


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf{{ messages }}", b"\xff\xfe{\0{\0"])
def test_template_file_that_an_editor_marked_is_refused(tmp_path: Path, content: bytes) -> None:
    config = TokenizerConfig(
        name_or_path=str(write_tokenizer(tmp_path, CHATML)), chat_template=str(tmp_path / "own.jinja")
    )
    (tmp_path / "own.jinja").write_bytes(content)

    with pytest.raises(TokenizerError, match=r"tokenizer.chat_template is '.*own\.jinja'; it .* UTF-8"):
        load_tokenizer(config)


def test_half_a_character_costs_its_row_and_no_other(tmp_path: Path) -> None:
    """JSON inside a column, as ShareGPT's tools and function calls are, may hold one that the reader cannot see."""
    tokenizer = loaded_tokenizer(tmp_path, CHATML)
    call = {"from": "function_call", "value": json.dumps({"name": "smile", "arguments": {"face": HALF}})}
    asked = {"from": "human", "value": "Smile."}

    broken, whole = encode_examples(
        ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing())),
        [{"conversations": [asked, call]}, {"messages": [QUESTION, ANSWER]}],
    )

    assert isinstance(broken, RowError)
    assert broken.reason == DropReason.INVALID_FIELD
    assert "U+D83D" in broken.detail
    assert isinstance(whole, Encoded)


def test_half_a_character_that_the_template_leaves_out_does_no_harm(tmp_path: Path) -> None:
    """Old answers of this template are found by a scan only, which looks for markers in all of a row's texts."""
    encoder = ReadingEncoder(chat_encoder(loaded_tokenizer(tmp_path, THINKING), ChatPreprocessing()))
    tools = json.dumps([{"name": f"<|im_end|>{HALF}"}])

    (encoded,) = encode_examples(encoder, [{"messages": [QUESTION, ANSWER] * 2, "tools": tools}])

    assert isinstance(encoded, Encoded)
    assert any(encoded.mask)


def test_text_that_a_wrong_class_loses_is_noticed_and_the_own_file_keeps_it(tmp_path: Path) -> None:
    """The class is not byte-level and the tokenizer is, as DeepSeek-V3's."""
    folder = train_chatml_tokenizer(tmp_path / "tokenizer", ["a small text of small words"], vocab_size=300)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": "LlamaTokenizerFast"}))
    by_class = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    own = load_tokenizer(TokenizerConfig(name_or_path=str(folder), loader="tokenizer_json"))

    assert by_class.loses_text == (by_class.decode(by_class.encode(TEXT)) != TEXT)
    assert by_class.identity()["loses_text"] == by_class.loses_text
    with pytest.raises(TokenizerError, match=r"of it: .* class that loses text"):
        refuse_lost_text(by_class, ["你好"], of_what="it")
    assert (own.loses_text, own.decode(own.encode(TEXT))) == (False, TEXT)
    assert own.chat_template is not None
    assert own.special_token_id("eos") == own.added_tokens["<|im_end|>"]


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        (None, "Give a tokenizer folder"),
        ({}, "the folder is empty. It must hold tokenizer.json and tokenizer_config.json."),
        ({"tokenizer.json": "{"}, "it cannot be loaded: .* Give a folder with tokenizer.json"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{"}, "it cannot be loaded: .* Give a folder with"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{}"}, "it has no eos_token"),
        ({"notes.txt": ""}, "the folder has no tokenizer.json, or vocab.json with"),
        ({"tokenizer_config.json": json.dumps(BARE)}, "it loses 100% of plain words and"),
    ],
)
def test_missing_or_broken_files_are_refused(tmp_path: Path, files: dict[str, str | None] | None, refusal: str) -> None:
    folder = tmp_path / "tokenizer"
    sound = train_chatml_tokenizer(tmp_path / "sound", ["a small text of small words"], vocab_size=300)
    if files is not None:
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text((sound / name).read_text() if content is None else content)

    assert not load_tokenizer(TokenizerConfig(name_or_path=str(sound))).loses_text
    with pytest.raises(TokenizerError, match=rf"^tokenizer\.name_or_path is {str(folder)!r}; .*{refusal}"):
        load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    with pytest.raises(TokenizerError, match=r"^tokenizer\.name_or_path is 'no-such-owner/no-such-name'; it cannot be"):
        load_tokenizer(TokenizerConfig(name_or_path="no-such-owner/no-such-name"))


def test_tokenizer_with_code_of_its_own_names_the_two_settings_that_load_it(tmp_path: Path) -> None:
    folder = train_chatml_tokenizer(tmp_path / "own", ["a small text of small words"], vocab_size=300)
    path = folder / "tokenizer_config.json"
    own = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **own}))
    where = f"tokenizer.name_or_path is {str(folder)!r}; it cannot be loaded: "

    with pytest.raises(TokenizerError) as untrusted:
        load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    with pytest.raises(TokenizerError) as lacking:
        load_tokenizer(TokenizerConfig(name_or_path=str(folder), trust_remote_code=True))

    assert mentions(
        untrusted.value, where, "Set tokenizer.trust_remote_code to true", "tokenizer.loader: tokenizer_json"
    )
    assert mentions(lacking.value, f"{where}tokenization_own.py", "Copy it there", "tokenizer.loader: tokenizer_json")
    assert load_tokenizer(TokenizerConfig(name_or_path=str(folder), loader="tokenizer_json")).encode("a small")


def _english(tokenizer: TokenizerJson) -> None:
    """A character is a token; those beyond ASCII are none, as for a SentencePiece model without bytes."""
    kept = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    letters = [chr(number) for number in range(32, 127)]
    vocabulary = kept | {letter: max(kept.values()) + 1 + index for index, letter in enumerate([*letters, "[unk]"])}
    tokenizer["model"] = {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "[unk]"}
    tokenizer["pre_tokenizer"] = tokenizer["decoder"] = None


def _few_words(tokenizer: TokenizerJson) -> None:
    _english(tokenizer)
    words = {word: index + 200 for index, word in enumerate(("Hello", "world", "[unk]"))}
    tokenizer["model"] = {"type": "WordLevel", "vocab": tokenizer["model"]["vocab"] | words, "unk_token": "[unk]"}
    tokenizer["pre_tokenizer"] = {"type": "Whitespace"}


def test_tokenizer_without_ordinary_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"loses \d\d% of plain words.*: its vocabulary lacks"):
        loaded_tokenizer(tmp_path, replace(CHATML, edit=_few_words))


def test_rows_that_the_tokenizer_cannot_write_stop_the_build(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", replace(CHATML, edit=_english))
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 512}
    rows = {
        "english": [chat_row("What is it?", "Café au lait, 5 €.")] * 4,
        "other": [chat_row("Что это?", "你好吗")] * 4,
    }
    files = {name: write_json_lines(tmp_path / f"{name}.jsonl", lines) for name, lines in rows.items()}

    assert build(tokenized_recipe(files["english"], tokenizer, **changes), tmp_path / "a").manifest.splits
    with pytest.raises(TokenizerError, match=r"loses \d\d% of the letters .*first rows"):
        build(tokenized_recipe(files["other"], tokenizer, **changes), tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("{{ 'a' * 10**11 }}", r"the result of `\*` is longer than 1,000,000"),
        ("{{ 10**9 * [m] }}", r"the result of `\*` is longer than 1,000,000"),
        ("{{ 10**(10**10) }}", r"the result of `\*\*` is longer than 1,000,000"),
        ("{% for i in range(10**6) %}{% endfor %}", "Range too big"),
    ],
)
def test_template_without_an_end_is_refused(tmp_path: Path, code: str, reason: str) -> None:
    unless = "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.role == 'x' %}"
    template = unless + code + "{% endif %}{% endfor %}"
    tokenizer = loaded_tokenizer(tmp_path, replace(CHATML, template=template))

    with pytest.raises(RowError, match=f"rejects the row: {reason}"):
        tokenizer.render_text([{**QUESTION, "role": "x"}], None)
    assert tokenizer.render_text([QUESTION] * 3, None) == "<|im_start|>user" * 3
    assert end_of_turn_ids(loaded_tokenizer(tmp_path / "always", replace(CHATML, template=code))) == []


def test_template_that_fills_memory_says_so(tmp_path: Path) -> None:
    template = "{{ 'a'.center(10**14) }}"
    with pytest.raises(TokenizerError, match="more than 4,096 MiB of memory"):
        end_of_turn_ids(loaded_tokenizer(tmp_path, replace(CHATML, template=template)))


def _identity(tokenizer: ChatTokenizer) -> dict[str, Any]:
    return identity_of(small_recipe("rows.jsonl", tokenizer.config.name_or_path), tokenizer, None)


def _template(call: str) -> str:
    return TURNS + CALLS.replace("CALL", call)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("{{ call.function.name }}({{ call.function.arguments | tojson }})", False),
        ("{{ call.id }}({{ call.function.arguments | tojson }})", True),
        ("{{ call.id }}", None),
        ("{{ raise_exception('no tools') }}", None),
        ("{{ call.function.name + call.function.arguments }}", False),
    ],
)
def test_tool_names(tmp_path: Path, call: str, expected: bool | None) -> None:
    tokenizer = loaded_tokenizer(tmp_path, Family(name="calls", template=_template(call)))

    assert drops_tool_names(tokenizer) is expected
    assert _identity(tokenizer)["drops_tool_names"] is expected


@pytest.mark.parametrize(
    ("end", "tokens"),
    [("{{ '<|im_end|>' if not loop.last else '\n<|endoftext|>' }}", ["<|im_end|>", "<|endoftext|>"]), ("\n###\n", [])],
)
def test_end_of_turn_of_a_template(tmp_path: Path, end: str, tokens: list[str]) -> None:
    tokenizer = loaded_tokenizer(tmp_path, Family(name="ends", template=TURNS + end + "{% endfor %}"))

    assert end_of_turn_ids(tokenizer) == sorted(tokenizer.added_tokens[token] for token in tokens)


def test_identity_names_what_rules_need(tmp_path: Path) -> None:
    tokenizer = loaded_tokenizer(tmp_path, Family(name="chatml", template=_template("")))

    identity = _identity(tokenizer)
    assert identity["end_of_turn_ids"] == [tokenizer.added_tokens["<|im_end|>"]]
    assert identity["never_trained"] == {"<|im_start|>": tokenizer.added_tokens["<|im_start|>"]}
    assert identity["bos_token_id"] == tokenizer.added_tokens["<|endoftext|>"]
    assert identity["adds_bos"] is False


def _add_white_space(tokenizer: TokenizerJson) -> None:
    """Line ends are a token of their own, as in Gemma's vocabulary."""
    for text, is_special in (("\n\n", False), ("<|x|>", False), ("\t\t", True)):
        index = len(tokenizer["model"]["vocab"])
        tokenizer["model"]["vocab"][text] = index
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokenizer["added_tokens"].append({"id": index, "content": text, **flags, "special": is_special})


def test_white_space_is_no_control_token(tmp_path: Path) -> None:
    tokenizer = loaded_tokenizer(tmp_path, Family(name="gemma", template=CHATML.template, edit=_add_white_space))
    encoder = chat_encoder(tokenizer, ChatPreprocessing(control_tokens="drop"))
    assert "\n\n" in tokenizer.added_tokens

    for text, is_kept in (("a\n\nb", True), ("a<|x|>b", False), ("a\t\tb", False), ("a<|im_end|>", False)):
        (found,) = encode_examples(encoder, [{"messages": [{"role": "user", "content": text}, ANSWER]}])
        assert isinstance(found, Encoded) == is_kept, text


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Return a tokenizer in which each of the letters used below is a token."""
    folder = train_chatml_tokenizer(tmp_path_factory.mktemp("tokenizer"), ["a b c"], vocab_size=260)
    return load_tokenizer(TokenizerConfig(name_or_path=str(folder)))


@pytest.mark.parametrize(
    ("prompt", "completion", "settings", "text"),
    [
        ("ab", "xyz", {}, "axyz<|im_end|>"),
        ("ab", "uvwxyz", {}, "uvwx<|im_end|>"),
        ("ab", "uvwxyz", {"ends_cut_completions": False}, "uvwx"),
        ("ab", "uvwxyz", {"ends_cut_completions": False, "truncation_method": "left"}, "wxyz<|im_end|>"),
        ("ab", "xyz", {"ends_cut_completions": False, "truncation_method": "left"}, "bxyz<|im_end|>"),
        ("a", "x", {"ends_cut_completions": False}, "ax<|im_end|>"),
    ],
)
def test_cut_completion(
    tokenizer: ChatTokenizer, prompt: str, completion: str, settings: dict[str, Any], text: str
) -> None:
    settings = {"kind": "prompt_completion", "over_long": "truncate", **settings}
    encoder = PromptCompletionEncoder(tokenizer, PromptCompletionPreprocessing(**settings))
    whole = encode_examples(encoder, [{"prompt": prompt, "completion": completion}])
    (encoded,) = cut(policy_for(settings, 4, tokenizer.eos_token_id), whole)

    assert isinstance(encoded, Encoded)
    assert tokenizer.decode(encoded.ids) == text
