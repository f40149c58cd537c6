"""Chats become the very tokens and masks that megatron-bridge's `tokenize_chat_example` makes of them.

The host is slow: it renders a conversation once per turn, and all over again for each mask. Reference rows are compared
by a stride, which depends on the mode and the data; `BRIDGEPACK_COMPARE_ALL_ROWS=1` compares every row in every mode.

Where both differ on purpose is in `test_chat_differences.py`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.errors import RowError
from tests.support.conversations import rows
from tests.support.tokenizers import AMBIGUOUS, CHATML, FAMILIES, Family, write_tokenizer
from tests.support.upstream_preprocessing import ChatPair, agreement, assert_same_rows, strided

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
GSM8K_STRIDE = 12

Row = Mapping[str, Any]


def _gsm8k(folder: Path) -> list[tuple[Row, Row]]:
    found = []
    for row in map(json.loads, (folder / "gsm8k_train.jsonl").read_text().splitlines()):
        pair = {"prompt": row["question"], "completion": row["answer"]}
        turns = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
        found.append((pair, {"messages": turns}))
    return found


def _fastchat(folder: Path) -> list[tuple[Row, Row]]:
    return [(row, row) for row in json.loads((folder / "fastchat_dummy_conversation.json").read_text())]


def _glaive(folder: Path) -> list[tuple[Row, Row]]:
    """Return rows with function calls: as they are, and as messages, which is how the host takes them."""
    found = []
    for row in json.loads((folder / "glaive_toolcall_demo.json").read_text()):
        messages = [_openai_message(turn["from"], turn["value"]) for turn in row["conversations"]]
        found.append((row, {"messages": messages, "tools": json.loads(row["tools"]) if row["tools"] else []}))
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

    counts = assert_same_rows(pair, [row for row, _ in compared], [row for _, row in compared])

    # After a function call, DeepSeek-V3's template writes the answer without its marker: neither side finds the turn.
    is_lost = tokenizer == "deepseek_v3" and mode != "full"
    num_refused = sum(is_lost and _has_tool_calls(row) for _, row in compared)
    assert len(every_row) == REFERENCE_ROWS[name]
    assert counts == Counter(equal=len(compared) - num_refused, refused=num_refused)


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


@settings(deadline=None)
@given(row=rows(), chosen=settings_of_pairs)
def test_hostile_conversations(family_pairs: Pairs, row: Row, chosen: tuple[str, bool]) -> None:
    pair = family_pairs[chosen]
    (ours,) = pair.ours([row])
    agreement(ours, pair.host(row))


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}], "", None])
@pytest.mark.parametrize("first", [[], [{"role": "system", "content": "Be kind."}]])
def test_system_column(chatml_pair: ChatPair, system: Any, first: list[Row]) -> None:
    turns = [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]

    assert assert_same_rows(chatml_pair, [{"messages": [*first, *turns], "system": system}]) == {"equal": 1}


@pytest.mark.parametrize("own_tools", [{}, {"tools": []}, {"tools": {}}, {"tools": None}, {"tools": [{"name": "own"}]}])
def test_tool_schemas_for_rows_without_any(tmp_path: Path, own_tools: Row) -> None:
    pair = ChatPair(write_tokenizer(tmp_path, CHATML), loss_mode="assistant", tool_schemas=({"name": "shared"},))
    row = {"messages": [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}], **own_tools}

    (ours,) = pair.ours([row])

    assert agreement(ours, pair.host(row)) == "equal"
    assert not isinstance(ours, RowError)
    assert ('"own"' if own_tools.get("tools") else '"shared"') in pair.tokenizer.decode(ours[0])


def test_ends_that_may_be_another_turn_s(tmp_path: Path) -> None:
    pair = ChatPair(write_tokenizer(tmp_path, AMBIGUOUS), loss_mode="assistant")
    turns = [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]

    assert assert_same_rows(pair, [{"messages": turns}, {"messages": turns * 2}]) == {"equal": 1, "refused": 1}
