"""The catalogue: which folders count, which files are recipes, and names that lead to them."""

from pathlib import Path

import pytest

from bridgepack.config.load import catalogue, catalogue_folders, catalogue_names, catalogue_target, load_recipe
from bridgepack.errors import ConfigError
from tests.support import catalogue as own

RECIPE = f"""
from bridgepack import SFTRecipe
from bridgepack.config.load import load_recipe


def small_recipe() -> SFTRecipe:
    \"\"\"Return a small one.

    More of it.
    \"\"\"
    return SFTRecipe.from_mapping({own.SMALL})
"""
YAML_RECIPE = own.SMALL_YAML.replace("small", "y")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder recipes/ of an empty current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    return tmp_path / "recipes"


def test_folder_here_comes_first(here: Path) -> None:
    (here / "mine.py").write_text(RECIPE.replace("small_recipe", "quickstart"), encoding="utf-8")
    (here / "quickstart.yaml").write_text(YAML_RECIPE, encoding="utf-8")
    entry = next(entry for entry in catalogue(family="quickstart") if entry.name == "quickstart")

    assert catalogue_folders()[0] == Path("recipes")
    assert entry.recipe is not None
    assert entry.recipe.name == "y"
    assert catalogue_target("quickstart") == "recipes/quickstart.yaml"


def test_no_python_of_the_folder_here_runs_until_it_is_named(here: Path) -> None:
    (here / "cloned.py").write_text("open('run', 'w').close()\n" + RECIPE, encoding="utf-8")
    (here / "other.py").write_text("open('run', 'w').close()\n" + RECIPE.replace("small_", "large_"), encoding="utf-8")
    listed = {entry.name: entry for entry in catalogue()}
    targets = catalogue_target("small"), catalogue_names()

    small = listed["small_recipe"]
    assert (small.recipe, small.error, small.summary) == (None, "", "Return a small one.")
    assert targets[0] == "recipes/cloned.py:small_recipe"
    assert {"small_recipe", "large_recipe"} <= set(targets[1])
    with pytest.raises(ConfigError, match=r"^recipe is 'smal_recipe'; allowed: .*\. Did you mean small_recipe\?$"):
        load_recipe("smal_recipe")
    with pytest.raises(ConfigError, match=r"^--family is 'clond'; allowed: .*cloned.*\. Did you mean cloned\?$"):
        catalogue(family="clond")
    assert not Path("run").exists()

    stops = "raise SystemExit('run')\n"
    (here / "plain.py").write_text(stops, encoding="utf-8")
    for name in ("other.py", "_helper.py", ".hidden.py"):
        (here / name).write_text(stops + RECIPE.replace("small_", "large_"), encoding="utf-8")
    assert {entry.family for entry in catalogue()}.isdisjoint({"plain", "_helper", ".hidden"})
    assert load_recipe("small").name == "small"
    assert Path("run").exists()


def test_names_are_those_of_functions_that_can_be_called(here: Path) -> None:
    lines = [
        "from bridgepack.config.recipe.rows import Model as row_recipe",
        "from elsewhere import imported_recipe, small as renamed_recipe",
        "row_recipe_ = made_recipe = make()",
        "text_recipe = 'text'",
        "class Kind_recipe: ...",
        "def sized_recipe(size, *, optional=1): ...",
        "def keyed_recipe(*, size): ...",
        "def optional_recipe(size=1, *rest, key=2, **more): ...",
        "async def waiting_recipe(): ...",
        "def _hidden_recipe(): ...",
    ]
    (here / "mine.py").write_text("\n".join(lines), encoding="utf-8")

    names = " ".join(entry.name for entry in catalogue(family="mine"))
    assert names == "imported_recipe renamed_recipe made_recipe optional_recipe"


def test_broken_recipes_are_told_and_the_others_are_there(here: Path) -> None:
    (here / "broken.py").write_text("import bridgepack\ndef small_recipe(:\n", encoding="utf-8")
    (here / "fails.py").write_text(f"{RECIPE}\nraise RuntimeError('no')\n", encoding="utf-8")
    (here / "wrong.yaml").write_text(YAML_RECIPE.replace("16", "-1"), encoding="utf-8")
    (here / "good.yaml").write_text(YAML_RECIPE, encoding="utf-8")
    errors = {entry.name: entry.error for entry in catalogue() if entry.error}

    assert errors["broken"].startswith("recipe 'recipes/broken.py' is not Python: ")
    assert errors["wrong"] == "packing.packed_sequence_size is -1; allowed: at least 1. Raise it."
    assert len(errors) == 2
    assert load_recipe("good").name == "y"
    with pytest.raises(ConfigError, match=r"^recipe 'recipes/fails\.py' failed: RuntimeError: no\."):
        load_recipe("small")
