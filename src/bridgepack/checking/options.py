"""Options of a check and their allowed values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    InstanceOf,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from bridgepack.config.errors import known_names, quote
from bridgepack.config.load import parse_overrides
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError
from bridgepack.rules.judging.judge import check_selectors, select_rules
from bridgepack.rules.judging.rule import Rule
from bridgepack.rules.judging.subject import Environment
from bridgepack.rules.registry import ALL_RULES

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
_INT32_MAX = 2**31 - 1
_Size = Annotated[int, Field(ge=1, le=_INT32_MAX)]
_TokenId = Annotated[int, Field(ge=0, le=_INT32_MAX)]
_Module = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]


def _says(text: str) -> Any:
    return Field(description=text)


_A_SIZE, _A_TOKEN_ID = "a whole number of at least 1", "a token id, a whole number of at least 0"
_SELECTORS = _says("a list of codes such as BP101, beginnings such as BP1, or names")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CheckOptions:
    """Options of a check.

    Attributes:
        artifact: folder of the packs that the run will read, a packed file, or a pattern.
        world_size: number of GPUs (default: from the settings).
        bridge_version: version of megatron-bridge to judge for (default: the recipe's, else the
            environment's, else the installed one, else the target of bridgepack).
        environment: the environment of the run; without it, rules on it are skipped.
        overrides: dotted path -> value.
        select: codes, beginnings of codes or names of the rules to run (default: all).
        ignore: codes, beginnings of codes or names of rules not to run.
        given: facts about an artifact without a manifest, e.g. `{"eos_token_id": 2}`.
        looks_at_files: whether to check the paths in the settings on this machine.
        real_validate: whether the installed megatron-bridge is asked, too: its own validation runs in another process.
        trust_config: modules of yours of which a saved config may name classes and functions as it is validated.
        trust_remote_code: run Python code that comes with the recipe's model or tokenizer, if it says that it has some.
        num_workers: maximum worker processes for an artifact.
        max_examples: maximum places listed per finding.
        progress: receives the progress on the artifact.
    """

    artifact: Annotated[Path | None, _says("a path")] = None
    world_size: Annotated[_Size | None, _says("the number of GPUs, at least 1")] = None
    bridge_version: Annotated[str | None, _says('a text such as "0.6.2"')] = None
    environment: Annotated[
        InstanceOf[Environment] | None,
        _says("an Environment, as bridgepack.bridge.environment.environment_here() gives it"),
    ] = None
    overrides: Annotated[Mapping[str, Any], _says("a dict of dotted paths to values")] = Field(default_factory=dict)
    select: Annotated[Sequence[str], _SELECTORS] = ()
    ignore: Annotated[Sequence[str], _SELECTORS] = ()
    given: Annotated[Mapping[str, Any], _says("a dict of names to values")] = Field(default_factory=dict)
    looks_at_files: Annotated[bool, _says("True or False")] = True
    real_validate: Annotated[bool, _says("True or False")] = False
    trust_config: Annotated[Sequence[_Module], _says("a list of modules, such as mine.models")] = ()
    trust_remote_code: Annotated[bool, _says("True or False")] = False
    num_workers: Annotated[_Size, _says(_A_SIZE)] = 1
    max_examples: Annotated[_Size, _says(_A_SIZE)] = 5
    progress: Annotated[InstanceOf[Progress] | None, _says("an object with start(), advance() and finish()")] = None

    def __post_init__(self) -> None:
        """Check the given facts and the selectors of rules.

        Raises:
            ConfigError: a fact is unknown or has a wrong value, a selector is unknown, or no rule is left; the message
                names the first.
        """
        given_arguments(self.given)
        check_selectors(ALL_RULES, self.select, "--select")
        check_selectors(ALL_RULES, self.ignore, "--ignore")
        if not self.select_rules(ALL_RULES):
            raise ConfigError(f"--ignore {', '.join(self.ignore)} leaves no selected rule to run. Ignore fewer rules.")

    def select_rules[R: Rule](self, rules: Sequence[R]) -> tuple[R, ...]:
        """Return the rules to run."""
        return select_rules(rules, select=self.select, ignore=self.ignore)

    @model_validator(mode="wrap")
    @classmethod
    def _in_plain_words(cls, values: Any, handler: ModelWrapValidatorHandler[CheckOptions]) -> CheckOptions:
        try:
            return handler(values)
        except ValidationError as error:
            fields = cls.__pydantic_fields__  # type: ignore[attr-defined]  # as pydantic documents it
            name = str(error.errors()[0]["loc"][0])
            text = fields[name].description if name in fields else ", ".join(fields)
            raise ConfigError(f"{name} is {quote(values.kwargs[name])}; allowed: {text}.") from None


#: Fact about an artifact without a manifest -> its type, and the allowed values as text.
_GIVEN: Mapping[str, tuple[Any, str]] = {
    "packed_sequence_size": (_Size, f"{_A_SIZE}, in runtime tokens"),
    "pad_seq_to_mult": (_Size, _A_SIZE),
    "eos_token_id": (_TokenId, _A_TOKEN_ID),
    "bos_token_id": (_TokenId, _A_TOKEN_ID),
    "vocab_size": (_Size, _A_SIZE),
    "padded_vocab_size": (_Size, _A_SIZE),
    "loss_mode": (Literal["assistant", "last_turn", "completion", "full"], "assistant, last_turn, completion, full"),
    "end_of_turn_ids": (Sequence[_TokenId], "a list of token ids, e.g. [151645]"),
    "never_trained": (Mapping[str, _TokenId], "a mapping of texts to token ids, e.g. {<think>: 151667}"),
    "expects_bos": (bool, "true or false"),
}


#: Environment variable that keeps `launch` from asking the installed megatron-bridge: 0.
_ASKED_VARIABLE = "BRIDGEPACK_REAL_VALIDATE"


def is_asked_by_default() -> bool:
    """Return whether commands that start a run let the installed megatron-bridge validate it, too."""
    return os.environ.get(_ASKED_VARIABLE) != "0"


def parse_given(items: Sequence[str]) -> dict[str, Any]:
    """Return facts about an artifact from `name=value` texts.

    Raises:
        ConfigError: a name is unknown, or a value is not allowed.
    """
    for item in items:
        if not item.partition("=")[0].strip() or "=" not in item:
            raise ConfigError(f"--given {quote(item)}; allowed: name=value, e.g. --given packed_sequence_size=4096.")
    return given_arguments(parse_overrides(tuple(items), option="--given"))


def given_arguments(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts about an artifact as arguments of `CheckContext`.

    Raises:
        ConfigError: a name is unknown, or a value is not allowed.
    """
    for name, value in facts.items():
        if name not in _GIVEN:
            raise ConfigError(f"--given {name}; {known_names(str(name), list(_GIVEN))}")
        kind, text = _GIVEN[name]
        try:
            TypeAdapter(kind).validate_python(value, strict=True)
        except ValidationError:
            raise ConfigError(f"--given {name} is {quote(value)}; allowed: {text}.") from None
    return {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}


def named_environment(name: str | Path | None) -> Environment | None:
    """Return the environment for `here` or for a file that lists distributions; None for None.

    Raises:
        ConfigError: the file cannot be read, or lists no distribution.
    """
    if name is None:
        return None
    from bridgepack.bridge.environment import READABLE, environment_from_file, environment_here

    if not str(name).strip():
        raise ConfigError(f"--environment is {str(name)!r}; allowed: here, or a file with {READABLE}.")
    return environment_here() if str(name) == "here" else environment_from_file(Path(name))
