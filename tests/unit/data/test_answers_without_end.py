"""Answers that end with the next turn's marker, with nothing, or with a marker that Megatron-Bridge does not know."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.families import Family, write_tokenizer

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import ChatEncoder
from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason, LostKind
from tests.support.endless_families import APERTUS, GLM, LLAMA_2, LLAMA_31
from tests.support.small_builds import build, dropped, small_recipe, write_json_lines
from tests.support.tokenizers import FAMILIES, loaded_tokenizer

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
    (APERTUS, TWO_ROUNDS, ["Four.<|assistant_end|>", "Seven."], True),
    (APERTUS, TWO_ROUNDS[:3], ["Four.<|assistant_end|>"], False),
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
def test_answers_without_end_that_quote_a_marker_are_dropped(tmp_path: Path, quote: str, place: str) -> None:
    encoder, _ = _encoder(tmp_path, GLM)

    (made,) = encode_examples(encoder, [{"messages": [ASKED, {**ANSWERED, "content": place.format(quote)}]}])

    assert isinstance(made, RowError)
    assert made.reason == DropReason.CONTROL_TOKENS_IN_TEXT


def test_an_empty_answer_without_end_is_dropped(tmp_path: Path) -> None:
    encoder, _ = _encoder(tmp_path, APERTUS)

    (made,) = encode_examples(encoder, [{"messages": [ASKED, {**ANSWERED, "content": ""}]}])

    assert isinstance(made, RowError)
    assert str(made) == "no_assistant_mask: turn 2 (assistant) is empty and has no end marker"


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


def test_markers_that_never_match_are_named(tmp_path: Path) -> None:
    """A tokenizer that puts a blank before every text alone does so before the marker."""
    family = next(family for family in FAMILIES if family.name == "recipe-markers-sentencepiece")
    tokenizer = loaded_tokenizer(tmp_path, replace(family, template=family.template.replace("<|bot|>", "bot: ")))
    markers = {"assistant_start": "bot: ", "assistant_end": "<|stop|>"}
    encoder = ChatEncoder(tokenizer, ChatPreprocessing(assistant_markers=markers), {})

    (made,) = encode_examples(encoder, [{"messages": [ASKED, ANSWERED]}])

    assert isinstance(made, RowError)
    assert "the text has no 'bot:' as the tokens of this text alone" in made.detail


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
    assert "a.jsonl row 1: turn 4 (assistant), the last, has no end marker" in str(finding)


def _encoder(folder: Path, family: Family, **settings: Any) -> tuple[ChatEncoder, ChatTokenizer]:
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(folder / "tokenizer", family))))
    return ChatEncoder(tokenizer, ChatPreprocessing(**{**family.preprocessing, **settings}), {}), tokenizer


def _spans(tokenizer: ChatTokenizer, made: Encoded) -> list[str]:
    found: list[list[int]] = []
    for index, (token, bit) in enumerate(zip(made.ids, made.mask, strict=True)):
        if bit and not (index and made.mask[index - 1]):
            found.append([])
        if bit:
            found[-1].append(token)
    return [tokenizer.decode(ids) for ids in found]
