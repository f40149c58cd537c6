"""Renders are those of the installed transformers, as its `apply_chat_template` gives them; also its oldest and newest.

`tests/environment/versions` runs this file on the lowest and the newest release that bridgepack allows.
"""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from jinja2.exceptions import TemplateError
from packaging.version import Version

from bridgepack.config.layouts.keys import REASONING
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.templates.facts import thought_fields_of
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.rules.artifact.manifest import RENDERS_COMPARED
from bridgepack.rules.judging.environment import is_in
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.prompted import PROMPTED_FAMILIES

ASKED, ANSWERED = {"role": "user", "content": "Deep?"}, {"role": "assistant", "content": "200 m."}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "call00001", "type": "function", "function": {"name": "depth", "arguments": {"lake": "Üri"}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "200", "name": "depth", "tool_call_id": "call00001"}
SCHEMA = {"type": "object", "properties": {"lake": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "depth", "description": "How deep.", "parameters": SCHEMA}}]
#: (messages, tools, variables)
CHATS: list[tuple[list[dict[str, Any]], Any, dict[str, Any]]] = [
    ([SYSTEM, ASKED, ANSWERED, ASKED, ANSWERED], None, {}),
    ([ASKED, ANSWERED], None, {"enable_thinking": False}),
    ([ASKED, CALLING, RESULT, ANSWERED], TOOLS, {}),
    ([ASKED, {**CALLING, "content": None}, RESULT], TOOLS, {}),
    ([ASKED, ANSWERED, ANSWERED], None, {}),
    *(([ASKED, {**ANSWERED, field: "Old."}, ASKED, {**ANSWERED, field: "New."}], None, {}) for field in REASONING),
]
REFUSED = "refused"
#: ChatML that writes the day.
DATED = (
    "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
)


def _mended(tokenizer: ChatTokenizer, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with their thoughts in the field that the template reads."""
    fields = thought_fields_of(tokenizer.chat_template or "")
    return [{fields.get(name, name): value for name, value in message.items()} for message in messages]


def _rendered_by_transformers(tokenizer: ChatTokenizer, messages: Any, tools: Any, **options: Any) -> str:
    try:
        text = tokenizer._tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **options)
    except (TemplateError, TypeError, ValueError):
        return REFUSED
    assert isinstance(text, str)
    return text


def _rendered(render: Any, *inputs: Any) -> str:
    try:
        return str(render(*inputs))
    except RowError:
        return REFUSED


@pytest.mark.parametrize("family", PROMPTED_FAMILIES, ids=lambda family: family.name)
def test_renders_are_those_of_transformers(tmp_path: Path, family: Family) -> None:
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(tmp_path / "tokenizer", family))))
    num_rendered = 0
    for raw_messages, tools, variables in CHATS:
        messages = _mended(tokenizer, raw_messages)
        text = _rendered(tokenizer.render_text, messages, tools, variables)
        assert text == _rendered_by_transformers(tokenizer, messages, tools, **variables)
        if text == REFUSED:
            continue
        num_rendered += 1
        asked = messages[:-1] if messages[-1]["role"] == "assistant" else messages
        served = _rendered(tokenizer.render_served, asked, tools, variables)
        options = {"add_generation_prompt": True, **variables}
        assert served == _rendered_by_transformers(tokenizer, asked, tools, **options)
        # a release that copies thoughts to the template's field renders the row as it is alike
        raw = _rendered_by_transformers(tokenizer, raw_messages, tools, **variables)
        assert raw == text or "New." not in raw
        if messages[-1]["role"] == "assistant" and messages[-1].get("content"):
            going_on = _rendered_by_transformers(tokenizer, messages, tools, continue_final_message=True, **variables)
            assert text.startswith(going_on.rstrip())
            assert going_on.rstrip().endswith(messages[-1]["content"])
    assert num_rendered >= 3


def test_the_day_is_that_of_transformers(tmp_path: Path) -> None:
    family = next(family for family in PROMPTED_FAMILIES if family.name == "Qwen3")
    folder = write_tokenizer(tmp_path / "tokenizer", family)
    (folder / "chat_template.jinja").write_text(DATED)
    today = datetime.date.today().isoformat()
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder), template_date=today))

    text = tokenizer.render_text([ASKED, ANSWERED], None)
    assert text.startswith(today)
    assert text == _rendered_by_transformers(tokenizer, [ASKED, ANSWERED], None)


def test_whole_turns_as_json(tmp_path: Path) -> None:
    """From 5.24 on transformers copies thoughts and leaves out null fields before it renders; here turns stay."""
    folder = write_tokenizer(tmp_path / "tokenizer", PROMPTED_FAMILIES[0])
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m | tojson }}{% endfor %}")
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    messages = [ASKED, {**ANSWERED, "reasoning_content": "Old.", "tool_calls": None}]

    text = tokenizer.render_text(messages, None)
    given = _rendered_by_transformers(tokenizer, messages, None)

    assert text == "".join(json.dumps(message) for message in messages)
    if Version(transformers.__version__) < Version("5.24"):
        assert given == text
    else:
        assert given == json.dumps(ASKED) + json.dumps({"thinking": "Old.", **ANSWERED, "reasoning_content": "Old."})


def test_the_newest_release_is_the_one_that_a_rule_names() -> None:
    """Fails on a newer one: once this file passes there, raise the bound."""
    assert is_in(Version(transformers.__version__), RENDERS_COMPARED)
