"""Fine-tunes tiny models as recipes say, with megatron-bridge's own finetune() on CPU; writes what it saw.

Usage: python -m tests.support.tiny_recipes REQUESTS.json RESULTS.json

The requests are a list of `TinyRequest`, the results say what was seen. One process serves them all.
Upstream places: B/ is megatron-bridge 0.6.2, C/ is megatron-core 0.19.2.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.small_builds import conversations_recipe

NUM_LAYERS = 2
NUM_STEPS = 10
NUM_PACKS_PER_STEP = 2
PACKED_SEQUENCE_SIZE = 256
NUM_EVAL_PACKS = 2
VOCAB_SIZE = 512
type Model = Literal["dense", "moe"]
type MethodKind = Literal["full", "lora"]
type Rows = Literal["ragged", "aligned", "ragged, fixed offsets", "aligned, fixed offsets"]

#: What a machine without a GPU and without TransformerEngine cannot do.
ON_CPU: Mapping[str, Any] = {
    "dist": {"distributed_backend": "gloo"},
    "model": {
        "transformer_impl": "local",
        # C/transformer/transformer_config.py:2186 and 2667: kernels of TransformerEngine.
        "apply_rope_fusion": False,
        "moe_permute_fusion": False,
        # C/transformer/torch_norm.py:48
        "persist_layer_norm": False,
        # C/fusions/fused_softmax.py:357: a kernel of Apex, for rows that are not packed.
        "masked_softmax_fusion": False,
    },
}
_TINY: Mapping[str, Any] = {
    **{"num_hidden_layers": NUM_LAYERS, "hidden_size": 64, "intermediate_size": 128, "vocab_size": VOCAB_SIZE},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-5},
    **{"rope_theta": 10000.0, "max_position_embeddings": PACKED_SEQUENCE_SIZE, "initializer_range": 0.1},
    **{"tie_word_embeddings": False, "torch_dtype": "bfloat16"},
}
_MODELS: Mapping[Model, Mapping[str, Any]] = {
    "dense": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False},
    "moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "attention_bias": False,
        **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True},
        **{"decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001},
    },
}
#: Changes to a recipe, by what its rows are.
_ROWS: Mapping[Rows, Mapping[str, Any]] = {
    "ragged": {},
    "aligned": {"packing.pad_seq_to_mult": 8},
    "ragged, fixed offsets": {"packing.pad_cu_seqlens": True},
    "aligned, fixed offsets": {"packing.pad_seq_to_mult": 8, "packing.pad_cu_seqlens": True},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyRequest:
    """What to train."""

    model: Model
    method: MethodKind
    rows: Rows
    artifact: str
    #: Folder with training.jsonl, validation.jsonl, tokenizer/ and the models' folders.
    work: str
    changes: Mapping[str, Any] = field(default_factory=dict)  #: to the recipe


def write_model(folder: Path, model: Model) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**_TINY, **_MODELS[model]}))
    return folder


def write_weights(folder: Path, *, num_layers: int, family: Literal["Llama", "Qwen2"] = "Llama") -> Path:
    """Write a tiny dense model of random weights, as a folder of the Hugging Face hub has it, and return the folder."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**{**_TINY, "num_hidden_layers": num_layers})
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(folder)
    return folder


def tiny_recipe(work: Path, model: Model, method: MethodKind, rows: Rows = "ragged") -> SFTRecipe:
    sections = {
        "name": f"tiny-{model}-{method}",
        "packing": {"packed_sequence_size": PACKED_SEQUENCE_SIZE, "max_sequence_length": PACKED_SEQUENCE_SIZE},
        "preprocessing": {"kind": "chat", "over_long": "truncate"},
        "parallelism": {"num_gpus": 1},
        "batch": {"global_batch_size": NUM_PACKS_PER_STEP, "eval_global_batch_size": NUM_EVAL_PACKS},
        "model": {"name": str(work / model)},
        "method": {"kind": method},
        "schedule": {"train_iters": NUM_STEPS, "eval_iters": 1, "eval_interval": NUM_STEPS},
        "optimizer": {"lr": 1e-2},
        "checkpoint": {
            "pretrained": str(work / f"{model}-{method}-{rows}-weights"),
            "folder": str(work / f"{model}-{method}-{rows}"),
            "save_interval": NUM_STEPS,
        },
        "bridge_overrides": ON_CPU,
        "logging": {"tensorboard_dir": str(work / "logs")},
    }
    return conversations_recipe(work, **sections).override(dict(_ROWS[rows]))


def main(requests_path: str, results_path: str) -> None:
    from tests.support.train_on_cpu import fork_checkpoint_results, import_host

    import_host()
    fork_checkpoint_results()
    from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    requests = [TinyRequest(**request) for request in json.loads(Path(requests_path).read_text())]
    results = [_finetune(request) for request in requests]
    Path(results_path).write_text(json.dumps(results))


def _finetune(request: TinyRequest) -> dict[str, Any]:
    from megatron.bridge.training.finetune import finetune

    recipe = tiny_recipe(Path(request.work), request.model, request.method, request.rows)
    recipe = recipe.override(dict(request.changes))
    loss = _write_random_weights(recipe, request.artifact)
    return {**_train(finetune, recipe, request.artifact), "loss_of_weights": loss}


def _write_random_weights(recipe: SFTRecipe, artifact: str) -> float:
    """Write the checkpoint that a recipe starts from, and return its loss over the packs of the first step.

    It is made by one step of pretrain() at a rate too small to change anything.
    """
    from megatron.bridge.training.pretrain import pretrain

    changes = {"schedule.train_iters": 1, "optimizer.lr": 1e-9, "method": {"kind": "full"}}
    weights = {"checkpoint": {"folder": recipe.checkpoint.pretrained}, "bridge_overrides.rng": {"seed": 1}}
    loss = float(_train(pretrain, recipe.override({**changes, **weights}), artifact)["losses"][0])
    for path in Path(str(recipe.checkpoint.pretrained)).glob("iter_*/run_config.yaml"):
        _say_parallel_sizes(path)
    return loss


def _say_parallel_sizes(run_config: Path) -> None:
    """Write what a config of parts says of its transformer beside it as well.

    0.7 looks for a checkpoint's parallel sizes there alone (training/checkpointing.py:2831 of main of 2026-08-22).
    """
    values = yaml.safe_load(run_config.read_text(encoding="utf-8"))
    if "transformer" in values["model"]:
        values["model"] = {**values["model"]["transformer"], **values["model"]}
        run_config.write_text(yaml.safe_dump(values), encoding="utf-8")


def _train(entry_point: Any, recipe: SFTRecipe, artifact: str) -> dict[str, Any]:
    """Train; the class of attention layers is no plain value that a recipe could name, so it is set here."""
    from bridgepack.api import forward_step_for
    from tests.support.cpu_training import thd_layer_spec, train

    config = recipe.to_bridge(artifact=artifact)
    config.model.transformer_layer_spec = thd_layer_spec
    seen, modules = train(entry_point, config, forward_step_for(config))
    saved = [int(path.name.removeprefix("iter_")) for path in Path(config.checkpoint.save).glob("iter_*")]
    return {**seen, "saved_steps": saved, **_shape(modules)}


def _shape(modules: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a model is trained, adapted and an expert."""
    parameters = [(name, own) for name, module in modules.items() for own in module.parameters(recurse=False)]
    experts = {re.sub(r".*\.local_experts\.(\d+)\..*", r"\1", name) for name in modules if ".local_experts." in name}
    return {
        "num_trained": sum(own.numel() for _, own in parameters if own.requires_grad),
        "num_frozen": sum(own.numel() for _, own in parameters if not own.requires_grad),
        "trained_modules": sorted({_leaf(name) for name, own in parameters if own.requires_grad}),
        "adapted_modules": sorted(
            {_leaf(name.removesuffix(".adapter")) for name in modules if _leaf(name) == "adapter"}
        ),
        "num_experts": len({name for name in experts if name.isdigit()}),
    }


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


if __name__ == "__main__":
    main(*sys.argv[1:])
