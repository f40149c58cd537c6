"""Two text columns -> tokens and mask, as Megatron-Bridge's prompt-completion preprocessing gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.preprocessing import PromptCompletionPreprocessing
from bridgepack.data.conversation import CONVERSATION_COLUMNS
from bridgepack.data.tokenizer import ChatTokenizer, Encoded, check_is_unicode
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason, Example

#: Columns that count where a row has none of the recipe's.
STANDARD_COLUMNS = ("prompt", "completion")


class PromptCompletionEncoder:
    """Turns rows with a prompt and a completion into ids and token-aligned masks."""

    def __init__(
        self, tokenizer: ChatTokenizer, settings: PromptCompletionPreprocessing, max_runtime_length: int
    ) -> None:
        """Look up the special tokens that the settings ask for.

        Args:
            tokenizer: encodes the texts.
            settings: of the recipe.
            max_runtime_length: with `over_long: truncate`, longest sequence in runtime tokens.

        Raises:
            TokenizerError: when the tokenizer lacks a special token, or they alone fill a sequence.
        """
        self._tokenizer = tokenizer
        self._settings = settings
        self._bos = _special(tokenizer, "bos", settings.add_bos)
        self._sep = _special(tokenizer, "sep", settings.add_sep)
        self._eos = _special(tokenizer, "eos", settings.add_eos)
        self._separator = settings.separator
        if self._separator.startswith(" ") and not tokenizer.is_space_sensitive:
            self._separator = self._separator[1:]
        self._max_stored_length = max_runtime_length + 1 if settings.over_long == "truncate" else None
        num_special = len(self._bos) + len(self._sep) + len(self._eos)
        if self._max_stored_length is not None and num_special > self._max_stored_length:
            raise TokenizerError(
                f"packing.max_sequence_length is {max_runtime_length}; the {num_special} special tokens that "
                "preprocessing adds do not fit. Raise it or set add_bos, add_sep or add_eos to false."
            )

    def encode_batch(self, examples: Sequence[Example]) -> list[Encoded | RowError]:
        """Return ids and mask or the row's error, one per example, in order."""
        texts = [self._texts_or_error(example.columns) for example in examples]
        flat = [text for pair in texts if not isinstance(pair, RowError) for text in pair]
        encoded = iter([_ids(item) for item in self._tokenizer.encode_batch(flat)])
        return [pair if isinstance(pair, RowError) else self._joined(next(encoded), next(encoded)) for pair in texts]

    def _texts_or_error(self, columns: Mapping[str, Any]) -> tuple[str, str] | RowError:
        try:
            prompt, completion = self._columns_as_texts(columns)
        except RowError as error:
            return error
        if self._settings.strip_whitespace:
            prompt, completion = prompt.strip(" "), completion.strip(" ")
        return self._settings.prompt_template.format(prompt=prompt), self._separator + completion

    def _columns_as_texts(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        conversation = next((name for name in CONVERSATION_COLUMNS if columns.get(name) is not None), None)
        if conversation is not None:
            detail = f"{conversation} holds a conversation; set preprocessing.kind to chat"
            raise RowError(DropReason.INVALID_FIELD, detail)
        prompt, completion = (_text(columns, name) for name in self._column_names(columns))
        return prompt, completion

    def _column_names(self, columns: Mapping[str, Any]) -> tuple[str, str]:
        """Return the columns that the recipe names, or `prompt` and `completion` where a row has those instead.

        Source: megatron-bridge 0.6.2, data/sft_processing.py, normalize_sft_example.
        """
        names = self._settings.prompt_column, self._settings.completion_column
        has_names = all(name in columns for name in names)
        return names if has_names or not all(name in columns for name in STANDARD_COLUMNS) else STANDARD_COLUMNS

    def _joined(self, prompt: list[int], completion: list[int]) -> Encoded:
        whole_prompt, whole_completion = prompt, completion
        if self._max_stored_length is not None:
            prompt, completion = self._truncated(prompt, completion, self._max_stored_length)
        is_end_cut = len(completion) < len(whole_completion) and self._settings.truncation_method == "right"
        is_truncated = len(prompt) + len(completion) < len(whole_prompt) + len(whole_completion)
        context = [*self._bos, *prompt, *self._sep]
        target = completion if is_end_cut and not self._settings.ends_cut_completions else [*completion, *self._eos]
        ids = context + target
        mask = [1] * len(ids) if self._settings.loss_mode == "full" else [0] * len(context) + [1] * len(target)
        if self._settings.masks_control_tokens:
            never = self._tokenizer.never_trained_ids
            mask = [0 if token in never else bit for token, bit in zip(ids, mask, strict=True)]
        return Encoded(ids, mask, is_truncated)

    def _truncated(self, prompt: list[int], completion: list[int], length: int) -> tuple[list[int], list[int]]:
        """Return both cut to fit with EOS: the prompt first, then the completion.

        Source: megatron-bridge 0.6.2, data/sft_processing.py, tokenize_prompt_completion_example.
        """
        budget = length - len(self._bos) - len(self._sep) - len(self._eos)
        overflow = max(0, len(prompt) + len(completion) - budget)
        from_prompt = min(len(prompt), overflow)
        return self._cut(prompt, from_prompt), self._cut(completion, overflow - from_prompt)

    def _cut(self, ids: list[int], num_tokens: int) -> list[int]:
        if num_tokens == 0:
            return ids
        return ids[num_tokens:] if self._settings.truncation_method == "left" else ids[: len(ids) - num_tokens]


def _special(tokenizer: ChatTokenizer, name: str, is_wanted: bool) -> list[int]:
    if not is_wanted:
        return []
    index = tokenizer.special_token_id(name)
    if index is None:
        raise TokenizerError(
            f"preprocessing.add_{name} is true; the tokenizer {tokenizer.config.name_or_path!r} has no "
            f"{name.upper()} token. Set it to false or use another tokenizer."
        )
    return [index]


def _text(columns: Mapping[str, Any], name: str) -> str:
    text = columns.get(name)
    if text is None:
        found = ", ".join(sorted(map(str, columns)))[:200]
        raise RowError(DropReason.MISSING_FIELD, f"{name} is missing; it has: {found or 'no fields'}")
    if not isinstance(text, str):
        raise RowError(DropReason.INVALID_FIELD, f"{name} is a {type(text).__name__}; it must be text")
    check_is_unicode(text)
    return text


def _ids(encoding: Any) -> list[int]:
    return list(encoding.ids) if hasattr(encoding, "ids") else list(encoding)
