"""The tasks of nemo-run's command line: `nemorun bridgepack build|check|train recipe=NAME recipe.FIELD=VALUE`."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import nemo_run as run

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import LaunchRefusedError
from bridgepack.launch.nemo_cli.context import RecipeContext, TrainContext, register_factories
from bridgepack.launch.preflight import OptionalNumber, OptionalText, PreflightPlugin, say, with_types

#: Name under which nemo-run lists the tasks; the same as the entry point in pyproject.toml.
NAMESPACE = "bridgepack"


def _task[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Register a task with nemo-run."""
    context = TrainContext if function.__name__ == "train" else RecipeContext
    registered: Callable[P, T] = run.cli.entrypoint(with_types(function), namespace=NAMESPACE, run_ctx_cls=context)
    return registered


@_task
def build(recipe: SFTRecipe, output: OptionalText = None, num_workers: int = 1, replace: bool = False) -> None:
    """Build the packed artifact of a recipe, or find the existing one.

    Args:
        recipe: the recipe.
        output: folder of the artifact; by default the recipe's, else `artifacts/NAME-FINGERPRINT`.
        num_workers: maximum worker processes.
        replace: overwrite an artifact with another fingerprint at the output.

    Raises:
        BridgepackError: as `bridgepack.build` does.
    """
    from bridgepack.api import build as build_artifact
    from bridgepack.report.terminal import describe_build

    say(describe_build(build_artifact(recipe, output=output, num_workers=num_workers, replace=replace), recipe))


@_task
def check(
    recipe: SFTRecipe,
    artifact: OptionalText = None,
    world_size: OptionalNumber = None,
    environment: OptionalText = None,
    strict: bool = False,
) -> None:
    """Check a recipe against every rule that applies.

    Args:
        recipe: the recipe.
        artifact: folder of the packs that the run will read.
        world_size: number of GPUs; by default the recipe's.
        environment: `here`, or a file that lists the packages where the run will be.
        strict: fail on warnings too.

    Raises:
        LaunchRefusedError: the check fails; the message lists the findings.
        BridgepackError: as `bridgepack.check` does.
    """
    from bridgepack.api import check as check_recipe
    from bridgepack.report.checks import rendered

    report = check_recipe(recipe, artifact=artifact, world_size=world_size, environment=environment)
    text = rendered(report).rstrip("\n")
    if report.fails(strict=strict):
        raise LaunchRefusedError(f"the check of {recipe.name} fails.\n\n{text}", report)
    say(text)


@_task
def train(recipe: SFTRecipe, artifact: OptionalText = None, folder: OptionalText = None) -> None:
    """Train a recipe on the GPUs of this process group, after a check with the real number of processes.

    Args:
        recipe: the recipe.
        artifact: folder of the packs; by default the recipe's own.
        folder: run folder for the recipe, facts and reports; by default `bridgepack-runs/NAME`.

    Raises:
        SystemExit: the training's exit code is not 0.
    """
    from bridgepack.config.write import recipe_to_yaml
    from bridgepack.running.train import main

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "recipe.yaml"
        file.write_text(recipe_to_yaml(recipe), encoding="utf-8")
        arguments = ["--recipe", str(file), "--run-folder", folder or f"bridgepack-runs/{recipe.name}"]
        code = main([*arguments, *(["--artifact", artifact] if artifact is not None else [])])
    if code:
        raise SystemExit(code)


def preflight() -> run.Config[PreflightPlugin]:
    """Return the plugin for `plugins=preflight`, for any task of nemo-run's command line."""
    return run.Config(PreflightPlugin)


register_factories()
run.cli.factory(preflight, target=run.Plugin, name="preflight")
