"""`keep` is what the recipe's release of Megatron-Bridge does with a row; only then do rows depend on the release."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import inspect
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, mended_by_host
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.identity import fingerprint, tokenization_identity
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.data.sequences.loading import load_identity
from bridgepack.errors import ConfigError
from bridgepack.host import RELEASES, V06, V07
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.support.small_builds import AS_HOST, build, chat_row, dropped, small_recipe, write_json_lines
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

CALL = {"type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
BAD = {**CALLING, "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": "at it"}}]}
QUESTION = {"role": "user", "content": "what"}
#: Null as the word none, and arguments as JSON: text of JSON gets quotes.
TEMPLATE = (
    "{%- for turn in messages -%}"
    "{{- '<|im_start|>' + turn.role + '\\n' + (turn.content if turn.content is not none else 'none') -}}"
    "{%- for call in turn.tool_calls or [] -%}{{- call.function.arguments | tojson -}}{%- endfor -%}"
    "{{- '<|im_end|>\\n' -}}{%- endfor -%}{#- <|im_start|>assistant -#}"
)


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    rows = [{"messages": [QUESTION, CALLING]}, {"messages": [QUESTION, BAD]}, chat_row("a", "b")]
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    found = small_recipe(path, chatml_tokenizer, preprocessing={"kind": "chat", **AS_HOST})
    return found.override(
        {"tokenizer.chat_template": str(tmp_path / "template.jinja"), "packing.packed_sequence_size": 512}
    )


def _texts(folder: Path) -> str:
    return "".join(span.text for one in inspect(folder, pack=0).sequences for span in one.spans)


def _for(recipe: SFTRecipe, version: str | None, **changes: Any) -> SFTRecipe:
    return recipe.override({"bridge_version": version, **changes})


def test_keep_is_the_habit_of_the_release(tmp_path: Path, recipe: SFTRecipe) -> None:
    for name, version in (("old", "0.6.2"), ("unsaid", None), ("new", "0.7.0")):
        build(_for(recipe, version), tmp_path / name)

    assert 'none"{\\"at\\": \\"it\\"}"' in _texts(tmp_path / "old")
    assert _texts(tmp_path / "unsaid") == _texts(tmp_path / "old")
    assert 'assistant\n{"at": "it"}<|im_end|>' in _texts(tmp_path / "new")
    assert dropped(tmp_path / "old") == []
    assert dropped(tmp_path / "new") == [(2, "invalid_field")]


def test_auto_is_the_same_for_every_release(tmp_path: Path, recipe: SFTRecipe) -> None:
    auto = {f"preprocessing.{name}": "auto" for name in AS_HOST}
    identities = [
        (fingerprint(one.resolve(), {}, {}), tokenization_identity(one, {}, "tokenizers"))
        for one in (_for(recipe, release.bridge, **auto) for release in RELEASES)
    ]

    assert len(identities) > 1
    assert all(one == identities[0] for one in identities)


@pytest.mark.parametrize("field", ["null_content", "tool_arguments"])
def test_each_field_on_keep_makes_rows_depend_on_the_release(recipe: SFTRecipe, field: str) -> None:
    others = {f"preprocessing.{name}": "auto" for name in AS_HOST if name != field}
    old, unsaid, new = (_for(recipe, version, **others) for version in ("0.6", None, "0.7"))

    prints = [fingerprint(one.resolve(), {}, {}) for one in (old, unsaid, new)]
    keys = [tokenization_identity(one, {}, "tokenizers") for one in (old, unsaid, new)]
    assert prints[0] == prints[1] != prints[2]
    assert keys[0] == keys[1] != keys[2]
    assert list(new.resolve().explain()["host_habits"]["value"]) == [field]
    assert "host_habits" not in old.resolve().explain()


def test_an_artifact_for_0_7_is_verified_as_that(tmp_path: Path, recipe: SFTRecipe) -> None:
    manifest = build(_for(recipe, "0.7"), tmp_path / "new").manifest

    assert fingerprint_of_manifest(manifest) == manifest.fingerprint
    assert verify_artifact(tmp_path / "new", VerifyOptions(num_packs=None)).outcome == "same"
    with pytest.raises(ConfigError, match="changes the tokens"):
        repack_artifact(tmp_path / "new", {"bridge_version": "0.6"}, options=BuildOptions(num_workers=0))


NEMOTRON = next(family for family in SERVED_FAMILIES if family.name == "Nemotron")
#: What of an answer is masked by 0.7 alone.
OPENED = {"7": "<think></think>", "<think>\nSeven?</think>7": "<think>\n", "<think>Seven?</think>7": ""}


@pytest.fixture
def nemotron(tmp_path: Path) -> SFTRecipe:
    tokenizer = write_tokenizer(tmp_path / "nemotron", NEMOTRON)
    rows = [chat_row("3 + 4", content) for content in OPENED]
    found = small_recipe(write_json_lines(tmp_path / "rows.jsonl", rows), tokenizer)
    return found.override({"packing.packed_sequence_size": 512})


def _trained(folder: Path) -> set[str]:
    spans = [span for one in inspect(folder, pack=0).sequences for span in one.spans]
    return {span.text for span in spans if span.is_trained}


def test_0_7_leaves_out_openings_of_thoughts(tmp_path: Path, nemotron: SFTRecipe) -> None:
    for name, version in (("old", "0.6"), ("unsaid", None), ("new", "0.7")):
        build(_for(nemotron, version), tmp_path / name)
        report = check_masks(tmp_path / name)
        assert (report.num_agreed, report.num_sequences) == (3, 3), (name, report.findings)
        assert verify_artifact(tmp_path / name, VerifyOptions(num_packs=None)).outcome == "same"

    rests = {content.removeprefix(opening) for content, opening in OPENED.items()}
    assert _trained(tmp_path / "new") == {f"{rest}<|im_end|>" for rest in rests}
    shown = {content if content.startswith("<think>") else f"<think></think>{content}" for content in OPENED}
    assert _trained(tmp_path / "old") == _trained(tmp_path / "unsaid") == {f"{text}<|im_end|>" for text in shown}


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ({}, True),
        ({"preprocessing.mask_generation_prompt": True}, False),
        ({"preprocessing.reasoning_loss": "mask_empty"}, False),
        ({"preprocessing.loss_mode": "full"}, False),
    ],
)
def test_only_what_0_7_leaves_out_changes_the_fingerprint(
    nemotron: SFTRecipe, chatml_tokenizer: Path, changes: dict[str, Any], is_other: bool
) -> None:
    recipes = [_for(nemotron, version, **changes) for version in ("0.6", None, "0.7")]
    old, unsaid, new = ((one.resolve(), load_identity(one.model_dump_json())) for one in recipes)
    prints = [fingerprint(*one, {}) for one in (old, unsaid, new)]
    assert prints[0] == prints[1]
    assert (prints[1] != prints[2]) is is_other
    chatml = _for(nemotron, "0.7", **{"tokenizer.name_or_path": str(chatml_tokenizer)}, **changes)
    assert "trimmed_openings" not in load_identity(chatml.model_dump_json())


def test_rows_do_not_depend_on_what_is_installed(recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(recipe.resolve(), {}, {})
    monkeypatch.setattr("bridgepack.config.recipe.recipe.installed_version", lambda: "0.7.0")

    assert recipe.release is V07
    assert recipe.host_habits == {}
    assert fingerprint(recipe.resolve(), {}, {}) == before


def test_habits_are_those_of_fields_on_keep() -> None:
    every, none = ChatPreprocessing(**AS_HOST), ChatPreprocessing()

    assert mended_by_host(every, V06) == mended_by_host(none, V07) == {}
    assert mended_by_host(every, V07) == {"null_content": "empty", "tool_arguments": "object"}


def test_a_loaded_recipe_says_the_installed_release_where_rows_depend_on_it(
    recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridgepack.config.recipe.recipe.installed_version", lambda: "0.7.0")
    loaded = load_recipe(recipe)
    assert loaded.bridge_version == "0.7"
    assert loaded.host_habits
    assert load_recipe(recipe.override({"bridge_version": "0.6"})).bridge_version == "0.6"
    assert load_recipe(recipe.override({"preprocessing": {"kind": "chat"}})).bridge_version is None
