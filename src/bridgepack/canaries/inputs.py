"""The inputs of a step, written and read: packs laid out for its topology, or sequences one by one; and its weights.

Weights are the same in every layout: whole tensors drawn by name, of which each rank takes its part. Tensor-parallel
ranks split a dimension into equal parts. A gated MLP's first matrix holds the gate above the value, and each rank has a
part of both, so its parts are interleaved: whole [g0 g1 v0 v1] -> rank 0 [g0 v0], rank 1 [g1 v1].
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack import geometry
from bridgepack.bridge.imports import import_host
from bridgepack.canaries import faults
from bridgepack.canaries.packs import ChosenPacks, laid_out, lengths_of
from bridgepack.canaries.records import FloatArray, HostFacts, RunRequest
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateMetadata, CollateSettings
from bridgepack.replay.settings import Topology

#: Rows are as wide as a multiple of it where packs are not padded to one length; the host's own multiple.
_WIDTH_MULTIPLE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedInput:
    """Packs for one topology."""

    topology: Topology  #: over which processes
    numbers: tuple[int, ...]  #: of the packs in their split
    rows: tuple[PackedRow, ...]  #: one pack each, as the step reads them
    intended: tuple[PackedRow, ...]  #: the same, as they should be; other rows only where a fault is planted
    settings: CollateSettings  #: of the host's collate, as they should be
    is_laid_out_anew: bool  #: the artifact's own boundaries do not fit the topology, so sequences were padded for it
    entries: tuple[dict[str, Any], ...]  #: of the metadata that the step reads
    fault: str | None = None  #: what is planted


def multiple_for(topology: Topology) -> int:
    """Return the multiple of runtime lengths that a layout needs."""
    return geometry.pad_seq_to_mult(
        context_parallel_size=topology.context_parallel_size,
        tensor_model_parallel_size=topology.tensor_model_parallel_size,
        sequence_parallel=topology.sequence_parallel,
    )


def packed_input(
    packs: ChosenPacks,
    topology: Topology,
    facts: HostFacts,
    *,
    entries: Sequence[dict[str, Any]],
    pad_seq_to_mult: int,
    keeps_boundaries: bool,
    fault: str | None = None,
) -> PackedInput:
    """Return packs for a topology, with the artifact's metadata and multiple, and the planted fault if any.

    With `keeps_boundaries` packs are taken as they are even where their lengths do not fit.
    """
    multiple = multiple_for(topology)
    fits = all((lengths_of(pack.row) % multiple == 0).all() for pack in packs.packs)
    is_anew = not fits and not keeps_boundaries
    rows = tuple(
        laid_out(pack.sequences, multiple, packs.eos_token_id) if is_anew else pack.row for pack in packs.packs
    )
    is_other = is_anew or packs.num_cut
    metadata = _own_entries(entries, rows, multiple=multiple if is_anew else 1) if is_other else tuple(entries)
    pads_offsets = facts.pad_cu_seqlens or fault == faults.MAX_SEQLEN_TOO_SMALL
    settings = CollateSettings(
        release=facts.release,
        # what the longest row needs, so that every rank can share it
        packed_sequence_size=geometry.ceil_to_multiple(
            max(len(row.input_ids) - len(row.seq_start_id) for row in rows), math.lcm(multiple, _WIDTH_MULTIPLE)
        ),
        pad_seq_to_mult=max(pad_seq_to_mult, multiple) if is_anew else pad_seq_to_mult,
        eos_token_id=packs.eos_token_id,
        pad_to_max_length=facts.pad_to_max_length or pads_offsets,
        pad_cu_seqlens=pads_offsets,
        metadata=CollateMetadata.from_entries(metadata) if pads_offsets else None,
    )
    final_rows = rows
    if fault == faults.WRONG_MULTIPLE:  # as they are laid out without context parallelism
        final_rows = tuple(_shorten(laid_out(pack.sequences, 1, packs.eos_token_id), multiple) for pack in packs.packs)
    longest = max(int(lengths_of(row).max()) for row in rows)
    wrong = {"dataset_max_seqlen": max(longest // 2, 1), "min_packed_seqlen": 2**31 - 1}  # and no pack has a tail
    return PackedInput(
        topology=topology,
        numbers=tuple(pack.number for pack in packs.packs),
        rows=final_rows,
        intended=rows,
        settings=settings,
        is_laid_out_anew=is_anew,
        entries=tuple({**entry, **wrong} for entry in metadata) if fault == faults.MAX_SEQLEN_TOO_SMALL else metadata,
        fault=fault,
    )


def write_packed(folder: Path, packs: PackedInput) -> None:
    """Write the packs of a step, as the host's dataset reads them."""
    (folder / PACKS_FOLDER).mkdir(parents=True)
    (folder / METADATA_FILE).write_text(json.dumps(list(packs.entries)))
    columns = {
        "input_ids": (pa.list_(pa.int32()), [row.input_ids.tolist() for row in packs.rows]),
        "loss_mask": (pa.list_(pa.int8()), [row.loss_mask.astype(np.int8).tolist() for row in packs.rows]),
        "seq_start_id": (pa.list_(pa.int32()), [row.seq_start_id.tolist() for row in packs.rows]),
    }
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    pq.write_table(table, folder / PACKS_FOLDER / "shard-00000.idx.parquet")


def write_sequences(folder: Path, packs: ChosenPacks) -> None:
    """Write the sequences one by one; their masks are token-aligned, as those of rows that are not packed."""
    folder.mkdir(parents=True)
    sequences = packs.sequences
    np.savez(
        folder / SEQUENCES_FILE,
        input_ids=np.concatenate([sequence.input_ids for sequence in sequences]),
        loss_mask=np.concatenate([np.roll(sequence.loss_mask, 1) for sequence in sequences]),
        bounds=np.cumsum([0, *(len(sequence.input_ids) for sequence in sequences)]),
    )


def _shorten(row: PackedRow, multiple: int) -> PackedRow:
    """Return a pack of which one sequence at least has a length that is no multiple; the last one loses a token."""
    lengths = lengths_of(row)
    if (lengths % multiple).any() or lengths[-1] < 2:
        return row
    mask = row.loss_mask[:-1].copy()
    mask[-1] = 0
    return replace(row, input_ids=row.input_ids[:-1], loss_mask=mask)


def _own_entries(
    entries: Sequence[dict[str, Any]], rows: Sequence[PackedRow], *, multiple: int
) -> tuple[dict[str, Any], ...]:
    """Return an artifact's metadata for packs that were cut or padded: what is wrong with it stays wrong."""
    emptiest = min(len(row.input_ids) - len(row.seq_start_id) for row in rows)
    return tuple(
        {
            **entry,
            "dataset_max_seqlen": geometry.ceil_to_multiple(int(entry["dataset_max_seqlen"]), multiple),
            "min_packed_seqlen": emptiest,
        }
        for entry in entries
    )


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
        cyclic_iter = import_host("data.loaders").cyclic_iter
        build_pretraining_data_loader = import_host("data.samplers").build_pretraining_data_loader

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
            data_parallel_size=request.topology.data_parallel_size,
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
    build_gpt_sft_split = import_host("data.builders.gpt_sft").build_gpt_sft_split

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
        GPTSFTChatDataset = import_host("data.datasets.gpt_sft").GPTSFTChatDataset  # noqa: N806

        with np.load(Path(request.folder) / SEQUENCES_FILE) as arrays:
            self._ids, self._mask, self._bounds = arrays["input_ids"], arrays["loss_mask"], arrays["bounds"]
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
        positions = slice(self._bounds[index], self._bounds[index + 1])
        return {
            "input_ids": self._ids[positions],
            "loss_mask": self._mask[positions],
            "context_ids": self._ids[positions][:1],
            "answer_ids": self._ids[positions][1:],
            "metadata": {},
        }


EMBEDDING = "embedding.word_embeddings.weight"
_OUTPUT = "output_layer.weight"
_LAYER = re.compile(r"^(decoder\.layers\.)(\d+)(\..*)$")
#: Parameters of a gated MLP of which each rank has two pieces.
GATED = re.compile(r"linear_fc1\.((to_wrap\.)?(weight|bias)|adapter\.(linear_out\.weight|weight_magnitude))$")
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
    match = _LAYER.match(name)
    return f"{match[1]}{int(match[2]) + first_layer}{match[3]}" if match else name


def whole_shape(shape: Sequence[int], dimension: int, num_ranks: int) -> tuple[int, ...]:
    """Return the shape of a tensor that ranks split along a dimension; -1 where none is split."""
    return tuple(size * num_ranks if index == dimension else size for index, size in enumerate(shape))


def draw_weights(name: str, shape: Sequence[int], seed: int) -> FloatArray:
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
    weights: FloatArray = values.astype(np.float32).astype(np.float64)
    return weights


def part_of(weights: FloatArray, dimension: int, num_blocks: int, num_ranks: int, rank: int) -> FloatArray:
    """Return a rank's part of a whole tensor."""
    if dimension < 0 or num_ranks == 1:
        return weights
    pieces = [np.split(part, num_ranks, axis=dimension)[rank] for part in np.split(weights, num_blocks, axis=dimension)]
    return np.concatenate(pieces, axis=dimension)


def merge_parts(parts: Sequence[FloatArray], dimension: int, num_blocks: int) -> FloatArray:
    """Return the whole tensor of its parts, in rank order; of copies, the first."""
    if dimension < 0 or len(parts) == 1:
        return parts[0]
    pieces = [np.split(part, num_blocks, axis=dimension) for part in parts]
    return np.concatenate([piece for group in zip(*pieces, strict=True) for piece in group], axis=dimension)
