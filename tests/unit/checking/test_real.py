"""The host's own verdict in a report: every state is said, and a fault that our rules explain is reported once."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bridgepack.bridge.validating import ask
from bridgepack.checking import real
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.records import HostVerdict
from bridgepack.reporting.formats import render_report
from bridgepack.rules.host_itself import refused_by_the_host_itself
from bridgepack.rules.judging.environment import Environment
from bridgepack.rules.judging.report import CheckReport
from tests.unit.rules.run_cases import cases_of

RECIPE = {
    "name": "mine",
    "data": {"train": "train.jsonl"},
    "tokenizer": {"name_or_path": "some/tokenizer"},
    "packing": {"packed_sequence_size": 4096},
    "parallelism": {"num_gpus": 8},
    "batch": {"global_batch_size": 8},
    "model": {"name": "llama32_1b_sft_1gpu_h100_bf16_config"},
    "checkpoint": {"pretrained": "/checkpoints/llama"},
}
GROUPS = "ValueError: When using group limited routing, moe_router_num_groups must be specified."
REFUSED = HostVerdict(
    state="refused",
    reason=GROUPS,
    version="0.6.2",
    stage="validate()",
    where=("model.moe_router_num_groups",),
    place="megatron/core/transformer/transformer_config.py:2350",
    world_size=8,
    seconds=18.2,
)


def checked(monkeypatch: pytest.MonkeyPatch, verdict: HostVerdict, **changes: Any) -> CheckReport:
    monkeypatch.setattr(real, "host_verdict", lambda *_, **__: verdict)
    recipe = {**RECIPE, **{name: changes.pop(name) for name in ("bridge_overrides", "ignore") if name in changes}}
    return check_target(recipe, CheckOptions(real_validate=True, looks_at_files=False, **changes))


def errors(report: CheckReport) -> list[str]:
    return [finding.code for finding in report.findings if finding.severity == "error"]


def test_a_refusal_is_one_error_in_the_users_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    report = checked(monkeypatch, REFUSED)
    [finding] = [finding for finding in report.findings if finding.severity == "error"]
    assert (finding.code, finding.where) == ("BP993", "bridge_overrides.model.moe_router_num_groups")
    assert finding.found == GROUPS
    assert "transformer_config.py:2350" in finding.allowed
    assert "BP993" in report.rules_run
    assert report.fails()


def test_our_own_error_explains_a_refusal_and_is_reported_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"model": {"moe_router_group_topk": 2}}
    report = checked(monkeypatch, REFUSED, bridge_overrides=overrides)
    assert errors(report) == ["BP870"]
    assert f"megatron-bridge 0.6.2 itself refuses the run (8 GPUs, 18 s): {GROUPS}" in render_report(report)
    assert json.loads(render_report(report, "json"))["real_validate"]["state"] == "refused"


def test_what_to_bridge_refuses_is_explained_by_the_finding_whose_code_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"scheduler": {"lr_decay_steps": 5}, "model": {"moe_router_group_topk": 2}}
    told = HostVerdict(state="refused", reason="it computes this", version="0.6.2", stage="to_bridge", code="BP851")
    assert errors(checked(monkeypatch, told, bridge_overrides=overrides)) == ["BP851", "BP870"]
    # A folder of the user's may have a code in its name.
    told = HostVerdict(state="refused", reason="'/runs (BP851)/x' is no folder", version="0.6.2", stage="to_bridge")
    assert "BP993" in errors(checked(monkeypatch, told, bridge_overrides=overrides))
    # validate(), which BP870 is about, was never reached: BP870 does not explain other words.
    told = HostVerdict(state="refused", reason="model.name cannot be made", version="0.6.2", stage="to_bridge")
    assert "BP993" in errors(checked(monkeypatch, told, bridge_overrides=overrides))


def test_an_ignored_error_of_ours_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"model": {"moe_router_group_topk": 2}}
    report = checked(monkeypatch, REFUSED, bridge_overrides=overrides, ignore={"BP870": "believed to be wrong"})
    assert errors(report) == ["BP993"]
    report = checked(monkeypatch, REFUSED, ignore={"BP993": "of an older host"})
    assert errors(report) == []
    assert [item.finding.code for item in report.suppressed] == ["BP993"]


def test_warnings_and_later_errors_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"model": {"num_layers": 15, "pipeline_model_parallel_size": 2}}
    report = checked(monkeypatch, REFUSED, bridge_overrides=overrides)
    assert {"BP820", "BP993"} <= set(errors(report))  # BP820 is noticed when the model is built


@pytest.mark.parametrize("state", ["absent", "not importable", "other version", "not judged"])
def test_every_state_without_a_verdict_is_said_in_every_form(monkeypatch: pytest.MonkeyPatch, state: Any) -> None:
    report = checked(monkeypatch, HostVerdict(state=state, reason="because of this"))
    said = "not validated by Megatron-Bridge itself: because of this"
    assert "BP993" not in report.rules_run
    assert [rule.reason for rule in report.rules_skipped if rule.code == "BP993"] == ["because of this"]
    assert said in render_report(report)
    assert f"::notice title=real-validate::{said}" in render_report(report, "github")
    content = json.loads(render_report(report, "json"))["real_validate"]
    assert (content["state"], content["reason"]) == (state, "because of this")
    [invocation] = json.loads(render_report(report, "sarif"))["runs"][0]["invocations"]
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == said
    assert not report.fails()


def test_acceptance_is_said_with_version_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = HostVerdict(state="accepted", version="0.6.2", world_size=1, seconds=17.6)
    text = render_report(checked(monkeypatch, accepted))
    assert text.rstrip().endswith("megatron-bridge 0.6.2 itself accepts the run (1 GPU, 18 s)")


def test_nothing_is_asked_or_said_without_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "host_verdict", lambda *_, **__: pytest.fail("asked"))
    report = check_target(RECIPE, CheckOptions(looks_at_files=False))
    assert report.host is None
    assert not {"BP993"} & {rule.code for rule in report.rules_skipped}
    assert "itself" not in render_report(report)
    report = check_target(RECIPE, CheckOptions(looks_at_files=False, select=["BP993"]))
    assert [rule.reason for rule in report.rules_skipped] == [
        "the installed Megatron-Bridge is asked only with --real-validate"
    ]


@pytest.mark.parametrize(
    ("installed", "options", "state"),
    [
        ({}, {}, "absent"),
        ({"megatron-bridge": "0.5.1"}, {}, "other version"),
        ({"megatron-bridge": "0.6.2"}, {"bridge_version": "0.7.0"}, "other version"),
    ],
)
def test_no_process_is_started_where_the_host_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, installed: Mapping[str, str], options: Mapping[str, Any], state: str
) -> None:
    monkeypatch.setattr(ask, "environment_here", lambda: Environment(versions=installed, origin="a test"))
    monkeypatch.setattr(ask.subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    report = check_target(RECIPE, CheckOptions(real_validate=True, looks_at_files=False, **options))
    assert report.host is not None
    assert report.host.state == state
    without_model = {name: value for name, value in RECIPE.items() if name != "model"}
    monkeypatch.setattr(ask, "environment_here", lambda: Environment(versions={"megatron-bridge": "0.6.2"}, origin=""))
    report = check_target(without_model, CheckOptions(real_validate=True, looks_at_files=False))
    assert report.host is not None
    assert report.host.reason.startswith("model is missing, ")


def test_case() -> None:
    def found(kind: str) -> list[Any]:
        rule = refused_by_the_host_itself
        verdicts = [HostVerdict(**{**case, "where": tuple(case.get("where", ()))}) for case in cases_of(rule, kind)]
        return [list(rule.check(verdict)) for verdict in verdicts]

    assert [len(one) for one in found("bad")] == [1, 1]
    assert found("good") == [[]]
