"""Entries of rows with turns: a whole conversation in a column, or turns in one and the answer in another."""

from bridgepack.config.layouts.entry import TOOLS, PublicLayout, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import (
    ANSWERS,
    ASSISTANT,
    EITHER,
    HUB,
    OF_COLUMNS,
    OPEN,
    OPENAI,
    QUESTIONS,
    SHAREGPT,
    THOUGHTS,
    TRL,
    TURNS,
    USER,
    WHOLE,
    chat,
)

#: Rows with a whole conversation in a column.
CONVERSATIONS: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="openai",
        title="turns with role and content, as OpenAI's fine-tuning takes them",
        url="https://platform.openai.com/docs/guides/supervised-fine-tuning",
        slots=OPENAI,
        layout=WHOLE,
        before=OF_COLUMNS,
    ),
    PublicLayout(
        name="sharegpt",
        title="turns with from and value; some rows may have OpenAI's names",
        url="https://github.com/lm-sys/FastChat/blob/main/data/dummy_conversation.json",
        slots=SHAREGPT,
        layout=WHOLE,
        before=OF_COLUMNS,
    ),
    PublicLayout(
        name="smoltalk",
        title="SmolTalk: messages, and their source",
        url=f"{HUB}/HuggingFaceTB/smoltalk",
        slots=OPENAI,
        layout=WHOLE,
        marks=("messages", "source"),
    ),
    PublicLayout(
        name="ultrachat",
        title="UltraChat: messages; prompt is a copy of the first",
        url=f"{HUB}/HuggingFaceH4/ultrachat_200k",
        slots=OPENAI,
        layout=WHOLE,
        marks=("messages", "prompt", "prompt_id"),
        ignores=("prompt",),
    ),
    PublicLayout(
        name="openthoughts",
        title="OpenThoughts: conversations, with the system text in another column",
        url=f"{HUB}/open-thoughts/OpenThoughts-114k",
        slots={**SHAREGPT, "system": slot("system", needs="sometimes")},
        layout=WHOLE,
        marks=("system", "conversations"),
    ),
    PublicLayout(
        name="lmsys_chat",
        title="LMSYS-Chat-1M: a conversation, its model and moderation",
        url=f"{HUB}/lmsys/lmsys-chat-1m",
        slots=OPENAI,
        layout=WHOLE,
        marks=("conversation", "conversation_id", "openai_moderation"),
    ),
    PublicLayout(
        name="wildchat",
        title="WildChat: a conversation, its model, moderation and origin",
        url=f"{HUB}/allenai/WildChat-1M",
        slots=OPENAI,
        layout=WHOLE,
        marks=("conversation", "conversation_hash", "detoxify_moderation", "toxic"),
        ignores=("messages.header", "header"),
    ),
    PublicLayout(
        name="nemotron_post_training",
        title="Nemotron post-training: messages; reasoning says whether the answer thinks",
        url=f"{HUB}/nvidia/Nemotron-Post-Training-Dataset-v2",
        slots=OPENAI,
        layout=WHOLE,
        marks=("uuid", "generator", "category", "reasoning"),
    ),
    PublicLayout(
        name="toolbench",
        title="ToolBench: conversations of thoughts, actions and results as text; the system text has the schemas",
        url="https://github.com/OpenBMB/ToolBench",
        slots={"turns": slot(*TURNS, form=Form.FUNCTION_TURNS)},
        layout=WHOLE,
        marks=("conversations",),
    ),
    PublicLayout(
        name="hermes_function_calling",
        title="Hermes function calling: the system text lists the schemas, so tools is not read",
        url=f"{HUB}/NousResearch/hermes-function-calling-v1",
        slots={
            **EITHER,
            "tools": slot("tools", "functions", form=Form.LISTED_SCHEMAS, needs="sometimes", is_ignored=True),
        },
        layout=WHOLE,
        before=("*",),
    ),
)
#: Rows with turns in one column and the answer in another.
SPLICED: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="llama_nemotron",
        title="Llama-Nemotron: turns in input, the answer in output; reasoning says whether it thinks",
        url=f"{HUB}/nvidia/Llama-Nemotron-Post-Training-Dataset",
        slots={"turns": slot("input", form=Form.OPEN_TURNS), "answer": slot("output"), "thoughts": THOUGHTS},
        layout=chat({"from_column": "turns"}, ASSISTANT),
        marks=("category", "generator", "license"),
    ),
    PublicLayout(
        name="turns_and_answer",
        title="turns in one column, the text of the answer in another",
        url=TRL,
        slots={"turns": slot(*OPEN, form=Form.OPEN_TURNS), "answer": slot(*ANSWERS), "thoughts": THOUGHTS},
        layout=chat({"from_column": "turns"}, ASSISTANT),
    ),
    PublicLayout(
        name="turns_and_calls",
        title="turns in one column, the calls of the answer in another, and the schemas",
        url=f"{HUB}/Salesforce/xlam-function-calling-60k",
        slots={
            "turns": slot(*OPEN, form=Form.OPEN_TURNS),
            "calls": slot("answers", "tool_calls", "function_calls", "calls", *ANSWERS, form=Form.CALLS),
            "tools": slot(*TOOLS, form=Form.SCHEMAS, needs="sometimes"),
        },
        layout=chat({"from_column": "turns"}, {"role": "assistant", "tool_calls": "calls"}),
        before=("turns_and_answer",),
    ),
    PublicLayout(
        name="trl_prompt_completion_turns",
        title="TRL's conversational prompt and completion: turns in both",
        url=TRL,
        slots={
            "turns": slot(*OPEN, form=Form.OPEN_TURNS),
            "answer": slot(*ANSWERS, form=Form.ANSWER_TURNS),
        },
        layout=chat({"from_column": "turns"}, {"from_column": "answer"}),
    ),
    PublicLayout(
        name="question_and_turns",
        title="the text of a question, and turns that begin with its answer",
        url=TRL,
        slots={"question": slot(*QUESTIONS), "answer": slot(*ANSWERS, form=Form.ANSWER_TURNS)},
        layout=chat(USER, {"from_column": "answer"}),
    ),
)
