"""Texts and token ids that open and close a turn in the chat templates Megatron-Bridge knows, and a scan for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bridgepack.config.recipe.preprocessing import AssistantMarkers
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError
from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray, TokenArray

ASSISTANT = "assistant"
_ROLES = ("system", "developer", "user", "tool")

#: Texts that identify the templates of a family, and its markers, in the order in which families are tried.
#: Source: megatron-bridge 0.6.2, data/conversation_processing.py, infer_assistant_mask_boundary_config: ChatML, Kimi,
#: Gemma 4, Gemma 1-3, Llama 3, gpt-oss (Harmony).
_FAMILIES = (
    (
        ("<|im_start|>assistant", "<|im_end|>"),
        AssistantMarkers(
            assistant_start="<|im_start|>assistant\n",
            assistant_end="<|im_end|>\n",
            assistant_end_fallbacks=("<|im_end|>",),
            other_role_starts={role: f"<|im_start|>{role}\n" for role in _ROLES},
        ),
    ),
    (
        ("<|im_assistant|>", "<|im_user|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
        AssistantMarkers(
            assistant_start="<|im_assistant|>assistant<|im_middle|>",
            assistant_end="<|im_end|>",
            other_role_starts={role: f"<|im_{role}|>{role}<|im_middle|>" for role in ("system", "user")},
        ),
    ),
    (("<|turn>model", "<turn|>"), AssistantMarkers(assistant_start="<|turn>model\n", assistant_end="<turn|>")),
    (
        ("<start_of_turn>model", "<end_of_turn>"),
        AssistantMarkers(assistant_start="<start_of_turn>model\n", assistant_end="<end_of_turn>"),
    ),
    (
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        AssistantMarkers(
            assistant_start="<|start_header_id|>assistant<|end_header_id|>\n\n",
            assistant_end="<|eot_id|>",
            other_role_starts={role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in _ROLES},
        ),
    ),
    (
        ("<|start|>", "<|channel|>", "<|message|>"),
        AssistantMarkers(
            assistant_start="<|start|>assistant",
            assistant_end="<|return|>",
            assistant_end_fallbacks=("<|end|>", "<|call|>"),
            other_role_starts={role: f"<|start|>{role}" for role in _ROLES},
        ),
    ),
)
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TurnMarkers:
    """Token sequences around the turns of a conversation."""

    #: role, the assistant's included -> tokens right before the content of its turns
    starts: Mapping[str, tuple[int, ...]]
    ends: tuple[tuple[int, ...], ...]  #: token sequences that can end an assistant turn, preferred first; trained
    joins_starts: bool = False  #: assistant starts without another start between them belong to one turn
    more_starts: tuple[tuple[int, ...], ...] = ()  #: alternative tokens before the assistant's content

    @cached_property
    def all_starts(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Role and tokens of every start."""
        return (*self.starts.items(), *((ASSISTANT, ids) for ids in self.more_starts))

    @cached_property
    def all_sequences(self) -> tuple[tuple[int, ...], ...]:
        """Every start and end: a scan is safe only if none of them occurs inside a turn's text."""
        return (*self.starts.values(), *self.more_starts, *self.ends)

    def num_turns(self, roles: Sequence[str]) -> int:
        """Return how many assistant turns a scan finds: messages, or runs of messages if starts are joined."""
        if not self.joins_starts:
            return roles.count(ASSISTANT)
        return sum(role == ASSISTANT != before for before, role in pairwise(["", *roles]))


def infer_markers(tokenizer: ChatTokenizer) -> TurnMarkers | None:
    """Return the markers of the first known family that matches the chat template, or None."""
    template = tokenizer.chat_template or ""
    for required, texts in _FAMILIES:
        if all(text in template for text in required):
            markers = _encoded(tokenizer, texts)
            if markers is not None:
                return markers
    return None


def markers_from_recipe(tokenizer: ChatTokenizer, settings: AssistantMarkers) -> TurnMarkers:
    """Return the markers that a recipe gives; raises TokenizerError if a marker has no tokens."""
    markers = _encoded(tokenizer, settings)
    num_starts = len(settings.starts) + len(settings.other_role_starts)
    if markers is None or len(markers.all_starts) != num_starts:
        raise TokenizerError(
            f"preprocessing.assistant_markers is {settings.model_dump()!r}; each text must give at least one token. "
            "Correct the texts."
        )
    return markers


def _encoded(tokenizer: ChatTokenizer, texts: AssistantMarkers) -> TurnMarkers | None:
    start, *more = (tuple(tokenizer.encode(text)) for text in texts.starts)
    end = tuple(tokenizer.encode(texts.assistant_end))
    if not start or not end:
        return None
    others = {role: tuple(tokenizer.encode(text)) for role, text in texts.other_role_starts.items()}
    fallbacks = [tuple(tokenizer.encode(text)) for text in texts.assistant_end_fallbacks]
    return TurnMarkers(
        starts={ASSISTANT: start, **{role: ids for role, ids in others.items() if ids}},
        ends=(end, *(ids for ids in fallbacks if ids)),
        joins_starts=texts.joins_starts,
        more_starts=tuple(ids for ids in more if ids),
    )


class ScannedTurns(NamedTuple):
    """Result of scanning several conversations."""

    mask: MaskArray  #: shape [num_tokens], int8, 1 at the assistant's tokens; all 0 in texts where `is_found` is false
    is_found: BoolArray  #: shape [num_texts], the markers match the roles
    #: shape [num_texts], there is exactly one assistant marker, and no turn begins after it
    ends_with_only_answer: BoolArray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Starts:
    """Turn markers by position; arrays of shape [num_starts]."""

    position: IntArray
    content: IntArray
    text: IntArray
    is_assistant: BoolArray

    def only(self, is_kept: BoolArray) -> Self:
        """Return those that are kept."""
        return replace(self, **{item.name: getattr(self, item.name)[is_kept] for item in fields(self)})


def scan_turns(
    flat: FlatIds, markers: TurnMarkers, num_assistant_turns: IntArray, *, includes_content: bool = True
) -> ScannedTurns:
    """Return the assistant's turns, as Megatron-Bridge's scan finds them; the turns' own texts must have no marker.

    `num_assistant_turns` are assistant messages per conversation, shape [num_texts]. Without `includes_content`, only
    end markers are 1, for templates that mark the content themselves.
    """
    ids, offsets = flat
    num_texts = len(offsets) - 1
    starts = _find_starts(ids, offsets, markers)
    if markers.more_starts:  # without assistant starts that another start or the text's end directly follows
        starts = starts.only(~starts.is_assistant | (starts.content < _limits(starts, offsets)))
    if markers.joins_starts:  # without assistant starts that directly follow another one
        is_again = np.zeros(len(starts.position), dtype=np.bool_)
        is_again[1:] = starts.is_assistant[1:] & starts.is_assistant[:-1] & (starts.text[1:] == starts.text[:-1])
        starts = starts.only(~is_again)
    turn = np.flatnonzero(starts.is_assistant)
    text = starts.text[turn]
    count = np.bincount(text, minlength=num_texts)
    first, after, num_ends = _ends(ids, markers, starts.content[turn], _limits(starts, offsets)[turn])
    is_ambiguous = np.bincount(text[num_ends > 1], minlength=num_texts) > 0
    has_turn = np.bincount(text[num_ends == 1], minlength=num_texts) > 0
    is_found = (count == num_assistant_turns) & (count > 0) & ~is_ambiguous & has_turn
    kept = (num_ends == 1) & is_found[text]
    last_of_text = np.full(num_texts, -1, dtype=np.int64)
    last_of_text[starts.text] = np.arange(len(starts.text))
    is_last = np.zeros(num_texts, dtype=np.bool_)
    is_last[text] = last_of_text[text] == turn
    begin, steps = starts.content[turn] if includes_content else first, np.zeros(len(ids) + 1, dtype=np.int8)
    np.add.at(steps, begin[kept], 1)
    np.add.at(steps, after[kept], -1)
    return ScannedTurns(np.cumsum(steps[:-1], dtype=np.int8), is_found, is_last & (count == 1))


def find_all(ids: TokenArray, pattern: Sequence[int]) -> IntArray:
    """Return every position of a pattern, ascending: [1, 2, 1, 2], pattern [1, 2] -> [0, 2]."""
    if not 0 < len(pattern) <= len(ids):
        return np.empty(0, dtype=np.int64)
    found = np.flatnonzero(ids[: len(ids) - len(pattern) + 1] == pattern[0])
    for index, token in enumerate(pattern[1:], 1):
        found = found[ids[found + index] == token]
    return found


def _find_starts(ids: TokenArray, offsets: IntArray, markers: TurnMarkers) -> _Starts:
    positions, lengths, ranks, assistant = [], [], [], []
    for rank, (role, marker) in enumerate(markers.all_starts):
        found = find_all(ids, marker)
        is_within = found + len(marker) <= offsets[np.searchsorted(offsets, found, side="right")]
        found = _not_overlapping(found[is_within], marker)
        positions.append(found)
        lengths.append(np.full(len(found), len(marker)))
        ranks.append(np.full(len(found), rank))
        assistant.append(np.full(len(found), role == ASSISTANT))
    position, length = np.concatenate(positions), np.concatenate(lengths)
    order = np.lexsort((np.concatenate(ranks), -length, position))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = position[order][1:] != position[order][:-1]
    order = order[is_first]
    return _Starts(
        position=position[order],
        content=(position + length)[order],
        text=np.searchsorted(offsets, position[order], side="right") - 1,
        is_assistant=np.concatenate(assistant)[order].astype(np.bool_),
    )


def _not_overlapping(positions: IntArray, marker: Sequence[int]) -> IntArray:
    """Return positions without those inside an earlier marker: [0, 2] -> [0] for [1, 2, 1] in 1 2 1 2 1."""
    if not any(marker[:size] == marker[-size:] for size in range(1, len(marker))):
        return positions
    kept: list[int] = []
    for position in positions.tolist():
        if not kept or position >= kept[-1] + len(marker):
            kept.append(position)
    return np.array(kept, dtype=np.int64)


def _limits(starts: _Starts, offsets: IntArray) -> IntArray:
    """Return the upper limit of each turn's end: the next turn's start, or the text's end."""
    limit: IntArray = offsets[starts.text + 1].copy()
    is_inner = starts.text[1:] == starts.text[:-1]
    limit[:-1][is_inner] = starts.position[1:][is_inner]
    return limit


def _ends(
    ids: TokenArray, markers: TurnMarkers, content: IntArray, limit: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return for each turn its end marker's start, its stop, and the number of end markers (2 means two or more).

    If starts are joined, the last end marker counts, as 1; 2 if there is none.
    """
    end = np.full(len(content), -1, dtype=np.int64)
    after = np.full(len(content), -1, dtype=np.int64)
    num_ends = np.zeros(len(content), dtype=np.int64)
    for marker in markers.ends:
        found = np.concatenate(([-1], find_all(ids, marker)))
        stop = np.searchsorted(found, limit - len(marker), side="right")
        num, place = stop - np.searchsorted(found, content, side="left"), found[stop - 1]
        num_ends += np.where((num == 1) & (place == end), 0, np.maximum(num, 0))
        is_new = (num > 0) & (place > end if markers.joins_starts else end < 0)
        end[is_new], after[is_new] = place[is_new], place[is_new] + len(marker)
    return end, after, np.where(end >= 0, 1, 2) if markers.joins_starts else np.minimum(num_ends, 2)
