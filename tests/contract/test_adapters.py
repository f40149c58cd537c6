"""What we say of adapters is what the host does: their targets, their numbers, and which of them get a gradient.

Tiny models of every kind, made of megatron-core's layers, get megatron-bridge's adapters; one backward pass each. See
tests/support/adapter_probe.py for what stands in for kernels.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from bridgepack.host import TARGET
from bridgepack.host.module_names import ROLES
from bridgepack.host.modules import DEFAULT_TARGETS, LANGUAGE_MODEL, Architecture, architecture_of
from bridgepack.records import RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import Severity
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.adapter_probe import KINDS, AdapterRequest, settings_of
from tests.support.host_forks import asked
from tests.support.installed_host import host_version
from tests.support.processes import ONE_RANK

pytestmark = [pytest.mark.bridge, pytest.mark.full]

#: Set it for a longer run.
NUM_GENERATED = int(os.environ.get("BRIDGEPACK_NUM_ADAPTERS", "250"))
#: `AssertionError`: its indexer works in bf16 only.
WITHOUT_FORWARD = ("indexed",)
_CODES = ("BP840", "BP841", "BP842", "BP843", "BP844", "BP845", "BP846")
_RULES = [rule for rule in RUN_RULES if rule.code in _CODES]
_CLASSES = {"LoRA": "lora.LoRA", "DoRA": "dora.DoRA", "CanonicalLoRA": "canonical_lora.CanonicalLoRA"}

type Seen = dict[str, Any]
type SeenOf = Mapping[str, list[tuple[AdapterRequest, Seen]]]


def known(kind: str) -> Architecture:
    found = architecture_of(settings_of(AdapterRequest(kind=kind, targets=())))
    assert found is not None
    return found


#: Fields of the adapter -> whether it trains.
NUMBERS = [
    ({"alpha": 0}, False),
    ({"dim": 0}, False),
    ({"dim": -4}, False),
    ({"dropout": 1.0}, False),
    ({"dropout": 1.5}, False),
    ({"lora_A_init_method": "zero", "lora_B_init_method": "zero"}, False),
    ({"lora_B_init_method": "ones"}, False),
    ({"lora_B_init_method": "normal"}, True),
    ({"dropout": 0.5, "lora_B_init_method": "kaiming"}, True),
]
#: Targets of an adapter's class, with fields of it, that the host refuses.
REFUSED = [
    ("LoRA", ["linear_qkv"], {"exclude_modules": ["linear_proj"]}),
    ("LoRA", ["linear_qkv", "[linear"], {}),
    ("CanonicalLoRA", ["linear_q", "linear_v"], {}),
    ("CanonicalLoRA", ["linear_fc1_up"], {}),
    ("CanonicalLoRA", ["linear_qkv"], {}),
]
CANONICAL_TAKES = ["linear_q", "linear_k", "linear_v"]
DORA_REFUSED = [
    ("experts", ["linear_fc1"]),
    ("shared experts", ["linear_qkv", "linear_fc2"]),
    ("experts", ["router"]),
    ("dense", ["output_layer"]),
]
DORA_TAKES = ["*.shared_experts.linear_fc1"]


def kinds() -> Iterator[AdapterRequest]:
    for kind in KINDS:
        yield AdapterRequest(kind=kind, targets=["linear_fc1"], has_backward=False)


def names() -> Iterator[AdapterRequest]:
    for kind in KINDS:
        for name in known(kind).names:
            yield AdapterRequest(kind=kind, targets=[name], has_backward=False)


def names_of_others() -> Iterator[AdapterRequest]:
    for kind in ("dense", "latent", "hybrid"):
        for name in ROLES:
            if name not in known(kind).names:
                yield AdapterRequest(kind=kind, targets=[name], has_backward=False)


def defaults() -> Iterator[AdapterRequest]:
    for kind in KINDS:
        for adapter in _CLASSES if kind not in WITHOUT_FORWARD else ():
            yield AdapterRequest(kind=kind, targets=known(kind).targets(adapter), adapter=adapter)


def dora() -> Iterator[AdapterRequest]:
    for kind, targets in [*DORA_REFUSED, ("shared experts", DORA_TAKES)]:
        yield AdapterRequest(kind=kind, targets=targets, adapter="DoRA")


def numbers() -> Iterator[AdapterRequest]:
    for peft, _ in NUMBERS:
        yield AdapterRequest(kind="dense", targets=["linear_qkv"], peft=peft)


def refused() -> Iterator[AdapterRequest]:
    for adapter, targets, peft in REFUSED:
        yield AdapterRequest(kind="dense", targets=targets, adapter=adapter, peft=peft)
    yield AdapterRequest(kind="dense", targets=CANONICAL_TAKES, adapter="CanonicalLoRA")


def generated(seed: int) -> AdapterRequest:
    """Return a model with adapters and recomputation, of those that megatron-core's config accepts."""
    draw = random.Random(seed)
    kind = draw.choice([kind for kind in KINDS if kind not in WITHOUT_FORWARD])
    names, settings = known(kind).names, settings_of(AdapterRequest(kind=kind, targets=()))
    targets = draw.sample(names, draw.randint(1, min(3, len(names))))
    if draw.random() < 0.2:
        targets = [f"*.layers.{draw.randint(0, 3)}.*.{draw.choice(names)}", *targets]
    can_be_dora = not settings.get("num_moe_experts") and "output_layer" not in targets
    adapter = "DoRA" if can_be_dora and draw.random() < 0.2 else "LoRA"
    return AdapterRequest(
        kind=kind,
        targets=targets,
        adapter=adapter,
        model=_recomputation(draw, settings),
        is_first_stage=draw.random() > 0.1,
    )


def _recomputation(draw: random.Random, settings: Mapping[str, Any]) -> dict[str, Any]:
    granularity = draw.choice([*["selective"] * 6, "full", None])
    if granularity is None:
        return {}
    if granularity == "full":
        can_be_block = not settings.get("mtp_num_layers")
        method = draw.choice(["uniform", "block"]) if can_be_block else "uniform"
        number = draw.choice([1, 2]) if can_be_block else 1
        return {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": number}
    modules = ["core_attn", "mlp", "layernorm"]
    for name, setting in (
        ("moe", "num_moe_experts"),
        ("shared_experts", "moe_shared_expert_intermediate_size"),
        ("mla_up_proj", "multi_latent_attention"),
        ("gdn_norm_out", "experimental_attention_variant"),
    ):
        modules += [name] if settings.get(setting) else []
    chosen = draw.sample(modules, draw.randint(1, min(3, len(modules))))
    values: dict[str, Any] = {"recompute_granularity": "selective", "recompute_modules": chosen}
    return {**values, "recompute_method": "uniform"} if draw.random() < 0.15 else values


REQUESTS: Mapping[str, Callable[[], Iterable[AdapterRequest]]] = {
    "kinds": kinds,
    "names": names,
    "names of others": names_of_others,
    "defaults": defaults,
    "generated": lambda: map(generated, range(NUM_GENERATED)),
    "dora": dora,
    "numbers": numbers,
    "refused": refused,
}


@pytest.fixture(scope="module")
def seen_of(tmp_path_factory: pytest.TempPathFactory) -> SeenOf:
    """Return name of a test's requests -> each with what was seen; all are in one process of their own."""
    folder = tmp_path_factory.mktemp("adapters")
    requests = {name: list(made()) for name, made in REQUESTS.items()}
    flat = [one for group in requests.values() for one in group]
    results = iter(asked("tests.support.adapter_probe", flat, folder, MEGATRON_CONFIG_LOCK_DIR=str(folder), **ONE_RANK))
    return {name: [(one, next(results)) for one in group] for name, group in requests.items()}


def errors_of(request: AdapterRequest) -> dict[str, str]:
    """Return code -> what was found, of every error of our rules on adapters."""
    peft = {
        **{"_target_": f"megatron.bridge.peft.{_CLASSES[request.adapter]}", "dim": 4, "alpha": 8, "dropout": 0.0},
        **{"exclude_modules": [], "lora_A_init_method": "xavier", "lora_B_init_method": "zero"},
        **{"dropout_position": "pre", "target_modules": list(request.targets), **request.peft},
    }
    model = {
        **{"recompute_granularity": None, "recompute_method": None, "recompute_modules": None},
        **{"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1},
        **settings_of(request),
    }
    if not request.is_first_stage:
        return {}
    values = {
        "model": model,
        "peft": peft,
        "dataset": {"_target_": "megatron.bridge.data.builders.GPTSFTDatasetConfig"},
    }
    config = RunConfig(values=values, is_complete=True, place="a run")
    report = judge_run(Run(config=config, versions=target_versions(host_version())), _RULES)
    return {one.code: one.found for one in report.findings if one.severity == Severity.ERROR}


def test_linear_layers_are_those_of_the_host(seen_of: SeenOf) -> None:
    for request, seen in seen_of["kinds"]:
        assert seen["raised"] == "", request
        assert sorted(linear.path for linear in known(request.kind).linears) == seen["linears"], request


def test_each_name_gets_an_adapter_on_the_layers_that_we_say_it_does(seen_of: SeenOf) -> None:
    num_checked = 0
    for request, seen in seen_of["names"]:
        (name,) = request.targets
        expected = sorted(linear.path for linear in known(request.kind).linears if linear.name == name)
        assert (seen["raised"], seen["trained"]) == ("", expected), request
        assert "BP840" not in errors_of(request), request
        num_checked += 1
    assert num_checked > 50


def test_names_of_other_kinds_of_models_get_none(seen_of: SeenOf) -> None:
    num_renamed = 0
    for request, seen in seen_of["names of others"]:
        assert seen["trained"] == [], request
        assert "BP840" in errors_of(request), request
        num_renamed += 1
    assert num_renamed > 100


def test_default_targets_reach_every_mixer_and_run(seen_of: SeenOf) -> None:
    for request, seen in seen_of["defaults"]:
        assert (seen["raised"], seen["without"]) == ("", []), request
        architecture = known(request.kind)
        trained = {linear.part for linear in architecture.linears if linear.path in seen["trained"]}
        assert set(architecture.mixers) <= trained, request
        assert errors_of(request) == {}, request


def test_we_err_exactly_where_a_trained_weight_gets_no_gradient(seen_of: SeenOf) -> None:
    kinds: Counter[str] = Counter()
    for request, seen in seen_of["generated"]:
        errors = errors_of(request)
        assert ("BP843" in errors) == bool(seen["raised"]), (request, seen, errors)
        if not seen["raised"]:
            assert ("BP842" in errors) == bool(seen["without"]), (request, seen, errors)
        kinds["raised" if seen["raised"] else "without" if seen["without"] else "all"] += 1
    assert min(kinds.values()) >= NUM_GENERATED // 50, kinds
    assert len(kinds) == 3


def test_dora_takes_neither_experts_nor_router_nor_output_layer(seen_of: SeenOf) -> None:
    for request, seen in seen_of["dora"]:
        is_refused = request.targets != DORA_TAKES
        assert bool(seen["raised"]) == ("BP846" in errors_of(request)) == is_refused, (request, seen)


def test_numbers_with_which_adapters_do_not_train(seen_of: SeenOf) -> None:
    for (request, seen), (_, trains) in zip(seen_of["numbers"], NUMBERS, strict=True):
        assert (not seen["raised"] and not seen["without"]) == trains, (request, seen)
        assert ("BP844" in errors_of(request)) != trains, request


def test_lists_that_the_class_refuses(seen_of: SeenOf) -> None:
    for request, seen in seen_of["refused"]:
        is_refused = request.targets != CANONICAL_TAKES
        assert bool(seen["raised"]) == is_refused, (request, seen)
        assert ("BP845" in errors_of(request)) == is_refused, request


def test_the_host_s_own_recipes_with_adapters_are_covered_and_without_errors() -> None:
    num_checked = 0
    for name in TARGET.facts.recipes:
        values = TARGET.facts.shipped_recipe(name)
        if values is None or values["peft"] is None:
            continue
        assert architecture_of(values["model"]) is not None, name
        report = judge_run(
            Run(config=RunConfig(values=values, is_complete=True, place=name), versions=target_versions()), _RULES
        )
        assert [one for one in report.findings if one.severity == Severity.ERROR] == [], name
        num_checked += 1
    assert num_checked > 80


def test_classes_and_default_targets_are_the_host_s(bridge: Any) -> None:
    import dataclasses
    import pkgutil
    from importlib import import_module

    import megatron.bridge.models as models

    found = set()
    for module in pkgutil.walk_packages(models.__path__, "megatron.bridge.models."):
        if module.name.endswith(("_provider", "_bridge")):
            found |= {name for name in vars(import_module(module.name)) if name.endswith("Provider")}
    of_next_release = {"BridgeGPTModelConfig", "NemotronOmniLlavaModelProvider"}
    assert set(LANGUAGE_MODEL) - of_next_release <= found
    for name, targets in DEFAULT_TARGETS.items():
        module = {"LoRA": "lora", "VLMLoRA": "lora", "DoRA": "dora", "CanonicalLoRA": "canonical_lora"}[name]
        kind = getattr(import_module(f"megatron.bridge.peft.{module}"), name)
        factory = next(one for one in dataclasses.fields(kind) if one.name == "target_modules").default_factory
        assert tuple(factory()) == targets
