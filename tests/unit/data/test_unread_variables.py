"""Variables of the chat template that the template does not read: refused in a recipe, named and counted in rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

import bridgepack
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.local_template import local_template
from bridgepack.data.tokenizers.templates import names_read
from bridgepack.errors import ConfigError
from tests.support.messages import mentions
from tests.support.small_builds import Command, build, small_recipe, write_json_lines, write_recipe
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

FAMILY = next(family for family in SERVED_FAMILIES if family.name == "Qwen3.5")
READ = "it reads enable_thinking, preserve_thinking; the nearest is enable_thinking. Correct the name, or remove it."


def _recipe(folder: Path, rows: Any = (SETS["plain"],) * 3, **sections: Any) -> SFTRecipe:
    tokenizer = folder / "tokenizer"
    if not tokenizer.exists():
        write_tokenizer(tokenizer, FAMILY)
    train = write_json_lines(folder / "rows.jsonl", rows)
    layout = {"kind": "chat", "messages": [{"from_column": "messages"}], "chat_template_kwargs": "chat_template_kwargs"}
    is_chat = sections.get("preprocessing", {"kind": "chat"})["kind"] == "chat"
    data = {"train": str(train), "layout": layout if is_chat else None}
    packing = {"packed_sequence_size": 512}
    return small_recipe(
        "", tokenizer, **{"data": data, "preprocessing": {"kind": "chat"}, "packing": packing, **sections}
    )


COMMANDS: dict[str, Callable[[SFTRecipe, Path], Any]] = {
    "build": lambda recipe, folder: bridgepack.build(recipe, output=folder / "packed"),
    "build with workers": lambda recipe, folder: bridgepack.build(recipe, output=folder / "packed", num_workers=1),
    "check": lambda recipe, _: bridgepack.check(recipe),
    "preview": lambda recipe, _: bridgepack.preview(recipe),
    "plan": lambda recipe, _: bridgepack.plan(recipe, num_gpus=8, model="qwen3_8b_sft_config"),
    "masks": lambda recipe, _: bridgepack.prove.masks(recipe),
    "served": lambda recipe, _: bridgepack.prove.served(recipe),
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


def test_check_needs_no_tokenizer_to_refuse_one_and_says_when_it_does(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path).override({"tokenizer.chat_template_kwargs": {"enable_thinking": False}})
    assert bridgepack.check(recipe).note == ""
    (tmp_path / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"chat_template_kwargs has enable_thinkin, .*not read"):
        bridgepack.check(recipe.override({"tokenizer.chat_template_kwargs": {"enable_thinkin": False}}))
    elsewhere = recipe.override({"tokenizer.name_or_path": "org/elsewhere"})
    told = "note: tokenizer.chat_template_kwargs is checked by `build`, which loads the tokenizer"
    assert bridgepack.check(elsewhere).note == told
    both = elsewhere.override({"serving.chat_template_kwargs": {"enable_thinkin": False}})
    assert "tokenizer.chat_template_kwargs and serving.chat_template_kwargs are" in bridgepack.check(both).note


def _template_in_file(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "chat_template.jinja").write_text("{{ in_file }}")
    settings["chat_template"] = "{{ in_settings }}"


def _template_in_settings(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings["chat_template"] = "{{ in_settings }}"


def _several(_: Path, settings: dict[str, Any]) -> None:
    settings["chat_template"] = [{"name": "default", "template": "{{ a }}"}, {"name": "rag", "template": "{{ b }}"}]


def _another_folder(folder: Path, _: dict[str, Any]) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ b }}")


def _broken(_: Path, settings: dict[str, Any]) -> None:
    settings["chat_template"] = "{% if %}"


@pytest.mark.parametrize(
    ("change", "template"),
    [
        (_template_in_file, "{{ in_file }}"),
        (_template_in_settings, "{{ in_settings }}"),
        (_several, None),
        (_another_folder, None),
        (_broken, None),
    ],
)
def test_a_template_on_this_machine_is_the_one_that_loading_gives(
    tmp_path: Path, change: Callable[[Path, dict[str, Any]], None], template: str | None
) -> None:
    _recipe(tmp_path)
    folder = tmp_path / "tokenizer"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    if template is None:
        (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder, settings)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = TokenizerConfig(name_or_path=str(folder))
    loaded, found = load_tokenizer(config), local_template(config)
    assert found is None if template is None else found is not None
    if found is not None:
        assert (found.chat_template, loaded.chat_template) == (template, template)
        assert found.special_tokens.keys() >= {name for name in loaded.special_tokens if name.endswith("_token")}


def test_one_that_is_read_passes(tmp_path: Path) -> None:
    kwargs = {"enable_thinking": False, "preserve_thinking": True}
    recipe = _recipe(tmp_path, serving={"chat_template_kwargs": kwargs})
    recipe = recipe.override({"tokenizer.chat_template_kwargs": {**kwargs, "eos_token": "<|im_end|>"}})
    with pytest.raises(ConfigError, match=r"chat_template_kwargs has eos_token, .*not read"):
        bridgepack.prove.served(recipe)
    assert bridgepack.prove.served(recipe.override({"tokenizer.chat_template_kwargs": kwargs})).record.num_answers == 6


def test_rows_without_a_template_read_none(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, [{"text": "One two three four."}], preprocessing={"kind": "text"})
    with pytest.raises(ConfigError, match=r"no row .* chat template, .* of kind text"):
        bridgepack.preview(recipe.override({"tokenizer.chat_template_kwargs": {"enable_thinking": False}}))


def test_another_server_of_an_artifact_is_checked_too(tmp_path: Path, command: Command) -> None:
    recipe = _recipe(tmp_path)
    build(recipe, tmp_path / "packed")
    ran = command("prove", "served", tmp_path / "packed", "--set", "serving.chat_template_kwargs={enable_thinkin: 1}")
    assert (ran.code, READ in ran.errors) == (2, True)
    assert command("prove", "served", tmp_path / "packed").code == 1


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
    assert mentions(findings["BP546"].found, "row 1: chat_template_kwargs has enable_thinkin, ", "not read; it reads")
    assert mentions(findings["BP546"].fix, "Correct the name in", "remove it, or train", "template")
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
