"""Conversations on which bridgepack and megatron-bridge differ on purpose; each test shows what both do.

- A prefix of the conversation that the template refuses with a Jinja error ends the host's preparation, although its
  own scan for turn markers could tell the turns apart. bridgepack scans: `test_prefix_that_the_template_refuses`.
- A turn with `tool_calls` and no `content`, as OpenAI writes it, ends the host's preparation; bridgepack reads null:
  `test_turn_without_content`.
- The host hands content of any type to the template. bridgepack wants text, null or a list of parts:
  `test_content_that_only_the_host_takes`. It maps aliases of roles: `test_role_names`.
- bridgepack reads tools that are JSON text, and ShareGPT's function calls, which the host gets converted in
  `test_chat_tokenization.py`.

Others, of whole builds, are in `test_docs_differences.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from tests.support.conversations import rows
from tests.support.tokenizers import CHATML_NEEDS_USER, FAMILIES, NEEDS_USER, write_tokenizer
from tests.support.upstream_preprocessing import ChatPair, agreement

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def pair_that_needs_a_user(bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> ChatPair:
    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"), NEEDS_USER)
    return ChatPair(folder, loss_mode="assistant", masks_control_tokens=False)


@settings(deadline=None, max_examples=200)
@given(row=rows())
def test_hostile_prefixes_that_the_template_refuses(pair_that_needs_a_user: ChatPair, row: Row) -> None:
    pair = pair_that_needs_a_user
    (ours,), theirs = pair.ours([row]), pair.host(row)

    if isinstance(theirs, TemplateError) and not isinstance(ours, RowError):
        assert ours == _marked_by_template(pair, row)
    else:
        agreement(ours, theirs)


def test_prefix_that_the_template_refuses(pair_that_needs_a_user: ChatPair) -> None:
    pair = pair_that_needs_a_user
    turns = [("system", "Greet."), ("assistant", "Hello"), ("user", "Who are you?"), ("assistant", "A model.")]
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}

    (ours,), theirs = pair.ours([row]), pair.host(row)

    assert isinstance(theirs, TemplateError)
    assert not isinstance(ours, RowError)
    assert ours == _marked_by_template(pair, row)
    trained = [token for token, bit in zip(*ours, strict=True) if bit]
    assert pair.tokenizer.decode(trained) == "Hello<|im_end|>\nA model.<|im_end|>\n"


def _marked_by_template(pair: ChatPair, row: Row) -> tuple[list[int], list[int]]:
    """Return ids and the mask that the template's own generation blocks give, by transformers alone."""
    conversation = ConversationReader(ChatPreprocessing(), {}).read(row)
    tokenizer = AutoTokenizer.from_pretrained(pair.tokenizer.config.name_or_path)
    output = tokenizer.apply_chat_template(
        conversation.messages,
        tools=conversation.tools,
        chat_template=CHATML_NEEDS_USER,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return output["input_ids"], output["assistant_masks"]


def test_turn_without_content(chatml_pair: ChatPair) -> None:
    call = {"type": "function", "function": {"name": "lookup", "arguments": {"query": "words"}}}
    question = {"role": "user", "content": "Look it up."}
    row = {"messages": [question, {"role": "assistant", "tool_calls": [call]}]}
    row_with_null = {"messages": [question, {"role": "assistant", "content": None, "tool_calls": [call]}]}

    (ours,) = chatml_pair.ours([row])

    assert isinstance(chatml_pair.host(row), ValueError)
    assert agreement(ours, chatml_pair.host(row_with_null)) == "equal"


def test_content_that_only_the_host_takes(tmp_path: Path) -> None:
    pair = ChatPair(write_tokenizer(tmp_path, FAMILIES[-1]), loss_mode="assistant")
    row = {"messages": [{"role": "user", "content": {"text": "Lost"}}, {"role": "assistant", "content": "Yes."}]}

    (ours,) = pair.ours([row])

    assert isinstance(ours, RowError)
    assert ours.reason == DropReason.INVALID_FIELD
    assert not isinstance(pair.host(row), Exception)


def test_role_names(chatml_pair: ChatPair) -> None:
    """The host maps ShareGPT's names in `from` only; bridgepack maps them in `role` too."""
    turns = [("human", "Who are you?"), ("gpt", "A model.")]
    with_from = {"conversations": [{"from": name, "value": text} for name, text in turns]}
    with_role = {"messages": [{"role": name, "content": text} for name, text in turns]}

    expected = chatml_pair.host(with_from)

    assert chatml_pair.ours([with_from, with_role]) == [expected, expected]
    assert isinstance(chatml_pair.host(with_role), TemplateError)
