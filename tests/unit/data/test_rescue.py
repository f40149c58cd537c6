"""One row that ends or breaks what tokenises it costs that row, and nothing else."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.sequences.encoder import texts_of_rows
from bridgepack.data.sequences.plain.tokenized import TokenizedEncoder
from bridgepack.data.tokenizers import limits, templates
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.workers import ray_runner
from bridgepack.errors import DataError, TokenizerError
from bridgepack.records.rows import ReadRow
from tests.support import small_builds as small
from tests.support.read_rows import encoder_of

POISON = 111
ROWS = [small.tokenized_row(10 + index, 20 + index, 30) for index in range(60)]
#: Makes one row end its process, another one raise, in every process of bridgepack. Ray starts a task again once, not
#: three times: each time takes a new process, which imports everything anew.
SITE = """
import os, sys
sys.dont_write_bytecode = True

def poison(module):
    prepare = module.TokenizedEncoder.prepare

    def poisoned(self, row):
        ids = row.columns.get("input_ids", [])
        if 111 in ids:
            os.abort()
        if 112 in ids:
            raise ValueError("a bug")
        if 113 in ids:
            raise MemoryError
        return prepare(self, row)

    module.TokenizedEncoder.prepare = poisoned

CHANGES = {
    "bridgepack.data.sequences.plain.tokenized": poison,
    "bridgepack.data.workers.ray_runner": lambda module: setattr(module, "_MAX_RETRIES", 1),
}

class Poisoned(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in CHANGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), CHANGES[name](module))
        return spec

sys.meta_path.insert(0, Poisoned)
"""


RAY_HERE = "starting Ray on this machine; it is stopped at the end"


class Panic(BaseException):
    """What Rust code raises when it panics."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Panic("boom"), "tokenizer_failed"), (ValueError("x"), "tokenizer_failed"), (MemoryError(), "out_of_memory")],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_row_that_raises_is_dropped_and_one_without_memory_comes_back(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, error: Any, reason: str, name: str
) -> None:
    rows = [*ROWS[:20], small.tokenized_row(POISON, 5), *ROWS[20:], small.tokenized_row(5, POISON)]
    _write(tmp_path / name, rows)
    recipe = small.tokenized_recipe(tmp_path / name, chatml_tokenizer)
    with monkeypatch.context() as patch:
        _poison(patch, error)
        manifest = small.build(recipe, tmp_path / "out").manifest

    assert small.dropped(tmp_path / "out") == [(21, reason), (62, reason)]
    assert manifest.splits[0].statistics.num_sequences == 60
    if reason == "out_of_memory":  # which another machine may have
        assert small.build(recipe, tmp_path / "again").kept.num_ranges_tokenized == 1
        assert small.dropped(tmp_path / "again") == []


#: Hardly ends: 10 loops over the turns, one in the other.
_LOOPS = "{% for turn in messages %}" * 10 + "{% endfor %}" * 10
#: What a test makes the timer's signals, so that a machine's load is no matter.
_TIME_IS_OVER = "{{ raise_exception('') }}"


def _slow_beyond(num_turns: int, data: Path, tokenizer: Path, loops: str = _LOOPS) -> SFTRecipe:
    """Return a recipe whose template is slow with more turns."""
    template = data.with_name("slow.jinja")
    content = (tokenizer / "chat_template.jinja").read_text()
    template.write_text(f"{{% if messages | length > {num_turns} %}}{loops}{{% endif %}}{content}")
    recipe = small.small_recipe(data, tokenizer, packing={"packed_sequence_size": 256})
    return recipe.override({"tokenizer.chat_template": str(template)})


def _tick_until_over() -> None:
    for _ in range(20):
        signal.raise_signal(signal.SIGVTALRM)


def _chat(num_turns: int) -> dict[str, Any]:
    return {
        "messages": [
            turn for number in range(num_turns // 2) for turn in small.chat_row(f"{number}?", "Yes.")["messages"]
        ]
    }


def test_slow_row_is_dropped_for_now(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROW_S", 0.2)
    _write(tmp_path / "a.jsonl", [_chat(2), _chat(20), _chat(4)])
    recipe = _slow_beyond(4, tmp_path / "a.jsonl", chatml_tokenizer)
    before = signal.getsignal(signal.SIGVTALRM)

    result = small.build(recipe, tmp_path / "out")

    assert small.dropped(tmp_path / "out") == [(2, "time_out")]
    assert "takes more than 0.2 seconds of CPU time" in (tmp_path / "out" / "plan" / "dropped.jsonl").read_text()
    assert result.manifest.splits[0].statistics.num_sequences == 2
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert small.build(recipe, tmp_path / "again").kept.num_ranges_tokenized == 1


@pytest.mark.parametrize(
    ("num_turns", "num_rows", "error"),
    [(4, 3, DataError), (4, 30, DataError), (1, 3, TokenizerError)],
    ids=["every-row", "many-rows", "any-conversation"],
)
def test_template_that_takes_too_long_stops_the_build(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, num_turns: int, num_rows: int, error: Any
) -> None:
    monkeypatch.setattr(templates, "_raise_exception", lambda _: _tick_until_over())
    _write(tmp_path / "a.jsonl", [_chat(20)] * num_rows)

    with pytest.raises(error, match=r"takes more than 10 seconds of CPU time"):
        small.build(_slow_beyond(num_turns, tmp_path / "a.jsonl", chatml_tokenizer, _TIME_IS_OVER), tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_long_row_is_probed_by_its_beginning(chatml_tokenizer: Path) -> None:
    recipe = small.small_recipe("a.jsonl", chatml_tokenizer)
    encoder = encoder_of(recipe, load_tokenizer(recipe.tokenizer))
    rows = [(0, ReadRow(small.chat_row("long", "word " * 1000)))]

    assert [len(text) for text in texts_of_rows(encoder, rows, max_characters=100)] == [100]


def test_a_fault_of_all_rows_is_fatal(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "a.jsonl", [small.tokenized_row(POISON, index) for index in range(60)])
    _poison(monkeypatch, ValueError("a bug of ours"))

    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*ValueError: a bug"):
        small.build(small.tokenized_recipe(tmp_path / "a.jsonl", chatml_tokenizer), tmp_path / "out")


@pytest.mark.parametrize(
    ("engine", "errors"),
    [("local", ""), pytest.param("ray", f"no --ray-address: {RAY_HERE}\n", marks=pytest.mark.full)],
)
def test_rows_that_end_workers_are_dropped(tmp_path: Path, chatml_tokenizer: Path, engine: str, errors: str) -> None:
    poison = [small.tokenized_row(111, 5), small.tokenized_row(112, 5), small.tokenized_row(5, 111)]
    _write(tmp_path / "a.jsonl", [*ROWS[:9], poison[0], *ROWS[9:30], poison[1], *ROWS[30:], poison[2]])
    recipe = small.tokenized_recipe(tmp_path / "a.jsonl", chatml_tokenizer)
    small.write_recipe(tmp_path / "recipe.yaml", recipe)
    site = tmp_path / "poison"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"{small.WITHOUT_TORCH}\nhide_torch()\n{SITE}")
    path = os.pathsep.join([str(site), *filter(None, sys.path)])

    arguments = ("--output", "out", "--num-workers", "2", "--engine", engine)
    ran = small.run_cli(tmp_path, "build", "recipe.yaml", *arguments, PYTHONPATH=path, RAY_ADDRESS="local")

    assert (ran.returncode, ran.stderr) == (0, errors)
    assert hasattr(ray_runner, "_MAX_RETRIES")  # which SITE sets
    assert small.dropped(tmp_path / "out") == [(row, "tokenizer_failed") for row in (10, 32, 63)]
    assert "ended with SIGABRT" in (tmp_path / "out" / "plan" / "dropped.jsonl").read_text()


def _write(path: Path, rows: list[Any]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows))


def _poison(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    prepare = TokenizedEncoder.prepare

    def poisoned(self: TokenizedEncoder, row: ReadRow) -> Any:
        if POISON in row.columns.get("input_ids", []):
            raise error
        return prepare(self, row)

    monkeypatch.setattr(TokenizedEncoder, "prepare", poisoned)
