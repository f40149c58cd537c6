"""Entries of rows with turns: a whole conversation in a column, or turns in one and the answer in another."""

from bridgepack.config.layouts.entry import TOOLS, DataSet, PublicLayout, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import (
    ANSWER,
    ANSWERS,
    ASSISTANT,
    EITHER,
    HUB,
    OF_COLUMNS,
    OPEN,
    OPENAI,
    QUESTION,
    QUESTIONS,
    REQUESTS,
    RESPONSES,
    SAID,
    SHAREGPT,
    THOUGHTS,
    TRL,
    USER,
    WHOLE,
    chat,
)

#: Rows with a whole conversation in a column.
CONVERSATIONS: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="messages",
        title="turns with role and content",
        url="https://platform.openai.com/docs/guides/supervised-fine-tuning",
        slots=OPENAI,
        layout=WHOLE,
        before=OF_COLUMNS,
        data_sets=(
            DataSet(
                name="openai",
                title="OpenAI's files for fine-tuning",
                url="https://platform.openai.com/docs/guides/supervised-fine-tuning",
            ),
            DataSet(name="smoltalk", title="SmolTalk", url=f"{HUB}/HuggingFaceTB/smoltalk"),
            DataSet(
                name="ultrachat",
                title="UltraChat, whose prompt is a copy of the first turn",
                url=f"{HUB}/HuggingFaceH4/ultrachat_200k",
                marks=("messages", "prompt", "prompt_id"),
                ignores=("prompt",),
            ),
            DataSet(name="lmsys_chat", title="LMSYS-Chat-1M", url=f"{HUB}/lmsys/lmsys-chat-1m"),
            DataSet(
                name="wildchat",
                title="WildChat",
                url=f"{HUB}/allenai/WildChat-1M",
                marks=("conversation", "conversation_hash", "detoxify_moderation", "toxic"),
                ignores=("messages.header", "header"),
            ),
            DataSet(
                name="nemotron_post_training",
                title="Nemotron post-training, whose reasoning says whether the answer thinks",
                url=f"{HUB}/nvidia/Nemotron-Post-Training-Dataset-v2",
            ),
        ),
    ),
    PublicLayout(
        name="sharegpt",
        title="turns with from and value; some rows may have OpenAI's names",
        url="https://github.com/lm-sys/FastChat/blob/main/data/dummy_conversation.json",
        slots=SHAREGPT,
        layout=WHOLE,
        before=OF_COLUMNS,
        data_sets=(
            DataSet(
                name="openthoughts",
                title="OpenThoughts, with the system text in another column",
                url=f"{HUB}/open-thoughts/OpenThoughts-114k",
            ),
            DataSet(
                name="toolbench",
                title="ToolBench: thoughts, actions and results as text; the system text has the schemas",
                url="https://github.com/OpenBMB/ToolBench",
            ),
        ),
    ),
    PublicLayout(
        name="pairs",
        title="questions with their answers, as objects of input and output, or as lists of two",
        url="https://xtuner.readthedocs.io/en/latest/training/multi_turn_conversation.html",
        slots={
            "turns": slot(
                *("conversation", "conversations", "messages", "dialog", "dialogue", "turns", "rounds", "history"),
                form=Form.PAIRS,
            )
        },
        layout=WHOLE,
        data_sets=(
            DataSet(
                name="xtuner",
                title="XTuner's conversations of input and output",
                url="https://xtuner.readthedocs.io/en/latest/training/multi_turn_conversation.html",
            ),
        ),
    ),
    PublicLayout(
        name="gemini",
        title="contents of parts, as in Gemini's API, whose answers have the role model",
        url="https://ai.google.dev/api/caching#Content",
        slots={
            "turns": slot("contents", form=(Form.OPENAI, Form.SHAREGPT)),
            "instruction": slot("system_instruction", form=Form.VARIABLES, needs="optional"),
        },
        layout=chat({"role": "system", "content": "{instruction.parts}"}, {"from_column": "turns"}),
        before=("*",),
    ),
    PublicLayout(
        name="logged_completion",
        title="a request of OpenAI's API and its completion, each an object, as logs have them",
        url="https://platform.openai.com/docs/api-reference/chat/create",
        slots={
            "request": slot(*REQUESTS, form=Form.ROW),
            "completion": slot("completion", *RESPONSES, form=Form.COMPLETION),
        },
        layout={
            **chat({"from_column": "request.messages"}, {"from_column": "completion.choices.0.message"}),
            "tools": "request.tools",
        },
        before=("*",),
    ),
    PublicLayout(
        name="logged_answer",
        title="a request and the turn of its answer, each an object, as logs of Anthropic's API have them",
        url="https://docs.anthropic.com/en/api/messages",
        slots={
            "request": slot(*REQUESTS, form=Form.ROW),
            "answer": slot(*RESPONSES, form=Form.ANSWER_TURNS),
        },
        layout={
            **chat(
                {"role": "system", "content": "{request.system}"},
                {"from_column": "request.messages"},
                {"from_column": "answer"},
            ),
            "tools": "request.tools",
        },
        before=("*",),
    ),
    PublicLayout(
        name="turns_and_completion",
        title="turns in one column, the completion of OpenAI's API in another",
        url="https://platform.openai.com/docs/api-reference/chat/create",
        slots={
            "turns": slot(*OPEN, form=Form.OPEN_TURNS),
            "completion": slot("completion", *RESPONSES, form=Form.COMPLETION),
        },
        layout=chat({"from_column": "turns"}, {"from_column": "completion.choices.0.message"}),
        before=("*",),
    ),
    PublicLayout(
        name="tools_in_system",
        title="turns whose system text lists the schemas, so that tools is not read",
        url=f"{HUB}/NousResearch/hermes-function-calling-v1",
        slots={
            **EITHER,
            "tools": slot("tools", "functions", form=Form.LISTED_SCHEMAS, needs="sometimes", is_ignored=True),
        },
        layout=WHOLE,
        before=("*",),
        data_sets=(
            DataSet(
                name="hermes_function_calling",
                title="Hermes function calling",
                url=f"{HUB}/NousResearch/hermes-function-calling-v1",
            ),
        ),
    ),
)
#: Rows with turns in one column and the answer in another.
SPLICED: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="turns_and_answer",
        title="turns in one column, the text of the answer in another",
        url=TRL,
        slots={"turns": slot(*OPEN, form=Form.OPEN_TURNS), "answer": ANSWER, "thoughts": THOUGHTS},
        layout=chat({"from_column": "turns"}, ASSISTANT),
        data_sets=(
            DataSet(
                name="llama_nemotron",
                title="Llama-Nemotron, whose reasoning says whether the answer thinks",
                url=f"{HUB}/nvidia/Llama-Nemotron-Post-Training-Dataset",
            ),
        ),
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
        name="prompt_completion_turns",
        title="turns in both prompt and completion, as TRL's conversational format",
        url=TRL,
        slots={
            "turns": slot("gen_ai.input.messages", *OPEN, form=Form.OPEN_TURNS),
            "answer": slot("gen_ai.output.messages", *ANSWERS, form=Form.ANSWER_TURNS),
        },
        layout=chat({"from_column": "turns"}, {"from_column": "answer"}),
        data_sets=(DataSet(name="trl_prompt_completion_turns", title="TRL's conversational format", url=TRL),),
    ),
    PublicLayout(
        name="history",
        title="a question and its answer, and the earlier ones in a list of pairs or of turns, which may be empty",
        url="https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md",
        slots={
            "pairs": slot("history", "chat_history", form=(Form.PAIRS, Form.OPENAI, Form.SHAREGPT), needs="sometimes"),
            "question": slot("instruction", *QUESTIONS, "message", form=SAID),
            "input": slot("input", form=SAID, needs="optional"),
            "answer": ANSWER,
            "thoughts": THOUGHTS,
        },
        layout=chat({"from_column": "pairs"}, {"role": "user", "content": ["{question}", "{input}"]}, ASSISTANT),
        before=("question_answer", "question_thinking_answer", "pairs", "alpaca"),
        data_sets=(
            DataSet(
                name="llama_factory",
                title="LLaMA-Factory's instruction, input, output and history",
                url="https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md",
            ),
            DataSet(
                name="ms_swift",
                title="ms-swift's query, response and history",
                url="https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html",
            ),
        ),
    ),
    PublicLayout(
        name="question_and_turns",
        title="the text of a question, and turns that begin with its answer",
        url=TRL,
        slots={"question": QUESTION, "answer": slot(*ANSWERS, form=Form.ANSWER_TURNS)},
        layout=chat(USER, {"from_column": "answer"}),
    ),
)
