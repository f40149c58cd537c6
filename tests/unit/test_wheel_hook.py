"""The hook of the build puts both schemas into the wheel, with no more than the packages that it names."""

import json
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.write import cluster_schema, recipe_schema, schema_text
from tests.support.docs_blocks import PROJECT

SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())
HOOK = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
#: Prints the modules that the schemas are made with, by the distributions they are of.
_IMPORTED = """
import json, sys
from importlib.metadata import packages_distributions
before = {name.partition(".")[0] for name in sys.modules}
from bridgepack.config.write import cluster_schema, recipe_schema
recipe_schema(), cluster_schema()
distributions = packages_distributions()
names = {name.partition(".")[0] for name in sys.modules} - before
print(json.dumps(sorted({distribution for name in names for distribution in distributions.get(name, ())})))
"""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", sys.path[:])
    spec = spec_from_file_location("wheel_hook", PROJECT / HOOK["path"])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SchemasHook(str(PROJECT), HOOK, None, None, "", "wheel", None)


def test_wheel_has_both_schemas(hook: Any) -> None:
    build_data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", build_data)
    texts = {place: Path(file).read_text(encoding="utf-8") for file, place in build_data["force_include"].items()}
    hook.finalize("standard", build_data, "")

    assert texts == {
        "bridgepack/schemas/recipe.schema.json": schema_text(recipe_schema()),
        "bridgepack/schemas/cluster.schema.json": schema_text(cluster_schema()),
    }
    assert not [file for file in build_data["force_include"] if Path(file).exists()]


def test_editable_install_needs_nothing(hook: Any) -> None:
    build_data: dict[str, Any] = {"force_include": {}}
    hook.initialize("editable", build_data)
    hook.finalize("editable", build_data, "")
    assert build_data == {"force_include": {}}


def test_hook_needs_no_more_than_it_names() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True)
    needed_by_pydantic = {"annotated-types", "pydantic_core", "typing-inspection", "typing_extensions"}
    named = {requirement.partition(">=")[0] for requirement in HOOK["dependencies"]}
    assert set(json.loads(done.stdout)) - needed_by_pydantic - {"bridgepack"} == named
    assert set(HOOK["dependencies"]) < set(SETTINGS["project"]["dependencies"])
