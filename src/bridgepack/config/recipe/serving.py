"""What the server that the model is trained for sets: template variables and the system prompt."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from bridgepack.config.recipe.layout import OWN_TEMPLATE_VARIABLES
from bridgepack.config.section import Section


class ServingConfig(Section):
    """What the server sets. Packs do not depend on it; `prove served` compares them with it."""

    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the chat template that the server sets, e.g. `{enable_thinking: false}`, in place of
    `tokenizer.chat_template_kwargs`; by default the same. A row's own variables come on top, as those of a request."""
    system: Annotated[str, Field(min_length=0)] | None = None
    """System prompt of every request, in place of the rows' own; an empty text means none. By default the rows'."""

    @model_validator(mode="after")
    def _check_template_variables(self) -> Self:
        if template_variables := sorted(OWN_TEMPLATE_VARIABLES.intersection(self.chat_template_kwargs or ())):
            raise ValueError(
                f"chat_template_kwargs has {', '.join(template_variables)}; any other template variable is allowed. "
                "Remove it: messages and tools come from the rows, the date from template_date."
            )
        return self
