"""fastokens starts no threads, its failures leave texts to `tokenizers`, and names of other engines are refused."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.tokenizers.engines import FAST, EngineDiffersError, load_engine, use_engine
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.workers.process import ENVIRONMENT
from bridgepack.errors import ConfigError
from tests.support.messages import mentions
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines

LARGE = 1 << 30
#: Loads the engine, encodes, and forks: what the fork server and its workers do. The parent has one thread throughout.
FORKING = """
import os, sys
from pathlib import Path
from bridgepack.data.tokenizers.engines import load_engine
engine = load_engine(Path(sys.argv[1]).read_bytes())
texts = [f"question {number} and its answer" for number in range(5000)]
expected = [part.tolist() for part in engine.encode_flat(texts).split()]
assert len(os.listdir("/proc/self/task")) == 1, os.listdir("/proc/self/task")
child = os.fork()
if child == 0:
    os._exit(0 if [part.tolist() for part in engine.encode_flat(texts).split()] == expected else 3)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux counts threads here")
def test_no_thread_is_started(chatml_tokenizer: Path) -> None:
    file = chatml_tokenizer / "tokenizer.json"

    environment = os.environ | {name: "1" for name in ENVIRONMENT if "BLAS" in name or "MKL" in name}

    command = [sys.executable, "-c", FORKING, file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_missing_engine_is_named(chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, FAST, None)

    name, message = use_engine(load_tokenizer(TokenizerConfig(name_or_path=str(chatml_tokenizer))), "auto", LARGE)

    assert name == "tokenizers"
    assert message is not None
    assert message.startswith("tokenising with tokenizers, ")
    assert "fastokens is not installed (" in message
    assert message.endswith("Install it, or set tokenizer.engine to tokenizers")


def test_unknown_tokenizer_is_left_to_the_reference() -> None:
    with pytest.raises(Exception, match=r"fastokens cannot load .*: "):
        load_engine(b"{}")


def test_failing_engine_is_not_used(chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic in the engine's Rust code is no `Exception` in Python."""

    class PanicException(BaseException):
        pass

    def encode_batch_flat(texts: list[str], add_special_tokens: bool) -> tuple[bytes, bytes]:
        raise PanicException("index out of bounds")

    broken = SimpleNamespace(encode_batch_flat=encode_batch_flat)
    fake = SimpleNamespace(Tokenizer=SimpleNamespace(from_json_str=lambda text: broken))
    monkeypatch.setitem(sys.modules, FAST, fake)

    with pytest.raises(EngineDiffersError, match=r"^tokenizer.engine: fastokens .*: index out of"):
        load_engine(b"").encode_flat(["text"])
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(chatml_tokenizer)))
    name, message = use_engine(tokenizer, FAST, LARGE)
    assert (name, tokenizer.engine.name) == ("tokenizers", "tokenizers")
    assert mentions(message, "tokenising with tokenizers", "fastokens and tokenizers", "different tokens")


def test_removed_engine_is_refused_and_its_artifacts_are_read(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(5, 6, 7), tokenized_row(8, 9)])
    recipe = tokenized_recipe(str(rows), chatml_tokenizer)
    build(recipe, tmp_path / "out")
    manifest = Artifact(tmp_path / "out").manifest

    with pytest.raises(ConfigError) as caught:
        recipe.override({"tokenizer.engine": "gigatoken"})
    old = replace(
        manifest, recipe={**manifest.recipe, "tokenizer": {**manifest.recipe["tokenizer"], "engine": "gigatoken"}}
    )
    read = SFTRecipe.from_mapping(recorded_recipe_values(old))

    assert mentions(
        caught.value, "tokenizer.engine is 'gigatoken'", "allowed: auto, tokenizers, fastokens.", "Set it to auto"
    )
    assert read == SFTRecipe.from_mapping(recorded_recipe_values(manifest))
    assert read.tokenizer.engine == "auto"
    assert fingerprint_of_manifest(old) == manifest.fingerprint
