"""Compares each trained answer of a conversation with what a server sends before it and what the model must write.

T are the packed tokens and their mask, S what a server sends for the turns before the answer, with the generation
prompt, and L the text that ends with the answer. S and L are encoded as servers do: the whole text, without adding
special tokens. Flags of added tokens that servers keep (`ChatTokenizer.lost_flags`) are a finding of their own. An
answer has exactly one kind. The first of these that holds counts, the worst first:

1. `refused`: the template rejects the turns before the answer, or those up to it.
2. `context-differs`: T does not begin with the text of S.
3. `answer-differs`: T does not go on with the text that L has after S, or the mask does not train all of that to its
   end, or it trains more.
4. `boundary-differs`: a token of T straddles the end of S; or trained tokens begin inside S, or after its end, so that
   what the model must write first is not trained.
5. `equal`.

White space after the answer's end is the template's, as the line end behind `<|im_end|>`: a model stops before it, so
it may be trained or not. A token that ends answers may be trained although L lacks it, as with templates in which the
next turn's marker ends an answer. Thoughts that `reasoning_loss: mask` excludes need not be trained.

With `loss_mode: full`, which trains everything, only texts and tokens are compared, not the mask.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.recipe.serving import ServingConfig
from bridgepack.data.answers.finder import AnswerFinder
from bridgepack.data.answers.segments import NO_ANSWER
from bridgepack.data.sequences.blocks import messages_of_blocks
from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.thoughts import ReasoningMasks
from bridgepack.data.served.answer_tokens import AnswerTokens, Span
from bridgepack.data.served.renders import ServerRenders
from bridgepack.data.served.tokens import KnownText, first_unequal
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.markers import TurnTexts
from bridgepack.data.templates.probe import end_of_turn_ids
from bridgepack.data.tokenizers.cutting import CuttingTokens
from bridgepack.data.tokenizers.limits import STOPPED
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.geometry import IntArray
from bridgepack.records import ASSISTANT, MaskArray, ServedKind, TokenArray

_OTHER_CONTEXT = "the tokens before the answer are not what the server sends"
_NEVER_SHOWN = (
    f"{_OTHER_CONTEXT}; the template writes other text before the answer even if it is the last, so splitting does not "
    "help"
)
_OTHER_ANSWER = "the training text of the answer is not what the model writes when it is served"
_OTHER_TOKENS = "the training text ends the answer with other tokens, as what follows is cut together with it"
_STRADDLES = "a token straddles the end of what the server sends"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedAnswer:
    """A trained answer, compared with what is served."""

    turn: int  #: its message, from 1
    kind: ServedKind
    num_trained_tokens: int = 0
    detail: str = ""  #: what differs
    token: int | None = None  #: the first token that differs, from 0; None if none does or it is unknown
    trained_text: str = ""  #: text around it in the packed tokens
    served_text: str = ""  #: text around it in what is served; empty if the texts are the same
    #: its tokens in the sequence: from the end of S to the end of L where the training text has both, else those that
    #: the mask has for it; None if unknown
    span: Span | None = None
    straddles: bool = False  #: a token lies across the end of S, so that no mask makes the answer equal
    is_never_shown: bool = False  #: the template writes other text than S before it even if it is the last


class ServedComparer:
    """Compares conversations of one recipe."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        facts: TemplateFacts,
        serving: ServingConfig,
        *,
        shows_texts: bool = True,
    ) -> None:
        """Take a recipe's settings and the facts of its chat template.

        Without `shows_texts`, answers lack `token` and texts where their texts differ.
        """
        self._tokenizer, self._settings, self._shows_texts = tokenizer, settings, shows_texts
        self._renders = ServerRenders(tokenizer, serving)
        self._cutting = CuttingTokens(tokenizer)
        self._finder = AnswerFinder(tokenizer, TurnTexts())
        self._unlearned = _Unlearned(tokenizer) if settings.reasoning_loss == "mask" else None
        #: what no model writes, as it stands behind the last answer's end
        self._chat_end = facts.chat_end
        ends = set() if facts.markers is None else {index for end in facts.markers.ends for index in end}
        self._ends = ends | {tokenizer.eos_token_id, *end_of_turn_ids(tokenizer)}
        self._blanks: dict[int, bool] = {}

    @property
    def num_rendered(self) -> int:
        """Number of characters rendered so far."""
        return self._renders.num_characters

    def name_blocks(self, chat: RenderedChat, tokens: AnswerTokens) -> AnswerTokens:
        """Return the tokens of a conversation's answers with whose each generation block is, if that can be told.

        Raises:
            RowError: a render takes too much time or memory.
        """
        if chat.spans is None or NO_ANSWER not in tokens.places or self._settings.loss_mode == "full":
            return tokens
        try:
            messages = messages_of_blocks(self._finder, chat)
        except RowError as error:
            if error.reason in STOPPED:
                raise
            return tokens
        (encoding,) = self._tokenizer.encode_with_places([chat.text])
        return tokens.with_blocks(messages, self._tokenizer.ranges_of_blocks(encoding, chat.spans))

    def compare(self, chat: RenderedChat, input_ids: TokenArray, tokens: AnswerTokens) -> list[ServedAnswer]:
        """Return the trained answers of a conversation, in order.

        `input_ids` are those of its uncut sequence, shape [num_tokens].
        """
        known_text = KnownText(self._tokenizer, self._cutting, chat.text, input_ids)
        is_full = self._settings.loss_mode == "full"
        answers: list[ServedAnswer] = []
        for turn in self._trained_turns(chat.conversation):
            previous_end = answers[-1].span[1] if answers and answers[-1].span else None if answers else 0
            answer = self._answer(chat.conversation, turn, known_text, tokens, previous_end)
            if is_full:
                count = self._served_length(chat.conversation, turn, known_text)
            else:
                count = tokens.num_trained(turn, answer.span)
            answers.append(replace(answer, span=answer.span or tokens.span(turn), num_trained_tokens=count))
        return answers

    def _trained_turns(self, conversation: Conversation) -> list[int]:
        turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        turns = turns[-1:] if self._settings.loss_mode == "last_turn" else turns
        return [turn for turn in turns if turn not in conversation.untrained]

    def _answer(
        self,
        conversation: Conversation,
        turn: int,
        known_text: KnownText,
        tokens: AnswerTokens,
        previous_end: int | None,
    ) -> ServedAnswer:
        """Return one answer; `previous_end` is the end of the answer before it, None if unknown."""
        number = turn + 1
        try:
            before = self._renders.before(conversation, turn)
            through = self._renders.through(conversation, turn).removesuffix(self._chat_end)
        except RowError as error:
            return ServedAnswer(turn=number, kind=ServedKind.REFUSED, detail=error.detail)
        if not known_text.text.startswith(before):
            is_never = not through.startswith(before)
            detail = _NEVER_SHOWN if is_never else _OTHER_CONTEXT
            return replace(
                self._differing(number, ServedKind.CONTEXT, detail, known_text, before), is_never_shown=is_never
            )
        server_ids = known_text.tokens_of(before)
        if not through.startswith(before) or not known_text.text.startswith(through.rstrip()):
            span = tokens.span(turn) or (len(server_ids), len(server_ids))
            return replace(self._differing(number, ServedKind.ANSWER, _OTHER_ANSWER, known_text, through), span=span)
        through_ids = self._without_blanks(known_text.tokens_of(through))
        span = len(server_ids), max(len(through_ids), len(server_ids))
        if first_unequal(known_text.input_ids, server_ids) < len(server_ids):
            answer = self._differing(number, ServedKind.BOUNDARY, _STRADDLES, known_text, before)
            return replace(answer, span=span, straddles=True)
        if first_unequal(known_text.input_ids, through_ids) < len(through_ids):
            return replace(self._differing(number, ServedKind.ANSWER, _OTHER_TOKENS, known_text, through), span=span)
        if self._settings.loss_mode == "full":
            return ServedAnswer(turn=number, kind=ServedKind.EQUAL, span=span)
        if previous_end is None and turn and conversation.messages[turn - 1]["role"] == ASSISTANT:
            previous_end = span[0]
        is_followed = any(message["role"] == ASSISTANT for message in conversation.messages[turn + 1 : turn + 2])
        case = _MaskCase(number, known_text, tokens.mask, span, previous_end or 0, is_followed=is_followed)
        return self._judge(case)

    def _differing(
        self, turn: int, kind: ServedKind, detail: str, known_text: KnownText, other_text: str
    ) -> ServedAnswer:
        if not self._shows_texts:
            return ServedAnswer(turn=turn, kind=kind, detail=detail)
        token, trained_text, served_text = known_text.difference(other_text)
        return ServedAnswer(
            turn=turn, kind=kind, detail=detail, token=token, trained_text=trained_text, served_text=served_text
        )

    def _judge(self, case: "_MaskCase") -> ServedAnswer:
        """Return the kind of an answer whose tokens are those that are served."""
        start, stop = case.span
        is_missing = case.mask[start:stop] == 0
        if self._unlearned is not None:
            is_missing &= ~self._unlearned.tokens(case.known.text, case.span)
        missing = np.flatnonzero(is_missing) + start
        if len(missing) == stop - start > 0:
            return case.finding(ServedKind.ANSWER, "nothing of the answer is trained", start)
        is_leading = len(missing) > 0 and not case.mask[start : missing[-1]].any()
        if len(missing) and not is_leading:
            part_text = "what ends the answer" if case.mask[missing[-1] : stop].sum() == 0 else "a part of the answer"
            return case.finding(
                ServedKind.ANSWER, f"{part_text} is not trained{self._why(case, missing)}", int(missing[0])
            )
        extra = next((token for token in case.trained_from(stop) if not self._may_follow(case.known, token)), None)
        if extra is not None and not case.is_followed:
            return case.finding(ServedKind.ANSWER, "text after the end of the answer is trained", extra)
        begin = case.begin
        if begin < start:
            detail = f"{_tokens(start - begin)} trained that the server writes, in its generation prompt"
            return case.finding(ServedKind.BOUNDARY, detail, begin)
        if is_leading:
            detail = f"{_tokens(len(missing))} not trained that the model must write, at the beginning of its answer"
            return case.finding(ServedKind.BOUNDARY, detail + self._why(case, missing), int(missing[0]))
        return ServedAnswer(turn=case.turn, kind=ServedKind.EQUAL, span=case.span)

    def _why(self, case: "_MaskCase", missing: IntArray) -> str:
        """Return which of the untrained tokens are never trained, and what to do about it."""
        never = self._tokenizer.never_trained_ids if self._settings.masks_control_tokens else ()
        tokens = [token for token in case.known.input_ids[missing].tolist() if token in never]
        if not tokens:
            return ""
        return (
            f"; Megatron-Bridge never trains {self._tokenizer.decode(tokens[:1])!r}, so set "
            "preprocessing.masks_control_tokens to false"
        )

    def _may_follow(self, known_text: KnownText, token: int) -> bool:
        """Return whether a trained token may stand behind an answer: white space, or what ends an answer."""
        index = int(known_text.input_ids[token])
        return index in self._ends or self._blank(index)

    def _without_blanks(self, ids: TokenArray) -> TokenArray:
        """Return tokens without those of white space at the end."""
        stop = len(ids)
        while stop and self._blank(int(ids[stop - 1])):
            stop -= 1
        return ids[:stop]

    def _blank(self, index: int) -> bool:
        if index not in self._blanks:
            self._blanks[index] = not self._tokenizer.decode([index]).strip()
        return self._blanks[index]

    def _served_length(self, conversation: Conversation, turn: int, known_text: KnownText) -> int:
        """Return how many tokens an answer has when it is served; 0 if the template rejects it."""
        try:
            texts = self._renders.through(conversation, turn), self._renders.before(conversation, turn)
        except RowError:
            return 0
        through, before = (len(known_text.tokens_of(text)) for text in texts)
        return max(through - before, 0)


@dataclass(frozen=True, slots=True)
class _MaskCase:
    """The mask of an answer whose tokens are those that are served."""

    turn: int
    known: KnownText
    mask: MaskArray
    span: Span
    reached: int  #: end of the answer before it
    is_followed: bool  #: another answer follows at once

    @property
    def begin(self) -> int:
        """The first of the trained tokens right before the answer; its first token if there are none."""
        begin = self.span[0]
        while begin > self.reached and self.mask[begin - 1]:
            begin -= 1
        return begin

    def trained_from(self, token: int) -> Iterator[int]:
        """Yield the trained tokens from one on, without a gap."""
        return takewhile(lambda place: self.mask[place] != 0, range(token, len(self.mask)))

    def finding(self, kind: ServedKind, detail: str, token: int) -> ServedAnswer:
        """Return the answer with what was found at a token."""
        span = self.begin, self.span[1]
        text = self.known.shown_at(token)
        return ServedAnswer(turn=self.turn, kind=kind, detail=detail, token=token, trained_text=text, span=span)


class _Unlearned:
    """Finds the thoughts that `reasoning_loss: mask` excludes; empty blocks are not thoughts."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._all, self._empty = ReasoningMasks(tokenizer, "mask"), ReasoningMasks(tokenizer, "mask_empty")

    def tokens(self, text: str, span: Span) -> npt.NDArray[np.bool_]:
        """Return which tokens of a span are thoughts; shape [num_tokens of the span], bool."""
        start, stop = span
        is_thought = np.zeros(stop - start, dtype=np.bool_)
        for reasoning, is_unlearned in ((self._all, True), (self._empty, False)):
            for first, behind in reasoning.tokens([span] if start < stop else [], text):
                is_thought[first - start : behind - start] = is_unlearned
        return is_thought


def _tokens(count: int) -> str:
    return "1 token is" if count == 1 else f"{count} tokens are"
