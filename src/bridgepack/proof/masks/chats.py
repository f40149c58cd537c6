"""Judges masks of conversations, by generation blocks, renders of their prefixes, and marks around turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tokenizers.limits import run_limited
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.geometry import IntArray
from bridgepack.proof.masks.chat import Chat
from bridgepack.proof.masks.markers import (
    NO_END,
    LearnedMarks,
    derive_from_blocks,
    derive_from_marks,
    learn_block_ends,
    learn_marks,
)
from bridgepack.proof.masks.prefixes import derive_from_prefixes
from bridgepack.proof.masks.prompts import as_served, leave_ends, trained_prompt
from bridgepack.proof.masks.records import BuiltSequence, RowFinding, RowVerdict
from bridgepack.proof.masks.renders import ASSISTANT, Rendering, Renders
from bridgepack.proof.masks.results import has_results, leave_results
from bridgepack.proof.masks.rows.conversation import Conversation
from bridgepack.proof.masks.thoughts import (
    has_trimmed_openings,
    lost_calls,
    opening_of,
    thoughts_of,
    without_thoughts,
)
from bridgepack.proof.masks.votes import (
    NOT_JUDGED,
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    TokenCase,
    TrainedTurn,
    VoteArray,
    exclude_spans,
    leave_tokens_at,
    only_last_turn,
    straddling_tokens,
    token_votes,
    tokens_differ,
    tokens_within,
    without_tokens,
)
from bridgepack.records import MaskArray, TokenArray

BLOCKS, PREFIXES, MARKS, EVERYTHING = "generation blocks", "incremental rendering", "boundary markers", "everything"
#: A template with this tag marks what the assistant wrote.
#: Source: transformers 5.12, utils/chat_template_utils.py, render_jinja_template.
_BLOCK = re.compile(r"\{%-?\s*generation\s*-?%\}")
_REFUSED = "transformers cannot render the conversation"
_NO_PLACES = "the tokenizer is written in Python and does not report tokens' positions"
#: Findings that a trained generation prompt may be.
_OF_PROMPTS = ("other-turn-trained", "mask-shifted")


class ChatJudge:
    """Judges conversations of one recipe."""

    def __init__(self, recipe: SFTRecipe, settings: ChatPreprocessing, tokenizer: ChatTokenizer) -> None:
        """Learn the marks that the template writes around turns; raises TokenizerError if that takes too much."""
        self._settings, self._tokenizer = settings, tokenizer
        self._rendering = run_limited(tokenizer, Rendering, tokenizer)
        self._has_blocks = _BLOCK.search(tokenizer.chat_template or "") is not None
        self._marks = run_limited(tokenizer, learn_marks, self._rendering.text)
        self._block_ends = settings.assistant_markers.ends if settings.assistant_markers is not None else ()
        if self._has_blocks:
            self._block_ends += run_limited(tokenizer, learn_block_ends, self._rendering.render_marked)
        self._never = tokenizer.never_trained_ids if settings.masks_control_tokens else frozenset()
        self._only_empty, self._keeps_empty = settings.reasoning_loss == "mask_empty", settings.mask_generation_prompt
        self._trims_openings = recipe.trims_thought_openings and has_trimmed_openings(tokenizer.chat_template or "")
        is_inner = isinstance(self._marks, LearnedMarks) and self._marks.is_last_open
        self._inner_end = self._marks.closings[0] if isinstance(self._marks, LearnedMarks) and is_inner else ""
        self._starts = _starts_of(self._marks, settings)
        self._may_train_prompts = settings.loss_mode != "full" and not settings.mask_generation_prompt
        self.names: tuple[str, ...] = (EVERYTHING,)
        if settings.loss_mode != "full":
            self.names = (*((BLOCKS,) if self._has_blocks else ()), PREFIXES, MARKS)

    def judge(self, content: Conversation, sequence: BuiltSequence) -> RowVerdict:
        """Return the derivations' verdict on the tokens and mask of a conversation, or of a piece of it."""
        conversation = content.piece(sequence.turns) if sequence.turns else content
        conversation = conversation.without(sequence.removed)
        render = partial(self._rendering.text, tools=conversation.tools, kwargs=conversation.template_kwargs)
        blocks: list[Span] = []
        text = None
        if self._has_blocks:
            marked_render = self._rendering.render_marked(
                conversation.messages, conversation.tools, conversation.template_kwargs
            )
            text, blocks = marked_render or (None, [])
        else:
            text = render(conversation.messages)
        text = text and text + sequence.stop
        if text is None or not self._rendering.knows_places:
            return RowVerdict.without_judgement(self.names, _REFUSED if text is None else _NO_PLACES)
        text_ids, bounds = self._rendering.tokens(text + self._rendering.tail)
        ids, mask = sequence.input_ids, sequence.loss_mask
        if not np.array_equal(ids, text_ids):
            return tokens_differ(self.names, ids, text_ids, self._tokenizer.decode)
        goes_on = self._rendering.prompt_goes_on(conversation.template_kwargs)
        renders = Renders(render, conversation.messages, text, prompt_goes_on=goes_on)
        chat = Chat(conversation, text, render, renders, bounds)
        derivations = self._derivations(chat, blocks)
        votes = {
            name: without_tokens(token_votes(item.votes, chat.bounds), ids, self._never)
            for name, item in derivations.items()
        }
        if not derivations:
            votes = {EVERYTHING: without_tokens(np.full(len(ids), TRAINED, dtype=np.int8), ids, self._never)}
        if sequence.is_final:
            self._judge_behind_eos(chat, ids, votes)
        findings, prompt = tuple(self._findings(chat, ids, mask, votes, derivations)), np.empty(0, dtype=np.int64)
        if self._may_train_prompts and any(finding.kind in _OF_PROMPTS for finding in findings):
            prompt = self._trained_prompt(chat, mask, votes, derivations)
        if len(prompt):
            for item in votes.values():
                item[prompt] = NOT_JUDGED
            findings = tuple(self._findings(chat, ids, mask, votes, derivations))
        return RowVerdict(
            reasons=dict.fromkeys(votes, ()) | {name: item.reasons for name, item in derivations.items()},
            silent=frozenset(name for name, item in derivations.items() if item.is_silent),
            findings=findings,
            trains_prompt=len(prompt) > 0,
            trains_empty_thoughts=self._trains_empty_thoughts(chat, mask, derivations.values()),
        )

    def _trained_prompt(
        self, chat: Chat, mask: MaskArray, votes: Mapping[str, VoteArray], derivations: Mapping[str, Derivation]
    ) -> IntArray:
        """Return the trained tokens of generation prompts, ascending."""
        turns_of_each = [item.turns for item in derivations.values() if len(item.turns) == len(chat.turns)]
        turns = {index: [turns[place] for turns in turns_of_each] for place, index in enumerate(chat.turns)}
        answers = {index: turns[index] for index in chat.trained_messages(self._settings.loss_mode)}
        return trained_prompt(chat.text, answers, chat.renders, chat.bounds, mask, self._starts, votes.get(BLOCKS))

    def _behind_eos(self, ids: TokenArray) -> IntArray:
        """Return the tokens whose input is EOS, which `labels_after_eos` leaves out; shape [num_tokens], int64."""
        if self._settings.labels_after_eos != "mask":
            return np.empty(0, dtype=np.int64)
        behind = np.flatnonzero(ids == self._tokenizer.special_token_id("eos")) + 1
        return behind[behind < len(ids)]

    def _judge_behind_eos(self, chat: Chat, ids: TokenArray, votes: Mapping[str, VoteArray]) -> None:
        """Change votes behind EOS, in place: the first token is not judged, and further white space is not trained."""
        is_blank = [not chat.text[start:stop].strip() for start, stop in chat.bounds.tolist()]
        for first in self._behind_eos(ids).tolist():
            blanks = list(takewhile(is_blank.__getitem__, range(first, len(ids))))[1:]
            for item in votes.values():
                item[first] = NOT_JUDGED if item[first] == TRAINED else item[first]
                item[blanks] = NOT_JUDGED if self._settings.loss_mode == "full" else NOT_TRAINED

    def _derivations(self, chat: Chat, blocks: Sequence[Span]) -> dict[str, Derivation]:
        """Return name -> derivation; empty if everything is trained."""
        if self._settings.loss_mode == "full":
            return {}
        derivations = {
            PREFIXES: derive_from_prefixes(chat.text, chat.roles, chat.renders, self._inner_end),
            MARKS: derive_from_marks(chat.text, chat.conversation.messages, chat.words(), self._marks),
        }
        if self._has_blocks:
            turns = _known_turns(chat.roles, derivations)
            of_blocks = derive_from_blocks(chat.text, blocks, turns, self._marks, self._block_ends)
            self._leave_ends(of_blocks, chat.text, turns)
            derivations = {BLOCKS: of_blocks, **derivations}
            leave_tokens_at([start for start, _ in blocks], derivations.values(), chat.bounds)
        answers = chat.turns
        if self._settings.mask_generation_prompt:
            derivations = {
                name: as_served(item, chat.text, answers, chat.renders) for name, item in derivations.items()
            }
        if self._settings.assistant_markers is not None and self._marks == NO_END:
            ends = self._settings.assistant_markers.ends
            derivations = {name: leave_ends(item, chat.text, ends) for name, item in derivations.items()}
        if has_results(chat.conversation.messages):
            results = chat.results(_known_turns(chat.roles, derivations))
            derivations = {name: leave_results(item, results) for name, item in derivations.items()}
        excluded_turns = [turn for turn, index in enumerate(answers) if index in chat.conversation.untrained_answers]
        for name, item in derivations.items():
            item = exclude_spans(item, [item.turns[turn] if item.turns else None for turn in excluded_turns])
            if self._settings.loss_mode == "last_turn":
                item = only_last_turn(item)
            if self._settings.reasoning_loss != "keep":
                kinds = {"only_empty": self._only_empty, "keeps_empty": self._keeps_empty}
                item = without_thoughts(item, chat.text, chat.answers, **kinds)
            if self._trims_openings:
                item = exclude_spans(item, [opening_of(turn, chat.text, chat.bounds) for turn in item.turns if turn])
            derivations[name] = item
        return derivations

    def _findings(
        self,
        chat: Chat,
        ids: TokenArray,
        mask: MaskArray,
        votes: Mapping[str, VoteArray],
        derivations: Mapping[str, Derivation],
    ) -> Iterator[RowFinding]:
        turns = _known_turns(
            chat.roles, derivations or {PREFIXES: derive_from_prefixes(chat.text, chat.roles, chat.renders)}
        )
        thoughts = self._thoughts(chat, derivations.values())
        case = TokenCase(
            input_ids=ids,
            mask=mask,
            votes=votes,
            decode=self._tokenizer.decode,
            advice=self._advice(),
            turns=list(self._trained_turns(chat, ids, turns, thoughts)),
            message_of=chat.message_of,
            thoughts=thoughts,
            straddling=straddling_tokens([item.votes for item in derivations.values()], chat.bounds),
        )
        yield from case.findings()
        yield from lost_calls(chat.text, chat.conversation.messages, map(chat.with_beginning, chat.turns, turns))

    def _trained_turns(
        self, chat: Chat, ids: TokenArray, turns: Sequence[Span | None], thoughts: IntArray
    ) -> Iterator[TrainedTurn]:
        """Yield the tokens of trained turns without thoughts, for turns whose position is known."""
        placed_turns = list(zip(chat.turns, turns, strict=True))
        for message, turn in placed_turns[-1:] if self._settings.loss_mode == "last_turn" else placed_turns:
            if turn is None or message in chat.conversation.untrained_answers:
                continue
            start, stop = turn[0], turn[0] + len(chat.text[slice(*turn)].rstrip())
            tokens = tokens_within((start, stop), chat.bounds)
            end = tokens_within((self._end_of(chat.text, start, stop), stop), chat.bounds)
            never = list(self._never)
            left_out = np.concatenate((thoughts, self._behind_eos(ids)))
            yield TrainedTurn(
                message=message + 1,
                tokens=tokens[~np.isin(ids[tokens], never) & ~np.isin(tokens, left_out)],
                end=end[~np.isin(ids[end], never) & ~np.isin(end, left_out)],
            )

    def _thoughts(self, chat: Chat, derivations: Iterable[Derivation]) -> IntArray:
        """Return the tokens of untrained thoughts, in every turn that a derivation knows."""
        if self._settings.reasoning_loss == "keep":
            return np.empty(0, dtype=np.int64)
        kinds = {"only_empty": self._only_empty, "keeps_empty": self._keeps_empty}
        tokens = [
            tokens_within(span, chat.bounds)
            for item in derivations
            for span in thoughts_of(item.turns, chat.text, chat.answers, **kinds)
        ]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *tokens]))

    def _trains_empty_thoughts(self, chat: Chat, mask: MaskArray, derivations: Iterable[Derivation]) -> bool:
        if self._settings.reasoning_loss != "keep" or self._settings.mask_generation_prompt:
            return False
        thoughts = (thoughts_of(item.turns, chat.text, chat.answers, only_empty=True) for item in derivations)
        return any(mask[tokens_within(span, chat.bounds)].any() for spans in thoughts for span in spans)

    def _leave_ends(self, derivation: Derivation, text: str, turns: Iterable[Span | None]) -> None:
        """Reset, in place, votes on what ends a turn: it is trained as Megatron-Bridge does, wherever blocks are."""
        for start, last in (turn for turn in turns if turn is not None):
            stop = start + len(text[start:last].rstrip())
            size = max((len(end) for end in self._tokenizer.added_tokens if text.endswith(end, start, stop)), default=0)
            derivation.votes[stop - size : stop] = NOT_JUDGED

    def _end_of(self, text: str, start: int, stop: int) -> int:
        """Return the first character of a turn's end: of a known mark or an added token; `stop` if there is none."""
        turn = text[start:stop]
        marks = self._marks.closings if isinstance(self._marks, LearnedMarks) else ()
        ends = [mark.strip() for mark in marks] or list(self._tokenizer.added_tokens)
        return stop - max((len(end) for end in ends if turn.endswith(end)), default=0)

    def _advice(self) -> str:
        if self._settings.loss_mode == "full":
            return "Report it: bridgepack made this mask."
        if self._has_blocks:
            return (
                "Compare the texts. If the others are right, correct the template's generation blocks and give it "
                "as tokenizer.chat_template."
            )
        if self._settings.assistant_markers is not None:
            return "Compare the texts. If the derivations are right, correct preprocessing.assistant_markers."
        return (
            "Compare the texts. If the derivations are right, set preprocessing.assistant_markers, or set "
            "tokenizer.chat_template to a template with generation blocks; Megatron-Bridge makes the same mask."
        )


def _starts_of(marks: LearnedMarks | str, settings: ChatPreprocessing) -> tuple[str, ...]:
    """Return the headers of answers as the recipe gives them or the template writes them; () if unknown."""
    if settings.assistant_markers is not None:
        return settings.assistant_markers.starts
    return () if isinstance(marks, str) else (marks.header,)


def _known_turns(roles: Sequence[str], derivations: Mapping[str, Derivation]) -> list[Span | None]:
    """Return each assistant turn's characters, from the first derivation that knows them."""
    num_turns = sum(role == ASSISTANT for role in roles)
    turns: list[Span | None] = [None] * num_turns
    for name in (PREFIXES, MARKS):
        derived_turns = derivations[name].turns if name in derivations else ()
        if len(derived_turns) == num_turns:
            turns = [turn or new for turn, new in zip(turns, derived_turns, strict=True)]
    return turns
