"""Conversations that become several sequences: each answer is trained once, as a server shows it."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.section import without_younger
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import ConfigError, RowError
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.messages import mentions
from tests.support.read_rows import encode_rows
from tests.support.thoughtful import AGENT, PLAIN, TWO_THOUGHTS, said
from tests.zoo import exchanges
from tests.zoo.tokenizers import FAMILIES, Family, write_tokenizer

WHEN = "when_context_differs"
SPLIT = {"split_conversations": WHEN}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_tokenizer(tmp_path_factory.mktemp(name), one) for name, one in exchanges.FAMILIES.items()}


def _encoded(folder: Path, messages: Any, name: str = "exchanges", **settings: Any) -> list[Encoded] | RowError:
    markers = exchanges.FAMILIES[name].assistant_markers if name in exchanges.FAMILIES else {}
    chat = {**SPLIT, **({"assistant_markers": dict(markers)} if markers else {}), **settings}
    encoder = chat_encoder(load_tokenizer(TokenizerConfig(name_or_path=str(folder))), ChatPreprocessing(**chat))
    (made,) = encode_rows(encoder, [{"messages": messages}])
    return made


def _assert_served(server: thoughtful.Server, messages: Any, made: list[Encoded]) -> int:
    """Assert that each answer is trained once, after what a server sends and as it would be written; count them."""
    trained: list[int] = []
    for item in made:
        turns = sorted(item.turns)
        spans = list(thoughtful.spans_of(item.mask))
        assert len(spans) == len(turns)
        for answer, (start, stop) in zip(turns, spans, strict=True):
            served = server.served(messages, answer)
            assert item.ids[:start] == served.context
            assert item.ids[start:stop] == served.answer[: stop - start]
            assert server.decode(served.answer[stop - start :]).strip() in ("", "<|endoftext|>")
        trained += turns
    assert sorted(trained) == thoughtful.answers_of(messages)
    return len(trained)


@pytest.mark.parametrize(
    ("name", "messages", "turns"),
    [
        ("exchanges", TWO_THOUGHTS, [{1}, {3}]),
        ("exchanges", AGENT, [{2, 4, 6}, {8}]),
        ("exchanges", PLAIN, [{1, 3}]),
        ("exchanges-marked", TWO_THOUGHTS, [{1}, {3}]),
        ("exchanges-marked", AGENT, [{2, 4, 6}, {8}]),
        ("keeping", PLAIN, [{1, 3}]),
        ("other-end", PLAIN, [{1}, {3}]),
    ],
)
def test_every_answer_is_trained_once_as_it_is_served(
    folders: dict[str, Path], name: str, messages: Any, turns: list[set[int]]
) -> None:
    made = _encoded(folders[name], messages, name)

    assert not isinstance(made, RowError)
    assert [set(item.turns) for item in made] == turns
    assert _assert_served(thoughtful.Server(folders[name]), messages, made) == len(thoughtful.answers_of(messages))


def test_an_answer_without_a_thought_joins_the_next_sequence(folders: dict[str, Path]) -> None:
    messages = [*PLAIN[:2], *TWO_THOUGHTS, said("user", "three"), said("assistant", "third")]

    made = _encoded(folders["exchanges"], messages)

    assert not isinstance(made, RowError)
    assert [sorted(item.turns) for item in made] == [[1, 3], [5], [7]]
    assert _assert_served(thoughtful.Server(folders["exchanges"]), messages, made) == 4


@pytest.mark.parametrize("messages", [TWO_THOUGHTS, AGENT, PLAIN])
def test_nothing_that_the_server_writes_is_trained_with_mask_generation_prompt(
    folders: dict[str, Path], messages: Any
) -> None:
    made = _encoded(folders["opening"], messages, "opening", mask_generation_prompt=True)

    assert not isinstance(made, RowError)
    server = thoughtful.Server(folders["opening"])
    assert _assert_served(server, messages, made) == len(thoughtful.answers_of(messages))
    assert all("<think>" in server.decode(item.ids) for item in made)


def test_turns_of_weight_0_get_no_piece_and_stay_untrained(folders: dict[str, Path]) -> None:
    messages = [*TWO_THOUGHTS[:1], {**TWO_THOUGHTS[1], "weight": 0}, *TWO_THOUGHTS[2:]]

    made = _encoded(folders["exchanges"], messages, message_weights="mask")

    assert not isinstance(made, RowError)
    assert [set(item.turns) for item in made] == [{3}]
    assert len(list(thoughtful.spans_of(made[0].mask))) == 1


def test_a_row_of_which_the_template_refuses_a_part_is_dropped_with_its_reason(tmp_path: Path) -> None:
    refusing = exchanges.EXCHANGES.replace(
        "{%- set seen", "{%- if messages | length < 3 -%}{{- raise_exception('too few') -}}{%- endif -%}{%- set seen", 1
    )
    family = exchanges.families.Family(name="refusing", template=refusing)

    made = _encoded(write_tokenizer(tmp_path, family), TWO_THOUGHTS, "refusing")

    assert isinstance(made, RowError)
    assert made.reason == "template_error"
    assert mentions(made.detail, "too few; ", "up to turn 2 alone", "split_conversations")


def test_masks_of_pieces_work_where_a_text_has_markers(folders: dict[str, Path]) -> None:
    """An answer quotes the end marker, so that no scan counts; renders of prefixes find the turn."""
    quoting = said("assistant", "say <|im_end|> to stop", reasoning_content="how to stop")
    messages = [TWO_THOUGHTS[0], quoting, *TWO_THOUGHTS[2:]]

    made = _encoded(folders["exchanges"], messages)

    assert not isinstance(made, RowError)
    assert _assert_served(thoughtful.Server(folders["exchanges"]), messages, made) == 2


def test_reasoning_masks_and_lost_content_are_those_of_each_piece(folders: dict[str, Path]) -> None:
    made, masked = (_encoded(folders["exchanges"], TWO_THOUGHTS, reasoning_loss=loss) for loss in ("keep", "mask"))
    never = _encoded(folders["exchanges"], TWO_THOUGHTS, split_conversations="never")

    assert not isinstance(made, RowError)
    assert not isinstance(masked, RowError)
    assert not isinstance(never, RowError)
    assert [loss.kind for loss in never[0].losses] == ["earlier_reasoning"]
    assert [item.losses for item in made] == [(), ()]
    assert all(sum(less.mask) < sum(more.mask) for less, more in zip(masked, made, strict=True))
    assert all(sum(item.mask) > 0 for item in masked)


@pytest.mark.parametrize("loss_mode", ["last_turn", "full"])
def test_splitting_is_refused_with_another_loss_mode(tmp_path: Path, loss_mode: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"split_conversations .*loss_mode is '{loss_mode}'.*Set loss_mode to assist"
    ):
        small.small_recipe("a.jsonl", tmp_path, preprocessing={"kind": "chat", "loss_mode": loss_mode, **SPLIT})


@pytest.mark.parametrize("kind", ["prompt_completion", "tokenized"])
def test_splitting_is_refused_for_rows_that_are_no_chats(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match="split_conversations"):
        small.small_recipe("a.jsonl", tmp_path, preprocessing={"kind": kind, **SPLIT})


def test_never_is_the_default_and_changes_no_fingerprint(folders: dict[str, Path], tmp_path: Path) -> None:
    plain = ChatPreprocessing().model_dump(mode="json")

    assert plain["split_conversations"] == "never"
    assert "split_conversations" not in without_younger(ChatPreprocessing, plain)


#: Families that show an earlier answer otherwise than the last: without its block of thoughts, or with another end.
DIFFERENT = ("chatml-thinking", "harmony")


@pytest.mark.parametrize("family", [one for one in FAMILIES if one.name not in DIFFERENT], ids=lambda one: one.name)
def test_conversations_that_look_alike_stay_one_sequence(tmp_path: Path, family: Family) -> None:
    messages = [*PLAIN, said("user", "three"), said("assistant", "third")]
    folder = write_tokenizer(tmp_path, family)
    markers = {"assistant_markers": dict(family.assistant_markers)} if family.assistant_markers else {}

    split, whole = (_encoded(folder, messages, "", **markers, split_conversations=one) for one in (WHEN, "never"))

    assert not isinstance(split, RowError)
    assert not isinstance(whole, RowError)
    assert [(item.ids, item.mask) for item in split] == [(item.ids, item.mask) for item in whole]
