"""The page of symptoms: each rule says what its section says, and its command finds a fault that is planted."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.reporting.rules import named_rule
from bridgepack.rules.registry import ALL_RULES
from tests.support.docs_blocks import PROJECT
from tests.support.small_builds import Command

PAGE = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")[1:]}
#: Heading -> what each rule of the section says, in its name, first line, reason or fix.
SAID = {
    "The loss is NaN": r"NaN",
    "The loss is too low": r"train|attend|one causal sequence",
    "The loss is too high, or does not fall": r"mask|ids|space|random|gradient|step|loss|average",
    "The run stops before step 1": r"crashes",
    "The run hangs": r"hang|timeout",
    "Shapes do not match, or an assertion fails": r"crash|assert",
    "Out of memory": r"memory|[Tt]oo many open files",
    "The number of steps is wrong": r"step|packs, not examples|warmup",
    "Rows are missing": r"missing|skip|never read|other shards|neither trained",
    "The model does not stop, or says the wrong things": r"model|words|reasoning|repeats|missing|rows say",
    "Steps are slow or uneven": r"is slow",
    "A run resumes wrongly": r"some (data )?is (never seen|repeated)|some data",
}


def _codes(text: str) -> list[str]:
    return re.findall(r"\[(BP\d{3})\]", text)


def test_sections_are_known() -> None:
    assert list(SECTIONS) == list(SAID)


def test_every_row_of_a_table_leads_to_a_rule() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith("| rules |")]

    assert [row for row in rows if not _codes(row)] == []
    assert len(rows) > 40
    assert set(_codes(PAGE)) <= {rule.code for rule in ALL_RULES}


@pytest.mark.parametrize("heading", SECTIONS)
def test_rules_say_what_the_section_says(heading: str) -> None:
    rules = [named_rule(code) for code in _codes(SECTIONS[heading])]
    texts = {rule.code: f"{rule.name} {rule.summary} {rule.why} {rule.fix}" for rule in rules}

    assert texts
    assert [code for code, text in texts.items() if not re.search(SAID[heading], text)] == []


class Symptom(NamedTuple):
    """A fault, the section that describes it, and the rule that has to be found."""

    heading: str
    code: str
    row: Mapping[str, Any] = {"input_ids": [11, 12, 13, 2], "labels": [-100, -100, 13, 2]}
    settings: Mapping[str, Any] = {}
    check: tuple[str, ...] = ()


SYMPTOMS = (
    Symptom("The run stops before step 1", "BP601", settings={"batch.global_batch_size": 64}),
    Symptom(
        "Shapes do not match, or an assertion fails",
        "BP106",
        check=("--set", "parallelism.context_parallel_size=2", "--world-size", "2"),
    ),
    Symptom("The number of steps is wrong", "BP607", settings={"schedule.train_iters": 5000}),
    Symptom(
        "The model does not stop, or says the wrong things",
        "BP336",
        row={"input_ids": [11, 12, 13, 14], "labels": [-100, -100, 13, 14]},
    ),
    Symptom(
        "Steps are slow or uneven",
        "BP120",
        settings={"parallelism.context_parallel_size": 2, "parallelism.num_gpus": 2},
    ),
)


def _build(command: Command, tokenizer: Path, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Build packed/mine of rows of token ids with mine.yaml, in the current folder."""
    values: dict[str, Any] = {
        "name": "mine",
        "data": {"train": "rows.jsonl"},
        "tokenizer": {"name_or_path": str(tokenizer)},
        "preprocessing": {"kind": "tokenized"},
        "packing": {"packed_sequence_size": 16},
        "parallelism": {"num_gpus": 1},
        "batch": {"global_batch_size": 1},
    }
    for path, value in settings.items():
        section, name = path.split(".")
        values.setdefault(section, {})[name] = value
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("mine.yaml").write_text(json.dumps(values))
    built = command("build", "mine.yaml", "--output", "packed/mine")
    assert built.code == 0, built.errors


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.code)
def test_check_finds_a_planted_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, chatml_tokenizer: Path, symptom: Symptom
) -> None:
    monkeypatch.chdir(tmp_path)
    _build(command, chatml_tokenizer, [symptom.row] * 20, symptom.settings)
    ran = command("check", "mine.yaml", "--artifact", "packed/mine", "--advice", *symptom.check)

    assert f"[{symptom.code}]" in ran.output, ran.output + ran.errors
    assert symptom.code in _codes(SECTIONS[symptom.heading])


@pytest.mark.parametrize(
    ("heading", "mask", "code"),
    [("The loss is NaN", [0, 0, 0, 0], "BP318"), ("The loss is too low", [1, 1, 1, 0], "BP333")],
)
def test_check_finds_it_in_packs_of_other_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, heading: str, mask: list[int], code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"input_ids": [11, 12, 13, 2], "loss_mask": mask, "seq_start_id": [0]}
    pq.write_table(pa.Table.from_pylist([row] * 20), "packs.parquet")
    ran = command("check", "packs.parquet", "--given", "packed_sequence_size=3", "--given", "eos_token_id=2")

    assert f"[{code}]" in ran.output, ran.output + ran.errors
    assert code in _codes(SECTIONS[heading])


def test_missing_rows_are_found_and_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, chatml_tokenizer: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {"input_ids": [11, 12, 13, 2], "labels": [-100, -100, 13, 2]}
    _build(command, chatml_tokenizer, [good] * 6 + [{"input_ids": [11, 12, 13, 2]}] * 4, {})
    checked = command("check", "packed/mine")
    traced = command("trace", "packed/mine", "--source", "rows.jsonl:7")

    assert "[BP543]" in checked.output
    assert "BP543" in _codes(SECTIONS["Rows are missing"])
    assert "missing_field" in traced.output
