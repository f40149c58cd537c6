"""The commands that make artifacts: build, repack, export; and inspect, which looks into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridgepack.cli.options import Count, PathOption, PlaceOption, num_cores
from bridgepack.cli.output import CLEAN, FINDINGS, echo, has_colour, print_json
from bridgepack.data.workers.process import TOKENISING, preload
from bridgepack.report.progress import TerminalProgress

if TYPE_CHECKING:
    from bridgepack.data.results import BuildOptions, BuildResult

_STORE_HELP = "Folder of the token store [$BRIDGEPACK_STORE, or .bridgepack/tokens beside the artifact]."


#: Gives the options of a build, after what else may be wrong.
type Options = Callable[[], "BuildOptions"]


def build_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say how a build works; the command gets one `options`, a function that returns them."""

    @click.option("--workers", type=Count(), help="Most processes [the machine's cores].")
    @click.option("--memory", metavar="SIZE", help="Memory to use, e.g. 8G [three quarters of what is free].")
    @click.option("--store", type=PathOption(), help=_STORE_HELP)
    @click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="Where tasks run [local].")
    @click.option("--ray-address", metavar="HOST:PORT", help="Head of a Ray cluster [$RAY_ADDRESS, or Ray here].")
    @wraps(command)
    def with_options(
        workers: int | None,
        memory: str | None,
        store: Path | None,
        engine: str,
        ray_address: str | None,
        **arguments: Any,
    ) -> int:
        def options() -> BuildOptions:
            from bridgepack.data.results import build_options as options_of

            chosen = options_of(
                store=store,
                num_workers=workers,
                memory=memory,
                engine=engine,
                ray_address=ray_address,
                default_workers=num_cores(),
            )
            if chosen.ray is not None and chosen.ray.address is None:
                echo("no --ray-address: Ray is started on this machine and stopped at the end", err=True)
            return chosen

        return command(options=options, **arguments)

    return with_options


@click.command()
@click.argument("recipe")
@click.option(
    "--output",
    type=PlaceOption(),
    metavar="DIR|URL",
    help="Its folder [the recipe's artifact, or artifacts/NAME-FINGERPRINT].",
)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a recipe field; repeatable.")
@build_options
@click.option("--check", "is_checked", is_flag=True, help="Then judge recipe and artifact, as `check` does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
def build(
    recipe: str,
    output: Path | str | None,
    overrides: tuple[str, ...],
    options: Options,
    is_checked: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Build the packed artifact of RECIPE, or go on where a build of it was ended.

    RECIPE is FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION or a name that `recipes list` has. With
    a URL (s3://, gs://, az://, msc://) as output it is built in the default folder, and a copy is written there. With
    --check, it exits 1 when a rule of severity error is broken.
    """
    if is_checked and dry_run:
        raise click.UsageError("--check judges what --dry-run does not build; give one of them.")
    preload(TOKENISING, recipe, overrides)  # what workers need is loaded while this process imports what it needs
    from bridgepack.config.load import load_recipe, parse_overrides
    from bridgepack.data.build import build_artifact, planned_build
    from bridgepack.report.terminal import describe_build, describe_plan

    loaded, chosen = load_recipe(recipe, parse_overrides(overrides)), options()
    if dry_run:
        with (
            TerminalProgress() as progress,
            planned_build(loaded, output=output, progress=progress, options=chosen) as plan,
        ):
            print_json(plan.summary()) if as_json else echo(describe_plan(plan))
        return CLEAN
    with TerminalProgress() as progress:
        result = build_artifact(loaded, output=output, progress=progress, options=chosen)
    if not is_checked:
        print_json(result.summary()) if as_json else echo(describe_build(result))
        return CLEAN
    if not as_json:
        echo(describe_build(result) + "\n")
    return _check_built(recipe, overrides, result, num_workers=chosen.num_workers, as_json=as_json)


def _check_built(
    recipe: str, overrides: tuple[str, ...], result: BuildResult, *, num_workers: int, as_json: bool
) -> int:
    """Judge what was built together with its recipe."""
    from bridgepack.checking.check import check_target
    from bridgepack.checking.options import CheckOptions
    from bridgepack.config.load import parse_overrides
    from bridgepack.report.checks import rendered
    from bridgepack.rules.engine.text import report_to_dict

    with TerminalProgress() as progress:
        options = CheckOptions(
            artifact=result.output,
            overrides=parse_overrides(overrides),
            num_workers=max(num_workers, 1),
            progress=progress,
        )
        report = check_target(recipe, options)
    if as_json:
        print_json({**result.summary(), "check": report_to_dict(report)})
    else:
        echo(rendered(report, has_colour=has_colour()).rstrip("\n"))
    return FINDINGS if report.fails(strict=False) else CLEAN


@click.command()
@click.argument("artifact", type=PathOption())
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a recipe field; repeatable.")
@click.option("--output", type=PathOption(), help="Folder of the new artifact [NAME-FINGERPRINT beside the old].")
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
def repack(
    artifact: Path, overrides: tuple[str, ...], output: Path | None, options: Options, as_json: bool, dry_run: bool
) -> int:
    """Pack the sequences of ARTIFACT anew, with other sizes or for another topology.

    The tokens come from the token store; the inputs are not read and nothing is tokenised.
    """
    from bridgepack.config.load import parse_overrides
    from bridgepack.data.repack import plan_repack, repack_artifact
    from bridgepack.report.terminal import describe_build, describe_plan

    changes, chosen = parse_overrides(overrides), options()
    if dry_run:
        plan = plan_repack(artifact, changes, output=output)
        print_json(plan.summary()) if as_json else echo(describe_plan(plan, source=plan.source))
        return CLEAN
    with TerminalProgress() as progress:
        result = repack_artifact(artifact, changes, output=output, progress=progress, options=chosen)
    print_json(result.summary()) if as_json else echo(describe_build(result))
    return CLEAN


@click.command()
@click.argument("artifact", type=PathOption())
@click.option("--row", type=int, help="Draw this pack: 0-based row of the split.")
@click.option("--split", type=click.Choice(["training", "validation"]), default="training", show_default=True)
@click.option("--limit", type=Count(), help="Draw only the first sequences of the pack [all].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(artifact: Path, row: int | None, split: str, limit: int | None, as_json: bool) -> int:
    """Show what ARTIFACT holds: statistics and lengths, or one pack with its text and trained tokens."""
    from bridgepack.api import inspect as inspect_pack
    from bridgepack.data.artifact.manifest import read_manifest
    from bridgepack.report.terminal import describe_histogram, describe_manifest, draw_pack

    if row is not None:
        view = inspect_pack(artifact, row=row, split=split)
        print_json(asdict(view)) if as_json else echo(draw_pack(view, has_colour=has_colour(), limit=limit))
        return CLEAN
    manifest = read_manifest(artifact)
    if as_json:
        print_json(asdict(manifest))
        return CLEAN
    echo(describe_manifest(manifest, artifact))
    for record in manifest.splits:
        echo("\n" + "\n".join(describe_histogram(record)))
    return CLEAN


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--bridge-version", required=True, metavar="VERSION", help="Version of megatron-bridge, 0.3 or newer.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder of the export.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be written; write nothing.")
def export(artifact: Path, bridge_version: str, output: Path, as_json: bool, dry_run: bool) -> int:
    """Write ARTIFACT in the form that a version of Megatron-Bridge reads; the rows stay what they are."""
    from bridgepack.data.export import export_artifact, plan_export
    from bridgepack.report.exports import describe_export

    if dry_run:
        result = plan_export(artifact, output, bridge_version)
    else:
        with TerminalProgress() as progress:
            result = export_artifact(artifact, output, bridge_version, progress=progress)
    print_json(result.summary()) if as_json else echo(describe_export(result))
    return CLEAN
