"""Texts and token ids that open and close a turn in the chat templates Megatron-Bridge knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from bridgepack.config.recipe.preprocessing import AssistantMarkers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError

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


@dataclass(frozen=True, kw_only=True)
class TurnMarkers:
    """Token sequences around the turns of a conversation.

    Attributes:
        starts: role, the assistant's included -> tokens right before the content of its turns.
        more_starts: alternative tokens before the assistant's content.
        ends: token sequences that can end an assistant turn, preferred first; they are trained.
        joins_starts: assistant starts without another start between them belong to one turn.
    """

    starts: Mapping[str, tuple[int, ...]]
    ends: tuple[tuple[int, ...], ...]
    joins_starts: bool = False
    more_starts: tuple[tuple[int, ...], ...] = ()

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
    """Return the markers that a recipe gives.

    Raises:
        TokenizerError: a marker has no tokens.
    """
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
