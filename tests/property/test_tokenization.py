"""Masks of ChatML conversations against an oracle that knows who wrote each character; any row is taken or refused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoder import PromptCompletionEncoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.examples.tokenizer import chatml_template
from bridgepack.records import DropReason
from tests.support.conversations import ROLES, json_values, rows, texts
from tests.support.cutting import cut, policy_for
from tests.support.examples import examples
from tests.support.read_rows import ReadingEncoder, encode_examples
from tests.zoo.tokenizers import CHATML, loaded_tokenizer

#: JSON with what no tokenizer encodes: halves of characters.
broken_texts = st.text(st.sampled_from("ab\ud83d\ude00\n"), max_size=4)
any_json = st.recursive(
    json_values | broken_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(broken_texts | texts, inner, max_size=3),
    max_leaves=6,
)
columns = ("messages", "conversations", "conversation", "tools", "system", "prompt", "completion")
turn_keys = ("role", "content", "from", "value", "tool_calls", "reasoning_content")
names = st.sampled_from((*ROLES, "human", "gpt", "function_call", "observation"))
odd_turns = st.fixed_dictionaries({"role": names | any_json}, optional=dict.fromkeys(turn_keys[1:], any_json))
odd_rows = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(columns, any_json) | {"messages": st.lists(odd_turns | any_json, max_size=3)}
)


modes = st.fixed_dictionaries(
    {
        "loss_mode": st.sampled_from(("assistant", "last_turn")),
        "null_content": st.sampled_from(("auto", "keep", "empty")),
        "tool_arguments": st.sampled_from(("auto", "keep")),
        "content_parts": st.sampled_from(("auto", "keep")),
        "control_tokens": st.sampled_from(("keep", "drop")),
    }
)


@pytest.fixture(scope="module", params=[False, True], ids=["without generation blocks", "with generation blocks"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    template = chatml_template(with_generation_blocks=request.param)
    return loaded_tokenizer(tmp_path_factory.mktemp("tokenizer"), replace(CHATML, template=template))


@examples(1.5)
@given(batch=st.lists(rows() | odd_rows, max_size=4), chosen=modes)
def test_rows_are_chats_or_errors_whatever_their_batch(
    tokenizer: ChatTokenizer, batch: list[Any], chosen: dict[str, str]
) -> None:
    settings = ChatPreprocessing(**chosen)  # type: ignore[arg-type]
    encoder = ReadingEncoder(chat_encoder(tokenizer, settings), settings)
    alone = [encode_examples(encoder, [row]) for row in batch]

    assert [_plain(item) for item in encode_examples(encoder, batch)] == [_plain(item) for (item,) in alone]
    for encoded in alone:
        _assert_encoded_or_refused(encoded, tokenizer)


def _plain(item: Encoded | RowError) -> Any:
    return str(item) if isinstance(item, RowError) else item


@settings(deadline=None)
@given(row=odd_rows)
def test_any_row_is_a_pair_or_an_error(tokenizer: ChatTokenizer, row: Any) -> None:
    settings = {"kind": "prompt_completion", "over_long": "truncate"}
    preprocessing = PromptCompletionPreprocessing(**settings)
    encoder = ReadingEncoder(PromptCompletionEncoder(tokenizer, preprocessing), preprocessing)

    whole = encode_examples(encoder, [row])
    encoded = cut(policy_for(settings, 8, tokenizer.eos_token_id), whole)

    _assert_encoded_or_refused(encoded, tokenizer)
    assert all(len(item.ids) <= 9 for item in encoded if isinstance(item, Encoded))


def _assert_encoded_or_refused(encoded: list[Encoded | RowError], tokenizer: ChatTokenizer) -> None:
    (item,) = encoded
    if isinstance(item, RowError):
        assert item.reason in set(DropReason)
        assert item.detail
    else:
        assert len(item.ids) == len(item.mask)
        assert all(0 <= token < tokenizer.vocab_size for token in item.ids)
        assert set(item.mask) <= {0, 1}
