"""API functions that make artifacts and Megatron-Bridge configs, one per command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.pack_for import PackedConfig
from bridgepack.bridge.adopting.pack_for import pack_for as pack_config
from bridgepack.bridge.forward_steps import forward_step_for as forward_step_for
from bridgepack.bridge.shipped import load_shipped
from bridgepack.config.arguments import checked, local_path
from bridgepack.config.load import load_recipe as load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.build import build_artifact
from bridgepack.data.reading.kept_rows import recipe_with_rows
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildResult, build_options
from bridgepack.data.store.store import store_folder
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError
from bridgepack.planning.balance import balance_for, balance_of_repack
from bridgepack.planning.calibration import calibrated
from bridgepack.planning.layout import DEFAULT_GPU, gpu_named
from bridgepack.planning.lengths import lengths_of
from bridgepack.planning.plan import Plan, plan_recipe, shape_to_plan
from bridgepack.planning.preview import Preview, preview_recipe

#: A recipe, its fields, or its location.
Recipe = SFTRecipe | Mapping[str, Any] | str | Path


@checked
def build(
    recipe: Recipe,
    *,
    output: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    num_workers: int | None = None,
    store: str | Path | None = None,
    memory: str | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Build a packed artifact, or return the existing one with the same fingerprint.

    Example: `bridgepack.build("recipes/mine.yaml", output="packed", overrides={"packing.seed": 7})`.

    Args:
        recipe: an SFTRecipe, a dict of its fields, or its location. Data in a dict or in `overrides` may be a
            `datasets.Dataset`, a pandas DataFrame or a list of dicts: its rows are kept in the token store.
        output: folder of the artifact; by default the recipe's, else `artifacts/NAME-FINGERPRINT`. For an object-store
            URL, the artifact is built in that default folder and copied to the URL.
        overrides: dotted path -> value.
        num_workers: maximum worker processes (default 1) or Ray tasks (default: its CPUs); 0 uses only this process.
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        memory: memory limit per machine, e.g. `8G`; by default 75% of the free memory.
        engine: `local` (processes on this machine) or `ray`.
        ray_address: `HOST:PORT` of a Ray cluster; by default RAY_ADDRESS, else Ray is started on this machine.
        replace: overwrite an artifact with another fingerprint at the output, once the new one is complete.
        progress: receives progress updates.

    Raises:
        BridgepackError: the build failed; the message says what to do.
    """
    tokens = None if store is None else store_folder(store)
    loaded = recipe_with_rows(recipe, overrides, output=output, store=tokens)
    return build_artifact(
        loaded,
        output=output,
        balance=balance_for(loaded),
        progress=progress,
        options=build_options(
            store=tokens,
            num_workers=num_workers,
            memory=memory,
            engine=engine,
            ray_address=ray_address,
            replace=replace,
        ),
    )


@checked
def preview(recipe: Recipe, *, num_rows: int = 5, overrides: Mapping[str, Any] | None = None) -> Preview:
    """Return what a build would do with a recipe's data, based on a sample of its rows.

    Writes nothing, but keeps rows given in memory in the token store, as `build` does.

    Example: `bridgepack.preview("recipes/mine.yaml").sources[0].tokens`.

    Args:
        recipe: an SFTRecipe, its fields or its location, as for `build`.
        num_rows: maximum sequences per source to return with their text.
        overrides: dotted path -> value.

    Raises:
        BridgepackError: ConfigError, TokenizerError or DataError, each saying what to do.
    """
    return preview_recipe(recipe_with_rows(recipe, overrides), num_rows=num_rows)


@checked
def plan(
    recipe: Recipe,
    *,
    num_gpus: int,
    gpu: str = DEFAULT_GPU,
    model: str | None = None,
    artifact: str | Path | None = None,
    store: str | Path | None = None,
    log: str | Path | None = None,
    dynamic_context: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """Return valid pack sizes and topologies for a recipe on a number of GPUs, the fastest estimate first.

    Example: `bridgepack.plan("recipes/mine.yaml", num_gpus=64).best_recipe`.

    Args:
        recipe: an SFTRecipe, its fields or its location, as for `build`.
        num_gpus: number of GPUs.
        gpu: GPU type, e.g. `h100-80gb`.
        model: a model to plan for instead of the recipe's.
        artifact: packs to take sequence lengths from; by default a sample of the recipe's data is tokenised.
        store: token store with the recipe's rows, to take all sequence lengths from.
        log: training log of this recipe; its step times calibrate the estimate.
        dynamic_context: also ask the installed megatron-core how dynamic context parallelism would pack at run time.
        overrides: dotted path -> value.

    Raises:
        BridgepackError: ConfigError, TokenizerError, DataError, ArtifactError or StoreError, each saying what to do.
    """
    if artifact is not None and store is not None:
        raise ConfigError(
            f"artifact is {str(artifact)!r} and store is {str(store)!r}; allowed: only one, because each gives "
            "the lengths. Leave one out."
        )
    if num_gpus < 1:
        raise ConfigError(f"num_gpus is {num_gpus}; allowed: 1 or more. Raise it.")
    tokens = None if store is None else store_folder(store)
    rows_store = tokens if tokens is not None and tokens.is_dir() else None
    loaded, machine = recipe_with_rows(recipe, overrides, store=rows_store), gpu_named(gpu)
    if model is not None:
        loaded = loaded.override({"model.name": model})
    shape_to_plan(loaded)  # fails before rows are read
    lengths = lengths_of(
        loaded,
        artifact=None if artifact is None else local_path(artifact, "artifact"),
        store=tokens,
    )
    speed = None if log is None else calibrated(local_path(log, "log"), loaded, lengths, machine)
    return plan_recipe(
        loaded, lengths, gpu=machine, num_gpus=num_gpus, speed=speed, has_dynamic_context=dynamic_context
    )


@checked
def repack(
    artifact: str | Path,
    overrides: Mapping[str, Any],
    *,
    output: str | Path | None = None,
    num_workers: int = 1,
    store: str | Path | None = None,
    memory: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Pack an artifact's sequences again, with other sizes or for another topology, without tokenising.

    Example: `bridgepack.repack("packed", {"packing.packed_sequence_size": 32768}, output="packed-32k")`.

    Args:
        artifact: folder whose sequences are packed again.
        overrides: dotted path -> value.
        output: folder of the new artifact; by default `NAME-FINGERPRINT` beside the old one.
        num_workers: maximum worker processes.
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        memory: memory limit, e.g. `8G`.
        replace: as for `build`.
        progress: receives progress updates.

    Raises:
        BridgepackError: ConfigError, DataError, ArtifactError or StoreError, each saying what to do.
    """
    folder = local_path(artifact, "artifact")
    return repack_artifact(
        folder,
        overrides,
        output=None if output is None else local_path(output, "output"),
        balance=balance_of_repack(folder, overrides),
        progress=progress,
        options=build_options(
            store=None if store is None else store_folder(store),
            num_workers=num_workers,
            memory=memory,
            replace=replace,
        ),
    )


@checked
def to_bridge(recipe: Recipe, *, artifact: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Any:
    """Return the ConfigContainer of a recipe, ready for Megatron-Bridge's `finetune(config, forward_step)`.

    Example: `config = bridgepack.to_bridge("recipes/mine.yaml", artifact="packed")`.

    Args:
        recipe: an SFTRecipe or its location, as for `build`.
        artifact: folder of the packs; by default the recipe's own, else `artifacts/NAME`.
        overrides: dotted path -> value.

    Raises:
        ConfigError: the model cannot be loaded here, or Megatron-Bridge has no such setting.
    """
    return load_recipe(recipe, overrides).to_bridge(artifact)


@checked
def pack_for(config: Any, artifact: str | Path | None = None, *, world_size: int | None = None) -> PackedConfig:
    """Return a copy of a ConfigContainer corrected to train packed rows, with the changes and their reasons.

    Example: `config = bridgepack.pack_for(config, "packed").config`.

    Args:
        config: a ConfigContainer, or the name of a recipe of Megatron-Bridge, e.g. `bridge:qwen3_8b_sft_config`.
        artifact: folder of packs that the run will read.
        world_size: number of GPUs.

    Raises:
        ConfigError: the model does not support packed rows, or the data cannot be packed.
        ArtifactError: the folder is not an artifact.
    """
    config = load_shipped(config, field="config") if isinstance(config, str) else config
    return pack_config(config, artifact, world_size)
