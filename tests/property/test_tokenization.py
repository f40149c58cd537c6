"""Masks of ChatML conversations against an oracle that knows who wrote each character; any row is taken or refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.data.sequences.chat import ChatEncoder
from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.data.sequences.prompt_completion import PromptCompletionEncoder
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.examples.tokenizer import TURN_END, TURN_START, chatml_template
from bridgepack.records import DropReason
from tests.support.conversations import ROLES, hostile_texts, json_values, rows, texts
from tests.support.cutting import cut, policy_for
from tests.support.tokenizers import CHATML, loaded_tokenizer

Turn = tuple[str, str]

chats = st.lists(st.tuples(st.sampled_from(ROLES), st.one_of(texts, hostile_texts)), min_size=1, max_size=6)
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


@pytest.fixture(scope="module", params=[False, True], ids=["without generation blocks", "with generation blocks"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    template = chatml_template(with_generation_blocks=request.param)
    return loaded_tokenizer(tmp_path_factory.mktemp("tokenizer"), replace(CHATML, template=template))


def _encode(tokenizer: ChatTokenizer, *columns: Mapping[str, Any], **preprocessing: Any) -> list[Encoded | RowError]:
    encoder = ChatEncoder(tokenizer, ChatPreprocessing(**preprocessing), {})
    return encode_examples(encoder, columns)


def _owners(tokenizer: ChatTokenizer, turns: list[Turn]) -> tuple[list[int], list[int | None]]:
    """Return ids, and for each the index of the assistant turn that wrote it: its text, its end and the newline."""
    text = ""
    owner_of: list[int | None] = []
    for index, (role, content) in enumerate(turns):
        header, written = f"{TURN_START}{role}\n", f"{content}{TURN_END}\n"
        text += header + written
        owner_of += [None] * len(header) + [index if role == "assistant" else None] * len(written)
    path = Path(tokenizer.config.name_or_path) / "tokenizer.json"
    encoding = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False)
    return encoding.ids, [owner_of[start] for start, _ in encoding.offsets]


@settings(deadline=None)
@given(turns=chats, mode=st.sampled_from(("assistant", "last_turn", "full")), masks_control_tokens=st.booleans())
def test_trained_is_what_the_assistant_wrote(
    tokenizer: ChatTokenizer, turns: list[Turn], mode: str, masks_control_tokens: bool
) -> None:
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}
    (encoded,) = _encode(tokenizer, row, loss_mode=mode, masks_control_tokens=masks_control_tokens)

    ids, owners = _owners(tokenizer, turns)
    spoken = [index for index, (role, _) in enumerate(turns) if role == "assistant"]
    if mode != "full" and not spoken and not tokenizer.has_generation_blocks:
        assert isinstance(encoded, RowError)
        assert encoded.reason == DropReason.NO_ASSISTANT_MASK
        return
    assert isinstance(encoded, Encoded)
    wanted = {"assistant": set(spoken), "last_turn": set(spoken[-1:]), "full": {None, *spoken}}[mode]
    never = tokenizer.never_trained_ids if masks_control_tokens else frozenset()
    assert encoded.ids == ids
    assert encoded.mask == [
        int(owner in wanted and token not in never) for token, owner in zip(ids, owners, strict=True)
    ]


@settings(deadline=None)
@given(row=rows())
def test_last_turn_is_part_of_assistant_and_full_has_every_other_token(tokenizer: ChatTokenizer, row: Any) -> None:
    assistant, last_turn, full = (
        _encode(tokenizer, row, loss_mode=mode)[0] for mode in ("assistant", "last_turn", "full")
    )

    assert isinstance(assistant, RowError) == isinstance(last_turn, RowError)
    if isinstance(assistant, Encoded) and isinstance(last_turn, Encoded) and isinstance(full, Encoded):
        assert assistant.ids == last_turn.ids == full.ids
        masks = list(zip(last_turn.mask, assistant.mask, full.mask, strict=True))
        assert all(last <= some <= every for last, some, every in masks)
        assert any(last_turn.mask) == any(assistant.mask)
        assert [token for token, bit in zip(full.ids, full.mask, strict=True) if not bit] == [
            token for token in full.ids if token in tokenizer.never_trained_ids
        ]


@settings(deadline=None)
@given(batch=st.lists(rows() | odd_rows, max_size=4), mode=st.sampled_from(("assistant", "last_turn")))
def test_a_row_does_not_depend_on_its_batch(tokenizer: ChatTokenizer, batch: list[Any], mode: str) -> None:
    together = _encode(tokenizer, *batch, loss_mode=mode)
    alone = [_encode(tokenizer, row, loss_mode=mode)[0] for row in batch]

    assert [_plain(item) for item in together] == [_plain(item) for item in alone]


def _plain(item: Encoded | RowError) -> Any:
    return str(item) if isinstance(item, RowError) else item


@settings(deadline=None, max_examples=300)
@given(row=odd_rows, null_content=st.sampled_from(("keep", "empty")), control_tokens=st.sampled_from(("keep", "drop")))
def test_any_row_is_a_chat_or_an_error(
    tokenizer: ChatTokenizer, row: Any, null_content: str, control_tokens: str
) -> None:
    _assert_encoded_or_refused(
        _encode(tokenizer, row, null_content=null_content, control_tokens=control_tokens), tokenizer
    )


@settings(deadline=None)
@given(row=odd_rows)
def test_any_row_is_a_pair_or_an_error(tokenizer: ChatTokenizer, row: Any) -> None:
    settings = {"kind": "prompt_completion", "over_long": "truncate"}
    encoder = PromptCompletionEncoder(tokenizer, PromptCompletionPreprocessing(**settings))

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
