"""`mask_generation_prompt`: what the server writes is not trained, what the model must write is.

The oracle is transformers: for each trained turn, the render of the turns before it with the generation prompt, S, and
of the turns up to it, L. The trained text is L without S, as far as the training text shows them.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.templates.generation_prompt import fixed_prompt
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from tests.support.judged_masks import Judged
from tests.support.messages import mentions
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.prompted import (
    BLOCKS,
    DEEPSEEK_R1,
    GEMMA_4,
    MINIMAX_M2,
    PHI_4,
    PROMPTED_FAMILIES,
    QWEN_3,
    QWEN_35,
    SEED_OSS,
    SMOLLM_3,
)

BY_NAME = {family.name: family for family in PROMPTED_FAMILIES}
CALL = {"id": "call00001", "type": "function", "function": {"name": "depth", "arguments": {"lake": "Uri"}}}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "200"}


def asked(text: str = "Two?") -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str = "Four.", thoughts: str = "", **more: Any) -> dict[str, Any]:
    own = {"reasoning_content": thoughts, "thinking": thoughts} if thoughts else {}
    return {"role": "assistant", "content": text, **own, **more}


def called(thoughts: str = "") -> dict[str, Any]:
    return answer("", thoughts, tool_calls=[CALL])


KINDS: Mapping[str, list[dict[str, Any]]] = {
    "plain": [asked(), answer(), asked(), answer("Five.")],
    "tools": [asked(), called(), RESULT, answer(), asked(), answer("Five.")],
    "thoughts": [asked(), answer(thoughts="Hm."), asked(), answer("<think>\nSo.\n</think>\n\nFive.")],
    "agents": [
        *(asked(), called("A."), RESULT, answer(thoughts="B.")),
        *(asked(), called("C."), RESULT, called("D."), RESULT, answer("Five.", "E.")),
    ],
}


def judged(folder: Path, family: Family, **settings: Any) -> Judged:
    path = folder / "tokenizer"
    tokenizer = path if path.exists() else write_tokenizer(path, family)
    values = {"kind": "chat", "mask_generation_prompt": True, "masks_control_tokens": False, **family.preprocessing}
    return Judged.of_tokenizer(tokenizer, **{**values, **settings})


def spans(judge: Judged, made: Encoded) -> list[tuple[int, str]]:
    """Return (first character, text) of each trained span."""
    found: list[tuple[int, str]] = []
    edges = [
        index for index, (bit, last) in enumerate(zip([*made.mask, 0], [0, *made.mask], strict=True)) if bit != last
    ]
    for first, stop in zip(edges[::2], edges[1::2], strict=True):
        text = judge.tokenizer.decode(made.ids[first:stop])
        found.append((len(judge.tokenizer.decode(made.ids[:first])), text))
    return found


def trained(judge: Judged, messages: list[dict[str, Any]], **columns: Any) -> list[str]:
    row = {"messages": messages, **columns}
    made = judge.encode(row)
    assert isinstance(made, Encoded), made
    assert judge.verdict(row).findings == ()
    return [text for _, text in spans(judge, made)]


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize("family", PROMPTED_FAMILIES, ids=lambda family: family.name)
def test_as_transformers_renders_what_is_served(tmp_path: Path, family: Family, mode: str) -> None:
    from transformers import AutoTokenizer

    judge = judged(tmp_path, family, loss_mode=mode)
    render = AutoTokenizer.from_pretrained(tmp_path / "tokenizer").apply_chat_template
    num_served = num_judged = 0
    for messages in KINDS.values():
        made = judge.encode({"messages": messages})
        if isinstance(made, RowError):
            continue
        text = judge.tokenizer.decode(made.ids)
        given = judge.read({"messages": messages}).messages
        turns = [index for index, turn in enumerate(given) if turn["role"] == "assistant"]
        own = spans(judge, made)
        wanted = turns[-1:] if mode == "last_turn" else turns
        for turn, (place, words) in zip(wanted, own, strict=True):
            served = render(given[:turn], tokenize=False, add_generation_prompt=True)
            before, through = (render(given[:stop], tokenize=False) for stop in (turn, turn + 1))
            if text.startswith(served):
                assert text[:place] == served
                num_served += 1
                if text.startswith(through):
                    rest = through[len(served) :]
                    assert words in (rest, rest.rstrip(), *(rest + end for end in family.ends))
            else:  # the header, as far as the text shows the turn as it is served
                prompt = served[len(before) :]
                assert text[:place].endswith((prompt, prompt.split("<think>")[0].split("<|channel>")[0]))
        num_judged += bool(judge.verdict({"messages": messages}).num_judges)
        assert judge.verdict({"messages": messages}).findings == ()
    assert num_served > 0 or family is GEMMA_4  # by default its prompt has an empty thought that no turn has
    assert num_judged > 0


ANSWERS = [asked(), answer(), asked(), answer("Five.")]
THOUGHTS = [asked(), answer(thoughts="Hm."), asked(), answer("Five.", "So.")]
OFF = {"enable_thinking": False}
#: What a message proposes where an answer lacks the thought that the generation prompt begins.
CURES_OF_A_BEGUN_THOUGHT = (
    "; give the turn the thought ",
    "as reasoning_content, ",
    "set the template's switch ",
    "give the turn weight 0 with preprocessing.message_weights mask, ",
    "or set preprocessing.mask_generation_prompt to false",
)
#: (family, turns, variables, trained text with the setting; without it)
CASES: list[tuple[Family, list[dict[str, Any]], Any, list[str], list[str]]] = [
    # the model must write the empty thought, unless the prompt holds it
    *(
        (QWEN_3, ANSWERS, variables, ["Four.<|im_end|>\n", last], ["Four.<|im_end|>\n", f"{EMPTY}Five.<|im_end|>\n"])
        for EMPTY in ["<think>\n\n</think>\n\n"]
        for variables, last in [({}, f"{EMPTY}Five.<|im_end|>\n"), (OFF, "Five.<|im_end|>\n")]
    ),
    (
        QWEN_35,
        THOUGHTS,
        {},
        ["Four.<|im_end|>\n", "So.\n</think>\n\nFive.<|im_end|>\n"],
        ["Four.<|im_end|>\n", "<think>\nSo.\n</think>\n\nFive.<|im_end|>\n"],
    ),
    (
        QWEN_35,
        ANSWERS,
        OFF,
        ["Four.<|im_end|>\n", "Five.<|im_end|>\n"],
        ["Four.<|im_end|>\n", "<think>\n\n</think>\n\nFive.<|im_end|>\n"],
    ),
    # the row has a thought, but the prompt an empty one: only the header is the server's
    (
        QWEN_35,
        THOUGHTS[:1] + THOUGHTS[3:],
        OFF,
        ["<think>\nSo.\n</think>\n\nFive.<|im_end|>\n"],
        ["<think>\nSo.\n</think>\n\nFive.<|im_end|>\n"],
    ),
    # a header that the markers of the recipe leave out
    (MINIMAX_M2, ANSWERS, {}, ["Four.[e~[", "Five.[e~["], ["\nFour.[e~[", "\nFive.[e~["]),
    (SEED_OSS, ANSWERS, {}, ["Four.<seed:eos>", "Five.<seed:eos>"], ["\nFour.<seed:eos>", "\nFive.<seed:eos>"]),
    # the prompt depends on the conversation
    (
        SMOLLM_3,
        [{"role": "system", "content": "/no_think"}, *ANSWERS],
        {},
        ["Four.<|im_end|>\n", "Five.<|im_end|>\n"],
        ["<think>\n\n</think>\nFour.<|im_end|>\n", "<think>\n\n</think>\nFive.<|im_end|>\n"],
    ),
    (
        DEEPSEEK_R1,
        [asked(), called("A."), RESULT, answer("Five.", "B.")],
        {},
        [
            'A.\n</think>\n\n<tool_call>\n{"name": "depth", "arguments": {"lake": "Uri"}}\n</tool_call><｜end｜>',
            "<think>\nB.\n</think>\n\nFive.<｜end｜>",
        ],
        [],
    ),
    # the generation blocks leave out a thought and the end
    (
        BLOCKS,
        ANSWERS,
        {},
        ["Four.<:end:>", "<think>\n\n</think>\n\nFive.<:end:>"],
        ["Four.", "Five."],
    ),
    (
        GEMMA_4,
        THOUGHTS,
        {"enable_thinking": True},
        ["Four.<turn|>", "<|channel>thought\nSo.<channel|>Five.<turn|>"],
        [],
    ),
]


@pytest.mark.parametrize(("family", "turns", "variables", "wanted", "without"), CASES)
def test_trained_texts(
    tmp_path: Path, family: Family, turns: list[dict[str, Any]], variables: Any, wanted: list[str], without: list[str]
) -> None:
    column = {"variables": "variables"}
    row = {"messages": turns, "variables": variables}

    assert trained(judged(tmp_path, family, **column), **row) == wanted
    made = judged(tmp_path, family, mask_generation_prompt=False, **column).encode(row)
    assert isinstance(made, Encoded)
    if without:
        assert [text for _, text in spans(judged(tmp_path, family), made)] == without
    last = judged(tmp_path, family, loss_mode="last_turn", **column)
    assert trained(last, **row) == wanted[-1:]
    if family is not BLOCKS:  # where its turns end cannot be told
        first = next(index for index, turn in enumerate(turns) if turn["role"] == "assistant")
        weighed = judged(tmp_path, family, message_weights="mask", **column)
        untrained = [*turns[:first], {**turns[first], "weight": 0}, *turns[first + 1 :]]
        assert trained(weighed, untrained, variables=variables) == wanted[1:]


@pytest.mark.parametrize("family", [QWEN_3, QWEN_35, PHI_4, MINIMAX_M2, GEMMA_4, BY_NAME["Llama 3.1"]])
def test_a_prompt_that_is_always_the_same_gives_the_masks_of_renders(tmp_path: Path, family: Family) -> None:
    """The second template asks for the conversation, too, so that each turn is rendered."""
    assert "if add_generation_prompt -%}" in family.template
    asking = family.template.replace(
        "if add_generation_prompt -%}", "if add_generation_prompt and messages is defined -%}"
    )
    fast, slow = judged(tmp_path / "fast", family), judged(tmp_path / "slow", replace(family, template=asking))

    assert fixed_prompt(fast.tokenizer, {}) is not None
    assert fixed_prompt(slow.tokenizer, {}) is None
    quoting, begun = [asked("<|im_start|>assistant\n"), answer()], [answer(), asked(), answer()]
    accepts_nothing = "messages[0]" not in family.template
    for messages in (*KINDS.values(), quoting, *([begun] if accepts_nothing else [])):
        one, other = fast.encode({"messages": messages}), slow.encode({"messages": messages})
        assert one == other or (str(one) == str(other) and isinstance(one, RowError))


LOOP = "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"


@pytest.mark.parametrize(
    ("tail", "kwargs", "prompt"),
    [
        ("{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}", {}, "assistant:"),
        ("{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}", {}, ""),
        ("{% if add_generation_prompt %}{% if slow %}a{% else %}b{% endif %}{% endif %}", {"slow": True}, "a"),
        ("{% if add_generation_prompt and not slow %}a{% endif %}", {"slow": True}, ""),
        ("", {}, ""),
        ("{% if add_generation_prompt %}a{% else %}b{% endif %}", {}, None),
        ("{% if not add_generation_prompt %}a{% endif %}", {}, None),
        ("{% if add_generation_prompt or slow %}a{% endif %}", {}, None),
        ("{% if add_generation_prompt %}a{% endif %}b", {}, None),
        ("{% if add_generation_prompt %}{{ messages[-1].role }}{% endif %}", {}, None),
        ("{% set x = messages[-1].role %}{% if add_generation_prompt %}{{ x }}{% endif %}", {}, None),
        ("{% if add_generation_prompt %}{{ strftime_now('%f') }}{% endif %}", {}, None),
        ("{% for m in messages if add_generation_prompt %}a{% endfor %}", {}, None),
        ("{{ 'a' if add_generation_prompt else '' }}", {}, None),
        ("{% if add_generation_prompt %}{{ missing.attribute }}{% endif %}", {}, None),
    ],
)
def test_templates_that_show_their_prompt(tmp_path: Path, tail: str, kwargs: Any, prompt: str | None) -> None:
    family = replace(PHI_4, template=f"{LOOP}{tail}{{# <|im_start|>assistant #}}")

    assert fixed_prompt(judged(tmp_path, family).tokenizer, kwargs) == prompt


def with_merges(folder: Path, *merges: tuple[str, str]) -> None:
    """Add tokens of two pieces to the tokenizer in a folder."""
    path = folder / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    for pair in merges:
        content["model"]["vocab"]["".join(pair)] = len(content["model"]["vocab"])
        content["model"]["merges"].append(list(pair))
    path.write_text(json.dumps(content))


PLAIN = replace(
    QWEN_3,
    tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    template="{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' + start }}{% endif %}",
)


@pytest.mark.parametrize(
    ("settings", "start", "text", "wanted"),
    [
        ({"mask_generation_prompt": False, "reasoning_loss": "mask_empty"}, "", "<think></think>-14", None),
        ({"mask_generation_prompt": False, "reasoning_loss": "mask"}, "", "<think></think>-14", None),
        ({"mask_generation_prompt": False, "reasoning_loss": "mask_empty"}, "", "<think></think>14", "14"),
        ({"mask_generation_prompt": False, "reasoning_loss": "mask"}, "", "<think>a</think>-14", "</think>-14"),
        ({"mask_generation_prompt": False, "reasoning_loss": "mask"}, "", "<think>a.</think>-14", None),
        ({"mask_generation_prompt": False}, "", "<think></think>-14", "<think></think>-14"),
        ({}, "<think></think>", "<think></think>-14", None),
        ({}, "<think></think>", "<think></think>14", "14"),
        ({}, "<think></think>", "14", "14"),
        ({}, "<think>", "<think></think>-14", "</think>-14"),
        ({}, "<think>", "<think>-14</think>", None),
        ({}, "", "<think></think>-14", "<think></think>-14"),
    ],
)
def test_a_token_across_the_boundary_drops_the_row(
    tmp_path: Path, settings: dict[str, Any], start: str, text: str, wanted: str | None
) -> None:
    write_tokenizer(tmp_path / "tokenizer", PLAIN)
    with_merges(tmp_path, (">", "-"), (".", "<"))
    judge = judged(tmp_path, PLAIN, variables="variables", **settings)
    made = judge.encode({"messages": [asked(), answer(text)], "variables": {"start": start}})

    if wanted is None:
        assert isinstance(made, RowError)
        assert made.reason == DropReason.BOUNDARY_IN_TOKEN
        assert "holds the end of" in made.detail
        if not settings:  # only the cure of a prompt that begins a thought is a thought
            assert made.detail.startswith("turn 2 (assistant): the token ")
            assert mentions(made.detail, "; use a template", "the generation prompt ends")
    else:
        assert isinstance(made, Encoded), made
        assert [words for _, words in spans(judge, made)] == [f"{wanted}<|im_end|>\n"]


def test_a_token_that_takes_white_space_with_it(tmp_path: Path) -> None:
    """The server's text ends with `<think>`; the training text's token holds the line end, too, and is the same."""
    family = replace(PLAIN, tokens=("<|endoftext|>", "<|im_start|>", "<think>", "</think>", "<|im_end|>"))
    write_tokenizer(tmp_path / "tokenizer", family)
    path = tmp_path / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    for token in content["added_tokens"]:
        token["rstrip"] = token["content"] == "<think>"
    path.write_text(json.dumps(content))
    judge = judged(tmp_path, family, variables="variables")

    for start in ("<think>", "<think>\n"):
        row = {"messages": [asked(), answer("<think>\nHm.</think>Four.")], "variables": {"start": start}}
        made = judge.encode(row)
        assert isinstance(made, Encoded), made
        assert [text for _, text in spans(judge, made)] == ["Hm.</think>Four.<|im_end|>\n"]


def test_a_turn_without_the_thought_that_the_prompt_begins_says_what_to_do(tmp_path: Path) -> None:
    """Like Step-3.5's: two line ends are one token, of which the prompt has the first."""
    judge = judged(tmp_path, PLAIN, variables="variables")
    row = {"messages": [asked(), answer("<think>\n\n</think>\nFour.")], "variables": {"start": "<think>\n"}}
    made = judge.encode(row)

    assert isinstance(made, RowError)
    assert made.reason == DropReason.BOUNDARY_IN_TOKEN
    assert made.detail.startswith("turn 2 (assistant): the token '\\n\\n' holds")
    assert mentions(made.detail, *CURES_OF_A_BEGUN_THOUGHT)


#: Like SmolLM3's: a generation block holds a whole turn, header included.
WHOLE_BLOCKS = replace(
    PLAIN,
    template="""\
{%- for message in messages -%}
  {%- set text = '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -%}
  {%- if message.role == 'assistant' -%}{%- generation -%}{{- text -}}{%- endgeneration -%}
  {%- else -%}{{- text -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""",
)
IN_A_ROW = [asked(), answer("One."), answer("Two."), answer("Three."), asked(), answer("Four.")]


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_generation_blocks_that_touch_are_turns_of_their_own(tmp_path: Path, mode: str) -> None:
    judge = judged(tmp_path, WHOLE_BLOCKS, loss_mode=mode, message_weights="mask")
    wanted = [f"{word}.<|im_end|>\n" for word in ("One", "Two", "Three", "Four")]

    assert trained(judge, IN_A_ROW) == (wanted if mode == "assistant" else wanted[-1:])
    untrained = [*IN_A_ROW[:2], {**IN_A_ROW[2], "weight": 0}, *IN_A_ROW[3:]]
    assert trained(judge, untrained) == ([wanted[0], *wanted[2:]] if mode == "assistant" else wanted[-1:])


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize("turns", [IN_A_ROW, [*IN_A_ROW[:4], asked(), {**IN_A_ROW[5], "weight": 0}, asked(), answer()]])
def test_a_header_in_a_generation_block_is_a_trained_prompt(
    tmp_path: Path, turns: list[dict[str, Any]], mode: str
) -> None:
    """Megatron-Bridge trains what the blocks hold, so the mask is sound; of a turn of weight 0 it trains nothing."""
    off = {"mask_generation_prompt": False, "masks_control_tokens": True}
    judge = judged(tmp_path, WHOLE_BLOCKS, loss_mode=mode, message_weights="mask", **off)
    verdict = judge.verdict({"messages": turns})
    assert (verdict.findings, verdict.trains_prompt) == ((), True)


def test_turns_that_no_server_begins_are_dropped(tmp_path: Path) -> None:
    """The template refuses what stands before the first turn, and its prompt depends on the conversation."""
    refusing = "{%- if not messages -%}{{- raise_exception('no turns') -}}{%- endif -%}" + DEEPSEEK_R1.template
    judge = judged(tmp_path, replace(DEEPSEEK_R1, template=refusing))

    made = judge.encode({"messages": [answer(), asked(), answer()]})

    assert isinstance(made, RowError)
    assert made.reason == DropReason.NO_ASSISTANT_MASK
    assert mentions(made.detail, "turn 1 (assistant): ", "turns before", "rejects the row: ", ": no turns")


def test_turns_that_begin_otherwise_are_dropped(tmp_path: Path) -> None:
    template = PHI_4.template.replace("'<|im_start|>assistant<|im_sep|>'", "'<|im_start|>bot<|im_sep|>'")
    judge = judged(tmp_path, replace(PHI_4, template=template))

    made = judge.encode({"messages": ANSWERS})

    assert isinstance(made, RowError)
    assert mentions(made.detail, "turn 2 (assistant): ", "does not begin with", "the generation prompt")


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="mask_generation_prompt is true and loss_mode is 'full', which trains every"):
        ChatPreprocessing(mask_generation_prompt=True, loss_mode="full")
    assert ChatPreprocessing().mask_generation_prompt is False


@pytest.mark.parametrize(
    ("start", "text", "wanted"),
    [
        ("", "<think></think>14", "<think></think>14"),
        ("<think>", "<think></think>14", "</think>14"),
        ("<think></think>", "<think></think>14", "14"),
        ("", "<think>a</think>14", "</think>14"),
        ("<think>", "<think>a</think>14", "</think>14"),
    ],
)
def test_masked_reasoning_trains_the_empty_block_that_the_model_writes(
    tmp_path: Path, start: str, text: str, wanted: str
) -> None:
    judge = judged(tmp_path, PLAIN, variables="variables", reasoning_loss="mask")
    row = {"messages": [asked(), answer(text)], "variables": {"start": start}}
    made = judge.encode(row)

    assert isinstance(made, Encoded), made
    assert [words for _, words in spans(judge, made)] == [f"{wanted}<|im_end|>\n"]
    assert judge.verdict(row).findings == ()


def test_a_prompt_that_is_masked_needs_no_mask_of_empty_blocks() -> None:
    values = {"kind": "chat", "mask_generation_prompt": True, "reasoning_loss": "mask_empty"}
    with pytest.raises(ValueError, match=r"reasoning_loss to keep or mask, .*mask_generation_prompt to false"):
        ChatPreprocessing.model_validate(values)


def test_a_call_without_the_thought_that_the_prompt_begins_says_what_to_do(tmp_path: Path) -> None:
    """Like the real MiniMax-M2: a line end before the call joins the header's to one token."""
    template = MINIMAX_M2.template.replace("<tool_call>\\n", "\\n<tool_call>\\n")
    assert template != MINIMAX_M2.template
    judge = judged(tmp_path, replace(MINIMAX_M2, template=template))
    made = judge.encode({"messages": KINDS["tools"]})
    assert isinstance(made, RowError)
    assert made.reason == DropReason.BOUNDARY_IN_TOKEN
    assert mentions(made.detail, "turn 2 (assistant) lacks", "the generation prompt begins: ", "token '\\n\\n' holds")
    assert mentions(made.detail, *CURES_OF_A_BEGUN_THOUGHT)
    stripped = judge.encode({"messages": KINDS["agents"]})
    assert isinstance(stripped, RowError)
    cure = "set preprocessing.split_conversations to when_context_diff"
    assert mentions(stripped.detail, "template strips its thought: ", cure)
    assert not isinstance(judge.encode({"messages": KINDS["agents"][:4]}), RowError)
