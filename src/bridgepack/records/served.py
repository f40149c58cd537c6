"""What a comparison of trained answers with served ones finds: kinds, their cures, and counts of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ServedKind(StrEnum):
    """How a trained answer relates to what a server sends for it and what the model must then write."""

    EQUAL = "equal"
    CONTEXT = "context-differs"
    ANSWER = "answer-differs"
    BOUNDARY = "boundary-differs"
    #: The template rejects the turns before the answer, or the conversation up to it.
    REFUSED = "refused"
    #: `over_long` left out earlier turns, which a server still has (`truncate_history`, `split_exchanges`), or the end
    #: of the answer (`truncate`).
    CUT = "cut-on-purpose"


#: Kinds that are no difference, or one that the recipe asks for.
EXPECTED_KINDS = frozenset({ServedKind.EQUAL, ServedKind.CUT})
#: Kinds that a switch of the template can cure.
SWITCHED_KINDS = frozenset({ServedKind.CONTEXT, ServedKind.ANSWER})
#: Settings of conversations that cures propose, and what they are once they are set.
CURING_SETTINGS: Mapping[str, tuple[object, ...]] = {
    "split_conversations": ("when_context_differs",),
    "loss_mode": ("last_turn", "full"),
    "mask_generation_prompt": (True,),
    "masks_control_tokens": (False,),
    "over_long": ("split_exchanges",),
}
#: Field of the recipe with the template's variables, among them its own switches.
VARIABLES = "tokenizer.chat_template_kwargs"
_SPLIT = "preprocessing.split_conversations to when_context_differs"
_TEMPLATE = "or the template or its variables in training and serving alike"
_SERVER = (
    "where the server sets another system prompt or other template variables, say so in serving, and train with the "
    "same"
)
_BEHIND = "the template shows an answer behind another text even as the last one"
_NOT_SPLIT = f"change the thoughts in the rows, {_TEMPLATE}: {_BEHIND}, so splitting does not help; {_SERVER}"
_OTHER_CONTEXT = f"where {_BEHIND}, change its thoughts in the rows, {_TEMPLATE}; {_SERVER}"
_CONTROL = "where a token that the model must write is never trained, set preprocessing.masks_control_tokens to false"
_REFUSED = (
    "nothing is known of these answers; a server with this template fails there, too, so correct the rows or set "
    "tokenizer.chat_template to another template"
)


def served_cure(
    kind: ServedKind,
    settings: Mapping[str, object],
    *,
    trial: tuple[int, int] = (0, 0),
    is_switched: bool = False,
    is_never_shown: bool = False,
) -> str:
    """Return what to do about a kind, apart from a switch of the template.

    `settings` are those of CURING_SETTINGS that are set already, which it does not propose; `trial` are the rows on
    which `mask_generation_prompt` was tried, and those of them that it would drop; `is_switched` if a switch of the
    prompt comes first, `is_never_shown` if splitting helps none of the answers.
    """
    if kind == ServedKind.CONTEXT and is_never_shown and "split_conversations" not in settings:
        return _NOT_SPLIT
    if kind == ServedKind.CONTEXT:
        return f"{_split_cure(settings)}; {_OTHER_CONTEXT}"
    if kind == ServedKind.BOUNDARY:
        return _boundary_cure(settings, *trial, is_switched=is_switched)
    if kind != ServedKind.ANSWER:
        return _REFUSED
    mode = settings.get("loss_mode")
    if mode == "full":
        return "set preprocessing.loss_mode to last_turn"
    if mode is None and "split_conversations" not in settings:
        last_turn = "" if "over_long" in settings else ", or preprocessing.loss_mode to last_turn"
        return _split_cure(settings) + last_turn
    control = "" if "masks_control_tokens" in settings else f"{_CONTROL}; "
    return f"{_split_cure(settings)}; {control}otherwise change the rows, or the template in training and serving alike"


def _split_cure(settings: Mapping[str, object]) -> str:
    """Return how to split conversations, with the settings that do not go with it; or that nothing is left to split."""
    mode = settings.get("loss_mode")
    if "split_conversations" in settings:
        return "preprocessing.split_conversations is when_context_differs already"
    if mode == "last_turn":
        return "preprocessing.loss_mode is last_turn already, so that no conversation needs to be split"
    if "over_long" in settings:
        return f"set preprocessing.over_long to truncate_history and {_SPLIT}"
    return f"set preprocessing.loss_mode to assistant and {_SPLIT}" if mode == "full" else f"set {_SPLIT}"


def _boundary_cure(settings: Mapping[str, object], num_tried: int, num_dropped: int, *, is_switched: bool) -> str:
    as_server = "tokenizer.chat_template_kwargs as the server has them"
    is_masked = "mask_generation_prompt" in settings
    drops = "alone would drop" if is_switched else "would drop"
    loss = f", which {drops} {num_dropped:,} of {num_tried:,} rows that were tried" if num_dropped else ""
    begin = f"set preprocessing.mask_generation_prompt to true{loss}, and {as_server}"
    if is_masked:
        begin = f"preprocessing.mask_generation_prompt is true already; set {as_server}"
    elif settings.get("loss_mode") == "full":
        begin = f"set {as_server}"
    if "masks_control_tokens" not in settings:
        return f"{begin}; {_CONTROL}"
    no_setting = "; otherwise no setting is left: use a tokenizer that has the template's markers as tokens"
    return begin + (no_setting if is_masked else "")


def switch_cure(name: str, value: bool, *, is_partial: bool = False) -> str:
    """Return how to set a switch of the template in training and at the server; if it is partial, for some rows."""
    text = str(value).lower()
    if is_partial:
        return (
            f'give the rows that this cures {{"{name}": {text}}} in a column that data.layout.chat_template_kwargs '
            "names, and requests like them the same; set for all rows, it makes answers of others differ"
        )
    return (
        f"set tokenizer.chat_template_kwargs.{name} to {text} and the same at the server: in requests "
        f'"chat_template_kwargs": {{"{name}": {text}}}, or vllm serve --default-chat-template-kwargs '
        f"'{{\"{name}\": {text}}}'"
    )


def _how_to_set(setting: Mapping[str, Any]) -> str:
    """Return how to set a setting that was measured; a switch of the template also at the server."""
    settings = [f"{path} to {_plain(value)}" for path, value in setting.items() if path != VARIABLES]
    switches = [switch_cure(name, value) for name, value in setting.get(VARIABLES, {}).items()]
    return "; and ".join([*switches, *([f"set {' and '.join(settings)}"] if settings else [])])


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedCount:
    """Answers of one kind, with the first of them."""

    kind: str  #: value of a `ServedKind`
    num_answers: int
    num_trained_tokens: int
    file_index: int  #: file of the first answer, an index in the inputs that were compared
    row: int  #: row of that file, from 1
    turn: int  #: message of that row, from 1
    detail: str  #: what differs there; empty if nothing does
    is_row_exact: bool = True  #: the row's number is known, not estimated


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """What a setting trains of the answers of a sample's rows, and in how many tokens."""

    setting: Mapping[str, Any]  #: dotted path of the recipe -> value; empty for the recipe as it is
    kinds: Mapping[str, int]  #: value of a `ServedKind` -> trained answers
    num_tokens: int  #: runtime tokens of the rows' sequences

    @property
    def num_trained(self) -> int:
        """Number of trained answers."""
        return sum(self.kinds.values())

    @property
    def num_as_served(self) -> int:
        """Number of answers that are trained as they are served, or cut on purpose."""
        return sum(count for kind, count in self.kinds.items() if kind in EXPECTED_KINDS)

    @property
    def served_fraction(self) -> float:
        """Share (0-1) of the trained answers that are as they are served."""
        return self.num_as_served / max(self.num_trained, 1)

    @property
    def merit(self) -> tuple[int, float, int, int]:
        """What orders settings: answers as they are served, their share, few tokens, then few settings."""
        return self.num_as_served, self.served_fraction, -self.num_tokens, -len(self.setting)

    def is_better_than(self, rival: Shares) -> bool:
        """Return whether more answers, and a larger share of the trained ones, are as they are served."""
        return self.merit[:2] > rival.merit[:2] and self.served_fraction > rival.served_fraction

    @property
    def name(self) -> str:
        """The setting in a line, e.g. `preprocessing.loss_mode: last_turn`."""
        values = {path: value for path, value in self.setting.items() if path != VARIABLES}
        switches = {f"{VARIABLES}.{name}": value for name, value in self.setting.get(VARIABLES, {}).items()}
        return ", ".join(f"{path}: {_plain(value)}" for path, value in (switches | values).items()) or "as it is"

    def trained_fraction(self, as_it_is: Shares) -> float:
        """Return the share (0-1) of the answers that the recipe trains as it is which are trained with the setting."""
        return min(self.num_trained / max(as_it_is.num_trained, 1), 1.0)

    def token_ratio(self, as_it_is: Shares) -> float:
        """Return the tokens for each token of the recipe as it is."""
        return self.num_tokens / max(as_it_is.num_tokens, 1)

    def price(self, as_it_is: Shares) -> str:
        """Return what the setting costs and gives: `1.7 times the tokens, 100% of the trained answers as served`."""
        tokens, trained_fraction = f"{self.token_ratio(as_it_is):.1f}", self.trained_fraction(as_it_is)
        costs = [f"{tokens} times the tokens"] if tokens != "1.0" else []
        costs += [f"{percent(trained_fraction)} of the answers trained"] if trained_fraction < 1 else []
        return ", ".join([*costs, f"{percent(self.served_fraction)} of the trained answers as served"])


def percent(fraction: float) -> str:
    """Return a share as text that says 100% and 0% only of all and none: 0.9996 -> `99.9%`."""
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}"
    return f"{min(max(fraction, 0.001), 0.999):.{0 if 0.01 <= fraction <= 0.99 else 1}%}"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRecord:
    """Comparison of a sample of trained answers with served ones."""

    num_rows: int  #: rows whose answers were compared
    counts: tuple[ServedCount, ...]  #: kinds that occur, in the order of `ServedKind`
    #: variable of the template whose value, set in training and serving alike, makes the answers of a differing row the
    #: same on both sides, e.g. `preserve_thinking`; empty if there is none
    switch: str = ""
    switch_value: bool = False  #: that value
    is_switch_partial: bool = False  #: set for all rows, it would make answers differ that do not
    #: of the answers with another context, splitting conversations would show none as it is served; left out of the
    #: manifest if it is false
    is_never_shown: bool = False
    #: settings of conversations, of CURING_SETTINGS, that are set already
    settings: Mapping[str, object] = field(default_factory=dict)
    #: rows of the sample on which `mask_generation_prompt` was tried, because it cures a kind that occurs; both numbers
    #: are left out of the manifest if it was not
    num_rows_tried: int = 0
    num_rows_dropped: int = 0  #: rows of those that it would drop, e.g. because a token straddles the boundary
    #: variable of the template whose value, set in training and serving alike, makes the server write what a token of a
    #: row straddles, e.g. `enable_thinking` for an empty thought; this and the next two are left out of the manifest if
    #: there is none
    prompt_switch: str = ""
    prompt_switch_value: bool = False  #: that value
    is_prompt_switch_partial: bool = False  #: set for all rows, it would make answers differ that do not

    #: what settings would train of the first rows of the sample, measured; the recipe as it is comes first. Empty, and
    #: left out of the manifest, where every answer is as it is served
    choices: tuple[Shares, ...] = ()

    @property
    def num_answers(self) -> int:
        """Number of answers compared."""
        return sum(count.num_answers for count in self.counts)

    @property
    def num_trained_tokens(self) -> int:
        """Number of trained tokens in them."""
        return sum(count.num_trained_tokens for count in self.counts)

    def share(self, kind: str) -> float:
        """Return the share (0-1) of the answers that are of a kind."""
        num_of_kind = sum(count.num_answers for count in self.counts if count.kind == kind)
        return num_of_kind / self.num_answers if self.num_answers else 0.0

    def cure(self, kind: str) -> str:
        """Return what to do about a kind: the best setting that was measured, with its price, else what may help.

        The template's own switch comes first, which costs no tokens.
        """
        best = self._measured_cure(kind)
        return best or self._usual_cure(kind)

    def _measured_cure(self, kind: str) -> str:
        """Return the best settings with fewer answers of a kind, with their prices; empty if none was measured."""
        if not self.choices:
            return ""
        as_it_is, *alternatives = self.choices
        helping = [
            shares
            for shares in alternatives
            if shares.kinds.get(kind, 0) < as_it_is.kinds.get(kind, 0)
            and shares.served_fraction > as_it_is.served_fraction
        ]
        best_first = sorted(helping, key=lambda shares: shares.merit, reverse=True)
        return ", or ".join(f"{_how_to_set(shares.setting)} ({shares.price(as_it_is)})" for shares in best_first)

    def _usual_cure(self, kind: str) -> str:
        trial = self.num_rows_tried, self.num_rows_dropped
        if kind == ServedKind.BOUNDARY and self.prompt_switch:
            switch = switch_cure(self.prompt_switch, self.prompt_switch_value, is_partial=self.is_prompt_switch_partial)
            return f"{switch}; then {served_cure(ServedKind.BOUNDARY, self.settings, trial=trial, is_switched=True)}"
        cure = served_cure(ServedKind(kind), self.settings, trial=trial, is_never_shown=self.is_never_shown)
        if not self.switch or kind not in SWITCHED_KINDS:
            return cure
        switch = switch_cure(self.switch, self.switch_value, is_partial=self.is_switch_partial)
        return f"{switch}; or {cure}"

    @property
    def differing(self) -> tuple[ServedCount, ...]:
        """Kinds that a server would not show as trained."""
        return tuple(count for count in self.counts if count.kind not in EXPECTED_KINDS)
