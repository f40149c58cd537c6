"""Every rule reports its bad case and not its good one, on runs and on artifacts; changes mend a run."""

import copy
import dataclasses
import re
from pathlib import Path

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.records import Finding
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import Rule, RunRule, Severity
from bridgepack.rules.registry import ALL_RULES, ARTIFACT_RULES, RUN_RULES
from tests.support.artifact_mutations_rows import stored_lengths_aligned
from tests.support.messages import mentions
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines
from tests.unit.rules.in_memory_artifact import check
from tests.unit.rules.run_cases import CASES, cases_of, content_of, set_value, subject_of

each_rule = pytest.mark.parametrize("rule", RUN_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")


def _wrong_plurals(finding: Finding) -> list[str]:
    """Return `1 packs` and the like; `0 or 1 packs` and `of 1 packs` are right."""
    text = f"{finding.found} | {finding.allowed} | {finding.fix}"
    nouns = "rows|packs|sequences|tokens|shards|steps|drops|pieces|stages|layers|GPUs|ranks|processes|batches|nodes"
    return re.findall(rf"(?<!of )(?<!or )(?<![\d.,])\b1 (?:{nouns})\b", text)


@each_rule
def test_bad_case_is_reported(rule: RunRule) -> None:
    for case in cases_of(rule, "bad"):
        judgement = judge_run(subject_of(case), [rule])
        assert [finding.code for finding in judgement.findings], f"not reported: {case}"
        for finding in judgement.findings:
            assert (finding.code, finding.severity) == (rule.code, rule.severity)
            assert all((finding.where, finding.found, finding.allowed))
            assert _wrong_plurals(finding) == []


@each_rule
def test_good_case_is_judged_and_passes_and_breaks_no_other_rule(rule: RunRule) -> None:
    for case in cases_of(rule, "good"):
        judgement = judge_run(subject_of(case), RUN_RULES)
        assert rule.code in judgement.rules_run
        broken = {found.code for found in judgement.findings if found.severity != Severity.ADVICE}
        assert broken <= set(content_of(rule).get("also_in_good", [])) - {rule.code}
        assert rule.code not in {found.code for found in judgement.findings}


@pytest.mark.parametrize(("speaks", "silent"), [("BP726", "BP819"), ("BP810", "BP032")])
def test_one_fault_of_two_rules_gives_one_finding(speaks: str, silent: str) -> None:
    [cases] = [cases_of(rule, "bad") for rule in RUN_RULES if rule.code == speaks]
    for case in cases:
        judgement = judge_run(subject_of(case), [rule for rule in RUN_RULES if rule.code in (speaks, silent)])
        assert {finding.code for finding in judgement.findings} == {speaks}


@each_rule
def test_changes_mend_the_bad_case(rule: RunRule) -> None:
    for case in cases_of(rule, "bad"):
        subject = subject_of(case)
        findings = judge_run(subject, [rule]).findings
        if not all(finding.changes for finding in findings):
            continue
        values = copy.deepcopy(dict(subject.config.values))
        for change in (change for finding in findings for change in finding.changes):
            set_value(values, change.path, change.value)
        mended = dataclasses.replace(subject, config=dataclasses.replace(subject.config, values=values))
        assert judge_run(mended, [rule]).findings == ()


def test_packs_of_an_earlier_host_are_reported_once(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [tokenized_row(*range(10 + index, 17 + index)) for index in range(16)]
    train = write_json_lines(tmp_path / "train.jsonl", rows)
    recipe = tokenized_recipe(train, chatml_tokenizer, packing__pad_seq_to_mult=4)
    packs = build(recipe, tmp_path / "packs").output
    stored_lengths_aligned.apply(packs)

    def codes(target: object, **options: object) -> set[str]:
        report = check_target(target, CheckOptions(looks_at_files=False, **options))  # type: ignore[arg-type]
        return {finding.code for finding in report.findings}

    assert codes(packs) & {"BP308", "BP967"} == {"BP308"}
    assert codes(recipe, artifact=packs) & {"BP308", "BP967"} == {"BP967"}


def test_settings_that_do_not_fit_the_packs_are_reported_once_by_the_recipes_fields(
    tmp_path: Path, chatml_tokenizer: Path
) -> None:
    train = write_json_lines(tmp_path / "train.jsonl", [tokenized_row(*range(10, 15))] * 16)
    recipe = tokenized_recipe(train, chatml_tokenizer, packing__pad_seq_to_mult=4, data__validation_fraction=0.25)
    packs = build(recipe, tmp_path / "packs").output

    def found(change: str, value: int) -> dict[str, str]:
        report = check_target(recipe, CheckOptions(looks_at_files=False, artifact=packs, overrides={change: value}))
        return {finding.code: finding.where for finding in report.findings}

    too_wide = found("parallelism.context_parallel_size", 4)
    assert too_wide["BP106"] == "training"
    assert "BP121" not in too_wide
    assert found("batch.eval_global_batch_size", 64)["BP604"] == "batch.eval_global_batch_size"
    assert found("packing.packed_sequence_size", 18).keys() & {"BP102", "BP103", "BP104", "BP127"} == {"BP127"}


def test_every_rule_has_cases_and_every_case_a_rule() -> None:
    assert {path.stem for path in CASES.glob("*.json")} == {rule.code for rule in ALL_RULES}


@pytest.mark.parametrize("rule", ARTIFACT_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")
def test_bad_artifact_is_reported(rule: Rule) -> None:
    content = content_of(rule)
    report = check(content["bad"])
    assert {finding.code for finding in report.findings} == {rule.code, *content.get("also", [])}
    finding = next(finding for finding in report.findings if finding.code == rule.code)
    assert (finding.name, finding.severity, finding.why) == (rule.name, rule.severity, rule.why)
    assert finding.fix == content.get("fix", rule.fix)
    assert all((finding.where, finding.found, finding.allowed))
    assert _wrong_plurals(finding) == []
    assert finding.examples[0] == finding.where


@pytest.mark.parametrize("rule", ARTIFACT_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")
def test_good_artifact_is_clean(rule: Rule) -> None:
    report = check(content_of(rule)["good"])
    assert report.findings == ()
    assert rule.code in report.rules_run


def test_batches_that_divide_the_validation_packs_are_named() -> None:
    """8 data-parallel ranks read 24 packs in batches of 16: 8 and 24 divide them. Nothing divides 20."""
    (rule,) = (rule for rule in RUN_RULES if rule.code == "BP606")
    case = copy.deepcopy(cases_of(rule, "bad")[0])
    (finding,) = judge_run(subject_of(case), [rule]).findings
    case["set"] |= {"validation.eval_global_batch_size": 16, "validation.eval_iters": 1}
    case["artifact"]["rows"]["validation"][0]["times"] = 24
    (other,) = judge_run(subject_of(case), [rule]).findings

    assert finding.found == "2 x 8 of 20 packs are read"
    assert mentions(finding.fix, "fewer GPUs, ", "validation data ", "multiple of 8 packs")
    assert other.fix == "Set validation.eval_global_batch_size to 8 (eval_iters 3) or 24 (eval_iters 1)."
