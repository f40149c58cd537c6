"""Templates that write turn after turn: one render holds those of all prefixes; any other template is left alone."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS, TOOL

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import ChatEncoder
from bridgepack.data.tokenizers import templates
from bridgepack.data.tokenizers.templates import ChatTemplate
from bridgepack.errors import RowError
from tests.support.read_rows import encode_examples
from tests.zoo.served import SERVED_FAMILIES
from tests.zoo.tokenizers import FAMILIES, loaded_tokenizer, without_generation_blocks

#: With the habits of Llama 3.1's own: the system turn and, beside tools, the first user turn are taken out.
LLAMA = """\
{{- bos_token }}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
  {%- set system_message = messages[0]['content'] | trim %}
  {%- set messages = messages[1:] %}
{%- else %}
  {%- set system_message = '' %}
{%- endif %}
{{- '<system>' + system_message + '<end>' }}
{%- if tools is not none %}
  {%- if messages | length != 0 %}
    {%- set first = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
  {%- else %}
    {{- raise_exception('no first user turn') }}
  {%- endif %}
  {{- '<user>' + tools | tojson + first + '<end>' }}
{%- endif %}
{%- for message in messages %}
  {%- if message.tool_calls %}
    {%- for call in message.tool_calls %}{{- call.function.name }}{%- if not loop.last %}, {% endif %}{%- endfor %}
  {%- endif %}
  {{- '<' + message['role'] + '>' + (message['content'] or '') + '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}
"""
_LOOP = "{%- for message in messages -%}{{- message.role + message.content -}}{%- endfor -%}"
_LIST = "{%- set turns = messages[1:] if messages[0].role == 'system' else messages -%}"
#: Name -> a template that may look ahead, or is not understood.
OTHERS = {
    "last": _LOOP.replace("{{-", "{{- '!' if loop.last }}{{-", 1),
    "last by key": _LOOP.replace("{{-", "{{- '!' if loop['last'] }}{{-", 1),
    "last under another name": _LOOP.replace("{{-", "{%- set outer = loop -%}{{- outer.last }}{{-", 1),
    "next": _LOOP.replace("{{-", "{{- '!' if loop.nextitem }}{{-", 1),
    "length of the loop": _LOOP.replace("{{-", "{{- loop.length }}{{-", 1),
    "from the end": _LOOP.replace("{{-", "{{- loop.revindex }}{{-", 1),
    "loop in a loop": _LOOP.replace("{{-", "{%- for x in [1] if loop.last -%}!{%- endfor -%}{{-", 1),
    "loop of a list": _LOOP.replace("{{-", "{%- for x in [loop.last] -%}!{%- endfor -%}{{-", 1),
    "loop in a macro": _LOOP.replace("{{-", "{%- macro m() -%}{{ loop.last }}{%- endmacro -%}{{- m() }}{{-", 1),
    "last turn": "{{- messages[-1].role }}" + _LOOP,
    "last turn in the loop": _LOOP.replace("{{-", "{{- message == messages[-1] }}{{-", 1),
    "second turn": "{{- messages[1].role }}" + _LOOP,
    "true is 1": "{{- messages[true].role }}" + _LOOP,
    "length": "{{- messages | length }}" + _LOOP,
    "length is odd": "{%- if messages | length % 2 == 0 %}!{% endif -%}" + _LOOP,
    "more than one": "{%- if messages | length > 1 %}!{% endif -%}" + _LOOP,
    "filter": "{{- messages | map(attribute='role') | join }}" + _LOOP,
    "a pass before": "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}{%- endfor -%}"
    "{{- ns.n }}" + _LOOP,
    "reversed": _LOOP.replace("messages", "messages[::-1]"),
    "without the last": _LOOP.replace("messages", "messages[:-1]"),
    "with a condition": _LOOP.replace("messages", "messages if message.role != 'system'"),
    "a filtered list": _LOOP.replace("messages", "messages | selectattr('content')"),
    "another name by a condition": _LIST + _LOOP.replace("messages", "turns"),
    "two more names": "{%- set a = messages -%}{%- set b = messages -%}" + _LOOP.replace("messages", "a"),
    "assigned in the loop": _LOOP.replace("{{-", "{%- set messages = messages[1:] -%}{{-", 1),
    "another list": "{%- set messages = [messages[0]] -%}" + _LOOP,
    "break": _LOOP.replace("{%- endfor", "{%- if loop.index == 2 -%}{%- break -%}{%- endif -%}{%- endfor"),
    "else": _LOOP.replace("{%- endfor", "{%- else -%}!{%- endfor"),
    "end of the text": _LOOP + "{{- eos_token }}",
    "end of the text by state": "{%- set ns = namespace(x=1) -%}" + _LOOP + "{%- if ns.x %}!{% endif %}",
    "prompt or else": _LOOP + "{%- if add_generation_prompt %}!{% else %}?{% endif %}",
    "prompt is set": "{%- set add_generation_prompt = true -%}" + _LOOP + "{%- if add_generation_prompt %}!{% endif %}",
    "two loops": _LOOP + _LOOP,
    "loop in a condition": "{%- if tools -%}" + _LOOP + "{%- endif -%}",
    "block": "{%- block turns -%}" + _LOOP + "{%- endblock -%}",
    "in a macro": "{%- macro all() -%}{{ messages[0] }}{%- endmacro -%}" + _LOOP,
    "given to a macro": "{%- macro all(m) -%}{{ m | length }}{%- endmacro -%}{{- all(messages) }}" + _LOOP,
    "by name": "{{- dict(x=messages).x | length }}" + _LOOP,
    "two slices": "{%- set turns = messages[1:][1:] -%}" + _LOOP.replace("messages", "turns"),
}


def _turns(*roles: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": f" {role} {index} "} for index, role in enumerate(roles)]


def _conversations() -> Iterator[tuple[list[dict[str, Any]], Any]]:
    chats = [row["messages"] for row in SETS.values()]
    chats += [_turns("system", "user", "assistant", "user", "assistant"), _turns("user"), _turns("system")]
    chats += [_turns("system", "user", "user", "assistant", "assistant"), _turns("assistant", "user", "assistant")]
    yield from itertools.product(chats, (None, [TOOL]))


def _num_checked(source: str) -> int:
    """Return how many prefixes were compared with their own renders."""
    template, num_checked = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}), 0
    plain = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    for messages, tools in _conversations():
        try:
            parts = template.render(list, messages, tools, {})
        except Exception:  # it refuses this conversation
            continue
        text, ends = "".join(parts), template.turn_ends(parts, len(messages), {})
        assert text == plain.render("".join, messages, tools, {})
        if ends is None:
            continue
        assert len(ends) == len(messages) + 1
        for num_turns, end in enumerate(ends):
            if end >= 0:
                assert plain.render("".join, messages[:num_turns], tools, {}) == text[:end]
                num_checked += 1
    return num_checked


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_look_ahead_is_rendered_for_each_prefix(name: str) -> None:
    assert not ChatTemplate(OTHERS[name], {"eos_token": "</s>"}).is_stepwise


def test_turns_of_llama_end_where_their_prefixes_end() -> None:
    template = ChatTemplate(LLAMA, {"bos_token": "<s>"})
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    parts = template.render(list, [*messages, {"role": "assistant", "content": "A"}], None, {})

    assert "".join(parts) == "<s><system>S<end><user>Q<end><assistant>A<end>"
    assert template.turn_ends(parts, 3, {}) == (-1, -1, len("<s><system>S<end><user>Q<end>"), len("".join(parts)))
    assert _num_checked(LLAMA) > 40


def test_every_family_that_is_stepwise_shows_its_prefixes() -> None:
    sources = {family.name: without_generation_blocks(family.template) for family in (*FAMILIES, *SERVED_FAMILIES)}
    checked = {name: _num_checked(source) for name, source in sources.items()}

    shown = {name for name, num_checked in checked.items() if num_checked}
    assert shown >= {"Llama 3.1", "Gemma 3", "DeepSeek-R1", "Kimi-K2", "Granite 4", "ERNIE 4.5", "Apertus", "kimi"}
    assert not shown & {"Qwen3", "gpt-oss", "GLM", "Nemotron", "DeepSeek-V3"}


@pytest.mark.parametrize("name", ["add_generation_prompt", "turns"])
def test_variables_of_rows_and_recipes_that_it_depends_on_count_as_looking_ahead(name: str) -> None:
    source = "{%- set turns = messages -%}" + _LOOP.replace("messages", "turns")
    source += "{%- if add_generation_prompt %}!{% endif %}"
    template, messages = ChatTemplate(source, {}), _turns("user", "assistant", "user", "assistant")
    parts = template.render(list, messages, None, {})

    assert template.turn_ends(parts, 4, {}) is not None
    assert template.turn_ends(parts, 4, {name: True}) is None
    assert not ChatTemplate(source, {name: True}).is_stepwise


def test_tokens_and_masks_are_those_of_the_slow_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (family,) = (family for family in FAMILIES if family.name == "llama3")
    tokenizer = loaded_tokenizer(tmp_path, family)
    rows = [{"messages": messages} for messages, _ in _conversations()]
    settings, renders = ChatPreprocessing(kind="chat"), []
    render = templates.ChatTemplate.render

    def counted(self: ChatTemplate, collect: Any, *given: Any) -> Any:
        renders.append(given)
        return render(self, collect, *given)

    monkeypatch.setattr(templates.ChatTemplate, "render", counted)
    monkeypatch.setattr("bridgepack.data.sequences.chat._CHECKED_ROWS", 0)
    quick = encode_examples(ChatEncoder(tokenizer, settings), rows)
    num_quick = len(renders)
    monkeypatch.setattr(templates.ChatTemplate, "is_stepwise", False)
    slow = encode_examples(ChatEncoder(tokenizer, settings), rows)

    assert [_plain(one) for one in quick] == [_plain(one) for one in slow]
    assert sum(not isinstance(one, RowError) for one in quick) > 6
    assert num_quick < len(renders) - num_quick


def _plain(found: Any) -> Any:
    return str(found) if isinstance(found, RowError) else found
