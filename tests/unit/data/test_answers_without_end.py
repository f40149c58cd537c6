"""Answers that end with the next turn's marker, with nothing, or with a marker that Megatron-Bridge does not know."""

import re
from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.section import without_younger
from bridgepack.data.sequences.chat import ChatEncoder, chat_encoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.proof.mask_check import check_masks
from bridgepack.records import DropReason, LostKind
from tests.support.judged_masks import Judged
from tests.support.messages import mentions
from tests.support.read_rows import encode_examples, encode_rows
from tests.support.small_builds import build, dropped, small_recipe, write_json_lines
from tests.zoo.endless import APERTUS, GLM, LLAMA_2, LLAMA_31
from tests.zoo.families import Family, write_tokenizer

CALL = {"type": "function", "function": {"name": "depth", "arguments": {"lake": "Uri"}}}
ASKED, ANSWERED = {"role": "user", "content": "Deep?"}, {"role": "assistant", "content": "200 m."}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "200"}
TWO_ROUNDS = [
    *({"role": "user", "content": "Two plus two?"}, {"role": "assistant", "content": "Four."}),
    *({"role": "user", "content": "And three more?"}, {"role": "assistant", "content": "Seven."}),
]
GLM_CALL = "\n<think></think>\n<tool_call>depth\n<arg_key>lake</arg_key>\n<arg_value>Uri</arg_value>\n</tool_call>"
GLM_ANSWER = "\n<think></think>\n200 m."
APERTUS_CALL = '<|tools_prefix|>[{"depth": {"lake": "Uri"}}]<|tools_suffix|>'

#: (family, turns, trained text of each turn, whether one has no end)
CASES: list[tuple[Family, list[dict[str, Any]], list[str], bool]] = [
    (GLM, TWO_ROUNDS, ["\n<think></think>\nFour.<|user|>", "\n<think></think>\nSeven."], True),
    (GLM, TWO_ROUNDS[:2], ["\n<think></think>\nFour."], True),
    (GLM, TWO_ROUNDS[:3], ["\n<think></think>\nFour.<|user|>"], False),
    (GLM, [ASKED, CALLING, RESULT, ANSWERED], [f"{GLM_CALL}<|observation|>", GLM_ANSWER], True),
    (GLM, [ASKED, CALLING, RESULT], [f"{GLM_CALL}<|observation|>"], False),
    (GLM, [ASKED, CALLING], [GLM_CALL], True),
    (GLM, [ASKED, ANSWERED, ANSWERED], [GLM_ANSWER, GLM_ANSWER], True),
    (
        GLM,
        [ANSWERED, ANSWERED, *TWO_ROUNDS[:2]],
        [GLM_ANSWER, f"{GLM_ANSWER}<|user|>", "\n<think></think>\nFour."],
        True,
    ),
    (APERTUS, TWO_ROUNDS, ["Four.<|assistant_end|>", "Seven."], True),
    (APERTUS, TWO_ROUNDS[:3], ["Four.<|assistant_end|>"], False),
    # The template writes both as one.
    (APERTUS, [ASKED, ANSWERED, TWO_ROUNDS[1]], ["200 m.Four."], True),
    (APERTUS, [ANSWERED, ANSWERED, *TWO_ROUNDS[:2]], ["200 m.200 m.<|assistant_end|>", "Four."], True),
    (APERTUS, [ASKED, CALLING, RESULT], [APERTUS_CALL], True),
    # What the tool answers stands between both in one turn of the template.
    (APERTUS, [ASKED, CALLING, RESULT, ANSWERED], [APERTUS_CALL, "200 m."], True),
    (
        LLAMA_31,
        [ASKED, CALLING, RESULT, ANSWERED],
        ['{"name": "depth", "parameters": {"lake": "Uri"}}<|eom_id|>', "200 m.<|eot_id|>"],
        False,
    ),
    (
        LLAMA_31,
        [ASKED, CALLING, RESULT],
        ['{"name": "depth", "parameters": {"lake": "Uri"}}<|eom_id|>'],
        False,
    ),
    (LLAMA_2, TWO_ROUNDS, [" Four. </s>", " Seven. </s>"], False),
]


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize(("family", "turns", "trained", "is_open"), CASES)
def test_trained_turns(
    tmp_path: Path, family: Family, turns: list[dict[str, Any]], trained: list[str], is_open: bool, mode: str
) -> None:
    encoder, tokenizer = _encoder(tmp_path, family, loss_mode=mode)
    for batch in ([turns], [turns, TWO_ROUNDS]):  # also beside another row
        made = encode_examples(encoder, [{"messages": messages} for messages in batch])[0]

        assert isinstance(made, Encoded), made
        assert _spans(tokenizer, made) == (trained if mode == "assistant" else trained[-1:])
        kinds = [loss.kind for loss in made.losses if loss.kind != LostKind.NO_SCHEMAS]
        assert kinds == (["no_end"] if is_open else [])


def test_answers_that_are_joined_have_the_end_of_the_last(tmp_path: Path) -> None:
    turns = [ASKED, ANSWERED, ANSWERED, ASKED]
    for number, (weight, expected) in enumerate([(1, "200 m.200 m.<|assistant_end|>"), (0, "turns 2 and 3")]):
        encoder, tokenizer = _encoder(tmp_path / str(number), APERTUS, message_weights="mask")
        row = {"messages": [*turns[:2], turns[2] | {"weight": weight}, turns[3]]}
        (made,) = encode_examples(encoder, [row])
        assert (_spans(tokenizer, made) if isinstance(made, Encoded) else [str(made)[19:32]]) == [expected]


STARTS = {"user": "<|user|>", "tool": "<|observation|>", "system": "<|system|>"}
GLM_STOPS = {"assistant_start": "<|assistant|>", "other_role_starts": STARTS}


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize(("turns", "trained", "is_open"), [case[1:] for case in CASES if case[0] is GLM])
def test_stop_tokens_and_turns_that_learn_none(
    tmp_path: Path, turns: list[dict[str, Any]], trained: list[str], is_open: bool, mode: str
) -> None:
    stops = {**GLM_STOPS, "stop_token": ["<|user|>", "<|observation|>"]}
    none = {**GLM_STOPS, "learns_no_end": True}
    for number, (markers, wanted, has_finding) in enumerate(
        [(stops, trained, is_open), (none, [text.partition("<|")[0] for text in trained], False)]
    ):
        encoder, tokenizer = _encoder(tmp_path / str(number), GLM, assistant_markers=markers, loss_mode=mode)
        for batch in ([turns], [turns, TWO_ROUNDS]):
            made = encode_examples(encoder, [{"messages": messages} for messages in batch])[0]

            assert isinstance(made, Encoded), made
            assert _spans(tokenizer, made) == (wanted if mode == "assistant" else wanted[-1:])
            kinds = [loss.kind for loss in made.losses if loss.kind != LostKind.NO_SCHEMAS]
            assert kinds == (["no_end"] if has_finding else [])


def test_the_comparison_of_masks_does_not_judge_the_stop_token(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer", GLM)
    row = {"messages": [ASKED, CALLING, RESULT, ANSWERED, *TWO_ROUNDS]}
    for markers in (
        GLM.preprocessing["assistant_markers"],
        {**GLM_STOPS, "stop_token": ["<|user|>", "<|observation|>"]},
        {**GLM_STOPS, "learns_no_end": True},
    ):
        verdict = Judged.of_tokenizer(folder, kind="chat", assistant_markers=markers).verdict(row)

        assert verdict.num_judges == 1
        assert verdict.findings == ()


def test_pieces_of_conversations_learn_the_stop_token_of_the_next_turn(tmp_path: Path) -> None:
    """Answers need sequences of their own, as the template takes earlier thoughts out; the last has no next turn."""
    stops = {**GLM_STOPS, "stop_token": ["<|user|>", "<|observation|>"]}
    thinking = [{**one, "reasoning_content": "why"} if one["role"] == "assistant" else one for one in TWO_ROUNDS]
    messages = [
        ASKED,
        {**CALLING, "reasoning_content": "call"},
        RESULT,
        {**ANSWERED, "reasoning_content": "so"},
        *thinking,
    ]
    chat = {"assistant_markers": stops, "split_conversations": "when_context_differs"}
    encoder, tokenizer = _encoder(tmp_path, GLM, **chat)

    (made,) = encode_rows(encoder, [{"messages": messages}])

    assert not isinstance(made, RowError)
    spans = [span for item in made for span in _spans(tokenizer, item)]
    assert [span.rpartition("<|")[2] for span in spans[:-1]] == ["observation|>", "user|>", "user|>"]
    assert len(spans) == 4
    assert all("</think>" in span for span in spans)
    source = write_json_lines(tmp_path / "a.jsonl", [{"messages": messages}])
    folder = write_tokenizer(tmp_path / "judged", GLM)
    report = check_masks(small_recipe(source, folder, preprocessing={"kind": "chat", **chat}))
    assert (report.num_sequences, report.num_agreed, report.findings) == (len(made), len(made), ())


def test_turns_without_end_that_quote_markers(tmp_path: Path) -> None:
    encoder, tokenizer = _encoder(tmp_path, GLM, assistant_markers={**GLM_STOPS, "learns_no_end": True})
    quoting = [*TWO_ROUNDS[:1], {**ANSWERED, "content": "It writes <|user|> there."}, *TWO_ROUNDS[2:]]
    empty = [ASKED, {**ANSWERED, "content": ""}]

    (quoted, nothing) = encode_examples(encoder, [{"messages": quoting}, {"messages": empty}])

    assert isinstance(quoted, Encoded)
    assert _spans(tokenizer, quoted) == [
        "\n<think></think>\nIt writes <|user|> there.",
        "\n<think></think>\nSeven.",
    ]
    assert isinstance(nothing, Encoded)
    assert _spans(tokenizer, nothing) == ["\n<think></think>"]
    empty_too, _ = _encoder(tmp_path / "2", APERTUS, assistant_markers=_markers("<|assistant_start|>", APERTUS_STARTS))
    (nothing,) = encode_examples(empty_too, [{"messages": empty}])
    assert isinstance(nothing, RowError)
    assert nothing.reason == DropReason.NO_ASSISTANT_MASK


APERTUS_STARTS = {"user": "<|user_start|>", "system": "<|system_start|>"}


def _markers(start: str, others: dict[str, str]) -> dict[str, Any]:
    return {"assistant_start": start, "learns_no_end": True, "other_role_starts": others}


@pytest.mark.parametrize(
    ("markers", "told"),
    [
        ({}, "assistant_end is not set"),
        ({"stop_token": "<|user|>"}, "stop_token is set and other_role_starts is empty"),
        ({"learns_no_end": True}, "learns_no_end is set and other_role_starts is empty"),
        (
            {"assistant_end": "</s>", "stop_token": "<|user|>", "other_role_starts": STARTS},
            "assistant_end and stop_token are set",
        ),
        (
            {"learns_no_end": True, "assistant_end_fallbacks": ["</s>"], "other_role_starts": STARTS},
            "assistant_end_fallbacks is ['</s>'] and assistant_end is not set. Set assistant_end, or list",
        ),
        ({"stop_token": [], "other_role_starts": STARTS}, "should have at least 1 item"),
    ],
)
def test_ends_that_do_not_fit(markers: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        ChatPreprocessing(assistant_markers={"assistant_start": "<|assistant|>", **markers})


@pytest.mark.parametrize(
    ("stop", "told"),
    [
        ("<|user|>\n", "has as ['<|user|>', '\\n']; it must be one"),
        ("x", "stop_token is 'x'"),
        (
            "<|endoftext|>",
            "other_role_starts begins: '<|user|>', '<|observation|>', '<|system|>'",
        ),
    ],
)
def test_stop_tokens_that_no_server_stops_at(tmp_path: Path, stop: str, told: str) -> None:
    with pytest.raises(TokenizerError, match=re.escape(told)):
        _encoder(tmp_path, GLM, assistant_markers={**GLM_STOPS, "stop_token": stop})


def test_fingerprints_of_recipes_with_an_end_stay() -> None:
    given = {"assistant_start": "<|assistant|>", "assistant_end": "</s>"}
    now = ChatPreprocessing(assistant_markers=given).model_dump(mode="json")

    assert without_younger(ChatPreprocessing, now)["assistant_markers"] == {
        **given,
        "assistant_end_fallbacks": [],
        "other_role_starts": {},
        "joins_starts": False,
    }


def test_details_and_weights(tmp_path: Path) -> None:
    encoder, tokenizer = _encoder(tmp_path, GLM, message_weights="mask")
    last = {**TWO_ROUNDS[3], "weight": 0}
    (made, without_last) = encode_examples(encoder, [{"messages": TWO_ROUNDS}, {"messages": [*TWO_ROUNDS[:3], last]}])

    assert isinstance(made, Encoded)
    detail = "turn 4 (assistant), the last, has no end marker, so the model does not learn to stop there"
    assert made.losses == ((LostKind.NO_END, detail),)
    assert isinstance(without_last, Encoded)
    assert _spans(tokenizer, without_last) == ["\n<think></think>\nFour.<|user|>"]
    assert without_last.losses == ()


def test_an_end_that_the_markers_do_not_name(tmp_path: Path) -> None:
    """The next turn's opener bounds the call, although no marker of the recipe says so."""
    markers = {"assistant_start": "<|assistant|>", "assistant_end": "<|user|>"}
    encoder, tokenizer = _encoder(tmp_path, GLM, assistant_markers=markers)

    (made,) = encode_examples(encoder, [{"messages": [ASKED, CALLING, RESULT, ANSWERED, *TWO_ROUNDS[:1]]}])

    assert isinstance(made, Encoded)
    assert _spans(tokenizer, made) == [GLM_CALL, f"{GLM_ANSWER}<|user|>"]
    assert made.losses[0].detail.startswith("turn 2 (assistant) has no end marker, ")


@pytest.mark.parametrize("others", [{"user": "<|user|>", "tool": "<|observation|>"}, {}])
def test_ends_that_are_also_starts(tmp_path: Path, others: dict[str, str]) -> None:
    markers = {**GLM.preprocessing["assistant_markers"], "other_role_starts": others}
    encoder, tokenizer = _encoder(tmp_path, GLM, assistant_markers=markers)

    (made,) = encode_examples(encoder, [{"messages": [ASKED, CALLING, RESULT, ANSWERED]}])

    assert isinstance(made, Encoded)
    assert _spans(tokenizer, made) == [f"{GLM_CALL}<|observation|>", GLM_ANSWER]


@pytest.mark.parametrize("quote", ["<|user|>", "<|assistant|>", "<|user|> and <|assistant|>"])
@pytest.mark.parametrize("place", ["It is {}.", "{} is one.", "One is {}"])
def test_answers_without_end_that_quote_a_marker(tmp_path: Path, quote: str, place: str) -> None:
    encoder, tokenizer = _encoder(tmp_path, GLM)
    answer = place.format(quote)

    (made,) = encode_examples(encoder, [{"messages": [ASKED, {**ANSWERED, "content": answer}]}])

    assert isinstance(made, Encoded)
    assert _spans(tokenizer, made) == [f"\n<think></think>\n{answer}"]


def test_an_empty_answer_without_end_is_dropped(tmp_path: Path) -> None:
    encoder, _ = _encoder(tmp_path, APERTUS)

    (made,) = encode_examples(encoder, [{"messages": [ASKED, {**ANSWERED, "content": ""}]}])

    assert isinstance(made, RowError)
    assert mentions(made, "no_assistant_mask: ", "turn 2 (assistant)", "empty", "no end marker")


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize("place", ["It writes [INST] before and {} after it.", "{} is after it.", "After it is {}"])
def test_answers_that_quote_a_marker_of_plain_text(tmp_path: Path, place: str, mode: str) -> None:
    encoder, tokenizer = _encoder(tmp_path, LLAMA_2, loss_mode=mode)
    answer = place.format("[/INST]")
    quoting = [*TWO_ROUNDS[:2], ASKED, {**ANSWERED, "content": answer}]
    asking = [{**ASKED, "content": "What is [/INST]?"}, ANSWERED]
    made = encode_examples(encoder, [{"messages": quoting}, {"messages": asking}])

    assert isinstance(made[0], Encoded)
    wanted = [" Four. </s>", f" {answer} </s>"]
    assert _spans(tokenizer, made[0]) == (wanted if mode == "assistant" else wanted[1:])
    assert made[0].losses == ((LostKind.INJECTED_TURN, "turn 4 (assistant) contains '[/INST]'"),)
    assert isinstance(made[1], Encoded)
    assert _spans(tokenizer, made[1]) == [" 200 m. </s>"]
    assert made[1].losses == ()


def test_a_build_counts_answers_without_end(tmp_path: Path) -> None:
    """Two rows as in the wild: both are trained, and `check` says what the model does not learn."""
    rows = write_json_lines(tmp_path / "a.jsonl", [{"messages": TWO_ROUNDS}, {"messages": [ASKED, ANSWERED]}])
    folder = write_tokenizer(tmp_path / "tokenizer", GLM)
    preprocessing = {"kind": "chat", "on_lost_content": "drop", **GLM.preprocessing}
    packing = {"packed_sequence_size": 256}

    result = build(small_recipe(rows, folder, preprocessing=preprocessing, packing=packing), tmp_path / "out")

    assert result.manifest.splits[0].lost_content == {"no_end": 2}
    assert dropped(tmp_path / "out") == []
    report = check_target(str(tmp_path / "out"), CheckOptions())
    (finding,) = [finding for finding in report.findings if finding.code == "BP550"]
    assert mentions(finding, "a.jsonl row 1: ", "turn 4 (assistant)", "the last", "no end marker")


def _encoder(folder: Path, family: Family, **settings: Any) -> tuple[ChatEncoder, ChatTokenizer]:
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(folder / "tokenizer", family))))
    return chat_encoder(tokenizer, ChatPreprocessing(**{**family.preprocessing, **settings})), tokenizer


def _spans(tokenizer: ChatTokenizer, made: Encoded) -> list[str]:
    found: list[list[int]] = []
    for index, (token, bit) in enumerate(zip(made.ids, made.mask, strict=True)):
        if bit and not (index and made.mask[index - 1]):
            found.append([])
        if bit:
            found[-1].append(token)
    return [tokenizer.decode(ids) for ids in found]
