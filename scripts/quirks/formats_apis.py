"""Rows of calls and results as APIs, frameworks and their logs keep them, each with what is trained of it."""

import json

from .formats_texts import ANSWER, CALLED, Format, Row, Texts, asked, call, schema
from .rows import Answer

_ID = "call00001"


def _parts(text: str, **fields: str) -> list[Row]:
    return [{"type": "text", **fields, "text": text}]


def _with_schema(turns: list[Row], t: Texts) -> Row:
    return {"messages": turns, "tools": [schema(t)]}


def _anthropic(t: Texts) -> Row:
    used = {"type": "tool_use", "id": _ID, "name": "depth", "input": call(t)["arguments"]}
    result = {"type": "tool_result", "tool_use_id": _ID, "content": _parts(t.o("two hundred"))}
    function = schema(t)["function"]
    tool = {"name": "depth", "description": function["description"], "input_schema": function["parameters"]}
    turns = [*asked(t), {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    return {"messages": [*turns, {"role": "assistant", "content": _parts(t.a("It is deep."))}], "tools": [tool]}


def _gemini_call(t: Texts) -> Row:
    result = {"name": "depth", "response": {"said": t.o("two hundred")}}
    contents = [
        {"role": "user", "parts": [{"text": t.o("Which lake?")}]},
        {"role": "model", "parts": [{"functionCall": {"name": "depth", "id": _ID, "args": call(t)["arguments"]}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": _ID, **result}}]},
        {"role": "model", "parts": [{"text": t.a("It is deep.")}]},
    ]
    return {"contents": contents, "tools": [{"functionDeclarations": [schema(t)["function"]]}]}


def _vercel(t: Texts) -> Row:
    ids = {"toolCallId": _ID, "state": "output-available"}
    used = {"type": "tool-depth", **ids, "input": call(t)["arguments"], "output": {"said": t.o("two hundred")}}
    question = {"role": "user", "parts": _parts(t.o("Which lake?"))}
    step = {"type": "step-start"}
    answer = {"role": "assistant", "parts": [step, used, step, *_parts(t.a("It is deep."), state="done")]}
    return _with_schema([question, answer], t)


def _llama_index(t: Texts) -> Row:
    made = {"tool_call_id": _ID, "tool_name": "depth", "tool_kwargs": call(t)["arguments"]}
    turns: list[tuple[str, Row, Row]] = [
        ("user", {"block_type": "text", "text": t.o("Which lake?")}, {}),
        ("assistant", {"block_type": "tool_call", **made}, {}),
        ("tool", {"block_type": "text", "text": t.o("two hundred")}, {"tool_call_id": _ID}),
        ("assistant", {"block_type": "text", "text": t.a("It is deep.")}, {}),
    ]
    return _with_schema([{"role": role, "additional_kwargs": more, "blocks": [one]} for role, one, more in turns], t)


def _haystack(t: Texts) -> Row:
    made = {"id": _ID, "tool_name": "depth", "arguments": call(t)["arguments"]}
    contents = (
        ("user", {"text": t.o("Which lake?")}),
        ("assistant", {"tool_call": made}),
        ("tool", {"tool_call_result": {"result": t.o("two hundred"), "origin": {**made, "arguments": {}}}}),
        ("assistant", {"text": t.a("It is deep.")}),
    )
    return _with_schema([{"role": role, "meta": {}, "content": [content]} for role, content in contents], t)


def _open_telemetry(t: Texts) -> Row:
    parts = (
        ("user", {"type": "text", "content": t.o("Which lake?")}),
        ("assistant", {"type": "tool_call", "id": _ID, **call(t)}),
        ("tool", {"type": "tool_call_response", "id": _ID, "response": t.o("two hundred")}),
    )
    answer = {"role": "assistant", "parts": [{"type": "text", "content": t.a("It is deep.")}]}
    return {
        "gen_ai.input.messages": [{"role": role, "parts": [part]} for role, part in parts],
        "gen_ai.output.messages": [answer],
        "tools": [schema(t)],
    }


def _older_openai(t: Texts) -> Row:
    turns = [
        *asked(t),
        {"role": "assistant", "function_call": call(t, is_text=True)},
        {"role": "function", "name": "depth", "content": t.o("two hundred")},
        {"role": "assistant", "content": t.a("It is deep.")},
    ]
    return {"messages": turns, "functions": [schema(t)["function"]]}


def _cohere(t: Texts) -> Row:
    made = {"id": _ID, "type": "function", "function": call(t, is_text=True)}
    result = {"type": "document", "document": {"data": t.o("two hundred")}}
    turns = [*asked(t), {"role": "assistant", "tool_calls": [made]}]
    turns += [{"role": "tool", "tool_call_id": _ID, "content": [result]}]
    return _with_schema([*turns, {"role": "assistant", "content": t.a("It is deep.")}], t)


def _mlflow(t: Texts) -> Row:
    request, choice = {"messages": asked(t)}, {"message": {"role": "assistant", "content": t.a("It is deep.")}}
    return {"request": json.dumps(request), "response": json.dumps({"choices": [choice]})}


APIS = (
    Format(
        name="question_answer",
        more="a number",
        row=lambda t: {"question": t.o("How deep is that?"), "answer": 200},
        answers=(Answer(content="200"),),
    ),
    Format(name="messages", more="Anthropic's `tool_use` and `tool_result`", row=_anthropic, answers=(CALLED, *ANSWER)),
    Format(name="gemini", more="`functionCall`", row=_gemini_call, answers=(CALLED, *ANSWER)),
    Format(name="messages", more="messages of Vercel's user interfaces", row=_vercel, answers=(CALLED, *ANSWER)),
    Format(name="messages", more="LlamaIndex's blocks", row=_llama_index, answers=(CALLED, *ANSWER)),
    Format(name="messages", more="Haystack's calls and results", row=_haystack, answers=(CALLED, *ANSWER)),
    Format(name="prompt_completion_turns", more="OpenTelemetry's", row=_open_telemetry, answers=(CALLED, *ANSWER)),
    Format(name="messages", more="OpenAI's older `function_call`", row=_older_openai, answers=(CALLED, *ANSWER)),
    Format(name="messages", more="Cohere's documents", row=_cohere, answers=(CALLED, *ANSWER)),
    Format(name="logged_completion", more="JSON text, as MLflow's", row=_mlflow, answers=ANSWER),
    Format(
        name="alpaca",
        more="a number as input",
        row=lambda t: {"instruction": t.o("Which lake?"), "input": 12, "output": t.a("It is deep.")},
        answers=ANSWER,
    ),
    Format(
        name="turns_and_answer",
        more="OpenAI's evals",
        row=lambda t: {"input": asked(t), "ideal": t.a("It is deep.")},
        answers=ANSWER,
    ),
)
