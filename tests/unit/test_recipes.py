"""The recipes of `recipes/`: their names and what their docstrings say."""

import importlib
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridgepack.config.load import load_recipe
from bridgepack.config.reading import load_module, load_object
from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.catalogue import RECIPES, catalogue, function_of

TARGETS = catalogue()
NAME = re.compile(r"[a-z0-9_]+_(sft|peft)_(\d+)gpu_(h100|gb200)_(bf16|fp8cs|fp8mx)(_[a-z0-9_]+)?_recipe")
SUFFIXES = {4096: "", 8192: "_8k", 16384: "_16k", 32768: "_32k", 131072: "_128k"}
SIZES = {
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "CP": "context_parallel_size",
    "EP": "expert_model_parallel_size",
}
HEAVY = ("torch", "megatron", "transformers", "datasets", "pyarrow", "numpy.testing")


def test_names_are_unique() -> None:
    assert 0 < len({function_of(target) for target in TARGETS}) == len(TARGETS)


@pytest.mark.parametrize("target", TARGETS, ids=function_of)
def test_name_says_what_the_recipe_is(target: str) -> None:
    recipe, matched = load_recipe(target), NAME.fullmatch(function_of(target))

    assert matched is not None
    assert recipe.name == function_of(target) == _function(target).__name__ == _function(target).__qualname__
    assert recipe.parallelism.num_gpus == int(matched[2])
    assert recipe.method.kind == ("full" if matched[1] == "sft" else "lora")
    assert recipe.precision.recipe == "bf16_mixed"
    variant = matched[5] or ""
    length = SUFFIXES[recipe.packing.packed_sequence_size]
    assert length in variant
    assert not any(other in variant for other in SUFFIXES.values() if other not in ("", length))


@pytest.mark.parametrize("target", TARGETS, ids=function_of)
def test_docstring_says_gpus_length_and_topology(target: str) -> None:
    recipe = load_recipe(target)
    document = inspect.getdoc(_function(target)) or ""
    topology = recipe.parallelism
    found = {short: int(size) for short, size in re.findall(r"\b(TP|PP|CP|EP|DP) (\d+)\b", document.split("\n")[0])}

    assert f" {topology.num_gpus} H100" in document
    assert str(recipe.packing.packed_sequence_size) in document
    assert topology.num_gpus is not None
    assert found.pop("DP") == topology.num_gpus // topology.ranks_of_copy
    assert {SIZES[short]: size for short, size in found.items()} == {
        path: getattr(topology, path) for path in SIZES.values() if getattr(topology, path) > 1
    }
    assert re.search(r"\d+ GiB of state", " ".join(document.split()))
    if recipe.packing.mode != "in_batch":
        assert topology.sequence_parallel == (topology.tensor_model_parallel_size > 1)


def test_recipes_load_without_heavy_libraries() -> None:
    code = (
        "import sys\n"
        "from bridgepack.config.load import load_recipe\n"
        "for target in sys.argv[1:]: load_recipe(target)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )

    done = subprocess.run([sys.executable, "-c", code, *TARGETS], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_recipes_load_as_modules_and_other_processes_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECIPES.parent)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    name = "qwen3_8b_sft_4gpu_h100_bf16_recipe"
    assert load_object(f"recipes.qwen3:{name}") == load_recipe(RECIPES / f"qwen3.py:{name}")

    function = importlib.import_module("recipes.llama3").llama32_1b_sft_1gpu_h100_bf16_recipe

    assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301


def test_recipes_of_one_row_share_nothing() -> None:
    function = _function(str(RECIPES / "deepseek_v3.py:deepseek_v3_sft_256gpu_h100_bf16_recipe"))
    function().bridge_overrides["model"]["num_layers_in_last_pipeline_stage"] = 1

    assert function().bridge_overrides == {"model": {"num_layers_in_last_pipeline_stage": 5}}


def _function(target: str) -> Callable[[], SFTRecipe]:
    file, _, name = target.rpartition(":")
    function: Callable[[], SFTRecipe] = getattr(load_module(Path(file)), name)
    return function
