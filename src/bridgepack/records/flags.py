"""An added token whose flags Megatron-Core takes away, so that a server cuts texts into other tokens; and the cure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class LostFlags:
    """An added token with flags that Megatron-Core's wrapper takes away, which changes the tokens beside it."""

    token: str
    flags: tuple[str, ...]  #: e.g. `rstrip`: the white space behind the token belongs to it
    names: tuple[str, ...]  #: special tokens that the wrapper sets to it, because the tokenizer has none

    @property
    def loss(self) -> str:
        """What is lost, in a sentence without an end."""
        return (
            f"Megatron-Core sets {_and(self.names)} to {self.token!r}, which takes its {_and(self.flags)} away; "
            "a server does not, so it cuts the same text into other tokens"
        )

    @property
    def cure(self) -> str:
        """What to do, in a sentence without an end."""
        fields = ", ".join(f"{json.dumps(name)}: {json.dumps(self.token, ensure_ascii=False)}" for name in self.names)
        return (
            f"add {fields} to the tokenizer's tokenizer_config.json (of a copy in a folder, named by "
            "tokenizer.name_or_path, if it comes from the hub)"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the token as a manifest has it."""
        return {"token": self.token, "flags": list(self.flags), "names": list(self.names)}


def lost_flags_in(tokenizer: Mapping[str, Any]) -> tuple[LostFlags, ...]:
    """Return the tokens with lost flags that a manifest's tokenizer names."""
    return tuple(
        LostFlags(token=item["token"], flags=tuple(item["flags"]), names=tuple(item["names"]))
        for item in tokenizer.get("lost_flags", ())
    )


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names)
