"""The same build gives the same bytes on every machine: those of an artifact whose hashes are on file.

`BRIDGEPACK_REGENERATE=1 pytest tests/unit/data/test_golden_artifact.py` writes the hashes anew. Then every user's
artifacts are built again.
"""

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from tests.support.golden import renewed_by
from tests.support.small_builds import AS_HOST, build, chat_row, data_bytes, tokenized_recipe, write_json_lines
from tests.zoo.tokenizers import CHATML, write_tokenizer

GOLDEN = Path(__file__).parents[2] / "golden" / "artifact.json"
NUM_CHATS = 300
CHANGES = {
    "preprocessing__kind": "chat",
    **{f"preprocessing__{name}": value for name, value in AS_HOST.items()},
    "packing__packed_sequence_size": 256,
    "data__validation_fraction": 0.1,
    "parallelism__context_parallel_size": 2,
}


def test_bytes_are_those_on_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tokenizer(Path("tokenizer"), CHATML)
    numbers = random.Random(0)
    words = [[f"w{numbers.randrange(50)}" for _ in range(numbers.randrange(1, 60))] for _ in range(2 * NUM_CHATS)]
    rows = [chat_row(" ".join(one), " ".join(two)) for one, two in zip(words[::2], words[1::2], strict=True)]
    recipe = tokenized_recipe(write_json_lines(Path("a.jsonl"), rows), Path("tokenizer"), **CHANGES)

    result = build(recipe, Path("out"))

    found: dict[str, Any] = {
        "pyarrow": pyarrow.__version__,
        "fingerprint": result.manifest.fingerprint,
        "files": {
            name: hashlib.sha256(content).hexdigest()
            for name, content in data_bytes(Path("out")).items()
            if not name.startswith("plan/")  # pyarrow writes its version into these
        },
    }
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
    expected = json.loads(GOLDEN.read_text())
    if found["pyarrow"] != expected["pyarrow"]:
        pytest.skip(f"hashes on file are of pyarrow {expected['pyarrow']}; here is {found['pyarrow']}")
    assert found == expected, renewed_by(__file__)
    assert len(found["files"]) >= 2
