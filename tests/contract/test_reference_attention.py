"""The reference attention against an oracle that goes token by token, on one rank and cut over context ranks."""

from types import ModuleType
from typing import Any

import pytest
import torch

from bridgepack.replay.slicing import thd_positions

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

#: Sequences of 4, 8 and 0 tokens and a tail of 4.
OFFSETS = [0, 4, 12, 12, 16]


@pytest.fixture(scope="module")
def tensors(bridge: ModuleType) -> tuple[Any, Any, Any]:
    """Return queries of 4 heads, and keys and values that 2 groups share; float64."""
    torch.manual_seed(0)
    return tuple(torch.randn(16, heads, 8, dtype=torch.float64) for heads in (4, 2, 2))


def _oracle(tensors: tuple[Any, Any, Any], token: int, head: int, first: int) -> Any:
    query, key, value = tensors
    seen = slice(first, token + 1)
    weights = torch.softmax(0.3 * (key[seen, head // 2] @ query[token, head]), dim=0)
    return weights @ value[seen, head // 2]


def _attention(tensors: tuple[Any, Any, Any], positions: Any, **changes: Any) -> Any:
    from bridgepack.canaries.cpu.reference_attention import packed_attention

    query, key, value = tensors
    options = {"offsets": OFFSETS, "max_seqlen": 16, "scale": 0.3, **changes}
    return packed_attention(query[positions], key, value, positions=positions, **options)


def test_attention_stays_inside_each_sequence(tensors: tuple[Any, Any, Any]) -> None:
    output = _attention(tensors, torch.arange(16))

    for token, first in enumerate([0] * 4 + [4] * 8 + [12] * 4):
        for head in range(4):
            assert torch.allclose(output[token, head], _oracle(tensors, token, head, first), atol=1e-12)


def test_context_ranks_compute_their_part_of_it(tensors: tuple[Any, Any, Any]) -> None:
    whole = _attention(tensors, torch.arange(16))
    for positions in map(torch.from_numpy, thd_positions(OFFSETS, 16, 2)):
        assert torch.allclose(_attention(tensors, positions), whole[positions], atol=1e-12)


def test_nothing_is_computed_beyond_max_seqlen(tensors: tuple[Any, Any, Any]) -> None:
    whole, short = _attention(tensors, torch.arange(16)), _attention(tensors, torch.arange(16), max_seqlen=5)

    assert torch.equal(short[9:12], torch.zeros_like(short[9:12]))
    assert torch.allclose(short[:9], whole[:9], atol=1e-12)
    assert torch.allclose(short[12:], whole[12:], atol=1e-12)


def test_a_missing_boundary_changes_the_sequence_after_it_alone(tensors: tuple[Any, Any, Any]) -> None:
    whole = _attention(tensors, torch.arange(16))
    joined = _attention(tensors, torch.arange(16), offsets=[0, 12, 12, 16])

    assert torch.allclose(joined[:4], whole[:4], atol=1e-12)
    assert not torch.allclose(joined[4:12], whole[4:12], atol=1e-3)
    assert torch.allclose(joined[12:], whole[12:], atol=1e-12)
