"""Integer formulas of packing: multiples, runtime and stored lengths, cumulative offsets.

Coordinates. *Stored* counts the tokens on disk; a sequence of `n` stored tokens gives the model `n - 1`
*runtime* tokens, because inputs are `ids[:-1]` and labels `ids[1:]`.
Source: megatron-bridge 0.6.2, `data/packing/gpt_sft.py` (collate_fn) and `docs/training/packed-sequences.md`.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

#: Maximum entries of a cu_seqlens row beyond one per sequence: the leading 0 and the tail segment.
CU_SEQLENS_EXTRA_ENTRIES = 2


def ceil_to_multiple(value: int, multiple: int) -> int:
    """Return `value` rounded up to a multiple of `multiple`: (13, 8) -> 16."""
    return -(-value // multiple) * multiple


def floor_to_multiple(value: int, multiple: int) -> int:
    """Return `value` rounded down to a multiple of `multiple`: (13, 8) -> 8."""
    return value // multiple * multiple


def pad_seq_to_mult(
    *,
    context_parallel_size: int,
    tensor_model_parallel_size: int,
    sequence_parallel: bool,
    eval_context_parallel_size: int | None = None,
) -> int:
    """Return the multiple every sequence's runtime length is padded to.

    lcm of `2 * CP` (two zigzag halves per rank) and, with sequence parallelism, `CP * TP`, for the training and
    the evaluation context-parallel size. Inactive terms are 1.

    Example: CP 2, TP 4 with sequence parallelism -> lcm(4, 8) = 8.

    Source: megatron-bridge 0.6.2, docs/training/packed-sequences.md.
    """
    multiple = 1
    for size in {context_parallel_size, eval_context_parallel_size or context_parallel_size}:
        zigzag = 2 * size if size > 1 else 1
        width = size * tensor_model_parallel_size if sequence_parallel and tensor_model_parallel_size > 1 else 1
        multiple = math.lcm(multiple, zigzag, width)
    return multiple


def model_parallel_size(
    *, tensor_model_parallel_size: int, pipeline_model_parallel_size: int, context_parallel_size: int
) -> int:
    """Return the ranks of one copy of the model: TP * PP * CP.

    Source: megatron-core 0.19, `core/parallel_state.py`.
    """
    return tensor_model_parallel_size * pipeline_model_parallel_size * context_parallel_size


def data_parallel_size(
    *,
    world_size: int,
    tensor_model_parallel_size: int,
    pipeline_model_parallel_size: int,
    context_parallel_size: int,
) -> int:
    """Return the number of model replicas: world size / (TP * PP * CP); 0 if it is not divisible.

    Source: megatron-core 0.19, `core/parallel_state.py`.
    """
    replica = model_parallel_size(
        tensor_model_parallel_size=tensor_model_parallel_size,
        pipeline_model_parallel_size=pipeline_model_parallel_size,
        context_parallel_size=context_parallel_size,
    )
    return world_size // replica if world_size % replica == 0 else 0


def aligned_runtime_lengths[Length: np.integer[Any]](
    runtime_lengths: npt.NDArray[Length], multiple: int
) -> npt.NDArray[Length]:
    """Return each runtime length rounded up to `multiple`; shape [num_sequences] and dtype of the argument, runtime.

    Example: [3, 8, 9] with multiple 8 -> [8, 8, 16].
    """
    return -(-runtime_lengths // multiple) * multiple


def seq_boundaries(seq_start_id: IntArray, stored_row_length: int) -> IntArray:
    """Return `seq_start_id` plus the row's end; shape [num_sequences + 1], int64, stored.

    Example: [0, 4] in a row of 7 stored tokens -> [0, 4, 7].
    """
    return np.append(seq_start_id, stored_row_length)


def runtime_segment_lengths(seq_start_id: IntArray, stored_row_length: int) -> IntArray:
    """Return physical runtime lengths of a row's sequences; shape [num_sequences], int64, runtime.

    Example: starts [0, 4] in a row of 7 stored tokens -> [3, 2].
    """
    return np.diff(seq_boundaries(seq_start_id, stored_row_length)) - 1


def first_difference(numbers: npt.NDArray[Any], reference: npt.NDArray[Any]) -> int | None:
    """Return the first index at which two rows of numbers differ: [1 2 3] and [1 5] -> 1; None if equal."""
    num_shared = min(len(numbers), len(reference))
    places = np.flatnonzero(numbers[:num_shared] != reference[:num_shared])
    if len(places):
        return int(places[0])
    return None if len(numbers) == len(reference) else num_shared


def cu_seqlens(runtime_lengths: IntArray) -> IntArray:
    """Return cumulative offsets; shape [num_sequences + 1], int64, runtime: [5, 3] -> [0, 5, 8]."""
    return np.concatenate(([0], np.cumsum(runtime_lengths)))
