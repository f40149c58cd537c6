"""Makes recipes over every shipped base from a seed: mode, adapter, topology, environment, then a few overrides."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bridgepack.bridge.bases import base_of, is_left_out
from bridgepack.config.recipe.recipe import SFTRecipe, checked_object
from bridgepack.errors import ConfigError
from bridgepack.host import release_of
from tests.support.generated_configs import FAULTS, TOPOLOGY_FAULTS
from tests.support.installed_host import host_version
from tests.support.named_faults import NAMED_FAULTS

#: Values of the recipe's own fields; the first is the usual one.
_FIELDS: Mapping[str, Sequence[Any]] = {
    "packing.mode": ("offline", "offline", "offline", "in_batch", "none"),
    "packing.pad_cu_seqlens": (False, False, True),
    "batch.micro_batch_size": (1, 1, 1, 2),
    "batch.global_batch_size": (32, 32, 8, 6),
    "batch.eval_global_batch_size": (None, None, 8, 3),
    "precision.recipe": ("bf16_mixed", "bf16_mixed", "bf16_with_fp8_delayed_scaling_mixed", "bf16_with_mxfp8_mixed"),
    "cuda_graphs.implementation": ("none", "none", "none", "transformer_engine", "full_iteration"),
    "schedule.train_iters": (100, 100, None),
    "schedule.lr_decay_style": ("cosine", "WSD"),
    "logging.wandb_project": (None, "sft"),
    "logging.mlflow_experiment": (None, None, "sft"),
    "parallelism.virtual_pipeline_model_parallel_size": (None, None, None, 2),
    "parallelism.cp_comm_type": (None, None, "p2p", "a2a", "a2a+p2p"),
    "parallelism.eval_context_parallel_size": (None, None, None, 2),
    "parallelism.sequence_parallel": (False, True),
    "checkpoint.folder": (None, "/experiment/checkpoints"),
}
_ENVIRONMENTS: Sequence[Mapping[str, Any]] = (
    *({}, {}, {}, {"NCCL_ALGO": "Ring"}, {"NVTE_FLASH_ATTN": 0}, {"NVTE_FUSED_ATTN": 1, "NVTE_UNFUSED_ATTN": 0}),
)
_TARGETS = (None, ["linear_qkv", "linear_proj"], ["linear_fc1", "linear_fc2"], ["q_proj", "v_proj"])
#: Modules that are recomputed, and the setting of a model that they need.
_RECOMPUTED = (
    *((None, ""), (None, ""), (None, ""), (["core_attn"], ""), (["mlp"], ""), (["layernorm", "mlp"], "")),
    *((["moe"], "num_moe_experts"), (["layernorm", "moe_act"], "moe_grouped_gemm")),
    (["mla_up_proj"], "multi_latent_attention"),
)
_TOPOLOGIES = ((1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (4, 1, 2))
_OVERRIDES = {**FAULTS, **TOPOLOGY_FAULTS, **NAMED_FAULTS}
_MAX_OVERRIDES = 2
#: Paths that the host's class of the dataset in a recipe does not have, or that only code sets.
_NOT_SET_SO = frozenset({"env_vars", "dataset.offline_packing_specs"})


@dataclass(frozen=True, kw_only=True)
class GeneratedRecipe:
    """A recipe over the base `base`; `changes` are what it sets beside the least that it needs."""

    base: str
    recipe: SFTRecipe
    changes: Mapping[str, Any]


def generated_recipe(bases: Sequence[str], seed: int) -> GeneratedRecipe | None:
    """Return the recipe of a seed, or None if no recipe may be so: then nothing of it can be checked."""
    choose = random.Random(seed)
    base = choose.choice(bases)
    tensor, pipeline, context = choose.choice(_TOPOLOGIES)
    model = _model_of(base)
    expert = choose.choice((1, 1, 2, 8)) if model.get("num_moe_experts") else 1
    values: dict[str, Any] = {
        "name": "generated",
        "bridge_version": host_version(),
        "data": {
            "train": "train.jsonl",
            "layout": {"kind": "chat", "messages": [{"from_column": "messages"}]},
        },
        "tokenizer": {"name_or_path": "some/tokenizer"},
        "packing": {"packed_sequence_size": 4096, "pad_seq_to_mult": None},
        "parallelism": {
            "tensor_model_parallel_size": tensor,
            "pipeline_model_parallel_size": pipeline,
            "context_parallel_size": context,
            "expert_model_parallel_size": expert,
            "num_gpus": tensor * pipeline * context * choose.choice((1, 2, expert)),
        },
        "model": {"name": base},
        "method": choose.choice(({"kind": "full"}, {"kind": "full"}, {"kind": "lora"}, {"kind": "dora"})),
        "checkpoint": {"pretrained": "/checkpoints/any"},
        "environment": dict(choose.choice(_ENVIRONMENTS)),
    }
    changes = dict(_own_fields(choose))
    overrides = dict(_overrides(choose, model, has_adapter=values["method"]["kind"] != "full"))
    try:
        recipe = SFTRecipe.from_mapping(values).override({**changes, "bridge_overrides": _nested(overrides)})
        checked_object(recipe)
    except ConfigError:
        return None
    stated = {name: values[name] for name in ("parallelism", "method", "environment")}
    return GeneratedRecipe(base=base, recipe=recipe, changes={**stated, **changes, **overrides})


def _own_fields(choose: random.Random) -> Iterator[tuple[str, Any]]:
    for path in choose.sample(sorted(_FIELDS), choose.randint(0, 4)):
        yield path, choose.choice(_FIELDS[path])


@cache
def _model_of(base: str) -> Mapping[str, Any]:
    """Return the settings of a base's model."""
    given: dict[str, Any] = {"name": base, "data": {"train": "a"}, "tokenizer": {"name_or_path": "a"}}
    values = {**given, "model": {"name": base}, "bridge_version": host_version()}
    model: Mapping[str, Any] = base_of(SFTRecipe.from_mapping({**values, "packing": {"packed_sequence_size": 8}}))[
        "model"
    ]
    return model


def _overrides(choose: random.Random, model: Mapping[str, Any], *, has_adapter: bool) -> Iterator[tuple[str, Any]]:
    targets = choose.choice(_TARGETS)
    fitting = [modules for modules, needed in _RECOMPUTED if not needed or model.get(needed)]
    recomputed = choose.choice(fitting)
    if has_adapter and targets is not None:
        yield "peft.target_modules", targets
    if recomputed is not None:
        yield "model.recompute_granularity", "selective"
        yield "model.recompute_modules", recomputed
    for path in choose.sample(sorted(_OVERRIDES), choose.randint(0, _MAX_OVERRIDES)):
        if (
            path not in _NOT_SET_SO
            and not path.startswith("model.recompute_")
            and not is_left_out(release_of(host_version()), path)
        ):
            yield path, choose.choice(_OVERRIDES[path])


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested sections of dotted paths."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *sections, leaf = path.split(".")
        node = found
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = value
    return found
