"""Rows as encoders get them in a build: read by layouts of the usual columns, or by those of a test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from bridgepack.config.document import stated_values
from bridgepack.config.recipe.data import DataConfig
from bridgepack.config.recipe.layout import AnyLayout, Layout
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, Preprocessing
from bridgepack.config.recipe.readings import detected_reading, written_reading
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.messages import MessageReader
from bridgepack.data.layouts.reader import RowReader
from bridgepack.data.sequences import encoding
from bridgepack.data.sequences.encoding import Encoded, Encoder, FlatBatch, Prepared
from bridgepack.data.sequences.loading import LoadedStage
from bridgepack.data.tokenizers.engines import REFERENCE, EngineReport
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records.rows import ReadRow

Row = dict[str, Any]
_SYSTEM = {"role": "system", "content": "{system}"}
_TOOLS = ["tools", "functions", "tool_defs"]
LAYOUTS: TypeAdapter[tuple[AnyLayout, ...]] = TypeAdapter(tuple[Layout, ...])


def encoder_of(recipe: SFTRecipe, tokenizer: ChatTokenizer) -> Encoder:
    """Return the encoder of a recipe's rows, as its build makes it."""
    return LoadedStage.of(recipe, tokenizer, EngineReport(REFERENCE)).encoder


def chat_layouts(prompt: str = "prompt", completion: str = "completion", **fields: Any) -> list[Row]:
    """Return layouts of conversations: turns in one of the usual columns, or a pair of texts or of turns."""
    texts = [{"role": "user", "content": f"{{{prompt}}}"}, {"role": "assistant", "content": f"{{{completion}}}"}]
    turns = [{"from_column": prompt}, {"from_column": completion}]
    parts = [[{"from_column": name}] for name in ("messages", "conversation", "conversations")]
    parts += [texts, turns, [turns[0], texts[1]], [texts[0], turns[1]]]
    return [{"kind": "chat", "messages": [_SYSTEM, *turns], "tools": _TOOLS, **fields} for turns in parts]


def pair_layouts(
    prompt: str = "{prompt}", prompt_column: str = "prompt", completion_column: str = "completion"
) -> list[Row]:
    """Return layouts of a prompt and a completion: in these columns, else in the usual ones, as Megatron-Bridge does.

    `prompt` is the host's template, whose only placeholder is `{prompt}`.
    """
    columns = dict.fromkeys([(prompt_column, completion_column), ("prompt", "completion")])
    return [
        {
            "kind": "prompt_completion",
            "prompt": prompt.replace("{prompt}", f"{{{question}}}"),
            "completion": f"{{{answer}}}",
        }
        for question, answer in columns
    ]


def usual_layouts(kind: str, **fields: Any) -> list[Row]:
    """Return the layouts of rows with the usual columns; `fields` are of these layouts."""
    if kind == "chat":
        return chat_layouts(**fields)
    return pair_layouts(**fields) if kind == "prompt_completion" else [{"kind": kind, **fields}]


def reader_for(settings: Preprocessing | None = None, **data: Any) -> RowReader:
    """Return the reader of a source with a layout; `data` are fields of that section."""
    config = DataConfig.model_validate({"train": "rows.jsonl", **data})
    reading = written_reading(settings or ChatPreprocessing(), config, "rows.jsonl")
    assert reading is not None
    return RowReader(reading, config.role_aliases)


def read_row(
    row: Mapping[str, Any],
    settings: Preprocessing | None = None,
    role_aliases: Mapping[str, str] | None = None,
    **layout: Any,
) -> ReadRow:
    """Return a row as a build reads it whose layout is detected: by one reader for all rows with equal settings.

    `layout` are arguments of `usual_layouts`.
    """
    chosen = settings or ChatPreprocessing()
    names = tuple((name, str(value)) for name, value in layout.items())
    aliases = tuple((role_aliases or {}).items())
    return _reader(type(chosen), chosen.model_dump_json(exclude_unset=True), names, aliases).read(row)


@lru_cache(maxsize=64)
def _reader(
    kind: type[Preprocessing], settings: str, fields: tuple[tuple[str, str], ...], aliases: tuple[tuple[str, str], ...]
) -> RowReader:
    preprocessing = kind.model_validate_json(settings)
    layouts = LAYOUTS.validate_python(usual_layouts(preprocessing.kind, **dict(fields)))
    return RowReader(
        detected_reading(preprocessing, layouts, [str(stated_values(layout)) for layout in layouts]), dict(aliases)
    )


def given_row(columns: Mapping[str, Any]) -> ReadRow:
    """Return a row with the columns that encoders read: its turns as the normaliser reads them, the rest as it is."""
    if "messages" not in columns:
        return ReadRow(columns, kind="text" if "text" in columns else "prompt_completion")
    made = MessageReader({}).read(columns["messages"])
    return ReadRow(
        {**columns, "messages": made.messages},
        is_plain=made.is_plain,
        unread=made.unread,
        other_keys=made.other_keys,
        renamed=made.renamed,
    )


def encode_examples(encoder: Any, examples: Sequence[Any]) -> list[Encoded | RowError]:
    """Return ids and mask of every sequence, or the row's error, of columns that encoders read."""
    is_reading = isinstance(encoder, ReadingEncoder)
    rows, errors = [], {}
    for index, columns in enumerate(examples):
        try:
            rows.append(columns if is_reading or isinstance(columns, ReadRow) else given_row(columns))
        except RowError as error:
            errors[index] = error
    made = iter(encoding.encode_examples(encoder, rows))
    if not errors:
        return list(made)
    return [errors[index] if index in errors else next(made) for index in range(len(examples))]


def encode_rows(encoder: Encoder, examples: Sequence[Mapping[str, Any]]) -> list[list[Encoded] | RowError]:
    """Return the sequences of each example, columns that encoders read, or the row's error."""
    return encoding.encode_rows(encoder, [given_row(columns) for columns in examples])


@dataclass(frozen=True)
class ReadingEncoder:
    """An encoder that reads its rows first, as a build does."""

    encoder: Encoder
    settings: Preprocessing | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)  #: arguments of `usual_layouts`

    def prepare(self, columns: Mapping[str, Any]) -> Prepared:
        """Return a row, read and prepared."""
        return self.encoder.prepare(read_row(columns, self.settings, **self.layout))

    def encode(self, rows: Sequence[Any]) -> FlatBatch:
        """Return the tokens of prepared rows."""
        return self.encoder.encode(rows)
