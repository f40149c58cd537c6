"""Runs the probe of executors with the packages that nemo-run needs for SkyPilot and Kubernetes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
_LIMIT_S = 300


def platform_packages() -> Path:
    """Return their folder, to be put in front of the test environment's own packages."""
    folder = Path(f"{sys.prefix}-platforms")
    assert folder.is_dir(), f"{folder} is missing: run `bash tests/environment/install_platforms {sys.prefix}`"
    return folder


def ask(request: Mapping[str, Any], folder: Path, **environment: str) -> dict[str, Any]:
    """Return what the probe says; `folder` is also nemo-run's home and that of SkyPilot."""
    (folder / "request.json").write_text(json.dumps(request))
    paths = os.pathsep.join(str(path) for path in (platform_packages(), PROJECT, PROJECT / "src"))
    finished = subprocess.run(
        [sys.executable, "-m", "tests.support.executor_probe", str(folder / "request.json"), str(folder / "out.json")],
        cwd=PROJECT,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "HOME": str(folder / "home"),
            "NEMORUN_HOME": str(folder / "nemo_run"),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    content: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return content
