"""Variables of the chat template that the template does not read: refused in a recipe, named and counted in rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.families import write_tokenizer
from scripts.quirks.served_families import SERVED_FAMILIES, SETS

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tokenizers.templates import names_read
from bridgepack.errors import ConfigError
from tests.support.small_builds import Command, build, small_recipe, write_json_lines, write_recipe

FAMILY = next(family for family in SERVED_FAMILIES if family.name == "Qwen3.5")
READ = "it reads enable_thinking, preserve_thinking; the nearest is enable_thinking. Correct the name, or remove it."


def _recipe(folder: Path, rows: Any = (SETS["plain"],) * 3, **sections: Any) -> SFTRecipe:
    tokenizer = folder / "tokenizer"
    if not tokenizer.exists():
        write_tokenizer(tokenizer, FAMILY)
    train = write_json_lines(folder / "rows.jsonl", rows)
    chat = {"kind": "chat", "chat_template_kwargs_column": "chat_template_kwargs"}
    packing = {"packed_sequence_size": 512}
    return small_recipe(train, tokenizer, **{"preprocessing": chat, "packing": packing, **sections})


COMMANDS: dict[str, Callable[[SFTRecipe, Path], Any]] = {
    "build": lambda recipe, folder: bridgepack.build(recipe, output=folder / "packed"),
    "build with workers": lambda recipe, folder: bridgepack.build(recipe, output=folder / "packed", num_workers=1),
    "preview": lambda recipe, _: bridgepack.preview(recipe),
    "plan": lambda recipe, _: bridgepack.plan(recipe, num_gpus=8, model="qwen3_8b_sft_config"),
    "masks": lambda recipe, _: bridgepack.masks(recipe),
    "masks --served": lambda recipe, _: bridgepack.served(recipe),
}


@pytest.mark.parametrize("field", ["tokenizer", "serving"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_one_of_the_recipe(tmp_path: Path, name: str, field: str) -> None:
    recipe = _recipe(tmp_path).override({f"{field}.chat_template_kwargs": {"enable_thinkin": False}})
    with pytest.raises(ConfigError) as raised:
        COMMANDS[name](recipe, tmp_path)
    expected = f"{field}.chat_template_kwargs has enable_thinkin, which the chat template does not read; {READ}"
    assert str(raised.value) == expected
    assert not (tmp_path / "packed").exists()


def test_one_that_is_read_passes(tmp_path: Path) -> None:
    kwargs = {"enable_thinking": False, "preserve_thinking": True}
    recipe = _recipe(tmp_path, serving={"chat_template_kwargs": kwargs})
    recipe = recipe.override({"tokenizer.chat_template_kwargs": {**kwargs, "eos_token": "<|im_end|>"}})
    with pytest.raises(ConfigError, match="has eos_token, which the chat template does not read"):
        bridgepack.served(recipe)
    assert bridgepack.served(recipe.override({"tokenizer.chat_template_kwargs": kwargs})).record.num_answers == 6


def test_rows_without_a_template_read_none(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, [{"text": "One two three four."}], preprocessing={"kind": "text"})
    with pytest.raises(ConfigError, match="no row is rendered with a chat template, as the rows are of kind text"):
        bridgepack.preview(recipe.override({"tokenizer.chat_template_kwargs": {"enable_thinking": False}}))


def test_another_server_of_an_artifact_is_checked_too(tmp_path: Path, command: Command) -> None:
    recipe = _recipe(tmp_path)
    build(recipe, tmp_path / "packed")
    ran = command("masks", tmp_path / "packed", "--served", "--set", "serving.chat_template_kwargs={enable_thinkin: 1}")
    assert (ran.code, READ in ran.errors) == (2, True)
    assert command("masks", tmp_path / "packed", "--served").code == 1


def test_those_of_rows_are_named_and_counted(tmp_path: Path, command: Command) -> None:
    given = [
        {"enable_thinkin": False},
        {"enable_thinkin": True, "enable_thinking": False},
        {"enable_thinking": True, "custom_instructions": None, "tools_in_text": []},
        {"custom_instructions": "Answer in no more than three words."},
    ]
    recipe = _recipe(tmp_path, [{**SETS["plain"], "chat_template_kwargs": one} for one in given])
    split = build(recipe, tmp_path / "packed").manifest.splits[0]
    assert split.lost_content == {"unread": 1, "unread_variable": 2}
    found = {(field.name, field.holds, field.num_rows) for field in split.unread}
    assert found == {
        ("chat_template_kwargs.enable_thinkin", "identifier", 2),
        ("chat_template_kwargs.custom_instructions", "text", 1),
    }
    findings = {item.code: item for item in bridgepack.check(tmp_path / "packed").findings}
    assert "row 1: chat_template_kwargs has enable_thinkin, which the chat template does not read; it reads" in (
        findings["BP546"].found
    )
    assert findings["BP546"].fix.startswith("Correct the name in the rows, remove it, or train with a template that")
    write_recipe(tmp_path / "mine.yaml", recipe)
    assert "enable_thinkin" in command("preview", tmp_path / "mine.yaml").output


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("{% set think = think | default(true) %}{{ think }}", {"think"}),
        ("{% if think is not defined %}{% set think = true %}{% endif %}{{ think }}", {"think"}),
        ("{% macro turn(one) %}{{ one }}{{ kwargs.x }}{{ think }}{% endmacro %}{{ turn(1) }}", {"think"}),
        ("{% generation %}{{ think }}{% endgeneration %}", {"think"}),
        ("{% set own = namespace(think=think) %}{{ own.think }}", {"think", "namespace"}),
        ("{% set think = false %}{{ think }}", set()),
        ("{{ messages[0].think }}", {"messages"}),
    ],
)
def test_what_a_template_reads(source: str, names: set[str]) -> None:
    assert names_read(source) == names
