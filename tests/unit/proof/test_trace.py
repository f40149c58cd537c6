"""Traces of a tiny artifact, against the order of packs that the replay gives and the rows as written."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.trace.packs import epoch_of, evaluated_after, ranks_by_copy, token_ranges
from bridgepack.proof.trace.records import StepTrace, TokenRange, TracedPack
from bridgepack.proof.trace.trace import parse_source, trace_pack, trace_source, trace_step
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings, Topology
from bridgepack.reporting.results.traces import step_blocks
from bridgepack.reporting.screen import screen
from tests.support.messages import mentions
from tests.support.small_builds import build, tokenized_row, write_json_lines
from tests.support.traced_artifacts import (
    BLANK_LINE,
    NUM_LINES,
    OVER_LONG_ROW,
    build_traced,
    change_manifest,
    traced_recipe,
    write_source,
)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    return build_traced(tmp_path_factory.mktemp("traced"), chatml_tokenizer)


def _run(artifact: Path, **options: object) -> TracedRun:
    return TracedRun(Artifact(artifact), RunOptions(**options))  # type: ignore[arg-type]


def _packs(trace: StepTrace) -> list[TracedPack]:
    (batch,) = trace.batches
    return [pack for rank in batch.ranks for part in rank.micro_batches for pack in part]


def test_rank_shows_its_sequences_with_their_rows(artifact: Path) -> None:
    trace = trace_step(_run(artifact, world_size=8, context=2), "training", 2, rank=6)

    assert [(rank.data_parallel_rank, rank.global_ranks) for rank in trace.batches[0].ranks] == [(3, (6, 7))]
    pack = trace.batches[0].ranks[0].micro_batches[0][0]
    row = Artifact(artifact).row("training", pack.pack)
    assert (pack.num_sequences, pack.num_tokens, pack.num_trained_tokens) == (2, 12, 12)
    firsts = [20 + (sequence.row or 0) for sequence in pack.sequences]
    assert [int(row.input_ids[start]) for start in row.seq_start_id] == firsts
    assert {sequence.file for sequence in pack.sequences} == {str(artifact.parent / "rows.jsonl")}


def test_step_sums_up_sources(tmp_path: Path, chatml_tokenizer: Path) -> None:
    sources = []
    for name, first in (("a", 20), ("b", 60)):
        rows = [tokenized_row(first + number, 5, 6, 7, 8, 9, 2) for number in range(6)]
        sources.append({"path": str(write_json_lines(tmp_path / f"{name}.jsonl", rows)), "name": name, "weight": first})
    recipe = traced_recipe(tmp_path / "a.jsonl", chatml_tokenizer).override({"data.train": sources})
    artifact = build(recipe, tmp_path / "mixed").output

    trace = trace_step(_run(artifact), "training", 1)
    (batch,) = trace.batches
    everything = trace_step(_run(artifact), "training", 1, rank=0).batches[0].ranks[0]
    assert everything.sources == batch.ranks[0].sources
    details = [item for part in everything.micro_batches for pack in part for item in pack.sequences]
    for source in everything.sources:
        mine = [item for item in details if item.file == str(tmp_path / f"{source.name[0]}.jsonl")]
        trained, num_rows = sum(item.num_trained_tokens for item in mine), len({item.row for item in mine})
        sums = (num_rows, sum(item.runtime_length for item in mine), trained)
        assert (source.num_rows, source.num_tokens, source.num_trained_tokens) == sums
    assert sum(source.num_tokens for source in batch.sources) == sum(pack.num_tokens for pack in _packs(trace))
    assert len(batch.sources) == 2
    lines, first = screen(step_blocks(trace)).splitlines(), batch.sources[0]
    told = f"{first.num_rows} rows, {first.num_tokens} tokens, {first.num_trained_tokens} trained"
    assert lines[3].strip().endswith(told)
    assert sum(line.startswith("  from ") for line in lines) == 2 + sum(len(rank.sources) for rank in batch.ranks)


def test_filler_is_named_and_trains_nothing(artifact: Path) -> None:
    # beside schedule.num_epochs, the override would move there, and become a number of steps
    run = _run(artifact, overrides={"schedule.num_epochs": None, "bridge_overrides.train.num_epochs": 1})
    fillers = [pack for pack in _packs(trace_step(run, "training", 2)) if pack.is_filler]

    assert [pack.num_trained_tokens for pack in fillers] == [0, 0]


def test_pack_of_a_step_comes_with_text_and_context_slices(artifact: Path) -> None:
    run = _run(artifact, world_size=4, context=2)
    asked = _packs(trace_step(run, "training", 1))[0].pack
    trace = trace_step(run, "training", 1, pack=asked)

    pack, *others = _packs(trace)
    assert trace.view is not None
    assert (trace.view.index, pack.pack) == (asked, asked)
    assert [item.context_rank for item in pack.context] == [0, 1]
    assert sum(item.num_tokens for item in pack.context) == 16
    assert sum(item.num_trained_tokens for item in pack.context) == pack.num_trained_tokens
    assert not any(other.context for other in others)


def test_what_a_step_does_not_have_is_refused(artifact: Path) -> None:
    run = _run(artifact)
    elsewhere = min({*range(6)} - {pack.pack for pack in _packs(trace_step(run, "training", 1))})

    for arguments, message in (
        ({"step": 4}, r"--step is 4; allowed: 1 to 3"),
        ({"step": 1, "rank": 4}, r"rank is 4; allowed: 0 to 3"),
        ({"step": 1, "pack": 6}, r"--pack is 6; allowed: 0 to 5"),
        ({"step": 1, "pack": elsewhere}, rf"--pack is {elsewhere}; step 1 reads, of these ranks: \d, \d, \d, \d\."),
    ):
        with pytest.raises(ConfigError, match=message):
            trace_step(run, "training", **arguments)
    with pytest.raises(ArtifactError, match=r"split is 'validation'; .* has: training"):
        trace_step(run, "validation", 1)
    unknown = _run(artifact, overrides={"parallelism.num_gpus": None})
    with pytest.raises(ConfigError, match="--world-size is not given"):
        trace_step(unknown, "training", 1)
    (placement,) = trace_source(unknown, "rows.jsonl", 1, limit=1).placements  # says where and not when
    assert (placement.schedule.seen, "Give --world-size" in (placement.schedule.note or "")) == ((), True)


def test_source_row_is_found_where_it_lies_and_when_it_is_read(artifact: Path) -> None:
    run = _run(artifact)
    order, source = run.order("training"), str(artifact.parent / "rows.jsonl")
    for row in {*range(1, NUM_LINES + 1)} - {OVER_LONG_ROW, BLANK_LINE}:
        (placement,) = trace_source(run, source, row, limit=20).placements
        stored = Artifact(artifact).row("training", placement.pack)
        assert int(stored.input_ids[stored.seq_start_id[placement.sequence.position]]) == 20 + row
        assert placement.sequence.row == row
        seen = [(found.step, found.data_parallel_rank) for found in placement.schedule.seen]
        assert seen == [(found.step, found.data_parallel_rank) for found in order.steps_of(placement.pack)]
        assert placement.schedule.num_times == len(seen)


def test_times_are_limited_and_all_counted(artifact: Path) -> None:
    run = _run(artifact, overrides={"schedule.num_epochs": 50.0})
    trace = trace_pack(run, "training", 0, limit=3)

    assert len(trace.schedule.seen) == 3
    assert trace.schedule.num_times == sum(1 for _ in run.order("training").steps_of(0)) > 40
    assert [found.epoch for found in trace.schedule.seen] == sorted(found.epoch or 0 for found in trace.schedule.seen)


def test_source_is_known_by_the_end_of_its_path(artifact: Path) -> None:
    run, folder = _run(artifact), artifact.parent.name

    assert trace_source(run, f"{folder}/rows.jsonl", 1, limit=1).file == str(artifact.parent / "rows.jsonl")
    for file, row, message in (
        ("row.jsonl", 1, "the artifact was not built from it"),
        ("rows.jsonl", NUM_LINES + 9, r"the file has 13 rows, counted from 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            trace_source(run, file, row, limit=1)


@pytest.mark.parametrize("text", ["rows.jsonl", "rows.jsonl:", ":3", "rows.jsonl:0", "rows.jsonl:-1", "rows.jsonl:²"])
def test_source_needs_file_and_row(text: str) -> None:
    assert parse_source("hf:org/name:train:17") == ("hf:org/name:train", 17)
    with pytest.raises(ConfigError, match="allowed: FILE:ROW"):
        parse_source(text)


def test_artifact_without_a_plan_still_shows_packs(artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "plan")
    change_manifest(tmp_path / "copy", files=[])
    run = _run(tmp_path / "copy")
    (pack,) = _packs(trace_step(run, "training", 1, rank=0))

    assert [(sequence.file, sequence.row) for sequence in pack.sequences] == [(None, None)] * 2
    note = trace_source(run, "rows.jsonl", 1, limit=1).note
    assert mentions(note, "no plan of its", "training split", "rows cannot be located")


def test_evaluation_batches_belong_to_steps(tmp_path: Path, chatml_tokenizer: Path) -> None:
    held_out = write_source(tmp_path / "held-out.jsonl", [tokenized_row(9, 5, 6, 7, 8, 2) for _ in range(12)])
    artifact = build_traced(tmp_path, chatml_tokenizer, data__validation=str(held_out), schedule__eval_interval=2)
    run = _run(artifact)
    traces = [trace_step(run, "validation", step) for step in (2, 3)]
    (placement,) = trace_source(run, "held-out.jsonl", 3, limit=9).placements

    assert [batch.batch for trace in traces for batch in trace.batches] == [1, 2]
    assert {pack.pack for pack in _packs(traces[1])} == {0, 1, 2, 3}
    assert placement.split == "validation"
    assert [(found.step, found.after_step) for found in placement.schedule.seen] == [(1, 2), (2, 3)]
    with pytest.raises(ConfigError, match=r"--step is 1; .* not evaluate .* every 2 steps"):
        trace_step(run, "validation", 1)
    sizes = {"batch.global_batch_size": 64, "batch.eval_global_batch_size": 4}
    with pytest.raises(ConfigError, match=r"train\.global_batch_size is 64; allowed: at most .*packs"):
        trace_step(_run(artifact, overrides=sizes), "validation", 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"drop_last": False}, [1, 1, 2, 2]),
        ({"loader": "single"}, [1, 1, 1, 1]),
        ({"loader": "cyclic"}, [1, 2, 3, 4]),
        ({"resume_step": 1}, [1, 2, 3, 4]),
        ({"max_samples": 9}, [None] * 4),
    ],
)
def test_epochs(changes: dict[str, object], expected: list[int | None]) -> None:
    fields = {"version": "0.6.2", "num_packs": 6, "micro_batch_size": 1, "global_batch_size": 4, **changes}
    settings = ReplaySettings(topology=Topology(world_size=4), **fields)  # type: ignore[arg-type]

    assert [epoch_of(settings, step) for step in range(1, 5)] == expected


def test_evaluation_batches_are_numbered_over_the_run() -> None:
    schedule = EvaluationSchedule(eval_interval=10, eval_iters=4, num_steps=25)

    assert [evaluated_after(schedule, batch) for batch in (1, 4, 5, 8, 9, 12)] == [10, 10, 20, 20, 25, 25]
    late = replace(schedule, start_eval_at_iter=15)
    assert [evaluated_after(late, batch) for batch in (1, 4, 5)] == [20, 20, 25]


def test_ranks_of_every_copy() -> None:
    topology = Topology(world_size=8, tensor_model_parallel_size=2, pipeline_model_parallel_size=2)

    assert ranks_by_copy(topology) == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_token_ranges_stay_inside_sequences() -> None:
    expected = ((0, 0, 1), (0, 3, 4), (1, 0, 1), (1, 3, 4), (None, 0, 2))
    ranges = tuple(TokenRange(sequence=sequence, start=start, stop=stop) for sequence, start, stop in expected)

    assert token_ranges(np.array([0, 3, 4, 7, 8, 9]), np.array([0, 4, 8, 10]), 2) == ranges
