"""The `prove` commands: of a target, and of its parts sources, masks, served, training."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import (
    Count,
    PathOption,
    PlaceOption,
    num_cores,
    overrides_option,
    quiet_option,
    set_option,
    shown_progress,
    trust_option,
)
from bridgepack.cli.output import CLEAN, COULD_NOT_RUN, FINDINGS, echo, print_json
from bridgepack.cli.training import training
from bridgepack.reporting.blocks import Block
from bridgepack.reporting.results.masks import mask_blocks
from bridgepack.reporting.results.parts import proof_blocks
from bridgepack.reporting.results.served import served_blocks
from bridgepack.reporting.results.verifications import verification_blocks
from bridgepack.reporting.screen import screen

#: Name in help of the command that asks all parts.
_WHOLE = "TARGET"
_PARTS = ("sources", "masks", "served", "training")


class _Parts(click.Group):
    """The parts of a proof; any other first word is the target of all of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the name of the command for a target before them.

        Raises:
            click.UsageError: the first of two words is like the name of a part.
        """
        is_target = bool(args) and args[0] not in (*_PARTS, *self.get_help_option_names(ctx))
        are_two = is_target and len(args) > 1 and not any(word.startswith("-") for word in args[:2])
        if are_two and (nearest := api.nearest_name(args[0], _PARTS)):
            raise click.UsageError(f"No such part {args[0]!r}. Did you mean {nearest!r}?", ctx)
        return super().parse_args(ctx, [_WHOLE, *args] if is_target else args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click gives it)
        """Return the names in the order of help."""
        return [_WHOLE, *_PARTS]

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click gives it)
        """Return what stands behind the name in the usage."""
        return ["TARGET | PART TARGET", "[OPTIONS]"]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the parts, and recipes as targets."""
        parts = [CompletionItem(name) for name in _PARTS if name.startswith(incomplete)]
        argument = prove_all.params[0]
        assert isinstance(argument, click.Argument)
        return [*parts, *argument.shell_complete(ctx, incomplete)]


class _Whole(click.Command):
    """The command for a target; its name is no word of the command line."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click gives it)
        """Return what stands behind the name in the usage."""
        return ["[OPTIONS]"]


@click.group(cls=_Parts)
def prove() -> None:
    """Prove TARGET: its sources, its masks, what is served, what training computes.

    A part's name wins over a folder of that name, which is ./NAME.
    """


@prove.command(_WHOLE, cls=_Whole)
@click.argument("target", shell_complete=complete_recipe)
@click.option("--all", "is_all", is_flag=True, help="Rebuild every pack and compare every row.")
@click.option("--num-packs", type=Count(), help="Packs to rebuild (default: 100).")
@click.option("--num-rows", type=Count(), help="Rows whose masks and answers are compared (default: 1000).")
@click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0).")
@set_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
@quiet_option
def prove_all(is_whole_process: bool | None, /, target: str, **arguments: Any) -> int:
    """Ask all that can be asked of TARGET.

    TARGET is an artifact (a folder, or its URL in an object store) or a recipe, as for `build`. Sources, masks and what
    is served are asked; the table says why a part was not. Exits 1 if a part has findings, 2 if one could not run. For
    an artifact, --set only sets the paths of its sources and the section serving.
    """
    _check_extent(arguments, "num_packs", "num_rows")
    if target in _PARTS:
        raise click.UsageError(f"{target!r} is a part, which stands first; a folder of that name is ./{target}.")
    if is_whole_process:
        api.import_transformers()
    sizes = {name: arguments[name] for name in ("num_packs", "num_rows", "seed") if arguments[name] is not None}
    sizes |= {"num_packs": None, "num_rows": None, "num_workers": num_cores()} if arguments["is_all"] else {}
    with shown_progress() as progress:
        sizes["trust_remote_code"] = arguments["trust_remote_code"]
        proof = api.prove(target, overrides=api.parse_overrides(arguments["overrides"]), progress=progress, **sizes)
    if arguments["as_json"]:
        print_json(proof.to_dict())
    else:
        reports = [screen(_BLOCKS[name](part.report)) for name, part in proof.parts.items() if part.report is not None]
        echo("\n\n".join([*reports, screen(proof_blocks(proof))]))
    return {"passed": CLEAN, "findings": FINDINGS}.get(proof.outcome, COULD_NOT_RUN)


_BLOCKS: Mapping[str, Callable[[Any], Iterator[Block]]] = MappingProxyType(
    {"sources": verification_blocks, "masks": mask_blocks, "served": served_blocks}
)

prove.add_command(training)


@prove.command()
@click.argument("artifact", type=PlaceOption())
@click.option("--all", "is_all", is_flag=True, help="Rebuild everything and compare every byte.")
@click.option("--num-packs", type=Count(), help="Packs to rebuild; all shards are always hashed (default: 100).")
@click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0).")
@overrides_option("Set the current path of a source; repeatable.")
@trust_option
@click.option("--scratch", type=PathOption("FOLDER"), help="Folder for --all (default: the system's temporary folder).")
@click.option("--num-workers", type=Count(), help="Maximum worker processes for --all (default: CPU count).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
@quiet_option
def sources(is_whole_process: bool | None, /, artifact: Path | str, **arguments: Any) -> int:
    """Rebuild packs of ARTIFACT from its sources.

    ARTIFACT is a folder or its URL in an object store.
    Exits 1 when anything differs, and names the first difference and what changed: an input, the tokenizer, the chat
    template, a library, or the artifact itself. Exits 2 when sources are missing, and reports what could be compared
    without them.
    """
    _check_extent(arguments, "num_packs", only_with_all=("scratch", "num_workers"))
    if is_whole_process:
        api.import_transformers()
    with shown_progress() as progress:
        extent = {"num_packs": arguments["num_packs"], "seed": arguments["seed"]}
        report = api.prove.sources(
            artifact,
            overrides=api.parse_overrides(arguments["overrides"]),
            num_workers=arguments["num_workers"] or num_cores(),
            scratch=arguments["scratch"],
            trust_remote_code=arguments["trust_remote_code"],
            progress=progress,
            **_extent(extent, is_all=arguments["is_all"]),
        )
    print_json(report.to_dict()) if arguments["as_json"] else echo(screen(verification_blocks(report)))
    return {"same": CLEAN, "differs": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


def _check_extent(arguments: dict[str, Any], *sizes: str, only_with_all: tuple[str, ...] = ()) -> None:
    """Check that options of a sample and of all do not meet; `sizes` are the numbers of a sample."""
    for name in (*sizes, "seed"):
        if arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"--all and {_option(name)} contradict each other; give one of them.")
    for name in only_with_all:
        if not arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"{_option(name)} needs --all; a sample builds nothing.")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _extent(extent: dict[str, Any], *, is_all: bool) -> dict[str, Any]:
    """Return the options that were stated; None for the first, the number of packs or rows, is all of them."""
    first = next(iter(extent))
    return {name: value for name, value in extent.items() if value is not None or (is_all and name == first)}


_ROW_OPTIONS = (
    click.argument("target", shell_complete=complete_recipe),
    click.option("--all", "is_all", is_flag=True, help="Compare every row."),
    click.option("--num-rows", type=Count(), help="Rows to compare, over all files (default: 1000)."),
    click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0)."),
    click.option("--split", type=click.Choice(["training", "validation"]), help="Split to compare (default: both)."),
    set_option,
    trust_option,
    click.option("--limit", type=Count(minimum=0), help="Maximum findings shown; all are counted (default: 10)."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.pass_obj,
    quiet_option,
)


def _row_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the options of a proof that reads rows of sources added."""
    for option in reversed(_ROW_OPTIONS):
        command = option(command)
    return command


@prove.command()
@_row_options
def masks(is_whole_process: bool | None, /, target: str, **arguments: Any) -> int:
    """Compare the loss masks of TARGET with masks derived anew.

    Exits 1 when any mask disagrees.

    TARGET is a recipe, as for `build`, or an artifact, whose own recipe is used; --set then only sets the paths of its
    sources. Masks of conversations are derived from the template's generation blocks, from renders of conversation
    prefixes, and from the text around turns. Exits 2 when no row could be compared.
    """
    report = _of_rows(api.prove.masks, target, arguments, is_whole_process=is_whole_process)
    print_json(report.to_dict()) if arguments["as_json"] else echo(screen(mask_blocks(report)))
    return {"agree": CLEAN, "disagree": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


@prove.command("served")
@_row_options
def served_answers(is_whole_process: bool | None, /, target: str, **arguments: Any) -> int:
    """Compare trained answers with what is served.

    Each trained answer is compared with what a server sends before it and what the model must then write. Exits 1
    when any answer differs.

    TARGET is a recipe, as for `build`, or an artifact, whose own recipe is used; --set then only sets the paths of its
    sources and the recipe's serving section. Exits 2 when no row could be compared.
    """
    report = _of_rows(api.prove.served, target, arguments, is_whole_process=is_whole_process)
    print_json(report.to_dict()) if arguments["as_json"] else echo(screen(served_blocks(report)))
    return {"equal": CLEAN, "differs": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


def _of_rows(
    proof: Callable[..., Any], target: str, arguments: dict[str, Any], *, is_whole_process: bool | None
) -> Any:
    """Return the report of a proof that reads rows of sources."""
    _check_extent(arguments, "num_rows")
    if is_whole_process:
        api.import_transformers()
    with shown_progress() as progress:
        extent = {"num_rows": arguments["num_rows"], "limit": arguments["limit"], "seed": arguments["seed"]}
        return proof(
            target,
            split=arguments["split"],
            overrides=api.parse_overrides(arguments["overrides"]),
            trust_remote_code=arguments["trust_remote_code"],
            progress=progress,
            **_extent(extent, is_all=arguments["is_all"]),
        )
