"""What is measured of the real Megatron-Bridge 0.6.2, and of other packers where they are installed.

Source: Megatron-Bridge 0.6.2, data/packing/offline.py, algorithms.py and parquet.py, and, of r0.6.0,
scripts/training/prepare_gpt_sft_packed_data.py, whose imports of every recipe are left out.
"""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from measuring import timed
from sides import PACK, described, looked_for, shards_of

_SEED = 1234
_PACKAGES = ("megatron.bridge", "megatron.bridge.data", "megatron.bridge.data.packing", "megatron.bridge.utils")
_CHAT = {"chat": True, "use_hf_tokenizer_chat_template": True, "chat_loss_mode": "assistant"}
_TOKENIZER = SimpleNamespace(eod=0, eos_id=0, eos_token_id=0, pad_id=0, space_sensitive=False)
_READ = {"prompt_template": "{input} {output}", "label_key": "output", "truncation_field": "input"}


def upstream_plan(lengths: str, size: int, algorithm: str) -> dict[str, Any]:
    """Return what packing the list of lengths takes, without the histogram before and dealing sequences out after."""
    algorithms, sequence_lengths, found = _algorithms(), np.load(lengths).tolist(), {}
    np.random.seed(_SEED)
    with timed(found):
        packs = getattr(algorithms, algorithm)(sequence_lengths, size)
    return {**found, "num_packs": len(packs)}


def upstream_peer(lengths: str, size: int, package: str) -> dict[str, Any]:
    """Return what `seqpacker` takes for arrays, or `lightbinpack` for a list."""
    runtime_lengths, found = np.load(lengths), {}
    peer = importlib.import_module(package)
    if package == "lightbinpack":
        sequence_lengths = runtime_lengths.tolist()
        with timed(found):
            packs = peer.obfd(sequence_lengths, size)
        return {**found, "num_packs": len(packs)}
    packer = peer.Packer(capacity=size, strategy="obfd")
    with timed(found):
        _, offsets = packer.pack_flat(runtime_lengths)
    return {**found, "num_packs": len(offsets)}


def upstream_write(rows: str, output: str) -> dict[str, Any]:
    """Return what planning, filling and writing take; the sequences are in memory, as lists."""
    _importable()
    from megatron.bridge.data.packing.algorithms import create_hist, create_packing_strategy, fill_packing_strategy
    from megatron.bridge.data.packing.parquet import write_packed_parquet

    found: dict[str, Any] = {}
    dataset = np.array(pq.read_table(rows).to_pylist())
    target = Path(output).with_suffix(".idx.parquet")
    np.random.seed(_SEED)
    with timed(found):
        sequences, histogram = create_hist(dataset, PACK)
        packs, _ = create_packing_strategy(histogram, PACK, "first_fit_shuffle")
        write_packed_parquet(fill_packing_strategy(packs, sequences, PACK, 0), target)
    num_bytes = target.stat().st_size
    target.unlink()
    return {**found, "num_packs": len(packs), "num_bytes": num_bytes}


def upstream_build(data: str, tokenizer: str, output: str, workers: int) -> dict[str, Any]:
    """Return what its own preparation takes, without Python's start and the imports: half a minute."""
    _importable()
    from megatron.bridge.data.builders.gpt_sft import build_gpt_sft_split
    from megatron.bridge.data.packing.offline import prepare_gpt_sft_packed_data
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer

    folder, found = Path(output), {}
    config = TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=tokenizer)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "packed").mkdir(parents=True)
    (folder / "training.jsonl").symlink_to(data)
    packed = folder / "packed" / "training.idx.parquet"
    with timed(found):
        prepare_gpt_sft_packed_data(
            input_path=folder / "training.jsonl",
            output_path=packed,
            output_metadata_path=folder / "metadata.json",
            packed_sequence_size=PACK,
            tokenizer=build_tokenizer(config),
            max_seq_length=PACK,
            seed=_SEED,
            packing_algorithm="first_fit_shuffle",
            dataset_kwargs=_CHAT,
            pad_seq_to_mult=1,
            num_tokenizer_workers=workers,
            dataset_builder=build_gpt_sft_split,
        )
    found |= described([packed], build_tokenizer(config).eod)
    shutil.rmtree(folder)
    return found


def upstream_read(path: str, num_random: int, rewritten: str = "") -> dict[str, Any]:
    """Return what drawing rows takes through the host's data set, per row; of an artifact, or of a file it rewrote."""
    _importable()
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset, write_packed_parquet

    source = str(Path(path) / "training")
    if rewritten:
        rows = [row for file in shards_of(Path(path)) for row in pq.read_table(file).to_pylist()]
        write_packed_parquet(rows, Path(source := rewritten))
    dataset = GPTSFTPackedParquetDataset(source, _TOKENIZER, **_READ)
    found: dict[str, Any] = {}
    drawn = np.random.default_rng(0).permutation(len(dataset))[:num_random].tolist()
    for prefix, order in (("", drawn), ("ordered_", range(len(dataset)))):
        with timed(found, prefix):
            for row in order:
                assert len(dataset[row]["input_ids"]) > 0
        found[f"{prefix}num"] = len(order)
    return found


def _algorithms() -> ModuleType:
    """Return the host's algorithms as they are in its wheel; the packages around them run no code: 20 seconds."""
    spec = importlib.util.find_spec("megatron")
    assert spec is not None
    roots = [Path(place) for place in spec.submodule_search_locations or ()]
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:])) for root in roots]
        sys.modules[name] = package
    return importlib.import_module("megatron.bridge.data.packing.algorithms")


def _importable() -> None:
    """Make `import megatron.bridge` work without a GPU."""
    looked_for("install_import_hook")()
