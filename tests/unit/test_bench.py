"""The benchmarks run at tiny sizes, and their medians, ratios and tables are right; no time is asserted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.data.shards.write import write_shard
from bridgepack.records import RowBatch

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture(autouse=True)
def benchlib_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setenv("PYTHONPATH", str(BENCH))


def _found(variant: str, *, wall_s: float, is_finished: bool = True) -> dict[str, Any]:
    taken = {"wall_s": wall_s, "imports_s": 1.0, "build_s": wall_s - 1, "cpu_s": wall_s}
    memory = {"peak_memory_bytes": 1e6 * wall_s, "peak_rss_bytes": 2e6 * wall_s}
    return {"variant": variant, "is_finished": is_finished, **taken, **memory}


MEASUREMENTS = [
    *[_found("upstream a, 1 worker", wall_s=wall_s) for wall_s in (30.0, 22.0, 21.0)],
    *[_found("upstream a, 2 workers", wall_s=wall_s) for wall_s in (24.0, 25.0)],
    *[_found("bridgepack a, 2 workers", wall_s=wall_s) for wall_s in (2.0, 5.0, 2.5)],
    _found("upstream a, 3 workers", wall_s=99.0, is_finished=False),
]


def test_medians_leave_out_what_did_not_finish() -> None:
    from benchlib.summary import medians_of

    medians = medians_of(MEASUREMENTS)

    assert {name: values["wall_s"] for name, values in medians.items()} == {
        "upstream a, 1 worker": 22.0,
        "upstream a, 2 workers": 24.5,
        "bridgepack a, 2 workers": 2.5,
    }


def test_ratios_are_upstream_s_best_of_each_metric_divided_by_bridgepack() -> None:
    from benchlib.summary import medians_of, ratios_of

    medians = medians_of(MEASUREMENTS)
    medians["upstream a, 2 workers"]["cpu_s"] = 20.0
    ratios = ratios_of(medians)

    assert list(ratios) == ["bridgepack a, 2 workers"]
    assert ratios["bridgepack a, 2 workers"] == {
        "wall_s": 22 / 2.5,
        "build_s": 21 / 1.5,
        "cpu_s": 20 / 2.5,
        "peak_memory_bytes": 22 / 2.5,
    }
    assert ratios_of({}) == {}


def test_table_has_a_line_for_each_build() -> None:
    from benchlib.summary import medians_of, ratios_of
    from benchlib.table import markdown_table

    medians = medians_of(MEASUREMENTS)
    size = {"num_rows": 1100, "measurements": MEASUREMENTS, "medians": medians, "ratios": ratios_of(medians)}
    table = markdown_table([{**size, "outputs": {name: {"num_packs": 7} for name in medians}}])

    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert {len(line) for line in lines} == {13}
    assert "|".join(lines[2]) == "1,100|upstream a, 1 worker|22.0|50|21.0|52|22.0|22|7||||"
    assert "|".join(lines[4]) == "1,100|bridgepack a, 2 workers|2.5|440|1.5|733|2.5|2|7|8.8x|14.0x|8.8x|8.8x"
    assert lines[5][:3] == ["1,100", "upstream a, 3 workers", "not finished"]


def test_every_other_repetition_goes_backwards() -> None:
    from benchlib.runs import interleaved
    from benchlib.variants import variants_for

    variants = variants_for(2, [1])

    order = [(repetition, variants.index(variant)) for repetition, variant in interleaved(variants, 2)]
    assert order == [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]


def test_questions_and_answers_become_chats(tmp_path: Path) -> None:
    from benchlib.chats import read_chats, write_chats

    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "2+2?", "answer": "4"}\n\n{"messages": []}\n')
    chats = read_chats(data, tmp_path)

    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    assert [json.loads(chat) for chat in chats] == [{"messages": turns}, {"messages": []}]
    assert write_chats(chats, 3, tmp_path / "three.jsonl") == 2
    assert (tmp_path / "three.jsonl").read_text() == chats[0] + chats[1] + chats[0]


@pytest.mark.parametrize("content", [None, "", "{", "[1]"], ids=["missing", "empty", "broken", "no object"])
def test_data_without_chats_is_refused(tmp_path: Path, content: str | None) -> None:
    from benchlib import BenchmarkError
    from benchlib.chats import read_chats

    data = tmp_path / "data.jsonl"
    if content is not None:
        data.write_text(content)

    with pytest.raises(BenchmarkError, match=r"Give a JSON Lines file of chats\.$"):
        read_chats(data, tmp_path)


def _write_rows(path: Path, *, last_id: int) -> None:
    path.parent.mkdir()
    batch = RowBatch(
        shard=path.name,
        first_row=0,
        input_ids=np.array([5, 6, 7, 8, last_id], dtype=np.int32),
        token_offsets=np.array([0, 5]),
        loss_mask=np.array([0, 1, 0, 1, 0], dtype=np.int8),
        mask_offsets=np.array([0, 5]),
        seq_start_id=np.array([0, 3], dtype=np.int32),
        start_offsets=np.array([0, 2]),
    )
    write_shard(path, iter([batch]), packed_sequence_size=4)


def test_rows_of_two_builds_are_compared_value_by_value(tmp_path: Path) -> None:
    from benchlib.packed import describe_packed, has_equal_rows

    for name, last_id in (("one", 9), ("same", 9), ("other", 10)):
        _write_rows(tmp_path / name / "shard-00000-of-00001.idx.parquet", last_id=last_id)

    assert has_equal_rows(tmp_path / "one", tmp_path / "same")
    assert not has_equal_rows(tmp_path / "one", tmp_path / "other")
    described = describe_packed(tmp_path / "one", packed_sequence_size=4)
    assert (described["num_packs"], described["num_sequences"], described["num_tokens"]) == (1, 2, 3)
    assert described["fill_fraction"] == 0.75


def test_measures_a_process_with_its_children(tmp_path: Path) -> None:
    from benchlib.measuring import measure

    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(1 << 27); print(len(x))'])"
    usage = measure([sys.executable, "-c", code], log=tmp_path / "log.txt", environment={}, limit_s=60)

    assert usage.is_finished
    assert usage.peak_memory_bytes > 1 << 27
    assert usage.peak_rss_bytes >= usage.peak_memory_bytes
    assert usage.cpu_s > 0
    assert (tmp_path / "log.txt").read_text() == f"{1 << 27}\n"


def test_a_process_over_the_limit_is_ended(tmp_path: Path) -> None:
    from benchlib.measuring import measure

    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert not measure(command, log=tmp_path / "log.txt", environment={}, limit_s=0.2).is_finished


def test_a_process_that_fails_shows_its_log(tmp_path: Path) -> None:
    from benchlib import BenchmarkError
    from benchlib.measuring import measure

    with pytest.raises(BenchmarkError, match="no such thing"):
        measure([sys.executable, "-c", "exit('no such thing')"], log=tmp_path / "log.txt", environment={}, limit_s=60)


def test_bridgepack_s_side_from_start_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchlib.build_vs_upstream import main

    data = tmp_path / "data.jsonl"
    data.write_text("".join(f'{{"question": "What is {i} plus 1?", "answer": "{i + 1}"}}\n' for i in range(20)))
    arguments = ["--rows", "30", "--repeats", "1", "--data", str(data), "--output", str(tmp_path / "out")]
    assert main([*arguments, "--workers", "1", "--upstream-workers"]) == 0

    report = (tmp_path / "out" / "build_vs_upstream.md").read_text()
    assert capsys.readouterr().out == report
    assert "30 rows are 20 chats over and over." in report
    assert str(tmp_path) not in report + (tmp_path / "out" / "build_vs_upstream.json").read_text()
    result = json.loads((tmp_path / "out" / "build_vs_upstream.json").read_text())
    assert result["machine"]["num_cores"] >= 1
    (size,) = result["sizes"]
    assert size["rows_equal"] is None
    assert [output["num_sequences"] for output in size["outputs"].values()] == [30, 30]
    assert all(found["build_s"] > 0 for found in size["measurements"])
