"""Finds the template's own switches that show answers in training as they are served, by trying its variables."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from bridgepack.data.sequences.conversation import RenderedChat
from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.rows import ServedRows, chat_of
from bridgepack.data.templates.variables import settable
from bridgepack.data.tokenizers.limits import STOPPED, TimeLimit
from bridgepack.errors import RowError
from bridgepack.records import SWITCHED_KINDS, ServedKind
from bridgepack.records.rows import ReadRow

#: Maximum variables to try.
_MOST = 32
#: Rows to keep of those with the same kinds of answers, and in all.
_MOST_ALIKE, _MOST_ROWS = 4, 16
#: Differing rows for which variables are tried, and characters rendered after which no further one is.
_MOST_SEEDS, _BUDGET = 3, 4_000_000
_Kinds = frozenset[tuple[ServedKind, bool]]


class Switch(NamedTuple):
    """A variable of the template and its value."""

    name: str = ""  #: empty if there is none
    value: bool = False
    is_partial: bool = False  #: set for all rows, it would make answers differ that do not


NO_SWITCH = Switch()


class Switches(NamedTuple):
    """What `find_switch` and `find_prompt_switch` return."""

    texts: Switch = NO_SWITCH
    prompt: Switch = NO_SWITCH


class SwitchRows:
    """Rows for which a switch is looked for: the first ones of each mix of kinds."""

    def __init__(self) -> None:
        #: row as layouts read it, kinds of its answers and whether a token lies across the end of what is sent
        self.rows: list[tuple[ReadRow, _Kinds]] = []
        self._alike = Counter[_Kinds]()

    def add(self, row: ReadRow, answers: Sequence[ServedAnswer]) -> None:
        """Keep a row if there is room; `answers` are its own, at least one."""
        kinds = frozenset((answer.kind, answer.straddles) for answer in answers)
        if self._alike[kinds] < _MOST_ALIKE and len(self.rows) < _MOST_ROWS:
            self._alike[kinds] += 1
            self.rows.append((row, kinds))

    def seeds(self, wants: "_Wants") -> list[ReadRow]:
        """Return the first row of each mix of kinds with an answer that a switch is wanted for, for some mixes."""
        firsts: dict[_Kinds, ReadRow] = {}
        for row, kinds in self.rows:
            if any(wants(*facts) for facts in kinds):
                firsts.setdefault(kinds, row)
        return list(firsts.values())[:_MOST_SEEDS]


#: Whether a switch is wanted for an answer of a kind, of which a token may lie across the end of what is sent.
_Wants = Callable[[ServedKind, bool], bool]


def find_switches(rows: ServedRows, switch_rows: SwitchRows) -> Switches:
    """Return the switch that makes texts the same, and the one with which no token lies across the end of a prompt."""
    return Switches(find_switch(rows, switch_rows), find_prompt_switch(rows, switch_rows))


def find_switch(rows: ServedRows, switch_rows: SwitchRows) -> Switch:
    """Return the switch that makes contexts and answers the same in training and serving when it is set in both.

    It cures all answers of a differing row and harms none of another; failing that, it is partial. Answers may still
    differ at the boundary, and no text that the model must write may get lost. Of several switches for a row, the one
    with the most equal answers counts, then the first by name.
    """
    return _find(rows, switch_rows, lambda kind, _: kind in SWITCHED_KINDS)


def find_prompt_switch(rows: ServedRows, switch_rows: SwitchRows) -> Switch:
    """Return the switch with which no token lies across the end of what the server sends, as `find_switch` does.

    Rows without thoughts have such tokens where the generation prompt opens a thought: `<think>` and an empty line, of
    which the server writes the first half. No mask cures them; a prompt that writes the empty thought does.
    """
    return _find(rows, switch_rows, lambda kind, straddles: kind == ServedKind.BOUNDARY and straddles)


def _find(rows: ServedRows, switch_rows: SwitchRows, wants: _Wants) -> Switch:
    seeds = switch_rows.seeds(wants)
    if not seeds:
        return NO_SWITCH
    names, best, budget = sorted(settable(rows.stage.tokenizer))[:_MOST], NO_SWITCH, rows.comparer.num_rendered
    with TimeLimit() as limit:
        trial = _Trial(rows, limit, wants)
        for seed in seeds:
            other_rows = [row for row, _ in switch_rows.rows if row is not seed]
            for switch in trial.cures(seed, names):
                if not any(trial.is_harmed(row, switch) for row in other_rows):
                    return switch
                best = best if best.name else switch._replace(is_partial=True)
            if rows.comparer.num_rendered - budget > _BUDGET:
                break
    return best


class _Shown(NamedTuple):
    """A row's texts and answers with some variables."""

    texts: list[str]
    answers: list[ServedAnswer]


class _Trial:
    """Tries variables on rows, until one takes too much time or memory to render."""

    def __init__(self, rows: ServedRows, limit: TimeLimit, wants: _Wants) -> None:
        self._rows, self._limit, self._wants, self._is_stopped = rows, limit, wants, False

    def cures(self, row: ReadRow, names: Sequence[str]) -> list[Switch]:
        """Return the switches that cure a row, the best first."""
        pieces = self._pieces(row)
        before = self._view(pieces)
        if before is None:
            return []
        switches = []
        for name, value in product(names, (True, False)):
            if self._is_stopped:
                break
            after = self._view([_with_variable(chat, name, value) for chat in pieces])
            if after is not None and self._is_cured(before, after):
                switches.append((-sum(answer.kind == ServedKind.EQUAL for answer in after.answers), name, value))
        return [Switch(name, value) for _, name, value in sorted(switches)]

    def is_harmed(self, row: ReadRow, switch: Switch) -> bool:
        """Return whether an answer of a row differs with a switch that does not without it, or loses text."""
        pieces = self._pieces(row)
        before = self._view(pieces)
        if before is None:
            return False
        after = self._view([_with_variable(chat, switch.name, switch.value) for chat in pieces])
        return after is None or _harms(before, after)

    def _is_cured(self, before: _Shown, after: _Shown) -> bool:
        """Return whether no answer is left for which a switch is wanted, and nothing is lost."""
        return not _harms(before, after) and not any(
            self._wants(answer.kind, answer.straddles) for answer in after.answers
        )

    def _pieces(self, row: ReadRow) -> list[RenderedChat]:
        try:
            prepared_row = self._limit(self._rows.stage.encoder.prepare, row)
        except RowError:
            return []
        return [chat for value in prepared_row.values if (chat := chat_of(value)) is not None]

    def _view(self, pieces: Sequence[RenderedChat]) -> _Shown | None:
        """Return what pieces show; None if the template or the masks reject them, or nothing is trained."""
        try:
            return self._limit(self._compare, pieces)
        except RowError as error:
            self._is_stopped |= error.reason in STOPPED
            return None

    def _compare(self, pieces: Sequence[RenderedChat]) -> _Shown | None:
        chats = [_render(self._rows, chat) for chat in pieces]
        outcomes = self._rows.compare_chats(chats)
        answers = [answer for outcome in outcomes if not isinstance(outcome, RowError) for answer in outcome]
        has_any = any(not isinstance(outcome, RowError) for outcome in outcomes)
        return _Shown([chat.text for chat in chats], answers) if has_any and answers else None


def _with_variable(chat: RenderedChat, name: str, value: bool) -> RenderedChat:
    """Return a chat with a variable that the recipe sets; a row's own value stays."""
    conversation = chat.conversation
    kwargs = {name: value, **conversation.template_kwargs}
    return chat._replace(conversation=conversation._replace(template_kwargs=kwargs, is_plain=False))


def _render(rows: ServedRows, chat: RenderedChat) -> RenderedChat:
    conversation, tokenizer = chat.conversation, rows.stage.tokenizer
    inputs = conversation.messages, conversation.tools, conversation.template_kwargs
    if tokenizer.has_generation_blocks:
        text, spans = tokenizer.render_marked(*inputs)
        return chat._replace(text=text, spans=spans)
    return chat._replace(text=tokenizer.render_text(*inputs))


def _harms(before: _Shown, after: _Shown) -> bool:
    """Return whether an answer differs that did not, in what no mask can cure, or text is lost."""
    if len(after.answers) != len(before.answers) or _loses(before, after):
        return True
    pairs = zip(before.answers, after.answers, strict=True)
    return any(_is_good(answer_before) and not _is_good(answer_after) for answer_before, answer_after in pairs)


def _is_good(answer: ServedAnswer) -> bool:
    return answer.kind not in SWITCHED_KINDS and answer.kind != ServedKind.REFUSED and not answer.straddles


def _loses(before: _Shown, after: _Shown) -> bool:
    """Return whether fewer tokens are trained although the text changes.

    Fewer tokens of the same text are no loss: the server then writes the others.
    """
    num_before, num_after = (sum(answer.num_trained_tokens for answer in side.answers) for side in (before, after))
    return num_after < num_before and after.texts != before.texts
