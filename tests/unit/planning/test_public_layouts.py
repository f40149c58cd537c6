"""Rows of public layouts, detected, written into a recipe and built: the text that is trained, and nothing unread."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import Wish, recipe_for
from bridgepack.planning.detecting import detect_data
from bridgepack.planning.preview import preview_recipe
from tests.support.public_rows import ANSWER, CHATS, FOUR, QUESTION
from tests.support.small_builds import write_json_lines

TEMPLATE = r"""
{%- for tool in tools or [] %}{{ '<|im_start|>tools\n' + tool.function.name + '<|im_end|>\n' }}{% endfor %}
{%- if enable_thinking is defined %}{{ '<|im_start|>thinks\n' ~ enable_thinking ~ '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
TALK = [f"user: {FOUR[0]}", f"*assistant: {FOUR[1]}", f"user: {FOUR[2]}", f"*assistant: {FOUR[3]}"]
PAIR = [f"user: {QUESTION}", f"*assistant: {ANSWER}"]
PASSAGE = [f"user: Context:\nThe lake of Uri is 200 m deep.\n\n{QUESTION}", "*assistant: 200 m"]
CALLED = ["tools: depth", f"user: {QUESTION}", '*assistant: depth({"lake": "Uri"})']
SCHEMA_TEXT = (
    '{"type": "function", "function": {"name": "depth", "description": "Depth of a lake.", "parameters": '
    '{"type": "object"}}}'
)
#: Names of the columns of a row, or the name of its layout -> its turns; a star where they are trained.
TEXTS: Mapping[tuple[str, ...] | str, list[str]] = {
    **dict.fromkeys(("openai", "sharegpt", "smoltalk", "ultrachat", "lmsys_chat", "wildchat"), TALK),
    **{("messages", name): ["tools: depth", *TALK] for name in ("functions", "tool_defs", "available_tools")},
    **{("messages", "tools", *more): ["tools: depth", *TALK] for more in ((), ("id",))},
    ("conversation", "tools", "system"): ["tools: depth", "system: Be short.", *TALK],
    "openthoughts": ["system: You reason before you answer.", *PAIR],
    "nemotron_post_training": ["thinks: True", *PAIR],
    "toolbench": [
        *(
            "system: You can use these: [{'name': 'depth', 'parameters': {}}]",
            f"user: {QUESTION}",
            "*assistant: Thought: I look.\nAction: depth",
        ),
        *("tool: {}", "*assistant: Action: Finish"),
    ],
    "hermes_function_calling": [f"system: <tools> [{SCHEMA_TEXT}] </tools>", *PAIR],
    "llama_nemotron": ["thinks: False", "system: detailed thinking off", *PAIR],
    "llama_factory": ["user: Where is it?", "*assistant: In Uri.", *PAIR],
    "ms_swift": ["user: Where is it?", "*assistant: In Uri.", "user: Where is that?", "*assistant: South.", *PAIR],
    "xtuner": ["system: Be brief.", *PAIR, "user: A?", "*assistant: B."],
    "history": [*TALK, "user: Where is it?", "*assistant: In Uri."],
    ("preamble", "chat_history", "message", "response"): [
        *("system: Be brief.", *PAIR, "user: Where is that lake?", "*assistant: In Uri, I think."),
    ],
    **dict.fromkeys(("logged_completion", "turns_and_completion"), PAIR),
    "logged_answer": ["system: Be brief.", *PAIR],
    ("system", "messages", "toolConfig"): ["tools: depth", "system: Be brief.", *TALK],
    ("input",): [f"user: {QUESTION}", '*assistant: depth({"lake": "Uri"})', "tool: 200", PAIR[1]],
    ("messages", "function_list"): [
        *("tools: depth", PAIR[0], '*assistant: depth({"lake": "Uri"})', "tool: 200", PAIR[1]),
    ],
    ("dialogue",): [*TALK, "user: Sure?"],
    ("input", "ideal"): PAIR,
    "prompt_completion_turns": ["system: Be brief.", *PAIR],
    ("instruction", "input", "response"): ["user: Square the number.\n\n12", "*assistant: 144"],
    "gemini": ["system: Be brief.", *PAIR],
    **dict.fromkeys(("pairs", "messages"), PAIR),
    "turns_and_answer": [*TALK, "user: Sure?", "*assistant: Yes, quite."],
    **dict.fromkeys(("trl_prompt_completion_turns", "question_and_turns", "trl_prompt_completion"), PAIR),
    ("instruction", "input", "output"): ["user: Correct the spelling.\n\nrecieve", "*assistant: receive"],
    ("instruction", "input", "output", "text"): ["user: Name a lake.", "*assistant: Uri"],
    ("system", "Instruction", "Input", "Output", "cot"): [
        *("system: Be short.", "user: Name a lake.", "*assistant: <think>A lake: Uri.</think>Uri"),
    ],
    "dolly": ["user: What is it?\n\nContext:\nUri is a lake.", "*assistant: a lake"],
    **dict.fromkeys(("squad", "rag"), PASSAGE),
    **dict.fromkeys(("xlam_function_calling", "turns_and_calls"), CALLED),
    "question_thinking_answer": ["user: 2 + 2?", "*assistant: <think>Two and two.</think>4"],
    "question_answers": [f"user: {QUESTION}", "*assistant: 200 m"],
    "question_answer": [f"user: {QUESTION}", "*assistant: 200"],
}


def _texts(row: Mapping[str, Any], name: str) -> list[str]:
    if isinstance(row.get("conversations"), dict):  # lists of roles and texts
        return PAIR
    if isinstance(turns := row.get("messages"), list) and "lc" in turns[0]:  # LangChain's objects
        return PAIR
    if row.get("answer") == 4:  # a number
        return [PAIR[0], "*assistant: 4"]
    if row.get("history") == [["2 + 2?", 4]]:
        return ["user: 2 + 2?", "*assistant: 4", *PAIR]
    return TEXTS.get(tuple(row)) or TEXTS[name]


def _recipe(data: Path, tokenizer: Path, template: Path) -> SFTRecipe:
    wish = Wish(name="mine", model="m", num_gpus=1, seq_length=1024, data=str(data), detection=detect_data(str(data)))
    values = {"model": {"name": "m"}, "tokenizer": {"name_or_path": str(tokenizer), "chat_template": str(template)}}
    return recipe_for(wish, values).override({"data.validation_fraction": 0.0})


def _turns(recipe: SFTRecipe, losses: list[str]) -> list[str]:
    """Return the turns of the first sequence as `role: text`, with a star where all of their text is trained."""
    source = preview_recipe(recipe, num_rows=1).sources[0]
    assert (source.drops, [loss.kind for loss in source.lost_content]) == ((), losses)
    marked = "".join(f"\x01{span.text}\x02" if span.is_trained else span.text for span in source.sequences[0].spans)
    found = re.findall(r"<\|im_start\|>(\w+)\n(\x01?)(.*?)<\|im_end\|>(?:\n\x02|\x02?\n?)", marked, re.DOTALL)
    turns = [f"{'*' if trained else ''}{role}: {text}" for role, trained, text in found]
    assert "\x01" not in "".join(turns)
    return turns


@pytest.mark.parametrize(("name", "row"), [case[:2] for case in CHATS], ids=[f"{c[0]}-{','.join(c[1])}" for c in CHATS])
def test_what_its_author_meant_is_trained(
    tmp_path: Path, chatml_tokenizer: Path, name: str, row: dict[str, Any]
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    data = write_json_lines(tmp_path / "rows.jsonl", [row] * 2)

    # xLAM's parameters are no JSON Schema
    losses = ["tool_schema"] if name == "xlam_function_calling" else ["no_schemas"] if tuple(row) == ("input",) else []

    assert _turns(_recipe(data, chatml_tokenizer, template), losses) == _texts(row, name)
