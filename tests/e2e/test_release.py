"""What the release workflow runs: sdist and wheel are built, checked, installed apart, and tried."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import bridgepack
from bridgepack.config.write import cluster_schema, recipe_schema, schema_text
from tests.e2e.test_pre_commit import OFFLINE_PIP
from tests.support.docs_blocks import PROJECT
from tests.support.messages import mentions

pytestmark = pytest.mark.full

VERSION = bridgepack.__version__


def _released(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **OFFLINE_PIP,
        "PIP_FORCE_REINSTALL": "1",
        "HF_HUB_OFFLINE": "1",
        **variables,
    }
    command = [PROJECT / "scripts" / "release", folder, "--no-isolation"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_release_has_its_tag_s_version_and_is_built_checked_and_tried(tmp_path: Path) -> None:
    done = _released(tmp_path, GITHUB_REF_NAME="v99.0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"bridgepack 99.0.1 is ready in {tmp_path}"
    assert "bridgepack, version 99.0.1" in done.stdout
    assert done.stdout.count("PASSED") == 2
    with zipfile.ZipFile(tmp_path / "bridgepack-99.0.1-py3-none-any.whl") as wheel:
        names = wheel.namelist()
        for name, schema in (("recipe", recipe_schema()), ("cluster", cluster_schema())):
            assert wheel.read(f"bridgepack/schemas/{name}.schema.json").decode() == schema_text(schema)
    assert {"bridgepack/py.typed", "bridgepack/api/builds.py", "bridgepack/canaries/cpu/__init__.py"} <= set(names)
    assert any(name.startswith("bridgepack/recipes_catalogue/") for name in names)
    with tarfile.open(tmp_path / "bridgepack-99.0.1.tar.gz") as sdist:
        assert "bridgepack-99.0.1/scripts/release" in sdist.getnames()
    assert f'__version__ = "{VERSION}"' in (PROJECT / "src/bridgepack/__init__.py").read_text()


def test_a_tag_that_is_no_version_is_refused(tmp_path: Path) -> None:
    done = _released(tmp_path, GITHUB_REF_NAME="v0.2.x")
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert mentions(done.stderr, "tag is v0.2.x; ", "version of PEP 440")


def test_the_workflow_publishes_without_a_token() -> None:
    text = (PROJECT / ".github/workflows/release.yml").read_text()
    jobs = YAML(typ="safe", pure=True).load(text)["jobs"]
    assert any(step.get("run", "").endswith("scripts/release dist\n") for step in jobs["build"]["steps"])
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


def test_the_workflow_attaches_the_site_to_the_release() -> None:
    jobs = YAML(typ="safe", pure=True).load((PROJECT / ".github/workflows/release.yml").read_text())["jobs"]
    commands = "".join(step.get("run", "") for step in jobs["site"]["steps"])
    uploads = [step["with"]["path"] for step in jobs["site"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert "--group docs .\npython -m mkdocs build --strict\n" in commands
    assert uploads == ["bridgepack-site.tar.gz"]
    assert f"tar -czf {uploads[0]} site\n" in commands
    assert jobs["attach"]["needs"] == ["build", "site"]
    assert "gh release create" in jobs["attach"]["steps"][-1]["run"]


def test_the_image_copies_what_is_there() -> None:
    ignored = (PROJECT / ".dockerignore").read_text().split()
    assert not {"src", "recipes", "README.md", "LICENSE", "pyproject.toml"} & set(ignored)
    assert 'ENTRYPOINT ["bridgepack"]' in (PROJECT / "Dockerfile").read_text()
