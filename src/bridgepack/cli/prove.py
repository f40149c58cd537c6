"""The proof commands: trace, verify, diff, masks."""

from pathlib import Path
from typing import Any

import click

from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, PathOption, PlaceOption, num_cores, overrides_option, set_option
from bridgepack.cli.output import CLEAN, COULD_NOT_RUN, FINDINGS, echo, has_colour, print_json, tell_if_newer
from bridgepack.config.load import parse_overrides
from bridgepack.data.reading.remote import artifact_place
from bridgepack.data.tokenizers.frameworks import import_transformers
from bridgepack.proof.diff.diff import DEFAULT_LIMIT as SHOWN_SEQUENCES
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.masks.masks import DEFAULT_LIMIT as SHOWN_FINDINGS
from bridgepack.proof.masks.masks import DEFAULT_SAMPLE as SAMPLED_ROWS
from bridgepack.proof.masks.masks import DEFAULT_SEED as SEED_OF_ROWS
from bridgepack.proof.masks.masks import MaskOptions, check_masks
from bridgepack.proof.packs import RunOptions, TracedRun, opened_artifact
from bridgepack.proof.trace.trace import parse_source, trace_pack, trace_source, trace_step
from bridgepack.proof.verify.verify import DEFAULT_SAMPLE as SAMPLED_PACKS
from bridgepack.proof.verify.verify import DEFAULT_SEED as SEED_OF_PACKS
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.reporting.checks import staged_report
from bridgepack.reporting.diffs import artifact_diff_page, describe_artifact_diff
from bridgepack.reporting.html.files import check_place
from bridgepack.reporting.progress import TerminalProgress
from bridgepack.reporting.proofs import (
    describe_masks,
    describe_pack,
    describe_source,
    describe_step,
    describe_verification,
)

_SPLITS = click.Choice(["training", "validation"])
_TIMES_SHOWN = 20


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
def trace(artifact: Path | str, **arguments: Any) -> int:
    """Show what each rank reads at a step, or where a source row ended up.

    ARTIFACT is a folder or its URL in an object store. The output names the source rows and shows their text.
    """
    _check_question(arguments)
    tell_if_newer(arguments["bridge_version"])
    run = TracedRun(opened_artifact(artifact_place(artifact)), _run_options(arguments))
    found, text = _traced(run, arguments)
    print_json(found.to_dict()) if arguments["as_json"] else echo(text())
    return CLEAN


def _check_question(arguments: dict[str, Any]) -> None:
    has_step, has_source, has_pack = (arguments[name] is not None for name in ("step", "source", "pack"))
    if not (has_step or has_source or has_pack):
        raise click.UsageError("one of --step N, --pack N and --source FILE:ROW is needed.")
    if has_source and (has_step or has_pack):
        other = "--step" if has_step else "--pack"
        raise click.UsageError(f"--source and {other} contradict each other; give one of them.")
    if has_source and arguments["split"] is not None:
        raise click.UsageError("--split needs --step or --pack; a source row is looked up in both splits.")
    if arguments["rank"] is not None and not has_step:
        raise click.UsageError("--rank needs --step: the packs of a rank depend on the step.")


def _run_options(arguments: dict[str, Any]) -> RunOptions:
    version = {"bridge_version": arguments["bridge_version"]} if arguments["bridge_version"] is not None else {}
    return RunOptions(
        recipe=arguments["recipe"],
        overrides=parse_overrides(arguments["overrides"]),
        world_size=arguments["world_size"],
        context=arguments["context"],
        resume_step=arguments["resume_step"],
        **version,
    )


def _traced(run: TracedRun, arguments: dict[str, Any]) -> tuple[Any, Any]:
    limit, split = arguments["limit"], arguments["split"] or "training"
    shown: dict[str, Any] = {"has_colour": has_colour()}
    if arguments["source"] is not None:
        source = trace_source(run, *parse_source(arguments["source"]), limit=limit or _TIMES_SHOWN)
        return source, lambda: describe_source(source, **shown)
    if arguments["step"] is None:
        pack = trace_pack(run, split, arguments["pack"], limit=limit or _TIMES_SHOWN)
        return pack, lambda: describe_pack(pack, limit=limit, **shown)
    step = trace_step(run, split, arguments["step"], rank=arguments["rank"], pack=arguments["pack"])
    return step, lambda: describe_step(step, limit=limit, **shown)


@click.command()
@click.argument("artifact", type=PlaceOption())
@click.option("--all", "is_all", is_flag=True, help="Rebuild everything and compare every byte.")
@click.option("--sample", type=Count(), help="Packs to rebuild; all shards are always hashed (default: 100).")
@click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0).")
@overrides_option("Set the current path of a source; repeatable.")
@click.option("--scratch", type=PathOption("FOLDER"), help="Folder for --all (default: the system's temporary folder).")
@click.option("--workers", type=Count(), help="Maximum worker processes for --all (default: CPU count).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(artifact: Path | str, **arguments: Any) -> int:
    """Rebuild packs of ARTIFACT and compare them with its own.

    ARTIFACT is a folder or its URL in an object store. The packs are rebuilt from its sources.
    Exits 1 when anything differs, and names the first difference and what changed: an input, the tokenizer, the chat
    template, a library, or the artifact itself. Exits 2 when sources are missing, and reports what could be compared
    without them.
    """
    _check_extent(arguments)
    with TerminalProgress() as progress:
        options = VerifyOptions(
            num_packs=None if arguments["is_all"] else arguments["sample"] or SAMPLED_PACKS,
            seed=SEED_OF_PACKS if arguments["seed"] is None else arguments["seed"],
            overrides=parse_overrides(arguments["overrides"]),
            num_workers=arguments["workers"] or num_cores(),
            scratch=arguments["scratch"],
            progress=progress,
        )
        report = verify_artifact(artifact_place(artifact), options)
    print_json(report.to_dict()) if arguments["as_json"] else echo(describe_verification(report))
    return {"same": CLEAN, "differs": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


def _check_extent(arguments: dict[str, Any]) -> None:
    for name in ("sample", "seed"):
        if arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"--all and --{name} contradict each other; give one of them.")
    for name in ("scratch", "workers"):
        if not arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"--{name} needs --all; a sample builds nothing.")


@click.command()
@click.argument("first", type=PlaceOption())
@click.argument("second", type=PlaceOption())
@click.option("--limit", type=Count(minimum=0), help="Maximum sequences shown per kind; all are counted (default: 5).")
@click.option("--html", type=PathOption("FILE"), help="Also write an HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(first: Path | str, second: Path | str, limit: int | None, html: Path | None, as_json: bool) -> int:
    """Compare two artifacts: sequences, masks, statistics, settings.

    Each is a folder or its URL in an object store. Shows added, removed and changed sequences with their text, and
    changed masks.

    Exits 1 when a run would read different packs from SECOND than from FIRST; different settings alone do not count.
    """
    places = artifact_place(first), artifact_place(second)
    for place in places:
        check_place("--html", html, place, suffix=".html")
    with TerminalProgress() as progress:
        report = diff_artifacts(*places, limit=SHOWN_SEQUENCES if limit is None else limit, progress=progress)
    with staged_report(html, artifact_diff_page(report) if html else "", option="--html"):
        pass
    print_json(report.to_dict()) if as_json else echo(describe_artifact_diff(report))
    return CLEAN if report.is_same else FINDINGS


@click.command()
@click.argument("target", shell_complete=complete_recipe)
@click.option("--all", "is_all", is_flag=True, help="Compare every row.")
@click.option("--sample", type=Count(), help="Rows to compare, over all files (default: 1000).")
@click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0).")
@click.option("--split", type=_SPLITS, help="Split to compare (default: both).")
@set_option
@click.option("--limit", type=Count(minimum=0), help="Maximum findings shown; all are counted (default: 10).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def masks(is_whole_process: bool | None, /, target: str, **arguments: Any) -> int:
    """Compare the loss masks of TARGET with independently derived ones.

    Exits 1 when any mask disagrees.

    TARGET is a recipe, as for `build`, or an artifact, whose own recipe is used; --set then only sets the paths of its
    sources. Masks of conversations are derived from the template's generation blocks, from renders of conversation
    prefixes, and from the text around turns. Exits 2 when no row could be compared.
    """
    for name in ("sample", "seed"):
        if arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"--all and --{name} contradict each other; give one of them.")
    if is_whole_process and Path(target).is_dir():
        import_transformers()  # first: a plain import of transformers loads the frameworks, which takes seconds
    with TerminalProgress() as progress:
        options = MaskOptions(
            num_rows=None if arguments["is_all"] else arguments["sample"] or SAMPLED_ROWS,
            seed=SEED_OF_ROWS if arguments["seed"] is None else arguments["seed"],
            split=arguments["split"],
            overrides=parse_overrides(arguments["overrides"]),
            limit=SHOWN_FINDINGS if arguments["limit"] is None else arguments["limit"],
            progress=progress,
        )
        report = check_masks(target, options)
    print_json(report.to_dict()) if arguments["as_json"] else echo(describe_masks(report))
    return {"agree": CLEAN, "disagree": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]
