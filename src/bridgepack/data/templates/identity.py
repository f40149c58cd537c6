"""What a recipe's rows depend on of its tokenizer and chat template: the manifest's section `tokenizer`."""

from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.probe import drops_tool_names, end_of_turn_ids
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer


def identity_of(recipe: SFTRecipe, tokenizer: ChatTokenizer, facts: TemplateFacts | None) -> dict[str, Any]:
    """Return `ChatTokenizer.identity` with facts for rules about tokens, and what is decided for fields on `auto`.

    `facts` as of `TemplateFacts.of_recipe`.
    """
    fields_on_auto = recipe.fields_on_auto
    openings = () if facts is None else facts.trimmed_openings
    return {
        **tokenizer.identity(),
        "end_of_turn_ids": end_of_turn_ids(tokenizer),
        "drops_tool_names": drops_tool_names(tokenizer),
        **({"template": facts.as_json()} if facts is not None else {}),
        **({"forms": facts.forms.decisions(fields_on_auto)} if fields_on_auto and facts is not None else {}),
        **({"trimmed_openings": [list(sequence) for sequence in openings]} if openings else {}),
    }
