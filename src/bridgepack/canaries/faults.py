"""Faults that are planted in a run's inputs, to test that the canary finds and names them."""

from collections.abc import Callable, Mapping
from typing import Any

from bridgepack.bridge.imports import import_host
from bridgepack.canaries.records import topology_of
from bridgepack.replay.settings import Topology

BOUNDARIES_DROPPED = "boundaries-dropped"
MASK_SHIFTED = "mask-shifted"
POSITIONS_NOT_RESET = "positions-not-reset"
WRONG_MULTIPLE = "wrong-multiple"
LOSS_PER_RANK = "loss-per-rank"
MAX_SEQLEN_TOO_SMALL = "max-seqlen-too-small"
SEQUENCE_LEAKS = "sequence-leaks"
CONTIGUOUS_SLICES = "context-slices-contiguous"
LOSS_NORMALISED = "loss-normalised-otherwise"

#: Fault -> what is done, and the layout that is run for it where none is asked for.
FAULTS: Mapping[str, tuple[str, Topology]] = {
    BOUNDARIES_DROPPED: ("a middle pipeline stage gets no boundaries", topology_of(pipeline=3)),
    MASK_SHIFTED: ("the loss mask is rolled right by one", topology_of()),
    POSITIONS_NOT_RESET: ("positions are not reset where a sequence begins", topology_of()),
    WRONG_MULTIPLE: ("sequences are laid out for one context-parallel rank", topology_of(context=2)),
    LOSS_PER_RANK: ("calculate_per_token_loss is off", topology_of(data=2)),
    MAX_SEQLEN_TOO_SMALL: ("the packs' metadata says half of the longest sequence", topology_of()),
    SEQUENCE_LEAKS: ("the first boundary between two sequences is missing", topology_of()),
    CONTIGUOUS_SLICES: ("context-parallel ranks take halves of a row", topology_of(context=2)),
    LOSS_NORMALISED: ("the host's loss counts every token of a row, also of unpacked ones", topology_of()),
}
#: Faults that the host would have in unpacked steps, too.
OF_THE_HOST = frozenset({LOSS_NORMALISED})
_OFFSETS = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
_LONGEST = ("max_seqlen_q", "max_seqlen_kv")


def plant_in_step(fault: str | None, place: Mapping[str, int], topology: Topology) -> None:
    """Plant a fault of batches between the loader and the forward step; other faults are in the config and packs."""
    if fault == BOUNDARIES_DROPPED and not 0 < place["pipeline"] < topology.pipeline_model_parallel_size - 1:
        return
    if fault == CONTIGUOUS_SLICES:
        _take_contiguous_slices()
    elif fault == LOSS_NORMALISED:
        _count_every_token()
    elif fault is not None and fault in _CHANGES:
        in_every_batch(_CHANGES[fault])


def in_every_batch(change: Callable[[dict[str, Any]], None]) -> None:
    """Change each micro batch between the loader and the forward step, until this process ends."""
    batch_utils = import_host("data.batch_utils")

    split = batch_utils.split_batch_into_microbatches

    def split_and_change(*arguments: Any, **options: Any) -> Any:
        micro_batches = split(*arguments, **options)
        for micro_batch in micro_batches:
            change(micro_batch)
        return micro_batches

    batch_utils.split_batch_into_microbatches = split_and_change


def _drop_boundaries(micro_batch: dict[str, Any]) -> None:
    for name in (*_OFFSETS, *_LONGEST):
        micro_batch.pop(name, None)


def _go_on_counting(micro_batch: dict[str, Any]) -> None:
    import torch

    positions = micro_batch["position_ids"]
    micro_batch["position_ids"] = torch.arange(positions.shape[1]).expand_as(positions).contiguous()


def _join_sequences(micro_batch: dict[str, Any]) -> None:
    """Remove the second offset, so that the first two sequences become one; the number of offsets stays."""
    import torch

    for name in _OFFSETS:
        if name in micro_batch and micro_batch[name].shape[1] > 2:
            offsets = micro_batch[name]
            micro_batch[name] = torch.cat([offsets[:, :1], offsets[:, 2:], offsets[:, -1:]], dim=1)
    for name in _LONGEST:
        micro_batch[name] = torch.full_like(micro_batch[name], micro_batch["tokens"].shape[1] + 1)


def _take_contiguous_slices() -> None:
    """Source: megatron/core/utils.py of 0.19.2 (get_thd_batch_on_this_cp_rank), which asks TransformerEngine."""
    import megatron.core.utils as core_utils
    import torch

    def contiguous(_offsets: Any, num_tokens: int, num_ranks: int, rank: int) -> Any:
        size = num_tokens // num_ranks
        return torch.arange(rank * size, (rank + 1) * size, dtype=torch.int32)

    core_utils.tex.thd_get_partitioned_indices = contiguous


def _count_every_token() -> None:
    gpt_step = import_host("training.gpt_step")

    loss_of = gpt_step.masked_next_token_loss

    def counting_all(loss_mask: Any, output_tensor: Any, *arguments: Any, **options: Any) -> Any:
        loss, num_tokens, report = loss_of(loss_mask, output_tensor, *arguments, **options)
        return loss, num_tokens + (loss_mask == 0).sum().to(num_tokens.dtype), report

    gpt_step.masked_next_token_loss = counting_all


_CHANGES: Mapping[str, Callable[[dict[str, Any]], None]] = {
    BOUNDARIES_DROPPED: _drop_boundaries,
    MASK_SHIFTED: lambda micro_batch: micro_batch.update(loss_mask=micro_batch["loss_mask"].roll(1, dims=1)),
    POSITIONS_NOT_RESET: _go_on_counting,
    SEQUENCE_LEAKS: _join_sequences,
}
