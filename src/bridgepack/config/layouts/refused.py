"""Entries of rows that are not read, and why; those of judged answers are in `preferences`."""

from bridgepack.config.layouts.entry import ANY_COLUMN, DataSet, PublicLayout, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import ANSWERS, ANY, CONTEXTS, HUB, QUESTIONS, SAID, TRL

_ONE_EACH = "Write one row for each, with its turns in a column named messages"
_JOIN = (
    "Join both by custom_id, and write the turns of the request (body.messages; Anthropic's params.messages), then the "
    "answer (response.body.choices[0].message; Anthropic's result.message, its role and content), to a column named "
    "messages"
)
#: Turns whose keys say neither role nor content.
_UNKNOWN_KEYS = (
    "they are no list of turns that say who speaks and what, under names that are known. Write a column messages in "
    "their place, a list with a turn of {role: user, content: ..} and one of {role: assistant, content: ..} for each "
    "question and its answer"
)
#: Rows that are not read, and why.
REFUSED: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="multiple_choice",
        title="a question, its choices, and which of them is right, as MMLU's and ARC's",
        url=f"{HUB}/cais/mmlu",
        slots={
            "question": slot(*QUESTIONS),
            "choices": slot("choices", "options", "endings", form=(Form.TEXTS, Form.VARIABLES)),
            "answer": slot("answer", "answer_key", "answer_index", "answer_idx", "label", "correct", form=ANY),
        },
        layout=None,
        refusal="the answer is the number or the letter of a choice. Write each question with its choices, and the "
        "text of the right one as the answer, as turns of a column named messages",
        before=("*",),
        is_alone=True,
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
        name="exported_tree",
        title="messages under their ids, with their parents, as ChatGPT exports them",
        url="https://help.openai.com/en/articles/7260999",
        slots={"mapping": slot("mapping", form=Form.VARIABLES)},
        layout=None,
        refusal="each row is a tree of messages, in mapping. Write one row per path from root to leaf, with its "
        "messages in a column named messages",
        before=("*",),
    ),
    PublicLayout(
        name="listed_conversations",
        title="several conversations in one row",
        url="https://github.com/ShishirPatil/gorilla",
        slots={"conversations": slot(ANY_COLUMN, form=Form.CONVERSATIONS)},
        layout=None,
        refusal=f"a column lists several conversations. {_ONE_EACH}",
        before=("*",),
    ),
    PublicLayout(
        name="wrapped_row",
        title="a conversation inside an object",
        url="https://huggingface.co/docs/dataset-viewer/rows",
        slots={"row": slot(ANY_COLUMN, form=Form.ROW)},
        layout=None,
        refusal="the turns are inside an object. Name their path in data.layout, such as row.messages for the turns in "
        "messages of a column row, and the path of what belongs to them, such as the answer; or, if the object has all "
        "of it, write the object as the row",
    ),
    PublicLayout(
        name="object_answer",
        title="a question, and an answer that is an object or a list",
        url="https://www.json.org",
        slots={
            "question": slot(*QUESTIONS, form=SAID),
            "input": slot("input", form=(*SAID, Form.DATA), needs="optional"),
            "context": slot(*CONTEXTS, needs="optional"),
            "system": slot("system", "system_prompt", needs="optional"),
            "answer": slot(*ANSWERS, form=Form.DATA),
        },
        layout=None,
        refusal="the answer is no text, and a model answers with text. Write the text that the model is to say in its "
        "place (of JSON, json.dumps in Python), or name the path of a text inside it in data.layout, such as "
        "answer.value",
        is_alone=True,
    ),
    PublicLayout(
        name="listed_rows",
        title="a list of rows in one row",
        url="https://huggingface.co/docs/datasets/loading#json",
        slots={"rows": slot(ANY_COLUMN, form=Form.ROWS)},
        layout=None,
        refusal="a column lists the rows. Write each of its objects as a row of its own",
        before=("*",),
        is_alone=True,
    ),
    PublicLayout(
        name="listed_columns",
        title="the questions of all rows in one list, and their answers in another",
        url="https://huggingface.co/docs/datasets/loading#json",
        slots={"questions": slot(*QUESTIONS, form=Form.TEXTS), "answers": slot(*ANSWERS, form=Form.TEXTS)},
        layout=None,
        refusal="each column lists the values of many rows. Write one row for each question and its answer",
        before=("*",),
    ),
    PublicLayout(
        name="listed_texts",
        title="turns as texts, without their speakers",
        url=f"{HUB}/openbmb/UltraChat",
        slots={
            "turns": slot(
                *("messages", "conversations", "conversation", "dialog", "dialogue", "data", "history"), form=Form.TEXTS
            )
        },
        layout=None,
        refusal="nothing tells who says what. Write a column messages in its place, a list with a turn of "
        "{role: user, content: ..} and one of {role: assistant, content: ..} for each question and its answer",
        is_alone=True,
    ),
    PublicLayout(
        name="text_of_rows",
        title="rows, or their turns, as text in one column, in JSON or in Python's notation",
        url="https://jsonlines.org",
        slots={"text": slot(ANY_COLUMN, form=Form.TEXT_OF_TURNS)},
        layout=None,
        refusal="the text holds turns in a form that is not read. Parse it (json.loads in Python; ast.literal_eval for "
        "Python's notation), and write the turns as a list in a column named messages",
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
        title="answers of OpenAI's or Anthropic's batch API, without their questions",
        url="https://platform.openai.com/docs/guides/batch",
        slots={"response": slot("response", "result", form=Form.VARIABLES)},
        layout=None,
        refusal=f"the questions are in the file of the batch's requests. {_JOIN}",
        marks=("custom_id",),
        before=("*",),
    ),
    PublicLayout(
        name="batch_input",
        title="requests of OpenAI's or Anthropic's batch API, without their answers",
        url="https://platform.openai.com/docs/guides/batch",
        slots={"body": slot("body", "params", form=Form.VARIABLES)},
        layout=None,
        refusal=f"the answers are in the file of the batch's output. {_JOIN}",
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
        refusal=_UNKNOWN_KEYS,
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
