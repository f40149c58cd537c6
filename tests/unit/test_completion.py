"""What a shell offers, as its own script asks for it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.small_builds import CLI

OFFERED = {
    "bridgepack ca": "plain,canary",
    "bridgepack explain BP10": "plain,BP101",
    "bridgepack explain micro-batch": "plain,micro-batch-size-not-one",
    "bridgepack check mine.yaml --select BP101,BP2": "plain,BP101,BP201",
    "bridgepack build --set packing.pack": "plain,packing.packed_sequence_size=",
    "bridgepack preview mine.yaml --set preprocessing.loss": "plain,preprocessing.loss_mode=",
    "bridgepack build qwen3_8b_sft_8gpu": "plain,qwen3_8b_sft_8gpu_h100_bf16_32k_recipe",
    "bridgepack recipes show min": "file,min",
    "bridgepack check m": "file,m",
}


@pytest.mark.parametrize("typed", OFFERED)
def test_shell_offers(tmp_path: Path, typed: str) -> None:
    variables = {"_BRIDGEPACK_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(
        CLI, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert OFFERED[typed] in done.stdout.splitlines(), done.stdout + done.stderr
