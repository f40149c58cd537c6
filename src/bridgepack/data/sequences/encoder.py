"""Chooses a recipe's encoder; encodes rows of a prompt and a completion as Megatron-Bridge does, and rows of tokens."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from bridgepack.config.recipe.preprocessing import (
    CONVERSATION_COLUMNS,
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TokenizedPreprocessing,
)
from bridgepack.config.recipe.recipe import ResolvedRecipe
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.reading.rows import RowRead
from bridgepack.data.sequences.chat import ChatEncoder
from bridgepack.data.sequences.encoding import Encoder, FlatBatch, Prepared, columns_hint, mask_out, text_of_column
from bridgepack.data.tokenizers.engines import FlatIds, joined
from bridgepack.data.tokenizers.templates import TimeLimit
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.geometry import IntArray
from bridgepack.records import SEQ_START_ID, DropReason, TokenArray

#: Label of an untrained token in Hugging Face data sets.
IGNORED_LABEL = -100
#: Types of token ids and labels; masks may also hold true and false.
_NUMBERS = frozenset({int, float})


def encoder_of(resolved: ResolvedRecipe, tokenizer: ChatTokenizer) -> Encoder:
    """Return a recipe's encoder; raises TokenizerError if the tokenizer cannot do what the recipe asks."""
    settings = resolved.recipe.preprocessing
    if isinstance(settings, ChatPreprocessing):
        recipe = resolved.recipe
        return ChatEncoder(tokenizer, settings, recipe.data.role_aliases, decides_forms=bool(recipe.fields_on_auto))
    if isinstance(settings, PromptCompletionPreprocessing):
        return PromptCompletionEncoder(tokenizer, settings)
    return TokenizedEncoder(settings, tokenizer.vocab_size)


class TokenizedEncoder:
    """Reads ids and masks from rows that already hold them."""

    def __init__(self, settings: TokenizedPreprocessing, vocab_size: int) -> None:
        self._settings, self._vocab_size = settings, vocab_size

    def prepare(self, columns: Mapping[str, Any]) -> Prepared:
        """Return a row's ids and mask.

        Raises:
            RowError: they are missing, of the wrong type or inconsistent, or the row is a pack of several sequences.
        """
        if columns.get(SEQ_START_ID) is not None:
            detail = f"the row has {SEQ_START_ID}, so it is a pack; give its unpacked rows, or use `repack`"
            raise RowError(DropReason.INVALID_FIELD, detail)
        ids = _integers(columns, self._settings.input_ids_column)
        outside = next((token for token in ids if not 0 <= token < self._vocab_size), None)
        if outside is not None:
            detail = f"a token id is {outside}; the tokenizer has ids 0 to {self._vocab_size - 1}"
            raise RowError(DropReason.TOKEN_OUT_OF_VOCABULARY, detail)
        mask_column, labels_column = self._mask_columns(columns)
        if labels_column:
            mask = _mask_from_labels(columns, labels_column, ids)
        else:
            mask = _integers(columns, mask_column, {bool, *_NUMBERS})
        if len(mask) != len(ids):
            detail = f"{labels_column or mask_column} has {len(mask)} entries for {len(ids)} ids"
            raise RowError(DropReason.INVALID_FIELD, detail)
        if any(bit not in (0, 1) for bit in mask):
            raise RowError(DropReason.INVALID_FIELD, f"{mask_column} must hold only 0 and 1")
        return Prepared(len(ids), (ids, mask))

    def encode(self, rows: Sequence[tuple[list[int], list[int]]]) -> FlatBatch:
        """Return the ids and masks of rows as flat arrays."""
        ids, offsets = joined([ids for ids, _ in rows])
        mask = np.fromiter((bit for _, bits in rows for bit in bits), dtype=np.int8, count=len(ids))
        return FlatBatch(ids, mask, offsets, np.full(len(rows), -1, dtype=np.int32))

    def _mask_columns(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        if self._settings.labels_column is not None:
            return "", self._settings.labels_column
        wanted = self._settings.loss_mask_column
        if wanted is None and columns.get("loss_mask") is None and columns.get("labels") is not None:
            return "", "labels"
        return wanted or "loss_mask", ""


def texts_of_rows(encoder: Encoder, rows: Iterable[RowRead], *, max_characters: int) -> list[str]:
    """Return the rendered texts of rows, up to `max_characters` in total; cuts longer ones."""
    texts: list[str] = []
    num_characters = 0
    with TimeLimit() as limit:
        for _, item in rows:
            if num_characters >= max_characters:
                break
            if isinstance(item, Mapping):
                try:
                    prepared = limit(encoder.prepare, item)
                except RowError as error:
                    if error.reason == DropReason.TIME_OUT:
                        break  # the next rows may fail, too
                    continue
                texts += [part[:max_characters] for part in prepared.value if isinstance(part, str)]
                num_characters += prepared.num_characters
    return texts


def _integers(columns: Mapping[str, Any], name: str, kinds: Set[type] = _NUMBERS) -> list[int]:
    values = columns.get(name)
    if values is None:
        raise RowError(DropReason.MISSING_FIELD, f"{name} is missing; it has: {names_of(columns)}")
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if (
        not isinstance(values, (list, tuple))
        or set(map(type, values)) - kinds
        or not all(value.is_integer() for value in values)
    ):
        raise RowError(DropReason.INVALID_FIELD, f"{name} must be a list of whole numbers")
    return [int(value) for value in values]


def _mask_from_labels(columns: Mapping[str, Any], name: str, ids: list[int]) -> list[int]:
    labels = _integers(columns, name)
    for index, (label, token) in enumerate(zip(labels, ids, strict=False)):
        if label not in (token, IGNORED_LABEL):
            detail = (
                f"{name}[{index}] is {label}; it must be input_ids[{index}], {token}, or {IGNORED_LABEL}: "
                "labels are not shifted"
            )
            raise RowError(DropReason.INVALID_FIELD, detail)
    return [int(label != IGNORED_LABEL) for label in labels]


#: Columns to read if a row has none of the recipe's.
STANDARD_COLUMNS = ("prompt", "completion")


class PromptCompletionEncoder:
    """Turns rows with a prompt and a completion into ids and token-aligned masks."""

    def __init__(self, tokenizer: ChatTokenizer, settings: PromptCompletionPreprocessing) -> None:
        """Look up the special tokens that the settings ask for.

        Raises:
            TokenizerError: the tokenizer lacks a special token.
        """
        self._tokenizer, self._settings = tokenizer, settings
        wanted = {"bos": settings.add_bos, "sep": settings.add_sep, "eos": settings.add_eos}
        self._bos, self._sep, self._eos = (_special(tokenizer, name, is_wanted) for name, is_wanted in wanted.items())
        self._separator = settings.separator
        if self._separator.startswith(" ") and not tokenizer.is_space_sensitive:
            self._separator = self._separator[1:]
        self._never_trained = sorted(tokenizer.never_trained_ids) if settings.masks_control_tokens else []

    def prepare(self, columns: Mapping[str, Any]) -> Prepared:
        """Return a row's two texts; raises RowError if one is missing or is not text."""
        prompt, completion = self._columns_as_texts(columns)
        if self._settings.strip_whitespace:
            prompt, completion = prompt.strip(" "), completion.strip(" ")
        texts = self._settings.prompt_template.format(prompt=prompt), self._separator + completion
        return Prepared(len(texts[0]) + len(texts[1]), texts)

    def encode(self, rows: Sequence[tuple[str, str]]) -> FlatBatch:
        """Return the tokens and masks of prompts joined with their completions."""
        flat = self._tokenizer.engine.encode_flat([text for pair in rows for text in pair])
        sizes = np.diff(flat.offsets)
        num_context = len(self._bos) + sizes[::2] + len(self._sep)
        lengths = num_context + sizes[1::2] + len(self._eos)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        ids = self._joined(flat, offsets)
        mask = np.ones(len(ids), dtype=np.int8)
        if self._settings.loss_mode != "full":
            mask = (np.arange(len(ids)) >= np.repeat(offsets[:-1] + num_context, lengths)).astype(np.int8)
        mask_out(mask, ids, self._never_trained)
        return FlatBatch(ids, mask, offsets, num_context.astype(np.int32))

    def _joined(self, flat: FlatIds, offsets: IntArray) -> TokenArray:
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

    def _columns_as_texts(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        """Return the texts of the recipe's columns, or of the standard ones if a row has those instead.

        Source: megatron-bridge 0.6.2, data/sft_processing.py, normalize_sft_example.
        """
        conversation = next((name for name in CONVERSATION_COLUMNS if columns.get(name) is not None), None)
        if conversation is not None:
            detail = f"column {conversation} holds a conversation; set preprocessing.kind to chat"
            raise RowError(DropReason.INVALID_FIELD, detail)
        names = self._settings.prompt_column, self._settings.completion_column
        has_names = all(name in columns for name in names)
        if not has_names and all(name in columns for name in STANDARD_COLUMNS):
            names = STANDARD_COLUMNS
        if all(columns.get(name) is None for name in names):
            detail = f"{names[0]} is missing; it has: {names_of(columns)}{columns_hint(columns)}"
            raise RowError(DropReason.MISSING_FIELD, detail)
        prompt, completion = (text_of_column(columns, name) for name in names)
        return prompt, completion


def _special(tokenizer: ChatTokenizer, name: str, is_wanted: bool) -> list[int]:
    if not is_wanted:
        return []
    index = tokenizer.special_token_id(name)
    if index is None:
        raise TokenizerError(
            f"preprocessing.add_{name} is true; the tokenizer {tokenizer.config.name_or_path!r} has no "
            f"{name.upper()} token. Set the field to false or use another tokenizer."
        )
    return [index]
