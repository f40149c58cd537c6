"""Examples -> sequences: chat, prompt-completion or tokenised rows, the over-long policy, and what is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import numpy as np

from bridgepack.config.preprocessing import (
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TokenizedPreprocessing,
)
from bridgepack.config.recipe import ResolvedRecipe
from bridgepack.data.chat import ChatEncoder
from bridgepack.data.prompt_completion import PromptCompletionEncoder
from bridgepack.data.tokenizer import ChatTokenizer, Encoded
from bridgepack.errors import RowError
from bridgepack.records import DropReason, Example, Sequence

#: What Hugging Face data sets write where a label is not trained.
IGNORED_LABEL = -100


class Encoder(Protocol):
    """Makes ids and token-aligned masks of examples."""

    def encode_batch(self, examples: Seq[Example]) -> list[Encoded | RowError]:
        """Return ids and mask or the row's error, one per example, in order."""
        ...


class Tokenization:
    """The tokenisation stage of one recipe; holds the tokenizer and no other state."""

    def __init__(self, resolved: ResolvedRecipe, tokenizer: ChatTokenizer) -> None:
        """Choose the encoder.

        Raises:
            TokenizerError: when the tokenizer cannot do what the recipe asks.
        """
        self._over_long = resolved.recipe.preprocessing.over_long
        self._max_runtime_length = resolved.max_sequence_length.value
        self._eos_token_id = tokenizer.eos_token_id
        self._encoder = _encoder_for(resolved, tokenizer)

    def sequences(self, examples: Seq[Example]) -> list[Sequence | RowError]:
        """Return a sequence or the reason why there is none, one per example, in order."""
        encoded = self._encoder.encode_batch(examples)
        return [item if isinstance(item, RowError) else self._finished(item) for item in encoded]

    def _finished(self, encoded: Encoded) -> Sequence | RowError:
        runtime_length = len(encoded.ids) - 1
        if runtime_length < 1:
            return RowError(DropReason.TOO_SHORT, f"{len(encoded.ids)} tokens; next-token loss needs at least 2")
        is_over_long = runtime_length > self._max_runtime_length
        if is_over_long and self._over_long != "truncate":
            detail = f"{runtime_length} runtime tokens; at most {self._max_runtime_length}"
            return RowError(DropReason.OVER_LONG, detail)
        kept = self._max_runtime_length + 1
        input_ids = np.asarray(encoded.ids[:kept], dtype=np.int32)
        loss_mask = np.asarray(encoded.mask[:kept], dtype=np.int8)
        is_truncated = is_over_long or encoded.is_truncated
        if self._is_trained(input_ids, loss_mask):
            return Sequence(input_ids=input_ids, loss_mask=loss_mask, is_truncated=is_truncated)
        if is_truncated:
            detail = f"{runtime_length} runtime tokens; none of those kept, {len(input_ids) - 1}, is trained"
            return RowError(DropReason.TRUNCATED_NO_TRAINED_TOKEN, detail)
        return RowError(DropReason.NO_TRAINED_TOKEN, f"none of its {runtime_length} runtime tokens is trained")

    def _is_trained(self, input_ids: Any, loss_mask: Any) -> bool:
        """Say whether a label is trained at run time, where the host skips labels whose input is EOS.

        Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py, collate_fn.
        """
        return bool(np.any(loss_mask[1:] & (input_ids[:-1] != self._eos_token_id)))


class TokenizedEncoder:
    """Takes ids and masks that rows hold already."""

    def __init__(self, settings: TokenizedPreprocessing, vocab_size: int) -> None:
        self._settings = settings
        self._vocab_size = vocab_size

    def encode_batch(self, examples: Seq[Example]) -> list[Encoded | RowError]:
        """Return ids and mask or the row's error, one per example, in order."""
        results: list[Encoded | RowError] = []
        for example in examples:
            try:
                results.append(self._encode(example.columns))
            except RowError as error:
                results.append(error)
        return results

    def _encode(self, columns: Mapping[str, Any]) -> Encoded:
        ids = _integers(columns, self._settings.input_ids_column)
        outside = next((token for token in ids if not 0 <= token < self._vocab_size), None)
        if outside is not None:
            detail = f"id {outside}; the tokenizer has ids 0 to {self._vocab_size - 1}"
            raise RowError(DropReason.TOKEN_OUT_OF_VOCABULARY, detail)
        mask_column, labels_column = self._mask_columns(columns)
        mask = _mask_from_labels(columns, labels_column, ids) if labels_column else _integers(columns, mask_column)
        if len(mask) != len(ids):
            detail = f"{labels_column or mask_column} has {len(mask)} entries for {len(ids)} ids"
            raise RowError(DropReason.INVALID_FIELD, detail)
        if any(bit not in (0, 1) for bit in mask):
            raise RowError(DropReason.INVALID_FIELD, f"{mask_column} must hold only 0 and 1")
        return Encoded(ids, mask)

    def _mask_columns(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        if self._settings.labels_column is not None:
            return "", self._settings.labels_column
        wanted = self._settings.loss_mask_column
        if wanted is None and columns.get("loss_mask") is None and columns.get("labels") is not None:
            return "", "labels"
        return wanted or "loss_mask", ""


def _encoder_for(resolved: ResolvedRecipe, tokenizer: ChatTokenizer) -> Encoder:
    settings = resolved.recipe.preprocessing
    if isinstance(settings, ChatPreprocessing):
        return ChatEncoder(tokenizer, settings, resolved.recipe.data.role_aliases)
    if isinstance(settings, PromptCompletionPreprocessing):
        return PromptCompletionEncoder(tokenizer, settings, resolved.max_sequence_length.value)
    return TokenizedEncoder(settings, tokenizer.vocab_size)


def _integers(columns: Mapping[str, Any], name: str) -> list[int]:
    values = columns.get(name)
    if values is None:
        raise RowError(DropReason.MISSING_FIELD, f"{name} is missing; it has: {', '.join(sorted(columns))[:200]}")
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, (list, tuple)) or not all(
        isinstance(value, int) or (isinstance(value, float) and value.is_integer()) for value in values
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
