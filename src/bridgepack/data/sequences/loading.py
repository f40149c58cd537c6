"""The tokenisation stage of a recipe, loaded once per process."""

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
from bridgepack.records.token_batches import TokenBatch

#: Text that is compared before a build starts, in characters: one for so many bytes of input, and within bounds that
#: `tokenizers` takes 0.05 to 0.5 seconds for.
_BYTES_PER_COMPARED, _MIN_COMPARED, _MAX_COMPARED = 200, 40_000, 400_000
#: Text of the first rows that has to come back from its tokens: characters, and texts of those that are compared.
_PROBED, _PROBED_TEXTS = 4_000, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedStage:
    """The tokenisation stage of a recipe, ready to work, and which engine encodes its texts."""

    recipe: SFTRecipe
    tokenizer: ChatTokenizer
    encoder: Encoder
    engine: EngineReport

    def batches(self, rows: Iterable[RowRead], *, first_row: int, max_text_bytes: int) -> Iterator[TokenBatch]:
        """Yield the sequences of consecutive rows, in batches of about as much text.

        Raises:
            EngineDiffersError: when the engine gives other tokens than `tokenizers` for a row that was compared.
        """
        yield from iter_token_batches(self.encoder, rows, first_row=first_row, max_text_bytes=max_text_bytes)

    def check_engine(self, rows: Iterable[RowRead], num_input_bytes: int) -> EngineReport:
        """Compare the engine with `tokenizers` on rows of the data; where they differ, it is no longer used here.

        Of the rows so much is taken as costs a small part of a build of `num_input_bytes`.

        Raises:
            TokenizerError: the first rows do not come back from their tokens.
        """
        if self.recipe.preprocessing.kind == "tokenized":
            return self.engine
        most = min(max(num_input_bytes // _BYTES_PER_COMPARED, _MIN_COMPARED), _MAX_COMPARED)
        is_compared = self.engine.name != REFERENCE
        texts = texts_of_rows(self.encoder, rows, max_characters=most if is_compared else _PROBED)
        refuse_lost_text(self.tokenizer, texts[:_PROBED_TEXTS], of_what="the letters and digits of the first rows")
        return check_texts(self.tokenizer, texts) if is_compared else self.engine


def load_stage(recipe_json: str, engine: str = "tokenizers", num_input_bytes: int = 0) -> LoadedStage:
    """Return the stage of a recipe; loaded once per process. The engine is chosen as by `use_engine`.

    Raises:
        TokenizerError: when the tokenizer cannot be loaded or cannot do what the recipe asks.
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
    """Return a tokenizer, whose files look as they do; recipes that differ elsewhere share it."""
    return load_tokenizer(TokenizerConfig.model_validate_json(config_json))


def _stamps(recipe: SFTRecipe) -> object:
    """Return what changes with the files of a tokenizer's folder; None where it has no folder."""
    folder, template = Path(recipe.tokenizer.name_or_path), recipe.tokenizer.chat_template
    if not folder.is_dir():
        return None
    paths = [*folder.iterdir(), *([Path(template)] if template else [])]
    return tuple(sorted((path.absolute(), file_stamp(path)) for path in paths if path.is_file()))


def forget_stage() -> None:
    """Forget what was loaded, so that files that changed since are read again."""
    _with_engine.cache_clear()
    _loaded.cache_clear()
    _tokenizer.cache_clear()


def load_tokenizer_of(recipe_json: str) -> ChatTokenizer:
    """Return the tokenizer of a recipe as its files are now; it is loaded unless it was, and they are the same.

    Raises:
        TokenizerError: as `load_stage`.
    """
    stamps = _stamps(SFTRecipe.model_validate_json(recipe_json))
    if stamps is None or _loaded(recipe_json)[-1] != stamps:
        forget_stage()
    return _loaded(recipe_json)[1]
