"""Recipes of ours train: dense and MoE, every weight and LoRA, ten steps of megatron-bridge's own finetune() on CPU.

model.name is a folder with a config.json, the packs are built by bridgepack, precision is bf16_mixed, tokens reach
experts by alltoall, and each run saves a checkpoint. All four run. What a machine without a GPU and without
TransformerEngine (TE) stops, and what is done about it here:

- TE's layers, fused RoPE, fused token permutation, NCCL: other settings, `ON_CPU` of tests/support/tiny_recipes.py. So
  the experts are megatron-core's SequentialMLP; grouped GEMM (TEGroupedMLP) and LoRA on it cannot run here.
- megatron-core's local attention refuses packed sequences: `ThdAttention` takes its place.
- CUDA calls of the training loop: src/bridgepack/canary/cpu/training.py, as in test_training.py.
- LoRA: megatron-bridge believes that TE is there and compares layers with stand-ins: told that it is not.
- MoE: the dispatcher waits for an event of a CUDA stream: it gets one that is always over.
"""

import math
from statistics import mean
from typing import Any, get_args

import pytest

from bridgepack.api import build
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations
from tests.support.processes import ONE_RANK, asked
from tests.support.tiny_recipes import (
    NUM_EVAL_PACKS,
    NUM_LAYERS,
    NUM_PACKS_PER_STEP,
    NUM_STEPS,
    VOCAB_SIZE,
    MethodKind,
    Model,
    TinyRequest,
    tiny_recipe,
    write_model,
)

pytestmark = [pytest.mark.bridge, pytest.mark.full]

MODELS: tuple[Model, ...] = get_args(Model.__value__)
METHODS: tuple[MethodKind, ...] = get_args(MethodKind.__value__)
RUNS = [(model, method) for model in MODELS for method in METHODS]
#: Part of the first loss that is left at the end. Adapters cannot move the output layer, which is random.
LOSS_LEFT = {"full": 0.85, "lora": 0.95}

Run = dict[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Run]:
    """Return what each run saw; they share one artifact, and one process of their own."""
    folder = tmp_path_factory.mktemp("tiny")
    write_docstring_conversations(folder / "training.jsonl", validation_path=folder / "validation.jsonl", limit=200)
    train_chatml_tokenizer(folder / "tokenizer", iter_texts(folder / "training.jsonl"), vocab_size=VOCAB_SIZE)
    for model in MODELS:
        write_model(folder / model, model)
    artifact = build(tiny_recipe(folder, "dense", "full"), output=folder / "artifact").output
    requests = [
        TinyRequest(model=model, method=method, artifact=str(artifact), work=str(folder)) for model, method in RUNS
    ]
    offline = {**ONE_RANK, "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    return dict(zip(RUNS, asked("tests.support.tiny_recipes", requests, folder, **offline), strict=True))


@pytest.mark.parametrize(("model", "method"), RUNS)
def test_ten_steps_lower_the_loss(runs: dict[tuple[str, str], Run], model: Model, method: MethodKind) -> None:
    run = runs[model, method]

    assert len(run["losses"]) == NUM_STEPS
    assert run["num_skipped_steps"] == 0
    assert all(map(math.isfinite, run["losses"] + run["eval_losses"]))
    assert mean(run["losses"][-3:]) < LOSS_LEFT[method] * run["losses"][0]
    assert len(run["eval_losses"]) > 0
    assert run["eval_losses"][-1] < LOSS_LEFT[method] * run["losses"][0]


@pytest.mark.parametrize(("model", "method"), RUNS)
def test_every_attention_call_is_packed(runs: dict[tuple[str, str], Run], model: Model, method: MethodKind) -> None:
    run = runs[model, method]
    num_packs = NUM_PACKS_PER_STEP * NUM_STEPS + NUM_EVAL_PACKS * len(run["eval_losses"])

    assert run["num_dense_calls"] == 0
    assert run["num_thd_calls"] == NUM_LAYERS * num_packs


@pytest.mark.parametrize(("model", "method"), RUNS)
def test_runs_start_from_the_weights_of_the_recipe(
    runs: dict[tuple[str, str], Run], model: Model, method: MethodKind
) -> None:
    """The weights were drawn with another seed than the run's; new adapters change no output."""
    run = runs[model, method]

    assert run["losses"][0] == pytest.approx(run["loss_of_weights"], abs=1e-3)
    assert run["saved_steps"] == [NUM_STEPS]


@pytest.mark.parametrize("model", MODELS)
def test_lora_trains_nothing_but_adapters(runs: dict[tuple[str, str], Run], model: Model) -> None:
    full, lora = runs[model, "full"], runs[model, "lora"]

    assert full["num_frozen"] == 0
    assert lora["num_frozen"] == full["num_trained"]
    assert lora["trained_modules"] == ["linear_in", "linear_out"]
    assert lora["adapted_modules"] == ["linear_fc1", "linear_fc2", "linear_proj", "linear_qkv"]


def test_experts_and_router_are_trained(runs: dict[tuple[str, str], Run]) -> None:
    dense, moe = runs["dense", "full"], runs["moe", "full"]

    assert "router" in moe["trained_modules"]
    assert "router" not in dense["trained_modules"]
    assert (dense["num_experts"], moe["num_experts"]) == (0, 4)
