"""Tokens are found again only by the code that made them."""

import shutil
from pathlib import Path

import pytest

import bridgepack
from bridgepack.data.identity import code_digest, source_digest
from bridgepack.errors import DataError

PACKAGE = Path(bridgepack.__file__).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of the package."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "bridgepack", ignore=shutil.ignore_patterns("__pycache__")))


def test_a_change_anywhere_changes_the_digest(package: Path) -> None:
    digests = {source_digest(package)}
    assert digests == {code_digest()}
    modules = list({module.parent: module for module in package.rglob("*.py")}.values())
    for module in modules:
        with module.open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        digests.add(source_digest(package))

    (package / "geometry.py").rename(package / "config" / "geometry.py")
    digests.add(source_digest(package))

    assert len(digests) == len(modules) + 2
    assert any(len(module.relative_to(package).parts) > 2 for module in modules)


def test_a_folder_without_source_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no Python files"):
        source_digest(tmp_path)
