"""Builds whose fast engine differs from `tokenizers` on the user's data go on with `tokenizers`, and say so."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.reading.rows import sampled_rows
from bridgepack.data.results import BuildResult
from bridgepack.data.sequences import loading as stages
from bridgepack.data.sequences.loading import forget_stage
from bridgepack.data.tasks import Beat, InThisProcess, TaskFailure
from bridgepack.data.tokenizers import engines
from bridgepack.data.tokenizers.engines import FAST, Engine, EngineDiffersError, EngineReport, FlatIds, reference_engine
from bridgepack.data.tokenizers.load import load_tokenizer
from tests.support.messages import mentions
from tests.support.small_builds import Row, build, chat_row, file_bytes, tokenized_recipe, write_json_lines

NUM_ROWS = 1200


def _deceitful(tokenizer: Path, word: str) -> Engine:
    """Return an engine that passes every probe, and changes the first id of a text with a word in it."""
    reference = reference_engine(load_tokenizer(TokenizerConfig(name_or_path=str(tokenizer))).backend)

    def encode(texts: Sequence[str]) -> FlatIds:
        flat = reference.encode_flat(texts)
        ids = flat.input_ids.copy()
        for index, text in enumerate(texts):
            if word in text:
                ids[flat.offsets[index]] += 1
        return FlatIds(ids, flat.offsets)

    return Engine(FAST, encode)


def test_tokens_stay_right(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [chat_row(f"A question {index}?", "Its answer.") for index in range(NUM_ROWS)]

    expected, found = _build_with(tmp_path, chatml_tokenizer, "question 3?", monkeypatch, [rows])

    assert expected.kept.engine_message is None
    assert mentions(found.kept.engine_message, "fastokens and tokenizers", "different tokens")


class Eager(InThisProcess):
    """Has finished every task before the first result is read, as a pool has finished some."""

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task; what one raised is raised in its turn."""
        outcomes: list[Any] = []
        for task in tasks:
            try:
                outcomes.append(self.run_alone(function, task))
            except EngineDiffersError as error:
                outcomes.append(error)
        for outcome in outcomes:
            if isinstance(outcome, EngineDiffersError):
                raise outcome
            yield outcome


def test_wrong_tokens_are_made_again(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two files gives the engine away; the second's tokens were finished by then, and are wrong, too."""
    rows = [chat_row(f"A question {index}?", f"Its answer {index}.") for index in range(NUM_ROWS)]
    late = chat_row("A late question?", "Its late answer.")
    monkeypatch.setattr(stages, "check_texts", lambda tokenizer, texts: EngineReport(tokenizer.engine.name))
    monkeypatch.setattr("bridgepack.data.build.InThisProcess", Eager)
    parts = [[late] * NUM_ROWS, [rows[0], late, *rows[2:]]]

    expected, found = _build_with(tmp_path, chatml_tokenizer, "late", monkeypatch, parts)

    assert mentions(found.kept.engine_message, "all rows", "again with tokenizers")
    assert (found.kept.num_ranges_tokenized, found.kept.num_ranges_found) == (expected.kept.num_ranges_tokenized, 0)


def _build_with(
    tmp_path: Path, tokenizer: Path, word: str, patch: pytest.MonkeyPatch, rows: list[list[Row]]
) -> tuple[BuildResult, BuildResult]:
    """Build with the reference and with a deceitful engine, in turn; the shards are the same."""
    files = [str(write_json_lines(tmp_path / f"{number}.jsonl", part)) for number, part in enumerate(rows)]
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 256, "tokenizer__engine": "tokenizers"}
    recipe = tokenized_recipe(files, tokenizer, **changes)
    expected = build(recipe, tmp_path / "expected", store=tmp_path / "one")
    deceitful = _deceitful(tokenizer, word)
    patch.setattr(engines, "load_engine", lambda content: deceitful)
    forget_stage()
    found = build(recipe.override({"tokenizer.engine": FAST}), tmp_path / "found", store=tmp_path / "two")
    assert file_bytes(tmp_path / "found" / "training") == file_bytes(tmp_path / "expected" / "training")
    return expected, found


def test_rows_come_from_several_files_in_turn(tmp_path: Path) -> None:
    for index in range(20):
        write_json_lines(tmp_path / f"{index:02}.jsonl", [{"file": index, "row": row} for row in range(3)])
    (tmp_path / "20.jsonl").write_text("")

    files = find_inputs((str(tmp_path),), "data.train", "train", tmp_path / "scratch")

    columns = [item for _, item in sampled_rows(files, 1 << 20) if isinstance(item, dict)]

    assert np.unique([item["file"] for item in columns]).size == 8
    assert [item["row"] for item in columns] == [0] * 8 + [1] * 8 + [2] * 8
