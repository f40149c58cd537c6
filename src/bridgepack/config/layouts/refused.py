"""Entries of rows that are not read, and why."""

from bridgepack.config.layouts.entry import ANY_COLUMN, DataSet, PublicLayout, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import ANY, CHOSEN, HUB, REJECTED, TRL

#: Rows that are not read, and why.
REFUSED: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="preference",
        title="a chosen and a rejected answer, as TRL's preference format",
        url=TRL,
        slots={
            "prompt": slot("prompt", "question", "instruction", "input", "query", form=ANY, needs="optional"),
            "chosen": slot(*CHOSEN, form=ANY),
            "rejected": slot(*REJECTED, form=ANY),
        },
        layout=None,
        refusal="they are preference pairs for DPO; supervised training would ignore the rejected answer. To train the "
        "chosen answers alone, write the recipe with `bridgepack new --layout preference_chosen`",
        before=("*",),
    ),
    PublicLayout(
        name="unpaired_preference",
        title="completions with a label, good or bad, as TRL's unpaired preference (KTO)",
        url=TRL,
        slots={
            "prompt": slot("prompt", "question", "messages", form=ANY, needs="optional"),
            "completion": slot("completion", "response", "answer", form=ANY),
            "label": slot("label", form=Form.SWITCH),
        },
        layout=None,
        refusal="label marks bad completions, and supervised training would train them, too. Keep only the rows "
        "whose label is true, and drop the column label",
        before=("*",),
    ),
    PublicLayout(
        name="stepwise",
        title="steps, and a label for each, as TRL's stepwise supervision",
        url=TRL,
        slots={
            "prompt": slot("prompt", form=ANY),
            "steps": slot("completions", form=ANY),
            "labels": slot("labels", form=ANY),
        },
        layout=None,
        refusal="labels judge each step, for training a reward model. Keep prompt and completion of the good ones",
        before=("*",),
    ),
    PublicLayout(
        name="arena",
        title="the conversations of two models, and the winner",
        url=f"{HUB}/lmsys/chatbot_arena_conversations",
        slots={
            "first": slot("conversation_a", "response_a", "answer_a", form=ANY),
            "second": slot("conversation_b", "response_b", "answer_b", form=ANY),
            "prompt": slot("prompt", "question", "instruction", form=ANY, needs="optional"),
        },
        layout=None,
        refusal="they compare two models. Write the winner's conversation to a column named messages",
        before=("*",),
        data_sets=(DataSet(name="lmsys_arena", title="Chatbot Arena", url=f"{HUB}/lmsys/chatbot_arena_conversations"),),
    ),
    PublicLayout(
        name="message_tree",
        title="one message per row, in a tree of messages",
        url=f"{HUB}/OpenAssistant/oasst1",
        slots={"text": slot("text", "content"), "role": slot("role", form=ANY)},
        layout=None,
        refusal="each row is one message of a conversation tree. Write one row per path from root to leaf, with its "
        "messages in a column named messages",
        marks=("parent_id",),
        before=("*",),
        data_sets=(DataSet(name="oasst", title="OpenAssistant", url=f"{HUB}/OpenAssistant/oasst1"),),
    ),
    PublicLayout(
        name="reply_tree",
        title="a message with its replies, in a tree",
        url=f"{HUB}/OpenAssistant/oasst1",
        slots={"root": slot(ANY_COLUMN, form=Form.TREE)},
        layout=None,
        refusal="each row is a tree of messages. Write one row per path from root to leaf, with its messages in a "
        "column named messages",
        before=("*",),
    ),
    PublicLayout(
        name="reply_node",
        title="a message with its replies, in a tree",
        url=f"{HUB}/OpenAssistant/oasst1",
        slots={"text": slot("text", "content"), "replies": slot("replies", form=ANY)},
        layout=None,
        refusal="each row is a tree of messages. Write one row per path from root to leaf, with its messages in a "
        "column named messages",
        before=("*",),
    ),
    PublicLayout(
        name="benchmark",
        title="the questions of a benchmark, whose answers models have yet to give",
        url="https://github.com/lm-sys/FastChat/tree/main/fastchat/llm_judge",
        slots={
            "turns": slot("turns", form=Form.TEXTS),
            "reference": slot("reference", form=ANY, needs="optional"),
        },
        layout=None,
        refusal="they are questions of a benchmark without answers; reference is for its judge, and of some rows "
        "alone. Write each question and an answer of a model as turns of a column named messages",
        before=("*",),
    ),
    PublicLayout(
        name="batch_output",
        title="answers of OpenAI's batch API, without their questions",
        url="https://platform.openai.com/docs/guides/batch",
        slots={"response": slot("response", form=Form.VARIABLES)},
        layout=None,
        refusal="the questions are in the file of the batch's requests. Join both by custom_id, and write "
        "body.messages of the request, then response.body.choices[0].message, to a column named messages",
        marks=("custom_id",),
        before=("*",),
    ),
    PublicLayout(
        name="batch_input",
        title="requests of OpenAI's batch API, without their answers",
        url="https://platform.openai.com/docs/guides/batch",
        slots={"body": slot("body", form=Form.VARIABLES)},
        layout=None,
        refusal="the answers are in the file of the batch's output. Join both by custom_id, and write body.messages of "
        "the request, then response.body.choices[0].message, to a column named messages",
        marks=("custom_id",),
        before=("*",),
    ),
    PublicLayout(
        name="message_rows",
        title="one turn per row, with its role",
        url="https://platform.openai.com/docs/guides/supervised-fine-tuning",
        slots={"role": slot("role", "from", "speaker", form=ANY), "text": slot("content", "value", "text", "message")},
        layout=None,
        refusal="each row is one turn of a conversation. Write one row per conversation, with its turns in a column "
        "named messages",
        before=("text",),
        is_alone=True,
    ),
    PublicLayout(
        name="marked_text",
        title="all turns of a conversation in one text, under the names of their speakers",
        url=f"{HUB}/glaiveai/glaive-function-calling-v2",
        slots={
            "system": slot("system", needs="optional"),
            "chat": slot("chat", "conversation", "text", "dialogue", form=Form.MARKED_TEXT),
        },
        layout=None,
        refusal="the whole conversation is one text, so nothing marks the answers. Split it at the names of the "
        "speakers, such as USER: and ASSISTANT:, into a column named messages; Glaive's data has a ShareGPT form",
        before=("*",),
        is_alone=True,
        data_sets=(
            DataSet(
                name="glaive_function_calling",
                title="Glaive's function calling",
                url=f"{HUB}/glaiveai/glaive-function-calling-v2",
            ),
        ),
    ),
    PublicLayout(
        name="rendered_chat",
        title="conversations in one text, as a chat template writes them",
        url=TRL,
        slots={
            "chat": slot(
                *("text", "chat", "conversation", "dialogue", "content", "formatted", "formatted_chat", "rendered"),
                form=Form.RENDERED_TEXT,
            ),
        },
        layout=None,
        refusal="the text has a template's markers, such as [INST]; as plain documents, the user's turns would be "
        "trained, too. Split it at the markers into a column named messages",
        before=("*",),
        is_alone=True,
    ),
    PublicLayout(
        name="other_turns",
        title="turns under names that are not known, or one turn alone",
        url="https://platform.openai.com/docs/guides/supervised-fine-tuning",
        slots={"turns": slot(ANY_COLUMN, form=Form.OTHER_TURNS), "system": slot("system", needs="optional")},
        layout=None,
        refusal="nothing tells who says what. Write a column messages in their place, a list with a turn of "
        "{role: user, content: ..} and one of {role: assistant, content: ..} for each question and its answer",
        is_alone=True,
    ),
    PublicLayout(
        name="prompt_only",
        title="a question without an answer, as TRL's prompt-only format",
        url=TRL,
        slots={
            "prompt": slot("prompt", "question", "messages", form=(Form.TEXT, Form.OPEN_TURNS)),
            "system": slot("system", "system_prompt", needs="optional"),
        },
        layout=None,
        refusal="they have no answer to train. Add a column with the answer",
        is_alone=True,
    ),
)
