"""The `bridgepack` command: parses, calls one function, prints, returns an exit code."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from threading import Thread
from typing import Any

import click

from bridgepack import __version__
from bridgepack.cli_canary import canary
from bridgepack.cli_launch import launch
from bridgepack.cli_options import Count, PathOption, PlaceOption, num_cores
from bridgepack.cli_output import CLEAN, COULD_NOT_RUN, FINDINGS, echo, has_colour, print_json, silence
from bridgepack.cli_proof import diff, masks, trace, verify
from bridgepack.cli_recipes import recipes
from bridgepack.cli_signals import StopSignals
from bridgepack.cli_store import Options, build_options, repack, store
from bridgepack.data.workers.garbage import collect_rarely
from bridgepack.errors import BridgepackError
from bridgepack.report.text import printable


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bridgepack")
def bridgepack() -> None:
    """Build packed SFT datasets for NVIDIA Megatron-Bridge, check them, and look inside.

    Exit codes: 0 clean, 1 findings, 2 could not run.
    """


for _command in (recipes, repack, store, launch, trace, verify, diff, masks, canary):
    bridgepack.add_command(_command)


@bridgepack.command()
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
    from bridgepack.data.worker_process import TOKENISING, preload

    if is_checked and dry_run:
        raise click.UsageError("--check judges what --dry-run does not build; give one of them.")
    preload(TOKENISING)  # what workers need is imported while this process imports the rest
    from bridgepack.config.load import load_recipe, parse_overrides
    from bridgepack.data.build import planned_build
    from bridgepack.data.build_places import build_anywhere, local_part
    from bridgepack.report.progress import TerminalProgress
    from bridgepack.report.terminal import describe_build, describe_plan

    loaded, chosen = load_recipe(recipe, parse_overrides(overrides)), options()
    if dry_run:
        place = local_part(output)
        with (
            TerminalProgress() as progress,
            planned_build(loaded, output=place, progress=progress, options=chosen) as plan,
        ):
            print_json(plan.summary()) if as_json else echo(describe_plan(plan))
        return CLEAN
    if is_checked:  # what checking needs is imported while the workers load the tokenizer
        Thread(target=import_module, args=("bridgepack.checking.check",), daemon=True).start()
    with TerminalProgress() as progress:
        result = build_anywhere(loaded, output=output, progress=progress, options=chosen)
    if not is_checked:
        print_json(result.summary()) if as_json else echo(describe_build(result))
        return CLEAN
    if not as_json:
        echo(describe_build(result) + "\n")
    return _check_built(recipe, overrides, result, num_workers=chosen.num_workers, as_json=as_json)


def _check_built(recipe: str, overrides: tuple[str, ...], result: Any, *, num_workers: int, as_json: bool) -> int:
    """Judge what was built together with its recipe."""
    from bridgepack.checking.check import check_target
    from bridgepack.checking.options import CheckOptions
    from bridgepack.config.load import parse_overrides
    from bridgepack.report.checks import rendered
    from bridgepack.report.progress import TerminalProgress
    from bridgepack.rules.output import report_to_dict

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
        echo(rendered(report, "text", has_colour=has_colour(), shows_advice=False, shows_skipped=False).rstrip("\n"))
    return FINDINGS if report.fails(strict=False) else CLEAN


@bridgepack.command()
@click.argument("target")
@click.option("--artifact", type=PathOption(), help="Packs that the run will read.")
@click.option("--world-size", type=Count(), help="GPUs of the run [what the settings say].")
@click.option("--bridge-version", metavar="VERSION", help="Judge for this version of megatron-bridge [0.6.2].")
@click.option("--environment", metavar="here|FILE", help="Judge what is installed here, or as pip freeze lists it.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a setting first; repeatable.")
@click.option("--given", multiple=True, metavar="NAME=VALUE", help="Say what packs without a manifest do not.")
@click.option("--select", multiple=True, metavar="CODES", help="Run only these: BP101, BP1, a name; repeatable.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Do not run these; repeatable.")
@click.option("--fix", is_flag=True, help="Write the safe changes into the file, then check it.")
@click.option("--diff", is_flag=True, help="Print what --fix would write.")
@click.option("--strict", is_flag=True, help="Exit 1 on warnings, too.")
@click.option("--advice", is_flag=True, help="Show advice, too.")
@click.option("--skipped", is_flag=True, help="Name every rule that was skipped.")
@click.option("--no-files", is_flag=True, help="Do not look up the run's paths on this machine.")
@click.option("--workers", type=Count(), help="Most processes [the machine's cores].")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif", "github"]), help="[text]")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--output", type=PathOption(), help="Write the report, or the diff, to this file.")
def check(target: str, **arguments: Any) -> int:
    """Judge TARGET by every rule that applies; exit 1 when one of severity error is broken.

    TARGET is a recipe (FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION), a recipe of Megatron-Bridge
    (bridge:FUNCTION, megatron.bridge.recipes.qwen:FUNCTION) or any function or object that gives a ConfigContainer, a
    saved Megatron-Bridge config (FILE.yaml), or an artifact: a folder, a packed file, a pattern.
    """
    from bridgepack.checking.check import check_target
    from bridgepack.report.checks import check_report_path, rendered, staged_report
    from bridgepack.report.progress import TerminalProgress

    form = _form(arguments)
    check_report_path(arguments["output"], target, arguments["environment"])
    with TerminalProgress() as progress:
        options = _check_options(arguments, progress)
        if arguments["diff"] or arguments["fix"]:
            return _fix(target, options, arguments, form)
        report = check_target(target, options)
    text = rendered(report, form, has_colour=has_colour(arguments), **_shows(arguments))
    with staged_report(arguments["output"], text):
        pass
    if arguments["output"] is None:
        echo(text.rstrip("\n"))
    return FINDINGS if report.fails(strict=arguments["strict"]) else CLEAN


def _form(arguments: dict[str, Any]) -> str:
    """Return the form of the report; options that contradict each other are refused."""
    form = arguments["form"]
    if arguments["as_json"] and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} contradict each other; give one of them.")
    if arguments["fix"] and arguments["diff"]:
        raise click.UsageError("--fix and --diff contradict each other; --diff prints what --fix would write.")
    if arguments["diff"] and (arguments["as_json"] or form not in (None, "text")):
        raise click.UsageError("--diff prints a diff, which has no other format; remove --format and --json.")
    return "json" if arguments["as_json"] else form or "text"


def _fix(target: str, options: Any, arguments: dict[str, Any], form: str) -> int:
    """Print or write the changes, then the report of the changed settings."""
    from bridgepack.checking.fix import fixed, write_fix
    from bridgepack.report.checks import describe_diff, describe_fix, rendered, staged_report

    outcome, output = fixed(target, options), arguments["output"]
    has_failed = outcome.report.fails(strict=arguments["strict"])
    if arguments["diff"]:
        with staged_report(output, outcome.edit.diff() if outcome.edit else ""):
            pass
        if output is None and outcome.edit:
            echo(outcome.edit.diff().rstrip("\n"))
        click.echo(describe_diff(outcome), err=True, nl=False)
        return FINDINGS if outcome.edit or outcome.by_hand or has_failed else CLEAN
    text = rendered(outcome.report, form, has_colour=has_colour(arguments), **_shows(arguments))
    with staged_report(output, text):
        write_fix(outcome)
    echo(describe_fix(outcome), err=form != "text")
    if output is None:
        echo(text.rstrip("\n"))
    return FINDINGS if has_failed else CLEAN


def _check_options(arguments: dict[str, Any], progress: Any) -> Any:
    from bridgepack.checking.options import CheckOptions, named_environment, parse_given
    from bridgepack.config.load import parse_overrides

    return CheckOptions(
        artifact=arguments["artifact"],
        world_size=arguments["world_size"],
        bridge_version=arguments["bridge_version"],
        environment=named_environment(arguments["environment"]),
        overrides=parse_overrides(arguments["overrides"]),
        given=parse_given(arguments["given"]),
        select=_selectors(arguments["select"]),
        ignore=_selectors(arguments["ignore"]),
        looks_at_files=not arguments["no_files"],
        num_workers=arguments["workers"] or num_cores(),
        progress=progress,
    )


def _selectors(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the selectors of `BP1,BP201`; a text without any stays, for it is a mistake and not a wish for all."""
    return tuple(part for value in values for part in value.replace(",", " ").split() or [value])


def _shows(arguments: dict[str, Any]) -> dict[str, bool]:
    return {"shows_advice": arguments["advice"], "shows_skipped": arguments["skipped"]}


@bridgepack.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rules(as_json: bool) -> int:
    """List every rule of `check` by subject: code, severity, name."""
    from bridgepack.report.rule_texts import rule_to_dict, rules_table
    from bridgepack.rules.registry import ALL_RULES

    print_json([rule_to_dict(rule) for rule in ALL_RULES]) if as_json else echo(rules_table(ALL_RULES))
    return CLEAN


@bridgepack.command()
@click.argument("rule")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(rule: str, as_json: bool) -> int:
    """Explain RULE, a code or a name: why it matters, a bad and a good example, the fix, the evidence."""
    from bridgepack.report.rule_texts import describe_rule, named_rule, rule_to_dict

    found = named_rule(rule)
    print_json(rule_to_dict(found)) if as_json else echo(describe_rule(found))
    return CLEAN


@bridgepack.command()
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
    echo("\n".join(describe_manifest(manifest, artifact)))
    for record in manifest.splits:
        echo("\n" + "\n".join(describe_histogram(record)))
    return CLEAN


@bridgepack.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--bridge-version", required=True, metavar="VERSION", help="Version of megatron-bridge, 0.3 or newer.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder of the export.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be written; write nothing.")
def export(artifact: Path, bridge_version: str, output: Path, as_json: bool, dry_run: bool) -> int:
    """Write ARTIFACT in the form that a version of Megatron-Bridge reads; the rows stay what they are."""
    from bridgepack.data.export import export_artifact, plan_export
    from bridgepack.report.exports import describe_export
    from bridgepack.report.progress import TerminalProgress

    if dry_run:
        result = plan_export(artifact, output, bridge_version)
    else:
        with TerminalProgress() as progress:
            result = export_artifact(artifact, output, bridge_version, progress=progress)
    print_json(result.summary()) if as_json else echo(describe_export(result))
    return CLEAN


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code; a user's mistake is one message, never a traceback."""
    collect_rarely()
    stop = StopSignals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = bridgepack.main(args=arguments, prog_name="bridgepack", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = COULD_NOT_RUN
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" `{context.command_path} --help` lists what is allowed." if context else ""
        click.echo(f"error: {printable(error.format_message())}{hint}", err=True)
        code = COULD_NOT_RUN
    except BridgepackError as error:
        click.echo(f"error: {printable(str(error))}", err=True)
        code = COULD_NOT_RUN
    except OSError as error:
        place = f"{str(error.filename)!r}: " if error.filename else ""
        silence(sys.stdout)
        click.echo(f"error: {printable(place)}{error.strerror or error}. Check the path and its rights.", err=True)
        code = COULD_NOT_RUN
    except (KeyboardInterrupt, click.Abort) as error:
        what_is_kept = str(error.__cause__ or error) or "nothing was written"
        click.echo(f"interrupted; {printable(what_is_kept)}", err=True)
        code = stop.code
    sys.exit(code)


if __name__ == "__main__":
    main()
