"""The `bridgepack launch` command."""

import time
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import quiet_option, real_validate_option, set_option, shown_progress
from bridgepack.cli.output import CLEAN, FINDINGS, echo, has_colour, print_json
from bridgepack.errors import LaunchRefusedError
from bridgepack.reporting.formats import render_report
from bridgepack.reporting.results.launches import dry_run_blocks, interrupt_blocks, launch_blocks, outline_blocks
from bridgepack.reporting.screen import screen


@click.command()
@click.argument("recipe", required=False, shell_complete=complete_recipe)
@click.option("--cluster", metavar="CLUSTER", help="FILE.yaml, FILE.toml, local or torchrun.")
@set_option
@click.option(
    "--cluster-set",
    "cluster_changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a cluster field; repeatable.",
)
@click.option("--artifact", metavar="ARTIFACT", help="Use these existing packs; nothing is built.")
@click.option("--skip", multiple=True, metavar="TASK", help="Skip a task: build, check or train; repeatable.")
@click.option("--environment", metavar="here|FILE", help="Packages on the nodes, as pip freeze lists them.")
@real_validate_option("default: yes, unless $BRIDGEPACK_REAL_VALIDATE is 0")
@click.option("--detach", is_flag=True, help="Return once everything is submitted.")
@click.option("--follow", is_flag=True, help="Stream the logs of the tasks.")
@click.option("--dry-run", is_flag=True, help="Print the tasks, the scripts and the check; submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
def launch(recipe: str | None, cluster: str | None, **arguments: Any) -> int:
    """Build, check, then train RECIPE on CLUSTER through nemo-run.

    The tasks form one nemo-run experiment. RECIPE is FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION or
    a name from `recipes list`. It is checked first; if the check finds an error, nothing is submitted. Logs and
    progress go to standard error.

    Exit codes: 0 every task succeeded, 1 the check found errors or a task failed, 2 could not run, 130 interrupted.
    """
    if recipe is None or cluster is None:
        missing = "RECIPE" if recipe is None else "--cluster CLUSTER"
        raise click.UsageError(f"{missing} is missing; e.g. bridgepack launch recipe.yaml --cluster local.")
    if arguments["dry_run"] and arguments["follow"]:
        raise click.UsageError("--dry-run and --follow contradict each other; a dry run has no logs.")
    if arguments["detach"] and arguments["follow"]:
        raise click.UsageError("--detach and --follow contradict each other; give one of them.")
    return _launch(recipe, cluster, arguments)


def _launch(recipe: str, cluster: str, arguments: dict[str, Any]) -> int:
    api.require_nemo_run()
    try:
        with shown_progress() as progress:
            plan = api.plan_launch(
                recipe,
                cluster,
                overrides=api.parse_overrides(arguments["overrides"]),
                cluster_overrides=api.parse_overrides(
                    arguments["cluster_changes"], option="--cluster-set", example="executor.nodes=4"
                ),
                environment=arguments["environment"],
                artifact=arguments["artifact"],
                skip=arguments["skip"],
                real_validate=arguments["real_validate"],
                progress=progress,
            )
    except LaunchRefusedError as refused:
        if arguments["as_json"]:
            print_json({"is_submitted": False, "check": refused.report.to_dict()})
        else:
            echo(render_report(refused.report, has_colour=has_colour()))
        click.echo("error: the check found errors; nothing was submitted", err=True)
        return FINDINGS
    if not arguments["dry_run"]:
        return _submit(plan, arguments)
    outcome = api.preview_launch(plan, detach=arguments["detach"])
    print_json(outcome.to_dict()) if arguments["as_json"] else echo(screen(dry_run_blocks(outcome)))
    return CLEAN


def _submit(plan: Any, arguments: dict[str, Any]) -> int:
    click.echo(screen(outline_blocks(plan.outline())), err=True)
    started_s = time.monotonic()

    def tell(task: str, state: str) -> None:
        click.echo(f"{time.monotonic() - started_s:6.1f} s  {task} {state}", err=True)

    try:
        result = api.submit_launch(plan, detach=arguments["detach"], follow=arguments["follow"], listener=tell)
    except api.LaunchInterrupt as interrupt:
        if arguments["as_json"]:
            print_json(interrupt.result.to_dict())
        click.echo(screen(interrupt_blocks(interrupt.result)), err=True)
        return interrupt.code
    print_json(result.to_dict()) if arguments["as_json"] else echo(screen(launch_blocks(result)))
    return FINDINGS if result.has_failed else CLEAN
