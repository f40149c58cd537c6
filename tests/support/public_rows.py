"""Rows of ours in the columns of public data sets, and the layouts that read them."""

import json
from typing import Any

QUESTION, ANSWER = "How deep is the lake of Uri?", "It is 200 m deep."
SCHEMA = {
    "type": "function",
    "function": {"name": "depth", "description": "Depth of a lake.", "parameters": {"type": "object"}},
}
BARE_SCHEMA = {"name": "depth", "description": "Depth of a lake.", "parameters": {"lake": {"type": "str"}}}
CALL = {"name": "depth", "arguments": {"lake": "Uri"}}


def openai_turns(*turns: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": text} for index, text in enumerate(turns)]


def sharegpt_turns(*turns: str, system: str = "") -> list[dict[str, Any]]:
    roles = ("human", "gpt")
    said = [{"from": roles[index % 2], "value": text} for index, text in enumerate(turns)]
    return [{"from": "system", "value": system}, *said] if system else said


def user_turn(*pieces: str) -> dict[str, Any]:
    return {"role": "user", "content": pieces[0] if len(pieces) == 1 else [*pieces]}


def assistant_turn(text: str, **more: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "{system}"}
SWITCH = {"enable_thinking": {"column": "reasoning", "values": {"on": True, "off": False}}}
TURNS = [{"from_column": "messages"}]
TALK = [{"from_column": "conversations"}]
CONVERSATION = [{"from_column": "conversation"}]
FOUR = [QUESTION, ANSWER, "And its length?", "It is 11 km long."]
CHATS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openai", {"messages": openai_turns(*FOUR)}, {"messages": TURNS}),
    (
        "openai",
        {"messages": openai_turns(*FOUR), "tools": [SCHEMA], "id": "a-1"},
        {"messages": TURNS, "tools": "tools", "ignore": ["id"]},
    ),
    ("openai", {"messages": json.dumps(openai_turns(*FOUR))}, {"messages": TURNS}),
    ("openai", {"dialog": openai_turns(*FOUR)}, {"messages": [{"from_column": "dialog"}]}),
    ("openai", {"messages": [[turn["role"], turn["content"]] for turn in openai_turns(*FOUR)]}, {"messages": TURNS}),
    ("openai", {"messages": [json.dumps(turn) for turn in openai_turns(*FOUR)]}, {"messages": TURNS}),
    (
        "openai",
        {"messages": [{"type": turn["from"], "content": turn["value"]} for turn in sharegpt_turns(*FOUR)]},
        {"messages": TURNS},
    ),
    (
        "openai",
        {"messages": [{"type": turn["from"], "data": {"content": turn["value"]}} for turn in sharegpt_turns(*FOUR)]},
        {"messages": TURNS},
    ),
    (
        "openai",
        {"messages": openai_turns(*FOUR), "tools": {"depth": {"description": "Depth of a lake.", "parameters": {}}}},
        {"messages": TURNS, "tools": "tools"},
    ),
    (
        "openai",
        {"messages": openai_turns(*FOUR), "tools": [json.dumps(SCHEMA)]},
        {"messages": TURNS, "tools": "tools"},
    ),
    (
        "logged_completion",
        {
            "request": {"messages": openai_turns(QUESTION)},
            "response": {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]},
        },
        {
            "messages": [{"from_column": "request.messages"}, {"from_column": "response.choices.0.message"}],
            "tools": "request.tools",
        },
    ),
    (
        "logged_answer",
        {
            "request": {"system": "Be brief.", "messages": openai_turns(QUESTION)},
            "response": {"role": "assistant", "content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn"},
        },
        {
            "messages": [
                {"role": "system", "content": "{request.system}"},
                {"from_column": "request.messages"},
                {"from_column": "response"},
            ],
            "tools": "request.tools",
        },
    ),
    (
        "turns_and_completion",
        {
            "messages": openai_turns(QUESTION),
            "response": {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]},
        },
        {"messages": [{"from_column": "messages"}, {"from_column": "response.choices.0.message"}]},
    ),
    (
        "openai",
        {
            "system": [{"text": "Be brief."}],
            "messages": [{**turn, "content": [{"text": turn["content"]}]} for turn in openai_turns(*FOUR)],
            "toolConfig": {"tools": [{"toolSpec": {"name": "depth", "inputSchema": {"json": {"type": "object"}}}}]},
        },
        {"messages": [SYSTEM, *TURNS], "tools": "toolConfig"},
    ),
    (
        "openai",
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
                {"type": "function_call", "call_id": "c1", **CALL},
                {"type": "function_call_output", "call_id": "c1", "output": "200"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
            ]
        },
        {"messages": [{"from_column": "input"}], "ignore": ["messages.type"]},
    ),
    (
        "openai",
        {
            "messages": [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain", "schema", "messages", f"{name}Message"],
                    "kwargs": {"content": text},
                }
                for name, text in zip(("Human", "AI"), (QUESTION, ANSWER), strict=True)
            ]
        },
        {"messages": TURNS},
    ),
    (
        "openai",
        {
            "messages": [
                {"role": turn["role"], "parts": [{"type": "step-start"}, {"type": "text", "text": turn["content"]}]}
                for turn in openai_turns(*FOUR)
            ]
        },
        {"messages": TURNS},
    ),
    (
        "openai",
        {
            "messages": [
                {
                    "role": turn["role"],
                    "additional_kwargs": {},
                    "blocks": [{"block_type": "text", "text": turn["content"]}],
                }
                for turn in openai_turns(*FOUR)
            ]
        },
        {"messages": TURNS},
    ),
    (
        "openai",
        {
            "messages": [
                {"role": "user", "content": QUESTION},
                {"role": "assistant", "function_call": CALL},
                {"role": "function", "name": "depth", "content": "200"},
                {"role": "assistant", "content": ANSWER},
            ],
            "function_list": [SCHEMA["function"]],
        },
        {"messages": TURNS, "tools": "function_list"},
    ),
    *(
        (
            "openai",
            {"messages": [{name: turn["role"], "content": turn["content"]} for turn in openai_turns(*FOUR)]},
            {"messages": TURNS},
        )
        for name in ("author", "source")
    ),
    ("openai", {"dialogue": openai_turns(*FOUR, "Sure?")}, {"messages": [{"from_column": "dialogue"}]}),
    (
        "openai",
        {
            "input": [
                {"role": "user", "content": QUESTION},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "c1", **CALL},
                {"type": "function_call_output", "call_id": "c1", "output": "200"},
                {"role": "assistant", "content": ANSWER},
            ]
        },
        {"messages": [{"from_column": "input"}]},
    ),
    (
        "logged_completion",
        {
            "request": json.dumps({"messages": openai_turns(QUESTION)}),
            "response": json.dumps({"choices": [{"message": {"role": "assistant", "content": ANSWER}}]}),
        },
        {
            "messages": [{"from_column": "request.messages"}, {"from_column": "response.choices.0.message"}],
            "tools": "request.tools",
        },
    ),
    (
        "logged_completion",
        {
            "inputs": {"messages": openai_turns(QUESTION)},
            "output": {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]},
        },
        {
            "messages": [{"from_column": "inputs.messages"}, {"from_column": "output.choices.0.message"}],
            "tools": "inputs.tools",
        },
    ),
    (
        "prompt_completion_turns",
        {
            "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
            "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}],
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}],
        },
        {
            "messages": [
                {"role": "system", "content": "{gen_ai.system_instructions}"},
                {"from_column": "gen_ai.input.messages"},
                {"from_column": "gen_ai.output.messages"},
            ]
        },
    ),
    (
        "turns_and_answer",
        {"input": openai_turns(QUESTION), "ideal": ANSWER},
        {"messages": [{"from_column": "input"}, assistant_turn("{ideal}")]},
    ),
    (
        "alpaca",
        {"instruction": "Square the number.", "input": 12, "response": 144},
        {"messages": [user_turn("{instruction}", "{input}"), assistant_turn("{response}")]},
    ),
    (
        "history",
        {
            "preamble": "Be brief.",
            "chat_history": [{"role": "USER", "message": QUESTION}, {"role": "CHATBOT", "message": ANSWER}],
            "message": "Where is that lake?",
            "response": "In Uri, I think.",
        },
        {
            "messages": [
                {"role": "system", "content": "{preamble}"},
                {"from_column": "chat_history"},
                user_turn("{message}"),
                assistant_turn("{response}"),
            ]
        },
    ),
    (
        "history",
        {"history": openai_turns(*FOUR), "query": "Where is it?", "response": "In Uri."},
        {"messages": [{"from_column": "history"}, user_turn("{query}"), assistant_turn("{response}")]},
    ),
    *(
        (
            "openai",
            {"messages": openai_turns(*FOUR), name: json.dumps([SCHEMA])},
            {"messages": TURNS, "tools": name},
        )
        for name in ("functions", "tool_defs", "available_tools")
    ),
    ("sharegpt", {"conversations": sharegpt_turns(*FOUR)}, {"messages": TALK}),
    ("sharegpt", {"conversation": sharegpt_turns(*FOUR), "id": 7}, {"messages": CONVERSATION, "ignore": ["id"]}),
    ("sharegpt", {"messages": sharegpt_turns(*FOUR)}, {"messages": TURNS}),
    (
        "sharegpt",
        {"conversation": sharegpt_turns(*FOUR), "tools": json.dumps([SCHEMA["function"]]), "system": "Be short."},
        {"messages": [SYSTEM, *CONVERSATION], "tools": "tools"},
    ),
    (
        "openthoughts",
        {"system": "You reason before you answer.", "conversations": sharegpt_turns(QUESTION, ANSWER)},
        {"messages": [SYSTEM, *TALK]},
    ),
    ("smoltalk", {"messages": openai_turns(*FOUR), "source": "magpie"}, {"messages": TURNS, "ignore": ["source"]}),
    (
        "ultrachat",
        {"prompt": QUESTION, "prompt_id": "5f3c", "messages": openai_turns(*FOUR)},
        {"messages": TURNS, "ignore": ["prompt", "prompt_id"]},
    ),
    (
        "lmsys_chat",
        {
            **{"conversation_id": "1", "model": "m-13b", "conversation": openai_turns(*FOUR), "turn": 2},
            **{"language": "English", "openai_moderation": [{"flagged": False}], "redacted": False},
        },
        {
            "messages": CONVERSATION,
            "ignore": ["conversation_id", "model", "turn", "language", "openai_moderation", "redacted"],
        },
    ),
    (
        "wildchat",
        {
            "conversation_hash": "1",
            "conversation": [
                {**turn, "toxic": False, "header": {"user-agent": "An agent of a very long name (X; Y)"}}
                for turn in openai_turns(*FOUR)
            ],
            **{"detoxify_moderation": [{"insult": 0.01}], "toxic": False, "country": "Switzerland"},
        },
        {
            "messages": CONVERSATION,
            "ignore": [
                *("conversation_hash", "detoxify_moderation", "toxic", "country"),
                *("messages.toxic", "messages.header"),
            ],
        },
    ),
    (
        "nemotron_post_training",
        {
            **{"uuid": "1", "generator": "m", "category": "math", "reasoning": "on"},
            "messages": openai_turns(QUESTION, ANSWER),
        },
        {"messages": TURNS, "chat_template_kwargs": SWITCH, "ignore": ["uuid", "generator", "category"]},
    ),
    (
        "toolbench",
        {
            "id": "Step 3: lakes",
            "conversations": [
                *sharegpt_turns(
                    QUESTION,
                    "Thought: I look.\nAction: depth",
                    system="You can use these: [{'name': 'depth', 'parameters': {}}]",
                ),
                {"from": "function", "value": "{}"},
                {"from": "assistant", "value": "Action: Finish"},
            ],
        },
        {"messages": TALK, "ignore": ["id"]},
    ),
    (
        "hermes_function_calling",
        {
            "id": "1",
            "conversations": sharegpt_turns(QUESTION, ANSWER, system=f"<tools> {json.dumps([SCHEMA])} </tools>"),
            **{"tools": json.dumps([SCHEMA]), "category": "Lakes", "task": "Depth of a lake"},
        },
        {"messages": TALK, "ignore": ["id", "tools", "category", "task"]},
    ),
    (
        "llama_nemotron",
        {
            **{"input": openai_turns(QUESTION), "output": ANSWER, "category": "math", "license": "cc-by-4.0"},
            **{"reasoning": "off", "generator": "m", "system_prompt": "detailed thinking off"},
        },
        {
            "messages": [
                {"role": "system", "content": "{system_prompt}"},
                {"from_column": "input"},
                assistant_turn("{output}"),
            ],
            "chat_template_kwargs": SWITCH,
            "ignore": ["category", "license", "generator"],
        },
    ),
    *(
        (
            "turns_and_answer",
            {turns: openai_turns(*FOUR, "Sure?"), answer: "Yes, quite."},
            {"messages": [{"from_column": turns}, assistant_turn(f"{{{answer}}}")]},
        )
        for turns, answer in (
            ("prompt", "completion"),
            ("input", "output"),
            ("prompt", "chosen"),
            ("messages", "answer"),
        )
    ),
    (
        "turns_and_calls",
        {"messages": openai_turns(QUESTION), "tools": [SCHEMA], "answer": json.dumps([CALL])},
        {"messages": [*TURNS, {"role": "assistant", "tool_calls": "answer"}], "tools": "tools"},
    ),
    (
        "trl_prompt_completion_turns",
        {"prompt": openai_turns(QUESTION), "completion": [{"role": "assistant", "content": ANSWER}]},
        {"messages": [{"from_column": "prompt"}, {"from_column": "completion"}]},
    ),
    (
        "question_and_turns",
        {"prompt": QUESTION, "completion": [{"role": "assistant", "content": ANSWER}]},
        {"messages": [user_turn("{prompt}"), {"from_column": "completion"}]},
    ),
    (
        "alpaca",
        {"instruction": "Correct the spelling.", "input": "recieve", "output": "receive"},
        {"messages": [user_turn("{instruction}", "{input}"), assistant_turn("{output}")]},
    ),
    (
        "alpaca",
        {"instruction": "Name a lake.", "input": "", "output": "Uri", "text": "Below is an instruction: a lake."},
        {"messages": [user_turn("{instruction}", "{input}"), assistant_turn("{output}")], "ignore": ["text"]},
    ),
    (
        "alpaca",
        {"system": "Be short.", "Instruction": "Name a lake.", "Input": "", "Output": "Uri", "cot": "A lake: Uri."},
        {
            "messages": [
                SYSTEM,
                user_turn("{Instruction}", "{Input}"),
                assistant_turn("{Output}", reasoning_content="{cot}"),
            ]
        },
    ),
    (
        "dolly",
        {"instruction": "What is it?", "context": "Uri is a lake.", "response": "a lake", "category": "closed_qa"},
        {
            "messages": [user_turn("{instruction}", "Context:\n{context}"), assistant_turn("{response}")],
            "ignore": ["category"],
        },
    ),
    (
        "squad",
        {
            **{"id": "1", "title": "Lake_Uri", "context": "The lake of Uri is 200 m deep.", "question": QUESTION},
            "answers": {"text": ["200 m"], "answer_start": [19]},
        },
        {
            "messages": [user_turn("Context:\n{context}", "{question}"), assistant_turn("{answers.text.0}")],
            "ignore": ["id", "title", "answers.text.*"],
        },
    ),
    (
        "llama_factory",
        {"instruction": QUESTION, "input": "", "output": ANSWER, "history": [["Where is it?", "In Uri."]]},
        {
            "messages": [
                {"from_column": "history"},
                user_turn("{instruction}", "{input}"),
                assistant_turn("{output}"),
            ]
        },
    ),
    (
        "ms_swift",
        {"query": QUESTION, "response": ANSWER, "history": [["Where is it?", "In Uri."], ["Where is that?", "South."]]},
        {"messages": [{"from_column": "history"}, user_turn("{query}"), assistant_turn("{response}")]},
    ),
    (
        "ms_swift",
        {"query": QUESTION, "response": ANSWER, "history": [["2 + 2?", 4]]},
        {"messages": [{"from_column": "history"}, user_turn("{query}"), assistant_turn("{response}")]},
    ),
    (
        "xtuner",
        {
            "conversation": [
                {"system": "Be brief.", "input": QUESTION, "output": ANSWER},
                {"input": "A?", "output": "B."},
            ]
        },
        {"messages": CONVERSATION},
    ),
    ("pairs", {"conversation": [{"human": QUESTION, "assistant": ANSWER}]}, {"messages": CONVERSATION}),
    ("pairs", {"history": [[QUESTION, ANSWER]]}, {"messages": [{"from_column": "history"}]}),
    (
        "gemini",
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": QUESTION}]},
                {"role": "model", "parts": [{"text": ANSWER}]},
            ],
        },
        {"messages": [{"role": "system", "content": "{systemInstruction.parts}"}, {"from_column": "contents"}]},
    ),
    (
        "sharegpt",
        {"conversations": {"from": ["human", "gpt"], "value": [QUESTION, ANSWER]}},
        {"messages": TALK},
    ),
    (
        "messages",
        {"messages": {"role": ["user", "assistant"], "content": [QUESTION, ANSWER]}},
        {"messages": TURNS},
    ),
    (
        "question_answer",
        {"question": QUESTION, "answer": 4},
        {"messages": [user_turn("{question}"), assistant_turn("{answer}")]},
    ),
    (
        "question_answers",
        {"question": QUESTION, "answer": ["200 m", "200 metres"]},
        {"messages": [user_turn("{question}"), assistant_turn("{answer.0}")], "ignore": ["answer.*"]},
    ),
    (
        "rag",
        {"context": "The lake of Uri is 200 m deep.", "question": QUESTION, "answer": "200 m"},
        {"messages": [user_turn("Context:\n{context}", "{question}"), assistant_turn("{answer}")]},
    ),
    (
        "xlam_function_calling",
        {"id": 3, "query": QUESTION, "answers": json.dumps([CALL]), "tools": json.dumps([BARE_SCHEMA])},
        {
            "messages": [user_turn("{query}"), {"role": "assistant", "tool_calls": "answers"}],
            **{"tools": "tools", "ignore": ["id"]},
        },
    ),
    *(
        (
            "question_thinking_answer",
            {"question": "2 + 2?", name: "Two and two.", "answer": "4"},
            {"messages": [user_turn("{question}"), assistant_turn("{answer}", reasoning_content=f"{{{name}}}")]},
        )
        for name in ("thinking", "reasoning", "cot", "Complex_CoT", "rationale", "chain_of_thought")
    ),
    (
        "trl_prompt_completion",
        {"prompt": QUESTION, "completion": ANSWER},
        {"messages": [user_turn("{prompt}"), assistant_turn("{completion}")]},
    ),
    *(
        (
            "question_answer",
            {question: QUESTION, answer: "200"},
            {"messages": [user_turn(f"{{{question}}}"), assistant_turn(f"{{{answer}}}")]},
        )
        for question, answer in (
            *(("question", "answer"), ("query", "response"), ("prompt", "response"), ("problem", "solution")),
            *(("text_input", "output"), ("input_text", "output_text")),
            *(("input", "output"), ("instruction", "response"), ("instruction", "output"), ("user", "assistant")),
        )
    ),
]
