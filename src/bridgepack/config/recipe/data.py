"""Data sources, bad-row handling, and the tokenizer."""

import datetime
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.recipe.sources import MixtureConfig, Sources, check_weights, listed, weight_of
from bridgepack.config.section import Section

#: Chat template variables that bridgepack sets itself.
OWN_TEMPLATE_VARIABLES = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now"})

Role = Literal["system", "developer", "user", "assistant", "tool", "function_call", "observation"]


class DataConfig(Section):
    """Inputs of the build."""

    train: Sources
    """Training data: a file, a folder, a glob, a data set saved with `save_to_disk`, a `DataSource` section, or
    a list of these. Files: .jsonl, .json (an array), each also .gz or .zst; .parquet, .arrow. Relative paths start at
    the current folder."""
    validation: Sources | None = None
    """Validation data, as `train`; none by default."""
    mixture: MixtureConfig = MixtureConfig()
    """How weighted sources are mixed."""
    validation_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Fraction (0-1) of the training rows set aside for validation, chosen per row by the seed."""
    on_bad_row: Literal["drop", "error"] = "drop"
    """`drop`: drop rows that cannot become sequences and record the reason in the ledger; `error`: stop the build."""
    deduplicate: Literal["none", "exact"] = "none"
    """`exact`: of rows with equal tokens and mask only the first is kept (validation before training, then in order);
    the others are dropped and recorded in the ledger."""
    max_row_bytes: Annotated[int, Field(ge=1, strict=True)] = 1 << 25
    """Maximum size of a row in bytes, of its JSON or, in columnar files, its values; larger rows are dropped unread."""
    role_aliases: dict[str, Role] = Field(default_factory=dict)
    """Extra role name (case-insensitive) -> role, e.g. `{bard: assistant}`. Built in: human, gpt, function_call,
    function_response, observation."""

    @model_validator(mode="after")
    def _check_one_validation_source(self) -> Self:
        if self.validation is not None and self.validation_fraction > 0:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction} and validation is {self.validation!r}; "
                "only one of them can be set. Remove validation_fraction or validation."
            )
        return self

    @model_validator(mode="after")
    def _check_mixture(self) -> Self:
        for split in ("train", "validation"):
            check_weights(listed(getattr(self, split)), split, takes_epochs=True)
        if self.mixture.total is not None and all(weight_of(source) is None for source in listed(self.train)):
            raise ValueError(
                f"mixture.total is {self.mixture.total}, and no source of train has a weight. Remove it, or set "
                "weights."
            )
        return self

    @model_validator(mode="after")
    def _check_role_aliases(self) -> Self:
        for first, second in combinations(self.role_aliases, 2):
            if first.lower() == second.lower() and self.role_aliases[first] != self.role_aliases[second]:
                raise ValueError(
                    f"role_aliases[{first!r}] is {self.role_aliases[first]!r} and role_aliases[{second!r}] is "
                    f"{self.role_aliases[second]!r}; role names are case-insensitive. Remove one of them."
                )
        return self


class TokenizerConfig(Section):
    """The Hugging Face tokenizer that the model is trained with."""

    name_or_path: str
    """A folder with tokenizer files, or an id on the Hugging Face hub."""
    revision: str | None = None
    """Commit, tag or branch on the hub."""
    chat_template: str | None = None
    """Path of a Jinja file that replaces the tokenizer's chat template. Set the same template on Megatron-Bridge's
    tokenizer, not through `dataset_kwargs`."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables for the chat template, e.g. `{enable_thinking: false}`. Rows may set their own:
    `preprocessing.chat_template_kwargs_column`."""
    template_date: datetime.date | None = None
    """Date that `strftime_now` returns in the chat template, e.g. `2025-06-30`. Without it, the templates of Llama 3
    and gpt-oss insert the build date, so the rows depend on the day of the build."""
    loader: Literal["transformers", "tokenizer_json"] = "transformers"
    """`transformers`: `AutoTokenizer`, as Megatron-Bridge loads it; `tokenizer_json`: tokenizer.json unchanged, for
    tokenizers that transformers loads as a class that loses spaces (transformers 5.12 with DeepSeek-V3)."""
    engine: Literal["auto", "tokenizers", "gigatoken", "fastokens"] = "auto"
    """Library that encodes text. `tokenizers` is the reference; `gigatoken` and `fastokens` (extra `fast`) are much
    faster and are used only if they give the same tokens on the data; `auto` takes the first that does. The choice
    never changes a token."""
    trust_remote_code: bool = False
    """Run Python code that comes with the tokenizer. Only for tokenizers whose code you have read."""

    @model_validator(mode="after")
    def _check_template_variables(self) -> Self:
        if own := sorted(OWN_TEMPLATE_VARIABLES.intersection(self.chat_template_kwargs)):
            raise ValueError(
                f"chat_template_kwargs has {', '.join(own)}; any other template variable is allowed. "
                "Remove it: messages and tools come from the rows, the date from template_date."
            )
        return self
