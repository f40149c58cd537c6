"""Tokenizers without a tokenizer.json beside the model's: SentencePiece, tekken and tiktoken, made small."""

import base64
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from bridgepack.data.tokenizers.files import tokenizer_files
from tests.unit.checking.test_tokenizers import findings, model_folder, run_of, write_json

_TEXTS = {
    "letters": ["the quick brown fox", "jumps over the lazy dog", "the dog and the fox"],
    "digits": ["1 22 333 4444", "12 34 56 78 90", "1234 5678 9012"],
}
_PIECES = (b"a", b"b", b" the", b"\xc3\xa9", b"\n")
#: As `tokenizer.json` writes these bytes.
_BYTE_LEVEL = ("a", "b", "\u0120the", "\u00c3\u00a9", "\u010a")
_SPECIAL = ("<unk>", "<s>", "</s>")


def _sentencepiece(folder: Path, texts: str) -> Path:
    """Write a tokenizer.model that was trained on a few texts."""
    folder.mkdir(parents=True)
    trained = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(_TEXTS[texts]),
        model_writer=trained,
        vocab_size=40,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    (folder / "tokenizer.model").write_bytes(trained.getvalue())
    return folder


def _converted(source: Path, folder: Path) -> Path:
    """Write the pieces of a tokenizer.model as a tokenizer.json."""
    model = SentencePieceProcessor(model_file=str(source / "tokenizer.model"))
    pieces = [[model.IdToPiece(index), 0.0] for index in range(model.GetPieceSize())]
    write_json(folder / "tokenizer.json", {"model": {"type": "Unigram", "vocab": pieces}})
    return folder


def _tekken(folder: Path, pieces: tuple[bytes, ...] = _PIECES) -> Path:
    vocabulary = [{"rank": index, "token_bytes": _text(piece), "token_str": None} for index, piece in enumerate(pieces)]
    special = [{"rank": index, "token_str": text, "is_control": True} for index, text in enumerate(_SPECIAL)]
    config = {"default_vocab_size": len(_SPECIAL) + 5, "default_num_special_tokens": len(_SPECIAL)}
    beyond = [{"rank": len(pieces), "token_bytes": _text(b"beyond"), "token_str": None}]
    write_json(folder / "tekken.json", {"config": config, "vocab": [*vocabulary, *beyond], "special_tokens": special})
    return folder


def _tiktoken(folder: Path, pieces: tuple[bytes, ...] = _PIECES, *, lists_special: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{_text(piece)} {index}\n" for index, piece in enumerate(pieces))
    (folder / "tiktoken.model").write_text(lines)
    special = {str(len(pieces) + index): {"content": text} for index, text in enumerate(_SPECIAL)}
    if lists_special:
        write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": special})
    return folder


def _text(piece: bytes) -> str:
    return base64.b64encode(piece).decode()


def _tokens(folder: Path) -> dict[int, str]:
    files = tokenizer_files(folder)
    assert files is not None
    return dict(files.tokens)


def test_vocabularies_are_read_as_a_tokenizer_json_has_them(tmp_path: Path) -> None:
    letters = _sentencepiece(tmp_path / "letters", "letters")

    assert _tokens(letters) == _tokens(_converted(letters, tmp_path / "converted"))
    assert _tokens(letters)[1] == "<s>"
    assert _tokens(_tekken(tmp_path / "tekken")) == dict(enumerate((*_SPECIAL, *_BYTE_LEVEL)))
    assert _tokens(_tiktoken(tmp_path / "tiktoken")) == dict(enumerate((*_BYTE_LEVEL, *_SPECIAL)))
    assert _tokens(_tiktoken(tmp_path / "bare", lists_special=False)) == {}


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda folder: _sentencepiece(folder, "letters"), lambda folder: _sentencepiece(folder, "digits")),
        (_tekken, lambda folder: _tekken(folder, (*_PIECES[1:], b"a"))),
        (_tiktoken, lambda folder: _tiktoken(folder, (*_PIECES[1:], b"a"))),
    ],
    ids=["sentencepiece", "tekken", "tiktoken"],
)
def test_another_vocabulary_is_an_error_and_the_same_is_silent(
    make: Callable[[Path], Path], other: Callable[[Path], Path], tmp_path: Path
) -> None:
    model = model_folder(tmp_path / "weights", make(tmp_path / "of_model"))
    same, different = make(tmp_path / "same"), other(tmp_path / "different")
    if (same / "tekken.json").exists():  # the same vocabulary in other bytes
        (same / "tekken.json").write_text(json.dumps(json.loads((same / "tekken.json").read_text()), indent=1))

    assert set(findings(run_of(same, model))) <= {"BP563"}
    finding = findings(run_of(different, model))["BP560"]
    assert finding.severity == "error"
    assert str(different) in finding.found


def test_tokens_added_beside_the_same_file_are_compared(tmp_path: Path) -> None:
    plain = _sentencepiece(tmp_path / "plain", "letters")
    extended = _sentencepiece(tmp_path / "extended", "letters")
    write_json(extended / "added_tokens.json", {"<tool>": len(_tokens(plain))})

    extends = findings(run_of(extended, model_folder(tmp_path / "model", plain)))
    lacks = findings(run_of(plain, model_folder(tmp_path / "larger", extended)))

    assert "'<tool>'" in extends["BP566"].found
    assert "'<tool>'" in lacks["BP562"].found


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    run, source = _sentencepiece(tmp_path / "run", "digits"), _sentencepiece(tmp_path / "of_model", "letters")

    finding = findings(run_of(run, model_folder(tmp_path / "weights", source)))["BP567"]

    assert f"{run}: tokenizer.model and {tmp_path / 'weights'}: tokenizer.model cannot be read here" in finding.allowed
    assert "sentencepiece" in finding.fix
