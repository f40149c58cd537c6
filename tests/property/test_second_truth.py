"""Masks of 300 rows of each kind in every served family, against who wrote which character of the text.

`tests/support/carried_text.py` carries each message's characters through the template as private-use ones. It shares no
code with what makes masks.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.errors import RowError
from tests.support.carried_text import carried, faults
from tests.support.judged_masks import Judged
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.prompted import BLOCKS, PROMPTED_FAMILIES, QWEN_35

KINDS = ("plain", "tools", "thoughts", "agents")
NUM_ROWS = 300
WORDS = (
    "The Aare",
    "which river",
    "4",
    "two\nlines",
    "and so",
    '{"a": 1}',
    "x",
    "é",
    "a  b",
    "1.5 m",
    "(see)",
    "`code`",
)
#: Rows that the template takes, of those of a kind that has calls.
REFUSES_CALLS = frozenset({"Gemma 3", "Llama 2", "Apertus"})

Row = dict[str, Any]


def rows(kind: str) -> list[Row]:
    """Return rows of a kind, the same in every run."""
    rng = random.Random(kind)
    return [{"messages": _conversation(rng, kind)} for _ in range(NUM_ROWS)]


def _conversation(rng: random.Random, kind: str) -> list[Row]:
    turns = [{"role": "system", "content": _words(rng)}] if rng.random() < 0.25 else []
    for _ in range(rng.randint(1, 4)):
        turns.append({"role": "user", "content": _words(rng)})
        for _ in range(rng.randint(*{"tools": (0, 1), "agents": (1, 3)}.get(kind, (0, 0)))):
            arguments = {"city": _words(rng)} if rng.random() < 0.8 else {}
            call = {"id": "call00001", "type": "function", "function": {"name": "lookup", "arguments": arguments}}
            calling = {"role": "assistant", "content": rng.choice(("", None)), "tool_calls": [call]}
            turns.append(_with_thoughts(rng, calling) if kind == "agents" else calling)
            turns.append({"role": "tool", "tool_call_id": "call00001", "name": "lookup", "content": _words(rng)})
        answer = {"role": "assistant", "content": _words(rng)}
        turns.append(_with_thoughts(rng, answer) if kind in ("thoughts", "agents") else answer)
    return turns


def _with_thoughts(rng: random.Random, turn: Row) -> Row:
    thoughts, is_in_content = _words(rng), turn["content"] and rng.random() < 0.5
    if is_in_content:
        return {**turn, "content": f"<think>\n{thoughts}\n</think>\n\n{turn['content']}"}
    return {**turn, "reasoning_content": thoughts}


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))


@pytest.mark.full
@pytest.mark.parametrize("masks_prompts", [False, True])
@pytest.mark.parametrize("family", PROMPTED_FAMILIES, ids=lambda family: family.name)
def test_who_wrote_what_is_trained(tmp_path: Path, family: Family, masks_prompts: bool) -> None:
    if family is BLOCKS and not masks_prompts:
        pytest.skip("its blocks leave out thoughts and ends, which only the setting trains")
    found = agreement(tmp_path, family, masks_prompts=masks_prompts)

    assert {outcome for _, outcome in found} <= {"agree", "dropped", "not carried"}
    kinds = set(KINDS) - ({"tools", "agents"} if family.name in REFUSES_CALLS else set())
    if family is QWEN_35 and masks_prompts:  # the prompt's line end joins that of an empty thought
        kinds -= {"plain", "tools"}
    for kind in kinds:
        assert found[kind, "agree"] > 0, kind


def agreement(folder: Path, family: Family, *, masks_prompts: bool) -> Counter[tuple[str, str]]:
    """Return (kind, outcome) -> number of rows; an outcome that is a fault is told in its own words."""
    settings = {**family.preprocessing, "mask_generation_prompt": masks_prompts}
    judged = Judged.of_tokenizer(write_tokenizer(folder / "tokenizer", family), kind="chat", **settings)
    read = ConversationReader(ChatPreprocessing(), {}, judged.tokenizer.forms).read
    found: Counter[tuple[str, str]] = Counter()
    for kind in KINDS:
        for row in rows(kind):
            made = judged.encode(row)
            chat = carried(judged.tokenizer, read(row).messages) if isinstance(made, Encoded) else None
            if isinstance(made, RowError):
                found[kind, "dropped"] += 1
            elif chat is None:
                found[kind, "not carried"] += 1
            else:
                answers = [at for at, turn in enumerate(row["messages"]) if turn["role"] == "assistant"]
                told = next(faults(judged.tokenizer, chat, made, answers), "agree")
                found[kind, told] += 1
    return found
