"""Trains tiny models with vision over packs of text with megatron-bridge's own pretrain() on CPU; writes what it saw.

Usage: python -m tests.support.vision_training REQUESTS.json RESULTS.json

Each request has a process of its own, forked from one that has the host imported. Vision towers are real, and tiny.
"""

import json
import multiprocessing
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.support.tiny_recipes import tiny_recipe

type Model = Literal["ministral3", "qwen2_5_vl"]
NUM_STEPS = 10
_TEXT: Mapping[str, Any] = {
    **{"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512, "hidden_act": "silu"},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5},
    **{"max_position_embeddings": 256, "initializer_range": 0.1, "rope_theta": 10000.0, "tie_word_embeddings": False},
}
_VISION: Mapping[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "patch_size": 14}
#: Ids above the vocabulary: no text has them.
_MARKS = {
    f"{name}_token_id": 600 + place for place, name in enumerate(("image", "video", "vision_start", "vision_end"))
}
_YARN = {
    **{"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128, "rope_theta": 10000.0},
    **{"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
}
MODELS: Mapping[Model, Mapping[str, Any]] = {
    "ministral3": {
        **{"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 600},
        **{"spatial_merge_size": 2, "vision_feature_layer": -1, "multimodal_projector_bias": False},
        "text_config": {**_TEXT, "model_type": "ministral3", "rope_parameters": _YARN},
        "vision_config": {
            **_VISION,
            **{"model_type": "pixtral", "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16},
            **{"image_size": 28, "num_channels": 3, "rope_theta": 10000.0},
        },
    },
    "qwen2_5_vl": {
        **{"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", **_TEXT, **_MARKS},
        "vision_config": {
            **_VISION,
            **{"model_type": "qwen2_5_vl", "depth": 1, "num_heads": 2, "out_hidden_size": 64, "in_channels": 3},
            **{"spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 56, "fullatt_block_indexes": [0]},
        },
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionRequest:
    """What to train."""

    model: Model
    num_packs: int  #: packs of a step, all on one rank
    loader: str
    is_step_for_text: bool  #: whether gpt_step is used, and not the step that bridgepack chooses
    artifact: str
    #: Folder with training.jsonl, validation.jsonl, tokenizer/ and the models' folders.
    work: str


def main(requests_path: str, results_path: str) -> None:
    from tests.support.train_on_cpu import fork_checkpoint_results, import_host

    import_host()
    import torch

    from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    fork_checkpoint_results()
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None
    requests = [VisionRequest(**request) for request in json.loads(Path(requests_path).read_text())]
    Path(results_path).write_text(json.dumps([_trained_in_a_fork(request, results_path) for request in requests]))


def _trained_in_a_fork(request: VisionRequest, results_path: str) -> dict[str, Any]:
    own = Path(f"{results_path}.of-one")
    own.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_write_trained, args=(request, own))
    process.start()
    process.join()
    assert process.exitcode == 0, request
    return dict(json.loads(own.read_text()))


def _write_trained(request: VisionRequest, path: Path) -> None:
    path.write_text(json.dumps(_train(request)))


def _train(request: VisionRequest) -> dict[str, Any]:
    from megatron.bridge.training import gpt_step
    from megatron.bridge.training.pretrain import pretrain

    from bridgepack.api import forward_step_for
    from tests.support.cpu_training import thd_layer_spec, train

    sizes = {"batch.global_batch_size": request.num_packs, "batch.eval_global_batch_size": 1, "schedule.eval_iters": 0}
    work, own = Path(request.work), f"{request.model}-{request.num_packs}-{request.loader}-{request.is_step_for_text}"
    places = {"model.name": str(work / request.model), "checkpoint.folder": str(work / f"checkpoints-{own}")}
    recipe = tiny_recipe(work, "dense", "full").override({**sizes, **places})
    config = recipe.to_bridge(artifact=request.artifact)
    config.model.transformer_layer_spec = thd_layer_spec
    config.checkpoint.pretrained_checkpoint = None
    config.dataset.dataloader_type = request.loader
    if request.model == "qwen2_5_vl":
        config.model.mrope_section = [2, 3, 3]  # of heads of 16
    step = gpt_step.forward_step if request.is_step_for_text else forward_step_for(config)
    try:
        return train(pretrain, config, step)[0]
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
