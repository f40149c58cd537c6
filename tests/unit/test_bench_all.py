"""The benchmarks of everything: medians, ratios, complaints and tables by hand, each measurement at a tiny size."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture(autouse=True)
def benchlib_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setenv("PYTHONPATH", str(BENCH), prepend=os.pathsep)


def _work(**more: Any) -> Any:
    from benchlib.works import FLOOR, OURS, PEER, UPSTREAM, Contender, Work

    contenders = (
        Contender.of("x:y", "theirs", UPSTREAM, {}),
        Contender.of("x:y", "theirs, other", UPSTREAM, {}),
        Contender.of("x:y", "peer", PEER, {}),
        Contender.of("x:y", "disk", FLOOR, {}),
        Contender.of("x:y", "ours", OURS, {}).asking(upstream=4),
    )
    return Work(part="write", name="100 rows", unit="rows", num_items=100, contenders=contenders, **more)


def _measured(contender: str, seconds: float, **more: Any) -> dict[str, Any]:
    about = {"work": "100 rows", "contender": contender, "is_finished": True}
    return {**about, "seconds": seconds, "cpu_s": 2 * seconds, "peak_private_bytes": 5_000_000, **more}


MEASUREMENTS = [
    *[_measured("theirs", seconds) for seconds in (30.0, 20.0, 21.0)],
    *[_measured("theirs, other", seconds, num_packs=7) for seconds in (40.0, 12.0, 41.0)],
    _measured("peer", 8.0),
    _measured("disk", 1.0, num_bytes=500),
    *[_measured("ours", seconds, num_packs=7) for seconds in (2.0, 3.0, 9.0)],
]


def test_ratios_are_each_role_s_best_median_divided_by_ours() -> None:
    from benchlib.findings import findings_of

    (found,) = findings_of([_work()], MEASUREMENTS)

    assert {name: one["seconds"] for name, one in found["contenders"].items()} == {
        "theirs": 21.0,
        "theirs, other": 40.0,
        "peer": 8.0,
        "disk": 1.0,
        "ours": 3.0,
    }
    assert found["ratios"] == {"ours": {"upstream": 7.0, "peer": 8 / 3, "floor": 1 / 3}}
    assert found["contenders"]["ours"]["asked"] == {"upstream": 4}
    assert found["complaints"] == []


def test_work_of_another_amount_is_compared_by_the_piece() -> None:
    from benchlib.findings import findings_of
    from benchlib.works import Metric

    metric = Metric(label="random order", prefix="random_", compared="cpu_s", asked={"upstream": 18})
    measurements = [
        _measured("theirs", 1.0, random_seconds=9.0, random_cpu_s=8.0, random_num=2),
        _measured("ours", 1.0, random_seconds=9.0, random_cpu_s=5.0, random_num=20),
    ]
    (found,) = findings_of([_work(metrics=(metric,))], measurements)

    assert found["ratios"] == {"ours": {"upstream": 16.0}}
    assert (found["label"], found["contenders"]["ours"]["seconds"]) == ("random order", 9.0)
    assert found["contenders"]["ours"]["asked"] == {"upstream": 4}
    assert found["contenders"]["peer"]["num_measured"] == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "complaints"),
    [
        ({"num_packs": 7, "digest": "a"}, {"num_packs": 7, "digest": "a"}, []),
        ({"num_packs": 8}, {"num_packs": 7}, ["ours: 8 packs, upstream 7"]),
        ({"digest": "a"}, {"digest": "b"}, ["they gave different sequences"]),
        ({"files_digest": "a"}, {"files_digest": "b"}, []),
    ],
)
def test_complaints(ours: dict[str, Any], theirs: dict[str, Any], complaints: list[str]) -> None:
    from benchlib.complaints import complaints_of

    taken = {"ours": {"role": "bridgepack", **ours}, "theirs": {"role": "upstream", **theirs}}
    assert complaints_of(taken) == complaints


def test_engines_that_write_other_bytes_are_complained_of() -> None:
    from benchlib.complaints import complaints_of

    taken = {name: {"role": "bridgepack", "files_digest": name} for name in ("a", "b")}
    assert complaints_of(taken) == ["bridgepack wrote different bytes"]


def test_growth_is_the_exponent_between_sizes_of_the_same_work() -> None:
    from benchlib.growth import growth_of

    findings = [
        {"part": "plan", "work": f"{num:,} lengths A", "contenders": {"ours": {"num": num, "seconds": seconds}}}
        for num, seconds in ((10_000, 4.0), (100, 0.04), (1_000, 0.2))
    ]
    grown = growth_of(findings)

    assert [(one["from"], one["to"]) for one in grown] == [(100, 1_000), (1_000, 10_000)]
    assert [round(one["exponent"], 3) for one in grown] == [0.699, 1.301]


def test_two_works_of_one_size_have_no_growth() -> None:
    from benchlib.growth import growth_of

    taken = {"ours": {"num": 1, "seconds": 2.0}}
    findings = [{"part": "read", "work": f"{rows} packs, opening", "contenders": taken} for rows in (9, 8)]

    assert growth_of(findings) == []


def test_report_has_a_line_for_each_contender() -> None:
    from benchlib.all_rows import HEADER, rows_of
    from benchlib.findings import findings_of

    unfinished = [one for one in MEASUREMENTS if one["contender"] != "theirs"]
    (found,) = findings_of([_work()], unfinished)
    rows = {row[2]: row[3:] for row in rows_of(found)}

    assert {len(row) for row in rows_of(found)} == {len(HEADER)}
    assert rows["ours"] == (
        "3",
        "6",
        "33 rows",
        "17 rows",
        "5",
        "",
        "7",
        "13.3x",
        "2.67x",
        "0.333x",
        "13.3x",
        "upstream 4",
    )
    assert rows["theirs"][0] == "not finished"
    assert rows["disk"][5] == "0.0"


def test_rounds_take_turns_and_stop_where_one_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from benchlib import rounds

    def run_once(contender: Any, **_: Any) -> dict[str, Any]:
        return {"seconds": 1.0, "is_finished": contender.name != "disk"}

    monkeypatch.setattr(rounds, "run_once", run_once)
    work = _work()
    once = tuple(replace(one, most_repeats=1) if one.name == "peer" else one for one in work.contenders)
    found = rounds.run_rounds(
        [replace(work, contenders=once)], num_rounds=3, limit_s=1, scratch=tmp_path, tell=lambda _: None
    )

    first = ["theirs", "theirs, other", "peer", "disk", "ours"]
    second, third = ["ours", "theirs, other", "theirs"], ["theirs", "theirs, other", "ours"]
    assert [one["contender"] for one in found] == [*first, *second, *third]


def test_lengths_are_what_they_are_said_to_be() -> None:
    from benchlib.lengths import draw_lengths

    for name, mean, longest in (("A", 562, 4096), ("B", 1896, 32768), ("C", 2048, 4096)):
        lengths = draw_lengths(name, 100_000)
        assert abs(lengths.mean() / mean - 1) < 0.03
        assert lengths.min() >= 1
        assert lengths.max() == longest


def test_digest_does_not_depend_on_the_order_of_sequences() -> None:
    from benchlib.digests import digest_of

    digest = digest_of(np.array([1, 2, 3]), np.array([0, 1, 1]), [2, 1])
    assert digest == digest_of(np.array([3, 1, 2]), np.array([1, 0, 1]), [1, 2])
    assert digest != digest_of(np.array([3, 1, 2]), np.array([0, 0, 1]), [1, 2])
    assert digest != digest_of(np.array([1, 2, 3]), np.array([0, 1, 1]), [1, 2])


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return options with a small tokenizer, trained on few texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        from benchlib.all_options import parse_all
        from benchlib.inputs import prepare_inputs

        texts = tmp_path_factory.mktemp("texts")
        for number in range(30):
            (texts / f"{number}.md").write_text("".join(f"Number {number} is not {n}.\n" for n in range(200)))
        found = parse_all(["--texts", str(texts), "--most-tokens", "20000"])
        patch.setattr("benchlib.inputs._TRAINING_CHATS", 20)
        prepare_inputs(found, tmp_path_factory.mktemp("inputs"))
        return found


def test_writing_is_measured_in_one_and_two_processes(options: Any, tmp_path: Path) -> None:
    from benchlib.raw_side import write_rows
    from benchlib.token_inputs import token_pool, write_sequences
    from benchlib.write_side import bridgepack

    write_sequences(token_pool(options, tmp_path), 200, tmp_path / "sequences")
    given = {"folder": str(tmp_path / "sequences"), "output": str(tmp_path / "written")}
    one, two = (bridgepack(**given, num_workers=count) for count in (1, 2))

    assert one["num_packs"] == two["num_packs"] > 10
    assert one["num_bytes"] == two["num_bytes"]
    assert min(found["seconds"] for found in (one, two)) > 0
    assert write_rows(**given, num_tokens=100_000)["num_bytes"] == 500_000
    assert not (tmp_path / "written").exists()


def test_tokenising_and_encoding_are_measured(options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchlib.inputs import chats_file
    from benchlib.tokenise_side import bridgepack, encode_only

    from bridgepack.data.worker_process import ENVIRONMENT

    for name in ENVIRONMENT:
        monkeypatch.setenv(name, ENVIRONMENT[name])
    given = {"data": str(chats_file(options, tmp_path, 20)), "tokenizer": str(options.tokenizer)}
    ours, least = bridgepack(**given, engine="tokenizers"), encode_only(**given)

    assert ours["num"] > least["num"] > 1000
    assert len(ours["digest"]) == 64


def test_repacking_is_measured(options: Any, tmp_path: Path) -> None:
    from benchlib.inputs import chats_file
    from benchlib.repack_side import repack

    given = {"data": str(chats_file(options, tmp_path, 20)), "tokenizer": str(options.tokenizer)}
    found = repack(**given, output=str(tmp_path / "out"), num_workers=1)

    assert found["seconds"] > found["cpu_s"] / 8 > 0
    assert found["num_tokens"] > 1000
    assert not (tmp_path / "out").exists()


def test_too_few_chats_are_refused(options: Any, tmp_path: Path) -> None:
    from argparse import Namespace

    from benchlib import BenchmarkError
    from benchlib.inputs import chats_file

    data = tmp_path / "chats.jsonl"
    data.write_text('{"messages": []}\n\n')
    with pytest.raises(BenchmarkError, match="--data has 1 chats; 2 are needed"):
        chats_file(Namespace(**{**vars(options), "data": data}), tmp_path, 2)


@pytest.mark.bridge
def test_planning_from_start_to_report(options: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchlib.all import main

    arguments = ["--parts", "plan", "--plan-sizes", "300", "--repeats", "1", "--output", str(tmp_path)]
    assert main([*arguments, "--tokenizer", str(options.tokenizer)]) == 0

    result = json.loads((tmp_path / "all.json").read_text())
    report = (tmp_path / "all.md").read_text()
    assert capsys.readouterr().out == report
    assert len(result["findings"]) == 6
    taken = result["findings"][0]["contenders"]
    assert taken["bridgepack numpy"]["num_packs"] <= taken["upstream first_fit_decreasing"]["num_packs"]
    assert "| plan | 300 lengths A, packs of 4,096 | bridgepack numpy |" in report
    assert str(tmp_path) not in report
