"""What is known of a recipe's chat template, learned from it and from renders of small conversations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Self

from jinja2 import nodes

from bridgepack.config.layouts.keys import REASONING
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.templates.forms import AS_GIVEN, Forms, forms_of
from bridgepack.data.templates.generation_prompt import fixed_prompt
from bridgepack.data.templates.markers import TurnMarkers, TurnTexts, markers_for
from bridgepack.data.templates.probe import render_chat
from bridgepack.data.templates.variables import settable
from bridgepack.data.tokenizers.limits import run_limited
from bridgepack.data.tokenizers.templates import ChatTemplate, names_field
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import ASSISTANT

#: Letters of a constant at which texts are cut; shorter ones are no markers.
_LEAST = 3
_QUESTION, _ANSWER, _LAST, _NAME = "Qoneq", "Qtwoq", "Qthreeq", "qcallq"
#: Texts of a template, and what 0.7 then does not train where an answer begins with it; Nemotron's is one.
#: Source: megatron-bridge 0.7, data/conversation_processing.py, infer_assistant_mask_boundary_config and
#: _trim_leading_token_sequences.
_REQUIRED = ("truncate_history_thinking", "<think>", "</think>")
_OPENINGS = ("<think></think>", "<think>\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateFacts:
    """What is known of a chat template with the variables of its recipe."""

    markers: TurnMarkers | None  #: of turns; None if there are none and none are needed
    has_blocks: bool  #: the template's own `{% generation %}` blocks show answers
    #: in chats with calls each header begins one answer, which its first end ends
    has_plain_calls: bool
    chat_end: str  #: text once behind the end of the last answer; empty if there is none
    generation_prompt: str | None  #: None if conversations may have several
    forms: Forms  #: in which turns are given to the template, where the recipe lets it decide
    #: field of a turn's thoughts that the template does not read -> the one that it reads instead
    thought_fields: Mapping[str, str]
    variables: tuple[str, ...]  #: that the template reads and a recipe, a row or a request may set
    #: token sequences that are not trained where an answer begins with them
    trimmed_openings: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(
        cls,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        *,
        decides_forms: bool = True,
        trims_openings: bool = False,
    ) -> Self:
        """Return the facts of a tokenizer's chat template.

        `decides_forms` is false where the host reads the data itself: `auto` is then `keep`, and thoughts stay in
        their field. `trims_openings` as of `SFTRecipe.trims_thought_openings`.

        Raises:
            TokenizerError: there is no chat template, no way to tell which tokens the assistant wrote, or a render
                takes too much time or memory.
        """
        markers = markers_for(tokenizer, settings)
        around = TurnTexts() if markers is None else markers.around
        has_forms = decides_forms and settings.fields_on_auto
        has_openings = trims_openings and not tokenizer.has_generation_blocks
        return cls(
            markers=markers,
            has_blocks=tokenizer.has_generation_blocks,
            has_plain_calls=_shows_turns_with_calls(tokenizer, around.headers, around.ends),
            chat_end=_chat_end_of(tokenizer, around.ends),
            generation_prompt=run_limited(tokenizer, partial(fixed_prompt, tokenizer), {}),
            forms=forms_of(tokenizer) if has_forms else AS_GIVEN,
            thought_fields=thought_fields_of(tokenizer.chat_template or "") if decides_forms else {},
            variables=tuple(sorted(settable(tokenizer))),
            trimmed_openings=_openings_of(tokenizer, markers) if has_openings else (),
        )

    @classmethod
    def of_recipe(cls, recipe: SFTRecipe, tokenizer: ChatTokenizer) -> Self | None:
        """Return the facts of a recipe's chat template, learned once; None if no row is a chat; raises as `of`."""
        settings = recipe.chat_preprocessing
        if settings is None:
            return None
        is_offline, markers = recipe.packing.mode == "offline", settings.assistant_markers
        key = (
            is_offline,
            None if markers is None else markers.model_dump_json(),
            settings.loss_mode == "full",
            bool(settings.fields_on_auto),
            recipe.trims_thought_openings,
        )
        if key not in tokenizer.learned:
            trims_openings = recipe.trims_thought_openings
            facts = cls.of(tokenizer, settings, decides_forms=is_offline, trims_openings=trims_openings)
            tokenizer.learned[key] = facts
        known_facts: Self = tokenizer.learned[key]
        return known_facts

    def as_json(self) -> dict[str, Any]:
        """Return what a template writes and reads, for manifest and preview; forms and trimmed openings stand beside.

        `openers` are the control tokens that open a turn, whoever's. Other keys as the fields.
        """
        around = TurnTexts() if self.markers is None else self.markers.around
        return {
            "headers": list(around.headers),
            "ends": list(around.ends),
            "openers": sorted(around.openers),
            "has_blocks": self.has_blocks,
            "has_plain_calls": self.has_plain_calls,
            "chat_end": self.chat_end,
            "generation_prompt": self.generation_prompt,
            "thought_fields": dict(self.thought_fields),
            "variables": list(self.variables),
        }


def constants_of(template: ChatTemplate) -> list[str]:
    """Return the texts that a template may look for in what turns say, the longest first."""
    constants = {node.value.strip() for node in template.tree().find_all(nodes.Const) if isinstance(node.value, str)}
    return sorted((text for text in constants if len(text) >= _LEAST), key=lambda text: (-len(text), text))


def _chat_end_of(tokenizer: ChatTokenizer, ends: Sequence[str]) -> str:
    """Return what the chat template writes once, behind the end of a conversation's last answer; empty if nothing.

    `ends` are texts that end an answer. Example: Phi-4-mini -> `<|endoftext|>`, behind the last `<|end|>`.
    """
    turns = [{"role": "user", "content": _QUESTION}, {"role": ASSISTANT, "content": _ANSWER}]
    short, long = render_chat(tokenizer, turns) or "", render_chat(tokenizer, [*turns, *turns]) or ""
    behind, between = short.rpartition(_ANSWER)[2], long.partition(_ANSWER)[2].partition(_QUESTION)[0]
    places = [(behind.find(end), -len(end), end) for end in ends if end in behind and end in between]
    if not places:
        return ""
    place, _, end = min(places)
    tail = behind[place + len(end) :]
    return tail if tail.strip() and long.endswith(tail) and tail not in between else ""


def _shows_turns_with_calls(tokenizer: ChatTokenizer, headers: Sequence[str], ends: Sequence[str]) -> bool:
    """Return whether in chats with calls each header begins one answer, which its first end ends.

    `headers` and `ends` are texts that begin and end an answer. False for GigaChat3, whose calls stand behind an end,
    and for DeepSeek-R1, which writes a second header for the text beside a call, and none behind a result.
    """
    for content, arguments in product((_ANSWER, "", None), ({}, "{}")):
        call = {"id": "call00001", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        calling = {"role": ASSISTANT, "content": content, "tool_calls": [call]}
        result = {"role": "tool", "name": _NAME, "tool_call_id": "call00001", "content": _QUESTION}
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": _QUESTION},
            calling,
            result,
            {"role": ASSISTANT, "content": _LAST},
        ]
        text = render_chat(tokenizer, turns) or ""
        answers = [_up_to(part, ends) for part in _split(text, headers)[1:]]
        if text and (len(answers) != 2 or _LAST not in answers[1] or (_NAME in text) != (_NAME in answers[0])):
            return False
    return True


def _split(text: str, separators: Sequence[str]) -> list[str]:
    return re.split("|".join(map(re.escape, sorted(separators, key=len, reverse=True))), text)


def _up_to(text: str, ends: Sequence[str]) -> str:
    """Return a text up to the first of some ends."""
    return _split(text, ends)[0] if ends else text


def thought_fields_of(template: str) -> dict[str, str]:
    """Return field of a turn's thoughts that a chat template does not read -> the one that it reads instead.

    Some releases of transformers copy the field before they render, others do not; rows must not depend on that.
    Example: gpt-oss -> `thinking` for `reasoning_content` and `reasoning`.
    """
    names = [name for name in REASONING if names_field(template, name)]
    return {name: names[0] for name in REASONING if name not in names} if names else {}


def _openings_of(tokenizer: ChatTokenizer, markers: TurnMarkers | None) -> tuple[tuple[int, ...], ...]:
    """Return openings of thoughts that the host trims; none of no known family, or of one without ends of turns."""
    template = tokenizer.chat_template or ""
    if markers is None or not markers.ends or not all(text in template for text in _REQUIRED):
        return ()
    sequences = tuple(tuple(tokenizer.encode(text)) for text in _OPENINGS)
    return sequences if all(sequences) else ()
