"""Recipes of ours train: dense and MoE, every weight and LoRA, ten steps of megatron-bridge's own finetune() on CPU.

Dense models train on rows of every kind, too: sequences of any length or aligned, offsets of as many as there are or of
a fixed number.

model.name is a folder with a config.json, the packs are built by bridgepack, precision is bf16_mixed, tokens reach
experts by alltoall, and each run saves a checkpoint. All run. What a machine without a GPU and without
TransformerEngine (TE) stops, and what is done about it here:

- TE's layers, fused RoPE, fused token permutation, NCCL: other settings, `ON_CPU` of tests/support/tiny_recipes.py. So
  the experts are megatron-core's SequentialMLP; grouped GEMM (TEGroupedMLP) and LoRA on it cannot run here.
- megatron-core's local attention refuses packed sequences: `ThdAttention` takes its place.
- CUDA calls of the training loop: src/bridgepack/canaries/cpu/training.py.
- LoRA: megatron-bridge believes that TE is there and compares layers with stand-ins: told that it is not.
- MoE: the dispatcher waits for an event of a CUDA stream: it gets one that is always over.
"""

import math
from statistics import mean
from typing import Any, get_args

import pytest

from bridgepack.api import build
from tests.support import tiny_recipes as tiny
from tests.support.host_forks import asked
from tests.support.processes import ONE_RANK
from tests.support.small_builds import write_conversations

pytestmark = [pytest.mark.bridge, pytest.mark.full]

MODELS: tuple[tiny.Model, ...] = get_args(tiny.Model.__value__)
METHODS: tuple[tiny.MethodKind, ...] = get_args(tiny.MethodKind.__value__)
type Run = tuple[tiny.Model, tiny.MethodKind, tiny.Rows]
RUNS: list[Run] = [(model, method, "ragged") for model in MODELS for method in METHODS]
RUNS += [("dense", "full", rows) for rows in get_args(tiny.Rows.__value__) if rows != "ragged"]
#: Part of the first loss that is left at the end. Adapters cannot move the output layer, which is random.
LOSS_LEFT = {"full": 0.85, "lora": 0.95}

Seen = dict[Run, dict[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Return what each run saw; all are in one process of their own."""
    folder = write_conversations(tmp_path_factory.mktemp("tiny"), limit=200, vocab_size=tiny.VOCAB_SIZE)
    for model in MODELS:
        tiny.write_model(folder / model, model)
    artifacts = {
        rows: build(tiny.tiny_recipe(folder, "dense", "full", rows), output=folder / rows, num_workers=0).output
        for rows in get_args(tiny.Rows.__value__)
    }
    requests = [
        tiny.TinyRequest(model=model, method=method, rows=rows, artifact=str(artifacts[rows]), work=str(folder))
        for model, method, rows in RUNS
    ]
    offline = {**ONE_RANK, "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    return dict(zip(RUNS, asked("tests.support.tiny_recipes", requests, folder, **offline), strict=True))


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_ten_steps_lower_the_loss(seen: Seen, run: Run) -> None:
    one, left = seen[run], LOSS_LEFT[run[1]]

    assert len(one["losses"]) == tiny.NUM_STEPS
    assert one["num_skipped_steps"] == 0
    assert all(map(math.isfinite, one["losses"] + one["eval_losses"]))
    assert mean(one["losses"][-3:]) < left * one["losses"][0]
    assert len(one["eval_losses"]) > 0
    assert one["eval_losses"][-1] < left * one["losses"][0]


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_runs_start_from_the_recipe_s_weights_and_every_attention_call_is_packed(seen: Seen, run: Run) -> None:
    """The weights were drawn with another seed than the run's; new adapters change no output."""
    num_packs = tiny.NUM_PACKS_PER_STEP * tiny.NUM_STEPS + tiny.NUM_EVAL_PACKS * len(seen[run]["eval_losses"])

    assert seen[run]["num_dense_calls"] == 0
    assert seen[run]["num_thd_calls"] == tiny.NUM_LAYERS * num_packs
    assert seen[run]["losses"][0] == pytest.approx(seen[run]["loss_of_weights"], abs=1e-3)
    assert seen[run]["saved_steps"] == [tiny.NUM_STEPS]


def test_fixed_offsets_change_no_loss(seen: Seen) -> None:
    """They round otherwise in bf16; test_canary.py compares them in float64."""
    for rows in ("ragged", "aligned"):
        ragged, fixed = seen["dense", "full", rows], seen["dense", "full", f"{rows}, fixed offsets"]
        assert ragged["losses"] == pytest.approx(fixed["losses"], abs=2e-3)


@pytest.mark.parametrize("model", MODELS)
def test_lora_trains_nothing_but_adapters(seen: Seen, model: tiny.Model) -> None:
    full, lora = seen[model, "full", "ragged"], seen[model, "lora", "ragged"]

    assert full["num_frozen"] == 0
    assert lora["num_frozen"] == full["num_trained"]
    assert lora["trained_modules"] == ["linear_in", "linear_out"]
    assert lora["adapted_modules"] == ["linear_fc1", "linear_fc2", "linear_proj", "linear_qkv"]


def test_experts_and_router_are_trained(seen: Seen) -> None:
    dense, moe = seen["dense", "full", "ragged"], seen["moe", "full", "ragged"]

    assert "router" in moe["trained_modules"]
    assert "router" not in dense["trained_modules"]
    assert (dense["num_experts"], moe["num_experts"]) == (0, 4)
