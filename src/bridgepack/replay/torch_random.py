"""The host's random orders, exactly and without torch: both come from the MT19937 generator."""

import numpy as np

from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray

#: From this size, torch draws 64 bits per element.
#: Source: pytorch, aten/src/ATen/native/TensorFactories.cpp (randperm_cpu).
MAX_PERMUTATION = (2**32 - 1) // 20
_SEED_BITS = 2**32


def torch_permutation(size: int, seed: int) -> IntArray:
    """Return `torch.randperm(size)` of a CPU generator after `manual_seed(seed)`; shape [size], int64.

    Swaps element `i` with element `i + draw % (size - i)`, where the draws are MT19937's 32-bit numbers; the seed is
    taken modulo 2**32. Example: size 5, seed 1234 -> [0 4 2 1 3].

    Source: pytorch, aten/src/ATen/native/TensorFactories.cpp (randperm_cpu), core/MT19937RNGEngine.h.

    Raises:
        ConfigError: torch does not shuffle this many elements in this way.
    """
    if size >= MAX_PERMUTATION:
        raise ConfigError(f"num_packs is {size}; allowed: below {MAX_PERMUTATION}, the limit of a replay.")
    generator = np.random.MT19937()  # with the state of `init_genrand(seed)`
    generator.state = np.random.RandomState(seed % _SEED_BITS).get_state(legacy=False)  # type: ignore[assignment]
    draws = generator.random_raw(max(size - 1, 0)).astype(np.int64)
    places = np.arange(size - 1) + draws % np.arange(size, 1, -1) if size > 1 else draws
    order = list(range(size))
    for index, place in enumerate(places.tolist()):
        order[index], order[place] = order[place], order[index]
    return np.array(order, dtype=np.int64)


def shuffled_epochs(num_rows: int, num_samples: int, seed: int) -> IntArray:
    """Return the rows that the host's packed dataset reads if limited to `num_samples`; shape [num_samples], int64.

    Concatenates random permutations of all rows until there are enough, and cuts off the rest.

    Source: megatron-bridge 0.3.0 to 0.6.2, GPTSFTPackedDataset.__init__ (np.random.seed) and _build_samples_mapping;
    data/packing/gpt_sft.py and parquet.py of 0.6.2, data/datasets/sft.py before.
    """
    # The host uses NumPy's legacy generator, whose stream is frozen by NumPy's policy (NEP 19).
    random = np.random.RandomState(seed)
    epochs = np.tile(np.arange(num_rows, dtype=np.int64), (-(-num_samples // num_rows), 1))
    for epoch in epochs:
        random.shuffle(epoch)
    return epochs.reshape(-1)[:num_samples]
