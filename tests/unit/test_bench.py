"""The benchmarks: their help installs nothing, and one tiny run measures, compares and reports; no time is asserted."""

import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROJECT = Path(__file__).parents[2]
RUN = "scripts/bench/run.py"
#: Python without any package, in a folder where nothing could be installed.
ISOLATED = (sys.executable, "-I", "-S")


def test_help_and_mistakes_need_and_install_nothing(tmp_path: Path) -> None:
    script = tmp_path / RUN
    script.parent.mkdir(parents=True)
    script.write_text((PROJECT / RUN).read_text())

    shown = subprocess.run([*ISOLATED, script, "--help"], capture_output=True, text=True, check=True)
    refused = subprocess.run([*ISOLATED, script, "--tree", "x=nowhere"], capture_output=True, text=True, check=False)

    assert "--tree NAME=PATH" in shown.stdout
    assert refused.returncode == 2
    assert "x=nowhere; it must be NAME=PATH, a checkout with src/bridgepack" in refused.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["scripts", "bench", "run.py"]


@pytest.mark.full
@pytest.mark.on_disk
def test_two_checkouts_write_the_same_rows(tmp_path: Path, chatml_tokenizer: Path) -> None:
    trees = ["--tree", f"base={PROJECT}", f"new={PROJECT}"]

    done = _run(tmp_path, chatml_tokenizer, *trees, "--parts", "plan", "write", "--lengths", "300", "--sequences", "40")

    report = json.loads((tmp_path / "run.json").read_text())
    written = [one for one in report["measurements"] if one["work"] == "write 40 sequences"]
    assert {one["who"]: one["role"] for one in written} == {
        "floor bytes and fsync": "floor",
        "base 1 at once": "bridgepack",
        "new 1 at once": "bridgepack",
    }
    assert report["complaints"] == []
    assert done.stdout == (tmp_path / "run.md").read_text()
    assert str(tmp_path) not in done.stdout


@pytest.mark.full
@pytest.mark.on_disk
def test_engines_build_the_same_rows(tmp_path: Path, chatml_tokenizer: Path) -> None:
    done = _run(tmp_path, chatml_tokenizer, "--tree", f"new={PROJECT}", "--parts", "build", "--chats", "20")

    assert json.loads((tmp_path / "run.json").read_text())["complaints"] == []
    assert "| build and check 20 chats, repack | new tokenizers |" in done.stdout


def _run(output: Path, tokenizer: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    places = ["--output", str(output), "--tokenizer", str(tokenizer), "--python", sys.executable]
    options = [*arguments, *places, "--without-upstream", "--repeats", "1", "--workers", "1"]
    done = subprocess.run([sys.executable, RUN, *options], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_sequences_are_the_same_whether_labels_after_eos_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ChatML ends a turn with EOS, whose label is the line end: a setting of each side says whether it is trained."""
    rows = [([5, 6, 2, 7, 9, 2], [0, 1, 1, 1, 0, 0]), ([5, 6, 2, 7, 9, 2], [0, 1, 0, 1, 0, 0])]
    rows.append(([5, 6, 2, 7, 9, 2], [1, 1, 0, 1, 0, 0]))
    for index, (ids, mask) in enumerate(rows):
        columns = {"input_ids": [ids], "loss_mask": [mask], "seq_start_id": [[0]]}
        pq.write_table(pa.table(columns), tmp_path / f"{index}.parquet")

    monkeypatch.syspath_prepend(PROJECT / "scripts" / "bench")
    described = importlib.import_module("sides").described

    digests = [described([tmp_path / f"{index}.parquet"], 2)["digest"] for index in range(len(rows))]

    assert digests[0] == digests[1] != digests[2]


def test_other_rows_and_more_packs_are_complained_of() -> None:
    complaints_of = runpy.run_path(str(PROJECT / "scripts" / "bench" / "report.py"))["complaints_of"]

    ours = {"role": "bridgepack", "rows_digest": "a", "digest": "s", "num_packs": 8}
    theirs = {"role": "upstream", "digest": "s", "num_packs": 7}

    for other, complaint in (
        ({**ours, "rows_digest": "b"}, "bridgepack wrote different rows"),
        (theirs, "bridgepack made more packs than upstream, 7"),
        ({**theirs, "digest": "t", "num_packs": 8}, "they gave different sequences"),
    ):
        assert complaints_of({"w": {other["role"]: other, "new": ours}}) == [f"w: {complaint}"]


def test_no_ratio_is_shown_to_an_upstream_of_fewer_rows() -> None:
    table_of = runpy.run_path(str(PROJECT / "scripts" / "bench" / "report.py"))["table_of"]
    ours = {"role": "bridgepack", "variant": "", "num": 100, "seconds": 1.0, "cpu_s": 1.0, "is_finished": True}

    same, fewer = (table_of({"w": {"we": ours, "they": {**ours, "role": "upstream", "num": num}}}) for num in (100, 10))

    assert [line.count("1x") for line in same.splitlines()[2:]] == [2, 0]
    assert [line.count("1x") for line in fewer.splitlines()[2:]] == [1, 0]


@pytest.mark.full
def test_engines_are_compared(chatml_tokenizer: Path) -> None:
    command = [sys.executable, "scripts/bench/engines.py", str(chatml_tokenizer), "--sizes", "50", "50", "50"]

    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    reference, fast = [json.loads(line) for line in done.stdout.splitlines()]
    assert (reference["engine"], fast["engine"]) == ("tokenizers", "fastokens")
    assert (fast["unequal"], fast["unequal_guarded"]) == (0, 0)
    assert min(reference["tokens_per_cpu_s"], fast["tokens_per_cpu_s"], fast["distinct_tokens_per_cpu_s"]) > 0
