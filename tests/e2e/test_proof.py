"""Proofs of a built artifact as users ask for them: chats are built, traced, verified, changed and compared."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgepack.proof.trace.schedule import ranks_by_copy
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import ReplaySettings
from bridgepack.replay.topology import Topology
from tests.support.small_builds import Command, Row, chat_row, write_json_lines
from tests.support.traced_artifacts import change_shard

_RECIPE = """\
name: chats
data: {train: chats, validation: held-out.jsonl}
tokenizer: {name_or_path: tokenizer}
packing: {packed_sequence_size: 256}
parallelism: {num_gpus: 8, context_parallel_size: 2}
batch: {global_batch_size: 8}
schedule: {num_epochs: 2}
"""
_WORDS = ("the", "user", "asks", "a", "question", "and", "assistant", "answers", "😀", "über", "twelve")


def _chats(seed: int, num_rows: int) -> list[Row]:
    """Return chats of which every one is another; every 20th is too long for a pack."""
    rng = random.Random(seed)
    return [
        chat_row(
            f"Question {seed}-{index}?", " ".join(rng.choices(_WORDS, k=900 if index % 20 == 9 else 4 + index % 30))
        )
        for index in range(num_rows)
    ]


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Run:
    """Return what runs the command in a folder of its own, asserts its exit code and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def printed(*arguments: object, code: int = 0) -> str:
        ran = command(*arguments)
        assert ran.code == code, ran.errors
        return ran.output

    return printed


@pytest.fixture
def project(tmp_path: Path, chatml_tokenizer: Path, run: Run) -> Path:
    shutil.copytree(chatml_tokenizer, tmp_path / "tokenizer")
    for part in range(2):
        write_json_lines(tmp_path / "chats" / f"{part}.jsonl", _chats(part, 120))
    write_json_lines(tmp_path / "held-out.jsonl", _chats(7, 60))
    (tmp_path / "recipe.yaml").write_text(_RECIPE)
    run("build", "recipe.yaml", "--output", "packed")
    return tmp_path


def _json(run: Run, *arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


def test_a_rank_is_traced_to_the_words_of_its_chats(project: Path, run: Run) -> None:
    manifest = json.loads((project / "packed" / "manifest.json").read_text())
    num_packs = manifest["splits"][0]["statistics"]["num_packs"]
    topology = Topology(world_size=8, context_parallel_size=2)
    settings = ReplaySettings(
        version="0.6.2", num_packs=num_packs, topology=topology, micro_batch_size=1, global_batch_size=8, seed=1234
    )
    trace = _json(run, "trace", "packed", "--step", 2, "--rank", 5)
    (rank,) = trace["batches"][0]["ranks"]
    packs = [pack for part in rank["micro_batches"] for pack in part]
    copy = topology.data_parallel_rank_of(5)

    assert (rank["data_parallel_rank"], rank["global_ranks"]) == (copy, list(ranks_by_copy(topology)[copy]))
    assert [pack["pack"] for pack in packs] == PackOrder(settings).packs_at(2, copy).tolist()

    pack = packs[0]
    shown = _json(run, "trace", "packed", "--step", 2, "--pack", pack["pack"])["view"]
    num_checked = 0
    for sequence, view in zip(pack["sequences"], shown["sequences"], strict=True):
        lines = (project / sequence["file"]).read_text().splitlines()
        question, answer = (turn["content"] for turn in json.loads(lines[sequence["row"] - 1])["messages"])
        trained = "".join(span["text"] for span in view["spans"] if span["is_trained"])
        assert question in "".join(span["text"] for span in view["spans"] if not span["is_trained"])
        assert trained.startswith(answer)
        num_checked += 1
    assert num_checked == pack["num_sequences"] > 0

    source = f"{pack['sequences'][0]['file']}:{pack['sequences'][0]['row']}"
    (placement,) = _json(run, "trace", "packed", "--source", source)["placements"]
    assert placement["pack"] == pack["pack"]
    assert (2, copy) in [(seen["step"], seen["data_parallel_rank"]) for seen in placement["schedule"]["seen"]]
    assert sum(part["stop"] - part["start"] for item in placement["context"] for part in item["ranges"]) % 4 == 0

    dropped = run("trace", "packed", "--source", "chats/0.jsonl:10")
    assert "dropped from training: over_long: " in dropped


def test_tampering_and_other_sources_are_found(project: Path, run: Run) -> None:
    run("verify", "packed", "--all")

    shutil.copytree(project / "packed", project / "tampered")
    change_shard(project / "tampered", 7, "input_ids", 12, 11)
    found = _json(run, "verify", "tampered", "--sample", 1, code=1)
    assert [(item["pack"], item["column"], item["in_artifact"], item["causes"]) for item in found["differences"]] == [
        (7, "input_ids", 11, ["artifact changed"])
    ]

    rows = _chats(1, 120)
    rows[30]["messages"][1]["content"] += " after all"
    write_json_lines(project / "chats" / "1.jsonl", rows)
    for extent in (("--sample", 1000), ("--all",)):
        found = _json(run, "verify", "packed", *extent, code=1)
        first = found["differences"][0]
        assert (first["file"], first["row"], first["causes"]) == ("chats/1.jsonl", 31, ["input changed"])

    run("build", "recipe.yaml", "--output", "second")
    report = _json(run, "diff", "packed", "second", code=1)
    training, validation = report["splits"]
    assert [training[f"num_{name}"] for name in ("lost", "gained", "moved", "masks_moved", "retokenized")] == [
        0
    ] * 4 + [1]
    assert (validation["num_unchanged"], validation["num_repacked"]) == (57, 0)
    (changed,) = training["differences"]
    assert (changed["first"]["file"], changed["first"]["row"], changed["is_same_input"]) == ("chats/1.jsonl", 31, False)
    assert " after all" in changed["text"][1]
