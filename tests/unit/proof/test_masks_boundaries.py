"""Tokens at the borders of answers: whose a token is that lies across one, and texts that no turn owns."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.sequences.encoding import Encoded
from bridgepack.proof.mask_check import built_sequence
from bridgepack.proof.masks.prefixes import INNER_END, OTHER_PROMPT
from bridgepack.records import LostKind
from tests.support.judged_masks import Judged
from tests.zoo.endless import APERTUS
from tests.zoo.families import FAMILIES
from tests.zoo.families import Family as ZooFamily
from tests.zoo.families import write_tokenizer as write_families_tokenizer
from tests.zoo.prompted import SEED_OSS, prompted
from tests.zoo.tokenizers import CHATML, Family, TokenizerJson, write_tokenizer

_MARKERS = {"assistant_start": "<|assistant|>", "assistant_end": "<|end|>"}
_TURNS = "{%- for message in messages -%}{{- '<|' + message.role + '|>' + message.content + '<|end|>' -}}{%- endfor -%}"
GPT_OSS = prompted(next(family for family in FAMILIES if family.name == "gpt-oss"), "'<|start|>assistant'")
ROW = {
    "messages": [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "The lake is deep."},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": "It is cold."},
    ]
}
RESULT = {
    "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Look."},
        {"role": "tool", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
}


def _merging(*pairs: tuple[str, str]) -> Any:
    """Return a change of a tokenizer that makes one token of each pair, in any place."""

    def edit(tokenizer: TokenizerJson) -> None:
        for pair in pairs:
            tokenizer["model"]["vocab"]["".join(pair)] = len(tokenizer["model"]["vocab"])
            tokenizer["model"]["merges"].append(list(pair))
        tokenizer["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }

    return edit


#: `<|endoftext|>` once after the whole chat, whoever spoke last, as Phi-4-mini's.
WITH_TAIL = Family(
    name="tail",
    template=_TURNS + "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- else -%}<|endoftext|>{%- endif -%}",
    control_tokens=("<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"),
    eos_token="<|endoftext|>",
    assistant_markers=_MARKERS,
)
#: The end of an answer is there only once the conversation goes on, and its line end makes a token with the answer's.
ENDS_INNER_TURNS = Family(
    name="inner-end",
    template=(
        "{%- for message in messages -%}{{- '<|' + message.role + '|>' + message.content -}}"
        "{%- if message.role == 'assistant' and not loop.last -%}{{- '\\n<|end|>\\n' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
    ),
    control_tokens=("<|user|>", "<|assistant|>", "<|end|>"),
    eos_token="<|end|>",
    edit=_merging((".", "Ċ")),
    assistant_markers=_MARKERS,
)
#: The next turn, or the generation prompt, writes the end of the one before, whoever's it is; as Qwen1's template.
ENDS_WITH_THE_NEXT = replace(
    CHATML,
    name="ends-with-the-next",
    template=(
        "{%- for message in messages -%}"
        "{%- if loop.first and message.role != 'system' -%}{{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' -}}"
        "{%- endif -%}"
        "{{- '<|im_start|>' + message.role + '\\n' + message.content -}}"
        "{%- if add_generation_prompt or not loop.last -%}{{- '<|im_end|>\\n' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt and messages[-1].role != 'assistant' -%}{{- '<|im_start|>assistant\\n' -}}"
        "{%- endif -%}"
    ),
)
#: What opens an answer behind a tool's result begins within the token that closes the result.
ACROSS_A_HEADER = Family(
    name="header",
    template=(
        "{%- for message in messages -%}"
        "{%- if message.role == 'tool' -%}{{- '<result>' + message.content + '</result>' -}}"
        "{%- elif message.role == 'user' -%}{{- '<|user|>' + message.content -}}"
        "{%- else -%}{{- '\\n\\n' if loop.previtem.role == 'tool' else '<|assistant|>' -}}"
        "{{- message.content + '<|end|>' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '\\n\\n<think>' if messages[-1].role == 'tool' else '<|assistant|>' -}}"
        "{%- endif -%}"
    ),
    control_tokens=("<|user|>", "<|assistant|>", "<|end|>"),
    eos_token="<|end|>",
    edit=_merging(("Ċ", "Ċ"), (">", "ĊĊ")),
    assistant_markers={**_MARKERS, "assistant_start": ["<|assistant|>", "</result>\n\n"]},
)
#: A blank and a line end behind EOS.
BLANK_BEHIND_EOS = replace(
    CHATML, template=CHATML.template.replace("{{- '\\n' -}}\n  {%- elif", "{{- ' \\n' -}}\n  {%- elif")
)


def _mask(judged: Judged, row: Any, *answers: str) -> list[int]:
    """Return a mask that trains the tokens that begin in these parts of the row's text, in their order."""
    made = judged.encode(row)
    assert isinstance(made, Encoded)
    text, place, mask = judged.tokenizer.decode(made.ids), 0, [0] * len(made.ids)
    offsets = judged.tokenizer.backend.encode(text, add_special_tokens=False).offsets
    for answer in answers:
        place = text.index(answer, place)
        stop = place + len(answer)
        mask = [bit or int(place <= start < stop) for bit, (start, _) in zip(mask, offsets, strict=True)]
        place = stop
    return mask


def _judged(folder: Path, family: Family) -> Judged:
    return Judged.of_tokenizer(
        write_tokenizer(folder, family), kind="chat", assistant_markers=dict(family.assistant_markers)
    )


def test_a_text_once_after_the_whole_chat_belongs_to_no_answer(tmp_path: Path) -> None:
    judged = _judged(tmp_path, WITH_TAIL)

    verdict = judged.verdict(ROW)

    assert (verdict.findings, verdict.num_judges, dict(verdict.reasons)) == (
        (),
        2,
        {"incremental rendering": (), "boundary markers": ()},
    )
    without_end = _mask(judged, ROW, "The lake is deep.<|end|>", "It is cold.")
    assert judged.kinds(ROW, without_end) == ["end-of-turn-not-trained"]


def test_an_end_that_only_inner_answers_have_is_trained(tmp_path: Path) -> None:
    judged = _judged(tmp_path, ENDS_INNER_TURNS)
    right = _mask(judged, ROW, "The lake is deep.\n<|end|>", "It is cold.")
    lost = _mask(judged, ROW, "The lake is deep", "It is cold.")

    assert judged.kinds(ROW, right) == []
    assert set(judged.kinds(ROW, lost)) == {"end-of-turn-not-trained", "answer-not-trained"}
    assert judged.verdict(ROW, right).reasons["incremental rendering"] == (INNER_END,)


@pytest.mark.parametrize("is_again", [False, True], ids=["turn by turn", "two answers in a row"])
def test_an_end_that_the_next_turn_writes_is_the_answer_s(tmp_path: Path, *, is_again: bool) -> None:
    judged = Judged.of(tmp_path, ENDS_WITH_THE_NEXT)
    first, answer, *more = ROW["messages"]
    row = {"messages": [first, answer, *([answer] if is_again else []), *more]}
    answers = ["The lake is deep.<|im_end|>"] * (1 + is_again)

    assert judged.kinds(row) == []
    assert judged.kinds(row, _mask(judged, row, *answers, "It is cold.")) == []
    assert judged.verdict(row).num_judges == 2
    without_end = _mask(judged, row, *answers[1:], "The lake is deep.", "It is cold.")
    assert judged.kinds(row, without_end) == ["end-of-turn-not-trained"]
    with_header = _mask(judged, row, *answers[1:], "The lake is deep.<|im_end|>\n<|im_start|>user", "It is cold.")
    assert judged.kinds(row, with_header) == ["other-turn-trained"]


@pytest.mark.parametrize(
    ("answer", "kinds"), [("It is sunny.<|end|>", []), (">\n\nIt is sunny.<|end|>", ["other-turn-trained"])]
)
def test_a_token_that_begins_in_a_header_is_not_trained(tmp_path: Path, answer: str, kinds: Sequence[str]) -> None:
    judged = _judged(tmp_path, ACROSS_A_HEADER)
    mask = _mask(judged, RESULT, "Look.<|end|>", answer)

    assert judged.kinds(RESULT, mask) == kinds
    assert OTHER_PROMPT in judged.verdict(RESULT, mask).reasons["incremental rendering"]


def test_white_space_behind_eos_is_judged_together(tmp_path: Path) -> None:
    judged = Judged.of(tmp_path, BLANK_BEHIND_EOS)
    answer = "The lake is deep.<|im_end|>"
    row = {"messages": ROW["messages"][:2]}

    for text, kinds in ((answer, []), (answer + " \n", ["other-turn-trained"])):
        made = judged.encode(row)
        assert isinstance(made, Encoded)
        sequence = built_sequence(made._replace(mask=_mask(judged, row, text)))
        verdict = judged.judge.judge(row, replace(sequence, is_final=True))
        assert [finding.kind for finding in verdict.findings] == kinds


def test_a_trained_prompt_is_a_note_beside_other_findings(tmp_path: Path) -> None:
    """Kimi-K2.5, Ling-3 and others: the same tokens were an error where a row has another finding."""
    folder = write_families_tokenizer(tmp_path / "tokenizer", SEED_OSS)
    judged = Judged.of_tokenizer(folder, kind="chat", **SEED_OSS.preprocessing)
    row = {"messages": ROW["messages"][:2]}
    mask = _mask(judged, row, "\nThe lake", " deep.<seed:eos>")

    verdict = judged.verdict(row, mask)

    assert [finding.kind for finding in verdict.findings] == ["answer-not-trained"]
    assert verdict.trains_prompt


@pytest.mark.parametrize("begin", [">>>", "<answer>", "<think>\\n", "Sure. "])
def test_what_the_prompt_begins_of_an_answer_is_a_note(tmp_path: Path, begin: str) -> None:
    """Functionary's `>>>` was an error where a thought is a note; the role's name within the header stays one."""
    body = "{{- '<|im_start|>' + m.role + '\\n' + ('BEGIN' if m.role == 'assistant' else '') + m.content -}}"
    template = "{%- for m in messages -%}" + body + "{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    template += "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\nBEGIN' -}}{%- endif -%}"
    judged = Judged.of(tmp_path, replace(CHATML, name="begun", template=template.replace("BEGIN", begin)))
    start = begin.replace("\\n", "\n")
    answers = [f"{start}{text}<|im_end|>" for text in ("The lake is deep.", "It is cold.")]

    verdict = judged.verdict(ROW, _mask(judged, ROW, *answers))
    assert (verdict.findings, verdict.trains_prompt, verdict.num_judges) == ((), True, 2)
    assert (judged.verdict(ROW).findings, judged.verdict(ROW).trains_prompt) == ((), True)
    with_role = _mask(judged, ROW, *(f"assistant\n{answer}" for answer in answers))
    assert judged.kinds(ROW, with_role) == ["other-turn-trained"]


#: Kimi-K2.5's prompt has the opening of a thought; thoughts before a turn are there only until it is written.
EMPTY_THOUGHTS = replace(
    WITH_TAIL,
    name="empty-thoughts",
    template=(
        "{%- set is_due = messages[-1].role != 'assistant' -%}{%- for m in messages -%}{{- '<|' + m.role + '|>' -}}"
        "{%- if m.role == 'assistant' -%}{{- '<think>' + (m.reasoning_content or '' if is_due else '') + '</think>' -}}"
        "{%- endif -%}{{- m.content + '<|end|>' -}}{%- endfor -%}"
        "{{- '<|assistant|><think>' if add_generation_prompt -}}"
    ),
    control_tokens=("<|user|>", "<|assistant|>", "<|end|>", "<think>", "</think>", "<|endoftext|>"),
)


def test_a_trained_prompt_that_looks_like_a_shift_is_a_note(tmp_path: Path) -> None:
    judged = _judged(tmp_path, EMPTY_THOUGHTS)
    (question, answer), place = ROW["messages"][:2], "<think></think>The lake is deep.<|end|>"
    row = {"messages": [question, answer]}

    for mask in (_mask(judged, row, place), _mask(judged, row, place.removesuffix("<|end|>"))):
        verdict = judged.verdict(row, mask)
        is_whole = mask == _mask(judged, row, place)
        assert [finding.kind for finding in verdict.findings] == ([] if is_whole else ["end-of-turn-not-trained"])
        assert verdict.trains_prompt
    thinking = [
        {**turn, "reasoning_content": "Hm."} if turn["role"] == "assistant" else turn for turn in ROW["messages"]
    ]
    verdict = judged.verdict({"messages": thinking})
    assert (verdict.findings, verdict.trains_prompt, verdict.num_judges) == ((), True, 2)


def test_a_token_of_prompt_and_answer_is_a_note(tmp_path: Path) -> None:
    """Ernie 4.5's `Assistant: `, with `Assistant:` as the recipe's start: the blank is in the answer's first token."""
    template = "{%- for m in messages -%}{{- ('User: ' if m.role == 'user' else 'Assistant: ') + m.content -}}"
    template += "{{- '<|end|>' if m.role == 'assistant' else '\\n' -}}{%- endfor -%}"
    template += "{{- 'Assistant: ' if add_generation_prompt -}}"
    markers = {**_MARKERS, "assistant_start": "Assistant:"}
    family = replace(WITH_TAIL, name="words", template=template, edit=_merging(("Ġ", "T")), assistant_markers=markers)
    judged = _judged(tmp_path, family)
    row = {"messages": ROW["messages"][:2]}

    assert (judged.verdict(row).findings, judged.verdict(row).trains_prompt) == ((), True)
    with_role = _mask(judged, row, "Assistant: The lake is deep.<|end|>")
    assert judged.kinds(row, with_role) == ["other-turn-trained"]


def test_thoughts_in_the_field_that_the_template_reads(tmp_path: Path) -> None:
    """Builds may move thoughts to that field, as some releases of transformers do before they render."""
    judged = Judged.of_tokenizer(write_families_tokenizer(tmp_path / "tokenizer", GPT_OSS), kind="chat")
    question, answer = ROW["messages"][0], {"role": "assistant", "content": "Deep."}
    made = judged.encode({"messages": [question, {**answer, "thinking": "It is old."}]})
    assert isinstance(made, Encoded)
    assert "It is old." in judged.tokenizer.decode(made.ids)

    for field in ("thinking", "reasoning_content"):
        verdict = judged.judge_encoded({"messages": [question, {**answer, field: "It is old."}]}, made)
        assert (verdict.findings, verdict.num_judges > 0) == ((), True)


_CALL = "{%- for call in m.tool_calls or [] -%}{{- '<|call|>' + call.function.name + '<|end|>' -}}{%- endfor -%}"
#: GigaChat3's calls stand behind the end of their turn's text.
CALLS_BEHIND = (
    "{%- for m in messages -%}{{- '<|' + m.role + '|>' + m.content + '<|end|>' -}}" + _CALL + "{%- endfor -%}"
)
#: DeepSeek-R1 writes the text beside a call as an answer of its own, and none of the header behind a result.
SECOND_HEADER = (
    "{%- for m in messages -%}{%- if m.tool_calls -%}{{- '<|assistant|>' -}}" + _CALL + "{%- endif -%}"
    "{%- if m.role == 'tool' -%}{{- '<|result|>' + m.content + '</|result|>' -}}"
    "{%- elif not loop.first and loop.previtem.role == 'tool' -%}{{- m.content + '<|end|>' -}}"
    "{%- else -%}{{- '<|' + m.role + '|>' + m.content + '<|end|>' -}}{%- endif -%}{%- endfor -%}"
)


@pytest.mark.parametrize(
    ("template", "calling"),
    [(CALLS_BEHIND, "Look.<|end|><|call|>add<|end|>"), (SECOND_HEADER, "<|call|>add<|end|><|assistant|>Look.<|end|>")],
    ids=["a call behind the end", "a second header"],
)
def test_a_turn_with_a_call_that_looks_otherwise(tmp_path: Path, template: str, calling: str) -> None:
    tokens = ("<s>", "<|user|>", "<|assistant|>", "<|end|>", "<|call|>", "<|result|>", "</|result|>")
    prompt = "{%- if add_generation_prompt and messages[-1].role != 'tool' -%}{{- '<|assistant|>' -}}{%- endif -%}"
    family = ZooFamily(name="call", template=template + prompt, tokens=tokens, ends=("<|end|>",), injection="")
    folder = write_families_tokenizer(tmp_path / "tokenizer", family)
    judged = Judged.of_tokenizer(folder, kind="chat", assistant_markers=_MARKERS)
    call = {"type": "function", "function": {"name": "add", "arguments": {}}}
    question, look, result, answer = RESULT["messages"]
    row = {"messages": [question, {**look, "tool_calls": [call]}, result, answer]}

    verdict = judged.verdict(row, _mask(judged, row, calling, "It is sunny.<|end|>"))
    assert (verdict.findings, verdict.num_judges) == ((), 1)
    assert judged.kinds(row) == []
    assert "turn-not-trained" in judged.kinds(row, _mask(judged, row, calling))


def test_a_call_before_the_text_beside_it_is_not_lost(tmp_path: Path) -> None:
    """Gemma 4's: its prompt has a thought that no turn has, so that a turn is known from its text on."""
    template = (
        "{%- for m in messages -%}{{- '<|' + m.role + '|>' -}}"
        "{%- for call in m.tool_calls or [] -%}{{- '[' + call.function.name + ']' -}}{%- endfor -%}"
        "{{- m.content + '<|end|>' -}}{%- endfor -%}{{- '<|assistant|><think></think>' if add_generation_prompt -}}"
    )
    judged = _judged(tmp_path, replace(WITH_TAIL, name="calls-first", template=template))
    calls = [{"type": "function", "function": {"name": name, "arguments": {}}} for name in ("add", "find")]
    question, look, *_ = RESULT["messages"]

    assert judged.kinds({"messages": [question, {**look, "tool_calls": calls}]}) == []
    one_call = template.replace("m.tool_calls", "(m.tool_calls or [])[:1]")
    losing = _judged(tmp_path / "losing", replace(WITH_TAIL, name="loses-calls", template=one_call))
    verdict = losing.verdict({"messages": [question, {**look, "tool_calls": calls}]})
    (finding,) = verdict.findings
    assert (finding.kind, "'find'" in finding.detail, "'add'" in finding.detail) == ("tool-call-lost", True, False)


def test_a_result_within_the_turn_of_its_call(tmp_path: Path) -> None:
    """Apertus's: as many openings as answers, as no answer follows the result."""
    folder = write_families_tokenizer(tmp_path / "tokenizer", APERTUS)
    judged = Judged.of_tokenizer(folder, kind="chat", **APERTUS.preprocessing)
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    question, look, result, answer = RESULT["messages"]
    row = {"messages": [question, {**look, "tool_calls": [call]}, result, question, answer]}

    assert judged.kinds(row) == []
    assert judged.verdict(row).num_judges == 1


#: A call, its result, and behind that the text beside the call, as Gemma 4's.
TEXT_BEHIND_RESULT = replace(
    WITH_TAIL,
    name="text-behind-result",
    control_tokens=("<|user|>", "<|assistant|>", "<|end|>", "<|call|>", "<|result|>"),
    eos_token="<|end|>",
    assistant_markers={**_MARKERS, "assistant_end_fallbacks": ("<|call|>",)},
    template=(
        "{%- for m in messages if m.role != 'tool' -%}{%- set calls = m.tool_calls or [] -%}"
        "{{- '<|' + m.role + '|>' -}}"
        "{%- for call in calls -%}{{- '[' + call.function.name + ']<|call|>' -}}{%- endfor -%}"
        "{%- set results = messages | selectattr('role', 'equalto', 'tool') | list if calls else [] -%}"
        "{%- for result in results -%}{{- 'add:' + result.content + '<|result|>' -}}{%- endfor -%}"
        "{{- m.content + '<|end|>' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
    ),
)


def test_a_text_behind_the_result_of_its_call(tmp_path: Path) -> None:
    """The name of the call, which the result quotes, is no text of the assistant's there."""
    judged = _judged(tmp_path, TEXT_BEHIND_RESULT)
    call = {"type": "function", "function": {"name": "add", "arguments": {}}}
    question, look, result, answer = RESULT["messages"]
    row = {"messages": [question, {**look, "tool_calls": [call]}, result, answer]}
    made = judged.encode(row)
    assert isinstance(made, Encoded)
    trained = [token for token, bit in zip(made.ids, made.mask, strict=True) if bit]
    verdict = judged.verdict(row)

    assert judged.tokenizer.decode(trained) == "[add]<|call|>It is sunny.<|end|>"
    assert LostKind.TEXT in {loss.kind for loss in made.losses}
    assert [finding.kind for finding in verdict.findings] == ["answer-not-trained"]
    assert "⟦Look.⟧" in verdict.findings[0].texts["incremental rendering"]
    without_text = {"messages": [question, {**look, "content": "", "tool_calls": [call]}, result, answer]}
    assert judged.kinds(without_text) == []
    untrained = {**look, "tool_calls": [call], "weight": 0}
    weighted = Judged.of(tmp_path / "weighted", TEXT_BEHIND_RESULT, message_weights="mask")
    assert weighted.kinds({"messages": [question, untrained, result, answer]}) == []


#: A call and its result inside the answer to it, as Gemma 4's `tool_responses`.
RESULT_INSIDE = replace(
    TEXT_BEHIND_RESULT,
    name="result-inside",
    template=(
        "{%- for m in messages -%}{{- '<|' + m.role + '|>' -}}"
        "{%- for call in m.tool_calls or [] -%}{{- '[' + call.function.name + ']' -}}{{- '<|call|>' -}}{%- endfor -%}"
        "{%- for item in m.tool_responses or [] -%}{{- 'add:' + item.response + '<|result|>' -}}{%- endfor -%}"
        "{{- m.content + '<|end|>' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
    ),
)
_BLOCKS_INSIDE = RESULT_INSIDE.template
for _text in ("{{- '[' + call.function.name + ']' -}}", "{{- m.content + '<|end|>' -}}"):
    _block = f"{{%- generation -%}}{_text}{{%- endgeneration -%}}"
    _BLOCKS_INSIDE = _BLOCKS_INSIDE.replace(
        _text, f"{{%- if m.role == 'assistant' -%}}{_block}{{%- else -%}}{_text}{{%- endif -%}}"
    )


@pytest.mark.parametrize("settings", [{}, {"mask_generation_prompt": True}, {"loss_mode": "last_turn"}])
@pytest.mark.parametrize("template", [RESULT_INSIDE.template, _BLOCKS_INSIDE], ids=["markers", "blocks"])
def test_a_result_inside_its_answer(template: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """It is not trained, and a mask that trains it is noticed; what ends the call is."""
    judged = Judged.of(tmp_path, replace(RESULT_INSIDE, template=template), **settings)
    call = {"type": "function", "function": {"name": "add", "arguments": {}}}
    inner = {"tool_calls": [call], "tool_responses": [{"name": "add", "response": "12 degrees"}]}
    row = {"messages": [RESULT["messages"][0], {"role": "assistant", "content": "It is sunny.", **inner}]}
    made = judged.encode(row)
    assert isinstance(made, Encoded)
    trained = [token for token, bit in zip(made.ids, made.mask, strict=True) if bit]

    assert judged.tokenizer.decode(trained) == "[add]<|call|>It is sunny.<|end|>"
    assert judged.kinds(row) == []
    first = made.mask.index(1)
    whole = made._replace(mask=[*made.mask[:first], *[1] * (len(made.mask) - first)])
    assert [finding.kind for finding in judged.judge_encoded(row, whole).findings] == ["other-turn-trained"]


#: Generation blocks that hold the opener of the next turn, whoever's: it ends the answer, as GLM's.
ENDS_WITH_OPENER = replace(
    RESULT_INSIDE,
    name="ends-with-opener",
    control_tokens=("<|user|>", "<|assistant|>", "<|system|>"),
    eos_token="<|user|>",
    assistant_markers=None,
    template=(
        "{%- for m in messages -%}{%- if (loop.previtem or {}).role != 'assistant' -%}{{- '<|' + m.role + '|>' -}}"
        "{%- endif -%}{%- if m.role == 'assistant' -%}{%- generation -%}{{- m.content -}}"
        "{{- '<|' + (loop.nextitem or {'role': 'user'}).role + '|>' -}}{%- endgeneration -%}"
        "{%- else -%}{{- m.content -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
    ),
)
#: Generation blocks with the header, and another end behind the last answer that begins alike, as those for gpt-oss.
TWO_ENDS = replace(
    ENDS_WITH_OPENER,
    name="two-ends",
    control_tokens=("<|user|>", "<|assistant|>", "<|end|>", "<|return|>"),
    eos_token="<|return|>",
    template=(
        "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{%- generation -%}{{- '<|assistant|>' + m.content -}}"
        "{{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' -}}{%- endgeneration -%}"
        "{%- else -%}{{- '<|' + m.role + '|>' + m.content + '<|end|>' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
    ),
)


@pytest.mark.parametrize(("family", "role"), [(ENDS_WITH_OPENER, "system"), (TWO_ENDS, "assistant")])
def test_blocks_with_what_stands_between_turns(family: Family, role: str, tmp_path: Path) -> None:
    judged = Judged.of(tmp_path, family)
    question, answer = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes."}

    verdict = judged.verdict({"messages": [question, answer, {"role": role, "content": "Go on."}, question, answer]})
    assert [finding.kind for finding in verdict.findings] == []
    assert verdict.num_judges > 0


#: Calls outside of generation blocks, as in a template of NeMo's for gpt-oss.
CALLS_OUTSIDE = replace(
    RESULT_INSIDE,
    name="calls-outside",
    template=(
        "{%- for m in messages -%}{{- '<|' + m.role + '|>' -}}{%- set calls = m.tool_calls or [] -%}"
        "{%- for call in calls -%}{{- '[' + call.function.name + ']<|call|>' -}}{%- endfor -%}"
        "{%- if m.role != 'assistant' -%}{{- m.content -}}{%- elif m.content -%}"
        "{%- generation -%}{{- m.content -}}{%- endgeneration -%}{%- endif -%}"
        "{%- if not calls -%}{{- '<|end|>' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
    ),
)


def test_calls_outside_of_blocks(tmp_path: Path) -> None:
    """What ends them is trained as the host does; where there is no block, so are they."""
    judged = Judged.of(tmp_path, CALLS_OUTSIDE)
    question, _, result, answer = RESULT["messages"]
    calls = [{"type": "function", "function": {"name": "add", "arguments": {}}}]
    call = {"role": "assistant", "content": "", "tool_calls": calls}

    assert judged.kinds({"messages": [question, call]}) == []
    (finding,) = judged.verdict({"messages": [question, call, {**result, "role": "user"}, answer]}).findings
    assert finding.kind == "answer-not-trained"
    assert "[add]⟦<|call|>⟧" in finding.texts["mask"]


#: Generation blocks that begin behind the line end of a header, as rnj-1's.
WITH_BLOCKS = ZooFamily(
    name="blocks",
    template=(
        "{%- for m in messages -%}{{- '<|' + m.role + '|>\\n' -}}{%- if m.role == 'assistant' -%}{% generation %}"
        "{{- m.content + '<|end|>' -}}{%- endgeneration -%}{%- else -%}{{- m.content -}}{%- endif -%}{%- endfor -%}"
    ),
    tokens=("<s>", "<|user|>", "<|assistant|>", "<|end|>"),
    ends=("<|end|>",),
    injection="",
)


def test_a_token_across_the_start_of_a_generation_block_is_not_judged(tmp_path: Path) -> None:
    """The line ends of header and answer are one token, which transformers trains, and so Megatron-Bridge."""
    judged = Judged.of_tokenizer(write_families_tokenizer(tmp_path / "tokenizer", WITH_BLOCKS), kind="chat")
    row = {"messages": [ROW["messages"][0], {"role": "assistant", "content": "\nIt is cold."}]}
    made = judged.encode(row)
    assert isinstance(made, Encoded)
    trained = [token for token, bit in zip(made.ids, made.mask, strict=True) if bit]

    assert judged.tokenizer.decode(trained) == "\n\nIt is cold.<|end|>"
    assert judged.kinds(row) == []
    assert judged.kinds(row, [1] * len(made.ids)) == ["other-turn-trained"]
