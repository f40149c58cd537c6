"""Shell completion: recipes, rules, fields of `--set`. Runs only on the Tab key."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from bridgepack.errors import BridgepackError

type Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offering(words: Callable[[str], Iterable[tuple[str, str]]], *, with_files: bool = False) -> Completion:
    """Return a completion of the words (each with its help) that start with the typed text; errors offer none."""

    def offer(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:  # noqa: ARG001
        items = [CompletionItem(typed, type="file")] if with_files else []
        with suppress(BridgepackError, OSError):
            items += [
                CompletionItem(word, help=help_text) for word, help_text in words(typed) if word.startswith(typed)
            ]
        return items

    return offer


def _recipe_names(_typed: str) -> Iterator[tuple[str, str]]:
    from bridgepack.config.load import catalogue

    return ((entry.name, "") for entry in catalogue())


def _rule_words(typed: str) -> Iterator[tuple[str, str]]:
    from bridgepack.rules.registry import ALL_RULES

    before, comma, _ = typed.rpartition(",")  # --select BP101,BP2
    for rule in ALL_RULES:
        yield f"{before}{comma}{rule.code}", rule.name
        yield f"{before}{comma}{rule.name}", rule.code


def _field_paths(_typed: str) -> Iterator[tuple[str, str]]:
    from bridgepack.config.recipe.recipe import SFTRecipe

    return ((f"{path}=", "") for path in dict.fromkeys(_paths(SFTRecipe, "")))


def _paths(section: Any, prefix: str) -> Iterator[str]:
    from bridgepack.config.errors import alternatives

    for name, field in section.model_fields.items():
        kinds = [kind for kind in alternatives(field.annotation) if hasattr(kind, "model_fields")]
        yield from [path for kind in kinds for path in _paths(kind, f"{prefix}{name}.")] or [f"{prefix}{name}"]


complete_recipe = _offering(_recipe_names, with_files=True)
complete_rule = _offering(_rule_words)
complete_field = _offering(_field_paths)
