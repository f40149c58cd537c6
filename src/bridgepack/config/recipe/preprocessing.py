"""How an example becomes tokens and a loss mask: chat, prompt-completion, plain text, or pre-tokenised."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from bridgepack.config.recipe.assistant_markers import AssistantMarkers
from bridgepack.config.recipe.replaced import refuse_columns
from bridgepack.config.section import Before, Flag, Section
from bridgepack.host import HostRelease

#: Fields that say in which form turns are given to the chat template.
FORM_FIELDS = ("null_content", "tool_arguments", "content_parts")
OverLong = Literal["drop", "truncate", "split", "error"]
OverLongChat = Literal[OverLong, "truncate_history", "split_exchanges"]


class _Common(Section):
    over_long: OverLong = "drop"
    """For sequences longer than `packing.max_sequence_length`: `drop` (recorded in the ledger), `truncate`, `split`
    into several sequences that keep every trained token, or `error` (stop the build)."""
    labels_after_eos: Annotated[Literal["mask", "train"], Before("train")] = "mask"
    """For labels whose input is EOS, such as the newline after a turn's end: `mask` does not train them in any release
    of Megatron-Bridge; `train` keeps them in the mask of the packs, where 0.7 trains them and 0.6 does not."""
    others: Annotated[tuple["Preprocessing", ...], Before([])] = ()
    """Settings for sources whose layout is of another kind, one section for each kind, e.g. `[{kind: text, over_long:
    split}]` for documents among chats. A kind without a section has its defaults, and `over_long` and
    `labels_after_eos` as they are here."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_columns(cls, values: Any) -> Any:
        refuse_columns(get_args(cls.model_fields["kind"].annotation)[0], values)
        return values

    def of_kind(self, kind: str) -> "Preprocessing":
        """Return the settings for rows of a kind: these, its section in `others`, or its defaults."""
        if kind == self.kind:  # type: ignore[attr-defined]
            return self  # type: ignore[return-value]
        section_of_kind = next((section for section in self.others if section.kind == kind), None)
        if section_of_kind is not None:
            return section_of_kind
        common_settings = {"over_long": self.over_long, "labels_after_eos": self.labels_after_eos}
        return PREPROCESSING_KINDS[kind].model_validate({"kind": kind, **common_settings})  # type: ignore[return-value]

    @model_validator(mode="after")
    def _check_others(self) -> Self:
        kinds = [self.kind, *(section.kind for section in self.others)]  # type: ignore[attr-defined]
        twice = next((kind for index, kind in enumerate(kinds) if kind in kinds[:index]), None)
        if twice is not None:
            raise ValueError(f"others has a section of kind {twice}, whose settings are given already. Remove one.")
        for index, section in enumerate(self.others):
            if section.others:
                raise ValueError(
                    f"others.{index}.others is set; sections of others cannot be nested. List all of them in others."
                )
            if section.labels_after_eos != self.labels_after_eos:
                raise ValueError(
                    f"others.{index}.labels_after_eos is {section.labels_after_eos}, and labels_after_eos is "
                    f"{self.labels_after_eos}; an artifact has one value for all rows. Set both to the same."
                )
        return self


class ChatPreprocessing(_Common):
    """Conversations rendered with the tokenizer's chat template.

    The same settings as Megatron-Bridge's `ChatSFTPreprocessingConfig` give the same tokens and mask for texts; with
    `keep` for `null_content`, `tool_arguments` and `content_parts`, for every row.
    """

    over_long: OverLongChat = "drop"  # type: ignore[assignment]  # chats have two values more
    """For sequences longer than `packing.max_sequence_length`: `drop` (recorded in the ledger), `truncate`, `split`
    into several sequences that keep every trained token (cut from tokens: later ones lack the system prompt, the
    tools and what was said before), `error` (stop the build), `split_exchanges` or `truncate_history`.
    `split_exchanges` makes several sequences, each the system prompt and the tools, rendered again, and as many
    whole exchanges as fit; every answer is trained in one, and an exchange that alone is too long is cut from
    tokens like `split`; needs `loss_mode: assistant` and `split_conversations: never`. With `truncate_history`
    whole old exchanges are left out, each from a user's turn to the next, calls with their results, until the
    render fits. The system prompt and the tools stay; a row whose last exchange alone is too long is dropped."""
    kind: Literal["chat"] = "chat"
    """Selects this kind of preprocessing."""
    loss_mode: Literal["assistant", "last_turn", "full"] = "assistant"
    """Trained tokens: all assistant turns, the last assistant turn, or everything."""
    tool_schemas: tuple[dict[str, Any], ...] | None = None
    """Tool schemas for rows without their own."""
    control_tokens: Literal["keep", "drop"] = "keep"
    """For rows whose text contains a control token such as `<|im_start|>`: `keep` those with an unambiguous mask, as
    Megatron-Bridge does, or `drop` all."""
    on_lost_content: Literal["keep", "drop", "error"] = "keep"
    """For rows whose content the chat template loses or garbles, such as a tool call: `keep` them as Megatron-Bridge
    does (counted, and an error of `bridgepack check`), `drop` them, or `error` (stop the build)."""
    null_content: Literal["auto", "keep", "empty"] = "auto"
    """For turns whose content is null, often tool calls: `auto` passes null or an empty text, whichever the template
    shows right beside a call, and an empty text elsewhere; `keep` passes what Megatron-Bridge passes, 0.6 null and 0.7
    an empty text; `empty` passes an empty text. With `auto`, an empty text beside a call counts as null."""
    tool_arguments: Literal["auto", "keep", "object", "text"] = "auto"
    """Arguments of tool calls, an object or its JSON text (OpenAI's format): `auto` passes the form that the template
    shows right, an object if it shows both, and `{}` for a call without arguments; `keep` passes what Megatron-Bridge
    passes, 0.6 as they are and 0.7 as with `object`; `object` parses text and drops rows whose text is not a JSON
    object; `text` turns objects into JSON text."""
    content_parts: Literal["auto", "keep", "join_text", "drop"] = "auto"
    """For turns whose content is a list of parts, such as `{type: text, text: ...}`: `auto` joins the texts, or passes
    parts of this form if the template shows no other, and leaves a list with other parts as it is; `keep` passes the
    list, as Megatron-Bridge does; `join_text` joins the texts and drops rows with other parts; `drop` drops every row
    with parts."""
    message_weights: Literal["ignore", "mask"] = "ignore"
    """For turns with `weight: 0`, `train: false` or `training: false`: `ignore` trains them, as Megatron-Bridge does;
    `mask` does not train them, and drops rows with other weights."""
    empty_answers: Annotated[Literal["keep", "drop"], Before("keep")] = "keep"
    """For answers without a text, calls or a refusal: `keep` trains them as they are, an end at once, as
    Megatron-Bridge does (counted); `drop` drops their rows."""
    inline_thoughts: Annotated[Literal["keep", "move"], Before("keep")] = "keep"
    """For answers that begin with a thought under markers that the chat template does not know, such as
    `<|begin_of_thought|>` or `<reasoning>`: `keep` leaves them in the text (counted); `move` puts the thought where the
    template has thoughts, and leaves the markers out. Thoughts without an end, and nested ones, stay text."""
    split_conversations: Annotated[Literal["never", "when_context_differs"], Before("never")] = "never"
    """For templates that show an answer otherwise once the conversation goes on, e.g. without its reasoning: `never`
    makes one sequence of a conversation; `when_context_differs` makes as few as show the trained answers as the last
    turn of their conversation. Each ends with an answer, and each answer is trained in one. That is as a server shows
    them, but for templates that write the turns before an answer otherwise once it follows, as LFM2.5's keeps the
    thought of the last answer only: such answers stay as they are, and are counted (`served`, BP555). Turns after the
    last trained answer are left out. Rows of which the template refuses a part are dropped."""
    reasoning_loss: Annotated[Literal["keep", "mask", "mask_empty"], Before("keep")] = "keep"
    """Reasoning in trained turns, between the markers of the template's family (`<think>`, gpt-oss's analysis channel):
    `keep` trains it, as Megatron-Bridge does (with `bridge_version: 0.7` not the `<think></think>` or `<think>` that an
    answer begins with, if the template reads `truncate_history_thinking`); `mask` trains only answers, tool calls and
    the closing marker, which the model must write; `mask_empty` masks only empty reasoning blocks, which come from the
    prompt (`mask` masks these too). With `mask_generation_prompt`, which tells who writes an empty block, `mask` trains
    those of the model, and `mask_empty` is not allowed."""
    mask_generation_prompt: Annotated[Flag, Before(False)] = False
    """Train each assistant turn from where the text that a server sends for the turns before it ends, generation prompt
    included: `<think>` or an empty thought in the prompt is not trained, an empty thought that the model must write is.
    Where the training text differs before a turn (an earlier thought that the template omits), the generation prompt
    that the turn shows is masked, or its part before `<think>`; rows that show neither are dropped as
    `no_assistant_mask`, and those with a token across the boundary as `boundary_in_token`. `false` trains what
    Megatron-Bridge trains."""
    masks_control_tokens: Flag = True
    """Never train the tokens that Megatron-Bridge never trains, e.g. `<|im_start|>`, `<|python_tag|>`. `false` trains
    those inside a trained turn; Llama 3's tool calls need that."""
    assistant_markers: AssistantMarkers | None = None
    """Required if the template has no `{% generation %}` block and its family is unknown to Megatron-Bridge."""

    @property
    def fields_on_auto(self) -> tuple[str, ...]:
        """Names of the fields whose form is decided for each chat template."""
        return tuple(name for name in FORM_FIELDS if getattr(self, name) == "auto")

    @model_validator(mode="after")
    def _check_full_loss(self) -> Self:
        if self.message_weights == "mask" and self.loss_mode == "full":
            raise ValueError(
                "message_weights is 'mask' and loss_mode is 'full', which trains everything. Set loss_mode to "
                "assistant or last_turn, or message_weights to ignore."
            )
        if self.mask_generation_prompt and self.loss_mode == "full":
            raise ValueError(
                "mask_generation_prompt is true and loss_mode is 'full', which trains everything. Set loss_mode to "
                "assistant or last_turn, or mask_generation_prompt to false."
            )
        if self.mask_generation_prompt and self.reasoning_loss == "mask_empty":
            raise ValueError(
                "mask_generation_prompt is true and reasoning_loss is 'mask_empty'; mask_generation_prompt masks the "
                "empty blocks that the server writes, and trains those that the model must write. Set reasoning_loss "
                "to keep or mask, or mask_generation_prompt to false."
            )
        if self.reasoning_loss != "keep" and self.loss_mode == "full":
            raise ValueError(
                f"reasoning_loss is {self.reasoning_loss!r} and loss_mode is 'full', which trains everything. Set "
                "loss_mode to assistant or last_turn, or reasoning_loss to keep."
            )
        return self

    @model_validator(mode="after")
    def _check_splitting(self) -> Self:
        modes = self.loss_mode, self.split_conversations
        if self.over_long == "split_exchanges" and modes != ("assistant", "never"):
            raise ValueError(
                f"over_long is 'split_exchanges', loss_mode is {self.loss_mode!r} and split_conversations is "
                f"{self.split_conversations!r}; allowed with it: loss_mode 'assistant' and split_conversations "
                "'never'. Change them, or set over_long to 'truncate_history' or 'split'."
            )
        if self.split_conversations != "never" and self.loss_mode != "assistant":
            raise ValueError(
                f"split_conversations is {self.split_conversations!r} and loss_mode is {self.loss_mode!r}; allowed "
                "with it: assistant, because each sequence trains its own answers. Set loss_mode to assistant, or "
                "split_conversations to never."
            )
        return self


def mended_by_host(settings: ChatPreprocessing, release: HostRelease) -> dict[str, str]:
    """Return field that is `keep` -> the value that does what the release does with rows, of those that it changes."""
    habits = {
        "null_content": ("empty", release.empties_null_content),
        "tool_arguments": ("object", release.parses_call_arguments),
    }
    return {name: value for name, (value, has) in habits.items() if has and getattr(settings, name) == "keep"}


def trims_thought_openings(settings: ChatPreprocessing, release: HostRelease) -> bool:
    """Return whether `reasoning_loss: keep` leaves out what the release leaves out where answers begin with a thought.

    `mask_generation_prompt` says itself where answers begin, and markers of a recipe are of no known family.
    """
    keeps_thoughts = settings.reasoning_loss == "keep" and not settings.mask_generation_prompt
    is_found_by_family = settings.assistant_markers is None and settings.loss_mode != "full"
    return keeps_thoughts and is_found_by_family and release.trims_thought_openings


class PromptCompletionPreprocessing(_Common):
    """Two text columns, tokenised separately and joined, without a chat template.

    The same settings as Megatron-Bridge's `PromptCompletionSFTPreprocessingConfig` give the same tokens and mask.
    """

    kind: Literal["prompt_completion"]
    """Selects this kind of preprocessing."""
    separator: Annotated[str, Field(min_length=0)] = ""
    """Text between prompt and completion; it is tokenised with the completion."""
    loss_mode: Literal["completion", "full"] = "completion"
    """Trained tokens: the completion, or everything."""
    strip_whitespace: Flag = True
    """Strip leading and trailing spaces (not other white space) from both columns."""
    add_bos: Flag = False
    """Prepend the tokenizer's BOS token."""
    add_sep: Flag = False
    """Insert the tokenizer's SEP token between prompt and completion."""
    add_eos: Flag = True
    """Append the tokenizer's EOS token."""
    ends_cut_completions: Flag = True
    """With `over_long: truncate`: append EOS also to completions whose end was cut off, as Megatron-Bridge does; this
    teaches the model to stop early. `false` omits it there."""
    truncation_method: Literal["left", "right"] = "right"
    """With `over_long: truncate`: the side to cut, first of the prompt, then of the completion. `right` keeps the
    beginning, so it can cut off a question at the end of a long prompt."""
    masks_control_tokens: Flag = True
    """Never train the tokens that Megatron-Bridge never trains, e.g. `<|im_start|>`, `<|python_tag|>`."""


class TokenizedPreprocessing(_Common):
    """Rows that already hold token ids, with a loss mask or labels."""

    kind: Literal["tokenized"]
    """Selects this kind of preprocessing."""


class TextPreprocessing(_Common):
    """Plain documents: all of their text is trained, and EOS ends each.

    A document is one sequence of its own: no token of it sees another document. Without BOS, as Megatron-LM's
    pre-training data (`preprocess_data.py --append-eod`).
    """

    kind: Literal["text"]
    """Selects this kind of preprocessing."""
    add_bos: Flag = False
    """Prepend the tokenizer's BOS token. Gemma needs that, and Llama 3 was pre-trained with it."""
    add_eos: Flag = True
    """Append the tokenizer's EOS token, so that the model learns where a document ends."""


Preprocessing = Annotated[
    ChatPreprocessing | PromptCompletionPreprocessing | TextPreprocessing | TokenizedPreprocessing,
    Field(discriminator="kind"),
]
#: Kind -> its section.
PREPROCESSING_KINDS: Mapping[str, type[Section]] = {
    "chat": ChatPreprocessing,
    "prompt_completion": PromptCompletionPreprocessing,
    "text": TextPreprocessing,
    "tokenized": TokenizedPreprocessing,
}
