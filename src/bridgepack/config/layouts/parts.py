"""What several entries share: names of columns, slots, turns."""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.layouts.entry import ANY_COLUMN, slot
from bridgepack.config.layouts.forms import Form

HUB = "https://huggingface.co/datasets"
TRL = "https://huggingface.co/docs/trl/dataset_formats"
QUESTIONS = (
    *("question", "query", "prompt", "problem", "instruction", "input", "inputs", "user", "human", "user_prompt"),
    *("user_message", "user_input", "text_input", "input_text"),
)
ANSWERS = (
    *("answer", "response", "solution", "completion", "output", "assistant", "target", "targets", "chosen", "reply"),
    *("generation", "generated_solution", "bot", "gpt", "assistant_response", "model_response", "output_text"),
    "ideal",
)
CONTEXTS = ("context", "passage", "document", "reference", "background")
TURNS = ("messages", "conversations", "conversation", ANY_COLUMN)
OPEN = ("prompt", "input", "messages", "conversation", "conversations", "history", "context", ANY_COLUMN)
ANY = (Form.ANY,)
#: The request of a log, and what was answered.
REQUESTS = ("request", "input", "inputs", "body", "request_body")
RESPONSES = ("response", "output", "outputs", "response_body")
#: The answers of a preference pair.
CHOSEN = ("chosen", "chosen_response", "response_chosen", "accepted", "preferred_output", "preferred", "response_j")
REJECTED = (
    "rejected",
    "rejected_response",
    "response_rejected",
    "non_preferred_output",
    "non_preferred",
    "dispreferred",
    "rejected_messages",
    "rejected_answer",
    "response_k",
)
#: Layouts of columns, which a conversation with the same text comes before.
OF_COLUMNS = (
    *("alpaca", "instruction_context", "answer_spans", "question_answers", "context_question", "prompt_completion"),
    *("question_thinking_answer", "question_answer", "turns_and_answer", "turns_and_calls", "question_and_turns"),
    *("prompt_completion_turns", "history", "prompt_only"),
)
THOUGHTS = slot(
    *("reasoning_content", "thinking", "reasoning", "cot", "complex_cot", "rationale", "chain_of_thought", "thought"),
    *("thoughts", "think", "reasoning_trace", "thinking_trajectory", "thought_process", "reasoning_process"),
    *("thinking_process", "thinking_content", "reasoning_text", "reasoning_steps", "model_reasoning", "scratchpad"),
    *("deepseek_reasoning", "deepseek_thinking_trajectory", "gemini_thinking_trajectory", "cot_reasoning"),
    form=Form.WORDS,
    needs="optional",
)
USER = {"role": "user", "content": "{question}"}
ASSISTANT = {"role": "assistant", "content": "{answer}", "reasoning_content": "{thoughts}"}


def chat(*turns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layout of a conversation."""
    return {"kind": "chat", "messages": turns}


WHOLE = chat({"from_column": "turns"})
OPENAI = {"turns": slot(*TURNS, form=Form.OPENAI)}
SHAREGPT = {"turns": slot(*TURNS, form=(Form.SHAREGPT, Form.OPENAI))}
EITHER = {"turns": slot(*TURNS, form=(Form.OPENAI, Form.SHAREGPT))}
#: A text, which can be a number.
SAID = (Form.TEXT, Form.NUMBER)
ANSWER, QUESTION = slot(*ANSWERS, form=SAID), slot(*QUESTIONS, form=SAID)
PAIR = {"question": QUESTION, "answer": ANSWER, "thoughts": THOUGHTS}
