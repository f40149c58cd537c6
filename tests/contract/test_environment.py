"""The test environment is the one its lock files describe, and the host in it imports and knows what it lacks."""

import importlib.metadata
import sysconfig
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.installed_host import host_version

pytestmark = pytest.mark.bridge

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = PROJECT / "tests" / "environment"


def _locked_versions(*names: str) -> dict[str, str]:
    lines = [line for name in names for line in (ENVIRONMENT / name).read_text().splitlines()]
    pins = [line.partition("==") for line in lines if line and not line.startswith(("#", " "))]
    return {canonicalize_name(name): version.removesuffix(" \\") for name, _, version in pins}


def test_installed_versions_are_the_locked_ones() -> None:
    locked = _locked_versions("lock.txt", "lock-glibc.txt")
    found = importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
    installed = {canonicalize_name(distribution.name): distribution.version for distribution in found}

    assert {name: installed.get(name) for name in locked} == locked
    assert len(locked) > 100


def test_the_native_library_without_an_author_is_installed_by_hash() -> None:
    lines = (ENVIRONMENT / "lock.txt").read_text().splitlines()
    [place] = [place for place, line in enumerate(lines) if line.startswith("fastokens==")]
    assert lines[place].endswith(" \\")
    assert lines[place + 1].startswith("    --hash=sha256:")


def test_lock_satisfies_what_the_project_declares() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    declared = [*project["project"]["dependencies"], *groups["dev"], *groups["docs"]]
    locked = _locked_versions("lock.txt")
    num_checked = 0

    for requirement in map(Requirement, declared):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement
        num_checked += 1

    assert num_checked > 0


def test_cuda_lock_repeats_nothing() -> None:
    assert not _locked_versions("lock-cuda.txt").keys() & _locked_versions("lock.txt").keys()


def test_host_is_the_supported_one(bridge: ModuleType) -> None:
    """Their own `__version__` ends in the commit of the working directory's git repository, whatever that is."""
    import megatron.core

    assert bridge.__version__.partition("+")[0] == host_version()
    assert megatron.core.__version__.partition("+")[0] == host_version("megatron-core")
    assert importlib.import_module("nemo_run").__version__.partition("+")[0] == "0.11.1"


def test_host_knows_that_it_has_neither_gpu_nor_transformer_engine(bridge: ModuleType) -> None:
    from megatron.core.extensions.transformer_engine import HAVE_TE

    assert HAVE_TE is False
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("transformer_engine")
    assert not torch.cuda.is_available()
