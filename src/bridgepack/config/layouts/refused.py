"""Entries of rows that are not read, and why."""

from bridgepack.config.layouts.entry import ANY_COLUMN, DataSet, PublicLayout, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import ANY, HUB, TRL

#: Rows that are not read, and why.
REFUSED: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="preference",
        title="a chosen and a rejected answer, as TRL's preference format",
        url=TRL,
        slots={
            "prompt": slot("prompt", "question", "instruction", "input", "query", form=ANY, needs="optional"),
            "chosen": slot("chosen", "chosen_response", "response_chosen", "accepted", form=ANY),
            "rejected": slot("rejected", "rejected_response", "response_rejected", form=ANY),
        },
        layout=None,
        refusal="they are preference pairs for DPO; supervised training would ignore the rejected answer. To train the "
        "chosen answers alone, name their columns in data.layout, and rejected in its ignore",
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
        slots={"text": slot("text"), "role": slot("role", form=ANY)},
        layout=None,
        refusal="each row is one message of a conversation tree. Write one row per path from root to leaf, with its "
        "messages in a column named messages",
        marks=("message_id", "parent_id"),
        before=("*",),
        data_sets=(DataSet(name="oasst", title="OpenAssistant", url=f"{HUB}/OpenAssistant/oasst1"),),
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
        title="turns whose fields are not role and content, or from and value",
        url="https://platform.openai.com/docs/guides/supervised-fine-tuning",
        slots={"turns": slot(ANY_COLUMN, form=Form.OTHER_TURNS), "system": slot("system", needs="optional")},
        layout=None,
        refusal="their turns have neither role and content nor from and value. Rename these fields",
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
