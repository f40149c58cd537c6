"""A row as its file has it -> what is trained of it: a conversation, a pair, a document, or tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.recipe.layout import (
    TURN_FIELD,
    AnyLayout,
    ChatLayout,
    PromptCompletionLayout,
    TextLayout,
    TokenizedLayout,
    TurnFromColumns,
    TurnsFromColumn,
    columns_of,
    pieces_of,
)
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, Preprocessing, PromptCompletionPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.proof.masks.rows.columns import as_function, is_blank, names_in, objects_at, of_json, text_of, value_at
from bridgepack.proof.masks.rows.conversation import SYSTEM, Conversation, UnreadableRowError
from bridgepack.proof.masks.rows.formats import format_of, other_columns
from bridgepack.proof.masks.rows.forms import TurnForms
from bridgepack.proof.masks.rows.turns import is_flag, message_of, schema_of, untrained_turns
from bridgepack.records import INLINE_THOUGHT_MARKERS


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A prompt and its completion."""

    prompt: str
    completion: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A text of which everything is trained."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenColumns:
    """Columns with token ids and what is trained of them."""

    input_ids: Sequence[int]
    loss_mask: Sequence[int] | None
    labels: Sequence[int] | None  #: the token's id, or -100 where it is not trained
    attention_mask: Sequence[int] | None


#: What the proof reads of a row.
Content = Conversation | Pair | Document | TokenColumns


class SourceReader:
    """Reads the rows of one source of a recipe."""

    def __init__(
        self, recipe: SFTRecipe, kind: str, layouts: Sequence[AnyLayout], claims: Mapping[str, Any] | None = None
    ) -> None:
        """Take the kind of the source's rows and the layouts that its recipe writes; `claims` as of `TurnForms`."""
        self._settings: Preprocessing = recipe.applied_preprocessing.of_kind(kind)
        self._kind, self._layouts = kind, tuple(layouts)
        self._aliases = {alias.lower(): role for alias, role in recipe.data.role_aliases.items()}
        self._forms: TurnForms | None = None
        if isinstance(self._settings, ChatPreprocessing):
            self._forms = TurnForms(self._settings, claims or {}, frozenset(recipe.host_habits))

    def read(self, row: Mapping[str, Any]) -> Content:
        """Return what a row says; raises UnreadableRowError if its shape is not read."""
        layout = self._layout_of(row)
        if isinstance(layout, ChatLayout):
            return self._conversation(row, layout)
        if isinstance(layout, TextLayout):
            return Document(text=text_of(row, layout.text))
        if isinstance(layout, PromptCompletionLayout):
            strips = isinstance(self._settings, PromptCompletionPreprocessing) and self._settings.strip_whitespace
            return Pair(
                prompt=text_of(row, layout.prompt, strips_spaces=strips),
                completion=text_of(row, layout.completion, strips_spaces=strips),
            )
        return self._tokens(row, layout)

    def unread(self, row: Mapping[str, Any]) -> list[str]:
        """Return columns of a row without a written layout that its format does not read, and that may be content."""
        return [] if self._layouts else other_columns(row, format_of(row, self._kind).columns)

    def _layout_of(self, row: Mapping[str, Any]) -> AnyLayout:
        """Return the first written layout that fits a row, or the one that its columns show."""
        if not self._layouts:
            return format_of(row, self._kind).layout
        complete = [layout for layout in self._layouts if _has_columns(layout, row)]
        if not complete:
            raise UnreadableRowError("the row lacks columns of every layout")
        return next((layout for layout in complete if _says_something(layout, row)), complete[0])

    def _conversation(self, row: Mapping[str, Any], layout: ChatLayout) -> Conversation:
        assert isinstance(self._settings, ChatPreprocessing)
        assert self._forms is not None
        parts, system = _system_apart(layout)
        turns = [turn for part in parts for turn in self._turns_of(part, row)]
        messages = [message_of(turn, self._aliases) for turn in turns]
        if self._settings.inline_thoughts == "move" and any(map(_may_have_moved, messages)):
            raise UnreadableRowError("thoughts of an answer are moved")
        untrained_answers = frozenset[int]()
        if self._settings.message_weights == "mask":
            untrained_answers = untrained_turns(
                self._without_ignored(turns, layout), messages, _flags_beside(row, layout)
            )
        messages = [
            self._forms.message_in_form(message, is_openai="role" in turn and "content" in turn)
            for turn, message in zip(turns, messages, strict=True)
        ]
        text = self._system_text(row, system)
        if text and not any(message["role"] == SYSTEM for message in messages):
            messages.insert(0, self._forms.message_in_form({"role": SYSTEM, "content": text}, is_openai=True))
            untrained_answers = frozenset(index + 1 for index in untrained_answers)
        tools = next((tools for name in pieces_of(layout.tools or ()) if (tools := objects_at(row, name))), [])
        tools = [schema_of(tool) for tool in tools]
        return Conversation(
            messages=messages,
            tools=tools or [dict(tool) for tool in self._settings.tool_schemas or ()] or None,
            template_kwargs=_variables(row, layout),
            untrained_answers=untrained_answers,
        )

    def _system_text(self, row: Mapping[str, Any], system: str | tuple[str, ...] | None) -> Any:
        """Return the text or parts of a system turn before turns of a column; None if the row has none."""
        names = names_in(system)
        if system is None or (names and not any(value_at(row, name) for name in names)):
            return None
        content = value_at(row, names[0]) if len(names) == 1 and system == f"{{{names[0]}}}" else None
        return content if isinstance(content, list) else text_of(row, system)

    def _turns_of(self, part: TurnsFromColumn | TurnFromColumns, row: Mapping[str, Any]) -> list[Any]:
        if isinstance(part, TurnsFromColumn):
            turns = of_json(value_at(row, part.from_column), part.from_column)
            if turns is not None and not isinstance(turns, list):
                raise UnreadableRowError(f"{part.from_column} is no list of turns")
            return turns or []
        calls = [] if part.tool_calls is None else objects_at(row, part.tool_calls)
        names = names_in(part.content)
        has_text = part.content is not None and (not names or any(not is_blank(value_at(row, name)) for name in names))
        if not has_text and (part.role in (SYSTEM, "developer") or part.content is None or calls):
            content = "" if calls and part.content is not None else None
            if not calls:
                return []
        else:
            assert part.content is not None
            content = text_of(row, part.content)
        turn: dict[str, Any] = {"role": part.role, "content": content}
        thoughts = part.reasoning_content
        if thoughts is not None and any(not is_blank(value_at(row, name)) for name in names_in(thoughts)):
            turn["reasoning_content"] = text_of(row, thoughts)
        if calls:
            turn["tool_calls"] = [as_function(call) for call in calls]
        return [turn]

    @staticmethod
    def _without_ignored(turns: Sequence[Any], layout: ChatLayout) -> list[dict[str, Any]]:
        ignored_names = {name.removeprefix(TURN_FIELD) for name in layout.ignore}
        return [{name: value for name, value in turn.items() if name not in ignored_names} for turn in turns]

    @staticmethod
    def _tokens(row: Mapping[str, Any], layout: TokenizedLayout) -> TokenColumns:
        columns = {name: of_json(row.get(name), name) for name in (layout.input_ids, "attention_mask")}
        mask = layout.loss_mask or ("loss_mask" if layout.labels is None else "")
        labels = layout.labels or ("labels" if layout.loss_mask is None else "")
        values = {name: None if name in layout.ignore else of_json(row.get(name), name) for name in (mask, labels)}
        if columns[layout.input_ids] is None or (values[mask] is None and values[labels] is None):
            raise UnreadableRowError("the row has no token ids, or neither mask nor labels")
        return TokenColumns(
            input_ids=columns[layout.input_ids],
            loss_mask=values[mask],
            labels=None if values[mask] is not None else values[labels],
            attention_mask=columns["attention_mask"],
        )


def _system_apart(layout: ChatLayout) -> tuple[tuple[Any, ...], str | tuple[str, ...] | None]:
    """Return a layout's other parts, and the text of a system turn that turns of a column may replace."""
    first = layout.messages[0]
    has_column = any(isinstance(part, TurnsFromColumn) for part in layout.messages)
    if has_column and isinstance(first, TurnFromColumns) and first.role == SYSTEM and first.content is not None:
        return layout.messages[1:], first.content
    return layout.messages, None


def _required_columns(layout: AnyLayout) -> list[str]:
    """Return the columns that a row of a layout must have."""
    if isinstance(layout, TokenizedLayout):
        return [layout.input_ids]
    if isinstance(layout, TextLayout):
        return names_in(layout.text) if isinstance(layout.text, str) else []
    if isinstance(layout, PromptCompletionLayout):
        return [*(names_in(layout.prompt) if isinstance(layout.prompt, str) else []), *names_in(layout.completion)]
    names = []
    for part in layout.messages:
        if isinstance(part, TurnsFromColumn):
            names.append(part.from_column)
        elif part.role not in (SYSTEM, "developer") and isinstance(part.content, str) and part.tool_calls is None:
            names += names_in(part.content)
    return names


def _has_columns(layout: AnyLayout, row: Mapping[str, Any]) -> bool:
    names = _required_columns(layout)
    has_all = all(name in row or name.partition(".")[0] in row for name in names)
    return has_all and (len(names) != 1 or value_at(row, names[0]) is not None)


def _says_something(layout: AnyLayout, row: Mapping[str, Any]) -> bool:
    """Return whether a layout's columns hold what it says: lists of turns, and texts that are not all empty."""
    if isinstance(layout, TokenizedLayout):
        return True
    turns = [
        part.from_column
        for part in (layout.messages if isinstance(layout, ChatLayout) else ())
        if isinstance(part, TurnsFromColumn)
    ]
    values = {name: value_at(row, name) for name in _required_columns(layout)}
    texts = [value for name, value in values.items() if name not in turns]
    if not all(value is None or isinstance(value, str) for value in texts):
        return False
    lists = [values[name] for name in turns]
    are_turns = all(
        isinstance(value, list) or (isinstance(value, str) and value.lstrip()[:1] == "[") for value in lists
    )
    return are_turns and not any(map(is_blank, lists)) and (not texts or not all(map(is_blank, texts)))


def _flags_beside(row: Mapping[str, Any], layout: ChatLayout) -> dict[str, Any]:
    """Return the columns about training that a layout neither reads nor ignores."""
    read = {column.name for column in columns_of(layout)} | {column.path for column in columns_of(layout)}
    return {
        name: value
        for name, value in row.items()
        if is_flag(name) and name not in read and name not in layout.ignore and not is_blank(value)
    }


def _variables(row: Mapping[str, Any], layout: ChatLayout) -> dict[str, Any]:
    """Return the row's variables for the chat template, without nulls."""
    variables = layout.chat_template_kwargs
    if variables is None:
        return {}
    if isinstance(variables, str):
        values = of_json(value_at(row, variables), variables)
        if is_blank(values):
            return {}
        if not isinstance(values, Mapping):
            raise UnreadableRowError(f"{variables} is no object")
    else:
        values = {}
        for name, column in variables.items():
            value = value_at(row, column.column)
            if value is not None and column.values is not None:
                text = value if isinstance(value, str) else _as_json(value)
                if text not in column.values:
                    raise UnreadableRowError(f"the layout gives no value for what {column.column} holds")
                value = column.values[text]
            values[name] = value
    return {name: value for name, value in values.items() if value is not None}


def _as_json(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _may_have_moved(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    openings = tuple(marks[0] for marks in INLINE_THOUGHT_MARKERS)
    return isinstance(content, str) and content.lstrip().startswith(openings)
