"""What the guard says."""

import json
import re
from dataclasses import replace

from bridgepack.records.guarded import GroupSizes, RankEvidence, RankFacts, RankPlace, StepFacts
from bridgepack.rules.judging.judgement import findings_of
from bridgepack.rules.registry import STEP_RULES
from bridgepack.running.guard.report import Alarm, watched_notice
from tests.support.docs_blocks import blocks

PLACES = [RankPlace(rank=rank, pipeline=rank) for rank in range(3)]


def _facts(*, num_without: int = 0) -> StepFacts:
    ranks = tuple(
        RankFacts(
            place=place,
            num_calls=4,
            num_without=num_without if place.pipeline == 1 else 0,
            boundaries=0 if num_without and place.pipeline == 1 else 7,
            trained_tokens=1203 if place.pipeline == 2 else -1,
            planned_tokens=1203 if place.pipeline == 2 else -1,
            num_modules=2,
            with_gradient=0b11,
            evidence=RankEvidence(host="node7", without=("layer 9 self_attention",) if place.pipeline == 1 else ()),
        )
        for place in PLACES
    )
    return StepFacts(step=3, is_packed=True, sizes=GroupSizes(pipeline=3), ranks=ranks)


def _alarm(facts: StepFacts) -> Alarm:
    found = [finding for rule in STEP_RULES for finding in findings_of(rule, rule.check(facts), max_examples=8)]
    return Alarm(findings=tuple(found), facts=facts)


def test_the_page_shows_what_the_guard_says() -> None:
    without = ("model chunk 0", "layer 3 self_attention", "layer 4 self_attention")
    evidence = RankEvidence(from_loader="boundaries in 4 of 4 batches", without=without)
    ranks = tuple(
        RankFacts(place=place, num_calls=4, num_without=4 * (place.rank == 1), evidence=evidence) for place in PLACES
    )
    alarmed = _alarm(StepFacts(step=1, is_packed=True, sizes=GroupSizes(pipeline=3), ranks=ranks))
    watched = watched_notice(range(1, 6), replace(_facts(), ranks=_facts().ranks * 5 + _facts().ranks[:1]))
    alarm, notice, _ = blocks("text", page="trace.md", section="The guard")

    assert alarm.text == f"{alarmed.text()}\n"
    assert re.sub(r"\d+ trained", "N trained", notice.text) == re.sub(r"\d+ trained", "N trained", f"{watched.text}\n")


def test_findings_of_one_rule_are_explained_once_and_a_record_is_plain_and_has_the_evidence() -> None:
    alarm = _alarm(_facts(num_without=4))
    text = Alarm(findings=(alarm.findings[0],) * 2, facts=_facts()).text()
    record = json.loads(json.dumps(alarm.record()))

    assert [text.count(part) for part in ("  where: ", "  why: ", "bridgepack explain")] == [2, 1, 1]
    assert (record["kind"], record["step"], record["num_ranks"]) == ("guard-violation", 3, 3)
    assert record["findings"][0]["code"] == "BP890"
    assert record["ranks"][1]["evidence"]["host"] == "node7"


def test_a_notice_promises_nothing_that_was_not_looked_at() -> None:
    own = RankFacts(place=RankPlace(rank=0), num_calls=4, trained_tokens=100)
    notice = watched_notice([7], StepFacts(step=7, is_packed=False, ranks=(own,)))

    assert notice.text == "guard: step 7 on 1 ranks: finite losses."
    assert notice.facts["trained_tokens_of_last_step"] is None
