"""Where conversations come from and what happens to a bad row."""

import datetime
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.recipe.sources import MixtureConfig, Sources, check_weights, listed, weight_of
from bridgepack.config.section import Section

#: Variables of a chat template that are the conversation's, or the same for every conversation.
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
    """How sources with a weight are mixed."""
    validation_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Fraction (0-1) of the training rows set aside for validation, chosen per row by the seed."""
    on_bad_row: Literal["drop", "error"] = "drop"
    """`drop`: a row that cannot become a sequence goes to the ledger with its reason; `error`: it stops the build."""
    deduplicate: Literal["none", "exact"] = "none"
    """`exact`: of rows with the same tokens and mask only the first stays, validation before training, then in order;
    the others go to the ledger."""
    max_row_bytes: Annotated[int, Field(ge=1, strict=True)] = 1 << 25
    """Largest row in bytes, as JSON or, in columnar files, its values; a larger one is dropped without being read."""
    role_aliases: dict[str, Role] = Field(default_factory=dict)
    """Extra names of roles, in upper or lower case, -> a role, e.g. `{bard: assistant}`. Known: human, gpt,
    function_call, function_response, observation."""

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
                    f"{self.role_aliases[second]!r}; upper and lower case do not count. Remove one of them."
                )
        return self


class TokenizerConfig(Section):
    """The Hugging Face tokenizer that the model is trained with."""

    name_or_path: str
    """A folder with tokenizer files, or an id on the Hugging Face hub."""
    revision: str | None = None
    """Commit, tag or branch on the hub."""
    chat_template: str | None = None
    """Path of a Jinja file that replaces the tokenizer's chat template. Give Megatron-Bridge the same template on the
    tokenizer, not through `dataset_kwargs`."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables that the chat template can read, e.g. `{enable_thinking: false}`. Rows may have their own:
    `preprocessing.chat_template_kwargs_column`."""
    template_date: datetime.date | None = None
    """Day that `strftime_now` tells the chat template, e.g. `2025-06-30`. Without it Llama 3 and gpt-oss write the day
    of the build, and other days give other rows."""
    loader: Literal["transformers", "tokenizer_json"] = "transformers"
    """`transformers`: `AutoTokenizer`, as Megatron-Bridge loads it; `tokenizer_json`: the file as it is, for tokenizers
    that transformers loads as another class that loses spaces (5.12 with DeepSeek-V3)."""
    engine: Literal["auto", "tokenizers", "gigatoken", "fastokens"] = "auto"
    """What encodes texts. `tokenizers` is the reference; `gigatoken` and `fastokens` (extra `fast`) are much faster and
    are used only where they give the same tokens on the data; `auto` takes the first that does. The choice changes no
    token."""
    trust_remote_code: bool = False
    """Run Python code that comes with the tokenizer. Only for tokenizers whose code you have read."""

    @model_validator(mode="after")
    def _check_template_variables(self) -> Self:
        if own := sorted(OWN_TEMPLATE_VARIABLES.intersection(self.chat_template_kwargs)):
            raise ValueError(
                f"chat_template_kwargs has {', '.join(own)}; any other variable of the template is allowed. "
                "Remove it: the rows give messages and tools, template_date gives the day."
            )
        return self
