"""Refuses variables of the recipe that the chat template does not read."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from bridgepack.config.errors import nearest_name
from bridgepack.config.recipe.layout import OWN_TEMPLATE_VARIABLES
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tokenizers.templates import names_read, variables_of
from bridgepack.errors import ConfigError


class HasTemplate(Protocol):
    """A tokenizer, or what is known of it without loading it."""

    @property
    def chat_template(self) -> str | None:
        """The text of its chat template."""

    @property
    def special_tokens(self) -> Mapping[str, Any]:
        """Name -> text of the special tokens that the template can use."""


def refuse_unread_variables(recipe: SFTRecipe, tokenizer: HasTemplate) -> None:
    """Check that the chat template reads every variable of `tokenizer` and `serving`.

    Raises:
        ConfigError: it does not read one, or no row is rendered with it.
    """
    variables_of_field = {
        "tokenizer.chat_template_kwargs": recipe.tokenizer.chat_template_kwargs,
        "serving.chat_template_kwargs": recipe.serving.chat_template_kwargs or {},
    }
    for field, variables in variables_of_field.items():
        if variables and recipe.chat_preprocessing is None:
            raise ConfigError(
                f"{field} has {', '.join(variables)}, and no row is rendered with a chat template, as the rows are of "
                f"kind {', '.join(recipe.kinds)}. Remove {field}, or read the rows as chats.",
                field=field,
            )
        if unread := why_unread(tokenizer, variables):
            raise ConfigError(f"{field} {unread}. Correct the name, or remove it.", field=field)


def why_unread(tokenizer: HasTemplate, variables: Mapping[str, object] | Iterable[str]) -> str:
    """Return which variables the chat template does not read, and which it does; empty if it reads them all.

    Example: `has enable_thinkin, which the chat template does not read; it reads enable_thinking; the nearest is
    enable_thinking`.
    """
    if tokenizer.chat_template is None:
        return ""
    names = names_read(tokenizer.chat_template)
    unread = [name for name in variables if name not in names]
    if not unread:
        return ""
    usable = sorted(settable(tokenizer))
    nearest = dict.fromkeys(near for name in unread if (near := nearest_name(name, usable)) is not None)
    hint = f"; the nearest is {', '.join(nearest)}" if nearest and len(usable) > 1 else ""
    return (
        f"has {', '.join(unread)}, which the chat template does not read; it reads {', '.join(usable) or 'none'}{hint}"
    )


def settable(tokenizer: HasTemplate) -> frozenset[str]:
    """Return the variables of the chat template that a recipe, a row or a request may set."""
    template = tokenizer.chat_template or ""
    return variables_of(template) - OWN_TEMPLATE_VARIABLES - tokenizer.special_tokens.keys()
