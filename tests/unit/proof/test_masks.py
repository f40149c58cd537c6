"""Masks of rows against independent derivations: what is found, what it is called, and what cannot be judged."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.errors import ConfigError, DataError
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.chats import BLOCKS, EVERYTHING, MARKS, PREFIXES
from bridgepack.proof.masks.judges import COLUMNS, DECODED, PARTS
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.masks.prefixes import OTHER_PROMPT, PROMPT_GOES_ON
from bridgepack.proof.masks.thoughts import lost_parts
from tests.support.judged_masks import Judged
from tests.support.messages import mentions
from tests.support.small_builds import (
    build,
    chat_row,
    small_recipe,
    tokenized_recipe,
    tokenized_row,
    with_changes,
    write_json_lines,
)
from tests.zoo.families import write_tokenizer as write_quirks_tokenizer
from tests.zoo.judged import MISTRAL, PROMPTED
from tests.zoo.prompted import SEED_OSS
from tests.zoo.tokenizers import CHATML, FAMILIES, NOT_SPACE_SENSITIVE, THINKING, Family, write_tokenizer

Mask = list[int]

ROW = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Who asks?"},
        {"role": "assistant", "content": "The user asks."},
        {"role": "user", "content": "And what then?"},
        {"role": "assistant", "content": "Then the assistant answers."},
    ]
}
CALL = {"type": "function", "function": {"name": "lookup", "arguments": {"query": "words", "limit": 10}}}
ANSWER = "Then the assistant answers.<|im_end|>"
GENERATION = next(family for family in FAMILIES if family.name == "chatml-generation")
#: Its only generation block is the user's turn, so that every row has findings.
WRONG = """\
{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'user' -%}{%- generation -%}{{- message.content -}}{%- endgeneration -%}
{%- else -%}{{- message.content -}}{%- endif -%}{{- '<|im_end|>\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged.of(tmp_path_factory.mktemp("chatml"), CHATML)


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged.of(tmp_path_factory.mktemp("marked"), GENERATION)


def _own(judged: Judged, row: Any = ROW) -> Mask:
    return list(judged.encode(row).mask)  # type: ignore[union-attr]


def _texts(judged: Judged, row: Any = ROW) -> list[str]:
    return [judged.tokenizer.decode([token]) for token in judged.encode(row).ids]  # type: ignore[union-attr]


def _with(judged: Judged, words: str, bit: int) -> Mask:
    """Return a row's mask with other bits for the tokens of some words."""
    texts, mask = _texts(judged), _own(judged)
    ends = list(accumulate(map(len, texts)))
    for found in re.finditer(re.escape(words), "".join(texts)):
        mask = [bit if found.start() < end <= found.end() else own for end, own in zip(ends, mask, strict=True)]
    return mask


@pytest.mark.parametrize(
    ("change", "kind", "detail"),
    [
        (lambda judged: [0, *_own(judged)[:-1]], "mask-shifted", "shifted by one token"),
        (lambda judged: [*_own(judged)[1:], 0], "mask-shifted", "shifted by one token"),
        (lambda judged: _with(judged, "Who asks?", 1), "other-turn-trained", "did not write"),
        (
            lambda judged: _with(judged, "<|im_end|>", 0),
            "end-of-turn-not-trained",
            "what ends 2 assistant turns is not",
        ),
        (lambda judged: _with(judged, ANSWER, 0), "turn-not-trained", "assistant turn is trained"),
        (lambda judged: _with(judged, " answers", 0), "answer-not-trained", "that the assistant writes"),
        (lambda judged: _own(judged)[:-1], "mask-malformed", "mask entries"),
        (lambda judged: [2 * bit for bit in _own(judged)], "mask-malformed", "each entry must be 0 or 1"),
    ],
)
@pytest.mark.parametrize("name", ["chatml", "marked"])
def test_a_changed_mask_is_found_and_named(
    name: str, change: Callable[[Judged], Mask], kind: str, detail: str, request: pytest.FixtureRequest
) -> None:
    judged: Judged = request.getfixturevalue(name)
    assert judged.kinds(ROW) == []

    (finding,) = judged.verdict(ROW, change(judged)).findings

    assert (finding.kind, detail in finding.detail) == (kind, True), finding.detail
    assert finding.advice
    if kind != "mask-malformed":
        assert {PREFIXES, MARKS} <= set(finding.derivations)
        assert set(finding.texts) == {"mask", *finding.derivations}


def test_a_finding_shows_what_is_trained(chatml: Judged) -> None:
    (finding,) = chatml.verdict(ROW, _with(chatml, "Who asks?", 1)).findings

    assert "user\n⟦Who asks?⟧<|im_end|>" in finding.texts["mask"]
    assert "user\nWho asks?<|im_end|>" in finding.texts[PREFIXES]
    assert finding.message == 2
    assert finding.num_tokens > 1


@pytest.mark.parametrize("family", [CHATML, GENERATION, THINKING])
@pytest.mark.parametrize("mode", ["assistant", "last_turn"])
@pytest.mark.parametrize("turn", [2, 4])
def test_a_turn_that_says_that_it_is_not_trained(tmp_path: Path, family: Family, mode: str, turn: int) -> None:
    row = {"messages": [dict(message) for message in ROW["messages"]]}
    row["messages"][turn]["weight"] = 0
    judged = Judged.of(tmp_path, family, loss_mode=mode, message_weights="mask")
    ignoring = Judged.of(tmp_path, family, loss_mode=mode)

    assert judged.kinds(row) == []
    assert judged.verdict(row).num_judges > 0
    every = _own(ignoring, row)
    if every == _own(judged, row):
        assert (mode, turn) == ("last_turn", 2)
    else:
        assert judged.kinds(row, every) == ["other-turn-trained"]


TWO_RESULTS = [
    {"role": "user", "content": "Look it up."},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "one"},
    {"role": "tool", "content": "two"},
    {"role": "assistant", "content": "Found both."},
    {"role": "user", "content": "Again."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "three"},
]
CALLING = {"messages": [*TWO_RESULTS[5:], {"role": "assistant", "content": "It was found."}]}


@pytest.mark.parametrize(("num_turns", "num_trained"), [(5, 2), (7, 3), (8, 3), (6, 2)])
def test_answers_behind_results_begin_with_another_marker(tmp_path: Path, num_turns: int, num_trained: int) -> None:
    """Without the other marker an answer begins where the render of the turns before it ends."""
    starts = ("[/INST]", "[/TOOL_RESULTS]")
    markers = {"assistant_end": "</s>", "other_role_starts": {"tool": "[TOOL_RESULTS]"}}
    row = {"messages": TWO_RESULTS[:num_turns]}
    alone = Judged.of(tmp_path / "alone", MISTRAL, assistant_markers={**markers, "assistant_start": starts[0]})
    judged = Judged.of(tmp_path / "both", MISTRAL, assistant_markers={**markers, "assistant_start": starts})
    assert _own(alone, row) == _own(judged, row)
    pairs = groupby(zip(_own(judged, row), _texts(judged, row), strict=True), key=lambda pair: pair[0])
    runs = ["".join(text for _, text in group) for is_trained, group in pairs if is_trained]
    assert len(runs) == num_trained
    assert runs[1] == " Found both.</s>"
    assert all("[TOOL_CALLS]" in text for text in (runs[0], *runs[2:]))
    assert all(text.endswith("</s>") for text in runs)
    assert judged.kinds(row) == []


@pytest.mark.parametrize("mode", ["assistant", "last_turn", "full"])
def test_modes(tmp_path: Path, mode: str) -> None:
    judged = Judged.of(tmp_path, GENERATION, loss_mode=mode)
    verdict = judged.verdict(ROW)

    assert verdict.findings == ()
    assert set(verdict.reasons) == ({EVERYTHING} if mode == "full" else {BLOCKS, PREFIXES, MARKS})
    other = {"assistant": "last_turn", "last_turn": "assistant", "full": "assistant"}[mode]
    kinds = judged.kinds(ROW, _own(Judged.of(tmp_path / "other", GENERATION, loss_mode=other)))
    wrong = {"assistant": "turn-not-trained", "last_turn": "other-turn-trained", "full": "answer-not-trained"}
    assert kinds == [wrong[mode]]


def test_tokens_of_another_text(chatml: Judged) -> None:
    made = chatml.encode(ROW)
    other = {"messages": [*ROW["messages"][:-1], {"role": "assistant", "content": "No."}]}
    verdict = chatml.judge_encoded(other, made)  # type: ignore[arg-type]

    assert [finding.kind for finding in verdict.findings] == ["tokens-differ"]
    assert verdict.num_judges == 0
    assert set(verdict.findings[0].texts) == {"tokens", "wanted"}


def test_tool_calls_survive_and_are_missed(chatml: Judged, tmp_path: Path) -> None:
    assert chatml.kinds(CALLING) == []
    silent = Judged.of(
        tmp_path, replace(CHATML, template=CHATML.template.replace("message.tool_calls", "message.none"))
    )
    (finding,) = silent.verdict(CALLING).findings

    assert finding.kind == "tool-call-lost"
    assert "the name 'lookup'" in finding.detail
    assert finding.message == 2
    assert "tokenizer.chat_template" in finding.advice


def test_markers_of_a_recipe_that_are_wrong(tmp_path: Path) -> None:
    """The end marker is the user's header, so that a user's header is trained: Megatron-Bridge would do so, too."""
    family = next(family for family in PROMPTED if family.name == "recipe-markers-prompted")
    wrong = replace(family, assistant_markers={"assistant_start": "<|bot|>", "assistant_end": "<|human|>"})
    judged = Judged.of(tmp_path, wrong)
    row = {"messages": [*ROW["messages"], {"role": "user", "content": "Thanks."}]}
    (finding,) = judged.verdict(row).findings

    assert finding.kind == "other-turn-trained"
    assert finding.detail.endswith("in the user turn")
    assert "assistant_markers" in finding.advice


def test_a_header_that_the_server_writes(tmp_path: Path) -> None:
    """The start marker of the recipe leaves out a line end."""
    folder = write_quirks_tokenizer(tmp_path / "tokenizer", SEED_OSS)
    judged = Judged.of_tokenizer(folder, kind="chat", **SEED_OSS.preprocessing)
    row = {"messages": ROW["messages"][-2:]}

    assert (judged.verdict(row).findings, judged.verdict(row).trains_prompt) == ((), True)
    cured = Judged.of_tokenizer(folder, kind="chat", mask_generation_prompt=True, **SEED_OSS.preprocessing)
    assert cured.verdict(row).findings == ()
    assert cured.verdict(row).num_judges == 2


def test_a_row_is_read_as_the_build_reads_it(tmp_path: Path) -> None:
    """The template gets the `reasoning` of a row as `reasoning_content`, which it reads, as from transformers 5.24."""
    judged = Judged.of(tmp_path, next(family for family in PROMPTED if family.name == "chatml-thinking-prompted"))
    asked, answered = ROW["messages"][-2:]
    row = {"messages": [asked, {**answered, "reasoning": "Hm."}]}
    made = judged.encode(row)

    assert isinstance(made, Encoded)
    assert "Hm." in judged.tokenizer.decode(made.ids)
    assert judged.verdict(row).findings == ()
    assert judged.verdict(row).num_judges


PAIR = {"prompt": " What is it? ", "completion": "It is this.\n"}


@pytest.mark.parametrize(
    "settings", [{}, {"separator": " ", "add_bos": True}, {"add_eos": False}, {"prompt": "Q: {prompt} A:"}]
)
def test_prompts_with_completions(tmp_path: Path, settings: dict[str, Any]) -> None:
    judged = Judged.of_tokenizer(write_tokenizer(tmp_path, CHATML), kind="prompt_completion", **settings)
    mask = _own(judged, PAIR)

    assert judged.verdict(PAIR).reasons == {PARTS: (), DECODED: ()}
    assert judged.kinds(PAIR) == []
    assert judged.kinds(PAIR, [0, *mask[:-1]]) == ["answer-not-trained"] or settings.get("add_eos") is False
    assert judged.kinds(PAIR, [1] * len(mask)) == ["other-turn-trained"]


def test_completions_that_the_tokenizer_does_not_keep(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, NOT_SPACE_SENSITIVE)
    judged = Judged.of_tokenizer(folder, kind="prompt_completion")
    verdict = judged.verdict(PAIR)

    assert verdict.silent == {DECODED}
    assert verdict.findings == ()
    assert _own(Judged.of_tokenizer(folder, kind="prompt_completion", loss_mode="full"), PAIR)
    assert Judged.of_tokenizer(folder, kind="prompt_completion", loss_mode="full").verdict(PAIR).reasons == {
        EVERYTHING: ()
    }


def test_rows_of_tokens(chatml_tokenizer: Path) -> None:
    judged = Judged.of_tokenizer(chatml_tokenizer, kind="tokenized")
    labelled, masked = tokenized_row(5, 6, 7), {"input_ids": [5, 6, 7], "loss_mask": [0, 1, 0]}

    assert judged.verdict(labelled).reasons == {COLUMNS: ()}
    assert judged.kinds(labelled) == judged.kinds(masked) == []
    assert judged.kinds(masked, [0, 1, 1]) == ["other-turn-trained"]
    assert judged.kinds(labelled, [0, 1, 0]) == ["answer-not-trained"]


@pytest.mark.parametrize("always", [True, False], ids=["in every answer", "in the last answer"])
@pytest.mark.parametrize("variables", [{}, {"thinks": True}], ids=["in every row", "in a row that says so"])
def test_a_prompt_that_begins_the_answer_leaves_headers_unjudged(
    tmp_path: Path, always: bool, variables: dict[str, bool]
) -> None:
    """Megatron-Bridge trains `<think>` where the prompt writes it for the model; that is neither right nor wrong."""
    thinks = f"'<think>\\n' if thinks | default({not variables}) else ''"
    template = (
        "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}"
        "{%- if message.role == 'assistant' and (LAST) -%}{{- '<think>\\n' -}}{%- endif -%}"
        "{{- message.content + '<|im_end|>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{{- THINKS -}}{%- endif -%}"
    ).replace("THINKS", thinks)
    family = replace(CHATML, template=template.replace("LAST", "false" if always else "loop.last"))
    judged = Judged.of(tmp_path, family, variables="variables")
    begun = {"messages": [*ROW["messages"][:-1], {"role": "assistant", "content": "<think>\nyes</think>It does."}]}
    verdict = judged.verdict((begun if always else ROW) | {"variables": variables})

    assert verdict.findings == ()
    assert verdict.reasons[MARKS] == (() if variables else (OTHER_PROMPT,))
    assert PROMPT_GOES_ON in verdict.reasons[PREFIXES]


ROWS = [chat_row(f"question {number}?", f"answer {number}.") for number in range(30)]


def _recipe(folder: Path, tokenizer: Path, **changes: Any) -> SFTRecipe:
    train = write_json_lines(folder / "chats.jsonl", [*ROWS, {"messages": []}])
    return with_changes(tokenized_recipe(train, tokenizer), {"preprocessing": {"kind": "chat"}, **changes})


@pytest.mark.parametrize(("wanted", "num_told"), [("keep", 1), ("mask_empty", 0)])
def test_empty_thoughts_that_a_template_writes_are_noted(tmp_path: Path, wanted: str, num_told: int) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", THINKING)
    recipe = _recipe(tmp_path, tokenizer, preprocessing__reasoning_loss=wanted)

    report = check_masks(recipe, MaskOptions(num_rows=None))

    assert (report.outcome, len(report.notes)) == ("agree", num_told)
    assert all(mentions(note, "empty reasoning block", " in 30 sequences, e.g. ") for note in report.notes)


def test_findings_of_a_sample_and_the_first_of_each_kind(tmp_path: Path, chatml_tokenizer: Path) -> None:
    (tmp_path / "wrong.jinja").write_text(WRONG)
    recipe = _recipe(tmp_path, chatml_tokenizer, tokenizer__chat_template=str(tmp_path / "wrong.jinja"))
    reports = [check_masks(recipe, MaskOptions(num_rows=5, seed=seed, limit=99)) for seed in (3, 3, 4)]
    rows = [[item.row for item in report.findings] for report in reports]
    whole = check_masks(recipe, MaskOptions(num_rows=None, limit=1))

    assert rows[0] == rows[1] == sorted(rows[0])
    assert rows[0] != rows[2]
    assert all((report.num_rows_read, report.num_rows) == (5, 31) for report in reports)
    assert all(report.num_with_findings == report.num_sequences for report in reports)
    assert (whole.num_with_findings, whole.num_agreed, whole.mode, whole.seed) == (30, 0, "all", None)
    assert whole.kinds == {"other-turn-trained": 30, "answer-not-trained": 30}
    assert {(item.finding.kind, item.row) for item in whole.findings} == {(kind, 1) for kind in whole.kinds}
    assert len(whole.findings) == 2
    assert all("template's generation blocks" in item.finding.advice for item in whole.findings)


def test_an_artifact_is_judged_by_its_own_recipe(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer, packing__packed_sequence_size=256)
    artifact = build(recipe, tmp_path / "artifact").output
    report = check_masks(artifact)

    assert (report.outcome, report.num_agreed) == ("agree", 30)
    assert "prove sources" in report.notes[0]
    (tmp_path / "chats.jsonl").rename(tmp_path / "moved.jsonl")
    with pytest.raises(DataError, match=r"chats\.jsonl"):
        check_masks(artifact)
    moved = {"data.train": str(tmp_path / "moved.jsonl")}
    assert check_masks(artifact, MaskOptions(overrides=moved)).num_agreed == 30
    with pytest.raises(ConfigError, match=r"packing\.seed; allowed: data\.train"):
        check_masks(artifact, MaskOptions(overrides={"packing.seed": 3}))


def test_splits(tmp_path: Path, chatml_tokenizer: Path) -> None:
    held_out = write_json_lines(tmp_path / "held_out.jsonl", ROWS[:4])
    recipe = _recipe(tmp_path, chatml_tokenizer, data__validation=str(held_out))

    assert check_masks(recipe, MaskOptions(num_rows=None)).num_sequences == 34
    assert check_masks(recipe, MaskOptions(num_rows=None, split="validation")).num_sequences == 4


REFERENCE_ROWS = {"gsm8k_train.jsonl": 7473, "fastchat_dummy_conversation.json": 500, "glaive_toolcall_demo.json": 300}


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *(("assistant", name) for name in REFERENCE_ROWS),
        *(("last_turn", name) for name in REFERENCE_ROWS if not name.startswith("gsm8k")),  # one answer a row
    ],
)
@pytest.mark.parametrize("tokenizer", ["qwen3", "deepseek_v3"])
def test_reference_data(reference_data: Path, tokenizer: str, name: str, mode: str) -> None:
    preprocessing: dict[str, Any] = {"kind": "chat", "loss_mode": mode}
    if tokenizer == "deepseek_v3":
        markers = {"assistant_start": "<｜Assistant｜>", "assistant_end": "<｜end▁of▁sentence｜>"}
        preprocessing["assistant_markers"] = markers
    loaded = {"name_or_path": str(reference_data / "tokenizers" / tokenizer), "loader": "tokenizer_json"}
    sections = {"tokenizer": loaded, "preprocessing": preprocessing, "packing": {"packed_sequence_size": 4096}}
    recipe = SFTRecipe.from_mapping(
        {"name": "reference", "data": {"train": str(reference_data / "data" / name)}, **sections}
    )
    report = check_masks(recipe, MaskOptions(num_rows=300))

    assert report.findings == ()
    assert report.num_rows == REFERENCE_ROWS[name]
    # Marks around turns do not judge calls of DeepSeek-V3. Rows that call in two rounds are dropped: renders of their
    # first turns differ from the whole.
    has_calls = (tokenizer, name) == ("deepseek_v3", "glaive_toolcall_demo.json")
    assert report.judged_by == ({2: 147, 1: 97} if has_calls else {2: report.num_sequences})
    assert report.drops == ({"no_assistant_mask": 56} if has_calls else {})


ARGUMENTS = {"city": 'Zürich "old"', "days": 3, "exact": True, "near": [{"name": "Bern"}], "unit": None}


def _calls(arguments: Any, name: str = "forecast") -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "arguments": arguments}}]


@pytest.mark.parametrize(
    "text",
    [
        f"forecast {json.dumps(ARGUMENTS)}",
        f"forecast {json.dumps(ARGUMENTS, ensure_ascii=False)}",
        json.dumps({"name": "forecast", "arguments": json.dumps(ARGUMENTS)}),
        f"forecast {ARGUMENTS}",
        '<forecast><city>Zürich "old"</city><days>3</days><exact>true</exact><near><name>Bern</name></near><unit/>',
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_calls_that_survive(text: str, as_text: bool) -> None:
    assert lost_parts(text, _calls(json.dumps(ARGUMENTS) if as_text else ARGUMENTS)) == []


@pytest.mark.parametrize(
    ("text", "calls", "expected"),
    [
        ("", _calls({}), ["the name 'forecast'"]),
        ("call_1 {}", _calls({}), ["the name 'forecast'"]),
        ('forecast {"days": 4}', _calls({"days": 3}), ["3"]),
        ('forecast {"days": 3}', _calls({"city": "Bern", "days": 3}), ['"city"', '"Bern"']),
        ("forecast", _calls("no JSON"), ["the arguments 'no JSON'"]),
        ("forecast", _calls('{"on": false}'), ['"on"', "false"]),
        ("forecast", [{"name": "other", "arguments": {}}], ["the name 'other'"]),
    ],
)
def test_calls_that_are_lost(text: str, calls: list[dict[str, Any]], expected: list[str]) -> None:
    assert sorted(lost_parts(text, calls)) == sorted(expected)


@pytest.mark.parametrize("calls", [None, [], "text", [None], [{}], [{"function": "x"}], _calls(None), _calls(" ")])
def test_what_is_no_call_loses_nothing(calls: Any) -> None:
    assert lost_parts("forecast", calls) == []


def test_a_header_that_the_server_writes_is_told_once(tmp_path: Path) -> None:
    """A mask that trains it is sound for Megatron-Bridge; what to do about it is a note, not a finding of each row."""
    tokenizer = write_quirks_tokenizer(tmp_path / "tokenizer", SEED_OSS)
    train = write_json_lines(tmp_path / "rows.jsonl", [ROW, ROW, ROW])
    preprocessing = {"kind": "chat", **SEED_OSS.preprocessing}
    recipe = small_recipe(train, tokenizer, preprocessing=preprocessing, packing={"packed_sequence_size": 4096})

    report = check_masks(recipe)

    assert (report.outcome, report.num_agreed, report.findings) == ("agree", 3, ())
    (note,) = (note for note in report.notes if "server" in note)
    assert "is trained in 3 sequences, e.g. " in note
    assert "rows.jsonl row 1; set preprocessing.mask_generation_prompt to true" in note
    masked = check_masks(recipe.override({"preprocessing.mask_generation_prompt": True}))
    assert (masked.outcome, [note for note in masked.notes if "server" in note]) == ("agree", [])


def test_other_text_beside_a_trained_header_is_still_found(tmp_path: Path) -> None:
    folder = write_quirks_tokenizer(tmp_path / "tokenizer", SEED_OSS)
    judged = Judged.of_tokenizer(folder, kind="chat", **SEED_OSS.preprocessing)
    assert judged.verdict(ROW).trains_prompt
    (finding,) = judged.verdict(ROW, _with(judged, "Who asks?", 1)).findings
    assert finding.kind == "other-turn-trained"
    assert "⟦Who asks?⟧" in finding.texts["mask"]
