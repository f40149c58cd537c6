"""The command `prove training`."""

import json
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, PathOption, quiet_option, set_option, shown_progress, trust_option
from bridgepack.cli.output import CLEAN, COULD_NOT_RUN, FINDINGS, echo
from bridgepack.reporting.results.canaries import canary_blocks
from bridgepack.reporting.screen import screen


@click.command()
@click.argument("target", shell_complete=complete_recipe)
@click.option("--artifact", type=PathOption(), help="Packs of the recipe (default: its own, else synthetic).")
@set_option
@trust_option
@click.option("--tensor", type=Count(), help="Compare one layout: tensor-parallel size (default: 1).")
@click.option("--pipeline", type=Count(), help="Compare one layout: pipeline stages (default: 1).")
@click.option("--context", type=Count(), help="Compare one layout: context-parallel size (default: 1).")
@click.option("--num-packs", type=Count(), help="Packs to compare (default: 4).")
@click.option("--max-tokens", type=Count(), help="Maximum tokens per pack; longer ones are cut (default: 1024).")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), help="(default: gpu if available with TransformerEngine)")
@click.option("--timeout-s", type=Count(), metavar="SECONDS", help="Timeout of one step (default: 300).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--output", "-o", type=PathOption("FILE"), help="Write the report to this file.")
@quiet_option
def training(target: str, **arguments: Any) -> int:
    """Compare one packed training step with an unpacked one.

    Trains packs of TARGET for one step, packed and unpacked; exits 1 when loss or gradients differ.

    TARGET is a recipe (FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION, a name from `recipes list`) or
    an artifact's folder; a folder wins over a recipe of the same name. The canary runs Megatron-Bridge's own training
    step on a tiny model of the recipe's family, on one rank and with tensor, pipeline and context parallelism, in
    processes on this machine.
    """
    output = arguments["output"]
    api.check_report_path(output, target, None)
    with shown_progress() as progress:
        report = api.prove.training(target, **_options(arguments), progress=progress)
    plain = json.dumps(report.to_dict(), indent=2, ensure_ascii=False, default=str) if arguments["as_json"] else None
    text = screen([*canary_blocks(report)]) if plain is None else plain
    with api.staged_report(output, f"{text}\n"):
        echo(text if output is None else f"report: {output}")
    return {"same": CLEAN, "differs": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


def _options(arguments: dict[str, Any]) -> dict[str, Any]:
    sizes = ("tensor", "pipeline", "context", "num_packs", "max_tokens")
    names = ("artifact", *sizes, "device", "timeout_s", "trust_remote_code")
    options = {name: arguments[name] for name in names if arguments[name] is not None}
    return {"overrides": api.parse_overrides(arguments["overrides"]), **options}
