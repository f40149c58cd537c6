"""`over_long: truncate_history`: old exchanges are left out, and what is left is rendered again."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import check
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.identity import tokenization_settings
from bridgepack.data.repack import plan_repack
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import ConfigError, RowError
from bridgepack.planning.preview import preview_recipe
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.served.served import check_served
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.reporting.results.artifacts import manifest_blocks
from bridgepack.reporting.screen import screen
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.messages import mentions
from tests.support.read_rows import encode_rows
from tests.support.thoughtful import call, said
from tests.zoo import exchanges
from tests.zoo.tokenizers import write_tokenizer

SYSTEM = said("system", "answer in one line")
#: Three exchanges; in the second a call and its result, and a system turn.
LONG = [
    SYSTEM,
    *[said("user", "first question"), said("assistant", "first answer")],
    *[said("user", "second question"), call("words"), said("tool", "ten words"), said("system", "be short")],
    *[said("assistant", "second answer"), said("user", "third question"), said("assistant", "third answer")],
]
CHAT = {"kind": "chat", "over_long": "truncate_history"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("exchanges"), exchanges.FAMILIES["exchanges"])


def _encoded(tokenizer: Path, messages: Any, longest: int, **settings: Any) -> list[Encoded] | RowError:
    chat = ChatPreprocessing(**{"over_long": "truncate_history", **settings})
    loaded = load_tokenizer(TokenizerConfig(name_or_path=str(tokenizer)))
    (made,) = encode_rows(chat_encoder(loaded, chat, max_runtime_length=longest), [{"messages": messages}])
    return made


def _length(tokenizer: Path, messages: Any) -> int:
    (made,) = _encoded(tokenizer, messages, 10**6)  # type: ignore[misc]
    return len(made.ids) - 1


@pytest.mark.parametrize(
    ("kept", "removed", "detail"),
    [
        (LONG, set(), None),
        ([SYSTEM, *LONG[3:]], {1, 2}, "1 exchange, 2 turns"),
        ([SYSTEM, LONG[6], *LONG[8:]], {1, 2, 3, 4, 5, 7}, "2 exchanges, 6 turns"),
    ],
)
def test_whole_exchanges_go_oldest_first_until_the_render_fits(
    tokenizer: Path, kept: Any, removed: set[int], detail: str | None
) -> None:
    longest = _length(tokenizer, kept)

    for length in (longest, longest + 1):
        (made,) = _encoded(tokenizer, LONG, length)  # type: ignore[misc]
        (alone,) = _encoded(tokenizer, kept, 10**6)  # type: ignore[misc]
        assert (made.ids, made.mask) == (alone.ids, alone.mask)
        assert made.removed == removed
        cuts = [loss.detail for loss in made.losses if loss.kind == "cut_history"]
        told = f"{detail} are left out, so that at most {length} runtime tokens remain"
        assert cuts == ([] if detail is None else [told])


def test_turns_behind_the_last_answer_go_first(tokenizer: Path) -> None:
    (made,) = _encoded(tokenizer, [*LONG, said("user", "thank you")], _length(tokenizer, LONG))  # type: ignore[misc]

    assert made.removed == {len(LONG)}


def test_a_result_in_a_user_turn_stays_with_its_call(tokenizer: Path) -> None:
    messages = [*LONG[:4], call("words"), said("user", "ten words"), *LONG[7:]]
    shorter = [SYSTEM, *messages[3:]]

    (made,) = _encoded(tokenizer, messages, _length(tokenizer, shorter) - 1)  # type: ignore[misc]

    assert made.removed == set(range(1, 7))


def test_a_last_exchange_that_is_too_long_is_dropped_with_its_reason(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, [said("user", "a"), said("assistant", "b")]])
    recipe = small.small_recipe(source, tokenizer, preprocessing=CHAT, packing={"packed_sequence_size": 24})

    manifest = small.build(recipe, tmp_path / "out").manifest

    assert manifest.splits[0].drops == {"over_long": 1}
    assert mentions(manifest.splits[0].drop_examples[0].detail, "the last exchange alone", "at most 24")
    assert manifest.splits[0].lost_content == {}


def test_every_proof_reads_a_cut_row_as_the_build_did(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, LONG[:3]])
    longest = _length(tokenizer, [SYSTEM, *LONG[3:]])
    recipe = small.small_recipe(source, tokenizer, preprocessing=CHAT, packing={"packed_sequence_size": longest})

    built = small.build(recipe, tmp_path / "out")

    small.assert_balanced(built.manifest)
    split = built.manifest.splits[0]
    assert split.lost_content["cut_history"] == 1
    assert (split.statistics.num_cut_exchanges, split.statistics.num_cut_turns) == (1, 2)
    assert "1 exchange, 2 turns of 1 row" in screen(manifest_blocks(built.manifest, built.output))
    ledger = (tmp_path / "out" / "plan" / "lost_content.jsonl").read_text()
    assert "1 exchange, 2 turns are left out" in ledger
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(built.output, options).outcome == "same"
    masks = check_masks(built.output, MaskOptions(num_rows=None))
    assert (masks.outcome, masks.num_agreed) == ("agree", 2)
    assert not [finding for finding in check(built.output).findings if finding.severity == "error"]
    notes = preview_recipe(recipe).sources[0].lost_content
    assert [(note.kind, note.num_rows) for note in notes if note.kind == "cut_history"] == [("cut_history", 1)]


def test_cut_answers_are_told_from_what_a_server_sends(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, LONG[:3]])
    longest = _length(tokenizer, [SYSTEM, *LONG[3:]])
    recipe = small.small_recipe(source, tokenizer, preprocessing=CHAT, packing={"packed_sequence_size": longest})

    report = check_served(recipe, MaskOptions(num_rows=None))

    assert {str(count.kind): count.num_answers for count in report.record.counts} == {"cut-on-purpose": 3, "equal": 1}


def test_the_length_is_part_of_the_tokens(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG])
    recipe = small.small_recipe(source, tokenizer, preprocessing=CHAT, packing={"packed_sequence_size": 256})
    built = small.build(recipe, tmp_path / "out").output

    assert tokenization_settings(recipe)["packing.max_sequence_length"] == 256
    dropping = recipe.override({"preprocessing.over_long": "drop"})
    assert "packing.max_sequence_length" not in tokenization_settings(dropping)
    assert plan_repack(built, {"packing.packed_sequence_size": 128}).tokenises_again
    with pytest.raises(ConfigError, match="over_long would be changed"):
        plan_repack(built, {"preprocessing.over_long": "drop"})
    assert not plan_repack(built, {"packing.algorithm": "sequential"}).tokenises_again


def test_it_works_with_split_conversations(tokenizer: Path) -> None:
    """The first exchange stays only where it is trained."""
    thinking = [{**turn, "reasoning_content": "why"} if turn["role"] == "assistant" else turn for turn in LONG]
    longest = _length(tokenizer, [SYSTEM, *LONG[3:]]) + 20

    made = _encoded(tokenizer, thinking, longest, split_conversations="when_context_differs")

    assert not isinstance(made, RowError)
    assert [sorted(item.turns) for item in made] == [[2], [4, 7], [9]]
    assert [item.removed >= {1, 2} for item in made] == [False, True, True]
    assert not any(item.removed & item.turns for item in made)
    assert all(len(item.ids) - 1 <= longest for item in made)
    assert all(sum(item.mask) for item in made)


@pytest.mark.parametrize("kind", ["prompt_completion", "tokenized"])
def test_only_chats_have_a_history(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"over_long.*truncate_history"):
        small.small_recipe("a.jsonl", tmp_path, preprocessing={"kind": kind, "over_long": "truncate_history"})
