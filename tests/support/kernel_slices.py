"""The arithmetic by which TransformerEngine's kernel slices a packed row over context-parallel ranks."""

from collections.abc import Sequence


def positions_on_rank(offsets: Sequence[int], num_tokens: int, *, context_parallel_size: int, rank: int) -> list[int]:
    """Return which tokens of a row TransformerEngine's slicing gives a context-parallel rank.

    Example: offsets [0, 8], 2 ranks -> rank 0 [0, 1, 6, 7], rank 1 [2, 3, 4, 5].

    Source: TransformerEngine 2.10 to 2.17, common/fused_attn/context_parallel.cu (thd_partition_indices_kernel):
    offsets are divided by the ranks, towards 0, and the sequence of a token is looked for by bisection.
    """
    shares = [int(offset / context_parallel_size) for offset in offsets]
    positions = []
    for token in range(num_tokens // context_parallel_size):
        sequence = _bisected(token, shares)
        half = (shares[sequence + 1] - shares[sequence]) // 2
        index = token - shares[sequence]
        chunk = rank if index < half else 2 * (context_parallel_size - 1) - rank
        positions.append(index + shares[sequence] * context_parallel_size + half * chunk)
    return positions


def _bisected(token: int, shares: Sequence[int]) -> int:
    left, right = 1, len(shares) - 1
    while left < right:
        middle = (left + right) // 2
        if shares[middle] <= token:
            left = middle + 1
        else:
            right = middle
    return left - 1
