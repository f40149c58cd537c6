"""Splits of layers over pipeline stages: the layers of each, the settings that say so, and what each rank has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.errors import ConfigError
from bridgepack.host import TARGET
from bridgepack.host.model_fields import changed_fields
from bridgepack.planning.estimate import Arithmetic, Speed, Work
from bridgepack.planning.layout import Layout, gpu_by_name, memory_of
from bridgepack.planning.shape import ModelShape, hub_settings, shape_of
from bridgepack.planning.stages import Split, loads_of, split_changes, splits, stated_split
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.run.pipeline_layouts import stages_of

H100 = gpu_by_name("h100")
EMBEDDING, LOSS = "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"
LAYOUT, PATTERN = "pipeline_model_parallel_layout", "hybrid_layer_pattern"


def _shape(num_layers: int, **values: Any) -> ModelShape:
    """Return a model whose loss, 8 x 192 weights, is as much as 2 of its layers: 4 x 8 x 8 + 2 x 8 x 32 each."""
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "ffn_hidden_size": 32, "vocab_size": 192}
    return shape_of({**sizes, "num_layers": num_layers, "make_vocab_size_divisible_by": 1, **values})


def _ways(shape: ModelShape, num_gpus: int, **base: Any) -> dict[tuple[int, int], Split]:
    return {(way.pipeline, way.virtual): way for way in splits(shape, num_gpus, base)}


def test_layers_that_divide_are_split_evenly() -> None:
    ways = _ways(_shape(16), 4)

    assert ways[4, 1] == Split(pipeline=4, counts=(4, 4, 4, 4))
    assert ways[2, 4] == Split(pipeline=2, counts=(2,) * 8)
    assert set(ways) == {(1, 1), (2, 1), (2, 2), (2, 4), (2, 8), (4, 1), (4, 2), (4, 4)}


def test_embedding_and_loss_count_as_layers_where_that_divides() -> None:
    ways = _ways(_shape(126), 128)

    assert ways[16, 1].counts == (7, *[8] * 14, 7)
    assert dict(ways[16, 1].settings) == {EMBEDDING: True, LOSS: True}
    assert ways[16, 4].counts == (1, *[2] * 62, 1)
    assert ways[2, 1].settings == ()


def test_other_layers_are_listed_for_each_stage() -> None:
    ways = _ways(_shape(61), 512)

    assert ways[4, 1].counts == (16, 16, 16, 13)
    assert dict(ways[4, 1].settings) == {LAYOUT: "Et*16|t*16|t*16|t*13L"}
    for (pipeline, virtual), way in ways.items():
        assert sum(way.counts) == 61
        assert min(way.counts) >= 1
        assert len(way.counts) == pipeline * virtual
        if LAYOUT in dict(way.settings):
            kinds = stages_of(dict(way.settings)[LAYOUT])
            assert [stage.count("decoder") for stage in kinds] == list(way.counts)
            assert (kinds[0][0], kinds[-1][-1]) == ("embedding", "loss")


def test_a_hybrid_model_gets_bars_in_its_pattern() -> None:
    sizes = {"mamba_state_dim": 4, "mamba_head_dim": 4, "mamba_num_groups": 1, "mamba_num_heads": 2}
    shape = _shape(7, hybrid_layer_pattern="M-M*-M-/*", **sizes)

    ways = _ways(shape, 4)

    assert dict(ways[2, 1].settings)[PATTERN].replace("|", "") == "M-M*-M-/*"
    assert dict(ways[2, 1].settings)[PATTERN].partition("/")[0].count("|") == 1
    assert dict(ways[2, 2].settings)[PATTERN].count("|") == 3


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ({"pipeline_model_parallel_size": 4, EMBEDDING: True, LOSS: True}, (3, 4, 4, 3)),
        (
            {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2, EMBEDDING: True, LOSS: True},
            (3, 4, 4, 3),
        ),
        ({"pipeline_model_parallel_size": 5, EMBEDDING: True}, (2, 3, 3, 3, 3)),
        ({"pipeline_model_parallel_size": 4, "num_layers_in_first_pipeline_stage": 2}, (2, 4, 4, 4)),
        ({"pipeline_model_parallel_size": 3, "num_layers_in_last_pipeline_stage": 4}, (5, 5, 4)),
        ({"pipeline_model_parallel_size": 2, LAYOUT: "Et*8|t*6L"}, (8, 6)),
        ({"pipeline_model_parallel_size": 2, LAYOUT: "E(t|)*2t*4|t*8mL"}, (1, 1, 4, 8)),
        (
            {
                "pipeline_model_parallel_size": 2,
                LAYOUT: [
                    ["embedding", *["decoder"] * 8],
                    ["decoder"] * 6,
                ],
            },
            (8, 6),
        ),
        ({"pipeline_model_parallel_size": 2, PATTERN: "M*M*M*M*|M*M*M*/*"}, (8, 6)),
        ({"pipeline_model_parallel_size": 2}, None),
        ({"pipeline_model_parallel_size": 2, LAYOUT: "Et*8|t*7L"}, None),
        ({"pipeline_model_parallel_size": 2, LAYOUT: 5}, None),
    ],
)
def test_what_settings_state(values: dict[str, Any], counts: tuple[int, ...] | None) -> None:
    found = stated_split(values, 14)

    assert (found and found.counts) == counts


def test_a_base_keeps_its_split_and_others_undo_it() -> None:
    base = {"pipeline_model_parallel_size": 2, LAYOUT: "Et*9|t*7L"}
    ways = _ways(_shape(16), 4, **base)

    assert ways[2, 1].counts == (9, 7)
    assert split_changes(ways[2, 1], base, {}) == {}
    assert split_changes(ways[4, 1], base, {}) == {}
    even = Split(pipeline=2, counts=(8, 8))
    assert split_changes(even, base, {}) == {f"bridge_overrides.model.{LAYOUT}": None}
    assert split_changes(ways[4, 1], {}, {EMBEDDING: True}) == {f"bridge_overrides.model.{EMBEDDING}": False}
    assert split_changes(even, {}, {PATTERN: "M*|M*"}) == {f"bridge_overrides.model.{PATTERN}": "M*M*"}


def test_each_rank_has_its_layers_and_the_ends_have_matrices() -> None:
    shape = _shape(14)
    each = shape.layers[0].weights

    loads = loads_of(shape, 2, (3, 4, 4, 3))

    assert loads.weights.tolist() == [7 * each, 7 * each]
    assert loads.num_layers.tolist() == [7, 7]
    assert loads.linear.sum() == pytest.approx(1)
    assert loads.linear[1] - loads.linear[0] == pytest.approx(shape.embedding / (14 * each + shape.embedding))


def test_the_fullest_stage_is_what_counts() -> None:
    shape = _shape(16)
    even, uneven = ((8, 8), (12, 4))
    first, second = (
        memory_of(shape, Layout(num_gpus=2, pipeline=2, layers=counts), pack_tokens=1, num_micro=8)
        for counts in (even, uneven)
    )
    each, embedding = shape.layers[0].weights * 18, shape.embedding * 18

    assert first.states_gb * 1e9 == pytest.approx(8 * each + embedding)
    assert second.states_gb * 1e9 == pytest.approx(12 * each + embedding)


def test_interleaving_keeps_more_packs_and_waits_less() -> None:
    """Of 4 ranks with 2 virtual stages each, the first keeps 4 x (1 + 3/8) = 5.5 packs: arXiv 2104.04473, 2.2."""
    shape = _shape(16)
    plain, interleaved = (Layout(num_gpus=4, pipeline=4, layers=counts) for counts in ((4,) * 4, (2,) * 8))
    kept = [memory_of(shape, one, pack_tokens=10**6, num_micro=32).activations_gb for one in (plain, interleaved)]
    ratios = [
        Arithmetic(shape=shape, gpu=H100, layout=one, is_full=True, speed=Speed()).pipeline_ratio(32)
        for one in (plain, interleaved)
    ]

    assert ratios == [pytest.approx(1 + 3 / 32), pytest.approx(1 + 3 / 64)]
    embedding = 10**6 * 8 * 4 / 1e9
    assert (kept[1] - embedding) / (kept[0] - embedding) == pytest.approx(5.5 / 4)


def test_the_slowest_stage_sets_the_pace() -> None:
    shape = _shape(16)
    work = Work(tokens=np.array([1e9]), attention=np.array([0.0]))

    def imbalance(counts: tuple[int, ...]) -> float:
        layout = Layout(num_gpus=2, pipeline=2, layers=counts)
        arithmetic = Arithmetic(
            shape=shape, gpu=replace(H100, link_gb_s=1e30), layout=layout, is_full=True, speed=Speed()
        )
        return arithmetic.imbalance(work)

    each = shape.layers[0].weights
    slowest = (8 * each + shape.embedding) * 2 / (16 * each + shape.embedding)
    assert imbalance((8, 8)) == pytest.approx(slowest, rel=1e-3)
    assert imbalance((9, 7)) < imbalance((8, 8)) < imbalance((7, 9))


def _mixture(**layout: int) -> Arithmetic:
    values = TARGET.facts.model_by_name("Qwen/Qwen3-30B-A3B")
    assert values is not None
    return Arithmetic(
        shape=shape_of(values), gpu=H100, layout=Layout(num_gpus=64, **layout), is_full=True, speed=Speed()
    )


def test_many_experts_on_a_gpu_cost_launches() -> None:
    """A stage of 6 layers with 128 experts each launches 6 x 128 x 2 x 3 matrices of 5 microseconds: 23 ms a pack."""
    tokens = np.array([512.0])
    few, many = (_mixture(pipeline=8, expert=expert).linear_s(tokens)[0] for expert in (8, 1))

    assert many == pytest.approx(6 * 128 * 2 * 3 * 5e-6, rel=0.2)
    assert many > 3 * few


def test_tokens_to_experts_of_other_nodes_take_the_network() -> None:
    """16 experts' ranks are on 2 nodes: half of a token's 8 copies cross; DeepEP sends one, 1 - 2^-8 of the time."""
    tokens = np.array([4096.0])
    inside, across = (_mixture(expert=expert) for expert in (8, 16))
    once = Arithmetic(
        shape=replace(across.shape, sends_once=True), gpu=H100, layout=across.layout, is_full=True, speed=Speed()
    )
    sent = 4 * 48 * 2048 * 2 * 4096 / 1e9  # exchanges x layers x hidden x bytes x tokens
    latency = 4 * 48 * 2e-5

    assert inside.exchange_s(tokens)[0] == pytest.approx(sent * 8 * 7 / 8 / 450 + latency)
    assert across.exchange_s(tokens)[0] == pytest.approx(sent * 8 / 2 / 50 + latency)
    assert once.exchange_s(tokens)[0] == pytest.approx(max(sent * (1 - 2**-8) / 50, sent * 8 * 7 / 8 / 450) + latency)


@pytest.mark.parametrize("layout", ["t*99999999999|L", f"t*{'9' * 4301}", "(t*999)*99999|L"])
def test_a_layout_is_not_written_out_without_end(layout: str) -> None:
    with pytest.raises(CannotJudgeError, match=r"repeats a layer .* times"):
        stages_of(layout)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"num_hidden_layers": 100000000000}', "hidden_size"),
        ("[" * 100_000, "RecursionError"),
    ],
    ids=["layers", "depth"],
)
def test_a_config_of_billions_of_layers_or_lists_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises((ConfigError, KeyError), match=fault):
        shape_of(hub_settings(tmp_path))


def test_billions_of_layers_are_compared_without_a_list_of_them() -> None:
    model = {"num_layers": 9 * 10**18, "moe_layer_freq": 1}
    assert "num_layers" in dict(changed_fields(model, {**model, "num_layers": 32}, TARGET))
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "vocab_size": 9, "ffn_hidden_size": 8}
    with pytest.raises(KeyError, match="more than any model"):
        shape_of({**model, **sizes})
