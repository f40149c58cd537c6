"""The same weights in every layout: whole tensors drawn by name, of which each rank takes its part.

Tensor-parallel ranks split a dimension into equal parts. A gated MLP's first matrix holds the gate above the value, and
each rank has a part of both, so its parts are interleaved: whole [g0 g1 v0 v1] -> rank 0 [g0 v0], rank 1 [g1 v1].
"""

import hashlib
import math
import re
from collections.abc import Sequence

import numpy as np

from bridgepack.canary.records import FloatArray

EMBEDDING = "embedding.word_embeddings.weight"
_OUTPUT = "output_layer.weight"
_LAYER = re.compile(r"^(decoder\.layers\.)(\d+)(\..*)$")
#: Parameters of a gated MLP of which each rank has two pieces.
GATED = re.compile(r"linear_fc1\.(weight|bias)$")
#: megatron-core's own, and those that TransformerEngine puts into the matrix that follows.
_NORM = re.compile(r"(norm[a-z_]*\.weight|layer_norm_weight)$")
_WRAPPERS = re.compile(r"^(module\.)+")


def global_name(name: str, *, first_layer: int, has_tied_embeddings: bool) -> str:
    """Return a parameter's name in the whole model, of its name on a pipeline stage.

    Example: `decoder.layers.1.mlp.linear_fc1.weight` on a stage that begins with layer 4 -> `decoder.layers.5. ...`.
    """
    name = _WRAPPERS.sub("", name)
    if has_tied_embeddings and name == _OUTPUT:
        return EMBEDDING
    found = _LAYER.match(name)
    return f"{found[1]}{int(found[2]) + first_layer}{found[3]}" if found else name


def whole_shape(shape: Sequence[int], dimension: int, num_ranks: int) -> tuple[int, ...]:
    """Return the shape of a tensor that ranks split along a dimension; -1 where none is split."""
    return tuple(size * num_ranks if index == dimension else size for index, size in enumerate(shape))


def drawn(name: str, shape: Sequence[int], seed: int) -> FloatArray:
    """Return the whole weights of a parameter; float64 values that float32 can hold, whatever the order of drawing.

    Matrices are normal with variance 1 / inputs, so that attention is far from flat and every layer counts; embeddings
    have deviation 0.3, weights of norms are near 1 and biases near 0.
    """
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    values = rng.standard_normal(tuple(shape))
    if _NORM.search(name):
        values = 1 + 0.1 * values
    elif len(shape) == 1:
        values = 0.1 * values
    else:
        values = values * (0.3 if name == EMBEDDING else 1 / math.sqrt(shape[-1]))
    held: FloatArray = values.astype(np.float32).astype(np.float64)
    return held


def part_of(whole: FloatArray, dimension: int, interleaved: int, num_ranks: int, rank: int) -> FloatArray:
    """Return a rank's part of a whole tensor."""
    if dimension < 0 or num_ranks == 1:
        return whole
    pieces = [np.split(part, num_ranks, axis=dimension)[rank] for part in np.split(whole, interleaved, axis=dimension)]
    return np.concatenate(pieces, axis=dimension)


def merged(parts: Sequence[FloatArray], dimension: int, interleaved: int) -> FloatArray:
    """Return the whole tensor of its parts, in rank order; of copies, the first."""
    if dimension < 0 or len(parts) == 1:
        return parts[0]
    pieces = [np.split(part, interleaved, axis=dimension) for part in parts]
    return np.concatenate([piece for group in zip(*pieces, strict=True) for piece in group], axis=dimension)
