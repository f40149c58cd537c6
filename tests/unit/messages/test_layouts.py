"""Messages for wrong layouts name the field, the value, what is allowed and what to do."""

from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.small_builds import small_recipe

ASKED = {"role": "user", "content": "{question}"}
ANSWERED = {"role": "assistant", "content": "{answer}"}


def _chat(**fields: Any) -> dict[str, Any]:
    return {"kind": "chat", "messages": [ASKED, ANSWERED], **fields}


def _first(**fields: Any) -> dict[str, Any]:
    return _chat(messages=[fields, ANSWERED])


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (
            _first(role="user", content=5),
            'data.layout.messages.0.content is 5; allowed: text with columns in braces, e.g. "{question}", or a list '
            "of such texts. Put it in quotes.",
        ),
        (
            _first(role="user", content="{ }"),
            "data.layout.messages.0.content is '{ }'; a column is written {name}, any other brace doubled: {{ and }}.",
        ),
        (
            _first(from_column="messages", role="user"),
            "data.layout.messages.0 has from_column and role; allowed: either from_column, whose turns have their own "
            "role and content, or one turn made from columns. Split it into two entries.",
        ),
        (
            _first(from_column="{messages}"),
            "data.layout.messages.0.from_column is '{messages}'; here, a column is named without braces. Write "
            "messages.",
        ),
        (
            _chat(tools={"column": "tools"}),
            "data.layout.tools is {'column': 'tools'}; allowed: a column's name. Put it in quotes.",
        ),
        (_chat(tools=["tools", 5]), "data.layout.tools.1 is 5; allowed: text. Put it in quotes."),
        (
            _chat(chat_template_kwargs={"enable_thinking": "reasoning"}),
            "data.layout.chat_template_kwargs.enable_thinking is 'reasoning'; allowed: a section with named fields.",
        ),
        (
            _chat(chat_template_kwargs=5),
            "data.layout.chat_template_kwargs is 5; allowed: a column's name. Put it in quotes.",
        ),
        (
            _chat(ignore=["id", "answer"]),
            "data.layout.ignore names 'answer', which the layout reads; only one can be. Remove it here or there.",
        ),
    ],
)
def test_a_wrong_layout_is_named_with_its_cure(layout: dict[str, Any], said: str) -> None:
    recipe = small_recipe("a.jsonl", "tokenizer", preprocessing={"kind": "chat"})

    with pytest.raises(ConfigError) as caught:
        recipe.override({"data.layout": layout})

    assert str(caught.value) == said


def test_a_layout_belongs_to_the_sources_of_a_group() -> None:
    recipe = small_recipe("a.jsonl", "tokenizer", preprocessing={"kind": "chat"})

    with pytest.raises(ConfigError) as caught:
        recipe.override({"data.train": {"sources": ["a.jsonl", "b.jsonl"], "layout": _chat()}})

    assert str(caught.value) == (
        "data.train.layout is set; a section with sources cannot have it. Remove it, or set it in its sources."
    )


def test_a_part_of_a_layout_can_be_changed() -> None:
    recipe = small_recipe("a.jsonl", "tokenizer", preprocessing={"kind": "chat"}).override({"data.layout": _chat()})

    changed = recipe.override({"data.layout.messages.0.content": "{prompt}"})

    assert changed.data.layout == SFTRecipe.model_validate(changed.model_dump(mode="json")).data.layout
    assert changed.model_dump(mode="json")["data"]["layout"]["messages"][0]["content"] == "{prompt}"
