"""Loads a recipe's tokenisation stage, once per process, and turns rows into batches of uncut sequences."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import file_stamp
from bridgepack.data.reading.rows import RowRead
from bridgepack.data.sequences.encoder import encoder_of, texts_of_rows
from bridgepack.data.sequences.encoding import Encoder
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.identity import identity_of
from bridgepack.data.templates.variables import refuse_unread_variables
from bridgepack.data.tokenizers.engines import MIN_INPUT_BYTES, REFERENCE, EngineReport, check_texts, use_engine
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.load import load_tokenizer, refuse_lost_text
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import RowNote, TokenBatch, UnreadCount

#: Maximum rows encoded together; more gain nothing.
_BATCH_ROWS = 1024
#: Characters of text to compare before a build starts: one per so many bytes of input, within limits for which
#: `tokenizers` takes 0.05 to 0.5 seconds.
_BYTES_PER_COMPARED, _MIN_COMPARED, _MAX_COMPARED = 200, 40_000, 400_000
#: Text of the first rows that must survive encoding and decoding: characters, and number of texts.
_PROBED, _PROBED_TEXTS = 4_000, 16


class _Pending:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.row_offsets: list[int] = []
        self.drops: list[RowNote] = []
        self.losses: list[RowNote] = []
        self.unread: dict[tuple[str, str], UnreadCount] = {}
        self.num_read: list[int] = []
        self.num_rows = self.num_blank_lines = self.num_characters = 0

    def add(self, encoder: Encoder, offset: int, item: object, limit: TimeLimit) -> None:
        """Add a row, or why it is dropped."""
        self.num_rows += 1
        try:
            if isinstance(item, RowError):
                raise item
            assert isinstance(item, ReadRow)
            self._count_layout(item.layout)
            prepared_row = limit(encoder.prepare, item)
        except RowError as error:
            self.drops.append(RowNote(offset, error.reason, error.detail))
            return
        self.values.append(prepared_row.value)
        self.row_offsets.append(offset)
        if prepared_row.more:
            self.values += prepared_row.more
            self.row_offsets += [offset] * len(prepared_row.more)
        if prepared_row.losses:
            self.losses += [RowNote(offset, *loss) for loss in prepared_row.losses]
        for field in prepared_row.unread:
            count = self.unread.setdefault(field[:2], field._replace(num_rows=0, row_offset=offset))
            self.unread[field[:2]] = count._replace(num_rows=count.num_rows + 1)
        self.num_characters += prepared_row.num_characters

    def _count_layout(self, layout: int) -> None:
        self.num_read += [0] * (layout + 1 - len(self.num_read))
        self.num_read[layout] += 1

    def encode(self, encoder: Encoder) -> TokenBatch:
        """Return the sequences of the rows; rows without a mask or with fewer than two tokens are drops.

        A row with several sequences, one of which has no mask, is a drop as a whole.
        """
        flat = encoder.encode(self.values)
        lengths = np.diff(flat.offsets)
        row_offsets = np.array(self.row_offsets, dtype=np.int64)
        is_kept = lengths >= 2
        is_kept[list(flat.errors)] = False
        drop_of_row: dict[int, RowNote] = {}
        for index in np.flatnonzero(~is_kept).tolist():
            too_short = RowError(DropReason.TOO_SHORT, f"{lengths[index]} tokens; next-token loss needs at least 2")
            error = flat.errors.get(index, too_short)
            row = self.row_offsets[index]
            drop_of_row.setdefault(row, RowNote(row, error.reason, error.detail))
        self.drops += drop_of_row.values()
        is_kept &= ~np.isin(row_offsets, list(drop_of_row))
        is_kept_token = slice(None) if is_kept.all() else np.repeat(is_kept, lengths)
        return TokenBatch(
            input_ids=flat.input_ids[is_kept_token],
            loss_mask=flat.loss_mask[is_kept_token],
            offsets=np.concatenate(([0], np.cumsum(lengths[is_kept]))),
            row_offsets=row_offsets[is_kept],
            num_context=flat.num_context[is_kept],
            drops=tuple(sorted(self.drops)),
            losses=tuple(self.losses),
            unread=tuple(self.unread.values()),
            num_read=tuple(self.num_read),
            num_rows=self.num_rows,
            num_blank_lines=self.num_blank_lines,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedStage:
    """A recipe's tokenisation stage, loaded, and the engine that encodes its texts."""

    recipe: SFTRecipe
    tokenizer: ChatTokenizer
    facts: TemplateFacts | None  #: of the chat template; None if no row is a chat
    encoder: Encoder
    engine: EngineReport

    @classmethod
    def of(cls, recipe: SFTRecipe, tokenizer: ChatTokenizer, engine: EngineReport) -> Self:
        """Return the stage of a recipe, after learning its chat template.

        Raises:
            TokenizerError: the tokenizer cannot do what the recipe asks.
        """
        facts = TemplateFacts.of_recipe(recipe, tokenizer)
        encoder = encoder_of(recipe.resolve(), tokenizer, facts)
        return cls(recipe=recipe, tokenizer=tokenizer, facts=facts, encoder=encoder, engine=engine)

    def forms(self) -> dict[str, Any]:
        """Return field of `preprocessing` that is `auto` -> what is decided for the chat template."""
        fields = self.recipe.fields_on_auto
        return {} if self.facts is None else self.facts.forms.decisions(fields)

    def identity(self) -> dict[str, Any]:
        """Return the tokenizer's identity, with the forms that the recipe lets it decide."""
        return identity_of(self.recipe, self.tokenizer, self.facts)

    def with_recipe(self, recipe: SFTRecipe) -> Self:
        """Return the stage with another recipe; its tokenizer may have other variables, and is not loaded again.

        Raises:
            TokenizerError: the tokenizer cannot do what the recipe asks.
        """
        tokenizer, kwargs = self.tokenizer, recipe.tokenizer.chat_template_kwargs
        if kwargs != self.recipe.tokenizer.chat_template_kwargs:
            tokenizer = tokenizer.with_template_kwargs(kwargs)
        return self.of(recipe, tokenizer, self.engine)

    def batches(self, rows: Iterable[RowRead], *, first_row: int, max_text_bytes: int) -> Iterator[TokenBatch]:
        """Yield the sequences of consecutive rows, from `read_range`, in batches whose limits do not affect them.

        `max_text_bytes` is the approximate text per batch; a longer row is encoded alone.

        Raises:
            DataError: many rows take too much time or memory.
            EngineDiffersError: for a compared row, the engine's tokens differ from those of `tokenizers`.
        """
        batch = _Pending()
        with TimeLimit() as limit:
            for row, item in rows:
                if item is None:
                    batch.num_blank_lines += 1
                    continue
                batch.add(self.encoder, row - first_row, item, limit)
                if batch.num_rows >= _BATCH_ROWS or batch.num_characters >= max_text_bytes:
                    yield batch.encode(self.encoder)
                    batch = _Pending()
            if batch.num_rows or batch.num_blank_lines:
                yield batch.encode(self.encoder)

    def check_engine(self, rows: Iterable[RowRead], num_input_bytes: int) -> EngineReport:
        """Compare the engine with `tokenizers` on rows of the data; stop using it if they differ.

        Takes as many rows as cost a small part of a build of `num_input_bytes`.

        Raises:
            TokenizerError: encoding and decoding loses text of the first rows.
        """
        if self.recipe.kinds == ("tokenized",):
            return self.engine
        max_characters = min(max(num_input_bytes // _BYTES_PER_COMPARED, _MIN_COMPARED), _MAX_COMPARED)
        is_compared = self.engine.name != REFERENCE
        texts = texts_of_rows(self.encoder, rows, max_characters=max_characters if is_compared else _PROBED)
        refuse_lost_text(self.tokenizer, texts[:_PROBED_TEXTS], of_what="the letters and digits of the first rows")
        return check_texts(self.tokenizer, texts) if is_compared else self.engine


def load_stage(recipe_json: str, engine: str = "tokenizers", num_input_bytes: int = 0) -> LoadedStage:
    """Return a recipe's stage, loaded once per process; `use_engine` chooses the engine.

    Raises:
        TokenizerError: the tokenizer cannot be loaded or cannot do what the recipe asks.
    """
    is_small = engine == "auto" and num_input_bytes < MIN_INPUT_BYTES
    return _with_engine(recipe_json, REFERENCE if is_small else engine)


@lru_cache(maxsize=1)
def _with_engine(recipe_json: str, engine: str) -> LoadedStage:
    stage, _ = _load(recipe_json)
    recipe, tokenizer = stage.recipe, stage.tokenizer
    tokenizer.use_reference_engine()
    # neither ids nor chats with places of characters are encoded by another engine
    is_used = not {*recipe.kinds} <= {"tokenized", *(("chat",) if tokenizer.has_generation_blocks else ())}
    return replace(stage, engine=use_engine(tokenizer, engine if is_used else REFERENCE, MIN_INPUT_BYTES))


@lru_cache(maxsize=1)
def _load(recipe_json: str) -> tuple[LoadedStage, object]:
    recipe = SFTRecipe.model_validate_json(recipe_json)
    stamps = _stamps(recipe)
    tokenizer = _tokenizer(recipe.tokenizer.model_dump_json(), stamps)
    return LoadedStage.of(recipe, tokenizer, EngineReport(REFERENCE)), stamps


@lru_cache(maxsize=1)
def _tokenizer(config_json: str, _: object) -> ChatTokenizer:
    return load_tokenizer(TokenizerConfig.model_validate_json(config_json))


def _stamps(recipe: SFTRecipe) -> object:
    """Return the stamps of the files in a tokenizer's folder; None for a tokenizer without a folder."""
    folder, template = Path(recipe.tokenizer.name_or_path), recipe.tokenizer.chat_template
    if not folder.is_dir():
        return None
    paths = [*folder.iterdir(), *([Path(template)] if template else [])]
    return tuple(sorted((path.absolute(), file_stamp(path)) for path in paths if path.is_file()))


def forget_stage() -> None:
    """Clear the cache, so that changed files are read again."""
    _with_engine.cache_clear()
    _load.cache_clear()
    _tokenizer.cache_clear()


def load_tokenizer_of(recipe_json: str) -> ChatTokenizer:
    """Return a recipe's tokenizer, loaded again if its files have changed."""
    stamps = _stamps(SFTRecipe.model_validate_json(recipe_json))
    if stamps is None or _load(recipe_json)[-1] != stamps:
        forget_stage()
    return _load(recipe_json)[0].tokenizer


def load_identity(recipe_json: str) -> dict[str, Any]:
    """Return the identity of a recipe's tokenizer, loaded again if its files have changed.

    Raises:
        ConfigError: the chat template does not read a variable of the recipe.
    """
    tokenizer = load_tokenizer_of(recipe_json)
    stage, _ = _load(recipe_json)
    refuse_unread_variables(stage.recipe, tokenizer)
    return stage.identity()
