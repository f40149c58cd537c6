"""Templates rendered by the short way give what transformers' own rendering gives, text and errors."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.data.tokenizers.templates import ChatTemplate, names_field
from bridgepack.errors import RowError
from tests.support.conversations import rows
from tests.support.examples import examples
from tests.support.read_rows import read_row
from tests.zoo.tokenizers import AMBIGUOUS, FAMILIES, NEEDS_USER

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES = {
    **{family.name: family.template for family in (*FAMILIES, AMBIGUOUS, NEEDS_USER)},
    "odd names": "{% for m in messages %}{{ m.keys }}{{ m['items'] }}{{ m._x }}{{ m['__class__'] }}{{ m.get('role') }}"
    "{{ m.missing.deeper }}{% endfor %}",
    "tests": "{% for m in messages %}{% if m.a is defined %}a{% endif %}{% if m.role is undefined %}r{% endif %}"
    "{% if not m.content %}none{% endif %}{{ m.b or m.role or 'c' }}{{ m.content and m.content|length }}{% endfor %}",
    "loops": "{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}"
    "{{ loop.previtem is defined }}{{ loop.nextitem.role }}{{ loop.cycle('a', 'b') }}{{ loop.length }}"
    "{{ loop.changed(m.role) }}{% if loop.index > 3 %}{% break %}{% endif %}{% endfor %}",
    "namespaces": "{% set ns = namespace(a=0, b=[]) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{{ ns.a }}"
    "{{ ns.c }}{{ ns.b.append }}{% endfor %}{{ ns.a }}{{ namespace({'x': 1}).x }}",
    "texts": "{% for m in messages %}{{ m.content.split('a')[-1].strip().upper() }}{{ m.content.format(1) }}"
    "{{ m.content.replace('a', 'b' * 2).startswith('b') }}{{ m.role.join(['a', 'b']) }}{{ m.content.encode }}"
    "{% endfor %}",
    "macros": "{% macro show(m, role='x') %}{{ caller() if caller else m[role] }}{% endmacro %}{% for m in messages %}"
    "{{ show(m, 'role') }}{% call show(m) %}{{ m.content }}{% endcall %}{% endfor %}{{ messages | tojson(indent=1) }}",
    "numbers": "{% for i in range(messages|length * 2) %}{{ i * 3 }}{{ 'ab' * i }}{{ i ** 2 }}{{ [i] * 2 }}{% endfor %}"
    "{{ 2 ** -1 }}{{ 1.5 * 2 }}",
    "differences": "{% for m in messages %}{{ (messages|length - 1) - loop.index0 }}{{ loop.index % 2 }}{{ -3 % 2 }}"
    "{{ loop.index - 1.5 }}{{ (loop.index - 0.5) % 2 }}{{ '%s of %d' % (m.role, loop.index - 1) }}{{ true - 1 }}"
    "{% endfor %}",
    "no difference": "{{ messages - 1 }}",
    "no remainder": "{{ messages|length % 0 }}",
    "unsafe": "{% for m in messages %}{{ m.update({'role': 'x'}) }}{% endfor %}{{ messages.append(1) }}",
    "attributes": "{{ messages[0].content.__class__.__mro__ }}{{ ''.__class__ }}{{ messages.__len__ }}",
    "sets": "{% set x = messages[1:] %}{% set y %}{{ x | length }}{% endset %}{{ y }}{% for m in x "
    "if m.role == 'user' %}{{ m.content }}{% else %}empty{% endfor %}{{ messages | map(attribute='role') | join(',') }}"
    "{{ documents is none }}",
    "blocks": "{% block turns %}{% for m in messages %}{{ m.content }}{{ m.get('role') }}{% endfor %}{% endblock %}"
    "{{ self.turns() }}",
    "raising": "{% if messages[0].role != 'user' %}"
    "{{ raise_exception('Begin with a user: ' + messages[0].role) }}{% endif %}",
}


def _of_transformers(source: str, messages: Sequence[Mapping[str, Any]], tools: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    texts, _ = render_jinja_template(
        [list(messages)], tools=tools, chat_template=source, add_generation_prompt=False, **SPECIAL_TOKENS
    )
    return str(texts[0])


def _outcome(render: Any, *arguments: Any) -> str:
    try:
        return f"text {render(*arguments)}"
    except Exception as error:
        return f"{type(error).__name__} {error}"


def _assert_same(source: str, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], tools: Any) -> None:
    copy = json.dumps([messages, tools])
    expected = _outcome(_of_transformers, source, messages, tools)

    assert _outcome(template.render, "".join, messages, tools, {}) == expected
    if expected.startswith("text "):
        # The long way would hide a short way that does not work.
        assert f"text {''.join(template._short_root(template._context(messages, tools, {})))}" == expected
    assert json.dumps([messages, tools]) == copy


@pytest.fixture(scope="module", params=TEMPLATES)
def source(request: pytest.FixtureRequest) -> str:
    return TEMPLATES[request.param]


@examples(0.15)
@given(row=rows())
def test_any_conversation(source: str, row: Mapping[str, Any]) -> None:
    try:
        conversation = ConversationReader(ChatPreprocessing()).read(read_row(row))
    except RowError:
        return
    _assert_same(source, ChatTemplate(source, SPECIAL_TOKENS), conversation.messages, conversation.tools)


def test_a_rejected_row_leaves_nothing_to_the_next() -> None:
    """`autoescape` holds in its block alone, although a row is rejected in the middle of one."""
    own = (
        "{% macro bold() %}<b>{% endmacro %}"
        "{% autoescape true %}{{ raise_exception('no') if messages[0].content == 'bad' }}{% endautoescape %}"
        "{{ bold() + messages[0].content }}"
    )
    template = ChatTemplate(own, SPECIAL_TOKENS)

    for content in ("1 < 2", "bad", "1 < 2"):
        _assert_same(own, template, [{"role": "user", "content": content}], None)


@pytest.mark.parametrize(
    ("template", "is_named"),
    [
        ("{{ m.reasoning }}", True),
        ("{{ m['reasoning'] }}", True),
        ("{{ m.get('reasoning') }}", True),
        ("{% if 'reasoning' in m %}{% endif %}", True),
        ("{{ messages | selectattr('reasoning') | list }}", True),
        ("{{ messages | map(attribute='extra.reasoning') | list }}", True),
        ("{{ 'reasoning effort: high' }}", False),
        ("{# m.reasoning #} m.reasoning, 'reasoning'", False),
        ("{{ reasoning }}{{ m.reasoning_content }}", False),
    ],
)
def test_fields_that_a_template_names(template: str, is_named: bool) -> None:
    assert names_field(template, "reasoning") == is_named
