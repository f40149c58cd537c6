"""Rows through bridgepack's encoders and through megatron-bridge's own functions, compared token by token.

The fixture `bridge` must be in use. A row that the host refuses must be a RowError for bridgepack.
"""

import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import batched
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError

from bridgepack.config.recipe.assistant_markers import AssistantMarkers
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import (
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    mended_by_host,
    trims_thought_openings,
)
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoder import PromptCompletionEncoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from tests.support.cutting import cut, policy_for
from tests.support.host_datasets import load_host_tokenizer
from tests.support.installed_host import host_release
from tests.support.read_rows import ReadingEncoder, encode_examples
from tests.support.small_builds import AS_HOST

#: What the host's preprocessing raises for a row; any of them ends its whole preparation.
HOST_REFUSALS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError, TemplateError)
#: Set to 1, every row is compared in every mode, which takes six minutes more; otherwise a stride of the slow ones.
ALL_ROWS = "BRIDGEPACK_COMPARE_ALL_ROWS"
BATCH_SIZE = 64
#: Runtime tokens that no row of the tests has.
NO_LIMIT = 1 << 20

Columns = Mapping[str, Any]
Tokens = tuple[list[int], list[int]]
#: Ids and mask, or why there are none.
HostOutcome = Tokens | Exception
Outcome = Tokens | RowError


def strided(rows: Sequence[Any], stride: int) -> Sequence[Any]:
    """Return every `stride`-th row, or all where the environment asks for all."""
    return rows if os.environ.get(ALL_ROWS) == "1" else rows[::stride]


class ChatPair:
    """Both sides' chat preprocessing over one tokenizer."""

    def __init__(
        self, folder: Path, *, loss_mode: str, assistant_markers: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        from megatron.bridge.data.conversation_processing import assistant_mask_boundary_config_from_markers

        markers = AssistantMarkers(**assistant_markers) if assistant_markers else None
        chosen: dict[str, Any] = {**AS_HOST, **settings}
        preprocessing = ChatPreprocessing(
            loss_mode=loss_mode, assistant_markers=markers, **{"labels_after_eos": "train", **chosen}
        )
        preprocessing = preprocessing.model_copy(update=mended_by_host(preprocessing, host_release()))
        self.tokenizer, self.host_tokenizer = _tokenizers(folder)
        trims = trims_thought_openings(preprocessing, host_release())
        facts = TemplateFacts.of(self.tokenizer, preprocessing, decides_forms=False, trims_openings=trims)
        encoder = chat_encoder(self.tokenizer, preprocessing, facts)
        self.encoder = ReadingEncoder(encoder, preprocessing)
        self._loss_mode = loss_mode
        self._tool_schemas = [dict(schema) for schema in preprocessing.tool_schemas or ()] or None
        self._skipped_tokens = _skipped_tokens(self.host_tokenizer) if preprocessing.masks_control_tokens else None
        self._boundaries = None
        if markers is not None:
            self._boundaries = assistant_mask_boundary_config_from_markers(
                self.host_tokenizer,
                assistant_start=markers.starts[0],
                assistant_end=markers.assistant_end,
                assistant_end_fallbacks=markers.assistant_end_fallbacks,
                role_start_markers=markers.other_role_starts,
            )

    def host(self, row: Columns) -> HostOutcome:
        from megatron.bridge.data.conversation_processing import tokenize_chat_example

        try:
            result = tokenize_chat_example(
                row,
                self.host_tokenizer,
                tool_schemas=self._tool_schemas,
                skipped_tokens=self._skipped_tokens,
                boundary_config=self._boundaries,
                warn_on_all_masked=False,
                loss_mode=self._loss_mode,
            )
        except HOST_REFUSALS as error:
            return error
        return result.input_ids.tolist(), result.assistant_mask.int().tolist()

    def ours(self, rows: Sequence[Columns]) -> list[Outcome]:
        """Return what bridgepack makes of rows, in one batch."""
        return _outcomes(self.encoder, rows)


class PromptCompletionPair:
    """Both sides' prompt-completion preprocessing over one tokenizer; the settings are bridgepack's."""

    def __init__(self, folder: Path, *, max_sequence_length: int | None = None, **settings: Any) -> None:
        """Load both; the settings are those that both sides have."""
        from megatron.bridge.data.sft_processing import PromptCompletionSFTPreprocessingConfig

        over_long = "drop" if max_sequence_length is None else "truncate"
        ours = {"kind": "prompt_completion", "over_long": over_long, **settings}
        self.tokenizer, self.host_tokenizer = _tokenizers(folder)
        columns = {name: ours.pop(name) for name in ("prompt_column", "completion_column") if name in ours}
        columns |= {"prompt": ours.pop("prompt_template")} if "prompt_template" in ours else {}
        preprocessing = PromptCompletionPreprocessing(**ours)
        self.encoder = ReadingEncoder(PromptCompletionEncoder(self.tokenizer, preprocessing), preprocessing, columns)
        self._policy = policy_for(ours, max_sequence_length or NO_LIMIT, self.tokenizer.eos_token_id)
        self._skipped_tokens = _skipped_tokens(self.host_tokenizer)
        self._host_settings = PromptCompletionSFTPreprocessingConfig(**settings)
        # The host counts stored tokens, bridgepack the runtime tokens: one fewer.
        self._max_length = None if max_sequence_length is None else max_sequence_length + 1

    def host(self, row: Columns) -> HostOutcome:
        from megatron.bridge.data.sft_processing import tokenize_prompt_completion_example

        try:
            result = tokenize_prompt_completion_example(
                row,
                self.host_tokenizer,
                self._host_settings,
                max_length=self._max_length,
                skipped_tokens=self._skipped_tokens,
            )
        except HOST_REFUSALS as error:
            return error
        return result.input_ids.tolist(), result.loss_mask.int().tolist()

    def ours(self, rows: Sequence[Columns]) -> list[Outcome]:
        """Return what bridgepack makes of rows, in one batch.

        The stage after it refuses fewer than two tokens, and rows without a trained label, which 0.7 refuses, too, if
        they have a completion.
        """
        outcomes = zip(_outcomes(self.encoder, rows, self._policy), rows, strict=True)
        return [self._refused_later(*item) if isinstance(item[0], tuple) else item[0] for item in outcomes]

    def _refused_later(self, made: tuple[list[int], list[int]], row: Columns) -> Outcome:
        ids, mask = made
        settings = self._host_settings
        if len(ids) < 2:
            return RowError("too_short", f"{len(ids)} tokens")
        refuses = host_release().refuses_untrained_completions and settings.loss_mode == "completion"
        has_columns = {settings.prompt_column, settings.completion_column} <= row.keys()
        completion = str(row[settings.completion_column if has_columns else "completion"])
        has_completion = bool(completion.strip(" ") if settings.strip_whitespace else completion)
        if refuses and has_completion and not any(mask[1:]):
            return RowError(DropReason.NO_TRAINED_TOKEN, f"{len(ids)} tokens")
        return made


@functools.cache
def _tokenizers(folder: Path) -> tuple[ChatTokenizer, Any]:
    return load_tokenizer(TokenizerConfig(name_or_path=str(folder))), load_host_tokenizer(folder)


def _skipped_tokens(host_tokenizer: Any) -> Any:
    from megatron.bridge.data.token_utils import extract_skipped_token_ids

    return extract_skipped_token_ids(host_tokenizer)


def _outcomes(encoder: ReadingEncoder, rows: Sequence[Columns], policy: SequencePolicy | None = None) -> list[Outcome]:
    encoded = encode_examples(encoder, rows)
    made = encoded if policy is None else cut(policy, encoded)
    return [(item.ids, item.mask) if isinstance(item, Encoded) else item for item in made]


def assert_same_rows(
    pair: ChatPair | PromptCompletionPair, rows: Sequence[Columns], host_rows: Sequence[Columns] | None = None
) -> Counter[str]:
    """Assert that both sides agree on every row; return how many are `equal` and how many both `refuse`.

    `host_rows` are the same rows as the host takes them, where its schemas are fewer.
    """
    counts: Counter[str] = Counter()
    for batch in batched(zip(rows, host_rows or rows, strict=True), BATCH_SIZE):
        for ours, (row, host_row) in zip(pair.ours([row for row, _ in batch]), batch, strict=True):
            counts[agreement(ours, pair.host(host_row), f"{row}"[:200])] += 1
    return counts


def agreement(ours: Outcome, theirs: HostOutcome, where: str = "") -> str:
    """Assert that both sides gave the same tokens or both refused; return `equal` or `refused`."""
    if isinstance(ours, RowError) and isinstance(theirs, Exception):
        return "refused"
    assert not isinstance(ours, RowError), f"{where}: only bridgepack refuses: {ours}"
    assert not isinstance(theirs, Exception), f"{where}: only the host refuses: {theirs!r}"
    assert ours[0] == theirs[0], f"{where}: other tokens"
    assert ours[1] == theirs[1], f"{where}: another mask over the same tokens"
    return "equal"
