"""Models with vision, large heads and kinds of GPUs get no layout that ends at the first step."""

from dataclasses import replace

import numpy as np
import pytest

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.layout import Layout, gpu_by_name
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.limits import Limits, limits_of
from bridgepack.planning.plan import Plan, plan_recipe
from tests.support.messages import mentions

LENGTHS = Lengths(runtime=np.full(4096, 512), share=1.0, origin="made up")


def _recipe(model: str, *, kind: str = "full") -> SFTRecipe:
    return SFTRecipe.from_mapping(
        {
            "name": "mine",
            "data": {"train": "chats.jsonl", "validation_fraction": 0.02},
            "tokenizer": {"name_or_path": model},
            "preprocessing": {"kind": "chat"},
            "packing": {"packed_sequence_size": 8192},
            "model": {"name": model},
            "method": {"kind": kind},
            "batch": {"tokens_per_step": 1 << 19},
            "schedule": {"num_epochs": 1},
            "checkpoint": {"pretrained": "checkpoints/model", "folder": "runs/mine"},
        }
    )


def _plan(model: str, *, gpu: str = "h100-80gb", num_gpus: int = 8, kind: str = "full") -> Plan:
    recipe = _recipe(model, kind=kind)
    return plan_recipe(recipe, LENGTHS, gpu=gpu_by_name(gpu), num_gpus=num_gpus, sizes=(8192,))


@pytest.mark.parametrize(
    ("model", "num_gpus"),
    [("Qwen/Qwen3.5-27B", 8), ("Qwen/Qwen3-VL-8B-Instruct", 8), ("Qwen/Qwen3-VL-30B-A3B-Instruct", 32)],
)
def test_class_that_computes_positions_by_sequence_gets_one_whole_unpadded_pack_for_each_rank(
    model: str, num_gpus: int
) -> None:
    plan = _plan(model, num_gpus=num_gpus)

    for one in plan.candidates:
        assert one.layout.context == one.layout.multiple == 1
        assert one.global_batch_size == one.layout.data
    found = check_target(plan.best_recipe, CheckOptions(looks_at_files=False)).findings
    assert [finding.code for finding in found if finding.severity != "advice"] == []


def test_class_that_cuts_rows_itself_gets_no_context_parallelism_but_sequence_parallelism() -> None:
    plan = _plan("mistralai/Ministral-3-14B-Instruct-2512")

    assert plan.best.layout.context == 1
    assert plan.best.layout.tensor > 1
    assert plan.best.layout.splits_sequence


def test_class_that_takes_no_packs_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"BP943.*Gemma3ForCausalLM"):
        _plan("google/gemma-3-4b-it")


def test_heads_of_a_gpu() -> None:
    qwen3_next, llama = _recipe("Qwen/Qwen3-Next-80B-A3B-Instruct"), _recipe("meta-llama/Meta-Llama-3-8B")

    unpadded = Limits(has_one_context=True, keeps_rows=True, because=limits_of(llama, "a100-80gb").because)
    assert limits_of(qwen3_next, "h100-80gb") == Limits(is_mixture=True)
    assert limits_of(qwen3_next, "gb200-186gb") == replace(unpadded, is_mixture=True)
    assert limits_of(llama, "b200-180gb") == Limits()
    assert limits_of(llama, "a100-80gb") == unpadded
    assert mentions(unpadded.because, "heads on this GPU", "no context parallelism", "padding of sequences")
    assert limits_of(_recipe("google/gemma-4-26B-A4B-it"), "h100-80gb").has_one_context
    assert limits_of(_recipe("deepseek-ai/DeepSeek-V3"), "b200-180gb") == Limits(is_mixture=True)


def test_whole_rows_are_no_sequence_parallelism() -> None:
    split, alone, cut = (
        Layout(num_gpus=8, tensor=2),
        Layout(num_gpus=8, pipeline=2),
        Layout(num_gpus=8, tensor=2, context=2),
    )

    limits, experts = Limits(has_one_context=True, keeps_rows=True), Limits(keeps_rows=True, is_mixture=True)

    found = [limits.left_of(layout) for layout in (split, alone, cut)]
    assert [one and (one.tensor, one.splits_sequence, one.multiple) for one in found] == [
        (2, False, 1),
        (1, True, 1),
        None,
    ]
    assert [experts.left_of(layout) for layout in (split, alone)] == [None, alone]
