"""Texts and tokens that open and close a turn: those that a recipe names, or those of a chat template's family."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from bridgepack.config.recipe.assistant_markers import AssistantMarkers
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.templates.families import FAMILIES, MORE_ENDS
from bridgepack.data.templates.marker_tokens import MarkerTokens, check_appended_turn, check_family
from bridgepack.data.templates.openers import opening_tokens, tokens_inside
from bridgepack.data.templates.stops import check_stop_tokens
from bridgepack.data.templates.written import markers_written
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError
from bridgepack.records import ASSISTANT


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnTexts:
    """What a template writes around answers."""

    headers: tuple[str, ...] = ()  #: texts right before what the assistant writes
    #: texts that end an answer and belong to it, preferred first; without any, the next turn ends it
    ends: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()  #: texts that open a turn, whoever's


@dataclass(frozen=True, kw_only=True)
class TurnMarkers:
    """Token sequences around the turns of a conversation."""

    #: role, the assistant's included -> tokens right before the content of its turns
    starts: Mapping[str, tuple[int, ...]]
    #: token sequences that can end an assistant turn, preferred first; trained. Without any, the next turn ends it.
    ends: tuple[tuple[int, ...], ...]
    joins_starts: bool = False  #: a message of the assistant's may have several starts; a scan cannot tell two in a row
    more_starts: tuple[tuple[int, ...], ...] = ()  #: alternative tokens before the assistant's content
    openers: frozenset[int] = frozenset()  #: control tokens that open a turn, of a role that has a start or of another
    alone: tuple[
        tuple[int, ...], ...
    ] = ()  #: tokens that texts of markers have by themselves, where renders have others
    start_texts: tuple[str, ...] = ()  #: texts of the assistant's starts, without white space around them
    end_texts: tuple[str, ...] = ()  #: texts of `ends`, likewise
    #: texts of the assistant's starts, of the ends and of the openers, with their white space
    around: TurnTexts = field(default_factory=TurnTexts)

    @cached_property
    def assistant_starts(self) -> tuple[tuple[int, ...], ...]:
        """Every start of the assistant's turns."""
        return (self.starts[ASSISTANT], *self.more_starts)

    @cached_property
    def all_starts(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Role and tokens of every start; the role of an opener is empty."""
        openers = (("", (token,)) for token in sorted(self.openers))
        return (*self.starts.items(), *((ASSISTANT, ids) for ids in self.more_starts), *openers)

    @cached_property
    def all_sequences(self) -> tuple[tuple[int, ...], ...]:
        """Every start and end: a scan is safe only if none of them occurs inside a turn's text."""
        return (*self.starts.values(), *self.more_starts, *self.ends, *self.alone)


def markers_for(tokenizer: ChatTokenizer, settings: ChatPreprocessing) -> TurnMarkers | None:
    """Return the markers of the recipe or of the template's family; None if there are none and none are needed."""
    if tokenizer.chat_template is None:
        raise tokenizer.no_template_error
    if settings.assistant_markers is not None:
        turn_markers = markers_from_recipe(tokenizer, settings.assistant_markers)
        if settings.loss_mode != "full":
            check_appended_turn(tokenizer, turn_markers.start_texts)
        return turn_markers
    markers = infer_markers(tokenizer)
    if markers is not None and settings.loss_mode != "full":
        check_appended_turn(tokenizer, markers.start_texts)
        if not tokenizer.has_generation_blocks:
            check_family(tokenizer, MarkerTokens(tokenizer), markers.assistant_starts, markers.start_texts)
    if markers is None and settings.loss_mode != "full" and not tokenizer.has_generation_blocks:
        check_appended_turn(tokenizer, ())
        markers_there = markers_written(tokenizer)
        value = f" to {markers_there}, which it writes around an answer" if markers_there else ""
        raise TokenizerError(
            f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}; its chat template has no {{% generation %}} "
            "block and is of no known family, so it is unknown which tokens the assistant wrote (Megatron-Bridge "
            f"0.6 rejects it too). Set preprocessing.assistant_markers{value}, set tokenizer.chat_template to a "
            "template with generation blocks, or set preprocessing.loss_mode to full.",
            field="tokenizer.name_or_path",
        )
    return markers


def infer_markers(tokenizer: ChatTokenizer) -> TurnMarkers | None:
    """Return the markers of the first known family that matches the chat template, or None."""
    template = tokenizer.chat_template or ""
    for hallmarks, texts in FAMILIES:
        if all(text in template for text in hallmarks):
            more = MORE_ENDS.get(texts.assistant_end or "")
            if more in tokenizer.added_tokens:
                texts = texts.model_copy(update={"assistant_end_fallbacks": (*texts.assistant_end_fallbacks, more)})
            markers = _encode(tokenizer, texts)
            if markers is not None:
                return _with_openers(tokenizer, markers)
    return None


def markers_from_recipe(tokenizer: ChatTokenizer, settings: AssistantMarkers) -> TurnMarkers:
    """Return the markers that a recipe gives; raises TokenizerError if a marker has no tokens."""
    check_stop_tokens(tokenizer, settings)
    markers = _encode(tokenizer, settings)
    num_starts = len(settings.starts) + len(settings.other_role_starts)
    if markers is None or len(markers.all_starts) != num_starts:
        raise TokenizerError(
            f"preprocessing.assistant_markers is {settings.model_dump()!r}; each text must give at least one token. "
            "Correct the texts.",
            field="preprocessing.assistant_markers",
        )
    return _with_openers(tokenizer, markers)


def _encode(tokenizer: ChatTokenizer, texts: AssistantMarkers) -> TurnMarkers | None:
    tokens = MarkerTokens(tokenizer)
    start, *more = map(tokens.of, texts.starts)
    ends = list(map(tokens.of, texts.ends))
    if not start or not all(ends[:1]):
        return None
    role_starts = {role: tokens.of(text) for role, text in texts.other_role_starts.items()}
    return TurnMarkers(
        starts={ASSISTANT: start, **{role: ids for role, ids in role_starts.items() if ids}},
        ends=tuple(ids for ids in ends if ids),
        joins_starts=texts.joins_starts,
        more_starts=tuple(ids for ids in more if ids),
        alone=tuple(tokens.alone),
        start_texts=tuple(text.strip() or text for text in texts.starts),
        end_texts=tuple(dict.fromkeys(text.strip() or text for text in texts.ends)),
        around=TurnTexts(headers=texts.starts, ends=texts.ends),
    )


def _with_openers(tokenizer: ChatTokenizer, markers: TurnMarkers) -> TurnMarkers:
    """Return markers with the tokens that open a turn: the first of each start, and those that the template writes.

    Without those that an answer has inside, too.
    """
    first = {ids[0] for ids in (*markers.starts.values(), *markers.more_starts)} & tokenizer.isolated_token_ids
    openers = frozenset(first) | opening_tokens(tokenizer, markers.end_texts)
    openers -= tokens_inside(tokenizer, markers.around.headers, markers.around.ends)
    opener_texts = tuple(text for text, index in tokenizer.added_tokens.items() if index in openers)
    return replace(markers, openers=openers, around=replace(markers.around, openers=opener_texts))
