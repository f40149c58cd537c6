"""Texts around an assistant turn, for chat templates of no known family."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from bridgepack.config.section import Before, Flag, Section


class AssistantMarkers(Section):
    """Texts around an assistant turn, for chat templates whose turn boundaries Megatron-Bridge does not know.

    Examples. DeepSeek-V3: start `[<｜Assistant｜>, <｜tool▁outputs▁end｜>]`, end `<｜end▁of▁sentence｜>`.
    Mistral: start `["[/INST]", "[/TOOL_RESULTS]"]`, end `</s>`, other_role_starts `{tool: "[TOOL_RESULTS]"}`.
    GLM-4.6, whose turns end with the next one's marker: start `<|assistant|>`, stop_token `["<|user|>",
    "<|observation|>"]`, other_role_starts `{user: "<|user|>", tool: "<|observation|>", system: "<|system|>"}`.
    """

    assistant_start: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """Text right before the first trained token of an assistant turn; a list if the text after tool results differs. A
    start that is directly followed by another turn or the end of the text is ignored."""
    assistant_end: str | None = None
    """Text that ends an assistant turn. It is trained, so that the model learns to stop. Where the next turn's marker
    or the text ends a turn, leave it out and set `stop_token` or `learns_no_end`, and every `other_role_starts`."""
    assistant_end_fallbacks: tuple[str, ...] = ()
    """Other texts that may end an assistant turn."""
    other_role_starts: dict[str, str] = Field(default_factory=dict)
    """Role -> text that starts a turn of that role, e.g. `{user: "<｜User｜>"}`."""
    joins_starts: Flag = False
    """One answer may contain several starts, as with gpt-oss's channels: it is trained from after its first start to
    its last end. Two answers in a row stay two, and the second's first start is not trained. `other_role_starts` must
    list the start of every other turn, e.g. `{any: "<|start|>"}`."""

    stop_token: Annotated[str | Annotated[tuple[str, ...], Field(min_length=1)] | None, Before(None)] = None
    """In place of `assistant_end`: the token with which the next turn begins and at which the server stops, or a list
    of them. Trained as a turn's last label where it follows; an answer at the text's end learns no stop."""
    learns_no_end: Annotated[Flag, Before(False)] = False
    """In place of `assistant_end`: `true` trains an answer up to the next turn or the text's end, and nothing to stop
    with."""

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts of `assistant_start`."""
        return (self.assistant_start,) if isinstance(self.assistant_start, str) else self.assistant_start

    @property
    def ends(self) -> tuple[str, ...]:
        """Every text that is trained as the end of an assistant turn, preferred first."""
        if self.assistant_end is not None:
            return (self.assistant_end, *self.assistant_end_fallbacks)
        return (self.stop_token,) if isinstance(self.stop_token, str) else self.stop_token or ()

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        fields = [name for name in ("assistant_end", "stop_token", "learns_no_end") if getattr(self, name)]
        if not fields:
            raise ValueError(
                "assistant_end is not set, so it is unknown what the model learns to stop with. Set assistant_end to "
                "the text that ends a turn. If the next turn's marker ends it, set stop_token to that token, e.g. "
                '"<|user|>", or learns_no_end to true.'
            )
        if len(fields) > 1:
            raise ValueError(f"{' and '.join(fields)} are set; a turn has one kind of end. Remove all but one.")
        if self.assistant_end is None and self.assistant_end_fallbacks:
            raise ValueError(
                f"assistant_end_fallbacks is {list(self.assistant_end_fallbacks)!r} and assistant_end is not set. Set "
                "assistant_end, or list the tokens as stop_token."
            )
        if self.assistant_end is None and not self.other_role_starts:
            raise ValueError(
                f"{fields[0]} is set and other_role_starts is empty, so it is unknown where a turn ends. Give the "
                'start of every other turn, e.g. {user: "<|user|>", tool: "<|observation|>"}.'
            )
        return self

    @model_validator(mode="after")
    def _check_other_starts(self) -> Self:
        if self.joins_starts and not self.other_role_starts:
            raise ValueError(
                "joins_starts is true and other_role_starts is empty, so the start of other turns is unknown. Give "
                'the start of every other turn, e.g. {any: "<|start|>"}.'
            )
        return self
