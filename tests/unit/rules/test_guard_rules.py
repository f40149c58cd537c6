"""Rules on a run while it trains: their cases on file, and what they say of many ranks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.records import Finding
from bridgepack.records.guarded import DataOrder, GroupSizes, RankEvidence, RankFacts, RankPlace, ResumeFacts, StepFacts
from bridgepack.rules.judging.judgement import findings_of
from bridgepack.rules.judging.rule import Rule
from bridgepack.rules.registry import GUARD_RULES, RESUME_RULES, STEP_RULES
from bridgepack.rules.training import ResumeRule, StepRule
from tests.support.messages import mentions

CASES = Path(__file__).parents[2] / "rules" / "cases"


def _rank(values: dict[str, Any]) -> RankFacts:
    evidence = values.get("evidence")
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in (evidence or {}).items()}
    place, told = RankPlace(**values["place"]), None if evidence is None else RankEvidence(**lists)
    return RankFacts(**{**values, "place": place, "evidence": told})


def _of(*ranks: RankFacts, is_packed: bool = True, **sizes: int) -> StepFacts:
    return StepFacts(step=1, is_packed=is_packed, ranks=ranks, sizes=GroupSizes(**sizes))


def _case(rule: Rule, name: str) -> StepFacts | ResumeFacts:
    values = json.loads((CASES / f"{rule.code}.json").read_text(encoding="utf-8"))[name]
    if isinstance(rule, ResumeRule):
        before, now = DataOrder(**values["before"]), DataOrder(**values["now"])
        return ResumeFacts(checkpoint=values["checkpoint"], before=before, now=now)
    ranks, sizes = tuple(map(_rank, values["ranks"])), GroupSizes(**values.get("sizes", {}))
    more = {name: values[name] for name in ("settles_gradients", "num_trained") if name in values}
    return StepFacts(step=values["step"], is_packed=values.get("is_packed", True), sizes=sizes, ranks=ranks, **more)


def _found(rule: StepRule | ResumeRule, facts: StepFacts | ResumeFacts) -> list[Finding]:
    return findings_of(rule, list(rule.check(facts)), max_examples=8)  # type: ignore[arg-type]


def _codes(facts: StepFacts | ResumeFacts) -> list[str]:
    rules: tuple[Any, ...] = STEP_RULES if isinstance(facts, StepFacts) else RESUME_RULES
    return [finding.code for rule in rules for finding in _found(rule, facts)]


@pytest.mark.parametrize("rule", GUARD_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")
def test_bad_case_is_reported_by_this_rule_alone_and_the_good_one_is_clean(rule: StepRule | ResumeRule) -> None:
    facts = _case(rule, "bad")
    assert _codes(facts) == [rule.code]
    finding = _found(rule, facts)[0]
    assert all((finding.where, finding.found, finding.allowed))
    assert _codes(_case(rule, "good")) == []


@pytest.mark.parametrize(
    ("index", "field", "text"),
    [
        (0, "where", "step 3, rank 1 (pipeline stage 1 of 0-2)"),
        (0, "found", "4 of 4 forward passes without boundaries (layer 3 self_attention)"),
        (0, "found", "loader gave boundaries in 4 of 4 batches"),
        (1, "found", "micro batch 0: 1 sequences, cu_seqlens [0, 8]"),
        (1, "allowed", "those of rank 0 (tensor rank 0 of 0-1): 2 sequences, cu_seqlens [0, 5, 8]"),
        (3, "found", "1207 trained tokens; micro batch 1 (pack 7): 607 instead of 603"),
        (4, "found", "micro batch 1: nan (pack 7)"),
    ],
)
def test_findings_of_the_bad_cases_name_stage_micro_batch_and_pack(index: int, field: str, text: str) -> None:
    assert text in getattr(_found(STEP_RULES[index], _case(STEP_RULES[index], "bad"))[0], field)


def test_ranks_of_one_stage_are_one_finding_and_stages_are_several() -> None:
    places = [RankPlace(rank=rank, pipeline=rank // 2, tensor=rank % 2) for rank in range(4)]
    ranks = [RankFacts(place=place, num_calls=2, num_without=2) for place in places]
    findings = _found(STEP_RULES[0], _of(*ranks, pipeline=2, tensor=2))
    assert _codes(_of(*ranks, is_packed=False, pipeline=2, tensor=2)) == []
    assert [finding.num_occurrences for finding in findings] == [2, 2]
    assert findings[1].examples == (
        "step 1, rank 2 (pipeline stage 1 of 0-1, tensor rank 0 of 0-1)",
        "step 1, rank 3 (pipeline stage 1 of 0-1, tensor rank 1 of 0-1)",
    )


def test_replicas_may_have_different_boundaries_and_their_ranks_may_not() -> None:
    places = [RankPlace(rank=rank, data=rank // 2, context=rank % 2) for rank in range(4)]
    ranks = [RankFacts(place=place, num_calls=1, boundaries=5 + place.data) for place in places]
    good = _of(*ranks, data=2, context=2)
    bad = replace(good, ranks=(*ranks[:3], replace(ranks[3], boundaries=9)))
    assert _codes(good) == []
    assert _codes(bad) == ["BP891"]
    assert "context rank 1 of 0-1, data-parallel rank 1 of 0-1" in _found(STEP_RULES[1], bad)[0].where


def test_the_rank_that_differs_from_most_is_named() -> None:
    places = [RankPlace(rank=rank, tensor=rank) for rank in range(3)]
    ranks = [RankFacts(place=place, num_calls=1, boundaries=7 if place.rank else 9) for place in places]
    findings = _found(STEP_RULES[1], _of(*ranks, tensor=3))
    assert [finding.where for finding in findings] == ["step 1, rank 0 (tensor rank 0 of 0-2)"]


@pytest.mark.parametrize(
    ("trained", "labels", "expected"),
    [
        (1203, 90, []),
        (1203, -1, []),
        (1203, 91, ["1203 trained tokens with other"]),
        (1204, 90, ["1204 trained tokens"]),
    ],
)
def test_trained_tokens_and_their_labels_are_compared(trained: int, labels: int, expected: list[str]) -> None:
    tokens = {"trained_tokens": trained, "trained_labels": labels, "planned_tokens": 1203, "planned_labels": 90}
    first = RankFacts(place=RankPlace(rank=0), num_calls=1, **tokens)
    texts = [finding.found for finding in _found(STEP_RULES[3], _of(first))]
    assert all(mentions(text, part) for text, part in zip(texts, expected, strict=True))
    if not expected:
        second = RankFacts(place=RankPlace(rank=1, tensor=1), num_calls=1, trained_tokens=1204)
        [finding] = _found(STEP_RULES[3], _of(first, second, tensor=2))
        assert finding.where == "step 1, rank 1 (tensor rank 1 of 0-1)"


def test_packs_without_a_fingerprint_are_not_compared() -> None:
    unknown = DataOrder(fingerprint="", artifact="packs")
    known = DataOrder(fingerprint="3f2a", artifact="packed", seed=1)
    assert _codes(ResumeFacts(checkpoint="c", before=unknown, now=known)) == []
    assert _codes(ResumeFacts(checkpoint="c", before=known, now=unknown)) == ["BP895"]
    assert _codes(ResumeFacts(checkpoint="c", before=known, now=replace(known, seed=None))) == []


def test_rules_judge_many_ranks_quickly() -> None:
    """Every rank judges all of them in every step that is watched."""
    places = [RankPlace(rank=rank, data=rank // 8, tensor=rank % 8) for rank in range(8192)]
    ranks = [RankFacts(place=place, num_calls=4, boundaries=5 + place.data) for place in places]
    assert _codes(_of(*ranks, data=1024, tensor=8)) == []


def _with_gradients(*masks: int, stage: int = 0, num_modules: int = 2, **more: Any) -> list[RankFacts]:
    """Return ranks of a stage that saw gradients of some of its modules."""
    still = ((0, "layer 1 mlp.linear_fc1"), (1, "layer 1 mlp.linear_fc2"))
    return [
        RankFacts(
            place=RankPlace(rank=rank, pipeline=stage, data=rank),
            num_calls=1,
            boundaries=7,
            num_modules=num_modules,
            with_gradient=mask,
            evidence=RankEvidence(still=tuple(one for one in still if not mask >> one[0] & 1)),
            **more,
        )
        for rank, mask in enumerate(masks)
    ]


@pytest.mark.parametrize(
    ("masks", "settles", "found"),
    [
        (
            [0b00, 0b00],
            False,
            "1 mlp.linear_fc1, layer",
        ),
        ([0b01, 0b00], False, None),
        ([0b01, 0b00], True, "any step so far (layer 1 mlp.linear_fc2)"),
        ([0b01, 0b10], True, None),
        ([0b11, 0b00], True, None),
    ],
    ids=["all-at-once", "one-module-may-wait", "one-module-at-the-end", "ranks-together", "one-rank-is-enough"],
)
def test_modules_without_a_gradient_are_judged_over_all_ranks(
    masks: list[int], settles: bool, found: str | None
) -> None:
    facts = replace(_of(*_with_gradients(*masks), data=2), settles_gradients=settles)
    texts = [finding.found for rule in STEP_RULES for finding in _found(rule, facts)]

    assert len(texts) == (found is not None)
    assert all((found or "") in text for text in texts)


def test_a_step_that_trains_no_token_has_no_gradient() -> None:
    assert _codes(replace(_of(*_with_gradients(0, 0, trained_tokens=0)), settles_gradients=True)) == []
    assert _codes(_of(*_with_gradients(0, 0, trained_tokens=3))) == ["BP897"]


def test_a_run_that_trains_no_weight_is_stopped() -> None:
    facts = replace(_of(*_with_gradients(0, num_modules=0)), num_trained=0)

    assert [_found(rule, facts)[0].found for rule in STEP_RULES if _found(rule, facts)] == ["0 trained weights"]
