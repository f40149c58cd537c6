"""Masks of hostile conversations in every family of templates: derivations agree, and every change of a mask is found.

Role markers in a user's text, empty turns, emoji, very long words, right-to-left text: see tests/support/conversations.
"""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridgepack.errors import RowError
from bridgepack.proof.masks.chats import MARKS, PREFIXES
from bridgepack.proof.masks.prefixes import NO_PROMPT
from tests.support.conversations import CONTROL_TOKENS, rows
from tests.support.examples import examples
from tests.support.judged_masks import Judged
from tests.zoo.judged import JUDGED_FAMILIES, PROMPTED
from tests.zoo.tokenizers import AMBIGUOUS, Family

#: Families whose mask, Megatron-Bridge's too, loses part of an answer that holds the template's own control tokens.
LOSING = ("harmony", "harmony-prompted", "chatml-stripping")
NOT_TRAINED = {"answer-not-trained", "turn-not-trained", "end-of-turn-not-trained", "mask-shifted"}
#: Families that begin the last turn with thoughts. With `last_turn` Megatron-Bridge trains their beginning in the
#: turn before, too, where that is also the assistant's.
THINKING = ("gemma-thinking", "chatml-thinking")
#: Families that write an answer in another way once the conversation goes on, and not only without its beginning.
UNSTABLE = ("harmony", "harmony-prompted", "chatml-thinking")
PROMPTED_NAMES = {family.name for family in PROMPTED}
PLAIN = (("user", "Who asks?"), ("assistant", "The user."), ("user", "And then?"), ("assistant", "An answer."))

#: An answer that is how harmony's end of the last turn ends.
END_OF_A_MARKER = {
    "messages": [
        {"role": role, "content": words}
        for words in (">", "", "0000")
        for role, words in (("user", ""), ("assistant", words))
    ]
}


@pytest.fixture(scope="module", params=JUDGED_FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def judged(family: Family, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    folder = tmp_path_factory.mktemp(family.name)
    return {mode: Judged.of(folder / mode, family, loss_mode=mode) for mode in ("assistant", "last_turn", "full")}


@examples(0.25)
@given(row=rows(), mode=st.sampled_from(("assistant", "last_turn", "full")))
@example(row=END_OF_A_MARKER, mode="assistant")
def test_derivations_agree(judged: dict[str, Judged], family: Family, row: Any, mode: str) -> None:
    made = judged[mode].encode(row)
    if isinstance(made, RowError):
        return
    verdict = judged[mode].judge_encoded(row, made)

    if family.name in LOSING and _holds_control_tokens(row):
        assert {finding.kind for finding in verdict.findings} <= NOT_TRAINED
    elif family.name in THINKING and mode == "last_turn" and _answers_twice(row):
        assert {finding.kind for finding in verdict.findings} <= {"other-turn-trained"}
    else:
        assert verdict.findings == ()
    assert set(verdict.reasons) == set(judged[mode].names)
    assert all(verdict.reasons[name] for name in verdict.silent)


@examples(0.25)
@given(row=rows(), place=st.floats(0, 1, exclude_max=True))
def test_changed_and_shifted_masks_are_found(judged: dict[str, Judged], family: Family, row: Any, place: float) -> None:
    pair = judged["assistant"]
    made = pair.encode(row)
    holds_control_tokens = _holds_control_tokens(row)
    if isinstance(made, RowError) or (family.name in LOSING and holds_control_tokens):
        return
    token = int(place * len(made.mask))
    changed = [bit ^ (index == token) for index, bit in enumerate(made.mask)]
    verdict = pair.judge_encoded(row, made._replace(mask=changed))

    kinds = {finding.kind for finding in verdict.findings}
    if kinds:
        assert kinds <= (NOT_TRAINED if made.mask[token] else {"other-turn-trained", "mask-shifted"})
        assert all(finding.derivations and len(finding.texts) > 1 for finding in verdict.findings)
    text = pair.tokenizer.decode([made.ids[token]])
    is_solid = bool(text) and not any(character.isspace() for character in text)
    has_whole_judge = any(verdict.reasons.get(name) == () for name in (PREFIXES, MARKS))
    assert kinds or not (is_solid and has_whole_judge), text

    if any(made.mask) and not holds_control_tokens:
        reasons = pair.judge_encoded(row, made).reasons
        for mask in ([*made.mask[1:], 0], [0, *made.mask[:-1]]):
            if mask != made.mask and () in (reasons[PREFIXES], reasons[MARKS]):
                assert pair.judge_encoded(row, made._replace(mask=mask)).findings


def _answers_twice(row: Any) -> bool:
    roles = [message["role"] for message in row["messages"]]
    return ("assistant", "assistant") in pairwise(roles)


def _holds_control_tokens(row: Any) -> bool:
    text = json.dumps(row, ensure_ascii=False)
    return any(token in text for token in CONTROL_TOKENS)


def test_every_family_is_judged(judged: dict[str, Judged], family: Family) -> None:
    turns = PLAIN[:2] if family is AMBIGUOUS else PLAIN
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}
    verdict = judged["assistant"].verdict(row)

    assert verdict.findings == ()
    assert not verdict.silent
    if family.name in PROMPTED_NAMES:
        assert verdict.reasons[MARKS] == ()
    if family.name not in UNSTABLE:
        assert set(verdict.reasons[PREFIXES]) <= {NO_PROMPT}
