"""Runs the probe of executors with the packages that nemo-run needs for SkyPilot and Kubernetes."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.processes import run_module


def platform_packages() -> Path:
    """Return their folder, to be put in front of the test environment's own packages."""
    folder = Path(f"{sys.prefix}-platforms")
    assert folder.is_dir(), f"{folder} is missing: run `bash tests/environment/install_platforms {sys.prefix}`"
    return folder


def ask(request: Mapping[str, Any], folder: Path, **environment: str) -> dict[str, Any]:
    """Return what the probe says; `folder` is also nemo-run's home and that of SkyPilot."""
    (folder / "request.json").write_text(json.dumps(request))
    own = {"HOME": str(folder / "home"), "NEMORUN_HOME": str(folder / "nemo_run")}
    variables = {**own, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", **environment}
    files = (folder / "request.json", folder / "out.json")
    run_module("tests.support.executor_probe", *files, first=[platform_packages()], **variables)
    content: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return content
