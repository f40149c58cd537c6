"""Masks of rows of each kind in every served family, against who wrote which character of the text.

`tests/support/carried_text.py` carries each message's characters through the template as private-use ones. It shares no
code with what makes masks.
"""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.sequences.encoding import Encoded
from bridgepack.errors import RowError
from bridgepack.records.rows import ReadRow
from tests.support.carried_text import Carried, carried, conversation_reader, faults
from tests.support.judged_masks import Judged
from tests.support.read_rows import encode_examples, read_row
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.prompted import BLOCKS, PROMPTED_FAMILIES, QWEN_35

KINDS = ("plain", "tools", "thoughts", "agents")
NUM_ROWS = 300
#: Of these, so many first ones, and then those of another shape than all before: a kind without calls has few shapes.
_NUM_OF_ANY_SHAPE = 50
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


@cache
def rows(kind: str) -> list[Row]:
    """Return rows of a kind, the same in every run; nobody changes them."""
    rng = random.Random(kind)
    drawn = [_conversation(rng, kind) for _ in range(NUM_ROWS)]
    first_of_shape = {tuple(map(_shape, messages)): place for place, messages in reversed([*enumerate(drawn)])}
    places = sorted({*range(_NUM_OF_ANY_SHAPE), *first_of_shape.values()})
    return [{"messages": drawn[place]} for place in places]


@cache
def reads(kind: str) -> list[ReadRow]:
    """Return the rows as every family reads them; nobody changes them."""
    return [read_row(row) for row in rows(kind)]


def _shape(message: Row) -> tuple[Any, ...]:
    """Return what a message has, whatever its words are."""
    content, calls = message.get("content"), message.get("tool_calls", ())
    is_thought_in_content = "<think>" in (content or "")
    arguments = [bool(call["function"]["arguments"]) for call in calls]
    return message["role"], content is None, content == "", is_thought_in_content, len(message), tuple(arguments)


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
@pytest.mark.parametrize("family", PROMPTED_FAMILIES, ids=lambda family: family.name)
def test_who_wrote_what_is_trained(tmp_path: Path, family: Family) -> None:
    found = agreement(tmp_path, family)

    for masks_prompts, outcomes in found.items():
        assert {outcome for _, outcome in outcomes} <= {"agree", "dropped", "not carried"}
        kinds = set(KINDS) - ({"tools", "agents"} if family.name in REFUSES_CALLS else set())
        if family is QWEN_35 and masks_prompts:  # the prompt's line end joins that of an empty thought
            kinds -= {"plain", "tools"}
        for kind in kinds:
            assert outcomes[kind, "agree"] > 0, kind
    # The blocks of one family leave out thoughts and ends, which only the setting trains.
    assert len(found) == 1 + (family is not BLOCKS)


def agreement(folder: Path, family: Family) -> dict[bool, Counter[tuple[str, str]]]:
    """Return mask_generation_prompt -> (kind, outcome) -> number of rows; a fault is told in its own words."""
    tokenizer = write_tokenizer(folder / "tokenizer", family)
    judges = {
        masks: Judged.of_tokenizer(tokenizer, kind="chat", **{**family.preprocessing, "mask_generation_prompt": masks})
        for masks in ([True] if family is BLOCKS else [False, True])
    }
    found = {masks: Counter[tuple[str, str]]() for masks in judges}
    for kind in KINDS:
        sequences = {masks: encode_examples(judged.encoder.encoder, reads(kind)) for masks, judged in judges.items()}
        for place, row in enumerate(rows(kind)):
            chat: Carried | None = None
            for masks, judged in judges.items():
                made = sequences[masks][place]
                if isinstance(made, RowError):
                    found[masks][kind, "dropped"] += 1
                    continue
                if chat is None:  # the setting changes no text
                    reader = conversation_reader(judged.tokenizer)
                    chat = carried(judged.tokenizer, reader.read(reads(kind)[place]).messages)
                found[masks][kind, _outcome(judged, row, chat, made)] += 1
    return found


def _outcome(judged: Judged, row: Row, chat: Carried | None, made: Encoded) -> str:
    if chat is None:
        return "not carried"
    answers = [at for at, turn in enumerate(row["messages"]) if turn["role"] == "assistant"]
    return next(faults(judged.tokenizer, chat, made, answers), "agree")
