"""Plans of the catalogue's models at 8, 64 and 512 GPUs: reviewed, and clean under `check`.

`BRIDGEPACK_REGENERATE=1` writes the file anew.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.load import catalogue
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.layout import gpu_by_name
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.plan import plan_recipe
from bridgepack.rules.judging.rule import Severity
from tests.support.golden import renewed_by
from tests.support.shipped_plans import described

FILE = Path(__file__).parents[2] / "golden" / "plans.json"
RANDOM = np.random.default_rng(11)
#: Chats, one in twenty long, a few of which no pack below 32,768 takes; repeated as often as a large run needs.
LENGTHS = Lengths(
    runtime=np.concatenate([RANDOM.integers(50, 3000, 1900), RANDOM.integers(3000, 16000, 95), [20000, 30000]]),
    share=0.01,
    origin="made up",
)


def _recipes() -> dict[str, SFTRecipe]:
    """Return the shortest full recipe of every model of the catalogue that is packed before the run."""
    found: dict[str, SFTRecipe] = {}
    for entry in catalogue():
        recipe = entry.recipe
        if recipe and recipe.model and recipe.packing.mode == "offline" and recipe.method.kind == "full":
            found.setdefault(recipe.tokenizer.name_or_path, recipe)
    return found


RECIPES = _recipes()


def _answer(recipe: SFTRecipe, num_gpus: int) -> str:
    try:
        plan = plan_recipe(recipe, LENGTHS, gpu=gpu_by_name("h100-80gb"), num_gpus=num_gpus)
    except ConfigError as error:
        return f"none: {str(error).partition(' weights take ')[2].partition(' of each')[0]} of each GPU"
    report = check_target(plan.best_recipe, CheckOptions(looks_at_files=False))
    assert not [finding for finding in report.findings if finding.severity is Severity.ERROR]
    best = plan.best
    return (
        f"{best.packed_sequence_size} {described(best.layout)} batch {best.global_batch_size}: "
        f"{best.memory.total_gb:.0f} GB, {best.tokens_per_s:.0f} tokens/s"
    )


@pytest.mark.full
@pytest.mark.parametrize("model", sorted(RECIPES))
def test_answers_are_as_reviewed(model: str) -> None:
    answers = {str(num_gpus): _answer(RECIPES[model], num_gpus) for num_gpus in (8, 64, 512)}

    golden = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        golden = dict(sorted({**golden, model: answers}.items()))
        FILE.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    assert answers == golden.get(model), renewed_by(__file__)


def test_the_file_has_the_models_of_the_catalogue() -> None:
    assert sorted(json.loads(FILE.read_text(encoding="utf-8"))) == sorted(RECIPES)
