"""Checks the recipe's variables of the chat template, where that needs no tokenizer."""

from bridgepack.config.recipe.recipe import SFTRecipe


def check_template_variables(recipe: SFTRecipe | None) -> str:
    """Return a note if only a build can tell whether the chat template reads the recipe's variables, else "".

    Raises:
        ConfigError: it does not read one, or no row is rendered with it.
    """
    if recipe is None:
        return ""
    variables_by_section = {
        "tokenizer": recipe.tokenizer.chat_template_kwargs,
        "serving": recipe.serving.chat_template_kwargs,
    }
    fields = [f"{section}.chat_template_kwargs" for section, variables in variables_by_section.items() if variables]
    if not fields:
        return ""
    from bridgepack.data.templates.variables import refuse_unread_variables
    from bridgepack.data.tokenizers.local_template import LocalTemplate, local_template  # jinja2 is slow to import

    template = local_template(recipe.tokenizer)
    refuse_unread_variables(recipe, template or LocalTemplate(chat_template=None))
    verb = "are" if len(fields) > 1 else "is"
    return "" if template else f"note: {' and '.join(fields)} {verb} checked by `build`, which loads the tokenizer"
