"""Loss that is taken off thoughts: in every family of templates, and as the comparison of masks judges it."""

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.thoughts import thoughts_in
from bridgepack.errors import RowError, TokenizerError
from bridgepack.proof.masks.thoughts import thoughts_of
from bridgepack.records import LostKind
from tests.support.judged_masks import Judged
from tests.support.small_builds import build, chat_row, small_recipe, write_json_lines
from tests.zoo.tokenizers import (
    CHATML,
    FAMILIES,
    GPT_OSS_FAMILY,
    GPT_OSS_MARKERS,
    THINKING,
    Family,
    loaded_tokenizer,
    write_tokenizer,
)

IN_CONTENT = tuple(family for family in FAMILIES if family not in (THINKING,) and family.name != "harmony")
GPT_OSS = replace(GPT_OSS_FAMILY, assistant_markers=GPT_OSS_MARKERS)
GEMMA4 = next(family for family in FAMILIES if family.name == "gemma4")
QUESTION = {"role": "user", "content": "What is <think>? And what, </think>?"}
PACKING = {"packed_sequence_size": 256}
PIECES = ("<think>", "</think>", "[THINK]", "[/THINK]", "<|channel|>analysis<|message|>", "<|end|>", "a", " ", "\n")


def _row(*answers: Any) -> dict[str, Any]:
    turns = [{"role": "assistant", **(item if isinstance(item, dict) else {"content": item})} for item in answers]
    return {"messages": [turn for answer in turns for turn in (QUESTION, answer)]}


def _trained(judged: Judged, row: dict[str, Any]) -> list[str]:
    """Return the texts that are trained, and make sure that masks derived otherwise are the same."""
    made = judged.encode(row)
    assert isinstance(made, Encoded), made
    verdict = judged.verdict(row)
    assert verdict.findings == ()
    assert verdict.num_judges
    runs = groupby(zip(made.ids, made.mask, strict=True), key=lambda item: item[1])
    return [judged.tokenizer.decode([token for token, _ in run]).rstrip() for bit, run in runs if bit]


@pytest.mark.parametrize("family", IN_CONTENT, ids=lambda family: family.name)
@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_thoughts_in_the_content(tmp_path: Path, family: Family, mode: str) -> None:
    judged = Judged.of(tmp_path, family, loss_mode=mode, reasoning_loss="mask")
    row = _row("<think>\nHm, I see.\n</think>\n\nOne.", "Two <think> first</think>.")
    plain = [text.replace(" ", "") for text in _trained(judged, row)]

    wanted = ["</think>\n\nOne.", "Two", "</think>."] if mode == "assistant" else ["Two", "</think>."]
    blanks = str.maketrans("", "", " \n")
    ends = "".join(text.translate(blanks) for text in wanted)
    found = "".join(plain).translate(blanks)
    for end in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|stop|>"):
        found = found.replace(end, "")
    assert found == ends


IN_A_FIELD = ("One.", {"content": "Two.", "reasoning_content": "Hm."})
WITH_THOUGHT = ["One.<|im_end|>", "<think>\nHm.\n</think>\n\nTwo.<|im_end|>"]
#: Blanks after the line ends are the answer's own, such as the indentation of code.
INDENTED = ("  One.",)


@pytest.mark.parametrize(
    ("family", "setting", "answers", "wanted"),
    [
        (THINKING, "keep", IN_A_FIELD, WITH_THOUGHT),
        (THINKING, "mask", IN_A_FIELD, ["One.<|im_end|>", "</think>\n\nTwo.<|im_end|>"]),
        (THINKING, "mask_empty", IN_A_FIELD, WITH_THOUGHT),
        (THINKING, "keep", INDENTED, ["<think>\n\n</think>\n\n  One.<|im_end|>"]),
        *((THINKING, setting, INDENTED, ["  One.<|im_end|>"]) for setting in ("mask", "mask_empty")),
        (GEMMA4, "mask", ("<|channel>thought\nHm.<channel|>One.",), ["<channel|>One.<turn|>"]),
        (CHATML, "mask", ("Hm.\n</think>\n\nOne.",), ["</think>\n\nOne.<|im_end|>"]),
        (CHATML, "mask", ("\n</think>\n\nOne.",), ["One.<|im_end|>"]),
        (CHATML, "mask", ("<think>never closed",), []),
        (CHATML, "mask", ("<think>\n\n</think>\n\n<think>never closed",), []),
        (CHATML, "mask", ("<think>a</think>b<think>open",), ["</think>b<think>open<|im_end|>"]),
        (CHATML, "mask", ("One: `<think>` opens.",), ["One: `<think>` opens.<|im_end|>"]),
        (CHATML, "mask", ("<think>a</think>b<think>c</think>d",), ["</think>b", "</think>d<|im_end|>"]),
        (CHATML, "mask", ("<think>élan 思 🙂</think>One.",), ["</think>One.<|im_end|>"]),
    ],
)
def test_thoughts(tmp_path: Path, family: Family, setting: str, answers: tuple[Any, ...], wanted: list[str]) -> None:
    assert _trained(Judged.of(tmp_path, family, reasoning_loss=setting), _row(*answers)) == wanted


def test_channels(tmp_path: Path) -> None:
    judged = Judged.of(tmp_path, GPT_OSS, reasoning_loss="mask")

    texts = _trained(judged, _row("One.", {"content": "Two.", "thinking": "Hm, no."}))
    assert texts[-1] == "<|end|><|start|>assistant<|channel|>final<|message|>Two.<|return|>"


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.booleans())
def test_both_ways_of_finding_thoughts_agree(turn: str, only_empty: bool) -> None:
    own = {(item.first, max(item.stop, item.blanks)) for item in thoughts_in(turn) if item.blanks or not only_empty}

    assert own == set(thoughts_of([(0, len(turn))], turn, [{}], only_empty=only_empty))


#: Markers of thoughts, thoughts and text each in a generation block of their own, and a line end between them.
PARTED = """\
{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}
  {%- if m.role == 'assistant' -%}
    {%- if m.reasoning_content is defined -%}
      {%- generation -%}{{- '<think>' -}}{%- endgeneration -%}{{- '\\n' -}}
      {%- generation -%}{{- m.reasoning_content -}}{%- endgeneration -%}
      {%- generation -%}{{- '</think>' -}}{%- endgeneration -%}
    {%- endif -%}
    {%- generation -%}{{- m.content + '<|im_end|>' -}}{%- endgeneration -%}
  {%- else -%}{{- m.content + '<|im_end|>' -}}{%- endif -%}{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
def test_thoughts_in_several_blocks(tmp_path: Path, mode: str) -> None:
    """A thought that is never closed ends with its turn: the next answer is trained."""
    judged = Judged.of(tmp_path, replace(CHATML, template=PARTED), reasoning_loss="mask", loss_mode=mode)
    question = {"role": "user", "content": "Why?"}
    answers = [
        {"content": "<think>Open", "reasoning_content": "Hm."},
        {"content": "Yes."},
        {"content": "No.", "reasoning_content": "Hm, so."},
    ]
    row = {"messages": [turn for item in answers for turn in (question, {"role": "assistant", **item})]}

    trained = ["</think>", "Yes.<|im_end|>", "</think>No.<|im_end|>"]
    assert _trained(judged, row) == (trained if mode == "assistant" else trained[-1:])


def test_trained_thoughts_are_found(tmp_path: Path) -> None:
    row = _row({"content": "One.", "reasoning_content": "Hm, no."})
    keeping = Judged.of(tmp_path, THINKING).encode(row)
    assert isinstance(keeping, Encoded)

    (finding,) = Judged.of(tmp_path, THINKING, reasoning_loss="mask").verdict(row, keeping.mask).findings
    assert finding.kind == "reasoning-trained"
    assert "of reasoning trained, although preprocessing.reasoning_loss excludes them" in finding.detail


def test_thoughts_between_unknown_markers_are_told_and_found(tmp_path: Path) -> None:
    template = THINKING.template.replace("<think>", "<hm>").replace("</think>", "</hm>")
    judged = Judged.of(tmp_path, replace(THINKING, template=template), reasoning_loss="mask")
    answer = {"role": "assistant", "content": "One.", "reasoning_content": "Hm, no."}
    row = {"messages": [{"role": "user", "content": "What?"}, answer]}
    made = judged.encode(row)

    assert isinstance(made, Encoded)
    assert LostKind.NO_REASONING in {loss.kind for loss in made.losses}
    assert judged.kinds(row) == ["reasoning-trained"]


@pytest.mark.parametrize(("content", "is_found"), [("One.", True), ("<think>Hm.</think>One.", False)])
def test_a_split_without_thoughts_is_told(tmp_path: Path, content: str, is_found: bool) -> None:
    rows = write_json_lines(tmp_path / "rows.jsonl", [chat_row("What?", "One."), chat_row("And?", content)])
    tokenizer = write_tokenizer(tmp_path / "tokenizer", CHATML)
    recipe = small_recipe(
        str(rows), tokenizer, preprocessing={"kind": "chat", "reasoning_loss": "mask"}, packing=PACKING
    )
    result = build(recipe, tmp_path / "packed")

    expected = {"no_reasoning": 2} if is_found else {"no_reasoning": 1, "inline_thoughts": 1}
    assert result.manifest.splits[0].lost_content == expected
    codes = {finding.code for finding in check_target(str(tmp_path / "packed"), CheckOptions()).findings}
    assert ("BP547" in codes) == is_found


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reasoning_loss is 'mask' and loss_mode is 'full', which trains everything"):
        ChatPreprocessing(reasoning_loss="mask", loss_mode="full")
    tokenizer = loaded_tokenizer(tmp_path, CHATML)
    tokenizer.backend = None
    with pytest.raises(TokenizerError, match="does not report tokens' positions"):
        chat_encoder(tokenizer, ChatPreprocessing(reasoning_loss="mask"))
    assert not isinstance(Judged.of(tmp_path / "other", CHATML).encode(_row("One.")), RowError)
