"""One pack decoded: its text, what of it is trained, where it came from."""

from pathlib import Path

import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import PackView, view_pack
from bridgepack.errors import ArtifactError
from bridgepack.report.terminal import draw_pack
from tests.support.small_builds import build, chat_row, tokenized_recipe, write_json_lines

QUESTION = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Artifact:
    """Return an artifact with one pack of two chats, aligned to 4."""
    train = write_json_lines(tmp_path / "a.jsonl", [{}, chat_row("Hi", "Hello there"), chat_row("Hi", "Yo")])
    changes = {
        "preprocessing__kind": "chat",
        "packing__packed_sequence_size": 256,
        "parallelism__context_parallel_size": 2,
    }
    build(tokenized_recipe(train, chatml_tokenizer, **changes), tmp_path / "out")
    return Artifact(tmp_path / "out")


def _spans(view: PackView) -> list[list[tuple[str, bool]]]:
    return [[(span.text, span.is_trained) for span in sequence.spans] for sequence in view.sequences]


def test_text_is_cut_where_training_begins_and_ends(artifact: Artifact) -> None:
    view = view_pack(artifact, "training", 0)

    assert _spans(view) == [
        [(QUESTION, False), ("Hello there<|im_end|>\n", True)],
        [(QUESTION, False), ("Yo<|im_end|>\n", True)],
    ]
    assert [(sequence.row, Path(sequence.file or "").name) for sequence in view.sequences] == [
        (2, "a.jsonl"),
        (3, "a.jsonl"),
    ]


def test_numbers_of_a_sequence(artifact: Artifact) -> None:
    view = view_pack(artifact, "training", 0)

    num_checked = 0
    for sequence in view.sequences:
        assert sum(span.num_tokens for span in sequence.spans) == sequence.runtime_length + 1
        assert sum(span.num_tokens for span in sequence.spans if span.is_trained) == sequence.num_trained_tokens
        assert (sequence.runtime_length + sequence.num_alignment_tokens) % 4 == 0
        num_checked += 1
    assert num_checked == 2
    assert [sequence.position for sequence in view.sequences] == [0, 1]
    assert view.sequences[0].start == 0
    first = view.sequences[0]
    assert view.sequences[1].start == first.runtime_length + first.num_alignment_tokens + 1


def test_newline_after_eos_is_trained_in_the_file_and_skipped_by_the_host(artifact: Artifact) -> None:
    view = view_pack(artifact, "training", 0)

    assert [sequence.num_skipped_tokens for sequence in view.sequences] == [1, 1]


def test_drawing(artifact: Artifact) -> None:
    view = view_pack(artifact, "training", 0)

    plain, coloured = draw_pack(view, has_colour=False), draw_pack(view, has_colour=True)

    assert "⟦Hello there<|im_end|>\n⟧" in plain
    assert "\x1b[32mHello there<|im_end|>\n\x1b[0m" in coloured
    assert "a.jsonl row 2, " in plain
    assert "1 skipped at run time, after EOS" in plain


@pytest.mark.parametrize(("split", "index"), [("training", 1), ("training", -1), ("validation", 0), ("x", 0)])
def test_pack_that_is_not_there(artifact: Artifact, split: str, index: int) -> None:
    with pytest.raises(ArtifactError, match=f"row is {index}; allowed: "):
        view_pack(artifact, split, index)
