"""Loads a recipe's tokenisation stage, once per process."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import file_stamp
from bridgepack.data.reading.rows import RowRead
from bridgepack.data.sequences.batches import iter_token_batches
from bridgepack.data.sequences.encoder import encoder_of, texts_of_rows
from bridgepack.data.sequences.encoding import Encoder
from bridgepack.data.tokenizers.engine_checks import MIN_INPUT_BYTES, check_texts, use_engine
from bridgepack.data.tokenizers.engines import REFERENCE, EngineReport
from bridgepack.data.tokenizers.load import load_tokenizer, refuse_lost_text
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records.sequences import TokenBatch

#: Characters of text to compare before a build starts: one per so many bytes of input, within limits for which
#: `tokenizers` takes 0.05 to 0.5 seconds.
_BYTES_PER_COMPARED, _MIN_COMPARED, _MAX_COMPARED = 200, 40_000, 400_000
#: Text of the first rows that must survive encoding and decoding: characters, and number of texts.
_PROBED, _PROBED_TEXTS = 4_000, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedStage:
    """A recipe's tokenisation stage, loaded, and the engine that encodes its texts."""

    recipe: SFTRecipe
    tokenizer: ChatTokenizer
    encoder: Encoder
    engine: EngineReport

    def batches(self, rows: Iterable[RowRead], *, first_row: int, max_text_bytes: int) -> Iterator[TokenBatch]:
        """Yield the sequences of consecutive rows, in batches of about `max_text_bytes` of text.

        Raises:
            EngineDiffersError: for a compared row, the engine's tokens differ from those of `tokenizers`.
        """
        yield from iter_token_batches(self.encoder, rows, first_row=first_row, max_text_bytes=max_text_bytes)

    def check_engine(self, rows: Iterable[RowRead], num_input_bytes: int) -> EngineReport:
        """Compare the engine with `tokenizers` on rows of the data; stop using it if they differ.

        Takes as many rows as cost a small part of a build of `num_input_bytes`.

        Raises:
            TokenizerError: encoding and decoding loses text of the first rows.
        """
        if self.recipe.preprocessing.kind == "tokenized":
            return self.engine
        most = min(max(num_input_bytes // _BYTES_PER_COMPARED, _MIN_COMPARED), _MAX_COMPARED)
        is_compared = self.engine.name != REFERENCE
        texts = texts_of_rows(self.encoder, rows, max_characters=most if is_compared else _PROBED)
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
    recipe, tokenizer, encoder, _ = _loaded(recipe_json)
    tokenizer.use_reference_engine()
    is_used = recipe.preprocessing.kind != "tokenized" and not (
        recipe.preprocessing.kind == "chat" and tokenizer.has_generation_blocks
    )
    report = use_engine(tokenizer, engine if is_used else REFERENCE, MIN_INPUT_BYTES)
    return LoadedStage(recipe=recipe, tokenizer=tokenizer, encoder=encoder, engine=report)


@lru_cache(maxsize=1)
def _loaded(recipe_json: str) -> tuple[SFTRecipe, ChatTokenizer, Encoder, object]:
    recipe = SFTRecipe.model_validate_json(recipe_json)
    stamps = _stamps(recipe)
    tokenizer = _tokenizer(recipe.tokenizer.model_dump_json(), stamps)
    return recipe, tokenizer, encoder_of(recipe.resolve(), tokenizer), stamps


@lru_cache(maxsize=1)
def _tokenizer(config_json: str, _: object) -> ChatTokenizer:
    """Return a tokenizer, cached by its settings and its files' stamps."""
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
    _loaded.cache_clear()
    _tokenizer.cache_clear()


def load_tokenizer_of(recipe_json: str) -> ChatTokenizer:
    """Return a recipe's tokenizer, loaded again if its files have changed.

    Raises:
        TokenizerError: see `load_stage`.
    """
    stamps = _stamps(SFTRecipe.model_validate_json(recipe_json))
    if stamps is None or _loaded(recipe_json)[-1] != stamps:
        forget_stage()
    return _loaded(recipe_json)[1]
