"""What one version of the host makes of recipes and of packs that were exported for it, as plain values.

Usage: python -m tests.support.older_host_probe FOLDER...

Each folder has a request.json and gets an answer.json. Its version is imported in a process of its own, which is forked
from one that has imported what all versions share, and no megatron.
"""

import gc
import importlib
import json
import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from itertools import batched
from pathlib import Path
from typing import Any
from unittest import mock

from bridgepack.bridge.import_on_cpu import install_import_hook
from bridgepack.bridge.plain import plain_values, value_at
from bridgepack.bridge.shipped import import_host
from bridgepack.bridge.wiring import Packs, Setting, host_settings
from bridgepack.bridge.writing.older_hosts import older_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host import RELEASES, HostRelease, release_of
from tests.support.host_datasets import build_host_datasets, load_host_tokenizer
from tests.support.hub_configs import offline_hub

#: Shipped by every version, and what the recipes of the tests are laid over.
BASE = "llama32_1b_sft_config"
#: What the versions' training imports on a GPU host, too.
MODULES = ("megatron.bridge.recipes.llama", "megatron.bridge.training.gpt_step", "megatron.bridge.training.finetune")
#: What every version imports besides Megatron's packages, which takes two thirds of the time.
_SHARED = (
    *("torch._dynamo", "torch._inductor.lowering", "torch.distributed.tensor", "transformers.models.auto"),
    *("datasets", "diffusers", "pandas", "peft", "scipy.stats"),
)
#: Processes at a time; each takes about 0.8 GB and one core.
_NUM_PROCESSES = 2


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this process's megatron-bridge does.

    Args:
        request: `bridge_version`, `tokenizer`, `folder` to write in, `raw`, rows to pack, and `cases`: name ->
            `recipe`, `packs`, their folder, and `num_packs`.
    """
    return {
        "imports": {module: _import_error(module) for module in MODULES},
        "cases": {name: _case(request, case) for name, case in request["cases"].items()},
        "own_packs": _own_packs(request),
    }


def settings_of(case: Mapping[str, Any], bridge_version: str) -> tuple[Setting, ...]:
    """Return the settings of a case under the names of a version."""
    packs, release = Packs(folder=case["packs"], num_packs=case["num_packs"]), release_of(bridge_version)
    settings = host_settings(SFTRecipe.from_mapping(case["recipe"]), packs=packs)
    return settings if release is RELEASES[-1] else older_settings(settings, release)


def _import_error(module: str) -> str | None:
    try:
        import_host(module)
    except ConfigError as error:
        return str(error)
    return None


def _case(request: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    release = release_of(request["bridge_version"])
    with offline_hub(Path(request["folder"]) / "hub"):
        config = SFTRecipe.from_mapping(case["recipe"]).to_bridge(case["packs"])
    specs = value_at(config, release.specs_path)
    datasets = [
        one for one in _datasets(release, config.dataset, load_host_tokenizer(request["tokenizer"])) if one is not None
    ]
    return {
        "specs": _named(specs),
        "dataset": {**_named(config.dataset), release.specs_path.rpartition(".")[2]: _paths(specs)},
        "readers": [_name(type(dataset)) for dataset in datasets],
        "splits": [_rows(dataset) for dataset in datasets],
        "batches": [_batches(dataset) for dataset in datasets],
        "container": _container(request, config),
    }


def _datasets(release: HostRelease, config: Any, tokenizer: Any) -> Any:
    """Return training, validation and test data as the version's own training builds them."""
    if release is RELEASES[-1]:
        return build_host_datasets(config, tokenizer)
    from megatron.bridge.data.utils import get_dataset_provider

    return get_dataset_provider(config)([0, 0, 0], config, tokenizer)


def _rows(dataset: Any) -> list[dict[str, list[int]]]:
    return [{name: list(map(int, dataset[index][name])) for name in dataset[index]} for index in range(len(dataset))]


def _batches(dataset: Any) -> list[dict[str, Any]]:
    """Return the batch of each row, of all rows together, and of a row with the padding sample."""
    alone = [[index] for index in range(len(dataset))]
    indices = [*alone, list(range(len(dataset))), [0, -1]]
    return [_batch(dataset.collate_fn([dataset[index] for index in chosen])) for chosen in indices]


def _batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in batch.items()}


def _container(request: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return what a ConfigContainer holds, and what the version's own checks say of it."""
    from megatron.bridge.training.config import runtime_config_update

    values = plain_values(config)
    config.checkpoint.pretrained_checkpoint = request["folder"]
    config.model.apply_rope_fusion = False  # a kernel of TransformerEngine, whose absence the checks refuse
    refusal = None
    with mock.patch.dict(os.environ, WORLD_SIZE=str(request["world_size"])):
        try:
            runtime_config_update(config)
        except (AssertionError, ValueError, RuntimeError) as error:
            refusal = f"{type(error).__name__}: {error}"
    return {"values": values, "refusal": refusal}


def _own_packs(request: Mapping[str, Any]) -> list[list[int]] | None:
    """Return stored lengths, row by row, of what the version packs itself to the multiple; None from 0.6 on."""
    import numpy as np

    try:
        from megatron.bridge.data.datasets.packed_sequence import prepare_packed_sequence_data
    except ImportError:
        return None
    output = Path(request["folder"]) / "own.npy"
    prepare_packed_sequence_data(
        Path(request["raw"]),
        output,
        None,
        request["packed_sequence_size"],
        load_host_tokenizer(request["tokenizer"]),
        request["packed_sequence_size"],
        seed=1,
        dataset_kwargs={},
        pad_seq_to_mult=request["multiple"],
    )
    rows = np.load(output, allow_pickle=True)
    return [np.diff([*row["seq_start_id"], len(row["input_ids"])]).tolist() for row in rows]


def _named(value: Any) -> dict[str, Any]:
    return {"class": _name(type(value)), **plain_values(value)}


def _paths(specs: Any) -> dict[str, Any]:
    """Return the specs' values; a path, whatever its class, as text."""
    values = plain_values(specs)
    return {
        name: str(getattr(specs, name)) if name.endswith("_path") and value is not None else value
        for name, value in values.items()
    }


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _write_answer(folder: Path) -> None:
    os.environ["MEGATRON_CONFIG_LOCK_DIR"] = str(folder)
    install_import_hook()
    request = json.loads((folder / "request.json").read_text())
    sys.path.insert(0, request["overlay"])
    with chdir(request["folder"]), redirect_stdout(sys.stderr):
        content = answer(request)
    (folder / "answer.json").write_text(json.dumps(content, default=str))


def _main(*folders: str) -> None:
    logging.disable(logging.CRITICAL)
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()
    assert not any(name.partition(".")[0] == "megatron" for name in sys.modules)
    fork = multiprocessing.get_context("fork")
    for some in batched(folders, _NUM_PROCESSES):
        processes = [fork.Process(target=_write_answer, args=(Path(folder),)) for folder in some]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            sys.exit(f"an exit code is not 0: {processes}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
