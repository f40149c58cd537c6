"""Cluster files in tests/golden/launch whose Slurm scripts are kept beside them; run as a script to write them anew.

usage: python -m tests.support.launch_golden
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.platforms import ask

FOLDER = Path(__file__).parents[1] / "golden" / "launch"
#: Name of a script -> its cluster file, task, and GPUs of the recipe.
SCRIPTS: dict[str, tuple[str, str, int | None]] = {
    "srun-container": ("srun-container", "train", 16),
    "srun-container-build": ("srun-container", "build", 16),
    "torchrun": ("torchrun", "train", 16),
    "torchrun-check": ("torchrun", "check", 16),
    "array-dependencies": ("array-dependencies", "train", 8),
    "ssh-tunnel": ("ssh-tunnel", "train", 16),
    "fault-tolerance": ("fault-tolerance", "train", 4),
    "ray-build": ("ray-build", "build", 16),
}
#: Variables that the files name.
VARIABLES = {"HF_TOKEN": "hf_$1"}


def golden_requests() -> dict[str, Any]:
    return {
        f"dry-{name}": {"values": _read(file), "task": task, "num_gpus": num_gpus}
        for name, (file, task, num_gpus) in SCRIPTS.items()
    }


def _read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((FOLDER / f"{name}.yaml").read_text())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        answer = ask({"made": golden_requests()}, Path(folder), **VARIABLES)
    for name in SCRIPTS:
        (FOLDER / f"{name}.sh").write_text(answer["outputs"][f"dry-{name}"])
        sys.stdout.write(f"wrote {FOLDER / name}.sh\n")


if __name__ == "__main__":
    main()
