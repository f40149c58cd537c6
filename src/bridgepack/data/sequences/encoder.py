"""Chooses a recipe's encoder; encodes rows of a prompt and a completion as Megatron-Bridge does."""

from collections.abc import Iterable, Sequence

import numpy as np

from bridgepack.config.recipe.preprocessing import (
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TextPreprocessing,
)
from bridgepack.config.recipe.resolved import ResolvedRecipe
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.reading.rows import RowRead
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoder, FlatBatch, Prepared, mask_out
from bridgepack.data.sequences.findings.doubled_tokens import DoubledInPairs
from bridgepack.data.sequences.kinds import EncoderOfKinds, OfKind
from bridgepack.data.sequences.plain.documents import TextEncoder
from bridgepack.data.sequences.plain.tokenized import TokenizedEncoder
from bridgepack.data.sequences.unread import losses_of, unread_fields
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.probe import check_prompt
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.data.tokenizers.limits import STOPPED, TimeLimit
from bridgepack.data.tokenizers.special import special_ids
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.geometry import IntArray
from bridgepack.records import DropReason, TokenArray
from bridgepack.records.rows import ReadRow


def encoder_of(resolved_recipe: ResolvedRecipe, tokenizer: ChatTokenizer, facts: TemplateFacts | None) -> Encoder:
    """Return the encoder of a recipe's rows; `facts` as of `TemplateFacts.of_recipe`.

    Raises:
        TokenizerError: the tokenizer cannot do what the recipe asks.
    """
    recipe = resolved_recipe.recipe
    encoders = {kind: _encoder_of_kind(kind, resolved_recipe, tokenizer, facts) for kind in recipe.kinds}
    return next(iter(encoders.values())) if len(encoders) == 1 else EncoderOfKinds(encoders)


def _encoder_of_kind(
    kind: str, resolved_recipe: ResolvedRecipe, tokenizer: ChatTokenizer, facts: TemplateFacts | None
) -> Encoder:
    recipe = resolved_recipe.recipe
    settings = recipe.applied_preprocessing.of_kind(kind)
    if isinstance(settings, ChatPreprocessing):
        check_prompt(tokenizer)
        return chat_encoder(
            tokenizer,
            settings,
            facts,
            as_host=recipe.host_habits.keys(),
            max_runtime_length=resolved_recipe.max_sequence_length.value,
        )
    if isinstance(settings, PromptCompletionPreprocessing):
        return PromptCompletionEncoder(tokenizer, settings)
    if isinstance(settings, TextPreprocessing):
        return TextEncoder(tokenizer, settings)
    return TokenizedEncoder(tokenizer)


def texts_of_rows(encoder: Encoder, rows: Iterable[RowRead], *, max_characters: int) -> list[str]:
    """Return the rendered texts of rows, up to `max_characters` in total; cuts longer ones."""
    texts: list[str] = []
    num_characters = 0
    with TimeLimit() as limit:
        for _, item in rows:
            if num_characters >= max_characters:
                break
            if isinstance(item, ReadRow):
                try:
                    prepared_row = limit(encoder.prepare, item)
                except RowError as error:
                    if error.reason in STOPPED:
                        break  # the next rows may fail, too
                    continue
                value = prepared_row.value.value if isinstance(prepared_row.value, OfKind) else prepared_row.value
                texts += [part[:max_characters] for part in value if isinstance(part, str)]
                num_characters += prepared_row.num_characters
    return texts


class PromptCompletionEncoder:
    """Turns rows with a prompt and a completion into ids and token-aligned masks."""

    def __init__(self, tokenizer: ChatTokenizer, settings: PromptCompletionPreprocessing) -> None:
        """Look up the special tokens that the settings ask for.

        Raises:
            TokenizerError: the tokenizer lacks a special token.
        """
        self._tokenizer, self._settings = tokenizer, settings
        self._doubled = DoubledInPairs(tokenizer, settings)
        special_tokens = {"bos": settings.add_bos, "sep": settings.add_sep, "eos": settings.add_eos}
        self._bos, self._sep, self._eos = (special_ids(tokenizer, *item) for item in special_tokens.items())
        self._separator = settings.separator
        if self._separator.startswith(" ") and not tokenizer.is_space_sensitive:
            self._separator = self._separator[1:]
        self._never_trained = sorted(tokenizer.never_trained_ids) if settings.masks_control_tokens else []

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row's two texts; raises RowError if one is missing or is not text."""
        columns = row.columns
        if "prompt" not in columns or "completion" not in columns:
            raise RowError(DropReason.MISSING_FIELD, f"prompt or completion is missing; it has: {names_of(columns)}")
        texts = columns["prompt"], self._separator + columns["completion"]
        unread = tuple(unread_fields(row.unread, texts))
        return Prepared(len(texts[0]) + len(texts[1]), texts, (*losses_of(unread), *self._doubled.find(*texts)), unread)

    def encode(self, rows: Sequence[tuple[str, str]]) -> FlatBatch:
        """Return the tokens and masks of prompts joined with their completions."""
        flat = self._tokenizer.engine.encode_flat([text for pair in rows for text in pair])
        sizes = np.diff(flat.offsets)
        num_context = len(self._bos) + sizes[::2] + len(self._sep)
        lengths = num_context + sizes[1::2] + len(self._eos)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        ids = self._join(flat, offsets)
        mask = np.ones(len(ids), dtype=np.int8)
        if self._settings.loss_mode != "full":
            mask = (np.arange(len(ids)) >= np.repeat(offsets[:-1] + num_context, lengths)).astype(np.int8)
        mask_out(mask, ids, self._never_trained)
        return FlatBatch(ids, mask, offsets, num_context.astype(np.int32))

    def _join(self, flat: FlatIds, offsets: IntArray) -> TokenArray:
        """Return each prompt followed by its completion, with special tokens around them."""
        bos, sep, eos = (np.array(ids, dtype=np.int32) for ids in (self._bos, self._sep, self._eos))
        if not len(bos) + len(sep) + len(eos):
            return flat.input_ids
        parts = []
        bounds = flat.offsets.tolist()
        for row in range(len(offsets) - 1):
            start, middle, stop = bounds[2 * row : 2 * row + 3]
            parts += [bos, flat.input_ids[start:middle], sep, flat.input_ids[middle:stop], eos]
        return np.concatenate(parts) if parts else flat.input_ids
