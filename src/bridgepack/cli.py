"""The `bridgepack` command: parses, calls one function, prints, returns an exit code."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from bridgepack import __version__
from bridgepack.errors import BridgepackError
from bridgepack.report.text import printable

CLEAN, FINDINGS, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bridgepack")
def bridgepack() -> None:
    """Build packed SFT datasets for NVIDIA Megatron-Bridge, check them, and look inside.

    Exit codes: 0 clean, 1 findings, 2 could not run.
    """


@bridgepack.command()
@click.argument("recipe")
@click.option("--output", type=click.Path(path_type=Path), help="Folder of the artifact [artifacts/NAME-FINGERPRINT].")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a recipe field; repeatable.")
@click.option("--workers", type=click.IntRange(min=1), help="Most processes [the machine's cores].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
def build(
    recipe: str, output: Path | None, overrides: tuple[str, ...], workers: int | None, as_json: bool, dry_run: bool
) -> int:
    """Build the packed artifact of RECIPE: FILE.yaml, FILE.toml, FILE.py:FUNCTION or package.module:FUNCTION."""
    from bridgepack.config.loading import load_recipe, parse_overrides
    from bridgepack.data.build import build_artifact, planned_build
    from bridgepack.report.progress import TerminalProgress
    from bridgepack.report.terminal import describe_build, describe_plan

    loaded = load_recipe(recipe, parse_overrides(overrides))
    if dry_run:
        with TerminalProgress() as progress, planned_build(loaded, output=output, progress=progress) as plan:
            _print_json(plan.summary()) if as_json else _echo(describe_plan(plan))
        return CLEAN
    with TerminalProgress() as progress:
        result = build_artifact(loaded, output=output, num_workers=workers or _num_cores(), progress=progress)
    _print_json(result.summary()) if as_json else _echo(describe_build(result))
    return CLEAN


@bridgepack.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(artifact: Path, as_json: bool) -> int:
    """Judge every row of ARTIFACT, its manifest and its metadata; exit 1 when a rule of severity error is broken."""
    from bridgepack.api import check as check_artifact
    from bridgepack.rules.output import render_json, render_text

    report = check_artifact(artifact)
    _echo(render_json(report) if as_json else render_text(report, has_colour=_has_colour()))
    return FINDINGS if report.has_errors else CLEAN


@bridgepack.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--row", type=int, help="Draw this pack: 0-based row of the split.")
@click.option("--split", type=click.Choice(["training", "validation"]), default="training", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="Draw only the first sequences of the pack [all].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(artifact: Path, row: int | None, split: str, limit: int | None, as_json: bool) -> int:
    """Show what ARTIFACT holds: statistics and lengths, or one pack with its text and trained tokens."""
    from bridgepack.api import inspect as inspect_pack
    from bridgepack.data.manifest import read_manifest
    from bridgepack.report.terminal import describe_histogram, describe_manifest, draw_pack

    if row is not None:
        view = inspect_pack(artifact, row=row, split=split)
        _print_json(asdict(view)) if as_json else _echo(draw_pack(view, has_colour=_has_colour(), limit=limit))
        return CLEAN
    manifest = read_manifest(artifact)
    if as_json:
        _print_json(asdict(manifest))
        return CLEAN
    _echo("\n".join(describe_manifest(manifest, artifact)))
    for record in manifest.splits:
        _echo("\n" + "\n".join(describe_histogram(record)))
    return CLEAN


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code; a user's mistake is one message, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = bridgepack.main(args=arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = COULD_NOT_RUN
    except BridgepackError as error:
        click.echo(f"error: {printable(str(error))}", err=True)
        code = COULD_NOT_RUN
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; nothing was written", err=True)
        code = INTERRUPTED
    sys.exit(code)


def _echo(text: str) -> None:
    """Print; a reader that has gone away, as `head` does, is no error."""
    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_json(value: Any) -> None:
    _echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _has_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
