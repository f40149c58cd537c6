"""Sequences of real tokens in a token store's files, as tokenising would leave them, and their lengths."""

from __future__ import annotations

import argparse
import itertools
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from benchlib.lengths import draw_lengths
from benchlib.real_chats import iter_texts
from bridgepack.data.store.token_file import write_token_file

TokenArray = npt.NDArray[np.int32]
#: Distinct tokens; more are these over again, far beyond what compression looks back at.
_POOL_TOKENS = 8 << 20
_FILE_TOKENS = 4 << 20
_BATCH_TEXTS = 200


def token_pool(options: argparse.Namespace, scratch: Path) -> TokenArray:
    """Return the tokens of the installed packages' documentation and code; made once."""
    path = scratch / "pool.npy"
    if not path.exists():
        tokenizer, found, num_found = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json")), [], 0
        texts = iter_texts(options.texts or Path(sysconfig.get_paths()["purelib"]))
        while num_found < min(_POOL_TOKENS, options.most_tokens):
            batch = tokenizer.encode_batch_fast(list(itertools.islice(texts, _BATCH_TEXTS)), add_special_tokens=False)
            found += [np.array(encoding.ids, dtype=np.int32) for encoding in batch]
            num_found = sum(map(len, found))
        np.save(path, np.concatenate(found))
    return np.load(path)


def write_sequences(pool: TokenArray, num_sequences: int, folder: Path) -> Sequence[Path]:
    """Write sequences of lengths A, two thirds of each trained, and return the files; `lengths.npy` has the lengths."""
    folder.mkdir(parents=True)
    stored = draw_lengths("A", num_sequences, seed=1) + 1
    np.save(folder / "lengths.npy", stored)
    group = np.cumsum(stored) // _FILE_TOKENS
    cuts = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), num_sequences]
    paths = [folder / f"{index:05d}.tokens" for index in range(len(cuts) - 1)]
    for index, (path, (first, stop)) in enumerate(zip(paths, itertools.pairwise(cuts), strict=True)):
        lengths, none = stored[first:stop], np.zeros(stop - first, dtype=np.int32)
        begin = (index * _FILE_TOKENS) % len(pool)
        ids = np.resize(np.concatenate((pool[begin:], pool[:begin])), lengths.sum())
        mask = np.concatenate([np.arange(length) >= length // 3 for length in lengths.tolist()]).astype(np.int8)
        facts = dict.fromkeys(("row_offsets", "num_trained", "num_learned", "num_context"), none)
        with write_token_file(path) as writer:
            writer.add_sequences(ids, mask, stored_lengths=lengths, **facts)
    return paths
