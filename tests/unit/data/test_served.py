"""Trained answers against served ones: the oracle is transformers' own render of every prefix of a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from jinja2.exceptions import TemplateError
from scripts.quirks.served_rows import SETS

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.rows import ServedRows
from bridgepack.data.served.tokens import KnownText
from bridgepack.data.tokenizers.cutting import CuttingTokens
from bridgepack.errors import ConfigError, RowError
from tests.support.messages import mentions
from tests.support.read_rows import encode_examples, encoder_of, given_row, read_row
from tests.support.small_builds import small_recipe
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.served import SERVED_FAMILIES
from tests.zoo.tokenizers import FAMILIES as TOKENIZERS
from tests.zoo.tokenizers import loaded_tokenizer

EQUAL, CONTEXT, ANSWER = "equal", "context-differs", "answer-differs"
BOUNDARY, REFUSED = "boundary-differs", "refused"
BY_NAME = {family.name: family for family in SERVED_FAMILIES}
NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Served:
    """A family's tokenizer with what compares rows of it."""

    recipe: SFTRecipe
    rows: ServedRows
    ends: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, family: Family, changes: Mapping[str, Any] = NONE, **sections: Any) -> "Served":
        tokenizer = write_tokenizer(folder / "tokenizer", family)
        preprocessing = {"kind": "chat", **family.preprocessing, **sections.pop("preprocessing", {})}
        recipe = small_recipe(
            "rows.jsonl",
            tokenizer,
            preprocessing=preprocessing,
            **{"packing": {"packed_sequence_size": 4096}, **sections},
        )
        recipe = recipe.override({"tokenizer.template_date": "2025-06-30", **changes})
        return cls(recipe, ServedRows.of(load_stage(recipe.model_dump_json())), family.ends)

    def answers(self, row: Mapping[str, Any]) -> list[ServedAnswer]:
        (found,) = self.rows.answers([read_row(row, self.recipe.preprocessing)])
        assert not isinstance(found, RowError), found
        return found

    def kinds(self, row: Mapping[str, Any]) -> list[str]:
        return [str(answer.kind) for answer in self.answers(row)]


def _oracle(served: Served, row: Mapping[str, Any]) -> list[str]:
    """Return each answer's kind by transformers alone: its tokenizer, its renders, the packed mask."""
    from transformers import AutoTokenizer

    recipe, stage = served.recipe, served.rows.stage
    tokenizer = AutoTokenizer.from_pretrained(recipe.tokenizer.name_or_path)
    (made,) = encode_examples(encoder_of(recipe, stage.tokenizer), [read_row(row, recipe.preprocessing)])
    assert isinstance(made, Encoded)
    conversation = stage.encoder.prepare(read_row(row, recipe.preprocessing)).value.conversation
    day = recipe.tokenizer.template_date
    options = {"tools": row.get("tools"), "strftime_now": day.strftime if day else None}
    options |= {**recipe.tokenizer.chat_template_kwargs, **row.get("chat_template_kwargs", {})}

    def ids_of(messages: list[Any], *, has_prompt: bool) -> tuple[str, list[int]]:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=has_prompt, **options)
        return text, tokenizer(text, add_special_tokens=False)["input_ids"]

    def trimmed(ids: list[int]) -> list[int]:
        while ids and not tokenizer.decode(ids[-1:]).strip():
            ids = ids[:-1]
        return ids

    policy = SequencePolicy.of(recipe.resolve(), stage.tokenizer.eos_token_id)
    mask = policy.mask_of_row(np.array(made.ids), np.array(made.mask)).tolist()
    text, ids = ids_of(conversation.messages, has_prompt=False)
    assert ids == made.ids
    kinds = []
    for turn, message in enumerate(conversation.messages):
        if message["role"] != "assistant" or turn in conversation.untrained:
            continue
        try:
            sent_text, sent = ids_of(conversation.messages[:turn], has_prompt=True)
            whole_text, whole = ids_of(conversation.messages[: turn + 1], has_prompt=False)
        except (TemplateError, TypeError, ValueError, LookupError):
            kinds.append(REFUSED)
            continue
        start, whole = len(sent), trimmed(whole)
        answer = whole[start:]
        if not text.startswith(sent_text):
            kinds.append(CONTEXT)
            continue
        if not whole_text.startswith(sent_text) or not text.startswith(whole_text.rstrip()):
            kinds.append(ANSWER)
            continue
        if ids[:start] != sent:
            kinds.append(BOUNDARY)
            continue
        if whole[:start] != sent or ids[start : start + len(answer)] != answer:
            kinds.append(ANSWER)
            continue
        bits = mask[start : start + len(answer)]
        behind = start + len(answer)
        while (
            behind < len(ids)
            and mask[behind]
            and (tokenizer.decode(ids[behind]) in served.ends or not tokenizer.decode(ids[behind]).strip())
        ):
            behind += 1
        leading = bits.index(1) if 1 in bits else len(bits)
        if not any(bits) or 0 in bits[leading:] or (behind < len(ids) and mask[behind]):
            kinds.append(ANSWER)
        elif leading or mask[start - 1]:
            kinds.append(BOUNDARY)
        else:
            kinds.append(EQUAL)
    return kinds


@pytest.fixture(scope="module", params=SERVED_FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    found: Family = request.param
    return Served.of(tmp_path_factory.mktemp("family"), found)


@pytest.mark.parametrize("name", SETS)
def test_every_answer_has_the_kind_that_renders_of_transformers_show(family: Served, name: str) -> None:
    columns = read_row(SETS[name], family.recipe.preprocessing)
    (found,) = family.rows.answers([columns])
    if isinstance(found, RowError):  # the template rejects the row, so a build has none of it
        assert found.reason in ("template_error", "no_assistant_mask"), found
        return
    assert found
    assert [str(answer.kind) for answer in found] == _oracle(family, SETS[name])


THOUGHTS, AGENTS, PLAIN = SETS["thoughts"], SETS["agents"], SETS["plain"]


def _with(row: Mapping[str, Any], turn: int, **fields: Any) -> dict[str, Any]:
    messages = [dict(message) for message in row["messages"]]
    messages[turn] |= fields
    return {**row, "messages": messages}


def test_a_thought_that_is_gone_is_shown_with_both_texts(tmp_path: Path) -> None:
    first, last = Served.of(tmp_path, BY_NAME["Qwen3"]).answers(THOUGHTS)

    assert (str(first.kind), first.turn, first.num_trained_tokens) == (ANSWER, 2, len("Answer 1.") + 1)
    assert first.token == 1 + len("user\nQuestion 1?") + 1 + len("\n") + 1 + len("assistant\n")
    assert first.trained_text == "\n<|im_start|>assistant\nAnswer 1.<|im_end|>\n<|im_start|>"
    assert first.served_text == "\n<|im_start|>assistant\n<think>\nThou"
    assert (str(last.kind), last.turn, last.token) == (EQUAL, 4, None)


def test_only_trained_answers_are_compared(tmp_path: Path) -> None:
    weighted = Served.of(tmp_path / "a", BY_NAME["Qwen3"], preprocessing={"message_weights": "mask"})
    assert weighted.kinds(_with(THOUGHTS, 1, weight=0)) == [EQUAL]
    assert weighted.kinds(_with(THOUGHTS, 3, weight=0)) == [ANSWER]
    last = Served.of(tmp_path / "b", BY_NAME["Qwen3"], preprocessing={"loss_mode": "last_turn"})
    assert last.kinds(THOUGHTS) == [EQUAL]


def test_full_loss_compares_texts_alone(tmp_path: Path) -> None:
    served = Served.of(tmp_path, BY_NAME["Qwen3"], preprocessing={"loss_mode": "full"})
    assert served.kinds(THOUGHTS) == [ANSWER, EQUAL]
    thought = len("<think>\nThought 1.\n</think>") + 1  # two line ends are one token
    assert [answer.num_trained_tokens for answer in served.answers(THOUGHTS)] == [
        thought + len("Answer 1.") + 2,  # with the line end behind the end of the turn
        thought + len("Answer 2.") + 2,
    ]


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ({}, [EQUAL, EQUAL]),
        ({"system": "Be short."}, [CONTEXT, CONTEXT]),
        ({"system": "Be kind."}, [EQUAL, EQUAL]),
        ({"system": ""}, [CONTEXT, CONTEXT]),
    ],
)
def test_the_server_may_have_a_system_prompt_of_its_own(
    tmp_path: Path, serving: Mapping[str, Any], expected: list[str]
) -> None:
    row = {"messages": [{"role": "system", "content": "Be kind."}, *PLAIN["messages"]]}
    served = Served.of(tmp_path, BY_NAME["Qwen2.5"], serving=serving)
    assert served.kinds(row) == expected


def test_rows_without_a_system_prompt_differ_from_a_server_with_one(tmp_path: Path) -> None:
    served = Served.of(tmp_path, BY_NAME["Qwen2.5"], serving={"system": "Be kind."})
    assert served.kinds(PLAIN) == [CONTEXT, CONTEXT]


@pytest.mark.parametrize(
    ("trained", "serving", "of_row", "expected"),
    [
        ({}, None, {}, [CONTEXT, BOUNDARY]),
        ({"preserve_thinking": True}, None, {}, [BOUNDARY, BOUNDARY]),
        ({"preserve_thinking": True}, {}, {}, [BOUNDARY, CONTEXT]),
        ({}, {"preserve_thinking": True}, {}, [CONTEXT, CONTEXT]),
        ({}, {}, {"preserve_thinking": True}, [BOUNDARY, BOUNDARY]),
    ],
)
def test_variables_of_server_recipe_and_row(
    tmp_path: Path, trained: Any, serving: Any, of_row: Any, expected: list[str]
) -> None:
    """What the server sets stands in place of the recipe's variables, and a row's come on top of both."""
    served = Served.of(
        tmp_path,
        BY_NAME["Qwen3.5"],
        {"tokenizer.chat_template_kwargs": trained},
        serving={"chat_template_kwargs": serving},
    )
    read = read_row(THOUGHTS, served.recipe.preprocessing).columns
    columns = given_row({**read, "chat_template_kwargs": of_row})
    (found,) = served.rows.answers([columns])
    assert not isinstance(found, RowError)
    assert [str(answer.kind) for answer in found] == expected


def test_a_refused_prefix_says_so(tmp_path: Path) -> None:
    family = BY_NAME["Qwen2.5"]
    refusal = "{%- if add_generation_prompt and messages[-1].role == 'tool' -%}{{- raise_exception('no results') -}}"
    served = Served.of(tmp_path, replace(family, template=f"{refusal}{{%- endif -%}}{family.template}"))
    answers = served.answers(AGENTS)
    assert [str(answer.kind) for answer in answers] == [EQUAL, REFUSED, EQUAL]
    assert answers[1].detail.endswith("the row: no results")
    assert answers[1].num_trained_tokens == len("Answer 1.") + 1


@pytest.mark.parametrize(
    ("loss", "serving", "expected"),
    [
        ("keep", None, [ANSWER, EQUAL]),
        ("mask_empty", None, [ANSWER, BOUNDARY]),
        ("mask_empty", {"enable_thinking": False}, [CONTEXT, EQUAL]),
        ("keep", {"enable_thinking": False}, [CONTEXT, BOUNDARY]),
    ],
)
def test_empty_thoughts_belong_to_whoever_writes_them(
    tmp_path: Path, loss: str, serving: Any, expected: list[str]
) -> None:
    """The server writes them in its prompt when thinking is off; otherwise the model must."""
    served = Served.of(
        tmp_path,
        BY_NAME["Qwen3"],
        preprocessing={"reasoning_loss": loss},
        serving={"chat_template_kwargs": serving},
    )
    assert served.kinds(PLAIN) == expected


def test_thoughts_that_the_recipe_excludes_are_no_difference(tmp_path: Path) -> None:
    served = Served.of(tmp_path, BY_NAME["SmolLM3"], preprocessing={"reasoning_loss": "mask"})
    assert served.kinds(THOUGHTS) == [EQUAL, EQUAL]
    assert [answer.num_trained_tokens for answer in served.answers(THOUGHTS)] == [
        len("</think>") + 1 + len("Answer 1.") + 1
    ] * 2


@pytest.mark.parametrize("labels", ["mask", "train"])
def test_the_line_end_behind_an_answer_is_no_difference(tmp_path: Path, labels: str) -> None:
    served = Served.of(tmp_path, BY_NAME["Qwen2.5"], preprocessing={"labels_after_eos": labels})
    assert served.kinds(PLAIN) == [EQUAL, EQUAL]


@pytest.mark.parametrize(("masks", "expected"), [(True, BOUNDARY), (False, EQUAL)])
def test_a_control_token_that_the_model_must_write(tmp_path: Path, masks: bool, expected: str) -> None:
    family = BY_NAME["Llama 3.1"]
    template = family.template.replace('\\n\\n{"name": "\'', '\\n\\n<|python_tag|>{"name": "\'')
    assert template != family.template
    tokens = (*family.tokens[:-1], "<|python_tag|>", family.tokens[-1])
    served = Served.of(
        tmp_path, replace(family, template=template, tokens=tokens), preprocessing={"masks_control_tokens": masks}
    )
    call, *answers = served.answers(AGENTS)
    assert str(call.kind) == expected
    assert {str(answer.kind) for answer in answers} == {EQUAL}
    if masks:
        assert "never trains '<|python_tag|>', so set preprocessing.masks_control_tokens to false" in call.detail


def test_a_header_that_is_trained_is_told_with_its_tokens(tmp_path: Path) -> None:
    family = BY_NAME["Qwen2.5"]
    markers = {"assistant_start": "<|im_start|>", "assistant_end": "<|im_end|>", "other_role_starts": {}}
    markers["other_role_starts"] = {"user": "<|im_start|>user"}
    served = Served.of(tmp_path, family, preprocessing={"assistant_markers": markers, "loss_mode": "last_turn"})
    (answer,) = served.answers({"messages": PLAIN["messages"][:2]})
    assert str(answer.kind) == BOUNDARY
    assert mentions(answer.detail, f"{len('assistant') + 1} tokens are trained", "generation prompt")


@pytest.mark.parametrize("size", [48, 64])
@pytest.mark.parametrize("over_long", ["truncate", "split"])
def test_what_is_cut_is_no_longer_as_served(tmp_path: Path, over_long: str, size: int) -> None:
    """The first answer ends at token 40, the last begins at 71."""
    served = Served.of(
        tmp_path,
        BY_NAME["Qwen2.5"],
        preprocessing={"over_long": over_long},
        packing={"packed_sequence_size": size},
    )
    whole = Served.of(tmp_path / "whole", BY_NAME["Qwen2.5"]).answers(PLAIN)
    assert [answer.span for answer in whole] == [(30, 40), (71, 81)]
    assert served.kinds(PLAIN) == [EQUAL] + ([CONTEXT] if over_long == "split" else [])


def test_an_answer_that_lost_its_end(tmp_path: Path) -> None:
    sizes = {"packed_sequence_size": 75}
    served = Served.of(tmp_path, BY_NAME["Qwen2.5"], preprocessing={"over_long": "truncate"}, packing=sizes)
    answers = served.answers(PLAIN)
    assert [(str(answer.kind), answer.num_trained_tokens) for answer in answers] == [(EQUAL, 10), ("cut-on-purpose", 5)]
    assert mentions(answers[1].detail, "truncated", "answer lost its end")


def test_an_answer_that_differs_may_lose_its_end_too(tmp_path: Path) -> None:
    """What is cut off is not packed, so it does not count; 64 tokens end before the last answer, 75 within it."""
    found = {}
    for size in (64, 75):
        served = Served.of(
            tmp_path / str(size),
            BY_NAME["Qwen2.5"],
            preprocessing={"over_long": "truncate"},
            packing={"packed_sequence_size": size},
            serving=OTHER_SYSTEM,
        )
        found[size] = [(str(answer.kind), answer.num_trained_tokens) for answer in served.answers(PLAIN)]
    assert found == {64: [(CONTEXT, 10)], 75: [(CONTEXT, 10), (CONTEXT, 5)]}


def test_tokens_that_are_left_out_of_an_answer_that_lost_its_end_do_not_count(tmp_path: Path) -> None:
    """The answer is cut within its thought, which is not trained."""
    sizes = {"packed_sequence_size": 150}
    served = Served.of(tmp_path, BY_NAME["SmolLM3"], preprocessing={**MASKED, "over_long": "truncate"}, packing=sizes)
    (answer,) = served.answers(INNER)
    assert (str(answer.kind), answer.num_trained_tokens) == ("cut-on-purpose", len("So. "))


def test_other_kinds_of_rows_are_refused(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = small_recipe("rows.jsonl", chatml_tokenizer, preprocessing={"kind": "prompt_completion"})
    with pytest.raises(ConfigError, match=r"preprocessing\.kind is prompt_completion; .* kind chat"):
        ServedRows.of(load_stage(recipe.model_dump_json()))


@pytest.mark.parametrize("family", TOKENIZERS, ids=lambda family: family.name)
def test_tokens_of_a_text_that_begins_alike(tmp_path: Path, family: Any) -> None:
    """Only what differs is encoded, and the tokens are those of the whole text."""
    tokenizer = loaded_tokenizer(tmp_path, family)
    texts = [
        tokenizer.render_text(PLAIN["messages"], None),
        tokenizer.render_text([*PLAIN["messages"], {"role": "user", "content": " and?\n\n "}], None),
        tokenizer.render_text(_with(PLAIN, 1, content="\n\nAnswer")["messages"], None),
        "",
        "nothing alike",
    ]
    num_checked = 0
    for text in texts:
        ids = np.array(tokenizer.encode(text), dtype=np.int32)
        known = KnownText(tokenizer, CuttingTokens(tokenizer), text, ids)
        for other in texts:
            for stop in range(0, len(other) + 1, 3):
                assert known.tokens_of(other[:stop]).tolist() == tokenizer.encode(other[:stop])
                num_checked += 1
    assert num_checked > 0


#: A row whose first answer has a thought inside, longer than the question behind it.
INNER: Mapping[str, Any] = {
    "messages": [
        *PLAIN["messages"][:1],
        {"role": "assistant", "content": f"So. <think>\n{'t' * 200}\n</think>\n\nAnswer 1."},
        *PLAIN["messages"][2:],
    ]
}
#: Trained tokens of INNER's answers without the thought, and with it; two line ends are one token.
OUTSIDE, INSIDE = [len("So. </think>") + 1 + len("Answer 1.") + 1, len("Answer 2.") + 1], len("<think>\n\n") + 200
#: Has an effect on what precedes each answer, so that no token of it is where it is when it is served.
OTHER_SYSTEM: Mapping[str, Any] = MappingProxyType({"system": "Be kind."})
MASKED: Mapping[str, Any] = MappingProxyType({"reasoning_loss": "mask"})


def _in_blocks(template: str) -> str:
    """Return SmolLM3's template with two generation blocks in an answer: up to the end of its thought, and the rest."""
    content = "message.content | default('', true)"
    header = f"{{{{- '<|im_start|>assistant\\n' + {content} -}}}}"
    assert header in template
    blocks = f"""{{{{- '<|im_start|>assistant\\n' -}}}}
    {{%- set parts = ({content}).rpartition('</think>') -%}}
    {{%- if parts[1] -%}}{{%- generation -%}}{{{{- parts[0] + parts[1] -}}}}{{%- endgeneration -%}}{{%- endif -%}}
    {{%- generation -%}}{{{{- parts[2] -}}}}{{%- endgeneration -%}}"""
    return template.replace(header, blocks)


@pytest.mark.parametrize("in_blocks", [False, True], ids=["markers", "blocks"])
@pytest.mark.parametrize(
    ("preprocessing", "serving", "expected"),
    [
        (MASKED, OTHER_SYSTEM, OUTSIDE),
        (MASKED, {}, OUTSIDE),
        (NONE, OTHER_SYSTEM, [OUTSIDE[0] + INSIDE, OUTSIDE[1]]),
        ({"loss_mode": "last_turn"}, OTHER_SYSTEM, OUTSIDE[1:]),
    ],
    ids=["unknown places", "known places", "nothing left out", "the last"],
)
def test_each_trained_token_counts_for_its_answer(
    tmp_path: Path, in_blocks: bool, preprocessing: Any, serving: Any, expected: list[int]
) -> None:
    """A thought that is left out within an answer is no boundary of answers, however long it is."""
    family = BY_NAME["SmolLM3"]
    family = replace(family, template=_in_blocks(family.template)) if in_blocks else family
    served = Served.of(tmp_path, family, preprocessing=preprocessing, serving=serving)
    answers = served.answers(INNER)
    assert {answer.kind == CONTEXT for answer in answers} == {bool(serving)}
    assert [answer.num_trained_tokens for answer in answers] == expected


@pytest.mark.parametrize("in_blocks", [False, True], ids=["markers", "blocks"])
def test_an_answer_of_which_only_the_end_is_trained(tmp_path: Path, in_blocks: bool) -> None:
    family = BY_NAME["SmolLM3"]
    family = replace(family, template=_in_blocks(family.template)) if in_blocks else family
    served = Served.of(tmp_path, family, preprocessing={"reasoning_loss": "mask_empty"}, serving=OTHER_SYSTEM)
    answers = served.answers(_with(PLAIN, 1, content="<think>\n\n</think>"))
    assert [answer.num_trained_tokens for answer in answers] == [1, len("Answer 2.") + 1]


def test_an_answer_of_unknown_place_between_two_that_are_known(tmp_path: Path) -> None:
    """Its thought is longer than what stands between the answers."""
    family = BY_NAME["SmolLM3"]
    refusal = "{%- if add_generation_prompt and messages[-1].content == 'Again?' -%}{{- raise_exception('no') -}}"
    family = replace(family, template=f"{refusal}{{%- endif -%}}{family.template}")
    middle = [{"role": "user", "content": "Again?"}, INNER["messages"][1]]
    row = {"messages": [*PLAIN["messages"][:2], *middle, *PLAIN["messages"][2:]]}
    answers = Served.of(tmp_path, family, preprocessing=MASKED).answers(row)
    assert [str(answer.kind) for answer in answers] == [EQUAL, REFUSED, EQUAL]
    assert [answer.num_trained_tokens for answer in answers] == [len("Answer 1.") + 1, *OUTSIDE]


def test_tokens_of_a_block_with_several_answers_count_where_they_are_served(tmp_path: Path) -> None:
    """Whose a token is in a block of the whole chat is unknown; what a server or the model writes of it is known."""
    family = BY_NAME["Qwen2.5"]
    template = f"{{%- generation -%}}{family.template}{{%- endgeneration -%}}"
    served = Served.of(tmp_path, replace(family, template=template))
    assert [answer.num_trained_tokens for answer in served.answers(PLAIN)] == [len("assistant\nAnswer 1.") + 1] * 2


def test_a_long_conversation_is_compared_in_a_moment(tmp_path: Path) -> None:
    """Of each prefix only its end is encoded: 120 turns are 60 answers, and 6 MB of renders."""
    messages = [dict(message) for _ in range(30) for message in PLAIN["messages"]]
    for message in messages:
        message["content"] *= 40
    served = Served.of(tmp_path, BY_NAME["Qwen2.5"], packing={"packed_sequence_size": 1 << 17})
    begin = process_time()
    assert served.kinds({"messages": messages}) == [EQUAL] * 60
    assert process_time() - begin < 5


@pytest.mark.parametrize("name", SETS)
def test_nothing_differs_at_the_boundary_with_mask_generation_prompt(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """What the server writes is not trained, and what the model must write is, wherever the texts are the same."""
    num_checked = 0
    for family in SERVED_FAMILIES:
        served = Served.of(tmp_path_factory.mktemp("masked"), family, preprocessing={"mask_generation_prompt": True})
        (found,) = served.rows.answers([read_row(SETS[name], served.recipe.preprocessing)])
        if not isinstance(found, RowError):
            kinds = [str(answer.kind) for answer in found]
            assert BOUNDARY not in kinds, (family.name, kinds)
            num_checked += len(kinds)
    assert num_checked > 30


def test_a_switch_and_a_mask_make_every_answer_equal(tmp_path: Path) -> None:
    served = Served.of(
        tmp_path,
        BY_NAME["Qwen3.5"],
        {"tokenizer.chat_template_kwargs": {"preserve_thinking": True}},
        preprocessing={"mask_generation_prompt": True},
    )
    assert served.kinds(THOUGHTS) == [EQUAL, EQUAL]
    assert served.kinds(AGENTS) == [EQUAL, EQUAL, EQUAL]


@pytest.mark.parametrize(("name", "is_never_shown"), [("DeepSeek-R1", True), ("Qwen3", False)])
def test_an_answer_that_no_split_shows_as_it_is_served_is_told(tmp_path: Path, name: str, is_never_shown: bool) -> None:
    """R1's prompt opens a thought that no render of an answer has; Qwen3 only strips what is not the last."""
    found = Served.of(tmp_path, BY_NAME[name]).answers(SETS["agents"])

    details = [answer.detail for answer in found if answer.kind == CONTEXT]
    assert details
    assert all(("splitting does not help" in detail) == is_never_shown for detail in details)


def test_a_turn_of_weight_0_keeps_a_row_of_which_a_token_straddles_the_prompt(tmp_path: Path) -> None:
    """EXAONE-4's call never shows its thought, which the prompt opens; the answers after it do."""
    family = BY_NAME["EXAONE-4, thinking"]
    masked = {"mask_generation_prompt": True, "split_conversations": "when_context_differs"}
    served = Served.of(tmp_path / "a", family, preprocessing={**masked, "message_weights": "mask"})

    assert served.kinds(_with(AGENTS, 1, weight=0)) == [EQUAL, EQUAL]
    (found,) = served.rows.answers([read_row(AGENTS, served.recipe.preprocessing)])
    assert isinstance(found, RowError)
    assert found.reason == "boundary_in_token"
    assert "give the turn weight 0 with preprocessing.message_weights mask" in found.detail
