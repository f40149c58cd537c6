"""Makes the sequences of a conversation: one, or as few as show each trained answer as a server shows it.

A server renders the turns before an answer, and the model writes the answer. The render that ends with the answer
shows both. In a longer render the answer may look other: many templates take the reasoning out of earlier answers. An
answer belongs to a longer sequence only if that begins with the answer's own render; otherwise it gets its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.over_long import HistoryCut
from bridgepack.data.sequences.splitting.exchanges import ExchangeSplitter
from bridgepack.data.sequences.splitting.history import HistoryCutter
from bridgepack.data.templates.markers import TurnMarkers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT, LostKind


class Parts(NamedTuple):
    """The sequences of a conversation, rendered."""

    chats: list[RenderedChat]
    turns: tuple[frozenset[int], ...] = ()  #: as of `Prepared`
    removed: tuple[frozenset[int], ...] = ()  #: as of `Prepared`
    losses: tuple[Loss, ...] = ()  #: what was left out on purpose
    stops: tuple[str, ...] = ()  #: as of `Prepared`


class ConversationSplitter:
    """Splits conversations for one chat template."""

    def __init__(
        self,
        render: Callable[[Conversation], RenderedChat],
        *,
        end_texts: Sequence[str],
        added_tokens: Collection[str],
    ) -> None:
        """Take the function that renders a conversation.

        Args:
            render: raises RowError if the template refuses the conversation.
            end_texts: texts that can end an answer.
            added_tokens: texts of the tokenizer's added tokens.
        """
        self._render, self._ends = render, tuple(end_texts)
        self._added = sorted(filter(None, added_tokens), key=len, reverse=True)

    def pieces(self, conversation: Conversation) -> list[RenderedChat]:
        """Return the sequences of a conversation, rendered, in the order of their last answers.

        Every trained answer is trained in one of them. A conversation without a trained answer stays whole.

        Raises:
            RowError: the template refuses the conversation up to one of its trained answers.
        """
        answers = conversation.trained_positions
        if not answers:
            return [self._render(conversation)]
        groups: list[tuple[RenderedChat, list[int]]] = []  # the last sequence first
        for answer in reversed(answers):
            chat = self._render_up_to(conversation, answer)
            text = chat.text[: self._stop(chat)]
            home = next((members for longer, members in reversed(groups) if longer.text.startswith(text)), None)
            if home is None:
                groups.append((chat, [answer]))
            else:
                home.append(answer)
        return [chat._replace(conversation=conversation.piece(members)) for chat, members in reversed(groups)]

    def _render_up_to(self, conversation: Conversation, answer: int) -> RenderedChat:
        """Return the render of the turns up to an answer."""
        try:
            return self._render(conversation.through(answer + 1))
        except RowError as error:
            if answer == conversation.trained_positions[-1]:
                raise
            detail = f"{error.detail}; the turns up to turn {answer + 1} alone, which split_conversations needs"
            raise RowError(error.reason, detail) from None

    def _stop(self, chat: RenderedChat) -> int:
        """Return where the last answer ends: before white space and tokens that the template writes after its end."""
        text = chat.text
        end_of_block = max((stop for _, stop in chat.spans or ()), default=0)
        end_of_marker = max((place + len(end) for end in self._ends if (place := text.rfind(end)) >= 0), default=0)
        stop = max(end_of_block, end_of_marker)
        tail = text[stop:]
        for token in self._added:
            tail = tail.replace(token, "")
        return stop if stop and not tail.strip() else len(text)


class PartMaker:
    """Makes the sequences of conversations according to the recipe's settings."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        markers: TurnMarkers | None,
        render: Callable[[Conversation], RenderedChat],
        max_runtime_length: int | None,
    ) -> None:
        """Take the function that renders a conversation; the length is needed to leave out or split history."""
        self._render = render
        self._splitter: ConversationSplitter | None = None
        self._stops: Mapping[str, str] = {}
        splits_exchanges = settings.over_long == "split_exchanges"
        if splits_exchanges or settings.split_conversations == "when_context_differs":
            self._stops = _stops_by_role(tokenizer, markers)
        if settings.split_conversations == "when_context_differs":
            ends = () if markers is None else markers.end_texts
            self._splitter = ConversationSplitter(render, end_texts=ends, added_tokens=tokenizer.added_tokens)
        self._cutter: HistoryCutter | None = None
        self._exchanges: ExchangeSplitter | None = None
        if splits_exchanges or settings.over_long == "truncate_history":
            assert max_runtime_length is not None
            cutter = HistoryCutter(
                render,
                lambda text: len(tokenizer.engine.encode_flat([text]).input_ids),
                max_runtime_length - bool(self._stops),
                keeps_bytes=tokenizer.keeps_bytes,
                trains_all=settings.loss_mode == "full",
            )
            if splits_exchanges:
                self._exchanges = ExchangeSplitter(render, cutter.fits)
            self._cutter = cutter

    @property
    def may_split(self) -> bool:
        """Whether a conversation may become something else than one sequence with all of its turns."""
        return self._splitter is not None or self._cutter is not None

    def parts(self, conversation: Conversation) -> Parts:
        """Return the sequences of a conversation.

        Raises:
            RowError: the template refuses it, or a part that is needed.
        """
        if self._exchanges is not None:
            return self._split(conversation, self._exchanges)
        turns: tuple[frozenset[int], ...] = ()
        if self._splitter is None:
            chats = [self._render(conversation)]
        else:
            chats = self._splitter.pieces(conversation)
            turns = tuple(frozenset(chat.conversation.trained_positions) for chat in chats)
        all_parts = Parts(chats, turns if any(turns) else ())
        parts = all_parts if self._cutter is None else _fit_history(all_parts, self._cutter)
        return self._add_stop_tokens(parts, conversation) if self._stops and parts.turns else parts

    def _split(self, conversation: Conversation, exchanges: ExchangeSplitter) -> Parts:
        """Return the whole conversation if it fits or trains nothing, otherwise its runs of exchanges."""
        assert self._cutter is not None
        chat = self._render(conversation)
        if not conversation.trained_positions or self._cutter.fits(chat.text):
            return Parts([chat])
        runs, left_out = exchanges.runs(conversation)
        losses: tuple[Loss, ...] = ()
        if left_out.num_turns:
            losses = (Loss(LostKind.CUT_HISTORY, left_out.detail(self._cutter.max_runtime_length)),)
        turns, positions = tuple(run.trained for run in runs), tuple(run.removed for run in runs)
        parts = Parts([run.chat for run in runs], turns, positions, losses)
        return self._add_stop_tokens(parts, conversation) if self._stops else parts

    def _add_stop_tokens(self, parts: Parts, conversation: Conversation) -> Parts:
        """Return sequences that end with the token of the next turn at which a server stops the last answer."""
        stops = []
        for chat, turns in zip(parts.chats, parts.turns, strict=True):
            following = conversation.messages[max(turns) + 1 : max(turns) + 2]
            stop = self._stops.get(following[0]["role"], "") if following else ""
            stops.append("" if chat.text.endswith(stop) else stop)
        chats = [chat._replace(text=chat.text + stop) for chat, stop in zip(parts.chats, stops, strict=True)]
        return parts._replace(chats=chats, stops=tuple(stops))


def _stops_by_role(tokenizer: ChatTokenizer, markers: TurnMarkers | None) -> dict[str, str]:
    """Return role -> text that begins its turns and ends the answer before it; of templates without other ends."""
    if markers is None:
        return {}
    starts = {role: ids for role, ids in markers.starts.items() if role != ASSISTANT}
    end_of_role = {
        role: next((end for end in markers.ends if ids[: len(end)] == end), ()) for role, ids in starts.items()
    }
    is_endless = all(any(ids[: len(end)] == end for ids in starts.values()) for end in markers.ends)
    return {role: tokenizer.decode(end) for role, end in end_of_role.items() if end} if is_endless else {}


def _fit_history(parts: Parts, cutter: HistoryCutter) -> Parts:
    """Return sequences without the history that makes them too long."""
    chats = [cutter.fit(chat) for chat in parts.chats]
    cuts = [chat.cut for chat in chats if chat.cut is not None]
    if not cuts:
        return parts
    detail = HistoryCut.total(cuts).detail(cutter.max_runtime_length)
    return parts._replace(
        chats=[chat.chat for chat in chats],
        removed=tuple(chat.removed for chat in chats),
        losses=(Loss(LostKind.CUT_HISTORY, detail),),
    )
