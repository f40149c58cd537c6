"""Entries of rows with a question and its answer in columns of text, of documents, and of rows of token ids.

A context is marked `Context:`, as Dolly's authors mark theirs `Input:`: after an instruction, before a question.
Source of Dolly's and Alpaca's order: databrickslabs/dolly, training/consts.py; tatsu-lab/stanford_alpaca, train.py.
"""

from bridgepack.config.layouts.entry import TOOLS, DataSet, PublicLayout, slot
from bridgepack.config.layouts.forms import TOKEN_COLUMNS, Form
from bridgepack.config.layouts.parts import (
    ANSWERS,
    ASSISTANT,
    CONTEXTS,
    HUB,
    PAIR,
    QUESTION,
    SAID,
    THOUGHTS,
    TRL,
    USER,
    chat,
)

#: Rows with a question and its answer in columns of text.
PAIRS: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="alpaca",
        title="an instruction, an input that may be empty, and the output",
        url="https://github.com/tatsu-lab/stanford_alpaca",
        slots={
            "instruction": slot("instruction", form=SAID),
            "input": slot("input", form=SAID, needs="optional"),
            "answer": slot("output", "response", "answer", "completion", form=SAID),
            "thoughts": THOUGHTS,
        },
        layout=chat({"role": "user", "content": ["{instruction}", "{input}"]}, ASSISTANT),
        marks=("instruction", "input"),
        ignores=("text",),
        before=("question_answer", "question_thinking_answer"),
    ),
    PublicLayout(
        name="instruction_context",
        title="an instruction, a context for it, and the response",
        url=f"{HUB}/databricks/databricks-dolly-15k",
        slots={
            "instruction": slot("instruction", form=SAID),
            "context": slot("context", needs="sometimes"),
            "answer": slot("response", "output", "answer", "completion", form=SAID),
            "thoughts": THOUGHTS,
        },
        layout=chat({"role": "user", "content": ["{instruction}", "Context:\n{context}"]}, ASSISTANT),
        before=("context_question",),
        data_sets=(DataSet(name="dolly", title="Dolly", url=f"{HUB}/databricks/databricks-dolly-15k"),),
    ),
    PublicLayout(
        name="answer_spans",
        title="a context, a question, and answers from the context; only the first is trained",
        url=f"{HUB}/rajpurkar/squad",
        slots={
            "context": slot("context", "passage"),
            "question": slot("question"),
            "answer": slot("answers", "answer", form=Form.SPANS),
        },
        layout=chat(
            {"role": "user", "content": ["Context:\n{context}", "{question}"]},
            {"role": "assistant", "content": "{answer.text.0}"},
        ),
        data_sets=(DataSet(name="squad", title="SQuAD", url=f"{HUB}/rajpurkar/squad"),),
    ),
    PublicLayout(
        name="question_answers",
        title="a question and a list of answers; only the first is trained",
        url=f"{HUB}/google-research-datasets/nq_open",
        slots={
            "question": QUESTION,
            "answer": slot("answer", "answers", "ideal", form=Form.TEXTS),
            "context": slot(*CONTEXTS, needs="optional"),
        },
        layout=chat(
            {"role": "user", "content": ["Context:\n{context}", "{question}"]},
            {"role": "assistant", "content": "{answer.0}"},
        ),
    ),
    PublicLayout(
        name="context_question",
        title="a context, a question about it, and the answer",
        url=f"{HUB}/neural-bridge/rag-dataset-12000",
        slots={
            **PAIR,
            "context": slot(*CONTEXTS, needs="sometimes"),
        },
        layout=chat({"role": "user", "content": ["Context:\n{context}", "{question}"]}, ASSISTANT),
        data_sets=(DataSet(name="rag", title="RAG-12000", url=f"{HUB}/neural-bridge/rag-dataset-12000"),),
    ),
    PublicLayout(
        name="question_calls",
        title="a question, its calls and the schemas, often as JSON text",
        url=f"{HUB}/Salesforce/xlam-function-calling-60k",
        slots={
            "question": QUESTION,
            "calls": slot("answers", "tool_calls", "function_calls", "calls", *ANSWERS, form=Form.CALLS),
            "tools": slot(*TOOLS, form=(Form.SCHEMAS, Form.CALLS), needs="sometimes"),
        },
        layout=chat(USER, {"role": "assistant", "tool_calls": "calls"}),
        before=("question_answer", "question_thinking_answer"),
        data_sets=(
            DataSet(
                name="xlam_function_calling", title="xLAM and APIGen", url=f"{HUB}/Salesforce/xlam-function-calling-60k"
            ),
        ),
    ),
    PublicLayout(
        name="question_thinking_answer",
        title="a question, the reasoning, and the answer",
        url=f"{HUB}/FreedomIntelligence/medical-o1-reasoning-SFT",
        slots={**PAIR, "thoughts": slot(*THOUGHTS.names, form=Form.WORDS, needs="sometimes")},
        layout=chat(USER, ASSISTANT),
    ),
    PublicLayout(
        name="prompt_completion",
        title="a text in both prompt and completion",
        url=TRL,
        slots={"question": slot("prompt", form=SAID), "answer": slot("completion", form=SAID), "thoughts": THOUGHTS},
        layout=chat(USER, ASSISTANT),
        marks=("prompt", "completion"),
        data_sets=(DataSet(name="trl_prompt_completion", title="TRL's standard format", url=TRL),),
    ),
    PublicLayout(
        name="question_answer",
        title="a question and its answer, under any of their usual names",
        url=f"{HUB}/openai/gsm8k",
        slots=PAIR,
        layout=chat(USER, ASSISTANT),
        data_sets=(DataSet(name="gsm8k", title="GSM8K", url=f"{HUB}/openai/gsm8k"),),
    ),
)
#: Rows of plain documents.
DOCUMENTS = PublicLayout(
    name="text",
    title="plain documents; every token is trained",
    url=TRL,
    slots={"text": slot("text", "content", "raw_content", "document", "page_content", "body", "article")},
    layout={"kind": "text", "text": "{text}"},
    is_alone=True,
)
#: Rows of token ids.
TOKENS = PublicLayout(
    name="tokenized",
    title="token ids, with labels or a mask",
    url="https://huggingface.co/docs/transformers/main_classes/data_collator",
    slots={
        "ids": slot(*TOKEN_COLUMNS, form=Form.IDS),
        "mask": slot("loss_mask", form=Form.IDS, needs="optional"),
        "labels": slot("labels", form=Form.IDS, needs="optional"),
        **{name: slot(name, form=Form.IDS, needs="optional") for name in ("attention_mask", "position_ids")},
    },
    layout={"kind": "tokenized", "input_ids": "ids", "loss_mask": "mask", "labels": "labels"},
    before=("*",),
)
