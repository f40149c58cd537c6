"""bridgepack.launch, the function."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bridgepack
from tests.support.launches import launch_recipe

pytest.importorskip("nemo_run")


def test_the_package_is_the_function(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def submit(plan: Any, **options: Any) -> Any:
        seen.update(options, plan=plan)
        return SimpleNamespace(has_failed=False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bridgepack.launch.experiment.submit", submit)
    recipe = launch_recipe(tmp_path, chatml_tokenizer)
    changes = {"overrides": {"packing.seed": 3}, "cluster_overrides": {"workspace": "w"}}
    result = bridgepack.launch(recipe, "local", **changes, skip=["train"], follow=True)

    assert result.has_failed is False
    assert seen["plan"].recipe.packing.seed == 3
    assert seen["plan"].run_folder.startswith(f"{tmp_path}/w/runs/small_")
    assert seen["plan"].tasks == ("build", "check")
    assert (seen["detach"], seen["follow"]) == (False, True)


def test_without_nemo_run_plans_are_made_and_the_rest_says_what_to_install() -> None:
    program = """
import sys
sys.modules["nemo_run"] = None
import bridgepack.launch
bridgepack.launch.find_spec = lambda name: None
import bridgepack
from bridgepack.errors import ConfigError
from bridgepack.launch.plan import plan_launch
try:
    bridgepack.launch("r", "local")
except ConfigError as error:
    assert 'pip install -e ".[launch]"' in str(error)
else:
    raise SystemExit("nothing was said")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
