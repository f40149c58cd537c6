"""One pack decoded: its text, what of it is trained, where it came from."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import view_pack
from bridgepack.errors import ArtifactError
from bridgepack.reporting.results.packs import pack_blocks
from bridgepack.reporting.screen import screen
from tests.support.artifact_mutations import Row, cast_column, rewrite_rows
from tests.support.small_builds import build, chat_row, tokenized_recipe, write_json_lines


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Artifact:
    """Return an artifact with one pack of two chats, aligned to 4."""
    tmp_path = tmp_path_factory.mktemp("chats")
    train = write_json_lines(tmp_path / "a.jsonl", [{}, chat_row("Hi", "Hello there"), chat_row("Hi", "Yo")])
    changes = {
        "preprocessing__kind": "chat",
        "preprocessing__labels_after_eos": "train",
        "packing__packed_sequence_size": 256,
        "parallelism__context_parallel_size": 2,
    }
    build(tokenized_recipe(train, chatml_tokenizer, **changes), tmp_path / "out")
    return Artifact(tmp_path / "out")


def test_numbers_of_a_sequence_and_its_drawing(artifact: Artifact) -> None:
    view, start = view_pack(artifact, "training", 0), 0
    for position, sequence in enumerate(view.sequences):
        assert (sequence.position, sequence.start) == (position, start)
        assert sum(span.num_tokens for span in sequence.spans) == sequence.runtime_length + 1
        assert sum(span.num_tokens for span in sequence.spans if span.is_trained) == sequence.num_trained_tokens
        start += sequence.runtime_length + sequence.num_alignment_tokens + 1
        assert (start - position - 1) % 4 == 0
    assert len(view.sequences) == 2
    plain, coloured = screen(pack_blocks(view)), screen(pack_blocks(view), has_colour=True)
    assert "⟦Hello there<|im_end|>\n⟧" in plain
    assert "\x1b[32m⟦Hello there<|im_end|>\n⟧\x1b[0m" in coloured
    assert "a.jsonl row 2, " in plain
    assert "(1 after EOS, which Megatron-Bridge 0.6 does not train)" in plain


def _changed(artifact: Artifact, folder: Path, change: Callable[[Row], object]) -> Artifact:
    shutil.copytree(artifact.folder, folder)
    rewrite_rows(folder, lambda rows: change(rows[0]), shard=artifact.manifest.splits[0].shards[0].path)
    return Artifact(folder)


def test_pack_that_is_not_as_planned_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    """Shard and manifest agree, so that only the plan tells."""
    changed = _changed(artifact, tmp_path / "out", lambda row: row.update(seq_start_id=[0, row["seq_start_id"][1] + 4]))
    with pytest.raises(ArtifactError, match=r"training.parquet does not fit pack 0 of training"):
        view_pack(changed, "training", 0)


def test_ids_that_are_none_are_shown_as_numbers(artifact: Artifact, tmp_path: Path) -> None:
    changed = _changed(artifact, tmp_path / "out", lambda row: row.update(input_ids=[-7, *row["input_ids"][1:]]))
    assert view_pack(changed, "training", 0).sequences[0].spans[0].text.startswith("[-7] [")


@pytest.mark.parametrize(("column", "kind"), [("input_ids", pa.float64()), ("seq_start_id", pa.string())])
def test_columns_of_other_kinds_are_refused(artifact: Artifact, tmp_path: Path, column: str, kind: pa.DataType) -> None:
    shutil.copytree(artifact.folder, tmp_path / "out")
    cast_column(tmp_path / "out", column, kind)
    with pytest.raises(ArtifactError, match=f"column {column} holds (float64|object); .* whole numbers"):
        view_pack(Artifact(tmp_path / "out"), "training", 0)
