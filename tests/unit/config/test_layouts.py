"""The public layouts: each entry's rows are detected as its own, and read as its authors compose them."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.config.document import stated_values
from bridgepack.config.layouts.contents import holds
from bridgepack.config.layouts.detect import Detection, detect, entries_named
from bridgepack.config.layouts.hints import layout_hint
from bridgepack.config.layouts.keys import listed_turns
from bridgepack.config.layouts.preferences import CHOSEN_ANSWERS, PREFERENCE_CHOSEN
from bridgepack.config.layouts.public import PUBLIC_LAYOUTS
from bridgepack.config.recipe.layout import columns_of
from bridgepack.errors import ConfigError
from tests.support.messages import mentions
from tests.support.public_rows import (
    ANSWER,
    BARE_SCHEMA,
    CALL,
    CHATS,
    FOUR,
    QUESTION,
    SCHEMA,
    SYSTEM,
    TURNS,
    assistant_turn,
    openai_turns,
    sharegpt_turns,
    user_turn,
)


def _layout(detection: Detection) -> dict[str, Any]:
    found: dict[str, Any] = stated_values(detection.layout)
    return found


@pytest.mark.parametrize(("name", "row", "layout"), CHATS, ids=[f"{name}-{','.join(row)}" for name, row, _ in CHATS])
def test_rows_of_an_entry_are_detected_and_every_column_is_read_or_named(
    name: str, row: dict[str, Any], layout: dict[str, Any]
) -> None:
    found = detect([row] * 3)

    assert (found.entry.name, _layout(found)) == (entries_named(name)[0].name, {"kind": "chat", **layout})
    assert found.unread == ()
    assert _layout(detect([row], name=name.replace("_", "-"))) == _layout(found)
    read = {column.path if column.path in row else column.name for column in columns_of(found.layout)}
    assert read | {*found.layout.ignore} >= row.keys()


@pytest.mark.parametrize(
    ("row", "layout"),
    [
        ({"text": "The lake of Uri is 200 m deep.", "url": "https://example.org"}, {"ignore": ["url"]}),
        ({"text": "Uri"}, {}),
        (
            {"id": "a", "url": "https://a.org", "title": "Lake of Uri", "text": ANSWER},
            {"ignore": ["id", "url", "title"]},
        ),
        ({"raw_content": ANSWER, "meta": {"language": "en"}}, {"text": "{raw_content}", "ignore": ["meta"]}),
        ({"text": "In Mistral's format [INST] begins a turn."}, {}),
    ],
    ids=["text,url", "text", "wikipedia", "raw_content", "a marker"],
)
def test_documents(row: dict[str, Any], layout: dict[str, Any]) -> None:
    found = detect([row] * 3)

    assert (found.entry.name, _layout(found)) == ("text", {"kind": "text", **layout})
    assert found.unread == ()


def test_a_summary_beside_a_text_is_not_left_unread() -> None:
    with pytest.raises(ConfigError, match=r"no known layout .*they have text \(text\), summary \(text\)"):
        detect([{"text": ANSWER, "summary": "A lake."}])


def test_chats_and_documents_in_one_file_are_told_apart() -> None:
    rows = [{"messages": openai_turns(*FOUR)}, {"text": ANSWER}] * 4

    with pytest.raises(ConfigError, match=r"50 % like messages \(row 1\), 50 % like text \(row 2\)\. Write each shape"):
        detect(rows)


def test_token_ids() -> None:
    row = {"input_ids": [5, 6], "labels": [-100, 6], "attention_mask": [1, 1]}

    assert _layout(detect([row])) == {"kind": "tokenized", "input_ids": "input_ids", "labels": "labels"}
    both = detect([{**row, "loss_mask": [0, 1], "text": "How deep is it?"}])
    assert (_layout(both)["loss_mask"], both.layout.kind, both.entry.name) == ("loss_mask", "tokenized", "tokenized")
    assert [one.name for one in both.unread] == ["text"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("preference", {"prompt": QUESTION, "chosen": "200 m", "rejected": "300 m"}, "preference pairs"),
    (
        "preference",
        {"chosen": openai_turns(QUESTION, "200 m"), "rejected": openai_turns(QUESTION, "3 m")},
        "preference pairs",
    ),
    (
        "preference",
        {
            **{"prompt": QUESTION, "prompt_id": "1", "messages": openai_turns(QUESTION, "200 m"), "score_chosen": 8.5},
            **{"chosen": openai_turns(QUESTION, "200 m"), "rejected": openai_turns(QUESTION, "3 m is it deep.")},
        },
        "preference pairs",
    ),
    (
        "unpaired_preference",
        {"prompt": QUESTION, "completion": "3 m", "label": False},
        "label marks bad completions",
    ),
    ("unpaired_turns", {"messages": openai_turns(*FOUR), "label": True}, "label marks bad completions"),
    ("unpaired_turns", {"conversations": sharegpt_turns(*FOUR), "kto_tag": False}, "rows whose label is true"),
    ("preference_turns", {"messages": openai_turns(*FOUR), "rejected_response": "I guess so."}, "preference_chosen"),
    (
        "preference_texts",
        {
            name: f"\n\nHuman: {QUESTION}\n\nAssistant: {answer}"
            for name, answer in (("chosen", "200"), ("rejected", "3"))
        },
        "split chosen at the names of the speakers",
    ),
    (
        "preference",
        {
            "conversations": sharegpt_turns(QUESTION),
            "chosen": {"from": "gpt", "value": ANSWER},
            "rejected": {"from": "gpt", "value": "I guess so."},
        },
        "preference_chosen",
    ),
    (
        "scored_answers",
        {"instruction": QUESTION, "models": ["a", "b"], "completions": [{"response": ANSWER}, {"response": "No."}]},
        "the best answer of each row",
    ),
    ("scored_answers", {"prompt": QUESTION, "responses": [ANSWER, "No."], "scores": [4, 1]}, "the best answer"),
    (
        "multiple_choice",
        {"question": QUESTION, "choices": ["ten metres", "nine", "two hundred"], "answer": 2},
        "the text of the right one",
    ),
    (
        "multiple_choice",
        {"question": QUESTION, "choices": {"text": ["ten", "two"], "label": ["A", "B"]}, "answerKey": "A"},
        "the text of the right one",
    ),
    (
        "exported_tree",
        {"title": "t", "mapping": {"a": {"message": {"content": {"parts": [QUESTION]}}, "children": ["b"]}}},
        "one row per path",
    ),
    ("listed_conversations", {"question": [openai_turns(QUESTION)], "function": [BARE_SCHEMA]}, "Write one row for"),
    ("listed_rows", {"version": 1, "data": [{"messages": openai_turns(*FOUR)}]}, "each of its objects as a row"),
    ("listed_columns", {"question": [QUESTION, "Why?"], "answer": [ANSWER, "So."]}, "one row for each question"),
    ("listed_texts", {"id": "1", "data": [QUESTION, ANSWER]}, "who says what"),
    ("text_of_rows", {"text": json.dumps({"messages": openai_turns(*FOUR)})}, "json.loads"),
    ("text_of_rows", {"messages": json.dumps(json.dumps(openai_turns(*FOUR)))}, "json.loads"),
    ("text_of_rows", {"messages": str(openai_turns(*FOUR))}, "ast.literal_eval"),
    ("wrapped_row", {"row_idx": 3, "row": {"messages": openai_turns(*FOUR)}}, "write the object as the row"),
    ("wrapped_row", {"inputs": {"messages": openai_turns(QUESTION)}, "outputs": {"a": 1}}, "of what belongs to them"),
    *(
        ("object_answer", {"instruction": QUESTION, "input": "", "output": answer}, "json.dumps in Python")
        for answer in ({"depth": 200}, [1, 3], [{"name": "Uri", "depth": 200}])
    ),
    ("object_answer", {"question": QUESTION, "answer": {"value": "200 m", "aliases": []}}, "such as answer.value"),
    ("stepwise", {"prompt": QUESTION, "completions": ["3 m"], "labels": [False]}, "judge each step"),
    (
        "arena",
        {"conversation_a": openai_turns(*FOUR), "conversation_b": openai_turns(*FOUR)},
        "compare two models",
    ),
    (
        "message_tree",
        {"message_id": "1", "parent_id": None, "text": QUESTION, "role": "prompter"},
        "message of a conversation tree",
    ),
    (
        "marked_text",
        {"system": "SYSTEM: You can use depth.", "chat": f"USER: {QUESTION}\n\n\nASSISTANT: {ANSWER}"},
        "the whole conversation is one text",
    ),
    ("marked_text", {"text": f"### Human: {QUESTION}### Assistant: {ANSWER}"}, "nothing marks the answers"),
    ("other_turns", {"conversation": [{"a": QUESTION}, {"b": ANSWER}]}, "who speaks and what"),
    ("other_turns", {"conversations": {"from": "human", "value": QUESTION}}, "who speaks and what"),
    (
        "preference",
        {
            "input": {"messages": openai_turns(QUESTION), "tools": []},
            "preferred_output": [{"role": "assistant", "content": ANSWER}],
            "non_preferred_output": [{"role": "assistant", "content": "No idea."}],
        },
        "preference_chosen",
    ),
    (
        "message_tree",
        {"id": "1", "parent_id": "0", "content": QUESTION, "role": "prompter"},
        "message of a conversation tree",
    ),
    (
        "reply_tree",
        {"message_tree_id": "1", "prompt": {"text": QUESTION, "role": "prompter", "replies": [{"text": ANSWER}]}},
        "a tree of messages",
    ),
    ("reply_node", {"text": QUESTION, "role": "prompter", "replies": [{"text": ANSWER}]}, "a tree of messages"),
    ("benchmark", {"question_id": 81, "category": "writing", "turns": [QUESTION, "How long?"]}, "a benchmark"),
    (
        "benchmark",
        {"question_id": 81, "turns": [QUESTION, "How long?"], "reference": [ANSWER, "11 km"]},
        "a benchmark",
    ),
    (
        "batch_output",
        {"id": "b", "custom_id": "1", "response": {"body": {"choices": [{"message": {"content": ANSWER}}]}}},
        "custom_id",
    ),
    (
        "batch_output",
        {"id": "b", "custom_id": "1", "response": {"status_code": 200, "body": {"choices": []}}, "error": None},
        "custom_id",
    ),
    (
        "batch_input",
        {"custom_id": "1", "method": "POST", "url": "/v1", "body": {"messages": openai_turns(QUESTION)}},
        "custom_id",
    ),
    ("message_rows", {"conversation_id": "1", "role": "user", "content": QUESTION}, "one turn of a conversation"),
    ("prompt_only", {"prompt": openai_turns(QUESTION)}, "no answer to train"),
    (
        "rendered_chat",
        {"text": f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\nYes"},
        "the user's turns",
    ),
    ("rendered_chat", {"content": f"<s>[INST] {QUESTION} [/INST] {ANSWER}</s>", "id": 4}, "Split it at the markers"),
]


@pytest.mark.parametrize(("name", "row", "why"), REFUSED, ids=[f"{name}-{','.join(row)}" for name, row, _ in REFUSED])
def test_what_is_not_read_is_refused_by_name(name: str, row: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=rf"the data: its rows .*like {name} .*{why}.*--layout none"):
        detect([row])
    with pytest.raises(ConfigError, match=why):
        detect([{"question": "Q", "answer": "A"}], name=name)


_CHOSEN, _REJECTED = "It is 200 m deep.", "No idea, to be frank."
_SAID, _SAID_ELSE = [{"role": "assistant", "content": _CHOSEN}], [{"role": "assistant", "content": _REJECTED}]


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        (
            {"prompt": QUESTION, "chosen": _CHOSEN, "rejected": _REJECTED},
            [user_turn("{prompt}"), assistant_turn("{chosen}")],
        ),
        (
            {"prompt": QUESTION, "chosen": openai_turns(QUESTION, _CHOSEN), "rejected": openai_turns(QUESTION, "No.")},
            [{"from_column": "chosen"}],
        ),
        (
            {"prompt": openai_turns(QUESTION), "chosen": _SAID, "rejected": _SAID_ELSE},
            [{"from_column": "prompt"}, {"from_column": "chosen"}],
        ),
        (
            {"prompt": QUESTION, "chosen": _SAID, "rejected": _SAID_ELSE},
            [user_turn("{prompt}"), {"from_column": "chosen"}],
        ),
        (
            {
                "messages": openai_turns(QUESTION),
                "chosen": {"role": "assistant", "content": _CHOSEN},
                "rejected": {"role": "assistant", "content": _REJECTED},
            },
            [{"from_column": "messages"}, {"from_column": "chosen"}],
        ),
        (
            {"messages": openai_turns(QUESTION), "chosen": _CHOSEN, "rejected": _REJECTED},
            [{"from_column": "messages"}, assistant_turn("{chosen}")],
        ),
        (
            {"messages": openai_turns(QUESTION, _CHOSEN), "rejected_response": _REJECTED},
            [{"from_column": "messages"}],
        ),
        (
            {
                "input": {"messages": openai_turns(QUESTION)},
                "preferred_output": _SAID,
                "non_preferred_output": _SAID_ELSE,
            },
            [{"from_column": "input.messages"}, {"from_column": "preferred_output"}],
        ),
    ],
)
def test_of_preference_pairs_the_chosen_answer_can_be_trained(row: dict[str, Any], messages: list[Any]) -> None:
    found = detect([row], name=PREFERENCE_CHOSEN)

    assert _layout(found)["messages"] == messages
    assert {*found.layout.ignore} & {"rejected", "non_preferred_output", "rejected_response"}
    assert found.unread == ()


def test_every_entry_has_a_row_here() -> None:
    names = [name for entry in PUBLIC_LAYOUTS for name in entry.all_names]

    shapes = {entries_named(name)[0].name for name, *_ in [*CHATS, *REFUSED]}
    assert shapes | {"text", "tokenized", PREFERENCE_CHOSEN} == {entry.name for entry in PUBLIC_LAYOUTS}
    assert len({*names}) == len(names) - len(CHOSEN_ANSWERS) + 1
    assert all(entry.url.startswith("https://") and (entry.layout or entry.refusal) for entry in PUBLIC_LAYOUTS)


def test_layouts_that_fit_equally_are_both_named() -> None:
    with pytest.raises(ConfigError) as two:
        detect([{"question": "2 + 2?", "answer": "four", "response": "five"}], data_name="--data is 'a.jsonl'")
    assert mentions(two.value, "--data is 'a.jsonl': 2 layouts fit ", "equally well:")
    assert "question_answer (does not read response): {kind: chat, " in str(two.value)
    assert "question_answer (does not read answer): {kind: chat, " in str(two.value)

    row = {"messages": openai_turns(*FOUR), "question": "2 + 2?", "answer": "four"}
    with pytest.raises(ConfigError, match="Choose one with --layout question_answer or --layout messages"):
        detect([row])
    chosen = detect([row], name="messages")
    assert _layout(chosen) == {"kind": "chat", "messages": TURNS}
    assert [(one.name, one.holds) for one in chosen.unread] == [("question", "text"), ("answer", "text")]


def test_a_column_that_repeats_what_is_read_is_ignored() -> None:
    row = {"problem": QUESTION, "solution": ANSWER, "answer": "200 m", "messages": openai_turns(QUESTION, ANSWER)}
    found = detect([row])

    assert _layout(found) == {"kind": "chat", "messages": TURNS, "ignore": ["problem", "solution", "answer"]}
    assert any(reason.startswith("answer is not read: ") and "have its text" in reason for reason in found.why)
    pair = detect([{"problem": "2 + 2?", "solution": "It is 4.", "answer": "4"}])
    assert _layout(pair)["ignore"] == ["answer"]
    with pytest.raises(ConfigError, match="fit its rows equally"):
        detect([{"problem": "2 + 2?", "solution": "It is 24.", "answer": "4"}])


def test_a_rendered_copy_of_the_turns_is_told_but_no_plain_text() -> None:
    found = detect([{"messages": openai_turns(QUESTION, ANSWER), "text": f"User: {QUESTION}\nBot: {ANSWER}"}])

    assert (found.entry.name, [one.name for one in found.unread]) == ("messages", ["text"])


def test_reasoning_that_the_answer_holds_is_not_read_twice() -> None:
    thought = "Two and two make four."
    found = detect([{"question": "2 + 2?", "reasoning": thought, "answer": f"<think>{thought}</think>\n\n4"}])

    assert _layout(found)["messages"] == [user_turn("{question}"), assistant_turn("{answer}")]
    assert _layout(found)["ignore"] == ["reasoning"]
    for other in ({"question": thought, "reasoning": thought, "answer": "4"}, {"reasoning": "4", "answer": "4"}):
        row = {"question": "2 + 2?", **other}
        assert _layout(detect([row]))["messages"][1]["reasoning_content"] == "{reasoning}"


def test_a_prompt_that_holds_the_answer_is_a_copy_of_the_row() -> None:
    row = {"instruction": "Write a function f.", "input": "", "output": "def f(): pass"}
    whole = {**row, "prompt": f"Below is a task.\n\n### Task:\n{row['instruction']}\n\n### Output:\n{row['output']}"}
    found = detect([whole])

    assert _layout(found)["messages"][1] == assistant_turn("{output}")
    assert _layout(found)["messages"][0]["content"] in ("{instruction}", ["{instruction}", "{input}"])
    assert [(one.name, one.holds) for one in found.unread] == [("prompt", "text")]
    asked = detect([{**row, "prompt": f"Below is a task.\n\n### Task:\n{row['instruction']}"}])
    assert _layout(asked)["messages"] == [user_turn("{prompt}"), assistant_turn("{output}")]
    assert _layout(detect([{"prompt": "Say it again: yes", "output": "yes"}]))["kind"] == "chat"


def test_prose_is_never_ignored_and_loss_flags_are_told() -> None:
    row = {"question": "2 + 2?", "answer": "4", "note": "It is a sum.", "hint": "add", "weight": 0.5, "level": 3}
    found = detect([row, {"question": "1 + 1?", "answer": "2"}])

    assert _layout(found)["ignore"] == ["level"]
    unread = [(one.name, one.holds, one.num_rows, one.example) for one in found.unread]
    assert unread == [("note", "text", 1, "It is a sum."), ("hint", "text", 1, "add"), ("weight", "flag", 1, "0.5")]


def test_fields_of_turns() -> None:
    turns = [{**turn, "id": "a", "comment": "This one is good."} for turn in openai_turns(*FOUR)]
    found = detect([{"messages": turns}])

    assert _layout(found)["ignore"] == ["messages.id"]
    assert [(one.name, one.holds) for one in found.unread] == [("messages.comment", "text")]
    assert not found.has_loss_flags
    plain = openai_turns(*FOUR)
    for name, value in {"weight": 0, "loss": False, "trainable": "True", "Train": 1, "loss_mask": "0"}.items():
        flagged = detect([{"messages": [plain[0], {**plain[1], name: value}]}])
        assert flagged.has_loss_flags, name
        assert flagged.unread == ()
    for name, value in {"mask": True, "loss_scale": 0.5, "weight": 2}.items():
        told = detect([{"messages": [plain[0], {**plain[1], name: value}]}])
        assert not told.has_loss_flags
        assert (f"messages.{name}", "flag") in [(one.name, one.holds) for one in told.unread]
    scaled = detect([{"messages": [plain[0], {**plain[1], "loss_weight": 0.5}]}])
    assert ("messages.loss_weight", "flag") in [(one.name, one.holds) for one in scaled.unread]


def test_flags_of_rows() -> None:
    row = {"messages": openai_turns(*FOUR)}

    kept = detect([{**row, "train": True}, {**row, "train": False}])
    assert (kept.has_loss_flags, kept.unread, kept.layout.ignore) == (True, (), ())
    assert mentions(kept.why, "turns that train marks", "not trained (preprocessing.message_weights: mask)")
    share = detect([{**row, "weight": 2.5}, {**row, "weight": 1}])
    assert (share.has_loss_flags, [one.name for one in share.unread]) == (False, ["weight"])


def test_roles_under_other_names() -> None:
    turns = [{"role": "User", "content": QUESTION}, {"role": "bot", "content": ANSWER}]
    found = detect([{"messages": turns}, {"messages": [*turns, {"role": "critic", "content": "Right."}]}])

    assert mentions(found.why, "roles have other names: ", "bot is assistant")
    assert mentions(found.why, "role 'critic' is not known, ", "first row 2; ", "data.role_aliases, ")


def test_rows_of_several_shapes_are_told_with_their_shares() -> None:
    chats, pairs = [{"messages": openai_turns(*FOUR)}] * 6, [{"question": "2 + 2?", "answer": "4"}] * 3
    places = [f"a.jsonl row {number}" for number in range(1, 11)]
    with pytest.raises(ConfigError) as mixed:
        detect([*chats, *pairs, {"note": "It is a sum."}], places=places)

    assert mentions(mixed.value, "several shapes: 60 % like messages (a.jsonl row 1), ")
    assert mentions(mixed.value, " 30 % like question_answer (a.jsonl row 7), ", " 10 % ", " (a.jsonl row 10). ")
    chosen = detect([*chats, *pairs], name="question_answer")
    assert mentions(chosen.why, "67 % of the rows ", "another shape, first row 1'")


def test_rows_that_are_refused_beside_rows_of_no_layout_are_refused_as_what_they_are() -> None:
    failed = {"custom_id": "1", "response": None, "error": {"message": "The model failed here."}}
    answered = {"custom_id": "2", "response": {"body": {"choices": [{"message": {"content": ANSWER}}]}}, "error": None}

    with pytest.raises(ConfigError, match="look like batch_output") as refused:
        detect([failed, answered])

    assert "--layout NAME" not in str(refused.value)


def test_few_odd_and_empty_rows_are_named() -> None:
    rows: list[Mapping[str, Any]] = [{"question": "2 + 2?", "answer": "4"}] * 199
    odd = detect([*rows, {"note": "It is a sum."}])
    assert mentions(odd.why, "0.5 % of the rows ", "another shape, first row 200'")
    empty = detect([*rows[:150], *[{"question": "2 + 2?", "answer": ""}] * 50, {}])
    assert mentions(empty.why, "25 % of the rows ", "columns or an answer, ", "first row 151'")
    asked = detect([{"messages": openai_turns(*FOUR)}, {"messages": openai_turns(QUESTION)}])
    fit, lacking = asked.why
    assert fit == "messages fit in 2 rows"
    assert mentions(lacking, "50 % of the rows ", "columns or an answer, ", "first row 2")
    assert empty.num_rows == 200


def test_turns_of_both_kinds_are_one_layout() -> None:
    found = detect([{"messages": openai_turns(*FOUR)}, {"messages": sharegpt_turns(*FOUR)}])

    assert (found.entry.name, _layout(found)) == ("sharegpt", {"kind": "chat", "messages": TURNS})


def test_schemas_in_only_some_system_texts_are_no_single_layout() -> None:
    listed = {
        "conversations": sharegpt_turns(*FOUR, system=f"<tools> {json.dumps([SCHEMA])} </tools>"),
        "tools": json.dumps([SCHEMA]),
    }
    apart = {"conversations": sharegpt_turns(*FOUR), "tools": json.dumps([SCHEMA])}
    none = {"conversations": sharegpt_turns(*FOUR), "tools": "[]"}

    assert detect([listed, none]).entry.name == "tools_in_system"
    assert _layout(detect([apart, none]))["tools"] == "tools"
    with pytest.raises(ConfigError, match=r"several shapes: 50 % like tools_in_system .* 50 % like sharegpt"):
        detect([listed, apart])


def test_columns_that_are_empty_here_are_read_for_other_rows() -> None:
    found = detect([{"instruction": "Name a lake.", "input": "", "output": "Uri", "system": None, "tools": "[]"}])

    assert _layout(found) == {
        "kind": "chat",
        "messages": [SYSTEM, user_turn("{instruction}", "{input}"), assistant_turn("{output}")],
        "tools": "tools",
    }


@pytest.mark.parametrize("value", [True, "True"])
def test_thinking_may_be_true_or_false(value: Any) -> None:
    found = _layout(detect([{"messages": openai_turns(*FOUR), "enable_thinking": value}]))["chat_template_kwargs"]

    values = {} if value is True else {"values": {"True": True, "false": False}}
    assert found == {"enable_thinking": {"column": "enable_thinking", **values}}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "alpca",
            "--layout is 'alpca'; allowed: a name that `bridgepack recipes layouts` lists, or none. Did you mean al",
        ),
        (
            "squad",
            "--layout is answer_spans",
        ),
    ],
)
def test_mistakes(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        detect([{"question": "2 + 2?", "solution": "4"}], name=name)
    assert str(wrong.value).startswith(message)


def test_unknown_columns() -> None:
    with pytest.raises(ConfigError, match=r"no known layout .*they have foo \(text\), n \(identifier, a n"):
        detect([{"foo": "It is a sum.", "n": 1}])
    with pytest.raises(ConfigError, match=r"they have question \(text, a list\), n \(identifier, a number\)\."):
        detect([{"question": ["2 + 2?"], "n": 4}])
    assert entries_named("Question-Answer")[0].name == "question_answer"


@pytest.mark.parametrize(
    ("row", "kind", "hint"),
    [
        (
            {"question": "2 + 2?", "answer": "4"},
            "chat",
            "{kind: chat, messages: [{role: user, content: '{question}'}, {role: assistant, content: '{answer}'}]}",
        ),
        (
            {"instruction": "Say.", "input": "", "output": "I.", "id": 1},
            "prompt_completion",
            "{kind: prompt_completion, prompt: ['{instruction}', '{input}'], completion: '{output}', ignore: [id]}",
        ),
    ],
)
def test_hints_are_the_whole_remedy(row: dict[str, Any], kind: str, hint: str) -> None:
    assert mentions(layout_hint(row, kind), f"; add {hint} to data.layout")
    assert mentions(layout_hint(row, kind, ["{kind: text}"]), f"; set data.layout to [{{kind: text}}, {hint}],")


@pytest.mark.parametrize(
    ("row", "kind", "hint"),
    [
        ({"text": "It rained all night."}, "chat", "{kind: text}"),
        (
            {"dialog": openai_turns(*FOUR)},
            "prompt_completion",
            "{kind: chat, messages: [{from_column: dialog}]}",
        ),
        (
            {"messages": openai_turns(*FOUR)},
            "text",
            "{kind: chat, messages: [{from_column: messages}]}",
        ),
        (
            {"text": "[INST] Hi [/INST] Hello"},
            "chat",
            "is a rendered chat",
        ),
    ],
)
def test_hints_for_another_kind_name_the_source(row: dict[str, Any], kind: str, hint: str) -> None:
    assert mentions(layout_hint(row, kind), hint)


def test_workers_import_no_yaml_for_a_hint() -> None:
    code = "import sys, bridgepack.data.sequences.loading; sys.exit('ruamel.yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_there_is_no_hint_where_it_is_unclear() -> None:
    for row in ({"text": 5}, {}, {"question": "a", "answer": "b", "response": "c"}, {1: "a b c d"}):
        assert layout_hint(row) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, value, None) for name in ("answer", "id", "tools", "loss") for value in (None, "", [], {})),
        *(("tools", value, None) for value in ("[]", " {} ", "null")),
        *(("note", "   ", None), ("tags", [None, ""], None)),
        *((name, 0, "flag") for name in ("loss", "loss_weight", "loss_mask", "loss_scale", "trainable", "mask")),
        *((name, True, "flag") for name in ("weight", "train", "training")),
        *(("loss_mask", [0, 1], "flag"), ("weight", "0", "flag"), ("mask", "cover all the words", "text")),
        *((name, "4", "text") for name in ("answer", "Output", "system_prompt", "finalAnswer", "answer2", "hint")),
        *((name, 4, "text") for name in ("answer", "output", "input", "question", "prompt", "system")),
        *((name, value, "text") for name in ("output", "input") for value in ({"m": 200}, [1, 3], [{"m": 200}])),
        *(("history", {"a?": "b"}, "text"), ("options", {"A": "3 m"}, "text"), ("prompt", {"id": "p1"}, "text")),
        *(("context", {"id": "p1"}, "identifier"), ("usage", {"input": 3, "output": 5}, "identifier")),
        *(("input", math.nan, None), ("actions", [{"API_name": "a"}], "text")),
        *((name, "a.jpg", "text") for name in ("image", "image_path", "imgs", "audio_file", "imageUrl")),
        *(("weights", [0, 1], "flag"), ("use_for_training", False, "flag"), ("include_in_loss", 0, "flag")),
        *((name, 4, "identifier") for name in ("prompt_tokens", "score_chosen", "turn", "id")),
        *(("prompt_id", "5f3c", "identifier"), ("model", "m-13b", "identifier"), ("redacted", True, "identifier")),
        *(("thinking", True, "text"), ("enable_thinking", False, "text"), ("toxic", False, "identifier")),
        ("created_at", "Wed Oct 10 20:19:24 +0000 2018", "identifier"),
        ("x", "https://example.org/a-page-with-a-long-name", "identifier"),
        ("license", "Creative Commons Attribution ShareAlike 4.0 International", "identifier"),
        ("x", "four words of prose", "text"),
        ("x", "only three words", "identifier"),
        ("x", "乌里湖有多深呢", "text"),
        ("x", "数学", "identifier"),
        ("options", ["a", "b"], "text"),
        ("tags", ["a", "b"], "identifier"),
        *((name, "lake", "text") for name in ("A", "d", "option_a", "Option B", "choice1", "choice_2", "opa")),
        *((name, "lake", "text") for name in ("distractor3", "answer_a")),
        *((name, "lake", "identifier") for name in ("x", "g", "grade_a", "source_1")),
        *((name, "[ ]", None) for name in ("tools", "tool_definitions", "tool_calls")),
        *((name, "Oxford University Press of England", "identifier") for name in ("publisher", "journal", "licence")),
        *((name, "very easy for a child", "identifier") for name in ("difficulty", "kind", "genre", "attribution")),
        ("x", [{"role": "user", "content": "Hi"}], "text"),
        ("metadata", '{"expected_answer": "4"}', "text"),
        ("metadata", '{"model": "m", "n": 4, "lang": "en", "kind": "a"}', "identifier"),
        ("metadata", {"source": "web", "tokens": 4}, "identifier"),
        ("images", [{"path": "a.png"}], "text"),
        ("x", b"\x00", "text"),
    ],
)
def test_what_a_value_holds(name: str, value: Any, expected: str | None) -> None:
    assert holds(name, value) == expected


def test_values_of_any_depth_are_read() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]

    assert holds("x", deep) == "text"
    assert layout_hint({"x": deep, "messages": deep}) == ""


_VALUES = st.sampled_from(
    [
        *(None, "", "4", "off", 7, 0.5, True, [], {}, "How deep is the lake?", "It is 200 m deep, I think.", [1, 2]),
        *(
            openai_turns(*FOUR),
            openai_turns(QUESTION),
            sharegpt_turns(*FOUR),
            json.dumps(sharegpt_turns(*FOUR)),
            openai_turns(*FOUR)[1:2],
        ),
        *([SCHEMA], json.dumps([BARE_SCHEMA]), [CALL], {"text": ["200 m"], "answer_start": [3]}, {"a": "b"}),
    ]
)
_NAMES = st.sampled_from(
    [
        *("messages", "conversations", "prompt", "completion", "instruction", "input", "output", "context", "question"),
        *("answer", "answers", "response", "thinking", "reasoning", "system", "system_prompt", "tools", "functions"),
        *("text", "chosen", "rejected", "label", "labels", "input_ids", "weight", "id", "note", "chat_template_kwargs"),
    ]
)


@given(st.lists(st.dictionaries(_NAMES, _VALUES, max_size=6), min_size=1, max_size=4))
def test_whatever_the_columns_each_is_read_ignored_or_told(rows: list[dict[str, Any]]) -> None:
    try:
        found = detect(rows)
    except ConfigError:
        return
    read = {column.name for column in columns_of(found.layout)}
    ignored, unread = {*found.layout.ignore}, {one.name for one in found.unread}
    repeated = {line.partition(" is not read")[0] for line in found.why if " is not read" in line}
    for name, value in ((name, value) for row in rows for name, value in row.items()):
        kind = holds(name, value)
        if kind == "flag" and found.has_loss_flags:
            continue
        if kind in {"text", "flag"}:
            assert name in read | unread | repeated | {*found.entry.ignores} or found.layout.kind == "tokenized", name
        assert kind is None or name in read | ignored | unread or found.layout.kind == "tokenized", name
    assert not read & ignored


@pytest.mark.parametrize("column", ["system", "rationale", "history", "tools"])
def test_pairs_are_pairs_whatever_else_a_row_has(column: str) -> None:
    more = {"history": [["Where is it?", "It is in Uri."]], "tools": [SCHEMA]}.get(column, "Be brief in what you say.")
    row = {"question": QUESTION, "chosen": ANSWER, "rejected": "I do not know that lake.", column: more}
    with pytest.raises(ConfigError, match=r"look like preference .*--layout preference_chosen"):
        detect([row] * 3)
    layout = _layout(detect([row], name=PREFERENCE_CHOSEN))
    assert (column in str(layout)) == (column in {"system", "tools", "history"})


def test_calls_of_a_turn_are_content_however_short() -> None:
    turns = [{**turn, "toolInvocations": [{"toolName": "f", "args": {"a": 1}}]} for turn in openai_turns(*FOUR)]
    assert [field.name for field in detect([{"messages": turns}]).unread] == ["messages.toolInvocations"]


def test_flags_inside_a_field_are_named_beside_those_that_are_obeyed() -> None:
    detail = [{"begin_offset": 0, "end_offset": 5, "train": False}]
    turns = [{**turn, "training": True, "train_detail": detail} for turn in openai_turns(*FOUR)]
    found = detect([{"messages": turns}])
    assert (found.has_loss_flags, [field.name for field in found.unread]) == (True, ["messages.train_detail"])


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        (
            {"instruction": QUESTION, "input": "Say it briefly, please.", "history": [["Where is it?", "In Uri."]]},
            [{"from_column": "history"}, user_turn("{instruction}", "{input}"), assistant_turn("{chosen}")],
        ),
        (
            {"prompt": QUESTION, "chosen": openai_turns(*FOUR), "messages": openai_turns(*FOUR)},
            [{"from_column": "chosen"}],
        ),
    ],
    ids=["LLaMA-Factory's", "UltraFeedback's"],
)
def test_the_chosen_answer_is_read_with_all_that_comes_before_it(row: dict[str, Any], turns: list[Any]) -> None:
    found = detect([{"chosen": ANSWER, "rejected": "I do not know that.", **row}], name=PREFERENCE_CHOSEN)
    assert _layout(found)["messages"] == turns
    assert found.unread == ()


@pytest.mark.parametrize(
    "turns",
    [
        {"a": [], "role": False},
        {"role": None, "content": ["a"]},
        {"role": "ab", "content": ["a", "b"]},
        {"role": ["user", "assistant"], "content": ["a"]},
    ],
    ids=str,
)
def test_an_object_is_turns_only_if_it_has_lists_of_one_length(turns: dict[str, Any]) -> None:
    assert listed_turns(turns) == []
    assert listed_turns({"role": ["user"], "content": ["a"], "name": None}) == [{"role": "user", "content": "a"}]
