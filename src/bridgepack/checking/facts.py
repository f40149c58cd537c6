"""Step 3 of a check, facts: what rules on runs know beside the settings: packs, environment, files, data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from bridgepack.bridge.targets import Target
from bridgepack.bridge.validating.fields import installed_fields
from bridgepack.checking.base_models import base_model_of
from bridgepack.checking.options import CheckOptions
from bridgepack.checking.tokenizers import tokenizers_of
from bridgepack.config.errors import quote
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import other_settings, recorded_recipe_values
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.host import BRIDGE
from bridgepack.records import RunConfig, Waiting
from bridgepack.rules.judging.context import NO_PACKS
from bridgepack.rules.judging.facts import (
    NO_RECIPE,
    NOT_ASKED,
    ArtifactFacts,
    EvaluatedSets,
    InstalledFields,
    SlowFacts,
)
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.subject import Run

if TYPE_CHECKING:
    from bridgepack.data.artifact.artifact import Artifact

#: Fields with paths.
_OF_FILES = ("data.train", "data.validation")
#: Fields that decide what is in the packs, and that other rules compare with the packs.
_COMPARED_ELSEWHERE = frozenset(
    {
        *("tokenizer.name_or_path", "tokenizer.revision", "tokenizer.chat_template"),
        "tokenizer.engine",  # changes no token
        *("packing.packed_sequence_size", "packing.pad_seq_to_mult"),
        *("preprocessing.kind", "preprocessing.loss_mode"),
    }
)


def with_facts(run: Run, target: Target, packs: ArtifactFacts | None, options: CheckOptions) -> Run:
    """Return the run with what is known around its settings; `packs` are the facts about the packs that it reads.

    What takes time is found out when a rule asks for it, once.
    """
    recipe = target.recipe
    return replace(
        run,
        artifact=packs,
        environment=options.environment,
        files=Files() if options.looks_at_files else None,
        slow_facts=SlowFacts(
            waiting=cache(partial(_waiting, target, options, str(run.versions[BRIDGE]))),
            evaluated_sets=cache(partial(_evaluated_sets, target, options, str(run.versions[BRIDGE]))),
            other_settings=cache(partial(_other_settings, recipe, packs)),
            balance_refusal=cache(partial(_balance_refusal, recipe)),
            installed_fields=cache(partial(_installed_fields, run, options)),
            base_model=cache(partial(base_model_of, run, recipe, looks_at_files=options.looks_at_files)),
            asks_for_losses=lambda: recipe is not None and (recipe.losses.by_source is True or recipe.losses.by_row),
            tokenizers=cache(partial(tokenizers_of, run, recipe, packs, looks_at_files=options.looks_at_files)),
        ),
    )


def _installed_fields(run: Run, options: CheckOptions) -> InstalledFields | str:
    return installed_fields(run.versions[BRIDGE]) if options.real_validate else NOT_ASKED


def _other_settings(recipe: SFTRecipe | None, packs: ArtifactFacts | None) -> tuple[str, ...] | str:
    """Return the settings about rows that differ from the packs' and that no other rule compares, or why not known."""
    if recipe is None or packs is None or packs.manifest is None:
        return NO_RECIPE if recipe is None else NO_PACKS if packs is None else "the packs have no manifest"
    try:
        made_with = load_recipe(recorded_recipe_values(packs.manifest))
    except BridgepackError as error:
        return f"the recipe in the packs' manifest cannot be read: {error}"
    is_other_kind = recipe.preprocessing.kind != made_with.preprocessing.kind
    return tuple(
        f"{name} {quote(of_recipe)} (packs: {quote(of_packs)})"
        for name, of_recipe, of_packs in other_settings(recipe, made_with)
        if name not in _COMPARED_ELSEWHERE
        and not (is_other_kind and name.startswith("preprocessing."))
        and not (name.startswith(_OF_FILES) and _is_same_place(of_recipe, of_packs))
    )


def _is_same_place(first: Any, second: Any) -> bool:
    """Return whether values are equal but for the folders before paths: `a.jsonl` and `/data/a.jsonl`."""
    if isinstance(first, str) and isinstance(second, str):
        short, long = sorted((PurePath(first).parts, PurePath(second).parts), key=len)
        return first == second or (bool(short) and long[-len(short) :] == short)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_same_place, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_is_same_place(first[name], second[name]) for name in first)
    return bool(first == second)


def _balance_refusal(recipe: SFTRecipe | None) -> str | None:
    if recipe is None or recipe.packing.balance.kind == "none":
        return None
    from bridgepack.planning.balance import balance_for

    try:
        balance_for(recipe)
    except ConfigError as error:
        return str(error)
    return None


def _waiting(target: Target, options: CheckOptions, version: str) -> Waiting | str:
    def ask(artifact: Artifact, source: SFTRecipe | RunConfig) -> Waiting:
        from bridgepack.planning.balance import waiting_in

        return waiting_in(artifact, source, world_size=options.world_size, version=version)

    return _answer_of_packs(target, options, ask)


def _evaluated_sets(target: Target, options: CheckOptions, version: str) -> EvaluatedSets | str:
    def ask(artifact: Artifact, source: SFTRecipe | RunConfig) -> EvaluatedSets:
        from bridgepack.checking.evaluated_sets import evaluated_sets

        return evaluated_sets(artifact, source, world_size=options.world_size, version=version)

    return _answer_of_packs(target, options, ask)


def _answer_of_packs[T](
    target: Target, options: CheckOptions, ask: Callable[[Artifact, SFTRecipe | RunConfig], T]
) -> T | str:
    """Return what a question to the packs and the run's settings answers, or why it has no answer."""
    folder, source = options.artifact, target.recipe or target.config
    if folder is None or source is None:
        return NO_PACKS
    from bridgepack.data.artifact.artifact import Artifact

    try:
        return ask(Artifact(folder, may_be_changed=True), source)
    except BridgepackError as error:
        return str(error)
