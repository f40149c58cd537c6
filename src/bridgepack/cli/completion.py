"""Shell completion: recipes, rules, fields of `--set`. Runs only on the Tab key."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from bridgepack import api
from bridgepack.errors import BridgepackError

type Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offering(words: Callable[[str], Iterable[tuple[str, str]]], *, with_files: bool = False) -> Completion:
    """Return a completion of the words (each with its help) that start with the typed text; errors offer none."""

    def offer(context: click.Context, parameter: click.Parameter, prefix: str) -> list[CompletionItem]:  # noqa: ARG001
        items = [CompletionItem(prefix, type="file")] if with_files else []
        with suppress(BridgepackError, OSError):
            items += [
                CompletionItem(word, help=help_text) for word, help_text in words(prefix) if word.startswith(prefix)
            ]
        return items

    return offer


def _recipe_names(_prefix: str) -> Iterator[tuple[str, str]]:
    return ((entry.name, "") for entry in api.list_recipes().entries)


def _rule_words(prefix: str) -> Iterator[tuple[str, str]]:
    before, comma, _ = prefix.rpartition(",")  # --select BP101,BP2
    rules = api.explain()
    assert isinstance(rules, list)  # all of them
    for rule in rules:
        yield f"{before}{comma}{rule['code']}", rule["name"]
        yield f"{before}{comma}{rule['name']}", rule["code"]


def _field_paths(_prefix: str) -> Iterator[tuple[str, str]]:
    return ((f"{path}=", "") for path in api.recipe_fields())


complete_recipe = _offering(_recipe_names, with_files=True)
complete_rule = _offering(_rule_words)
complete_field = _offering(_field_paths)
