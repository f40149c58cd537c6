"""Lengths of sequences as they are found in data sets for fine-tuning."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: name -> what it is; the shortest has 8 tokens, or one where lengths are uniform.
DISTRIBUTIONS = {
    "A": "chats: lognormal, median 350, sigma 1, up to 4,096 tokens, mean 562",
    "B": "with long documents: 80 % as A, 15 % median 3,000, 5 % median 16,000, up to 32,768 tokens, mean 1,896",
    "C": "uniform, 1 to 4,096 tokens",
}
_SHORTEST, _LONGEST = 8, {"A": 4096, "B": 32768, "C": 4096}


def draw_lengths(distribution: str, num_sequences: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return runtime lengths; shape [num_sequences]."""
    rng = np.random.default_rng(seed)
    longest = _LONGEST[distribution]
    if distribution == "C":
        return rng.integers(1, longest + 1, num_sequences)
    lengths = rng.lognormal(np.log(350), 1, num_sequences)
    if distribution == "B":
        kind = rng.random(num_sequences)
        longer = rng.lognormal(np.log(3000), 0.7, num_sequences)
        longest_kind = rng.lognormal(np.log(16000), 0.5, num_sequences)
        lengths = np.where(kind < 0.8, lengths, np.where(kind < 0.95, longer, longest_kind))
    return np.clip(lengths, _SHORTEST, longest).astype(np.int64)
