"""`bridgepack build` itself, told apart into imports and build. usage: FOLDER DATA TOKENIZER ALGORITHM NUM_WORKERS."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchlib.phases import PhaseClock
from benchlib.settings import LOSS_MODE, PACKED_SEQUENCE_SIZE, PAD_SEQ_TO_MULT, SEED


def recipe(data: str, tokenizer: str, algorithm: str) -> dict[str, Any]:
    """Return the recipe as plain values."""
    return {
        "name": "benchmark",
        "data": {"train": data},
        "tokenizer": {"name_or_path": tokenizer},
        "preprocessing": {"kind": "chat", "loss_mode": LOSS_MODE},
        "packing": {
            "packed_sequence_size": PACKED_SEQUENCE_SIZE,
            "pad_seq_to_mult": PAD_SEQ_TO_MULT,
            "algorithm": algorithm,
            "seed": SEED,
        },
    }


def main() -> None:
    folder, (data, tokenizer, algorithm, num_workers) = Path(sys.argv[1]), sys.argv[2:]
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe(data, tokenizer, algorithm)), encoding="utf-8")
    clock = PhaseClock()
    from transformers import AutoTokenizer  # noqa: F401 (an import, not part of the build)

    import bridgepack.data.build  # noqa: F401
    from bridgepack.cli import bridgepack as command

    clock.end("imports")
    arguments = ["build", str(path), "--output", str(folder / "artifact"), "--workers", num_workers]
    command.main(args=arguments, standalone_mode=False)
    clock.end("build")
    clock.write(folder / "phases.json")


if __name__ == "__main__":
    main()
