"""The tasks of nemo-run's command line, one function each; the recipe is a name or a file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import nemo_run as run

from bridgepack.errors import BridgepackError, LaunchRefusedError
from bridgepack.launching.preflight import OptionalNumber, OptionalText, PreflightPlugin, say, with_types

#: Name under which nemo-run lists the tasks; the same as the entry point in pyproject.toml.
NAMESPACE = "bridgepack"
# nemo-run 0.11 parses `Optional[X]` on its command line, but not `X | None`.
OptionalFields = Optional[dict[str, Any]]  # noqa: UP045


@contextmanager
def _saying_lines() -> Iterator[None]:
    """Say the file and the line of an error on a field in its text, which is what nemo-run prints."""
    from bridgepack.reporting.formats import text_with_lines

    try:
        yield
    except BridgepackError as error:
        if error.problems:
            error.args = (text_with_lines(error),)
        raise


@run.cli.entrypoint(namespace=NAMESPACE)  # type: ignore[untyped-decorator]
@with_types
def build(
    recipe: str,
    overrides: OptionalFields = None,
    output: OptionalText = None,
    num_workers: int = 1,
    replace: bool = False,
) -> None:
    """Build the packed artifact of a recipe, or find the existing one.

    Args:
        recipe: a name of the catalogue, FILE.yaml or FILE.py:FUNCTION.
        overrides: path -> value, set in the recipe.
        output: folder of the artifact; by default the recipe's, else `artifacts/NAME-FINGERPRINT`.
        num_workers: maximum worker processes.
        replace: overwrite an artifact with another fingerprint at the output.

    Raises:
        BridgepackError: as `bridgepack.build` does.
    """
    from bridgepack.api import build as build_artifact
    from bridgepack.bridge.targets import recipe_target
    from bridgepack.reporting.results.builds import build_blocks
    from bridgepack.reporting.screen import screen

    with _saying_lines():
        target = recipe_target(recipe, overrides)
        artifact = build_artifact(target, output=output, num_workers=num_workers, replace=replace)
    say(screen(build_blocks(artifact, target.recipe)))


@run.cli.entrypoint(namespace=NAMESPACE)  # type: ignore[untyped-decorator]
@with_types
def check(
    recipe: str,
    overrides: OptionalFields = None,
    artifact: OptionalText = None,
    world_size: OptionalNumber = None,
    environment: OptionalText = None,
    strict: bool = False,
) -> None:
    """Check a recipe against every rule that applies.

    Args:
        recipe: a name of the catalogue, FILE.yaml or FILE.py:FUNCTION.
        overrides: path -> value, set in the recipe.
        artifact: folder of the packs that the run will read.
        world_size: number of GPUs; by default the recipe's.
        environment: `here`, or a file that lists the packages where the run will be.
        strict: fail on warnings too.

    Raises:
        LaunchRefusedError: the check fails; the message lists the findings.
        BridgepackError: as `bridgepack.check` does.
    """
    from bridgepack.api import check as check_recipe
    from bridgepack.bridge.targets import recipe_target
    from bridgepack.reporting.formats import render_report

    with _saying_lines():
        target = recipe_target(recipe, overrides)
        report = check_recipe(target, artifact=artifact, world_size=world_size, environment=environment)
    if report.fails(strict=strict):
        raise LaunchRefusedError(f"the check of {target.recipe.name if target.recipe else recipe} fails.", report)
    say(render_report(report).rstrip("\n"))


@run.cli.entrypoint(namespace=NAMESPACE)  # type: ignore[untyped-decorator]
@with_types
def train(
    recipe: str, overrides: OptionalFields = None, artifact: OptionalText = None, folder: OptionalText = None
) -> None:
    """Train a recipe on the GPUs of this process group, after a check with the real number of processes.

    Args:
        recipe: a name of the catalogue, FILE.yaml or FILE.py:FUNCTION.
        overrides: path -> value, set in the recipe.
        artifact: folder of the packs; by default the recipe's own.
        folder: run folder for the recipe, facts and reports; by default `bridgepack-runs/NAME`.

    Raises:
        SystemExit: the training's exit code is not 0.
    """
    from bridgepack.config.load import load_recipe
    from bridgepack.config.write import recipe_to_yaml
    from bridgepack.running.train import main

    with _saying_lines():
        sft_recipe = load_recipe(recipe, overrides)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "recipe.yaml"
        file.write_text(recipe_to_yaml(sft_recipe), encoding="utf-8")
        arguments = ["--recipe", str(file), "--run-folder", folder or f"bridgepack-runs/{sft_recipe.name}"]
        code = main([*arguments, *(["--artifact", artifact] if artifact is not None else [])])
    if code:
        raise SystemExit(code)


@run.cli.factory(target=run.Plugin, name="preflight")  # type: ignore[untyped-decorator]
def preflight() -> run.Config[PreflightPlugin]:
    """Return the plugin for `plugins=preflight`, for any task of nemo-run's command line."""
    return run.Config(PreflightPlugin)
