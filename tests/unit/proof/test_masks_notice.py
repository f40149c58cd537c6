"""What `prove masks` reads by itself: rows of each format and setting, on which it agrees with the build in all.

A fault in how the build reads, renders, marks or filters a row makes them disagree: tests/mutants has such faults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.masks.records import MaskReport
from tests.support.small_builds import small_recipe, write_json_lines
from tests.zoo.families import FAMILIES, Family, write_tokenizer
from tests.zoo.prompted import PHI_4, QWEN_3, QWEN_35, SEED_OSS, prompted

Row = Mapping[str, Any]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says what the weather is.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]
ARGUMENTS = {"city": "Bern", "days": 2}


def _turn(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def _call(arguments: Any = ARGUMENTS, name: str = "weather") -> dict[str, Any]:
    return {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}


def _calling(content: Any, arguments: Any) -> list[dict[str, Any]]:
    return [
        _turn("user", "Weather in Bern?"),
        _turn("assistant", content, tool_calls=[_call(arguments)]),
        _turn("tool", "sunny", tool_call_id="call00001", name="weather"),
        _turn("assistant", "It is sunny in Bern."),
    ]


def _weighted(*weights: Any, name: str = "weight") -> list[dict[str, Any]]:
    turns = []
    for index, weight in enumerate(weights):
        turns += [
            _turn("user", f"Question {index}?"),
            _turn("assistant", f"Answer {index}.", **({} if weight is None else {name: weight})),
        ]
    return turns


def _of(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


QWEN_25 = prompted(_of("Qwen2.5"), "'<|im_start|>assistant\\n'")
#: A variable of the row changes the text, not only the generation prompt.
SWITCHED = replace(
    QWEN_3,
    template=(
        "{%- if enable_thinking is defined and not enable_thinking -%}"
        "{{- '<|im_start|>system\\n/no_think<|im_end|>\\n' -}}{%- endif -%}\n"
    )
    + QWEN_3.template,
)
TWO_TURNS = [
    _turn("system", " Be brief. "),
    _turn("user", "  What is two and two?"),
    _turn("assistant", "Four.\n"),
    _turn("user", "And three?\n\n"),
    _turn("assistant", "\nFive, then six."),
]
THINKING = [
    _turn("user", "What is two and two?"),
    _turn("assistant", "<think>\nEasy.\n</think>\n\nFour."),
    _turn("user", "And three and three?"),
    _turn("assistant", "Six.", reasoning_content="Three twice."),
]
SIX = _turn("assistant", "Six.")
PLAIN = [{"messages": TWO_TURNS}, {"messages": TWO_TURNS[1:3]}, {"messages": TWO_TURNS[1:]}]
CALLING = [
    {"messages": _calling(None, ARGUMENTS), "tools": TOOLS},
    {"messages": _calling("", json.dumps(ARGUMENTS)), "tools": TOOLS},
    {"messages": _calling("Let me see.", ARGUMENTS), "tools": TOOLS},
    {"messages": [_turn("system", "Call."), *_calling(None, json.dumps(ARGUMENTS))], "tools": TOOLS},
]
SHAREGPT = [
    {
        "system": "Be brief.",
        "conversations": [{"from": "human", "value": "Two and two?"}, {"from": "gpt", "value": "Four."}],
    },
    {
        "conversations": [
            {"from": "system", "value": "Be kind."},
            *({"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}),
        ],
        "system": "Not used.",
    },
    {
        "tools": json.dumps(TOOLS),
        "conversations": [
            {"from": "human", "value": "Weather in Bern?"},
            {"from": "function_call", "value": json.dumps({"name": "weather", "arguments": ARGUMENTS})},
            {"from": "observation", "value": "sunny"},
            {"from": "gpt", "value": "It is sunny in Bern."},
        ],
    },
]
LAYOUT = {
    "kind": "chat",
    "messages": [
        {"role": "system", "content": "You are {persona}."},
        {"role": "user", "content": ["{task}", "Context:\n{facts.text.0}"]},
        {
            "role": "assistant",
            "content": "{solution}",
            "reasoning_content": "{steps}",
            "tool_calls": "actions",
        },
    ],
    "tools": ["schemas", "functions"],
    "chat_template_kwargs": {"enable_thinking": {"column": "mode", "values": {"on": True, "off": False}}},
    "ignore": ["id"],
}
IN_COLUMNS = [
    {
        "persona": "a poet",
        "task": "Write.",
        "facts": {"text": ["Rain falls."]},
        "solution": "Drops.",
        "steps": "Think.",
        "mode": "on",
        "id": 1,
    },
    {
        "persona": "a clerk",
        "task": "Count.",
        "facts": {"text": [""]},
        "solution": "Two.",
        "steps": "",
        "mode": "off",
        "id": 2,
    },
    {
        "persona": "a guide",
        "task": "Weather?",
        "facts": None,
        "solution": "",
        "steps": None,
        "mode": "off",
        "id": 3,
        "functions": json.dumps([TOOLS[0]["function"]]),
        "actions": [{"name": "weather", "arguments": ARGUMENTS}],
    },
]
FLAGGED = [
    {"messages": _weighted(0, 1, None)},
    {"messages": _weighted(1, 0, 1)},
    {"messages": _weighted(False, "1", None, name="train")},
    {"messages": _weighted(None, None, 0.0, 1, name="loss")},
    {"messages": _weighted(None, 1), "weight": 1},
]
PARTS = [
    {
        "messages": [
            _turn("user", [{"type": "text", "text": "What "}, {"type": "text", "text": "is it?"}]),
            _turn("assistant", [{"type": "text", "text": "A "}, {"type": "text", "text": "lake."}]),
        ]
    }
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Rows of one source, and how a recipe has them read and trained."""

    rows: Sequence[Row]
    family: Family = QWEN_3
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    max_sequence_length: int | None = None
    num_sequences: int | None = None  #: by default as many as rows
    least_judges: int = 2


CASES = {
    "messages": Case(rows=PLAIN),
    "messages of Llama": Case(rows=PLAIN, family=_of("Llama 3.1"), least_judges=1),
    "messages of Gemma": Case(rows=PLAIN[1:], family=_of("Gemma 3")),
    "messages of Phi": Case(rows=PLAIN, family=PHI_4),
    "calls": Case(rows=CALLING),
    "calls of Qwen2.5": Case(rows=CALLING, family=QWEN_25),
    "calls of gpt-oss": Case(
        rows=CALLING[:1], family=prompted(_of("gpt-oss"), "'<|start|>assistant'"), least_judges=1
    ),
    "calls of DeepSeek": Case(
        rows=CALLING[:1], family=prompted(_of("DeepSeek-V3"), "'' if seen.tool else '<｜Assistant｜>'"), least_judges=1
    ),
    "calls as text": Case(rows=CALLING[:3], preprocessing={"tool_arguments": "text", "null_content": "empty"}),
    "calls as objects": Case(rows=CALLING, preprocessing={"tool_arguments": "object", "null_content": "empty"}),
    "schemas of the recipe": Case(rows=PLAIN, preprocessing={"tool_schemas": TOOLS}),
    "ShareGPT": Case(rows=SHAREGPT),
    "roles under other names": Case(
        rows=[{"conversations": [{"from": "Asker", "value": "Hi?"}, {"from": "Bot", "value": "Hello."}]}],
        data={"role_aliases": {"asker": "user", "bot": "assistant"}},
    ),
    "columns": Case(rows=IN_COLUMNS, family=SWITCHED, data={"layout": LAYOUT}),
    "turns and a system column": Case(
        rows=[{"rules": "Be brief.", "chat": TWO_TURNS[1:]}, {"rules": "Not used.", "chat": TWO_TURNS}],
        data={
            "layout": {"kind": "chat", "messages": [{"role": "system", "content": "{rules}"}, {"from_column": "chat"}]}
        },
    ),
    "prompt and completion as turns": Case(rows=[{"prompt": TWO_TURNS[:4], "completion": TWO_TURNS[4:]}]),
    "prompt and completion as texts": Case(rows=[{"prompt": " Two and two? ", "completion": " Four. "}]),
    "Alpaca": Case(
        rows=[
            {"instruction": "Add.", "input": "two and two", "output": "Four."},
            {"instruction": "Greet.", "input": "", "output": "Hello."},
        ]
    ),
    "flags": Case(rows=FLAGGED, preprocessing={"message_weights": "mask"}),
    "flags of Qwen2.5": Case(rows=FLAGGED, family=QWEN_25, preprocessing={"message_weights": "mask"}),
    "flags that are ignored": Case(rows=FLAGGED),
    "parts": Case(rows=PARTS),
    "parts joined": Case(rows=PARTS, family=QWEN_25, preprocessing={"content_parts": "join_text"}),
    "last turn": Case(rows=[*PLAIN, *CALLING], preprocessing={"loss_mode": "last_turn"}),
    "everything": Case(rows=PLAIN, preprocessing={"loss_mode": "full"}, least_judges=1),
    "thoughts": Case(rows=[{"messages": THINKING}]),
    "no thoughts": Case(rows=[{"messages": THINKING}], preprocessing={"reasoning_loss": "mask"}),
    "no thoughts of Qwen3.5": Case(
        rows=[{"messages": THINKING}], family=QWEN_35, preprocessing={"reasoning_loss": "mask"}
    ),
    "no empty thoughts": Case(
        rows=[{"messages": THINKING}, *PLAIN], preprocessing={"reasoning_loss": "mask_empty"}
    ),
    "prompts of the server": Case(
        rows=[{"messages": THINKING[2:]}], family=SEED_OSS, preprocessing={"mask_generation_prompt": True}
    ),
    "prompts of Qwen3.5": Case(
        rows=[{"messages": THINKING[2:]}], family=QWEN_35, preprocessing={"mask_generation_prompt": True}
    ),
    "variables": Case(
        rows=[
            {"messages": [*THINKING[2:3], SIX], "chat_template_kwargs": {"enable_thinking": False}},
            {"messages": [*THINKING[2:3], SIX], "chat_template_kwargs": json.dumps({"enable_thinking": True})},
        ],
        family=SWITCHED,
    ),
    "split where the context differs": Case(
        rows=[{"messages": THINKING}],
        preprocessing={"split_conversations": "when_context_differs"},
        num_sequences=2,
    ),
    "without old exchanges": Case(
        rows=[{"messages": TWO_TURNS}],
        preprocessing={"over_long": "truncate_history"},
        max_sequence_length=100,
    ),
    "pairs": Case(
        rows=[
            {"prompt": "Two and two? ", "completion": " Four."},
            {"prompt": "Three?", "completion": "Three, <|im_start|> it is."},
        ],
        preprocessing={"kind": "prompt_completion", "separator": "\n", "add_bos": True},
    ),
    "documents": Case(
        rows=[{"text": "A lake.\n"}, {"text": "Two lakes."}], preprocessing={"kind": "text"}, least_judges=1
    ),
    "tokens": Case(
        rows=[
            {"input_ids": [5, 6, 7, 0], "labels": [-100, 6, 7, -100], "attention_mask": [1, 1, 1, 0]},
            {"input_ids": [5, 6, 7], "loss_mask": [0, 0, 1]},
        ],
        preprocessing={"kind": "tokenized"},
        least_judges=1,
    ),
}  # fmt: skip


def report_of(folder: Path, case: Case) -> MaskReport:
    """Return the comparison of the masks of a case's rows."""
    rows = write_json_lines(folder / "rows.jsonl", case.rows)
    preprocessing = {"kind": "chat", **case.preprocessing}
    if preprocessing["kind"] == "chat":
        preprocessing = {**case.family.preprocessing, **preprocessing}
    packing = {"packed_sequence_size": 4096}
    if case.max_sequence_length is not None:
        packing["max_sequence_length"] = case.max_sequence_length
    recipe = small_recipe(
        rows,
        write_tokenizer(folder / "tokenizer", case.family),
        data={"train": str(rows), **case.data},
        preprocessing=preprocessing,
        packing=packing,
    )
    return check_masks(recipe, MaskOptions(num_rows=None))


@pytest.mark.parametrize("name", CASES)
def test_the_proof_reads_what_the_build_reads(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    report = report_of(tmp_path, case)

    assert report.findings == ()
    assert (report.drops, report.num_not_judged) == ({}, 0)
    assert report.num_agreed == (case.num_sequences or len(case.rows))
    assert min(report.judged_by) >= case.least_judges
