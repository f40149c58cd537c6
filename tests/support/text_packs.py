"""Packs of text through the host's forward steps, model classes for images and sound, and loss, without a GPU.

Real are the collate function of packs, both forward steps, the class's forward and the loss. The vision and sound parts
are not made, and a recorder stands for the language part: its embedding of a token is the token's id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import MethodType, SimpleNamespace
from typing import Any, Self

import pytest
import torch

MODELS, WIDTH, EOS = "megatron.bridge.models", 32, 2
#: Ids of tokens that stand for images and sound; no text has them.
_MARKS = {
    name: 900_001 + place
    for place, name in enumerate(
        ("image_token_id", "video_token_id", "audio_token_id", "vision_start_token_id", "audio_start_token_id")
    )
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Packs, by the runtime lengths of their sequences, and one rank that takes the first of them."""

    rows: tuple[tuple[int, ...], ...] = ((12, 20),)
    multiple: int = 1
    tensor: int = 1
    context: int = 1
    context_rank: int = 0
    stages: int = 1
    stage: int = 0


@dataclass(frozen=True)
class Group:
    """Stands for a process group."""

    num_ranks: int = 1
    own: int = 0

    def size(self) -> int:
        return self.num_ranks

    def rank(self) -> int:
        return self.own


class Recorder(torch.nn.Module):  # type: ignore[misc]
    """Stands for a language model: notes what it is called with; its loss of a token is the token's label."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}
        self.rotary_pos_emb = SimpleNamespace(is_thd_format=False)
        self.config = SimpleNamespace(hidden_size=1, scale_embeddings_by_hidden_size=False)

    def embedding(self, input_ids: Any, position_ids: Any = None) -> Any:
        return input_ids.t().unsqueeze(-1).float()

    def forward(self, **options: Any) -> Any:
        self.seen = options
        labels = options.get("labels")
        return torch.zeros(1, 1) if labels is None else labels.float()


def outcome(model: str, step: str, case: Case) -> str:
    """Return what is wrong with a rank's first pack in a model class under a forward step; empty if nothing is."""
    groups = SimpleNamespace(
        tp=Group(case.tensor),
        cp=Group(case.context, case.context_rank),
        pp=Group(case.stages, case.stage),
        dp=Group(),
        embd=None,
    )
    with _ranks(groups):
        micro_batch = _micro_batch(case)
        tokens, labels, mask, _, positions, _ = _batch("gpt_step", micro_batch, groups)
        instance, recorder = _instance(model, groups, is_first=case.stage == 0)
        try:
            output, used = _run(step, micro_batch, instance, groups)
        except Exception as error:  # whatever the host raises is the outcome
            return f"{type(error).__name__}: {error}"
    is_last = case.stage == case.stages - 1
    if not is_last and isinstance(output, tuple):
        return "a tuple is no output of a stage"
    return _wrong(recorder.seen, tokens, labels if is_last else None, mask if is_last else None, used, positions, case)


def _wrong(seen: Any, tokens: Any, labels: Any, mask: Any, used: Any, positions: Any, case: Case) -> str:
    """Return what differs from the part of an ordinary language model on the same rank."""
    expected = None if tokens is None else tokens.flatten().tolist()[: tokens.numel() // case.tensor]
    given = seen.get("decoder_input")
    if expected is not None and (given is None or given.flatten().long().tolist() != expected):
        return "tokens differ"
    if labels is not None and seen["labels"].tolist() != labels.tolist():
        return "labels differ"
    if mask is not None and used.flatten().tolist() != mask.flatten().tolist():
        return "the loss mask differs"
    own = seen.get("position_ids")
    if own is not None and positions is not None and not _restart(own, positions, tokens):
        return "positions differ"
    return "" if seen.get("packed_seq_params") is not None else "boundaries are lost"


def _restart(own: Any, positions: Any, tokens: Any) -> bool:
    """Return whether the positions of tokens that are no padding are the collate's, on every axis."""
    is_text = (tokens != EOS).flatten()
    axes = own if own.dim() == 3 else own[None]
    return all(axis.flatten()[is_text].tolist() == positions.flatten()[is_text].tolist() for axis in axes)


def _micro_batch(case: Case) -> dict[str, Any]:
    """Return the first of the micro batches that the host makes of rows it collates together."""
    from megatron.bridge.data.batch_utils import split_batch_into_microbatches
    from megatron.bridge.data.packing.gpt_sft import GPTSFTPackedDataset

    dataset = GPTSFTPackedDataset.__new__(GPTSFTPackedDataset)
    dataset.__dict__.update(
        tokenizer=SimpleNamespace(eos_id=EOS),
        pad_to_max_length=True,
        max_seq_length=WIDTH,
        answer_only_loss=True,
        pad_seq_length_to_mult=16,
        _pad_seq_to_mult=case.multiple,
        pad_cu_seqlens=False,
        return_cu_seqlen=True,
        pack_metadata=None,
        ceil_to_power_2=False,
    )
    return split_batch_into_microbatches(dataset.collate_fn([*map(_stored(case.multiple), case.rows)]), len(case.rows))[
        0
    ]


def _stored(multiple: int) -> Any:
    def row(lengths: tuple[int, ...]) -> dict[str, Any]:
        ids: list[int] = []
        starts = []
        for length in lengths:
            starts.append(len(ids))
            ids += range(100 + len(ids), 101 + len(ids) + length)
            ids += [EOS] * (-length % multiple)
        return {"input_ids": ids, "seq_boundaries": [*starts, len(ids)], "loss_mask": [1] * len(ids)}

    return row


def _settings() -> Any:
    return SimpleNamespace(
        model=SimpleNamespace(virtual_pipeline_model_parallel_size=None, pipeline_model_parallel_layout=None),
        rerun_state_machine=SimpleNamespace(check_for_nan_in_loss=False, check_for_spiky_loss=False),
        dataset=SimpleNamespace(
            enable_offline_packing=True,
            skip_getting_attention_mask_from_dataset=True,
            offline_packing_specs=SimpleNamespace(packed_sequence_size=WIDTH),
        ),
    )


def _batch(step: str, micro_batch: dict[str, Any], groups: Any) -> Any:
    module = import_module(f"megatron.bridge.training.{step}")
    return module.get_batch(iter([dict(micro_batch)]), _settings(), False, pg_collection=groups)


class _Timer:
    def __call__(self, *arguments: Any, **options: Any) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self) -> None:
        pass

    stop = start


def _run(step: str, micro_batch: dict[str, Any], instance: Any, groups: Any) -> tuple[Any, Any]:
    """Return the output of a stage, and the mask that the loss uses; the last stage computes the loss."""
    module = import_module(f"megatron.bridge.training.{step}")
    state = SimpleNamespace(cfg=_settings(), timers=_Timer(), straggler_timer=_Timer())
    output, loss = module.forward_step(state, iter([dict(micro_batch)]), instance)
    if groups.pp.rank() < groups.pp.size() - 1:
        return output, None
    loss(output)
    return output, output[1] if isinstance(output, tuple) else loss.args[0]


@contextmanager
def _ranks(groups: Any) -> Iterator[None]:
    """Let the host take stand-ins for process groups, and put on the CPU what it puts on a GPU."""
    from megatron.core import parallel_state
    from megatron.core import utils as core_utils

    from bridgepack.canaries.cpu.training import _tokens_of_context_rank

    sizes = {"context_parallel": groups.cp, "tensor_model_parallel": groups.tp}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cuda", lambda tensor, **_: tensor)
        for name in ("range_push", "range_pop"):
            patch.setattr(torch.cuda.nvtx, name, lambda *_: None)
        patch.setattr(torch.distributed, "get_world_size", lambda group=None: group.size() if group else 1)
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_rank", lambda group=None: group.rank() if group else 0)
        patch.setattr(core_utils, "tex", SimpleNamespace(thd_get_partitioned_indices=_tokens_of_context_rank), False)
        for name, group in sizes.items():
            patch.setattr(parallel_state, f"get_{name}_world_size", lambda *_, group=group, **__: group.size())
            patch.setattr(parallel_state, f"get_{name}_rank", lambda *_, group=group, **__: group.rank())
            patch.setattr(parallel_state, f"get_{name}_group", lambda *_, group=group, **__: group)
        for step in ("gpt_step", "vlm_step"):
            module = import_module(f"megatron.bridge.training.{step}")
            patch.setattr(module, "is_pp_first_stage", lambda group: group.rank() == 0)
            patch.setattr(module, "is_pp_last_stage", lambda group: group.rank() == group.size() - 1)
            patch.setattr(module, "accumulate_flops_metadata", lambda *_, **__: None)
            patch.setattr(module, "get_pg_collection", lambda _: groups)
            patch.setattr(module, "get_model_chunk_vp_stage", lambda _: None)
        yield


def _instance(model: str, groups: Any, *, is_first: bool) -> tuple[Any, Recorder]:
    """Return an object of a model class without its vision and sound parts, and its language part."""
    recorder = Recorder()
    config = SimpleNamespace(
        **_MARKS,
        sequence_parallel=groups.tp.size() > 1,
        vision_config=SimpleNamespace(spatial_merge_size=2, temporal_merge_size=2, tokens_per_second=2),
        text_config=SimpleNamespace(pad_token_id=0, use_bidirectional_attention=None),
        spatial_merge_size=2,
        window_size=8,
        params_dtype=torch.float32,
        vision_dp_when_cp=False,
        _pg_collection=groups,
        is_hybrid_model="nemotron" in model,
    )
    parts = {
        **_MARKS,
        "config": config,
        "pre_process": is_first,
        "post_process": True,
        "language_model": recorder,
        "pg_collection": groups,
        "square_merge_size": 4,
        "spatial_merge_size": 2,
        "use_dist_train": False,
        "position_embedding_type": "rope",
        "media_placeholder_token_id": _MARKS["image_token_id"],
        "vision_model": None,
        "image_token_index": _MARKS["image_token_id"],
        "sound_token_index": _MARKS["audio_token_id"],
        "context_parallel_lm": groups.cp.size(),
        "sequence_parallel_lm": groups.tp.size() > 1,
    }
    instance = _blank(_named(model), parts)
    _complete(model.rpartition(".")[2], instance, parts, recorder, is_first)
    return instance, recorder


def _complete(name: str, instance: Any, parts: dict[str, Any], recorder: Recorder, is_first: bool) -> None:
    """Give an object what its class builds around the language part."""
    if name == "Step37Model" and is_first:
        module = import_module(f"{MODELS}.stepfun.modelling_step37.model")
        instance.image_insert_embedding = module.ImageInsertEmbedding(recorder.embedding, 4, 1)
    if name in _THINKERS:
        instance.thinker = _blank(_named(_THINKERS[name]), parts)
    if name in _BORROWED:
        place, others = _BORROWED[name]
        lender = getattr(import_module(f"{MODELS}.{place}"), others)
        for method in ("get_rope_index", "get_vision_position_ids"):
            instance.__dict__[method] = MethodType(getattr(lender, method), instance)
    if name.startswith("Nemotron"):
        from megatron.core.models.multimodal.llava_model import LLaVAModel

        instance.llava_model = _blank(LLaVAModel, parts)


_THINKERS = {
    "Qwen3OmniModel": "qwen_omni.modeling_qwen3_omni.thinker_model.Qwen3OmniThinkerModel",
    "Qwen25OmniModel": "qwen_omni.modeling_qwen25_omni.thinker_model.Qwen25OmniThinkerModel",
    "Qwen3ASRModel": "qwen3_asr.modeling_qwen3_asr.thinker_model.Qwen3ASRThinkerModel",
}
#: Class -> module and class of transformers that it takes methods from.
_BORROWED = {
    "Qwen25VLModel": ("qwen_vl.modeling_qwen25_vl", "Qwen2_5_VLModel"),
    "Ernie45VLModel": ("ernie_vl.modeling_ernie45_vl.model", "Ernie4_5_VLMoeModel"),
}


def _named(model: str) -> Any:
    place, _, name = model.rpartition(".")
    return getattr(import_module(f"{MODELS}.{place}"), name)


def _blank(kind: Any, parts: dict[str, Any]) -> Any:
    instance = kind.__new__(kind)
    torch.nn.Module.__init__(instance)
    for name, part in parts.items():
        if isinstance(getattr(kind, name, None), property):
            continue
        setattr(instance, name, part)
    return instance
