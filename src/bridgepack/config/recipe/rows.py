"""Recipes of one model as table rows: each row is a named function without arguments.

A catalogue file defines its models once, then one row per recipe: task, tokens per pack, H100s, the reason for the
topology, GiB of state per GPU, and other differences.

    _1B = Model(module=__name__, stem="small_1b", title="Small 1B", hub_id="org/Small-1B", full_gpus=1, lora_gpus=1)

    small_1b_sft_8gpu_h100_bf16_8k_recipe = _1B.row("sft", 8192, 8, SAME_TP_PP, 20, TP=2)

State per GPU: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16 weights, fp32 gradients, fp32
weights and both moments of Adam, spread over data-parallel ranks), and parameters of experts / (EP x PP) of
2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

import copy
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bridgepack.config.recipe.recipe import SFTRecipe

#: Short names of parallel sizes in rows and docstrings -> their fields.
_SIZES = {
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "CP": "context_parallel_size",
    "EP": "expert_model_parallel_size",
    "ETP": "expert_tensor_parallel_size",
}
#: Tokens per pack -> their part of a recipe's name.
_SUFFIXES = {4096: "", 8192: "_8k", 32768: "_32k", 131072: "_128k"}
#: Reason for a row's topology: upstream's, or upstream's with more ranks of other kinds.
SAME = "Upstream's topology."
SAME_TP_PP, SAME_TP_PP_EP = "Upstream's TP and PP.", "Upstream's TP, PP and EP."
_STEP_TOKENS = 524288
_STEP_PACKS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model on the hub, and the settings shared by all its recipes."""

    module: str  #: `__name__` of the file with the rows; functions are looked up there
    stem: str  #: prefix of the recipe names
    hub_id: str  #: hub id of the model and its tokenizer
    #: GPUs in the name of Megatron-Bridge's full-SFT recipe, the base; None if it has none for the model
    full_gpus: int | None = None
    lora_gpus: int | None = None  #: the same for LoRA
    title: str = ""  #: model name in docstrings, if it differs from the hub's
    lora_targets: tuple[str, ...] = ()  #: linear layers with an adapter; empty for the host's default
    cp_comm_type: str | None = None  #: context-parallel communication; None for the host's default
    recompute: Literal["full"] | None = None  #: of the rows that do not name it
    step_factor: int = 1  #: an optimiser step has max(step_factor * 524288 tokens, 16 packs)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)  #: further fields of that section
    sections: Mapping[str, Any] = field(default_factory=dict)  #: further sections

    def row(
        self,
        task: Literal["sft", "peft"],
        packed_sequence_size: int,
        num_gpus: int,
        why: str,
        state_gib: float,
        *,
        recompute: Literal["full", "selective"] | None = None,
        base: str | None = None,
        variant: str = "",
        overrides: Mapping[str, Any] | None = None,
        **sizes: int,
    ) -> Callable[[], SFTRecipe]:
        """Return a function that returns one recipe: full SFT for `sft`, LoRA for `peft`.

        `why` (a sentence or empty) and `state_gib` go into its docstring. `base` replaces the model's base, `variant`
        is added to the name, `overrides` become its `bridge_overrides`. `sizes` are parallel sizes, e.g. `TP=2`; sizes
        of 1 may be omitted.
        """
        recompute = recompute or self.recompute
        is_full, shares = task == "sft", {_SIZES[short]: size for short, size in sizes.items()}
        mark = f"_{variant}" if variant else ""
        name = f"{self.stem}_{task}_{num_gpus}gpu_h100_bf16{mark}{_SUFFIXES[packed_sequence_size]}_recipe"
        base_gpus = self.full_gpus if is_full else self.lora_gpus
        base = base or (f"{self.stem}_{task}_{base_gpus}gpu_h100_bf16_config" if base_gpus else self.hub_id)
        exchange = {"cp_comm_type": self.cp_comm_type} if self.cp_comm_type and "CP" in sizes else {}
        targets = {"target_modules": self.lora_targets} if self.lora_targets else {}
        values = {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": self.hub_id, **self.tokenizer},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": {"num_gpus": num_gpus, "sequence_parallel": sizes.get("TP", 1) > 1, **shares, **exchange},
            "batch": {"tokens_per_step": self.step_factor * max(_STEP_TOKENS, _STEP_PACKS * packed_sequence_size)},
            "model": {"name": base, "recompute": recompute},
            "method": {"kind": "full"} if is_full else {"kind": "lora", **targets},
            "checkpoint": {"pretrained": f"checkpoints/{self.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
            **({"bridge_overrides": overrides} if overrides else {}),
            **self.sections,
        }
        ranks, title = sizes.get("CP", 1), self.title or self.hub_id.rpartition("/")[2]
        sentences = (
            why,
            f"CP {ranks} leaves {packed_sequence_size // ranks} tokens to a rank." if ranks > 1 else "",
            "Whole layers are recomputed." if recompute == "full" else "",
            f"{state_gib:g} GiB of state per GPU.",
        )
        summary = f"of {title} in packs of {packed_sequence_size} tokens on {machines(values['parallelism'])}."
        return recipe_function(self.module, values, summary, *sentences)


def recipe_function(module: str, values: Mapping[str, Any], summary: str, *sentences: str) -> Callable[[], SFTRecipe]:
    """Return a function that returns the recipe of `values`, with its `__name__`, `__module__` and docstring set."""

    def recipe() -> SFTRecipe:
        return SFTRecipe.from_mapping(copy.deepcopy(values))

    recipe.__name__ = recipe.__qualname__ = values["name"]
    recipe.__module__ = module
    task = "full SFT" if values["method"]["kind"] == "full" else "LoRA"
    recipe.__doc__ = f"Return {task} {summary}\n\n{textwrap.fill(' '.join(filter(None, sentences)), 112)}"
    return recipe


def more_tp(size: int, upstream: int) -> str:
    """Return the docstring sentence for more tensor-parallel ranks than upstream."""
    return f"TP {size} instead of upstream's {upstream} splits activations and logits."


def more_ep(size: int, upstream: int) -> str:
    """Return the docstring sentence for more expert-parallel ranks than upstream."""
    return f"EP {size} instead of upstream's {upstream} spreads the experts wider."


def more_gpus(sizes: str, upstream: int, state_gib: int) -> str:
    """Return the docstring sentence for more GPUs than upstream, with its other sizes (`sizes`) and its state."""
    gpus = "1 GPU" if upstream == 1 else f"{upstream} GPUs"
    return f"Upstream's {sizes}; on its {gpus} {state_gib} GiB of state leave too little for activations and logits."


def machines(parallelism: Mapping[str, Any]) -> str:
    """Return GPUs and parallel sizes over 1 for a docstring: `8 H100s: TP 2 x CP 4 x DP 1, EP 8`."""
    sizes = {short: parallelism.get(field, 1) for short, field in _SIZES.items()}
    ranks = sizes["TP"] * sizes["PP"] * sizes["CP"]
    sizes_shared = [f"{short} {sizes[short]}" for short in ("TP", "PP", "CP") if sizes[short] > 1]
    experts = f", EP {sizes['EP']}" if sizes["EP"] > 1 else ""
    num_gpus = parallelism["num_gpus"]
    gpus = f"{num_gpus} H100{'s' if num_gpus > 1 else ''}"
    return f"{gpus}: {' x '.join([*sizes_shared, f'DP {num_gpus // ranks}'])}{experts}"
