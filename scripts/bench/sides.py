"""What is measured of bridgepack and of what bounds it, in a process of its own. usage: sides.py FUNCTION JSON RESULT.

Only commands, `bridgepack.api` and one function that is looked for are used, so that any checkout can be measured.
"""

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from measuring import timed

PACK = 4096
_COMMAND = (sys.executable, "-c", "from bridgepack.cli import main; main()")
_REPACKED = ("packing.packed_sequence_size=32768", "packing.pad_seq_to_mult=8", "parallelism.context_parallel_size=4")


def recipe(data: str, tokenizer: str, engine: str = "auto", kind: str = "chat") -> dict[str, Any]:
    """Return a recipe as plain values."""
    return {
        "name": "benchmark",
        "data": {"train": data},
        "tokenizer": {"name_or_path": tokenizer, "engine": engine},
        "preprocessing": {"kind": kind},
        "packing": {"packed_sequence_size": PACK, "pad_seq_to_mult": 1},
    }


def build_artifact(values: dict[str, Any], output: Path, *arguments: str, good: tuple[int, ...] = (0,)) -> None:
    """Run the command `build` with a recipe."""
    path = output.with_name(f"{output.name}.yaml")
    path.write_text(json.dumps(values), encoding="utf-8")
    _run("build", str(path), "--output", str(output), *arguments, good=good)


def build(data: str, tokenizer: str, output: str, engine: str, workers: int) -> dict[str, Any]:
    """Return what `build --check` takes, with its start and an empty store, and `repack` of what it built."""
    folder, found = _fresh(output), {}
    artifact, other, processes = folder / "artifact", folder / "other", ("--num-workers", str(workers))
    with timed(found):
        build_artifact(recipe(data, tokenizer, engine), artifact, *processes, "--check", good=(0, 1))
    changes = [part for change in _REPACKED for part in ("--set", change)]
    with timed(found, "repack_"):
        _run("repack", str(artifact), "--output", str(other), *processes, *changes)
    return _described(found, artifact, folder)


def plan(lengths: str, size: int) -> dict[str, Any]:
    """Return what a plan takes, from lengths to which sequence lies in which pack; loading code is left out."""
    runtime_lengths, found = np.load(lengths), {}
    plan_packs = looked_for("plan_packs")
    plan_packs(runtime_lengths, packed_sequence_size=size)
    with timed(found):
        planned = plan_packs(runtime_lengths, packed_sequence_size=size)
    assert np.array_equal(np.sort(planned.sequence_order), np.arange(len(runtime_lengths)))
    return {**found, "num_packs": planned.num_packs}


def write(artifact: str, output: str, workers: int) -> dict[str, Any]:
    """Return what it takes from tokens in the store to planned, written and hashed shards."""
    folder, found = _fresh(output), {}
    repack = importlib.import_module("bridgepack.api").repack
    with timed(found):
        repack(artifact, {"packing.seed": 5}, output=str(folder / "written"), num_workers=workers)
    return _described(found, folder / "written", folder)


def check(artifact: str, workers: int) -> dict[str, Any]:
    """Return what the command `check` takes."""
    found: dict[str, Any] = {}
    with timed(found):
        _run("check", artifact, "--num-workers", str(workers), good=(0, 1))
    return found


def read_and_hash(artifact: str) -> dict[str, Any]:
    """Return what decoding the rows and hashing the files takes, in one process."""
    found: dict[str, Any] = {}
    with timed(found):
        for path in shards_of(Path(artifact)):
            hashlib.sha256(path.read_bytes()).hexdigest()
            for batch in pq.ParquetFile(path).iter_batches(batch_size=512):
                assert batch.num_rows > 0
    return found


def write_and_sync(rows: str, output: str) -> dict[str, Any]:
    """Return what it takes to write and sync the same tokens, 32 bits and 8 for the mask, when nothing compresses."""
    table, found = pq.read_table(rows), {}
    columns = [
        table.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        for name in ("input_ids", "loss_mask")
    ]
    path = _fresh(output) / "rows"
    with timed(found), path.open("wb", buffering=0) as stream:
        for values in columns:
            stream.write(values.data)
        os.fsync(stream.fileno())
    shutil.rmtree(path.parent)
    return {**found, "num_bytes": sum(values.nbytes for values in columns)}


def shards_of(artifact: Path) -> list[Path]:
    """Return the files that are trained on, in order."""
    return sorted((artifact / "training").glob("*.parquet"))


def described(paths: list[Path], eos_token_id: int) -> dict[str, Any]:
    """Return packs, bytes, a digest of the rows in order, and one of the sequences, whatever order they are in.

    That of the sequences leaves out the labels whose input is EOS, which some train and others mask by a setting.
    """
    rows, sequences, num_packs = hashlib.sha256(), [], 0
    for path in paths:
        for row in (row for batch in pq.ParquetFile(path).iter_batches(batch_size=256) for row in _rows_of(batch)):
            ids, mask, starts = row
            ends = [*starts[1:].tolist(), len(ids)]
            rows.update(ids.data)
            rows.update(mask.data)
            rows.update(starts.data)
            compared_mask = np.where(ids == eos_token_id, np.int8(0), mask)
            sequences += [
                hashlib.sha256(ids[start:end].tobytes() + compared_mask[start:end].tobytes()).digest()
                for start, end in zip(starts.tolist(), ends, strict=True)
            ]
            num_packs += 1
    digest = hashlib.sha256(b"".join(sorted(sequences))).hexdigest()
    num_bytes = sum(path.stat().st_size for path in paths)
    return {"num_packs": num_packs, "num_bytes": num_bytes, "rows_digest": rows.hexdigest(), "digest": digest}


def _rows_of(batch: Any) -> Any:
    kinds = {"input_ids": np.int32, "loss_mask": np.int8, "seq_start_id": np.int32}
    lists = [batch.column(name) for name in kinds]
    values = [
        np.ascontiguousarray(one.flatten().to_numpy(zero_copy_only=False), dtype=kind)
        for one, kind in zip(lists, kinds.values(), strict=True)
    ]
    bounds = [np.asarray(one.offsets) - one.offsets[0].as_py() for one in lists]
    for index in range(batch.num_rows):
        yield tuple(one[bound[index] : bound[index + 1]] for one, bound in zip(values, bounds, strict=True))


def _described(found: dict[str, Any], artifact: Path, folder: Path) -> dict[str, Any]:
    tokenizer = json.loads((artifact / "manifest.json").read_text(encoding="utf-8"))["tokenizer"]
    found |= described(shards_of(artifact), tokenizer["eos_token_id"])
    shutil.rmtree(folder)
    return found


def _run(*arguments: str, good: tuple[int, ...] = (0,)) -> None:
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    code = subprocess.run([*_COMMAND, *arguments], env=environment, check=False).returncode
    if code not in good:
        raise SystemExit(f"bridgepack {' '.join(arguments)} ended with {code}")


def looked_for(name: str) -> Any:
    """Return a function of bridgepack by its name alone: its module is called otherwise in other checkouts."""
    package = Path(importlib.import_module("bridgepack").__file__ or "").parent
    defined = re.compile(rf"^def {name}\(", re.MULTILINE)
    (path,) = [path for path in package.rglob("*.py") if defined.search(path.read_text(encoding="utf-8"))]
    module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
    return getattr(importlib.import_module(module), name)


def _fresh(output: str) -> Path:
    shutil.rmtree(output, ignore_errors=True)
    Path(output).mkdir(parents=True)
    return Path(output)


if __name__ == "__main__":
    function, given, result = sys.argv[1:]
    home = importlib.import_module("upstream") if function.startswith("upstream_") else sys.modules[__name__]
    Path(result).write_text(json.dumps(getattr(home, function)(**json.loads(given))), encoding="utf-8")
