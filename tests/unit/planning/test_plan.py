"""Plans: packs and waiting as the build and the host have them, legal candidates, and what they say."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bridgepack
from bridgepack.bridge.refusing.refusals import errors_of
from bridgepack.bridge.replay_settings import replay_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import ConfigError, DataError, StoreError
from bridgepack.geometry import runtime_segment_lengths
from bridgepack.planning.balance import balance_for
from bridgepack.planning.estimate import cost_of, waiting_of
from bridgepack.planning.layout import gpu_by_name
from bridgepack.planning.lengths import Lengths, lengths_of, pack_lengths
from bridgepack.planning.plan import Plan, plan_recipe
from bridgepack.planning.shape import model_shape
from bridgepack.records import TRAIN
from bridgepack.replay.order import PackOrder
from bridgepack.reporting.results.plans import plan_blocks
from bridgepack.reporting.screen import screen
from tests.support.catalogue import SMALL
from tests.support.messages import mentions
from tests.support.small_builds import Command, build, tokenized_recipe, tokenized_row, write_json_lines, write_recipe

RANDOM = np.random.default_rng(5)
H100 = gpu_by_name("h100-80gb")
#: Chats, some long rows, a few that only the largest packs take.
RUNTIME = np.concatenate(
    [RANDOM.integers(50, 2000, 6000), RANDOM.integers(4000, 16000, 300), RANDOM.integers(20000, 40000, 20)]
)
LENGTHS = Lengths(runtime=RUNTIME, share=1.0, origin="made up")


def _recipe(model: str = "Qwen/Qwen3-8B", **changes: Any) -> SFTRecipe:
    sizes = {"packing": {"packed_sequence_size": 8192}, "batch": {"tokens_per_step": 1 << 19}}
    recipe = SFTRecipe.from_mapping({**SMALL, **sizes, "name": "mine", "model": {"name": model}})
    return recipe.override({path.replace("__", "."): value for path, value in changes.items()})


def _plan(recipe: SFTRecipe, num_gpus: int, **options: Any) -> Plan:
    return plan_recipe(recipe, LENGTHS, **{"gpu": H100, "num_gpus": num_gpus, **options})


def _rows(tmp_path: Path, num_rows: int = 600) -> Path:
    path = tmp_path / "rows.jsonl"
    lengths = np.random.default_rng(3).integers(3, 60, num_rows)
    write_json_lines(path, [tokenized_row(*([10 + index % 200] * int(one))) for index, one in enumerate(lengths)])
    return path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("parallelism__num_gpus", 4),
        ("preprocessing__over_long", "truncate"),
        ("packing__algorithm", "equal_cost"),
        ("parallelism__context_parallel_size", 2),
    ],
)
def test_fill_and_waiting_are_the_artifact_s(tmp_path: Path, chatml_tokenizer: Path, path: str, value: Any) -> None:
    sizes = {"packing__packed_sequence_size": 48, "parallelism__num_gpus": 4, "batch__global_batch_size": 8}
    changes = {"model": {"name": "Qwen/Qwen3-8B"}, **sizes, path: value}
    recipe = tokenized_recipe([str(_rows(tmp_path))], chatml_tokenizer, **changes)
    cost = cost_of(model_shape(recipe))

    packs = pack_lengths(lengths_of(recipe), recipe, recipe.resolve().pad_seq_to_mult.value)
    found = waiting_of(np.array([cost.sequence_flops(pack).sum() for pack in packs.packs]), recipe)
    artifact = Artifact(build(recipe, tmp_path / "out").output)
    built = [
        runtime_segment_lengths(row.seq_start_id, len(row.input_ids))
        for row in (artifact.row(TRAIN, index) for index in range(packs.num_packs))
    ]

    assert [sorted(pack.tolist()) for pack in packs.packs] == [sorted(pack.tolist()) for pack in built]
    split = artifact.manifest.splits[0]
    assert split.statistics.num_packs == packs.num_packs
    assert packs.fill_fraction == pytest.approx(artifact.manifest.fill_fraction(split))
    assert found.straggler_ratio == pytest.approx(_straggler_ratio(built, recipe))


def _straggler_ratio(packs: list[Any], recipe: SFTRecipe) -> float:
    """Return how much longer than the mean the slowest rank works; mean of 24 steps in the host's order."""
    cost, num_packs = cost_of(model_shape(recipe)), len(packs)
    settings = replay_settings(recipe, num_packs={TRAIN: num_packs}, world_size=None, version="0.6.2")
    order, ratios = PackOrder(settings), []
    for step in range(1, min(24, num_packs // settings.global_batch_size) + 1):
        ranks = range(settings.topology.data_parallel_size)
        work = [sum(cost.sequence_flops(packs[pack]).sum() for pack in order.packs_at(step, rank)) for rank in ranks]
        ratios.append(max(work) * len(work) / sum(work))
    return float(np.mean(ratios))


def test_lengths_of_an_artifact_are_those_of_its_data(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = tokenized_recipe([str(_rows(tmp_path))], chatml_tokenizer, packing__packed_sequence_size=40)
    output = build(recipe, tmp_path / "out").output

    of_rows, of_artifact = lengths_of(recipe), lengths_of(recipe, artifact=output)

    assert sorted(of_artifact.runtime.tolist()) == sorted(of_rows.runtime[of_rows.runtime <= 40].tolist())
    assert len(of_rows.runtime) == 600
    num_gone = int((of_rows.runtime > 40).sum())
    assert f"without {num_gone} rows " in of_artifact.origin
    assert of_artifact.origin.endswith("long for its packs")


def test_lengths_of_a_store_are_those_of_its_artifact(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = _rows(tmp_path)
    changes = {"data__validation_fraction": 0.2, "data__deduplicate": "exact", "packing__packed_sequence_size": 64}
    recipe = tokenized_recipe([{"path": str(rows), "epochs": 2}], chatml_tokenizer, **changes)
    built = Artifact(build(recipe, tmp_path / "out").output)
    store = tmp_path / ".bridgepack" / "tokens"

    found = lengths_of(recipe.override({"preprocessing.over_long": "truncate"}), store=store)

    packs, statistics = pack_lengths(found, recipe, 1), built.manifest.split(TRAIN).statistics  # type: ignore[union-attr]
    assert packs.num_packs == statistics.num_packs
    assert len(found.runtime) == statistics.num_sequences
    assert packs.num_tokens == int(lengths_of(recipe, artifact=built.folder).runtime.sum())
    with rows.open("a") as file:
        file.write(rows.read_text())
    with pytest.raises(DataError, match=r"lacks the tokens of 1,200 of the 1,200 rows of data.train; allowed: a store"):
        lengths_of(recipe, store=store)
    with pytest.raises(StoreError, match="not a token store"):
        lengths_of(recipe, store=tmp_path)


def test_over_long_sequences_are_counted_and_cost_tokens() -> None:
    lengths = Lengths(runtime=np.array([10, 20, 90, 80]), share=1.0, origin="")
    sizes = {"packing__packed_sequence_size": 40, "parallelism__num_gpus": 1}

    for action, num_tokens, lost in (("drop", 30, 0.85), ("truncate", 110, 0.45), ("split", 200, 0.0)):
        found = pack_lengths(lengths, _recipe(**sizes, preprocessing__over_long=action), 1)
        assert (found.num_tokens, found.over_long_fraction) == (num_tokens, 0.5)
        assert found.lost_fraction == pytest.approx(lost)


IN_TURN = [9.0, 1.0, 9.0, 1.0]


@pytest.mark.parametrize(
    ("num_gpus", "changes", "costs", "straggler", "balanced"),
    [
        (2, {}, IN_TURN, 1.8, 1.0),
        (1, {}, IN_TURN, 1.0, 1.0),
        (2, {"batch__global_batch_size": 2}, IN_TURN, 1.8, 1.8),
        (2, {"batch__global_batch_size": 2, "packing__balance": {"kind": "across_batches"}}, IN_TURN, 1.8, 1.0),
        # two stages take 45 for the passes of mean packs, 56 for packs of 9 and 1, 55 for packs of 1 and 9
        (4, {"parallelism__pipeline_model_parallel_size": 2}, IN_TURN, 1.8, 55 / 45),
        (4, {"parallelism__pipeline_model_parallel_size": 2}, [9.0, 1.0, 1.0, 9.0], 56 / 45, 55 / 45),
        (2, {"parallelism__expert_model_parallel_size": 2}, [9.0, 1.0, 1.0, 9.0], 1.8, 1.0),
    ],
)
def test_waiting_is_that_of_the_order_as_built_and_balanced(
    num_gpus: int, changes: dict[str, Any], costs: list[float], straggler: float, balanced: float
) -> None:
    in_order = {"parallelism__num_gpus": num_gpus, "bridge_overrides__dataset": {"dataloader_type": "single"}}
    sizes = {"batch__tokens_per_step": None, "batch__global_batch_size": 4}
    recipe = _recipe(**{**in_order, **sizes, **changes})

    found = waiting_of(np.array(costs * 8), recipe)

    assert found.balanced_ratio == pytest.approx(balanced, abs=1e-5)
    assert found.straggler_ratio == pytest.approx(straggler, abs=1e-5)


def test_a_plan_balances_where_that_gains_and_the_recipe_checks_clean() -> None:
    recipe = _recipe(preprocessing__over_long="truncate", batch__tokens_per_step=1 << 20)
    plan = _plan(recipe, 64, sizes=(8192,))
    waiting, text = plan.best.waiting, screen(plan_blocks(plan))

    assert plan.best.balance == plan.best_recipe.packing.balance.kind == "within_batch"
    assert waiting.straggler_ratio > waiting.balanced_ratio + 0.01
    assert balance_for(plan.best_recipe) is not None
    assert not errors_of(plan.best_recipe)
    assert "packing.balance.kind is within_batch: the slowest rank" in text
    assert text.startswith("plan of mine on 64 x h100-80gb; ")
    assert "memory are estimates" in text.partition("\n")[0]
    assert "\n    8,192  #" in text
    assert "best: step time is" in text
    assert "memory per GPU: weights" in text
    alone = _plan(plan.best_recipe, 1, gpu=gpu_by_name("b300"), sizes=(4096,)).best
    assert alone.balance == alone.changes["packing.balance.kind"] == "none"


@pytest.mark.parametrize("num_gpus", [8, 64])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-1b-pt"])
def test_every_candidate_is_legal_fits_and_is_ranked(model: str, num_gpus: int) -> None:
    plan = _plan(_recipe(model), num_gpus)

    for one in plan.candidates:
        assert not errors_of(plan.recipe.override(one.changes))
        assert one.memory.total_gb <= H100.budget_gb
        assert one.global_batch_size % one.layout.data == 0
        assert sum(one.parts.values()) == pytest.approx(1)
        assert (one.parts["pipeline"] > 0) == (one.layout.pipeline > 1)
    lossless = [one.tokens_per_s for one in plan.candidates if one.lost_fraction <= plan.best.lost_fraction + 0.001]
    assert lossless == sorted(lossless, reverse=True)
    assert len({one.packed_sequence_size for one in plan.candidates}) + len(plan.not_fitting) == 6


def test_a_size_that_loses_many_tokens_does_not_win_by_speed() -> None:
    plan = _plan(_recipe(), 64)

    best, fast = plan.best, max(plan.candidates, key=lambda one: one.tokens_per_s)
    assert fast.packed_sequence_size == 4096
    assert fast.lost_fraction > 0.3
    assert best.lost_fraction < 0.01
    assert f"{fast.lost_fraction:.1%} of the tokens" in fast.loses(best)
    short = replace(best, num_packs=best.global_batch_size - 1, tokens_per_s=2 * best.tokens_per_s)
    assert short.loses(best).startswith("fewer packs than ")
    assert best.loses(best) == "as fast"
    sizes = re.findall(r"^ *([\d,]+)  #", screen(plan_blocks(plan)), re.MULTILINE)
    assert sizes == ["4,096", "8,192", "16,384", "32,768", "65,536", "131,072"]


def test_a_plan_that_leaves_most_tokens_untrained_is_refused() -> None:
    lengths = Lengths(runtime=np.array([1000] * 900 + [200_000] * 100), share=1.0, origin="")

    with pytest.raises(ConfigError, match=r"over_long is drop, .* packs of .* leave 96% of the tokens untrained"):
        plan_recipe(_recipe(), lengths, gpu=H100, num_gpus=64)
    split = plan_recipe(_recipe(preprocessing__over_long="split"), lengths, gpu=H100, num_gpus=64)
    assert split.best.lost_fraction == 0


def test_layers_that_do_not_divide_are_no_reason_for_more_gpus() -> None:
    for model, num_gpus in (("meta-llama/Meta-Llama-3.1-405B", 128), ("Qwen/Qwen3-235B-A22B", 64)):
        plan = _plan(_recipe(model), num_gpus, sizes=(4096,))
        again = _plan(plan.best_recipe, num_gpus, sizes=(4096,))

        assert len(set(plan.best.layout.layers)) > 1
        assert plan.best.layout.layers == again.best.layout.layers
        assert "\n      layers of each stage: " in screen(plan_blocks(plan))
        assert not errors_of(again.best_recipe)


def test_experts_stay_in_a_node_and_a_small_model_has_one_stage() -> None:
    mixture = _plan(_recipe("Qwen/Qwen3-30B-A3B"), 64).best.layout
    dense = _plan(_recipe("meta-llama/Meta-Llama-3.1-8B"), 8).best.layout

    assert (mixture.pipeline, mixture.expert) in ((1, 4), (1, 8))
    assert dense.pipeline == 1


def test_modules_are_recomputed_where_that_is_worth_it() -> None:
    mixture = _plan(_recipe("Qwen/Qwen3-30B-A3B"), 16, sizes=(131072,))
    changes = mixture.best.changes

    assert changes["model.recompute"] == "selective"
    assert changes["bridge_overrides.model.recompute_modules"] == list(mixture.best.layout.modules)
    lora = _plan(_recipe("Qwen/Qwen3-30B-A3B", method__kind="lora", checkpoint__pretrained="weights"), 16)
    assert {one.layout.modules for one in lora.candidates} == {()}


def test_windows_take_the_exchange_that_the_rules_allow() -> None:
    plan = _plan(_recipe("openai/gpt-oss-20b"), 64, sizes=(65536,))

    assert plan.best.layout.context > 1
    assert plan.best.changes["parallelism.cp_comm_type"] == "a2a"
    assert "BP708" not in plan.refused


def test_a_model_that_no_layout_can_train_is_refused_with_the_rule() -> None:
    with pytest.raises(ConfigError, match=r"every layout that fits, .* by BP903: .* Gemma 2 raises"):
        _plan(_recipe("google/gemma-2-9b"), 64)


def test_adapters_need_less_memory_and_time() -> None:
    recipes = (_recipe(method__kind=kind, checkpoint__pretrained="weights") for kind in ("full", "lora"))
    full, lora = (_plan(recipe, 8, sizes=(8192,)).best for recipe in recipes)

    assert lora.tokens_per_s > full.tokens_per_s
    assert lora.memory.states_gb < full.memory.states_gb


@pytest.mark.parametrize(
    ("num_gpus", "changes", "runtime", "message"),
    [
        (8, {"model__name": "meta-llama/Meta-Llama-3.1-405B"}, RUNTIME, r"405.8 billion weights .* --method lora"),
        (
            *(1, {"model__name": "meta-llama/Meta-Llama-3.1-405B", "method__kind": "lora"}, RUNTIME),
            r"405.8 billion weights take \d+ GB .* at most 80 GB\. Use more GPUs",
        ),
        (100003, {}, RUNTIME, "--num-gpus is 100003; a step of 524,288 tokens has fewer packs"),
        (8, {}, [90000], "shortest sequence has 90,000 runtime tokens"),
        (8, {"bridge_overrides__model": {"context_parallel_size": 2}}, RUNTIME, "model.context_parallel_size is set"),
    ],
)
def test_what_cannot_run_says_the_reason(num_gpus: int, changes: dict[str, Any], runtime: Any, message: str) -> None:
    lengths = Lengths(runtime=np.array(runtime), share=1.0, origin="")
    with pytest.raises(ConfigError, match=message):
        plan_recipe(_recipe(**changes), lengths, gpu=H100, num_gpus=num_gpus)


def test_few_packs_are_planned_with_a_warning() -> None:
    lengths = Lengths(runtime=np.array([10, 20000]), share=1.0, origin="")

    plan = plan_recipe(_recipe(batch__tokens_per_step=1 << 18), lengths, gpu=H100, num_gpus=8)

    assert all(one.is_short for one in plan.candidates)
    text = screen(plan_blocks(plan))
    assert plan.best.num_packs == 1
    assert f"training cannot start: 1 pack < global batch {plan.best.global_batch_size}" in text
    enough = plan_recipe(_recipe(batch__tokens_per_step=4096), LENGTHS, gpu=gpu_by_name("b300"), num_gpus=1)
    assert not enough.best.is_short
    assert "cannot start" not in screen(plan_blocks(enough))


@pytest.fixture
def source(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    sizes = {"packing__packed_sequence_size": 4096, "batch__global_batch_size": 4, "model": {"name": "Qwen/Qwen3-0.6B"}}
    return write_recipe(
        tmp_path / "mine.yaml", tokenized_recipe([str(_rows(tmp_path, 2000))], chatml_tokenizer, **sizes)
    )


def test_the_best_is_a_recipe_that_checks_clean(source: Path, command: Command) -> None:
    output = source.with_name("planned.yaml")

    found = command("plan", source, "--num-gpus", 2, "--output", output)

    assert found.code == 0
    assert found.output.endswith(f"wrote {output}\nnext: bridgepack check {output}\n")
    assert command("check", output).code == 0
    assert bridgepack.load_recipe(output) == bridgepack.plan(source, num_gpus=2).best_recipe
    again = command("plan", source, "--num-gpus", 2, "--artifact", "nowhere", "--output", output)
    assert again.code == 2
    assert mentions(again.errors, str(output), "already exists; ", "another name or --output")
    told = json.loads(command("plan", source, "--num-gpus", 2, "--json").output)
    assert told["lengths"]["origin"].startswith("all 2,000 sequences ")
    best = told["candidates"][0]
    assert best["changes"]["parallelism.num_gpus"] == 2
    assert best["memory"]["states_gb"] > 1
    assert set(best["parts"]) == {"matrices", "attention", "exchange", "pipeline", "waiting"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--num-gpus 0", "'0' is not a whole number of at least 1"),
        ("--gpu h1000", "--gpu is 'h1000'; allowed: a100-40gb"),
        ("--model org/unheard-8b", "model.name is 'org/unheard-8b', whose sizes are not known"),
        ("--model qwen3_8b", "whose sizes are not known.* Did you mean qwen3_8b_sft_config?"),
        ("--model acme/Qwen3-8B-chat", "whose sizes are not known.* Did you mean Qwen/Qwen3-8B?"),
        ("--set packing.mode=none", "packing.mode is none; allowed: offline"),
        ("--artifact nowhere", "nowhere"),
        ("--artifact a --store b", "artifact is 'a' and store is 'b'; allowed: only one"),
        ("--store nowhere", "'nowhere' does not exist. Name the folder with --store"),
        ("--calibrate nowhere", "--calibrate is 'nowhere'; it cannot be read"),
        ("--output plan.txt", "--output is 'plan.txt'; allowed: a file whose name ends in .yaml"),
    ],
)
def test_what_cannot_be_planned_is_refused(source: Path, command: Command, arguments: str, message: str) -> None:
    found = command("plan", source, "--num-gpus", "2", *arguments.split())

    assert found.code == 2
    assert re.search(message, found.errors)


def test_settings_of_the_recipe_stay() -> None:
    changes = {"packing__pad_seq_to_mult": 12, "schedule__train_iters": 5, "preprocessing__over_long": "split"}
    plan = plan_recipe(_recipe(**changes), LENGTHS, gpu=H100, num_gpus=64, sizes=(12288, 24576))

    assert {one.changes["packing.pad_seq_to_mult"] % 12 for one in plan.candidates} == {0}
    assert plan.best.lost_fraction == 0
    assert plan.best_recipe.schedule.train_iters == 5
    assert plan.best_recipe.resolve().pad_seq_to_mult.value % plan.best.layout.multiple == 0
