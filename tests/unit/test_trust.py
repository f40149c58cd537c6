"""What says that code of a tokenizer or a model did not run; `test_security_page.py` asks whether commands run it."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.canaries.canary import run_canary
from bridgepack.canaries.records import CanaryOptions
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.data.sequences.loading import forget_stage
from bridgepack.errors import ConfigError
from tests.support import small_builds as small
from tests.support.launches import launch_recipe
from tests.support.messages import mentions
from tests.support.planted_world import add_code
from tests.support.small_builds import Command, file_bytes

WORD = "--trust-remote-code"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[str, bytes]:
    """Return the files of a recipe whose tokenizer has code, and of its artifact, which a build made with it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, content in file_bytes(chatml_tokenizer).items():
            (folder / "tokenizer").mkdir(exist_ok=True)
            (folder / "tokenizer" / name).write_bytes(content)
        add_code(Path("tokenizer"), "tokenizer")
        recipe = launch_recipe(Path(), Path("tokenizer"))
        recipe = recipe.override(
            {"tokenizer.trust_remote_code": True, "preprocessing.kind": "chat", "packing.packed_sequence_size": 64}
        )
        small.write_json_lines(Path("rows.jsonl"), [small.chat_row(f"Is it {n}?", f"Yes, {n}.") for n in range(20)])
        small.write_recipe(Path("mine.yaml"), recipe)
        forget_stage()
        small.build(recipe, Path("packed"), store=Path(".bridgepack/tokens"))
        assert Path("marker-tokenizer").exists()  # the recipe's word counts in a build
        Path("marker-tokenizer").unlink()
    return file_bytes(folder)


@pytest.fixture
def folder(made: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    forget_stage()
    return tmp_path


def test_a_sign_off_says_that_masks_were_not_compared(folder: Path, command: Command) -> None:
    assert command("report", "packed", "--sign-off", "page.html").code in (0, 1)
    assert WORD in (folder / "page.html").read_text()
    assert not (folder / "marker-tokenizer").exists()
    assert command("report", "packed", "--sign-off", "page.html", WORD).code in (0, 1)
    assert (folder / "marker-tokenizer").exists()


@pytest.mark.bridge
def test_code_of_a_model_needs_the_word_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"model.name": "model", "model.trust_remote_code": True}
    with pytest.raises(ConfigError, match=f"model.trust_remote_code is true.*{WORD}"):
        run_canary("mine.yaml", CanaryOptions(overrides=model))
    options: dict[str, Any] = {"real_validate": True, "overrides": model, "looks_at_files": False}
    asked: list[Any] = []
    monkeypatch.setattr("bridgepack.bridge.validating.ask.question_of", lambda *_: asked.append(1) or 1 / 0)
    host = check_target("mine.yaml", CheckOptions(**options)).host
    assert host is not None
    assert mentions(host.reason, "model.trust_remote_code is true", WORD)
    assert asked == []
    check_target("mine.yaml", CheckOptions(**options, trust_remote_code=True))
    assert asked == [1]
