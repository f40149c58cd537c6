"""Digests of packs, 8 bytes each: they tell which pack a batch of the run is, by what it holds.

A digest covers what the host's loader gives for a pack: the runtime tokens, and which labels are trained. Labels whose
input is EOS are left out, because Megatron-Bridge 0.6 does not train them whatever the mask says.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import ceil_to_multiple
from bridgepack.records import RowBatch

Digests = npt.NDArray[np.uint64]

#: Keys of the streams of random weights; numpy guarantees that Philox never changes.
_TOKEN_KEY, _MASK_KEY = 0x7061636B, 0x6D61736B
_SMALLEST = 1 << 12
_LENGTH_WEIGHT = 0x9E3779B97F4A7C15
_BITS = (1 << 64) - 1


def pack_digest(tokens: npt.NDArray[np.int64], is_trained: npt.NDArray[np.bool_]) -> int:
    """Return the digest of a pack, 0 to 2**64 - 1; both arrays have shape [runtime tokens].

    It is a sum with random weights, so a pack that differs has the same digest once in 2**56 or rarer. Takes 0.1 ms for
    131,072 tokens.
    """
    num_tokens = len(tokens)
    mask_bytes = np.packbits(is_trained, bitorder="little")
    bits = np.zeros(ceil_to_multiple(len(mask_bytes), 8), dtype=np.uint8)
    bits[: len(mask_bytes)] = mask_bytes
    words = bits.view("<u8")
    total = int(np.einsum("i,i->", tokens.view(np.uint64), _weights(_TOKEN_KEY, num_tokens)))
    total += int(np.einsum("i,i->", words, _weights(_MASK_KEY, len(words))))
    return (total + num_tokens * _LENGTH_WEIGHT) & _BITS


def digests_of_rows(batch: RowBatch, *, eos_token_id: int) -> Digests:
    """Return the digests of rows as they are stored; shape [num_rows], uint64.

    Example: ids [5 6 7 | 8 9], mask [0 1 0 | 1 0] -> the digest of tokens [5 6 8], of which the last two are trained.
    """
    sequence_rows = np.repeat(np.arange(batch.num_rows), np.diff(batch.start_offsets))
    starts = batch.seq_start_id.astype(np.int64) + batch.token_offsets[sequence_rows]
    is_input = np.ones(len(batch.input_ids), dtype=np.bool_)
    is_input[np.append(starts[1:], len(batch.input_ids)) - 1] = False
    tokens = batch.input_ids[is_input].astype(np.int64)
    is_trained = (batch.loss_mask[is_input] != 0) & (tokens != eos_token_id)
    offsets = (batch.token_offsets - batch.start_offsets).tolist()
    digests = (pack_digest(tokens[first:stop], is_trained[first:stop]) for first, stop in pairwise(offsets))
    return np.fromiter(digests, dtype=np.uint64, count=batch.num_rows)


def _weights(key: int, count: int) -> Digests:
    """Return the first weights of a stream; shape [count], uint64."""
    return _stream(key, max(_SMALLEST, 1 << max(count - 1, 1).bit_length()))[:count]


@cache
def _stream(key: int, count: int) -> Digests:
    return np.random.Philox(key=key).random_raw(count)
