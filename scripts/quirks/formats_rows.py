"""Rows of every public layout, each with what is trained of it."""

import json
from collections.abc import Mapping
from typing import Any

from .formats_apis import APIS
from .formats_texts import (
    ANSWER,
    CALLED,
    EARLIER,
    THOUGHT,
    TWO,
    Format,
    asked,
    bedrock,
    call,
    columns,
    from_turns,
    gemini,
    hermes,
    history,
    logged_answer,
    of_lists,
    of_turns,
    pair,
    paired,
    responses,
    schema,
    squad,
    talk,
    thinking,
    toolbench,
    turns_and_completion,
    with_call,
    xlam,
)
from .rows import Answer

FORMATS = (
    Format(name="messages", row=of_turns(), answers=TWO),
    Format(name="messages", more="a call and `tools`", row=with_call, answers=(CALLED, *ANSWER)),
    Format(
        name="messages",
        more="`weight`",
        row=lambda t: {
            "messages": [
                {"role": "user", "content": t.o("Which lake?")},
                {"role": "assistant", "content": t.o("It is flat."), "weight": 0},
                {"role": "user", "content": t.o("Sure?")},
                {"role": "assistant", "content": t.a("It is deep."), "weight": 1},
            ]
        },
        answers=ANSWER,
    ),
    Format(
        name="messages",
        more="parts with text",
        row=lambda t: {"messages": [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in talk(t)]},
        answers=TWO,
    ),
    Format(name="messages", more="JSON text", row=lambda t: {"messages": json.dumps(talk(t))}, answers=TWO),
    Format(name="sharegpt", row=lambda t: {"conversations": from_turns(talk(t))}, answers=TWO),
    Format(
        name="sharegpt",
        more="`function_call`, `observation` and `tools`",
        row=lambda t: {
            "conversations": [
                {"from": "human", "value": t.o("Which lake?")},
                {"from": "function_call", "value": json.dumps(call(t))},
                {"from": "observation", "value": t.o("two hundred")},
                {"from": "gpt", "value": t.a("It is deep.")},
            ],
            "tools": json.dumps([schema(t)["function"]]),
        },
        answers=(CALLED, *ANSWER),
    ),
    Format(name="messages", more="SmolTalk", row=of_turns(source="magpie"), answers=TWO),
    Format(
        name="messages",
        more="UltraChat",
        row=lambda t: {"prompt": t.o("Which lake?"), "prompt_id": "5f3c", "messages": talk(t)},
        answers=TWO,
    ),
    Format(
        name="sharegpt",
        more="OpenThoughts",
        row=lambda t: {"system": t.o("You reason first."), "conversations": from_turns(pair(t))},
        answers=ANSWER,
    ),
    Format(
        name="messages",
        more="LMSYS-Chat-1M",
        row=lambda t: {
            **{"conversation_id": "1", "model": "m", "conversation": talk(t), "turn": 2, "language": "English"},
            **{"openai_moderation": [{"flagged": False}], "redacted": False},
        },
        answers=TWO,
    ),
    Format(
        name="messages",
        more="WildChat",
        row=lambda t: {
            **{"conversation_hash": "1", "conversation": [{**turn, "toxic": False} for turn in talk(t)]},
            **{"detoxify_moderation": [{"insult": 0.01}], "toxic": False},
        },
        answers=TWO,
    ),
    Format(
        name="messages",
        more="Nemotron post-training",
        row=lambda t: {"uuid": "1", "generator": "m", "category": "math", "reasoning": "off", "messages": pair(t)},
        answers=ANSWER,
    ),
    Format(name="sharegpt", more="ToolBench", row=toolbench, answers=(Answer(content="Action: depth"), *ANSWER)),
    Format(name="tools_in_system", row=hermes, answers=ANSWER),
    Format(
        name="turns_and_answer",
        more="Llama-Nemotron",
        row=lambda t: {
            **{"input": asked(t), "output": t.a("It is deep."), "category": "math", "license": "cc"},
            **{"reasoning": "off", "generator": "m", "system_prompt": t.o("detailed thinking off")},
        },
        answers=ANSWER,
    ),
    Format(
        name="turns_and_answer",
        row=lambda t: {"prompt": asked(t), "completion": t.a("It is deep.")},
        answers=ANSWER,
    ),
    Format(
        name="turns_and_calls",
        row=lambda t: {"messages": asked(t), "tools": [schema(t)], "answer": json.dumps([call(t)])},
        answers=(CALLED,),
    ),
    Format(
        name="prompt_completion_turns",
        row=lambda t: {"prompt": asked(t), "completion": pair(t)[1:]},
        answers=ANSWER,
    ),
    Format(
        name="question_and_turns",
        row=lambda t: {
            "prompt": t.o("Which lake do you mean?"),
            "completion": [{"role": "assistant", "content": t.a("It is deep.")}],
        },
        answers=ANSWER,
    ),
    Format(name="history", row=history(2), answers=(*EARLIER, *ANSWER)),
    Format(name="alpaca", more="an empty `history`", row=history(0), answers=ANSWER),
    Format(
        name="history",
        more="ms-swift",
        row=lambda t: {
            "history": [[t.o("Where is it?"), t.a("In Uri.")]],
            "query": t.o("Which lake do you mean?"),
            "response": t.a("It is deep."),
        },
        answers=(Answer(content="In Uri."), *ANSWER),
    ),
    Format(name="pairs", more="XTuner", row=lambda t: {"conversation": paired(t, "input", "output")}, answers=TWO),
    Format(name="pairs", row=lambda t: {"conversation": paired(t, "human", "assistant")}, answers=TWO),
    Format(
        name="pairs",
        more="lists of two",
        row=lambda t: {"history": [list(one.values()) for one in paired(t, "a", "b")]},
        answers=TWO,
    ),
    Format(name="gemini", row=gemini, answers=TWO),
    Format(
        name="history",
        more="earlier turns",
        row=lambda t: {
            "history": talk(t),
            "query": t.o("Which lake do you mean?"),
            "response": t.a("The lake of Uri."),
        },
        answers=(*TWO, Answer(content="The lake of Uri.")),
    ),
    Format(
        name="messages",
        more="lists of a role and a text",
        row=lambda t: {"messages": [[turn["role"], turn["content"]] for turn in talk(t)]},
        answers=TWO,
    ),
    Format(
        name="messages",
        more="LangChain's types",
        row=lambda t: {
            "messages": [
                {"type": {"user": "human", "assistant": "ai"}[turn["role"]], "data": {"content": turn["content"]}}
                for turn in talk(t)
            ]
        },
        answers=TWO,
    ),
    Format(
        name="messages",
        more="a list of JSON texts",
        row=lambda t: {"messages": [json.dumps(turn) for turn in talk(t)]},
        answers=TWO,
    ),
    Format(
        name="messages",
        more="schemas under their names",
        row=lambda t: {**with_call(t), "tools": {"depth": {**schema(t)["function"], "name": "depth"}}},
        answers=(CALLED, *ANSWER),
    ),
    Format(
        name="logged_completion",
        row=lambda t: {
            "request": {"model": "m", "messages": asked(t)},
            "response": {"choices": [{"message": pair(t)[1], "finish_reason": "stop"}]},
        },
        answers=ANSWER,
    ),
    Format(name="logged_answer", row=logged_answer, answers=ANSWER),
    Format(name="turns_and_completion", row=turns_and_completion, answers=ANSWER),
    Format(name="messages", more="Bedrock's `toolUse` and `toolConfig`", row=bedrock, answers=(CALLED, *ANSWER)),
    Format(name="messages", more="items of OpenAI's Responses API", row=responses, answers=(CALLED, *ANSWER)),
    Format(
        name="preference_chosen",
        row=lambda t: {
            "prompt": t.o("Which lake do you mean?"),
            "chosen": t.a("It is deep."),
            "rejected": "It is flat.",
        },
        answers=ANSWER,
    ),
    Format(
        name="messages",
        more="an object of lists",
        row=lambda t: {"messages": of_lists(talk(t))},
        answers=TWO,
    ),
    Format(
        name="messages",
        more="calls with `args`, as LangChain's",
        row=lambda t: with_call(
            t, lambda call: {"name": "depth", "args": call["arguments"], "id": "call00001", "type": "tool_call"}
        ),
        answers=(CALLED, *ANSWER),
    ),
    Format(
        name="messages",
        more="schemas with `inputSchema`, as MCP's",
        row=lambda t: with_call(t, schema_key="inputSchema"),
        answers=(CALLED, *ANSWER),
    ),
    Format(
        name="messages",
        more="a tool's result as an object",
        row=lambda t: with_call(t, result=lambda text: {"said": text}),
        answers=(CALLED, *ANSWER),
    ),
    Format(
        name="messages",
        more="ms-swift's turn of a call",
        row=lambda t: {
            "messages": [
                *asked(t),
                {"role": "tool_call", **call(t)},
                {"role": "tool_response", "content": t.o("two hundred")},
                {"role": "assistant", "content": t.a("It is deep.")},
            ],
            "tools": [schema(t)],
        },
        answers=(CALLED, *ANSWER),
    ),
    Format(
        name="sharegpt",
        more="calls with `parameters`",
        row=lambda t: {
            "conversations": [
                {"from": "human", "value": t.o("Which lake?")},
                {"from": "function_call", "value": json.dumps({"name": "depth", "parameters": {"lake": t.a("Uri")}})},
                {"from": "observation", "value": t.o("two hundred")},
                {"from": "gpt", "value": t.a("It is deep.")},
            ],
            "tools": json.dumps([schema(t)["function"]]),
        },
        answers=(CALLED, *ANSWER),
    ),
    Format(name="alpaca", row=columns("instruction", "output", input="the one in Uri"), answers=ANSWER),
    Format(
        name="instruction_context", row=columns("instruction", "response", context="Uri is a lake."), answers=ANSWER
    ),
    Format(name="answer_spans", row=squad, answers=(Answer(content="very deep"),)),
    Format(
        name="question_answers",
        row=lambda t: {"question": t.o("Which lake?"), "answer": [t.a("It is deep."), "It is."]},
        answers=ANSWER,
    ),
    Format(name="context_question", row=columns("question", "answer", context="Uri is a lake."), answers=ANSWER),
    Format(name="question_calls", row=xlam, answers=(CALLED,)),
    Format(name="question_thinking_answer", row=thinking, answers=THOUGHT),
    Format(name="prompt_completion", row=columns("prompt", "completion"), answers=ANSWER),
    Format(name="question_answer", row=columns("question", "answer"), answers=ANSWER),
    *APIS,
)


def _refused(name: str, **row: Any) -> Format:
    return Format(name=name, row=lambda _: row)


_LONG = "How deep is the lake of Uri?"
_TURNS = [{"role": "user", "content": _LONG}, {"role": "assistant", "content": "It is 200 m deep."}]
_TALK = f"\n\nHuman: {_LONG}\n\nAssistant:"
#: Layout that is refused -> a row of it.
REFUSED: Mapping[str, Format] = {
    one.name: one
    for one in (
        _refused("preference", prompt=_LONG, chosen="It is 200 m deep.", rejected="It is quite flat there."),
        _refused("unpaired_preference", prompt=_LONG, completion="It is 200 m deep.", label=True),
        _refused("unpaired_turns", messages=_TURNS, label=True),
        _refused("preference_turns", messages=_TURNS, rejected_response="It is quite flat there."),
        _refused("preference_texts", chosen=f"{_TALK} It is 200 m deep.", rejected=f"{_TALK} It is quite flat."),
        _refused("scored_answers", prompt=_LONG, responses=["It is 200 m deep.", "It is flat."], scores=[4, 1]),
        _refused("multiple_choice", question=_LONG, choices=["200 m", "3 m"], answer=0),
        _refused("exported_tree", title="Uri", mapping={"a": {"message": {"content": _LONG}, "children": ["b"]}}),
        _refused("listed_conversations", conversations=[_TURNS, _TURNS]),
        _refused("object_answer", instruction=_LONG, output={"depth": 200}),
        _refused("listed_rows", data=[{"messages": _TURNS}]),
        _refused("listed_columns", question=[_LONG, "How long?"], answer=["200 m", "11 km"]),
        _refused("listed_texts", data=[_LONG, "It is 200 m deep."]),
        _refused("text_of_rows", text=json.dumps({"messages": _TURNS})),
        _refused("wrapped_row", row_idx=3, row={"messages": _TURNS}),
        _refused("stepwise", prompt=_LONG, completions=["I look.", "200 m."], labels=[True, False]),
        _refused(
            "arena",
            conversation_a=[{"role": "user", "content": _LONG}],
            conversation_b=[{"role": "user", "content": _LONG}],
        ),
        _refused("message_tree", message_id="1", parent_id="0", text=_LONG, role="prompter"),
        _refused("reply_tree", prompt={"text": _LONG, "replies": [{"text": "It is 200 m deep."}]}),
        _refused("reply_node", text=_LONG, replies=[{"text": "It is 200 m deep."}]),
        _refused("benchmark", question_id=81, turns=[_LONG, "How long?"], reference=["200 m", "11 km"]),
        _refused("batch_output", custom_id="1", response={"body": {"choices": [{"message": {"content": "200 m."}}]}}),
        _refused("batch_input", custom_id="1", body={"messages": [{"role": "user", "content": _LONG}]}),
        _refused("message_rows", role="user", content=_LONG),
        _refused("marked_text", system="SYSTEM: You help.", chat="USER: How deep?\n\nASSISTANT: 200 m."),
        _refused("other_turns", turns=[{"a": _LONG}, {"b": "It is 200 m deep."}]),
        _refused("prompt_only", prompt=_LONG),
        _refused("rendered_chat", text="<|im_start|>user\nHow deep?<|im_end|>\n<|im_start|>assistant\n200 m."),
    )
}
