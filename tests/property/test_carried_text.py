"""No character that another role wrote is trained, and none of the assistant's is untrained in silence.

In every family of templates, in every loss mode: `tests/support/carried_text.py` says who wrote what.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.sequences.encoding import Encoded
from tests.support.carried_text import carried, conversation_reader, faults
from tests.support.examples import examples
from tests.support.judged_masks import Judged
from tests.support.read_rows import read_row
from tests.zoo.endless import ENDLESS_FAMILIES
from tests.zoo.families import FAMILIES, Family, write_tokenizer

DEEPSEEK = {"assistant_start": ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"], "assistant_end": "<｜end▁of▁sentence｜>"}
REFERENCES: dict[str, dict[str, Any]] = {"qwen3": {}, "deepseek_v3": {"assistant_markers": DEEPSEEK}}
MODES = ("assistant", "last_turn")
#: What people write about templates.
QUOTES = (
    *(
        "[/INST]",
        "[INST]",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|im_start|>",
        "<|im_start|>assistant\n",
        "<|im_end|>",
    ),
    *(
        "<|user|>",
        "<|assistant|>",
        "<|assistant_end|>",
        "<end_of_turn>",
        "<｜Assistant｜>",
        "</s>",
        "<|end|>",
        "<think>",
    ),
)
WORDS = ("The Aare.", "Which river?", "4", "a b\nc", " and ", '{"a": 1}', "x", "")
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map("".join)
texts = st.one_of(words, words, st.lists(st.sampled_from((*WORDS, *QUOTES)), min_size=1, max_size=4).map("".join))
CALL = {"id": "call00001", "type": "function", "function": {"name": "lookup", "arguments": {"city": "Bern"}}}


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw rounds of a question with its answer, some with a call, thoughts or a result at the end."""
    turns = [{"role": "system", "content": draw(words)}] if draw(st.integers(0, 5)) == 0 else []
    for _ in range(draw(st.integers(1, 3))):
        turns.append({"role": "user", "content": draw(texts)})
        if draw(st.integers(0, 2)) == 0:
            content = draw(st.sampled_from(("", None)))
            turns.append({"role": "assistant", "content": content, "tool_calls": [CALL]})
            turns.append({"role": "tool", "tool_call_id": "call00001", "content": draw(texts)})
        if draw(st.integers(0, 9)):
            answer = {"role": "assistant", "content": draw(texts)}
            if draw(st.integers(0, 4)) == 0:
                answer["content"] = f"<think>\n{draw(words)}\n</think>\n\n{answer['content']}"
            turns.append(answer)
    return turns


Judges = dict[str, Judged]


@pytest.fixture(scope="module", params=(*FAMILIES, *ENDLESS_FAMILIES), ids=lambda family: family.name)
def judges(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judges:
    family: Family = request.param
    folder = write_tokenizer(tmp_path_factory.mktemp("carried") / "tokenizer", family)
    return {mode: Judged.of_tokenizer(folder, kind="chat", loss_mode=mode, **family.preprocessing) for mode in MODES}


@examples(0.5)
@given(messages=conversations(), mode=st.sampled_from(MODES))
def test_who_wrote_what_is_trained(judges: Judges, messages: list[dict[str, Any]], mode: str) -> None:
    assert found_faults(judges[mode], messages, mode) in ([], None)


@pytest.mark.reference_data
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REFERENCES)
def test_who_wrote_what_is_trained_by_real_templates(reference_data: Path, name: str, mode: str) -> None:
    folder = reference_data / "tokenizers" / name
    judged = Judged.of_tokenizer(folder, loader="tokenizer_json", kind="chat", loss_mode=mode, **REFERENCES[name])
    seen = []

    @examples(0.5)
    @given(messages=conversations())
    def check(messages: list[dict[str, Any]]) -> None:
        found = found_faults(judged, messages, mode)
        assert found in ([], None)
        seen.append(found)

    check()
    assert seen.count([]) > len(seen) / 8


def found_faults(judged: Judged, messages: list[dict[str, Any]], mode: str) -> list[str] | None:
    """Return what is wrong with a row's mask; None if it has none, or if its text cannot be carried."""
    made = judged.encode({"messages": messages})
    reader = conversation_reader(judged.tokenizer)
    rendered = reader.read(read_row({"messages": messages})).messages if isinstance(made, Encoded) else []
    chat = carried(judged.tokenizer, rendered) if isinstance(made, Encoded) else None
    if chat is None:
        return None
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return list(faults(judged.tokenizer, chat, made, answers[-1:] if mode == "last_turn" else answers))


def test_faults_are_found(judges: Judges) -> None:
    judged = judges["assistant"]
    messages = [{"role": role, "content": f"{role} {number}"} for number in "12" for role in ("user", "assistant")]
    made, chat = judged.encode({"messages": messages}), carried(judged.tokenizer, messages)

    assert isinstance(made, Encoded)
    assert chat is not None
    assert list(faults(judged.tokenizer, chat, made, [1, 3])) == []
    assert {text[:21] for text in faults(judged.tokenizer, chat, made, [3])} == {"message 2 is trained:"}
    nothing = made._replace(mask=[0] * len(made.mask))
    assert {text[:9] for text in faults(judged.tokenizer, chat, nothing, [1, 3])} == {"message 2", "message 4"}
