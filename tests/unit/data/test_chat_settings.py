"""Settings that mend chat rows: roles, what the template is given, what is trained, and which rows are dropped."""

import datetime
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import DataConfig, TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.conversation import Conversation, ConversationReader
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason, LostKind
from tests.support.messages import mentions
from tests.support.read_rows import ReadingEncoder, encode_examples, read_row
from tests.support.small_builds import chat_row
from tests.zoo.tokenizers import (
    FAMILIES,
    GPT_OSS_FAMILY,
    GPT_OSS_MARKERS,
    Family,
    loaded_tokenizer,
    write_tokenizer,
)

QUESTION = {"role": "user", "content": "what"}
TEXT_PART = {"type": "text", "text": "one"}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "x.png"}}
BY_NAME = {family.name: family for family in FAMILIES}
ROUNDS = (("what", "one"), ("and", "two"), ("then", "three"))
CONVERSATION = [turn for texts in ROUNDS for turn in chat_row(*texts)["messages"]]


def read(*turns: Mapping[str, Any], system: Any = None, **settings: Any) -> Conversation:
    columns = read_row({"messages": list(turns), "system": system})
    return ConversationReader(ChatPreprocessing(**settings)).read(columns)


def refusal(*turns: Mapping[str, Any], **settings: Any) -> str:
    with pytest.raises(RowError) as caught:
        read(*turns, **settings)
    assert caught.value.reason == DropReason.INVALID_FIELD
    return caught.value.detail


def encoded(tokenizer: ChatTokenizer, turns: Sequence[Mapping[str, Any]], **settings: Any) -> Encoded | RowError:
    encoder = chat_encoder(tokenizer, ChatPreprocessing(**settings))
    (found,) = encode_examples(encoder, [{"messages": list(turns)}])
    return found


def trained(tokenizer: ChatTokenizer, turns: Sequence[Mapping[str, Any]], **settings: Any) -> list[str]:
    """Return the trained spans as text, without their control tokens and white space."""
    texts = spans_of(tokenizer, encoded(tokenizer, turns, **settings))
    for token in sorted(tokenizer.added_tokens, key=len, reverse=True):
        texts = [text.replace(token, "") for text in texts]
    return [text.strip() for text in texts]


def called(arguments: Any, *, is_wrapped: bool = True) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function} if is_wrapped else function
    return {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_arguments_become_an_object_or_text(is_wrapped: bool) -> None:
    text, value = called('{"a": "é"}', is_wrapped=is_wrapped), called({"a": "é"}, is_wrapped=is_wrapped)
    odd = called("a=1", is_wrapped=is_wrapped)

    assert read(QUESTION, text).messages == [QUESTION, text]
    for given in (text, value):
        assert read(QUESTION, given, tool_arguments="object").messages == [QUESTION, value]
        assert read(QUESTION, given, tool_arguments="text").messages == [QUESTION, text]
    assert read(QUESTION, odd, tool_arguments="text").messages == [QUESTION, odd]


def test_arguments_of_a_function_call_turn_become_an_object() -> None:
    turn = {"from": "function_call", "value": '{"name": "add", "arguments": "{\\"a\\": 1}"}'}

    (message,) = read(turn, tool_arguments="object").messages
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}


@pytest.mark.parametrize("parts", ["auto", "keep", "join_text", "drop"])
@pytest.mark.parametrize(("part", "kind"), [([["Deep."]], "list"), (3.5, "float"), (True, "bool")])
def test_part_of_content_that_can_hold_no_text_drops_the_row(parts: str, part: Any, kind: str) -> None:
    with pytest.raises(RowError) as raised:
        read(QUESTION, {"role": "assistant", "content": ["Deep.", part]}, content_parts=parts)
    assert mentions(raised.value, "invalid_field: turn 2: content: ", f"part 2 is a {kind}; ", "text or an object")


@pytest.mark.parametrize(
    ("calls", "detail"),
    [
        ([{"name": "f", "arguments": "a=1"}], "turn 2: arguments of tool call 1 is not JSON: "),
        ([{"name": "f", "arguments": ""}], "turn 2: arguments of tool call 1 is not JSON: "),
        (
            [{"name": "f", "arguments": '{"a": 1, "a": 2}'}],
            "turn 2: arguments of tool call 1",
        ),
        ([{"name": "f", "arguments": "[1]"}], "turn 2: arguments of tool call 1 are a JSON list"),
        ([{"name": "f", "arguments": "null"}], "turn 2: arguments of tool call 1 are a JSON NoneType"),
    ],
)
def test_arguments_that_are_no_object_drop_the_row(calls: Any, detail: str) -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": calls}

    assert refusal(QUESTION, turn, tool_arguments="object").startswith(detail)
    assert read(QUESTION, turn).messages == [QUESTION, turn]


def test_one_call_is_put_in_a_list_and_what_is_no_call_drops_the_row() -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": {"name": "f", "arguments": {}}}

    assert read(QUESTION, turn).messages == [QUESTION, {**turn, "tool_calls": [turn["tool_calls"]]}]
    assert refusal(QUESTION, {**turn, "tool_calls": ["f"]}).startswith("turn 2: tool call 1 is a str")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([TEXT_PART, {"type": "text", "text": " two", "cache_control": {}}], "one two"),
        (["one", TEXT_PART], "oneone"),
        ([{"type": "text", "value": "one"}, {"type": "output_text", "text": " two"}], "one two"),
        ([{"type": "input_text", "content": "one", "text": None}, {"text": " two"}], "one two"),
        ([{"type": "text", "text": {"value": "one", "annotations": []}}], "one"),
        ([], ""),
    ],
)
def test_parts_become_one_text(parts: list[Any], text: str) -> None:
    turn = {"role": "user", "content": parts}

    assert read(turn).messages == [turn]
    assert read(turn, content_parts="join_text").messages == [{"role": "user", "content": text}]
    assert read(turn, content_parts="join_text", null_content="empty").messages[0]["content"] == text
    told = refusal(QUESTION, turn, content_parts="drop")
    assert mentions(told, "turn 2: content ", "list of parts; ", "preprocessing.content_parts is drop")


def test_parts_of_the_system_column_become_one_text() -> None:
    found = read(QUESTION, system=[TEXT_PART, "."], content_parts="join_text")

    assert found.messages == [{"role": "system", "content": "one."}, QUESTION]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (IMAGE_PART, "image_url"),
        ({"type": "text"}, "text"),
        ({"type": "text", "text": 1}, "text"),
        ({"type": "text", "text": "x", "value": "y"}, "text"),
        ({"type": "image", "text": "x"}, "image"),
        ({"type": ["text"], "text": "x"}, ["text"]),
        ({"type": "text", "text": {"text": "x"}}, "text"),
        ({"text": "x", "image": "x.png"}, None),
        ({}, None),
    ],
)
def test_part_that_is_no_text_drops_the_row(part: Any, kind: Any) -> None:
    turn = {"role": "user", "content": [TEXT_PART, part]}

    told = refusal(turn, content_parts="join_text")
    assert mentions(told, "turn 1: content ", f"type {kind!r} without text; ")
    assert told.endswith("preprocessing.content_parts is join_text")
    assert read(turn).messages == [turn]


def test_null_role_and_content_beside_from_and_value_are_absent() -> None:
    """A table that holds turns of both forms has all four columns."""
    turns = [
        {"role": None, "content": None, "from": "human", "value": "what"},
        {"role": "assistant", "content": "one", "from": None, "value": None},
    ]

    assert read(*turns).messages == [QUESTION, {"role": "assistant", "content": "one"}]


@pytest.mark.parametrize("key", ["weight", "train", "training"])
@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize(
    "name",
    [
        *("chatml", "chatml-generation", "chatml-thinking", "llama3", "llama3-generation", "gemma", "harmony"),
        *("recipe-markers", "generation-only"),
    ],
)
def test_turns_that_say_so_are_not_trained(tmp_path: Path, name: str, mode: str, key: str) -> None:
    family = BY_NAME[name]
    tokenizer = loaded_tokenizer(tmp_path, family)
    settings = {"assistant_markers": family.assistant_markers or None, "loss_mode": mode}
    every = trained(tokenizer, CONVERSATION, **settings)
    weighed = [dict(turn) for turn in CONVERSATION]
    weighed[1][key], weighed[3][key] = False, True

    assert trained(tokenizer, weighed, **settings) == every
    assert trained(tokenizer, weighed, **settings, message_weights="mask") == every[-2:]
    assert every[-1].endswith("three")
    weighed[5][key] = False
    assert trained(tokenizer, weighed, **settings, message_weights="mask") == (
        every[1:2] if mode == "assistant" else []
    )


def test_weights_count_from_the_turn_also_behind_a_system_column() -> None:
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 0}]

    assert read(*turns, system="be brief", message_weights="mask").untrained == {2}
    assert read(*turns, message_weights="mask").untrained == {1}
    assert read(*turns).untrained == frozenset()
    assert read({"from": "human", "value": "a", "weight": 0.5}, message_weights="mask").untrained == frozenset()


def test_masks_that_are_true_or_false_drop_the_row() -> None:
    for value in (True, "false"):
        told = refusal(QUESTION, {"role": "assistant", "content": "b", "mask": value}, message_weights="mask")
        assert mentions(told, f"turn 2: mask is {str(value).lower()}, ", "trained or masked")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [("weight", 0.5, "0 or 1"), ("Weight", "half", "0 or 1"), ("train", "no", "true or false"), ("training", 2, "tr")],
)
def test_other_weights_drop_the_row(key: str, value: Any, allowed: str) -> None:
    turns = [QUESTION, {"role": "assistant", "content": "b", key: value}]

    told = refusal(*turns, message_weights="mask")
    assert mentions(told, f"turn 2: {key} is {value!r}; ", f"must be {allowed}")
    assert read(*turns).messages == turns


def test_an_empty_block_is_the_answer_that_says_nothing(tmp_path: Path) -> None:
    answer = "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}"
    template = "{% for m in messages %}{{ m.role }}:" + answer + ";{% endfor %}"
    tokenizer = loaded_tokenizer(tmp_path, Family(name="blocks", template=template))
    empty = {"role": "assistant", "content": "", "weight": 0}
    turns = [QUESTION, empty, QUESTION, {"role": "assistant", "content": "one"}]

    assert trained(tokenizer, turns) == ["one"]
    assert trained(tokenizer, turns, message_weights="mask") == ["one"]
    weighed = [QUESTION, {**empty, "weight": 1}, QUESTION, {"role": "assistant", "content": "one", "weight": 0}]
    assert trained(tokenizer, weighed, message_weights="mask") == []


def test_several_empty_blocks_are_of_nobody(tmp_path: Path) -> None:
    """An answer that says nothing has two of them; whose each is does not matter."""
    answer = "{% generation %}{{ m.thinking }}{% endgeneration %}{% generation %}{{ m.content }}{% endgeneration %}"
    template = (
        "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}" + answer + "{% endif %};{% endfor %}"
    )
    tokenizer = loaded_tokenizer(tmp_path, Family(name="blocks", template=template))
    empty = {"role": "assistant", "content": "", "weight": 0}
    turns = [QUESTION, empty, QUESTION, {"role": "assistant", "content": "one"}]

    assert trained(tokenizer, turns, message_weights="mask") == ["one"]


def test_a_block_of_which_the_tokenizer_drops_all_letters(tmp_path: Path) -> None:
    """As in Megatron-Bridge, neither it nor a block behind it is trained. With weights there was a ValueError."""
    template = "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    template += "{% endgeneration %}{% endif %};{% endfor %}"
    dropping = {"type": "Replace", "pattern": {"String": "~"}, "content": ""}
    family = Family(name="blocks", template=template, edit=lambda tokenizer: tokenizer.update(normalizer=dropping))
    answers = [{"role": "assistant", "content": content} for content in ("one", "~", "two")]
    turns = [turn for answer in answers for turn in (QUESTION, answer)]
    tokenizer = loaded_tokenizer(tmp_path, family)

    assert trained(tokenizer, turns) == ["one"]
    assert trained(tokenizer, [*turns[:5], {**answers[2], "weight": 0}], message_weights="mask") == ["one"]


@pytest.mark.parametrize(
    ("weights", "settings", "told"),
    [
        ((0, 1), {}, "turn 2 (assistant) has a weight other"),
        ((None, 0.5), {}, "turn 4 (assistant) has a weight other"),
        ((0, 1), {"loss_mode": "last_turn"}, None),
        ((0, 0), {"loss_mode": "full"}, None),
        ((0, 1), {"message_weights": "mask"}, None),
        ((1, None), {}, None),
    ],
)
def test_weights_that_are_not_read_are_told(tmp_path: Path, weights: Any, settings: Any, told: str | None) -> None:
    turns = [dict(turn) for turn in CONVERSATION[:4]]
    turns[1]["weight"], turns[3]["weight"] = weights

    found = encoded(loaded_tokenizer(tmp_path, BY_NAME["chatml"]), turns, **settings)
    assert isinstance(found, Encoded)
    assert [kind for kind, _ in found.losses] == ([] if told is None else [LostKind.WEIGHT])
    assert told is None or mentions(found.losses[0][1], told)


#: Like Qwen3's and Llama 3's: an answer may be without a thought, and the day is written unless the row knows it.
VARIABLES = (
    "{{ '<|im_start|>system\n' + (date_string or strftime_now('%d %b %Y')) + '<|im_end|>\n' }}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and enable_thinking is false %}{{ '<think></think>' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}{# <|im_start|>assistant #}"
)
COLUMN = {"chat_template_kwargs": "variables"}


def texts_of_rows(tokenizer: ChatTokenizer, *variables: Any, **layout: Any) -> list[str | RowError]:
    chosen = ChatPreprocessing()
    encoder = ReadingEncoder(chat_encoder(tokenizer, chosen), chosen, layout)
    turns = CONVERSATION[:4]
    examples = [{"messages": turns, "variables": item} for item in variables]
    found = encode_examples(encoder, examples)
    return [tokenizer.decode(item.ids) if isinstance(item, Encoded) else item for item in found]


def with_config(folder: Path, **config: Any) -> ChatTokenizer:
    path = write_tokenizer(folder, Family(name="variables", template=VARIABLES))
    return load_tokenizer(TokenizerConfig(name_or_path=str(path), **config))


def test_variables_of_recipe_and_row_reach_the_template(tmp_path: Path) -> None:
    tokenizer = with_config(tmp_path, chat_template_kwargs={"enable_thinking": False, "date_string": "1 May"})
    rows = [None, {}, "", '{"enable_thinking": true}', {"date_string": "2 May", "enable_thinking": None}]

    first, *others = texts_of_rows(tokenizer, *rows, **COLUMN)
    assert isinstance(first, str)
    assert first.startswith("<|im_start|>system\n1 May<|im_end|>\n<|im_start|>user\nwhat<|im_end|>\n")
    assert first.count("<|im_start|>assistant\n<think></think>") == 2
    assert others == [first, first, first.replace("<think></think>", ""), first.replace("1 May", "2 May")]
    assert texts_of_rows(tokenizer, *rows) == [first] * 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"date_string": "2 May", "theme": "dark"}, "date_string"),
        ('{"enable_thinking": false, "date_string": "2 May"}', "date_string, enable_thinking"),
        ({"theme": "dark"}, None),
        ({"date_string": None}, None),
        ("no JSON", None),
        ({}, None),
    ],
)
def test_variables_that_are_not_read_are_told(tmp_path: Path, given: Any, told: str | None) -> None:
    columns, tokenizer = {"messages": CONVERSATION[:2], "chat_template_kwargs": given}, with_config(tmp_path)

    (found,) = encode_examples(ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing())), [columns])
    assert isinstance(found, Encoded)
    detail = f"the column chat_template_kwargs sets {told}, which the template reads"
    assert found.losses == (() if told is None else ((LostKind.TEMPLATE_KWARGS, detail),))
    layout = {"chat_template_kwargs": "chat_template_kwargs"}
    encoder = ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing()), layout=layout)
    (read_too,) = encode_examples(encoder, [columns])
    reads = "it reads date_string, enable_thinking"
    unread = f"chat_template_kwargs has theme, which the chat template does not read; {reads}"
    expected = ((LostKind.UNREAD_VARIABLE, unread),) if "theme" in given else ()
    assert isinstance(read_too, RowError) or read_too.losses == expected


def test_masks_are_found_with_the_variables_of_the_row(tmp_path: Path) -> None:
    tokenizer = with_config(tmp_path, template_date="2025-06-30")
    encoder = ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing()), layout=COLUMN)
    turns = [dict(CONVERSATION[0], content="<|im_end|>"), *CONVERSATION[1:4]]  # so that nothing is found by scanning
    columns = {"messages": turns, "variables": {"enable_thinking": False, "date_string": "2 May"}}

    (found,) = encode_examples(encoder, [columns])
    assert isinstance(found, Encoded)
    spans = tokenizer.decode([token for token, bit in zip(found.ids, found.mask, strict=True) if bit])
    assert spans == "<think></think>one<|im_end|>\n<think></think>two<|im_end|>\n"


@pytest.mark.parametrize(
    ("variables", "detail"),
    [
        ([1], "variables is a list"),
        ("[1]", "variables is a list"),
        ("{", "variables is not JSON"),
        ('{"a": 1, "a": 1}', 'object has the key "a" twice'),
        ({"tools": [], "messages": []}, "variables sets messages, tools"),
    ],
)
def test_variables_that_are_none_drop_the_row(tmp_path: Path, variables: Any, detail: str) -> None:
    (found,) = texts_of_rows(with_config(tmp_path), variables, **COLUMN)

    assert isinstance(found, RowError)
    assert found.reason == DropReason.INVALID_FIELD
    assert mentions(found.detail, detail)


def test_day_is_that_of_the_recipe_and_counts(tmp_path: Path) -> None:
    plain, pinned = with_config(tmp_path / "a"), with_config(tmp_path / "b", template_date="2025-06-30")
    variables = with_config(tmp_path / "c", chat_template_kwargs={"date_string": "1 May"})

    (text,) = texts_of_rows(pinned, None)
    assert isinstance(text, str)
    assert text.startswith("<|im_start|>system\n30 Jun 2025<|im_end|>\n")
    assert pinned.identity()["template_date"] == "2025-06-30"
    assert plain.identity()["template_date"] == datetime.date.today().isoformat()
    assert variables.identity()["chat_template_kwargs"] == {"date_string": "1 May"}
    assert "chat_template_kwargs" not in plain.identity()


def _call(thinking: str) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    return {"role": "assistant", "content": "", "thinking": thinking, "tool_calls": [call]}


RESULT = {"role": "tool", "content": "two"}
ANSWER = {"role": "assistant", "content": "three", "thinking": "four"}
CALLED = ' to=functions.add<|channel|>commentary json<|message|>{"a": 1}<|call|>'
ANSWERED = "<|channel|>analysis<|message|>four<|end|><|start|>assistant<|channel|>final<|message|>three<|return|>"
EARLIER = "<|channel|>final<|message|>three<|end|>"
CHANNELS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "call-and-answer": ([QUESTION, _call("one"), RESULT, ANSWER], [CALLED, ANSWERED]),
    "two-calls": ([QUESTION, _call("one"), RESULT, _call("one"), RESULT, ANSWER], [CALLED, CALLED, ANSWERED]),
    "two-rounds": ([QUESTION, _call("one"), RESULT, ANSWER, QUESTION, ANSWER], [CALLED, EARLIER, ANSWERED]),
    "call-at-the-end": (
        [QUESTION, ANSWER, QUESTION, _call("one")],
        [EARLIER, "<|channel|>analysis<|message|>one<|end|><|start|>assistant" + CALLED],
    ),
    "two-answers": ([QUESTION, ANSWER, ANSWER], [EARLIER, ANSWERED]),
}


def spans_of(tokenizer: ChatTokenizer, found: Encoded | RowError) -> list[str]:
    assert isinstance(found, Encoded), found
    runs = groupby(zip(found.ids, found.mask, strict=True), key=lambda pair: pair[1])
    return [tokenizer.decode([token for token, _ in run]) for is_trained, run in runs if is_trained]


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_channels_of_gpt_oss(tmp_path: Path, name: str, mode: str) -> None:
    turns, wanted = CHANNELS[name]
    tokenizer = loaded_tokenizer(tmp_path, GPT_OSS_FAMILY)
    settings = {"assistant_markers": GPT_OSS_MARKERS, "loss_mode": mode}

    assert spans_of(tokenizer, encoded(tokenizer, turns, **settings)) == (
        wanted if mode == "assistant" else wanted[-1:]
    )
    weighed = [dict(turn, weight=0) if turn is turns[1] else turn for turn in turns]
    found = encoded(tokenizer, weighed, **settings, message_weights="mask")
    if name == "two-answers":  # the same turn twice
        assert spans_of(tokenizer, found) == []
    else:
        assert spans_of(tokenizer, found) == (wanted[1:] if mode == "assistant" else wanted[-1:])


def test_markers_in_a_text_of_gpt_oss_are_no_turn(tmp_path: Path) -> None:
    tokenizer = loaded_tokenizer(tmp_path, GPT_OSS_FAMILY)
    question = {"role": "user", "content": "what is <|start|>assistant<|channel|>final<|message|>x<|end|>"}

    found = encoded(tokenizer, [question, _call("one"), RESULT, ANSWER], assistant_markers=GPT_OSS_MARKERS)
    assert spans_of(tokenizer, found) == [CALLED, ANSWERED]
    only = encoded(tokenizer, [question, ANSWER], assistant_markers=GPT_OSS_MARKERS)
    assert spans_of(tokenizer, only) == [ANSWERED]


CALL = '{"name": "add", "arguments": {"a": 1}}'


def _roles(aliases: dict[str, str], *turns: dict[str, Any]) -> list[str]:
    data = DataConfig(train="chats.jsonl", role_aliases=aliases)
    row = read_row({"conversations": list(turns)}, role_aliases=data.role_aliases)
    return [message["role"] for message in ConversationReader(ChatPreprocessing()).read(row).messages]


@pytest.mark.parametrize(
    ("aliases", "name", "role"),
    [
        *(({"result": role}, "result", role) for role in ("system", "developer", "user", "assistant", "tool")),
        ({"result": "observation"}, "result", "tool"),
        ({"result": "function_call"}, "result", "assistant"),
        *(({alias: "assistant"}, name, "assistant") for alias in ("bard", "Bard", "BARD") for name in ("bard", "Bard")),
        ({"user": "system"}, "user", "system"),
        ({"user": "system"}, "assistant", "assistant"),
    ],
)
def test_aliases_name_roles_in_any_case_and_count_before_a_role(aliases: dict[str, str], name: str, role: str) -> None:
    assert _roles(aliases, {"from": name, "value": CALL}) == [role]
    assert _roles(aliases, {"role": name, "content": CALL}) == [role]


def test_name_without_an_alias_is_refused() -> None:
    with pytest.raises(RowError, match=r"turn 1: role 'critic'; .*developer.*, user"):
        _roles({"bard": "assistant"}, {"from": "critic", "value": "No."})


def test_aliases_that_differ_in_case_only_must_agree() -> None:
    with pytest.raises(ValueError, match=r"role_aliases\['Bard'\] is 'user' and role_aliases\['bard'\] is 'assistant'"):
        DataConfig(train="chats.jsonl", role_aliases={"Bard": "user", "bard": "assistant"})
    assert DataConfig(train="chats.jsonl", role_aliases={"Bard": "user", "bard": "user"}).role_aliases
