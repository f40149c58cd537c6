"""How an example becomes tokens and a loss mask: chat, prompt-completion, or already tokenised."""

import string
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.section import Section

#: Columns that hold a conversation, in the order the host looks (megatron-bridge 0.6.2, conversation_processing.py).
CONVERSATION_COLUMNS = ("messages", "conversation", "conversations")
OverLong = Literal["drop", "truncate", "split", "error"]


class AssistantMarkers(Section):
    """Texts around an assistant turn, for chat templates whose boundaries Megatron-Bridge does not know.

    Examples. DeepSeek-V3: start `[<｜Assistant｜>, <｜tool▁outputs▁end｜>]`, end `<｜end▁of▁sentence｜>`.
    Mistral: start `["[/INST]", "[/TOOL_RESULTS]"]`, end `</s>`, other_role_starts `{tool: "[TOOL_RESULTS]"}`.
    """

    assistant_start: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """Text right before the first trained token of an assistant turn; a list where it has another behind the results
    of tools. Of several, one that another turn or the end follows at once begins nothing."""
    assistant_end: str
    """Text that ends an assistant turn; it is trained, so that the model learns to stop."""
    assistant_end_fallbacks: tuple[str, ...] = ()
    """Other texts that may end an assistant turn."""
    other_role_starts: dict[str, str] = Field(default_factory=dict)
    """Role -> text that starts a turn of that role, e.g. `{user: "<｜User｜>"}`."""
    joins_starts: bool = False
    """An assistant turn may hold several starts, as gpt-oss's channels do: starts with no other turn between them are
    one turn, trained from behind the first start to the last end. `other_role_starts` must then have the start of every
    other turn, e.g. `{any: "<|start|>"}`."""

    @property
    def starts(self) -> tuple[str, ...]:
        """Every text of `assistant_start`."""
        return (self.assistant_start,) if isinstance(self.assistant_start, str) else self.assistant_start

    @model_validator(mode="after")
    def _check_other_starts(self) -> Self:
        if self.joins_starts and not self.other_role_starts:
            raise ValueError(
                "joins_starts is true and other_role_starts is empty, so nothing tells where another turn begins. Give "
                'the start of every other turn, e.g. {any: "<|start|>"}.'
            )
        return self


class _Common(Section):
    over_long: OverLong = "drop"
    """A sequence longer than `packing.max_sequence_length`: `drop` it (with a reason in the ledger), `truncate` it,
    `split` it into several sequences with every trained token, or stop the build (`error`)."""


class ChatPreprocessing(_Common):
    """Conversations rendered with the tokenizer's chat template.

    The same settings as Megatron-Bridge's `ChatSFTPreprocessingConfig` give the same tokens and the same mask.
    """

    kind: Literal["chat"] = "chat"
    """Chooses this kind of preprocessing."""
    loss_mode: Literal["assistant", "last_turn", "full"] = "assistant"
    """Tokens trained: every assistant turn, the last assistant turn, or everything."""
    conversation_column: str | None = None
    """Column with the list of turns; by default the first of `messages`, `conversation`, `conversations`."""
    prompt_column: str = "prompt"
    """Rows without a conversation: column with the user's text; becomes a user turn."""
    completion_column: str = "completion"
    """Rows without a conversation: column with the assistant's text; becomes an assistant turn."""
    tools_column: str = "tools"
    """Column with the row's tool schemas: a list, or JSON text of one."""
    tool_schemas: tuple[dict[str, Any], ...] | None = None
    """Tool schemas for rows that have none of their own."""
    chat_template_kwargs_column: str | None = None
    """Column with variables for the chat template, an object or JSON text of one; they go before
    `tokenizer.chat_template_kwargs`."""
    control_tokens: Literal["keep", "drop"] = "keep"
    """Rows whose text holds a control token such as `<|im_start|>`: `keep` those with an unambiguous mask, as
    Megatron-Bridge does, or `drop` all."""
    on_lost_content: Literal["keep", "drop", "error"] = "keep"
    """Rows of which the chat template loses or garbles something, such as a tool call: `keep` them as Megatron-Bridge
    does (counted, an error of `bridgepack check`), `drop` them, or stop the build (`error`)."""
    null_content: Literal["keep", "empty"] = "keep"
    """A turn whose content is null (tool calls often are): `keep` hands null to the template, as Megatron-Bridge does;
    `empty` an empty text, which more templates accept."""
    tool_arguments: Literal["keep", "object", "text"] = "keep"
    """Arguments of tool calls: `keep` hands them to the template as they are, as Megatron-Bridge does; `object` parses
    JSON text, OpenAI's form, first, and drops a row whose text is no JSON object; `text` makes JSON text of objects,
    which DeepSeek-V3's template needs."""
    content_parts: Literal["keep", "join_text", "drop"] = "keep"
    """A turn whose content is a list of parts (`{type: text, text: ...}`): `keep` hands the list to the template, as
    Megatron-Bridge does; `join_text` joins the texts and drops rows with other parts; `drop` drops every row with
    parts."""
    message_weights: Literal["ignore", "mask"] = "ignore"
    """Turns with `weight: 0`, `train: false` or `training: false`: `ignore` trains them, as Megatron-Bridge does;
    `mask` does not, and drops rows with another weight."""
    reasoning_loss: Literal["keep", "mask", "mask_empty"] = "keep"
    """Thoughts in trained turns, between the markers of the template's family (`<think>`, gpt-oss's analysis channel):
    `keep` trains them, as Megatron-Bridge does; `mask` trains only answers, calls and the closing marker, which the
    model must write; `mask_empty` leaves out only blocks without a thought, which prompts write (`mask` does, too)."""
    masks_control_tokens: bool = True
    """Never train the tokens that Megatron-Bridge never trains, e.g. `<|im_start|>`, `<|python_tag|>`. False trains
    them where they lie inside a trained turn; Llama 3's tool calls need that."""
    assistant_markers: AssistantMarkers | None = None
    """Needed where the template has no `{% generation %}` block and is of no family that Megatron-Bridge knows."""

    @property
    def columns_read(self) -> dict[str, str]:
        """What a source's `columns` can name -> the column that is read."""
        kwargs = self.chat_template_kwargs_column
        return {
            "messages": self.conversation_column or "messages",
            "tools": self.tools_column,
            "system": "system",
            "prompt": self.prompt_column,
            "completion": self.completion_column,
            **({"chat_template_kwargs": kwargs} if kwargs else {}),
        }

    @model_validator(mode="after")
    def _check_full_loss(self) -> Self:
        if self.message_weights == "mask" and self.loss_mode == "full":
            raise ValueError(
                "message_weights is 'mask' and loss_mode is 'full', which trains everything. Set loss_mode to "
                "assistant or last_turn, or message_weights to ignore."
            )
        if self.reasoning_loss != "keep" and self.loss_mode == "full":
            raise ValueError(
                f"reasoning_loss is {self.reasoning_loss!r} and loss_mode is 'full', which trains everything. Set "
                "loss_mode to assistant or last_turn, or reasoning_loss to keep."
            )
        return self


class PromptCompletionPreprocessing(_Common):
    """Two text columns, tokenised separately and joined, without a chat template.

    The same settings as Megatron-Bridge's `PromptCompletionSFTPreprocessingConfig` give the same tokens and mask.
    """

    kind: Literal["prompt_completion"]
    """Chooses this kind of preprocessing."""
    prompt_column: str = "prompt"
    """Column with the prompt."""
    completion_column: str = "completion"
    """Column with the completion."""
    prompt_template: str = "{prompt}"
    """Format of the prompt before tokenisation; its only placeholder is `{prompt}`."""
    separator: Annotated[str, Field(min_length=0)] = ""
    """Text between prompt and completion; it is tokenised with the completion."""
    loss_mode: Literal["completion", "full"] = "completion"
    """Tokens trained: the completion, or everything."""
    strip_whitespace: bool = True
    """Strip leading and trailing spaces (not other white space) from both columns."""
    add_bos: bool = False
    """Put the tokenizer's BOS token first."""
    add_sep: bool = False
    """Put the tokenizer's SEP token between prompt and completion."""
    add_eos: bool = True
    """Put the tokenizer's EOS token last."""
    ends_cut_completions: bool = True
    """With `over_long: truncate`: put EOS also after a completion whose end was cut off, as Megatron-Bridge does, which
    teaches the model to stop early. False leaves it out there."""
    truncation_method: Literal["left", "right"] = "right"
    """With `over_long: truncate`: the side cut from the prompt first, then from the completion. `right` keeps the
    beginning, so it can lose the question at the end of a long prompt."""
    masks_control_tokens: bool = True
    """Never train the tokens that Megatron-Bridge never trains, e.g. `<|im_start|>`, `<|python_tag|>`."""

    @property
    def columns_read(self) -> dict[str, str]:
        """What a source's `columns` can name -> the column that is read."""
        return {"prompt": self.prompt_column, "completion": self.completion_column}

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.prompt_column == self.completion_column:
            raise ValueError(
                f"prompt_column and completion_column are both {self.prompt_column!r}; they must differ. "
                "Name the two columns of the data."
            )
        return self

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        try:
            parts = list(string.Formatter().parse(self.prompt_template))
        except ValueError:
            parts = []
        if {tuple(part) for _, *part in parts if part[0] is not None} != {("prompt", "", None)}:
            raise ValueError(
                f"prompt_template is {self.prompt_template!r}; its only placeholder must be {{prompt}}. "
                "Write other braces twice: {{ and }}."
            )
        return self


class TokenizedPreprocessing(_Common):
    """Rows that hold token ids already, with a loss mask or with labels."""

    kind: Literal["tokenized"]
    """Chooses this kind of preprocessing."""
    input_ids_column: str = "input_ids"
    """Column with the token ids."""
    loss_mask_column: str | None = None
    """Column with a token-aligned mask of 0 and 1; by default `loss_mask` where a row has it."""
    labels_column: str | None = None
    """Column with labels, not shifted: the token itself where it is trained, -100 where not, as Hugging Face has it;
    by default `labels` where a row has it and has no mask."""

    @property
    def columns_read(self) -> dict[str, str]:
        """What a source's `columns` can name -> the column that is read."""
        mask, labels = self.loss_mask_column or "loss_mask", self.labels_column or "labels"
        return {"input_ids": self.input_ids_column, "loss_mask": mask, "labels": labels}

    @model_validator(mode="after")
    def _check_one_mask(self) -> Self:
        if self.loss_mask_column is not None and self.labels_column is not None:
            raise ValueError(
                f"loss_mask_column is {self.loss_mask_column!r} and labels_column is {self.labels_column!r}; "
                "only one of them can be set. Remove one."
            )
        return self


Preprocessing = Annotated[
    ChatPreprocessing | PromptCompletionPreprocessing | TokenizedPreprocessing, Field(discriminator="kind")
]
