"""The commands on rules: check, explain, and the hidden `hook` behind .pre-commit-hooks.yaml."""

import re
from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe, complete_rule
from bridgepack.cli.options import (
    Count,
    PathOption,
    PlaceOption,
    num_cores,
    overrides_option,
    quiet_option,
    real_validate_option,
    shown_progress,
    trust_option,
)
from bridgepack.cli.output import CLEAN, COULD_NOT_RUN, FINDINGS, echo, has_colour, print_json
from bridgepack.errors import BridgepackError
from bridgepack.reporting.formats import render_report, rendered_failure
from bridgepack.reporting.results.checks import diff_blocks, fix_blocks
from bridgepack.reporting.results.rules import rule_blocks, rules_blocks
from bridgepack.reporting.screen import screen
from bridgepack.reporting.text import printable
from bridgepack.user_files import read_text


@click.command()
@click.argument("target", shell_complete=complete_recipe)
@click.option("--artifact", type=PlaceOption(), help="Packs that the run will read: a path or a URL.")
@click.option("--world-size", type=Count(), help="GPUs of the run (default: from the settings).")
@click.option(
    "--bridge-version",
    metavar="VERSION",
    help="Check for this megatron-bridge version (default: the recipe's, else the installed one, else 0.6.2).",
)
@click.option("--environment", metavar="here|FILE", help="Check the installed packages, or a pip freeze FILE.")
@overrides_option("Override a setting; repeatable.")
@click.option(
    "--given",
    multiple=True,
    metavar="NAME=VALUE",
    help="State what packs of other tools do not record, e.g. eos_token_id=151645; repeatable.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="CODE",
    shell_complete=complete_rule,
    help="Run only these rules: BP101, BP1, or a name; repeatable.",
)
@click.option(
    "--ignore", multiple=True, metavar="CODE", shell_complete=complete_rule, help="Skip these rules; repeatable."
)
@click.option("--fix", is_flag=True, help="Write the safe fixes into the file, then check it.")
@click.option("--diff", is_flag=True, help="Print the changes that --fix would write.")
@click.option("--strict", is_flag=True, help="Exit 1 on warnings, too.")
@click.option("--advice", is_flag=True, help="Show advice, too.")
@click.option("--skipped", is_flag=True, help="List every skipped rule.")
@real_validate_option("default: no")
@click.option(
    "--trust-config",
    multiple=True,
    metavar="MODULE",
    help="A saved config may name classes and functions of this module, too, with --real-validate; repeatable.",
)
@trust_option
@click.option("--no-files", is_flag=True, help="Do not check that the run's paths exist on this machine.")
@click.option("--num-workers", type=Count(), help="Maximum worker processes (default: CPU count).")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "sarif", "github", "gitlab"]),
    help="(default: text)",
)
@click.option("--verbose", "-v", is_flag=True, help="Same as --advice --skipped.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--output", "-o", type=PathOption("FILE"), help="Write the report, or the diff, to this file.")
@quiet_option
def check(target: str, **arguments: Any) -> int:
    """Check TARGET against every rule that applies.

    Exits 1 when it finds an error, with --strict also on a warning.

    TARGET is a recipe (FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION), a recipe of Megatron-Bridge
    (bridge:FUNCTION, megatron.bridge.recipes.qwen:FUNCTION) or any function or object that returns a ConfigContainer, a
    saved Megatron-Bridge config (FILE.yaml), or an artifact: a folder, a packed file, a glob, a URL. A folder wins over
    a recipe of the same name.
    """
    output_format, output = _form(arguments), arguments["output"]
    api.check_report_path(output, target, arguments["environment"])
    try:
        return _check(target, arguments, output_format)
    except BridgepackError as error:
        if output_format == "text" or arguments["diff"]:
            raise
        text = rendered_failure(error, output_format, target)
        with api.staged_report(output, text):
            pass
        if output is None:
            echo(text.rstrip("\n"))
        echo(f"error: {printable(str(error))}", err=True)
        return COULD_NOT_RUN


def _check(target: str, arguments: dict[str, Any], output_format: str) -> int:
    with shown_progress() as progress:
        options = {**_options(arguments), "progress": progress}
        if arguments["diff"] or arguments["fix"]:
            return _fix(api.fix(target, **options), arguments, output_format)
        report = api.check(target, **options)
    text = _text(report, output_format, arguments)
    if report.note and output_format not in ("text", "json"):
        echo(report.note, err=True)
    with api.staged_report(arguments["output"], text):
        pass
    if arguments["output"] is None:
        echo(text.rstrip("\n"))
    for rule in report.unjudged:
        echo(f"--select {rule.code}: {rule.name} could not run: {rule.reason}.", err=True)
    if report.unjudged:
        return COULD_NOT_RUN
    return FINDINGS if report.fails(strict=arguments["strict"]) else CLEAN


def _form(arguments: dict[str, Any]) -> str:
    output_format = arguments["output_format"]
    if arguments["as_json"] and output_format not in (None, "json"):
        raise click.UsageError(f"--json and --format {output_format} contradict each other; give one of them.")
    if arguments["fix"] and arguments["diff"]:
        raise click.UsageError("--fix and --diff contradict each other; --diff prints what --fix would write.")
    if arguments["diff"] and (arguments["as_json"] or output_format not in (None, "text")):
        raise click.UsageError("--diff prints a diff, which has no other format; remove --format and --json.")
    verbose = arguments.pop("verbose", False)
    arguments.update(advice=arguments["advice"] or verbose, skipped=arguments["skipped"] or verbose)
    for name in ("advice", "skipped"):
        if arguments["diff"] and arguments[name]:
            raise click.UsageError(f"--diff prints a diff and no report; remove --{name}.")
    return "json" if arguments["as_json"] else output_format or "text"


def _fix(outcome: Any, arguments: dict[str, Any], output_format: str) -> int:
    output = arguments["output"]
    has_failed = outcome.report.fails(strict=arguments["strict"])
    if arguments["diff"]:
        with api.staged_report(output, outcome.diff):
            pass
        if output is None and outcome.edit:
            echo(outcome.diff.rstrip("\n"))
        if text := screen([*diff_blocks(outcome)]):
            echo(text, err=True)
        return FINDINGS if outcome.edit or outcome.by_hand or has_failed else CLEAN
    text = _text(outcome.report, output_format, arguments)
    with api.staged_report(output, text):
        outcome.write()
    echo(screen([*fix_blocks(outcome)]) + "\n", err=output_format != "text")
    if output is None:
        echo(text.rstrip("\n"))
    return FINDINGS if has_failed else CLEAN


def _options(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: arguments[name] for name in ("artifact", "world_size", "bridge_version", "environment")},
        "overrides": api.parse_overrides(arguments["overrides"]),
        "given": api.parse_given(arguments["given"]),
        "select": _selectors(arguments["select"]),
        "ignore": _selectors(arguments["ignore"]),
        "looks_at_files": not arguments["no_files"],
        "real_validate": bool(arguments["real_validate"]),
        "trust_config": arguments["trust_config"],
        "trust_remote_code": arguments["trust_remote_code"],
        "num_workers": arguments["num_workers"] or num_cores(),
    }


def _selectors(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the selectors of `BP1,BP201`; a value without any stays: it is a mistake, not a request for all."""
    return tuple(part for value in values for part in value.replace(",", " ").split() or [value])


def _text(report: Any, output_format: str, arguments: dict[str, Any]) -> str:
    has_colours = arguments["output"] is None and has_colour()
    shows = {"shows_advice": arguments["advice"], "shows_skipped": arguments["skipped"]}
    return render_report(report, output_format, has_colour=has_colours, **shows)


@click.command()
@click.argument("words", nargs=-1, shell_complete=complete_rule)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(words: tuple[str, ...], as_json: bool) -> int:
    """Explain a rule, or list the rules about WORDS; alone: all of them.

    A code or a name explains its rule: why it matters, a bad and a good setting, the fix, the evidence. The prefix of a
    code, e.g. BP1, lists the rules of that group; other words, e.g. padding, list the rules whose texts have all of
    them.
    """
    rules = api.explain(*[" ".join(words)] if words else [])
    if as_json:
        print_json(rules)
    else:
        echo(screen(rules_blocks(rules) if isinstance(rules, list) else rule_blocks(rules)))
    return CLEAN


#: Recipe sections at the start of a line; a file with two of them counts as a recipe, even a broken one.
_SECTION = re.compile(r"^\[*[\"']?(data|tokenizer|packing|preprocessing)\b", re.MULTILINE)
#: The line that identifies a saved config of Megatron-Bridge.
_SAVED = re.compile(r"^_target_: *['\"]?[\w.]+\.ConfigContainer", re.MULTILINE)


def _hook(targets: tuple[Path, ...], **arguments: Any) -> int:
    """Run `check` on each file that is a recipe or a saved config; other YAML and TOML files are skipped.

    Exit codes: as for `check`, the highest of all files.
    """
    codes = [CLEAN]
    for target in filter(_is_meant, targets):
        try:
            assert check.callback is not None
            codes.append(check.callback(target=str(target), **arguments))
        except BridgepackError as error:
            echo(f"error: {target}: {printable(str(error))}", err=True)
            codes.append(COULD_NOT_RUN)
    return max(codes)


def _is_meant(file: Path) -> bool:
    try:
        text = read_text(file, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return len(set(_SECTION.findall(text))) > 1 or _SAVED.search(text) is not None


hook = click.Command(
    "hook",
    callback=_hook,
    help=_hook.__doc__,
    hidden=True,
    params=[
        click.Argument(["targets"], nargs=-1, type=click.Path(path_type=Path)),
        *(parameter for parameter in check.params if parameter.name != "target"),
    ],
)
