"""The commands that look into artifacts: trace, diff."""

from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.options import Count, PathOption, PlaceOption, quiet_option, set_option, shown_progress
from bridgepack.cli.output import CLEAN, FINDINGS, echo, has_colour, print_json, tell_if_newer
from bridgepack.reporting.results.diffs import diff_blocks
from bridgepack.reporting.results.traces import pack_trace_blocks, source_trace_blocks, step_blocks
from bridgepack.reporting.screen import screen

_SPLITS = click.Choice(["training", "validation"])
#: Options of `trace` about the run.
_OF_THE_RUN = ("recipe", "world_size", "context", "resume_step", "bridge_version")


@click.command()
@click.argument("artifact", type=PlaceOption())
@click.option("--step", type=Count(), help="Training step, numbered as Megatron-Bridge logs it, from 1.")
@click.option("--rank", type=Count(minimum=0), help="Only the packs of this global rank, with their sequences.")
@click.option("--pack", type=Count(minimum=0), help="Only this pack, with its text; without --step: when it is read.")
@click.option("--source", metavar="FILE:ROW", help="Where this source row is packed and read, or why it was dropped.")
@click.option("--recipe", metavar="RECIPE", help="Recipe or config of the run (default: the artifact's).")
@set_option
@click.option("--world-size", type=Count(), help="GPUs of the run (default: the recipe's).")
@click.option("--context", type=Count(), help="Context-parallel size (default: the recipe's).")
@click.option("--split", type=_SPLITS, help="Split of the step or the pack (default: training).")
@click.option(
    "--resume-step", type=Count(minimum=0), default=0, help="Checkpoint step that the run resumes from (default: 0)."
)
@click.option("--bridge-version", metavar="VERSION", help="megatron-bridge version (default: the recipe's).")
@click.option("--limit", type=Count(), help="Maximum sequences of --pack (default: all), read times (default: 20).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def trace(is_whole_process: bool | None, /, artifact: Path | str, **arguments: Any) -> int:
    """Show what each rank reads at a step, or where a source row ended up.

    ARTIFACT is a folder or its URL in an object store. The output names the source rows and shows their text.
    """
    _check_question(arguments)
    tell_if_newer(arguments["bridge_version"])
    names = ("step", "rank", "pack", "source", "split", "limit", *_OF_THE_RUN)
    if is_whole_process and (arguments["pack"] is not None or arguments["source"] is not None):
        api.import_transformers()
    stated_arguments = {name: arguments[name] for name in names if arguments[name] is not None}
    result = api.trace(artifact, overrides=api.parse_overrides(arguments["overrides"]), **stated_arguments)
    print_json(result.to_dict()) if arguments["as_json"] else echo(_text(result, arguments))
    return CLEAN


def _check_question(arguments: dict[str, Any]) -> None:
    has_step, has_source, has_pack = (arguments[name] is not None for name in ("step", "source", "pack"))
    if not (has_step or has_source or has_pack):
        raise click.UsageError("one of --step N, --pack N and --source FILE:ROW is needed.")
    if has_source and (has_step or has_pack):
        option = "--step" if has_step else "--pack"
        raise click.UsageError(f"--source and {option} contradict each other; give one of them.")
    if has_source and arguments["split"] is not None:
        raise click.UsageError("--split needs --step or --pack; a source row is looked up in both splits.")
    if arguments["rank"] is not None and not has_step:
        raise click.UsageError("--rank needs --step: the packs of a rank depend on the step.")


def _text(result: Any, arguments: dict[str, Any]) -> str:
    if arguments["source"] is not None:
        return screen(source_trace_blocks(result), has_colour=has_colour())
    blocks = pack_trace_blocks if arguments["step"] is None else step_blocks
    return screen(blocks(result, limit=arguments["limit"]), has_colour=has_colour())


@click.command()
@click.argument("first", type=PlaceOption())
@click.argument("second", type=PlaceOption())
@click.option("--limit", type=Count(minimum=0), help="Maximum sequences shown per kind; all are counted (default: 5).")
@click.option("--html", type=PathOption("FILE"), help="Also write an HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
def diff(first: Path | str, second: Path | str, limit: int | None, html: Path | None, as_json: bool) -> int:
    """Compare two artifacts: sequences, masks, statistics, settings.

    Each is a folder or its URL in an object store. Shows added, removed and changed sequences with their text, and
    changed masks.

    Exits 1 when a run would read different packs from SECOND than from FIRST. Settings-only changes exit 0.
    """
    with shown_progress() as progress:
        report = api.diff(first, second, html=html, progress=progress, **({} if limit is None else {"limit": limit}))
    print_json(report.to_dict()) if as_json else echo(screen(diff_blocks(report)))
    return CLEAN if report.is_same else FINDINGS
