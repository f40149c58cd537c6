"""The rows that a rank's step trains: packs through the host's loader, or each sequence in a row of its own."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bridgepack import geometry
from bridgepack.canary.records import RunRequest

PACKS_FOLDER = "training"
SEQUENCES_FILE = "sequences.npz"
METADATA_FILE = "bridge_metadata.json"
#: Whether rows are packs -> the host's name for how they are drawn.
DATALOADER_TYPES = {True: "batch", False: "single"}
#: The host's sampler shuffles with it, in every layout the same.
_SAMPLER_SEED = 1234
#: Multiple of the width of a sequence's row (megatron-bridge 0.6.2, data/datasets/gpt_sft.py, GPTSFTChatDataset).
_ROW_MULTIPLE = 16
#: Options of a dataset that say how packs are read, not how raw rows are tokenised.
_OF_PACKS = ("return_cu_seqlen", "answer_only_loss", "pad_seq_length_to_mult", "ceil_to_power_2")


class Rows:
    """The batches of a data-parallel rank, and which rows each is made of."""

    def __init__(self, request: RunRequest, dataset_kwargs: dict[str, Any], *, data_rank: int) -> None:
        self.order: list[int] = []
        self._request = request
        self._data_rank = data_rank
        self._dataset = _packed_dataset(request, dataset_kwargs) if request.is_packed else _SequenceDataset(request)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield batches as the host's loader does: global ones of packs, sequences one by one."""
        from megatron.bridge.data.loaders import cyclic_iter
        from megatron.bridge.data.samplers import build_pretraining_data_loader

        request = self._request
        loader = build_pretraining_data_loader(
            dataset=_Watched(self._dataset, self.order),
            consumed_samples=0,
            dataloader_type=DATALOADER_TYPES[request.is_packed],
            micro_batch_size=1,
            num_workers=0,
            data_sharding=True,
            collate_fn=self._dataset.collate_fn,
            pin_memory=False,
            data_parallel_rank=self._data_rank,
            data_parallel_size=request.layout.data,
            drop_last=True,
            global_batch_size=request.num_rows,
            seed=_SAMPLER_SEED,
        )
        yield from cyclic_iter(loader)


class _Watched:
    def __init__(self, dataset: Any, order: list[int]) -> None:
        self._dataset = dataset
        self._order = order

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        self._order.append(int(index))
        return self._dataset[index]


def _packed_dataset(request: RunRequest, dataset_kwargs: dict[str, Any]) -> Any:
    from megatron.bridge.data.builders.gpt_sft import build_gpt_sft_split

    folder = Path(request.folder)
    return build_gpt_sft_split(
        str(folder / PACKS_FOLDER / "*.idx.parquet"),
        tokenizer=SimpleNamespace(eos_id=request.eos_token_id),
        seq_length=request.packed_sequence_size,
        memmap_workers=1,
        seed=_SAMPLER_SEED,
        packed_sequence_size=request.packed_sequence_size,
        pack_metadata_path=folder / METADATA_FILE,
        pad_cu_seqlens=request.pad_cu_seqlens,
        pad_seq_to_mult=request.pad_seq_to_mult,
        dataset_kwargs={
            **{name: value for name, value in dataset_kwargs.items() if name in _OF_PACKS},
            "pad_to_max_length": request.pad_to_max_length,
        },
    )


class _SequenceDataset:
    """Sequences one by one, collated as the host collates chats that are not packed."""

    def __init__(self, request: RunRequest) -> None:
        from megatron.bridge.data.datasets.gpt_sft import GPTSFTChatDataset

        with np.load(Path(request.folder) / SEQUENCES_FILE) as stored:
            self._ids, self._mask, self._bounds = stored["input_ids"], stored["loss_mask"], stored["bounds"]
        longest = int(np.diff(self._bounds).max())
        host = object.__new__(GPTSFTChatDataset)
        host.tokenizer = SimpleNamespace(eos_id=request.eos_token_id)
        host.max_seq_length = geometry.ceil_to_multiple(longest, _ROW_MULTIPLE)
        host.pad_to_max_length = False
        host.pad_seq_length_to_mult = 1
        host.ceil_to_power_2 = False
        host.tokens_to_generate = 0
        host.get_attention_mask_from_fusion = True
        self.collate_fn = host.collate_fn

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        own = slice(self._bounds[index], self._bounds[index + 1])
        return {
            "input_ids": self._ids[own],
            "loss_mask": self._mask[own],
            "context_ids": self._ids[own][:1],
            "answer_ids": self._ids[own][1:],
            "metadata": {},
        }
