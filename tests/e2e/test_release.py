"""What the release workflow runs: sdist and wheel are built, checked, installed apart, and tried."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
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
    assert _commands(jobs["build"])[-1] == "scripts/release --build dist --no-isolation"
    assert _commands(jobs["try"]) == ["scripts/release --try dist"]
    assert _commands(jobs["publish"])[-1] == "python -m twine upload --non-interactive dist/*"
    assert set(jobs["publish"]["needs"]) == {"build", "try", "versions", "site"}
    assert jobs["publish"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert "secrets." not in text


def test_what_builds_and_uploads_is_installed_by_hash() -> None:
    text = (PROJECT / ".github/workflows/release.yml").read_text()
    jobs = YAML(typ="safe", pure=True).load(text)["jobs"]
    install = "python -m pip install --quiet --no-deps --require-hashes --requirement .github/release-tools.txt"
    for job in ("build", "publish"):
        assert [line for line in _commands(jobs[job]) if "pip" in line] == [install]
    lock = (PROJECT / ".github/release-tools.txt").read_text()
    names = {line.partition("==")[0] for line in lock.splitlines() if "==" in line}
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    hook = build["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["dependencies"]
    needed = {
        canonicalize_name(Requirement(text).name)
        for text in [*build["build-system"]["requires"], *hook, "build", "twine"]
    }
    assert needed <= names
    assert lock.count("--hash=sha256:") >= len(names) > len(needed)


def test_actions_are_commits() -> None:
    files = [PROJECT / "action.yml", *sorted((PROJECT / ".github/workflows").iterdir())]
    used = [
        line.split("uses:")[1].strip() for file in files for line in file.read_text().splitlines() if "uses:" in line
    ]
    others = [text for text in used if not text.startswith("./")]
    assert len(others) > 10
    assert [text for text in others if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", text)] == []
    watched = YAML(typ="safe", pure=True).load((PROJECT / ".github/dependabot.yml").read_text())["updates"]
    assert {entry["package-ecosystem"] for entry in watched} == {"github-actions", "pip", "docker"}
    for folder in (folder for entry in watched for folder in entry.get("directories", [entry.get("directory")])):
        assert (PROJECT / folder.removeprefix("/")).is_dir()


def _commands(job: dict[str, Any]) -> list[str]:
    """Return the lines of a job's scripts."""
    return [line for step in job["steps"] for line in step.get("run", "").splitlines()]


def test_the_workflow_attaches_the_site_to_the_release() -> None:
    jobs = YAML(typ="safe", pure=True).load((PROJECT / ".github/workflows/release.yml").read_text())["jobs"]
    commands = "".join(step.get("run", "") for step in jobs["site"]["steps"])
    uploads = [step["with"]["path"] for step in jobs["site"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert "--group docs .\npython -m mkdocs build --strict\n" in commands
    assert uploads == ["bridgepack-site.tar.gz"]
    assert f"tar -czf {uploads[0]} site\n" in commands
    assert jobs["attach"]["needs"] == ["build", "try", "versions", "site"]
    assert "gh release create" in jobs["attach"]["steps"][-1]["run"]


def test_the_image_copies_what_is_there() -> None:
    ignored = (PROJECT / ".dockerignore").read_text().split()
    assert not {"src", "recipes", "README.md", "LICENSE", "pyproject.toml"} & set(ignored)
    assert 'ENTRYPOINT ["bridgepack"]' in (PROJECT / "Dockerfile").read_text()


def test_the_base_and_the_packages_of_the_image_are_pinned() -> None:
    lines = (PROJECT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert re.fullmatch(r"python:3\.12-slim@sha256:[0-9a-f]{64}", bases[0])
    assert set(bases[1:]) == {"base"}
    installs = [line for line in lines if "pip install" in line and not line.startswith("#")]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "/wheels/" in line for line in installs)
