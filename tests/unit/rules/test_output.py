"""Text and JSON of a report."""

import json

from bridgepack.records import Finding
from bridgepack.rules import CheckReport, SkippedRule, render_json, render_text

FINDING = Finding(
    code="BP330",
    name="row-wider-than-pack",
    severity="error",
    where="training/shard-00000-of-00008.idx.parquet row 17",
    found="4101 runtime tokens",
    allowed="at most packed_sequence_size, 4096",
    why="Crash, later: the collate fails an assertion.",
    fix="Build again.",
    num_occurrences=1200,
    examples=("training/shard-00000-of-00008.idx.parquet row 17", "training/shard-00000-of-00008.idx.parquet row 44"),
)
REPORT = CheckReport(
    findings=(FINDING,),
    rules_run=("BP303", "BP330"),
    rules_skipped=tuple(
        SkippedRule(code=code, name=name, reason="the artifact has no manifest")
        for code, name in (("BP342", "shard-size-differs"), ("BP343", "shard-checksum-differs"))
    ),
    **{"num_shards": 8, "num_shards_read": 8, "num_rows": 8192, "num_sound_rows": 8192, "num_tokens": 33554432},
)
CLEAN = CheckReport(
    **{"findings": (), "rules_run": ("BP303",), "rules_skipped": ()},
    **{"num_shards": 1, "num_shards_read": 1, "num_rows": 1, "num_sound_rows": 1, "num_tokens": 7},
)
TEXT = """\
error[BP330]: row-wider-than-pack
  --> training/shard-00000-of-00008.idx.parquet row 17
   found   4101 runtime tokens
   allowed at most packed_sequence_size, 4096
   why     Crash, later: the collate fails an assertion.
   fix     Build again.
   places  1,200 in all: training/shard-00000-of-00008.idx.parquet row 17; \
training/shard-00000-of-00008.idx.parquet row 44; and 1,198 more

skipped BP342, BP343: the artifact has no manifest

1 error; 2 rules run; 2 skipped; 8,192 rows (33,554,432 tokens) read from 8 of 8 shards
"""


def test_text() -> None:
    assert render_text(REPORT) == TEXT


def test_text_of_a_clean_report() -> None:
    assert render_text(CLEAN) == "no findings; 1 rule passed; 1 row (7 tokens) read from 1 of 1 shard\n"


def test_colours_only_when_asked_and_without_other_change() -> None:
    coloured = render_text(REPORT, has_colour=True)
    assert "\x1b[1;31merror[BP330]\x1b[0m" in coloured
    assert "\x1b" not in render_text(REPORT)
    for code in ("\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == TEXT


def test_json_keys_are_stable() -> None:
    content = json.loads(render_json(REPORT))
    names = "format_version target versions summary findings suppressed rules_run rules_skipped rules_not_applicable"
    assert list(content) == names.split()
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
    reason = "the artifact has no manifest"
    assert content["rules_skipped"][0] == {"code": "BP342", "name": "shard-size-differs", "reason": reason}
