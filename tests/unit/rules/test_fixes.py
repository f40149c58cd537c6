"""Texts of rules name settings as data, and a fix that is followed in a recipe's terms is one that the recipe takes."""

import re
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from typing import Any

import pytest
import yaml

from bridgepack.api.words import recipe_fields
from bridgepack.bridge.plain import put, value_at
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.refusing.refusals import refusals_of
from bridgepack.config.recipe.host_paths import FIELDS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host import RELEASES
from bridgepack.host.facts import copy_of
from bridgepack.records import Finding, RunConfig
from bridgepack.records.messages import Message, SettingNames, paths_in
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import RunRule
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.bridge_recipes import DENSE, recipe_of
from tests.unit.rules.run_cases import cases_of, subject_of

_SECTIONS = "|".join(sorted({name for release in RELEASES for name in release.facts.sections}))
_PATH = re.compile(rf"(?<![\w/.])(?:{_SECTIONS})\.[a-z_0-9]+(?:\.[a-z_0-9]+)*")
#: What looks like a setting of the host and is a file, a recipe's own field, or a name in the host's code.
_NO_SETTINGS = {"tokenizer.json", "tokenizer.model", "validation.jsonl", "model.name", "model.transformer"}
_NO_SETTINGS |= {"tokenizer.eos_id"}

each_rule = pytest.mark.parametrize("rule", RUN_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")


def texts_of(rule: RunRule) -> Iterator[str]:
    yield from (rule.fix, rule.why)
    for case in cases_of(rule, "bad"):
        judgement = judge_run(subject_of(case), [rule])
        for finding in judgement.findings:
            yield from (finding.where, finding.found, finding.allowed, finding.fix)
        yield from (skipped.reason for skipped in judgement.rules_skipped)


def fixes_of(rule: RunRule) -> Iterator[str]:
    yield rule.fix
    for case in cases_of(rule, "bad"):
        yield from (finding.fix for finding in judge_run(subject_of(case), [rule]).findings)


def literal_text(text: str) -> str:
    parts = text.parts if isinstance(text, Message) else (text,)
    return "\n".join(part for part in parts if isinstance(part, str))


@each_rule
def test_settings_in_texts_are_references(rule: RunRule) -> None:
    """What is a literal text is never changed, so a setting in it would have the host's name in every file."""
    for text in texts_of(rule):
        assert set(_PATH.findall(literal_text(text))) <= _NO_SETTINGS, text


#: Settings of datasets that a recipe cannot ask for -> the rule on them.
_OF_OTHER_DATASETS = {"dataset.packing_buffer_size": "BP939"}
#: Bases that have between them what fixes name: dense, of experts, hybrid; adapters; packed in the batch.
_BASES = (
    recipe_of(DENSE),
    recipe_of("qwen3_30b_a3b_sft_16gpu_h100_bf16_config"),
    recipe_of("nemotronh_8b_sft_2gpu_h100_bf16_config", method={"kind": "lora"}),
    recipe_of(DENSE, packing__mode="in_batch"),
    recipe_of(DENSE, bridge_version="0.7.0"),
)


def takes_override(recipe: SFTRecipe, path: str, value: Any) -> bool:
    """Return whether a recipe takes an override: a field that its host has and keeps."""
    override: dict[str, Any] = {"comm_overlap": {"tp_comm_overlap": False}} if path.startswith("comm_overlap.") else {}
    put(override, path, value)
    with_override = recipe.override({"bridge_overrides": override})
    refused = {finding.code for finding in refusals_of(with_override) if finding.where.endswith(path)}
    return not refused & {"BP044", "BP850", "BP851"}


def is_taken(path: str) -> bool:
    """Return whether what a recipe's user reads for a setting can be written: a field, or an override."""
    if path in FIELDS or f"{path.partition('.')[0]}." in FIELDS:
        return FIELDS.get(path, "environment").partition(".")[0] in SFTRecipe.model_fields
    return any(
        takes_override(recipe, path, value)
        for recipe in _BASES
        for value in (value_at(config_of_recipe(recipe).values, path), None, True, 1)
    )


def test_every_setting_that_a_fix_names_is_a_field_or_an_override() -> None:
    names = {path: rule.code for rule in RUN_RULES for fix in fixes_of(rule) for path in paths_in(fix)}
    assert {path: code for path, code in names.items() if not is_taken(path)} == _OF_OTHER_DATASETS
    assert len(names) > 100


def test_the_fields_that_messages_name_exist() -> None:
    fields = {field for path, field in FIELDS.items() if not path.endswith(".")}
    known = set(recipe_fields()) | set(SFTRecipe.model_fields)
    assert {field for field in fields if field not in known} == set()


_VALUE = re.compile(r" to (true|false|null|None|\d+|[A-Za-z0-9_]+(?=[.,;]|$| and | or ))\b")


def instructions_of(finding: Finding) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the settings and the value of each `PATH to VALUE` of a fix that says to set something."""
    parts = finding.fix.parts if isinstance(finding.fix, Message) and "Set " in finding.fix else ()
    names: tuple[str, ...] = ()
    for part in parts:
        match = None if isinstance(part, SettingNames) else _VALUE.match(part)
        if isinstance(part, SettingNames):
            names += part.paths
        elif match:
            yield names, yaml.safe_load(match[1].replace("None", "null"))
        if isinstance(part, str) and (match or part not in (" and ", ", ")):
            names = ()


def recipe_with(base: SFTRecipe, case: dict[str, Any]) -> tuple[SFTRecipe, RunConfig] | None:
    """Return a base with the settings of a case as overrides, and its run; None if it does not take them."""
    overrides: dict[str, Any] = {}
    for path, value in case.get("set", {}).items():
        put(overrides, path, value)
    try:
        recipe = base.override({"bridge_overrides": overrides})
        return recipe, config_of_recipe(recipe)
    except (ConfigError, AttributeError, KeyError, TypeError):
        return None


def may_say(rule: RunRule, config: RunConfig, case: dict[str, Any]) -> bool:
    """Return whether a rule says something of a base's settings and a case's, which costs less than to ask a recipe."""
    values = copy_of(config.values)
    for path, value in case.get("set", {}).items():
        put(values, path, value)
    return bool(findings_on(replace(config, values=values), rule))


def findings_on(config: RunConfig, rule: RunRule) -> tuple[Finding, ...]:
    return judge_run(Run(config=config, versions=target_versions(config.bridge_version)), [rule]).findings


def ways_to_follow(finding: Finding, config: RunConfig) -> list[dict[str, Any]]:
    """Return what a user would write who follows a fix: one of its instructions, or all of them."""
    ways = [{config.user_path(path): value for path in paths} for paths, value in instructions_of(finding)]
    return [*ways, dict(ChainMap(*ways))]


def test_a_fix_that_is_followed_in_a_recipe_removes_or_changes_the_finding() -> None:
    codes, num_followed = set(), 0
    for base in _BASES:
        config = config_of_recipe(base)
        for rule, case in chain.from_iterable(product([rule], cases_of(rule, "bad")) for rule in RUN_RULES):
            found = recipe_with(base, case) if may_say(rule, config, case) else None
            for finding in () if found is None else findings_on(found[1], rule)[:1]:
                ways = ways_to_follow(finding, found[1])
                if ways != [{}]:
                    after = [findings_on(config_of_recipe(found[0].override(way)), rule) for way in ways]
                    assert any(finding not in findings for findings in after), (rule.code, ways)
                    codes.add(rule.code)
                    num_followed += 1
    assert (len(codes) > 60, num_followed > 440) == (True, True)
