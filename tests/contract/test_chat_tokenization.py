"""Chats become the very tokens and masks that megatron-bridge's `tokenize_chat_example` makes of them.

The host is slow: it renders a conversation once per turn, and all over again for each mask. Reference rows are compared
by a stride, which depends on the mode and the data; `BRIDGEPACK_COMPARE_ALL_ROWS=1` compares every row in every mode.

Where both differ on purpose, a test shows what both do:

- A prefix of the conversation that the template refuses with a Jinja error ends the host's preparation, although its
  own scan for turn markers could tell the turns apart. bridgepack scans: `test_prefix_that_the_template_refuses`.
- A turn with `tool_calls` and no `content`, as OpenAI writes it, ends the host's preparation; bridgepack reads null:
  `test_turn_without_content`.
- The host hands content of any type to the template. bridgepack wants text, null or a list of parts:
  `test_content_that_only_the_host_takes`. It maps aliases of roles: `test_role_names`.
- bridgepack reads tools that are JSON text, and ShareGPT's function calls, which the host gets converted.
- A scan stops at every token that opens a turn, so it tells turns apart of which the host refuses the row:
  `test_ends_that_may_be_another_turn_s`. For the same reason a call that ends with Llama 3.1's `<|eom_id|>` is trained
  to there; the host trains the tool's answer as well: `test_calls_that_end_otherwise_than_answers`.
- An answer right behind a tool's result, with no start of its own, is trained; 0.6 refuses the row, 0.7 trains it, too:
  `test_turns_that_0_7_finds`.
- An answer without an end marker is trained, as far as it goes; the host leaves it untrained, or refuses the row:
  `test_answers_without_end`. With `last_turn` the host then trains the answer before it.
- In rows whose texts quote markers, a mask may be another or the row refused where the host's mask trains another
  role's text, or not all that the assistant says. With `last_turn` the host also trains a part of the answer before
  the last where renders of prefixes differ there. `is_mended` tells that from any other difference.

Others, of whole builds, are in `test_docs_differences.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.data.sequences.encoding import Encoded, Loss
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason, LostKind
from tests.support.carried_text import carried, faults
from tests.support.conversations import rows
from tests.support.examples import examples
from tests.support.installed_host import host_release
from tests.support.lost_flags import cured, with_flags
from tests.support.read_rows import given_row, read_row
from tests.support.small_builds import chat_row
from tests.support.upstream_preprocessing import (
    ChatPair,
    HostOutcome,
    Outcome,
    agreement,
    assert_same_rows,
    strided,
)
from tests.zoo.endless import LLAMA_31
from tests.zoo.families import write_tokenizer as write_quirks_tokenizer
from tests.zoo.served import SERVED_FAMILIES
from tests.zoo.tokenizers import (
    AMBIGUOUS,
    CHATML,
    CHATML_NEEDS_USER,
    FAMILIES,
    GEMMA4_TOOLS,
    GLM_52,
    MINIMAX_M3,
    NEEDS_USER,
    Family,
    write_tokenizer,
)

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

LOSS_MODES = ("assistant", "last_turn", "full")
DEEPSEEK_MARKERS = {"assistant_start": "<｜Assistant｜>", "assistant_end": "<｜end▁of▁sentence｜>"}
REFERENCE_MARKERS = {"qwen3": {}, "deepseek_v3": DEEPSEEK_MARKERS}
REFERENCE_ROWS = {"gsm8k": 7473, "fastchat": 500, "glaive": 300}
#: Tokenizer and mode -> one row in so many is compared unless all are asked for.
STRIDES = {
    **{("qwen3", "assistant"): 1, ("qwen3", "last_turn"): 5, ("qwen3", "full"): 1},
    **{("deepseek_v3", "assistant"): 5, ("deepseek_v3", "last_turn"): 10, ("deepseek_v3", "full"): 1},
}
#: Of thousands of rows that are all alike, fewer.
GSM8K_STRIDE = 24

#: ChatML whose last turn has no end.
ENDLESS = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' + message.content -}}"
    "{%- if not loop.last -%}{{- '<|im_end|>\\n' -}}{%- endif -%}{%- endfor -%}{#- <|im_start|>assistant -#}"
)

Row = Mapping[str, Any]


def _gsm8k(folder: Path) -> list[tuple[Row, Row]]:
    found = []
    for row in map(json.loads, (folder / "gsm8k_train.jsonl").read_text().splitlines()):
        pair = {"prompt": row["question"], "completion": row["answer"]}
        found.append((pair, chat_row(row["question"], row["answer"])))
    return found


def _fastchat(folder: Path) -> list[tuple[Row, Row]]:
    return [(row, row) for row in json.loads((folder / "fastchat_dummy_conversation.json").read_text())]


def _glaive(folder: Path) -> list[tuple[Row, Row]]:
    """Return rows with function calls: as they are, and as messages, which is how the host takes them."""
    found = []
    for row in json.loads((folder / "glaive_toolcall_demo.json").read_text()):
        messages = [_openai_message(turn["from"], turn["value"]) for turn in row["conversations"]]
        schemas = [{"type": "function", "function": one} for one in json.loads(row["tools"] or "[]")]
        found.append((row, {"messages": messages, "tools": schemas}))
    return found


def _openai_message(speaker: str, value: str) -> dict[str, Any]:
    if speaker == "function_call":
        return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": json.loads(value)}]}
    return {"role": {"human": "user", "gpt": "assistant", "observation": "tool"}[speaker], "content": value}


READERS = {"gsm8k": _gsm8k, "fastchat": _fastchat, "glaive": _glaive}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("tokenizer", "mode"), STRIDES)
def test_reference_rows(reference_data: Path, tokenizer: str, mode: str, name: str) -> None:
    pair = ChatPair(
        reference_data / "tokenizers" / tokenizer, loss_mode=mode, assistant_markers=REFERENCE_MARKERS[tokenizer]
    )
    every_row = READERS[name](reference_data / "data")
    compared = strided(every_row, STRIDES[tokenizer, mode] * (GSM8K_STRIDE if name == "gsm8k" else 1))

    # After a function call, DeepSeek-V3's template writes the answer without its marker: 0.6 never finds the turn, and
    # 0.7 where no turn with a marker follows.
    is_lost = tokenizer == "deepseek_v3" and mode != "full"
    called = [one for one in compared if is_lost and _has_tool_calls(one[1])]
    alike = [one for one in compared if one not in called]
    counts = assert_same_rows(pair, [row for row, _ in alike], [row for _, row in alike])

    assert len(every_row) == REFERENCE_ROWS[name]
    assert counts == {"equal": len(alike)}
    found = [(pair.ours([row])[0], pair.host(host_row)) for row, host_row in called]
    equal = [agreement(*both) for both in found if not isinstance(both[1], Exception)]
    assert set(equal) == ({"equal"} if called and FINDS_ANSWERS_AFTER_TOOLS[host_release().name] else set())
    assert not called or any(isinstance(ours, tuple) for ours, _ in found)


#: Release -> whether it finds an answer that begins right behind a tool's result, with no start of its own.
FINDS_ANSWERS_AFTER_TOOLS = {"0.6": False, "0.7": True}


def _has_tool_calls(row: Row) -> bool:
    return any("tool_calls" in turn for turn in row.get("messages", ()))


Pairs = Mapping[tuple[str, bool], ChatPair]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.name)
def family_pairs(request: pytest.FixtureRequest, bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Return both sides over the tokenizer of one family, by mode and by whether control tokens are masked."""
    family: Family = request.param
    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"), family)
    return {
        (mode, is_masked): ChatPair(
            folder, loss_mode=mode, assistant_markers=family.assistant_markers, masks_control_tokens=is_masked
        )
        for mode in LOSS_MODES
        for is_masked in (True, False)
    }


@pytest.mark.parametrize("mode", LOSS_MODES)
def test_plain_conversation(family_pairs: Pairs, mode: str) -> None:
    turns = [("system", "Be brief."), ("user", "2 + 2?"), ("assistant", "4"), ("user", "3 + 4?"), ("assistant", "7")]
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}
    pair = family_pairs[mode, True]

    (ours,) = pair.ours([row])

    assert agreement(ours, pair.host(row)) == "equal"
    assert not isinstance(ours, RowError)
    trained = pair.tokenizer.decode([token for token, bit in zip(*ours, strict=True) if bit]).replace(" ", "")
    assert {text for _, text in turns if text.replace(" ", "") in trained} == {
        "assistant": {"4", "7"},
        "last_turn": {"7"},
        "full": {text for _, text in turns},
    }[mode]


settings_of_pairs = st.tuples(st.sampled_from(LOSS_MODES), st.sampled_from((True, True, True, False)))


@examples(1)
@given(row=rows(), chosen=settings_of_pairs)
def test_hostile_conversations(family_pairs: Pairs, row: Row, chosen: tuple[str, bool]) -> None:
    pair = family_pairs[chosen]
    (ours,) = pair.ours([row])
    theirs = pair.host(row)
    if not is_mended(pair, row, chosen[0], ours, theirs):
        agreement(ours, theirs)


def is_mended(pair: ChatPair, row: Row, mode: str, ours: Outcome, theirs: HostOutcome) -> bool:
    """Return whether our mask, or refusal, is right where the host's mask is wrong."""
    if mode == "full" or (not isinstance(ours, RowError) and ours == theirs):
        return False
    if isinstance(theirs, Exception):  # it finds no markers, e.g. where one token holds a part of one
        is_unplaced = "AssistantMaskBoundaryConfig" in str(theirs)
        return is_unplaced and not isinstance(ours, RowError) and not _faults(pair, row, mode, ours)
    return bool(_faults(pair, row, mode, theirs)) and (isinstance(ours, RowError) or not _faults(pair, row, mode, ours))


def _faults(pair: ChatPair, row: Row, mode: str, tokens: tuple[list[int], list[int]]) -> list[str]:
    """Return what private-use characters say against a mask; empty too if they can say nothing."""
    conversation = ConversationReader(ChatPreprocessing()).read(given_row(row))
    chat = carried(pair.tokenizer, conversation.messages, conversation.tools)
    answers = [index for index, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    trained = answers[-1:] if mode == "last_turn" else answers
    made = Encoded(*tokens, losses=(Loss(LostKind.INJECTED_TURN, ""),))
    return [] if chat is None else list(faults(pair.tokenizer, chat, made, trained))


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}], "", None])
@pytest.mark.parametrize("first", [[], [{"role": "system", "content": "Be kind."}]])
def test_system_column(chatml_pair: ChatPair, system: Any, first: list[Row]) -> None:
    turns = chat_row("2 + 2", "4")["messages"]

    assert assert_same_rows(chatml_pair, [{"messages": [*first, *turns], "system": system}]) == {"equal": 1}


_OWN_TOOLS = {"tools": [{"type": "function", "function": {"name": "own"}}]}


@pytest.mark.parametrize("own_tools", [{}, {"tools": []}, {"tools": {}}, {"tools": None}, _OWN_TOOLS])
def test_tool_schemas_for_rows_without_any(tmp_path: Path, own_tools: Row) -> None:
    pair = ChatPair(write_tokenizer(tmp_path, CHATML), loss_mode="assistant", tool_schemas=({"name": "shared"},))
    row = chat_row("2 + 2", "4") | own_tools

    (ours,) = pair.ours([row])

    assert agreement(ours, pair.host(row)) == "equal"
    assert not isinstance(ours, RowError)
    assert ('"own"' if own_tools.get("tools") else '"shared"') in pair.tokenizer.decode(ours[0])


@pytest.mark.parametrize("is_cured", [False, True])
def test_flags_of_eos_that_the_host_takes_away(tmp_path: Path, is_cured: bool) -> None:
    """The host has ours, and with the cure that is printed the tokens of a server."""
    folder = with_flags(write_tokenizer(tmp_path, CHATML), {"<|im_end|>": ("rstrip",)})
    if is_cured:
        cured(folder, load_tokenizer(TokenizerConfig(name_or_path=str(folder))).lost_flags)
    pair, row = ChatPair(folder, loss_mode="assistant"), chat_row("2 + 2", "4")

    (ours,) = pair.ours([row])

    assert agreement(ours, pair.host(row)) == "equal"
    served = AutoTokenizer.from_pretrained(folder).apply_chat_template(row["messages"], return_dict=False)
    assert (ours[0] == served) == is_cured


def test_ends_that_may_be_another_turn_s(tmp_path: Path) -> None:
    pair = ChatPair(write_tokenizer(tmp_path, AMBIGUOUS), loss_mode="assistant")
    row = chat_row("2 + 2", "4")
    two_rounds = {"messages": row["messages"] * 2}

    (ours,) = pair.ours([two_rounds])

    assert assert_same_rows(pair, [row]) == {"equal": 1}
    assert isinstance(pair.host(two_rounds), ValueError)
    assert _trained_text(pair, ours) == "4<end_of_turn><think></think>4<end_of_turn>"


def test_calls_that_end_otherwise_than_answers(tmp_path: Path) -> None:
    pair = ChatPair(write_quirks_tokenizer(tmp_path / "tokenizer", LLAMA_31), loss_mode="assistant")
    call = {"type": "function", "function": {"name": "lookup", "arguments": {}}}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    turns = [*chat_row("2 + 2", "4")["messages"][:1], calling, {"role": "tool", "content": "4"}]
    row = {"messages": [*turns, {"role": "assistant", "content": "Four"}]}
    called = '{"name": "lookup", "parameters": {}}<|eom_id|>'

    (ours,) = pair.ours([row])

    assert _trained_text(pair, ours) == f"{called}Four<|eot_id|>"
    assert _trained_text(pair, pair.host(row)) == f"{called}ipython\n\n4<|eot_id|>Four<|eot_id|>"


CALLED = {"type": "function", "function": {"name": "lookup", "arguments": {}}}
TOOL_TURNS = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "", "tool_calls": [CALLED]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four"},
]
GLM_CALL = '<tool_call>{"name": "lookup", "arguments": {}}</tool_call>'
TWO_THOUGHTS = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "reasoning_content": "Four?", "content": "4"},
    {"role": "user", "content": "3 + 4?"},
    {"role": "assistant", "reasoning_content": "Seven?", "content": "7"},
]


@pytest.mark.parametrize(
    ("family", "turns", "trained"),
    [
        (GEMMA4_TOOLS, TOOL_TURNS, ["<|tool_call>lookup<tool_call|><|tool_response>", "Four<turn|>"]),
        (GEMMA4_TOOLS, TOOL_TURNS[:2], ["<|tool_call>lookup<tool_call|><|tool_response>"]),
        (MINIMAX_M3, TOOL_TURNS, ["<mm:think></mm:think>calls lookup[e~[\n", "<mm:think></mm:think>Four[e~[\n"]),
        (MINIMAX_M3, chat_row("2 + 2", "4")["messages"] * 2, ["<mm:think></mm:think>4[e~[\n"] * 2),
        (GLM_52, TOOL_TURNS, [f"<think></think>{GLM_CALL}", "<think></think>Four"]),
        (GLM_52, TWO_THOUGHTS, ["<think></think>4", "<think>Seven?</think>7"]),
        (GLM_52, TWO_THOUGHTS[:3], ["<think></think>4"]),
    ],
)
@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_turns_that_0_7_finds(tmp_path: Path, family: Family, turns: list[Row], trained: list[str], mode: str) -> None:
    """Gemma 4 writes what a tool answers into the turn that called it; 0.6 knows no end of such a call.

    MiniMax-M3's markers are known since 0.7, and GLM-5.2's, which ends no answer.
    """
    pair, row = ChatPair(write_tokenizer(tmp_path, family), loss_mode=mode), {"messages": turns}
    (ours,) = pair.ours([row])
    theirs = pair.host(row)

    assert _trained_text(pair, ours) == "".join(trained if mode == "assistant" else trained[-1:])
    if FINDS_ANSWERS_AFTER_TOOLS[host_release().name]:
        assert agreement(ours, theirs) == "equal"
    else:
        assert isinstance(theirs, ValueError)


NEMOTRON = next(family for family in SERVED_FAMILIES if family.name == "Nemotron")


def _opened(content: str) -> list[Row]:
    turns = [*chat_row("2 + 2", "4")["messages"], {"role": "user", "content": "3 + 4"}]
    return [*turns, {"role": "assistant", "content": content}]


@pytest.mark.parametrize(
    ("content", "opening", "rest"),
    [
        ("7", "<think></think>", "7"),
        ("<think>\nSeven?</think>7", "<think>\n", "Seven?</think>7"),
        ("<think></think><think>\nSeven?</think>7", "<think></think><think>\n", "Seven?</think>7"),
        ("<think>Seven?</think>7", "", "<think>Seven?</think>7"),
        ("<think>\n\n</think>7", "", "<think>\n\n</think>7"),  # the line ends are one token
        ("<think></think>", "<think></think>", ""),
    ],
)
@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_openings_of_thoughts_that_0_7_leaves_out(
    tmp_path: Path, content: str, opening: str, rest: str, mode: str
) -> None:
    pair = ChatPair(write_quirks_tokenizer(tmp_path / "tokenizer", NEMOTRON), loss_mode=mode)
    row = {"messages": _opened(content)}
    (ours,) = pair.ours([row])

    assert agreement(ours, pair.host(row)) == "equal"
    is_trimmed = host_release().trims_thought_openings
    first, last = ("", rest) if is_trimmed else ("<think></think>", opening + rest)
    before = "" if mode == "last_turn" else f"{first}4<|im_end|>\n"
    assert _trained_text(pair, ours) == f"{before}{last}<|im_end|>\n"


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_answers_without_end(tmp_path: Path, mode: str) -> None:
    family = replace(CHATML, template=ENDLESS)
    pair = ChatPair(write_tokenizer(tmp_path, family), loss_mode=mode)
    one, two = (
        chat_row("2 + 2", "4"),
        {"messages": [*chat_row("2 + 2", "4")["messages"], *chat_row("a", "b")["messages"]]},
    )

    ours = pair.ours([one, two])

    assert [_trained_text(pair, tokens) for tokens in ours] == ["4", "4<|im_end|>\nb" if mode == "assistant" else "b"]
    assert isinstance(pair.host(one), ValueError)
    assert _trained_text(pair, pair.host(two)) == "4<|im_end|>\n"


def _trained_text(pair: ChatPair, tokens: Outcome | HostOutcome) -> str:
    assert isinstance(tokens, tuple), tokens
    return pair.tokenizer.decode([token for token, bit in zip(*tokens, strict=True) if bit])


@pytest.fixture(scope="module")
def pair_that_needs_a_user(bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> ChatPair:
    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"), NEEDS_USER)
    return ChatPair(folder, loss_mode="assistant", masks_control_tokens=False)


@examples(2)
@given(row=rows())
def test_hostile_prefixes_that_the_template_refuses(pair_that_needs_a_user: ChatPair, row: Row) -> None:
    pair = pair_that_needs_a_user
    (ours,), theirs = pair.ours([row]), pair.host(row)

    if isinstance(theirs, TemplateError) and not isinstance(ours, RowError):
        assert ours == _marked_by_template(pair, row)
    else:
        agreement(ours, theirs)


def test_prefix_that_the_template_refuses(pair_that_needs_a_user: ChatPair) -> None:
    pair = pair_that_needs_a_user
    turns = [("system", "Greet."), ("assistant", "Hello"), ("user", "Who are you?"), ("assistant", "A model.")]
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}

    (ours,), theirs = pair.ours([row]), pair.host(row)

    assert isinstance(theirs, TemplateError)
    assert not isinstance(ours, RowError)
    assert ours == _marked_by_template(pair, row)
    trained = [token for token, bit in zip(*ours, strict=True) if bit]
    assert pair.tokenizer.decode(trained) == "Hello<|im_end|>\nA model.<|im_end|>\n"


def _marked_by_template(pair: ChatPair, row: Row) -> tuple[list[int], list[int]]:
    """Return ids and the mask that the template's own generation blocks give, by transformers alone."""
    conversation = ConversationReader(ChatPreprocessing()).read(read_row(row))
    tokenizer = AutoTokenizer.from_pretrained(pair.tokenizer.config.name_or_path)
    output = tokenizer.apply_chat_template(
        conversation.messages,
        tools=conversation.tools,
        chat_template=CHATML_NEEDS_USER,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return output["input_ids"], output["assistant_masks"]


def test_turn_without_content(chatml_pair: ChatPair) -> None:
    call = {"type": "function", "function": {"name": "lookup", "arguments": {"query": "words"}}}
    question = {"role": "user", "content": "Look it up."}
    row = {"messages": [question, {"role": "assistant", "tool_calls": [call]}]}
    row_with_null = {"messages": [question, {"role": "assistant", "content": None, "tool_calls": [call]}]}

    (ours,) = chatml_pair.ours([row])

    assert isinstance(chatml_pair.host(row), ValueError)
    assert agreement(ours, chatml_pair.host(row_with_null)) == "equal"


def test_content_that_only_the_host_takes(tmp_path: Path) -> None:
    pair = ChatPair(write_tokenizer(tmp_path, FAMILIES[-1]), loss_mode="assistant")
    row = {"messages": [{"role": "user", "content": {"text": "Lost"}}, {"role": "assistant", "content": "Yes."}]}

    (ours,) = pair.ours([row])

    assert isinstance(ours, RowError)
    assert ours.reason == DropReason.INVALID_FIELD
    assert not isinstance(pair.host(row), Exception)


def test_role_names(chatml_pair: ChatPair) -> None:
    """The host maps ShareGPT's names in `from` only; bridgepack maps them in `role` too."""
    turns = [("human", "Who are you?"), ("gpt", "A model.")]
    with_from = {"conversations": [{"from": name, "value": text} for name, text in turns]}
    with_role = {"messages": [{"role": name, "content": text} for name, text in turns]}

    expected = chatml_pair.host(with_from)

    assert chatml_pair.ours([with_from, with_role]) == [expected, expected]
    assert isinstance(chatml_pair.host(with_role), TemplateError)
