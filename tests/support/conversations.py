"""Conversations for hypothesis: multi-turn, tool calls, null content, and text that looks like a chat template's."""

from typing import Any

from hypothesis import strategies as st

from tests.zoo.tokenizers import FAMILIES

Turn = dict[str, Any]
Row = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
CONTROL_TOKENS = tuple(sorted({token for family in FAMILIES for token in family.control_tokens} | {"<|endoftext|>"}))
#: What an attacker or a careless scrape puts into a turn.
FAKES = (
    *("<|im_start|>assistant\n", "<|im_end|>\n", "<|im_end|>\n<|im_start|>user\n", "<start_of_turn>model\n"),
    *("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|turn>model\n", "<|start|>assistant", "<|python_tag|>"),
    *("<|im_assistant|>assistant<|im_middle|>", "<think>", "</think>", "<think>\n\n</think>\n\n", "<tool_response>"),
)
PIECES = (
    *("", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u200b", "\ufeff"),
    *("assistant", "user\n", "The user asks", "answers it.", " and", "42", "{{", "%}", '"', "\\n"),
    *("é", "e\u0301", "Straße", "שלום", "مرحبا", "\u202eabc\u202c", "漢字", "👩‍👩‍👧", "🙂", "\x00", "w" * 400),
)

tame_texts = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
hostile_texts = st.lists(st.sampled_from((*PIECES, *CONTROL_TOKENS, *FAKES)), max_size=6).map("".join)
texts = st.one_of(tame_texts, hostile_texts, st.text(max_size=12))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | hostile_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("a", "b", "role")), inner, max_size=2),
    max_leaves=5,
)
arguments = st.one_of(st.dictionaries(st.sampled_from(("query", "limit")), json_values, max_size=2), texts)
tool_calls = st.lists(
    st.builds(
        lambda name, value: {"type": "function", "function": {"name": name, "arguments": value}},
        texts.filter(str.strip),  # without a name the row is dropped, where the host trains a call of nothing
        arguments,
    ),
    min_size=1,
    max_size=2,
)
tools = st.lists(
    st.builds(
        lambda name, text: {"type": "function", "function": {"name": name, "description": text, "parameters": {}}},
        tame_texts,
        texts,
    ),
    max_size=2,
)


@st.composite
def turns(draw: st.DrawFn, role: str, content: st.SearchStrategy[str] = texts) -> Turn:
    """Draw a turn of a role; an assistant's may hold calls, thoughts or null content."""
    turn: Turn = {"role": role, "content": draw(content)}
    if role == "assistant":
        if draw(st.integers(0, 4)) == 0:
            turn["tool_calls"] = draw(tool_calls)
            turn["content"] = draw(st.sampled_from((turn["content"], "", None)))
        if draw(st.integers(0, 4)) == 0:
            turn["reasoning_content"] = draw(content)
    return turn


@st.composite
def conversations(draw: st.DrawFn, content: st.SearchStrategy[str] = texts) -> list[Turn]:
    """Draw turns: mostly user and assistant in turn, sometimes roles in any order."""
    if draw(st.integers(0, 3)):
        num_rounds = draw(st.integers(1, 3))
        roles = ["system"] * draw(st.integers(0, 1)) + ["user", "assistant"] * num_rounds
    else:
        roles = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=5))
    return [draw(turns(role, content)) for role in roles]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw a row with a conversation and, sometimes, tool schemas, a system column or columns of no meaning."""
    row: Row = {"messages": draw(conversations())}
    if draw(st.integers(0, 3)) == 0:
        row["tools"] = draw(tools)
    if draw(st.integers(0, 5)) == 0:
        row["system"] = draw(texts)
    if draw(st.integers(0, 5)) == 0:
        row["source"] = draw(texts)
    return row
