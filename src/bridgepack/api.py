"""bridgepack from Python: one function for each command, and the configs of Megatron-Bridge."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.pack_for import PackedConfig
from bridgepack.bridge.adopting.pack_for import pack_for as pack_config
from bridgepack.bridge.shipped import load_shipped
from bridgepack.bridge.writing.write import forward_step_for as forward_step
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions, named_environment
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import PackView, view_pack
from bridgepack.data.build import build_artifact
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildResult, build_options
from bridgepack.data.store.store import store_folder
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError
from bridgepack.planning.preview import Preview, preview_recipe
from bridgepack.records import TRAIN
from bridgepack.report.html.files import WrittenReport
from bridgepack.report.html.files import write_report as write_files
from bridgepack.rules.engine.report import CheckReport

__all__ = [
    "build",
    "check",
    "forward_step_for",
    "inspect",
    "load_recipe",
    "pack_for",
    "preview",
    "repack",
    "to_bridge",
    "write_report",
]


def build(
    recipe: SFTRecipe | str | Path,
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
    """Build a packed artifact, or find that it is there already.

    Example: `bridgepack.build("recipes/mine.yaml", output="packed", overrides={"packing.seed": 7})`.

    Args:
        recipe: an SFTRecipe, or where one is: `FILE.yaml`, `FILE.toml`, `FILE.py:FUNCTION`, `package.module:FUNCTION`.
        output: folder of the artifact; by default the recipe's, else `artifacts/NAME-FINGERPRINT`. For a URL of an
            object store it is built in that folder, and a copy written to the URL.
        overrides: dotted path -> value.
        num_workers: most processes, by default 1; with 0 everything runs in this process. On Ray: most tasks at a
            time, by default as many as the cluster has CPUs. The bytes are the same for any number.
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        memory: what the build may use on a machine, e.g. `8G`; by default three quarters of what is free.
        engine: `local`, processes of this machine, or `ray`.
        ray_address: `HOST:PORT` of a Ray cluster's head; by default what RAY_ADDRESS says, else Ray is started here.
        replace: whether an artifact of another fingerprint at the output goes, once the new one is complete.
        progress: told how far it is.

    Raises:
        BridgepackError: ConfigError, TokenizerError, DataError, ArtifactError or StoreError, each saying what to do.
    """
    return build_artifact(
        load_recipe(recipe, overrides),
        output=output,
        progress=progress,
        options=build_options(
            store=None if store is None else store_folder(store),
            num_workers=num_workers,
            memory=memory,
            engine=engine,
            ray_address=ray_address,
            replace=replace,
        ),
    )


def preview(
    recipe: SFTRecipe | str | Path, *, num_rows: int = 5, overrides: Mapping[str, Any] | None = None
) -> Preview:
    """Return what a build would make of a recipe's data, by a sample of its rows; nothing is written.

    Example: `bridgepack.preview("recipes/mine.yaml").sources[0].tokens`.

    Args:
        recipe: an SFTRecipe, or where one is, as for `build`.
        num_rows: most sequences of a source that are returned with their text.
        overrides: dotted path -> value.

    Raises:
        BridgepackError: ConfigError, TokenizerError or DataError, each saying what to do.
    """
    if num_rows < 0:
        raise ConfigError(f"num_rows is {num_rows}; allowed: 0 or more. Raise it.")
    return preview_recipe(load_recipe(recipe, overrides), num_rows=num_rows)


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
    """Pack an artifact's sequences anew, with other sizes or for another topology; nothing is tokenised.

    Example: `bridgepack.repack("packed", {"packing.packed_sequence_size": 32768}, output="packed-32k")`.

    Args:
        artifact: folder whose sequences are packed anew.
        overrides: dotted path -> value.
        output: folder of the new artifact; by default `NAME-FINGERPRINT` beside the old one.
        num_workers: most processes.
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        memory: what it may use, e.g. `8G`.
        replace: as for `build`.
        progress: told how far it is.

    Raises:
        BridgepackError: ConfigError, DataError, ArtifactError or StoreError, each saying what to do.
    """
    return repack_artifact(
        Path(artifact),
        overrides,
        output=None if output is None else Path(output),
        progress=progress,
        options=build_options(
            store=None if store is None else store_folder(store),
            num_workers=num_workers,
            memory=memory,
            replace=replace,
        ),
    )


def check(target: Any, **options: Any) -> CheckReport:
    """Return what the rules say about a recipe, a ConfigContainer or an artifact.

    Example: `bridgepack.check("recipes/mine.yaml", artifact="packed", world_size=16).has_errors`.

    Args:
        target: an artifact's folder, or packed files of another tool; an SFTRecipe, a ConfigContainer, or where one
            is, as on the command line.
        options: fields of `bridgepack.checking.options.CheckOptions`: artifact, world_size, bridge_version, overrides,
            select, ignore, ... An artifact may be text, an environment `here` or a file; None is as if left out.

    Raises:
        ConfigError: the target or an option is nothing known.
        ArtifactError: the folder is no artifact.
        RuleCrashError: a rule raised.
    """
    unknown = sorted(options.keys() - {field.name for field in fields(CheckOptions)})
    if unknown:
        known = ", ".join(field.name for field in fields(CheckOptions))
        raise ConfigError(f"check has no option {unknown[0]!r}; allowed: {known}. Use one of these.")
    stated = {name: value for name, value in options.items() if value is not None}
    if isinstance(stated.get("artifact"), str):
        stated["artifact"] = Path(stated["artifact"])
    if isinstance(stated.get("environment"), (str, Path)):
        stated["environment"] = named_environment(stated["environment"])
    return check_target(target, CheckOptions(**stated))


def write_report(
    artifact: str | Path,
    *,
    output: str | Path | None = None,
    card: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> WrittenReport:
    """Write an artifact as one page of HTML, and return where it is and what the rules say.

    Example: `bridgepack.write_report("packed").files["output"]`.

    Args:
        artifact: its folder, or packed files of another tool.
        output: file of the page; by default `report.html` in the artifact.
        card: file of a dataset card; none is written by default.
        given: facts about packs without a manifest, e.g. `{"packed_sequence_size": 4096}`.

    Raises:
        BridgepackError: ConfigError or ArtifactError, each saying what to do; RuleCrashError where a rule raised.
    """
    return write_files(
        Path(artifact),
        CheckOptions(given=given or {}),
        output=None if output is None else Path(output),
        card=None if card is None else Path(card),
    )


def inspect(artifact: str | Path, *, row: int = 0, split: str = TRAIN) -> PackView:
    """Return one pack of an artifact, decoded.

    Example: `bridgepack.inspect("packed", row=3).sequences`.

    Args:
        artifact: its folder.
        row: 0-based position of the pack in the split; by default the first.
        split: `training` or `validation`.

    Raises:
        ArtifactError: when the folder is no artifact, or the split or the row does not exist.
    """
    return view_pack(Artifact(Path(artifact)), split, row)


def to_bridge(
    recipe: SFTRecipe | str | Path,
    *,
    artifact: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """Return the ConfigContainer of a recipe, ready for Megatron-Bridge's `finetune(config, forward_step)`.

    Example: `config = bridgepack.to_bridge("recipes/mine.yaml", artifact="packed")`.

    Args:
        recipe: an SFTRecipe, or where one is, as for `build`.
        artifact: folder of the packs; by default the recipe's own, else `artifacts/NAME`.
        overrides: dotted path -> value.

    Raises:
        ConfigError: the model cannot be loaded here, or a setting is nothing that the host has.
    """
    return load_recipe(recipe, overrides).to_bridge(artifact)


def pack_for(config: Any, artifact: str | Path | None = None, *, world_size: int | None = None) -> PackedConfig:
    """Return a corrected copy of a ConfigContainer that trains packed rows, with what was changed and why.

    Example: `config = bridgepack.pack_for(config, "packed").config`.

    Args:
        config: a ConfigContainer, or the name of a recipe of Megatron-Bridge, e.g. `bridge:qwen3_8b_sft_config`.
        artifact: folder of packs that the run will read.
        world_size: number of GPUs.

    Raises:
        ConfigError: the model takes no packed rows, or the data cannot be packed.
        ArtifactError: the folder is no artifact.
    """
    config = load_shipped(config, field="config") if isinstance(config, str) else config
    return pack_config(config, artifact, world_size)


def forward_step_for(target: Any) -> Any:
    """Return the forward step of Megatron-Bridge for a recipe or a ConfigContainer.

    Example: `finetune(config, bridgepack.forward_step_for(config))`.

    Raises:
        ConfigError: Megatron-Bridge or the recipe's model cannot be loaded here.
    """
    return forward_step(target)
