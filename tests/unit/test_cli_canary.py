"""`bridgepack prove training`: mistakes, what it says without the host, and its page."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.canaries.records import CanaryOptions
from bridgepack.canaries.targets import open_target
from bridgepack.errors import ConfigError
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.small_builds import Command
from tests.support.traced_artifacts import restate


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> Any:
    rows = small.write_json_lines(
        tmp_path / "rows.jsonl", [small.tokenized_row(5, 6, 7, 8 + index) for index in range(9)]
    )
    return small.tokenized_recipe(rows, chatml_tokenizer)


@pytest.fixture
def artifact(tmp_path: Path, recipe: Any) -> Path:
    return Path(small.build(recipe, tmp_path / "artifact").output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-recipe"], "target is 'no-such-recipe'"),
        (["{artifact}", "--pipeline", "4"], "tiny model has 6 layers; allowed: 1, 2, 3"),
        (["{artifact}", "--tensor", "4", "--context", "8"], "ask for 32 processes; allowed: at most 16."),
        (["{artifact}", "--tensor", "3"], "tiny model has 8 heads; allowed: 1, 2, 4, 8"),
        (["{artifact}", "--set", "packing.packed_sequence_size=8192"], "is built"),
        (["{artifact}", "--context", "0"], "'0' is not a whole"),
        (["{artifact}", "--artifact", "{artifact}"], "is an artifact itself. Leave --artifact out."),
        (["{folder}/empty"], "manifest.json"),
        (["{folder}/rows.jsonl"], "rows.jsonl"),
    ],
)
def test_mistakes(command: Command, tmp_path: Path, artifact: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()

    words = (argument.format(artifact=artifact, folder=tmp_path) for argument in arguments)
    code, _, told = command("prove", "training", *words)

    assert code == 2
    assert message in told.replace("\n", " ")


@pytest.mark.bridge
@pytest.mark.full
def test_packs_without_a_trained_token_are_refused(command: Command, tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = small.write_json_lines(
        tmp_path / "rows.jsonl", [small.tokenized_row(5, 6, 7, 8 + index, num_prompt=3) for index in range(9)]
    )
    artifact = small.build(small.tokenized_recipe(rows, chatml_tokenizer), tmp_path / "artifact").output

    code, _, told = command("prove", "training", artifact, "--max-tokens", "1")

    assert code == 2
    assert mentions(told, "--max-tokens 1, ", "no loss to compare.")


def test_without_the_host_it_says_what_to_install(tmp_path: Path, artifact: Path) -> None:
    finished = small.run_cli(tmp_path, "prove", "training", artifact)

    assert (finished.returncode, "megatron" in finished.stderr) == (2, True)
    assert 'pip install -e ".[bridge]"' in finished.stderr
    assert "Traceback" not in finished.stderr


def _opened(target: Path | str, artifact: Path | None = None) -> Any:
    return open_target(str(target), CanaryOptions(artifact=artifact, num_packs=2, max_tokens=64))


def test_an_artifact_knows_its_recipe_and_packs(artifact: Path) -> None:
    opened = _opened(artifact)

    assert (opened.recipe.name, opened.eos_token_id, len(opened.rows), opened.artifact) == ("small", 2, 2, artifact)
    assert any("bridgepack prove sources" in note for note in opened.notes)


def test_a_recipe_finds_its_packs(tmp_path: Path, recipe: Any, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = small.write_recipe(tmp_path / "small.yaml", recipe)
    assert _opened(path, artifact).artifact == artifact
    assert "packs of random tokens" in _opened(path).notes[0]

    first = Path("artifacts/small-0123abcd")
    small.build(recipe, first)
    assert _opened(path).artifact == first

    small.build(recipe, Path("artifacts/small-feed"))
    small.build(recipe, Path("artifacts/small-other"))
    with pytest.raises(ConfigError, match=r"2 artifacts of recipe small .*: artifacts/small-0123abcd"):
        _opened(path)


def test_made_up_packs_are_the_same_each_time(tmp_path: Path, recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = small.write_recipe(
        tmp_path / "small.yaml", recipe.override({"parallelism": {"num_gpus": 2, "context_parallel_size": 2}})
    )
    first, second = _opened(path), _opened(path)

    assert first.pad_seq_to_mult == 4
    for number, row in first.rows.items():
        assert np.array_equal(row.input_ids, second.rows[number].input_ids)
        lengths = np.diff([*row.seq_start_id, len(row.input_ids)]) - 1
        assert not (lengths % 4).any()


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("loss_mask", [1], "a mask over 1"),
        ("seq_start_id", [0, 8, 4, 12], "begin at [0, 8, 4, 12]"),
        ("seq_start_id", [0, 4, 4], "begin at [0, 4, 4]"),
        ("seq_start_id", [5], "begin at [5]"),
        ("seq_start_id", [0, 4, 9000], "begin at [0, 4, 9000]"),
        ("seq_start_id", [], "begin at []"),
    ],
)
def test_rows_that_are_no_packs_are_refused(
    artifact: Path, command: Command, column: str, values: list[int], problem: str
) -> None:
    shard = next((artifact / "training").glob("*.parquet"))
    table = pq.read_table(shard)
    index = table.column_names.index(column)
    changed = pa.array([values] * table.num_rows, type=table.schema.field(index).type)
    pq.write_table(table.set_column(index, table.schema.field(index), changed), shard)
    restate(artifact)

    code, _, errors = command("prove", "training", artifact)

    assert code == 2
    assert mentions(errors, "not a valid pack. ", "`bridgepack check`")
    assert problem in errors
