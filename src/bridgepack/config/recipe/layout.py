"""How a row is read: which columns become turns, prompt and completion, a document's text, or token ids."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from bridgepack.config.section import Section

#: Variables of the chat template that no row may set, because bridgepack or Megatron-Bridge does.
OWN_TEMPLATE_VARIABLES = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "strftime_now"),
        # Source: megatron-bridge 0.7, data/conversation_processing.py, which refuses rows with these.
        *("chat_template", "continue_final_message", "max_length", "padding", "return_assistant_tokens_mask"),
        *("return_dict", "return_tensors", "tokenize", "truncation"),
    }
)
Role = Literal["system", "developer", "user", "assistant", "tool"]
#: A doubled brace, a column in braces, or a brace that is neither.
_BRACES = re.compile(r"\{\{|\}\}|\{(?P<column>[^{}]+)\}|[{}]")
#: Beginning of the name, in `ignore`, of a field of turns: `messages.id`.
TURN_FIELD = "messages."


class Column(NamedTuple):
    """A column in a text, `{context}`; a dotted path names a value inside it, `{answers.text.0}`."""

    path: str

    @property
    def name(self) -> str:
        """The column, if no column has the whole path as its name."""
        return self.path.partition(".")[0]

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has the column, whatever stands at the path inside it."""
        return self.path in row or self.name in row


def parts_of(text: str) -> tuple[str | Column, ...]:
    """Return a text's literal parts and its columns, in order: `A: {b}` -> ("A: ", Column("b")).

    Raises:
        ValueError: a single brace belongs to no column.
    """
    parts: list[str | Column] = []
    place = 0
    for brace in _BRACES.finditer(text):
        parts.append(text[place : brace.start()])
        place = brace.end()
        if brace["column"] is not None and not brace["column"].isspace():
            parts.append(Column(brace["column"]))
        elif brace[0] in {"{{", "}}"}:
            parts.append(brace[0][0])
        else:
            raise ValueError(f" is {text!r}; a column is written {{name}}, any other brace doubled: {{{{ and }}}}.")
    parts.append(text[place:])
    return tuple(part for part in parts if part)


def columns_in(text: str) -> tuple[Column, ...]:
    """Return the columns in a text, in order."""
    return tuple(part for part in parts_of(text) if isinstance(part, Column))


def _checked_text(text: str) -> str:
    if not columns_in(text):
        raise ValueError(f" is {text!r}; it must name a column of the data in braces, e.g. {{question}}. Name one.")
    return text


def _checked_piece(text: str) -> str:
    parts_of(text)
    return text


#: A text with columns in braces.
Text = Annotated[str, AfterValidator(_checked_text)]
_Piece = Annotated[str, AfterValidator(_checked_piece)]


def _shape(value: Any) -> str:
    return "as pieces" if isinstance(value, (list, tuple)) else "as text"


#: A text, or pieces: one whose columns are all empty is left out, the others are joined by a blank line.
Texts = Annotated[
    Annotated[_Piece, Tag("as text")] | Annotated[tuple[_Piece, ...], Field(min_length=1), Tag("as pieces")],
    Discriminator(_shape),
]


def pieces_of(texts: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the pieces of a text."""
    return (texts,) if isinstance(texts, str) else texts


def _refuse_constant(texts: str | tuple[str, ...] | None, field: str, *, is_constant_allowed: bool = False) -> None:
    pieces = pieces_of(texts or ())
    if pieces and not is_constant_allowed and not any(map(columns_in, pieces)):
        constants = texts if isinstance(texts, str) else list(pieces)
        raise ValueError(f"{field} is {constants!r}; it must name a column of the data in braces, e.g. {{question}}.")


def _checked_name(name: str) -> str:
    if name[0] == "{" and name[-1] == "}":
        raise ValueError(f" is {name!r}; here, a column is named without braces. Write {name[1:-1]}.")
    return name


#: Name of a column, or a path to a value inside it.
Name = Annotated[str, AfterValidator(_checked_name)]
Names = Annotated[
    Annotated[Name, Tag("as name")] | Annotated[tuple[Name, ...], Field(min_length=1), Tag("as names")],
    Discriminator(lambda value: "as names" if isinstance(value, (list, tuple)) else "as name"),
]


class TurnsFromColumn(Section):
    """The turns in a column, in their order."""

    from_column: Name
    """Column with a list of turns, OpenAI's (`role`, `content`) or ShareGPT's (`from`, `value`), or its JSON text."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_a_turn(cls, value: Any) -> Any:
        fields = [name for name in TurnFromColumns.model_fields if isinstance(value, dict) and name in value]
        if fields:
            raise ValueError(
                f" has from_column and {', '.join(fields)}; allowed: either from_column, whose turns have their own "
                "role and content, or one turn made from columns. Split it into two entries."
            )
        return value


class TurnFromColumns(Section):
    """A turn made from columns."""

    role: Role
    """Role of the turn. A system turn is left out if its columns are empty."""
    content: Texts | None = None
    """Text of the turn, with columns in braces, e.g. `"{question}"`, or a list of pieces: one whose columns are empty
    is left out, the others are joined by a blank line. A path names a value inside a column: `{answers.text.0}`."""
    reasoning_content: Text | None = None
    """Reasoning of an assistant turn, e.g. `"{thinking}"`; left out if its columns are empty."""
    tool_calls: Name | None = None
    """Column with the turn's tool calls: a list of calls, or its JSON text. Calls that are only a name and arguments
    become OpenAI's form."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.content is None and self.tool_calls is None:
            raise ValueError(f" of role {self.role} has neither content nor tool_calls. Name the columns of one.")
        for name in ("reasoning_content", "tool_calls"):
            if getattr(self, name) is not None and self.role != "assistant":
                raise ValueError(f"{name} is set and role is {self.role}; only assistant turns have it. Remove it.")
        _refuse_constant(self.content, "content", is_constant_allowed=self.role in {"system", "developer"})
        return self


class VariableColumn(Section):
    """A variable of the chat template, read from a column."""

    column: Name
    """Column with the variable's value; null leaves the variable unset."""
    values: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """Value in the column, as text -> value of the variable, e.g. `{"on": true, "off": false}`; rows with others are
    dropped. By default the column's value itself."""


#: A column with all variables, or each variable's column.
Variables = Annotated[
    Annotated[Name, Tag("as name")] | Annotated[dict[str, VariableColumn], Tag("as variables")],
    Discriminator(lambda value: "as variables" if isinstance(value, dict) else "as name"),
]


def _turn_shape(value: Any) -> str:
    has_column = "from_column" in value if isinstance(value, dict) else isinstance(value, TurnsFromColumn)
    return "as turns of a column" if has_column else "as turn"


Turns = Annotated[
    Annotated[TurnsFromColumn, Tag("as turns of a column")] | Annotated[TurnFromColumns, Tag("as turn")],
    Discriminator(_turn_shape),
]


def _checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f" names {twice!r} twice. Remove one.")
    return names


#: Columns that are deliberately not read.
Ignored = Annotated[tuple[str, ...], AfterValidator(_checked_names)]


class ChatLayout(Section):
    """Rows that become conversations."""

    kind: Literal["chat"]
    """Selects conversations."""
    messages: Annotated[tuple[Turns, ...], Field(min_length=1)]
    """The conversation's turns, in order: turns made from columns, and columns that hold turns. A system turn before
    turns that begin with their own is left out."""
    tools: Names | None = None
    """Column with the tool schemas, a list or its JSON text; of several columns the first that is not empty."""
    chat_template_kwargs: Variables | None = None
    """Column with an object of variables for the chat template, or variable -> its column."""
    ignore: Ignored = ()
    """Columns that are deliberately not read, such as identifiers; a field of turns is written `messages.NAME`. What is
    neither read nor named here is reported."""

    @model_validator(mode="after")
    def _check_variables(self) -> Self:
        _refuse_ignored(self)
        variables = self.chat_template_kwargs
        if isinstance(variables, dict) and (reserved_names := sorted(OWN_TEMPLATE_VARIABLES.intersection(variables))):
            raise ValueError(
                f"chat_template_kwargs sets {', '.join(reserved_names)}, which bridgepack sets itself. Remove it."
            )
        return self


class PromptCompletionLayout(Section):
    """Rows that become a prompt and a completion, without a chat template."""

    kind: Literal["prompt_completion"]
    """Selects prompts with completions."""
    prompt: Texts
    """The prompt, with columns in braces, or a list of pieces, as in a turn."""
    completion: Text
    """The completion, with columns in braces."""
    ignore: Ignored = ()
    """Columns that are deliberately not read."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _refuse_ignored(self)
        _refuse_constant(self.prompt, "prompt")
        return self


class TokenizedLayout(Section):
    """Rows that already hold token ids."""

    kind: Literal["tokenized"]
    """Selects token ids."""
    input_ids: Name = "input_ids"
    """Column with the token ids."""
    loss_mask: Name | None = None
    """Column with a token-aligned mask of 0 and 1; by default `loss_mask` if a row has it."""
    labels: Name | None = None
    """Column with unshifted labels, as in Hugging Face: the token id if trained, else -100; by default `labels` if a
    row has it and no mask."""
    ignore: Ignored = ()
    """Columns that are deliberately not read."""

    @model_validator(mode="after")
    def _check_one_mask(self) -> Self:
        _refuse_ignored(self)
        if self.loss_mask is not None and self.labels is not None:
            raise ValueError(
                f"loss_mask is {self.loss_mask!r} and labels is {self.labels!r}; only one of them can be set. Remove "
                "one."
            )
        return self


class TextLayout(Section):
    """Rows that are plain documents: all of their text is trained, and EOS ends it."""

    kind: Literal["text"]
    """Selects plain documents."""
    text: Texts = "{text}"
    """The document, with columns in braces, or a list of pieces, as in a turn: `["{title}", "{text}"]`."""
    ignore: Ignored = ()
    """Columns that are deliberately not read."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _refuse_ignored(self)
        _refuse_constant(self.text, "text")
        return self


AnyLayout = ChatLayout | PromptCompletionLayout | TextLayout | TokenizedLayout
Layout = Annotated[AnyLayout, Field(discriminator="kind")]


def columns_of(layout: AnyLayout) -> tuple[Column, ...]:
    """Return the columns that a layout reads, in order, each once."""
    return tuple(dict.fromkeys(_columns_of(layout)))


def _refuse_ignored(layout: AnyLayout) -> None:
    name = next((column.path for column in columns_of(layout) if column.path in layout.ignore), None)
    if name is not None:
        raise ValueError(f"ignore names {name!r}, which the layout reads; only one can be. Remove it here or there.")


def _columns_of(layout: AnyLayout) -> Iterator[Column]:
    texts: list[str | None] = []
    columns: list[str | None] = []
    if isinstance(layout, TokenizedLayout):
        columns = [layout.input_ids, layout.loss_mask, layout.labels]
    elif isinstance(layout, PromptCompletionLayout):
        texts = [*pieces_of(layout.prompt), layout.completion]
    elif isinstance(layout, TextLayout):
        texts = [*pieces_of(layout.text)]
    else:
        for item in layout.messages:
            if isinstance(item, TurnsFromColumn):
                yield Column(item.from_column)
                continue
            for text in (*pieces_of(item.content or ()), *pieces_of(item.reasoning_content or ())):
                yield from columns_in(text)
            if item.tool_calls is not None:
                yield Column(item.tool_calls)
        variables = layout.chat_template_kwargs
        columns += pieces_of(layout.tools or ())
        columns += (
            [variables] if isinstance(variables, str) else [variable.column for variable in (variables or {}).values()]
        )
    for text in filter(None, texts):
        yield from columns_in(text)
    yield from map(Column, filter(None, columns))
