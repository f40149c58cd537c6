"""The recipe that tests of launches begin with."""

from pathlib import Path

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.launches import launch_recipe


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> SFTRecipe:
    """Return a recipe for one GPU whose files are in the current folder."""
    monkeypatch.chdir(tmp_path)
    return launch_recipe(tmp_path, chatml_tokenizer)
