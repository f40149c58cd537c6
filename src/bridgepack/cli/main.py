"""The `bridgepack` command: finds the requested subcommand, runs it, returns an exit code."""

import sys
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from itertools import groupby

import click

from bridgepack import __version__, api
from bridgepack.cli.output import COULD_NOT_RUN, StopSignals, print_json, shown_notes, silence
from bridgepack.errors import BridgepackError, ConfigError, UnreachableError, forget_interrupt, unusable
from bridgepack.reporting.text import printable

#: Command -> its heading in the list of commands, its module in this package, and the first line of its help.
COMMANDS = {
    "new": ("Make", "recipes", "Write a commented recipe file to start from."),
    "preview": ("Make", "plan", "Show what a build would do with RECIPE's data, without writing anything."),
    "plan": ("Make", "plan", "Rank pack sizes and parallel topologies for RECIPE on N GPUs."),
    "recipes": ("Make", "recipes", "List the available recipes, show one; list layouts, print the schema."),
    "build": ("Make", "build", "Build the packed artifact of RECIPE, or resume an interrupted build."),
    "repack": ("Make", "artifacts", "Pack the sequences of ARTIFACT again, with other sizes."),
    "check": ("Check", "check", "Check TARGET against every rule that applies."),
    "explain": ("Check", "check", "Explain a rule, or list the rules about WORDS; alone: all of them."),
    "inspect": ("Check", "artifacts", "Show statistics of ARTIFACT, or one pack with its text."),
    "report": ("Check", "report", "Write a one-page HTML report of an artifact."),
    "prove": ("Prove", "prove", "Prove TARGET: its sources, its masks, what is served, what training computes."),
    "trace": ("Prove", "trace", "Show what each rank reads at a step, or where a source row ended up."),
    "diff": ("Prove", "trace", "Compare two artifacts: sequences, masks, statistics, settings."),
    "launch": ("Run", "launch", "Build, check, then train RECIPE on CLUSTER through nemo-run."),
    "losses": ("Run", "losses", "Show the loss of each source of RUN, and the rows far above their source."),
    "store": ("Run", "store", "List, prune or verify the token store."),
}
#: Commands that tools call; help does not list them.
_HIDDEN = {"hook": ("", "check", "")}
#: Beginning of an older command line -> the command of today.
FORMER = {
    "recipes new": "new",
    "rules": "explain",
    "verify": "prove sources",
    "masks": "prove masks",
    "canary": "prove training",
}


class _Commands(click.Group):
    """Commands whose modules are imported only when used; listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click gives it)
        """Return the names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click gives it)
        """Return the command of that name, or None."""
        commands = COMMANDS | _HIDDEN
        if cmd_name not in commands:
            return None
        command: click.Command = getattr(import_module(f"bridgepack.cli.{commands[cmd_name][1]}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command's name, the command and its arguments.

        Raises:
            click.UsageError: no such command; the message names the one of today, or the nearest.
        """
        if (today := _today(args)) is not None:
            raise click.UsageError(today)
        if args[0] in COMMANDS | _HIDDEN:
            return super().resolve_command(ctx, args)
        nearest = api.nearest_name(args[0], COMMANDS)
        hint = f" Did you mean {nearest!r}?" if nearest else ""
        raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click gives it)
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands under its headings."""
        width = max(map(len, COMMANDS))
        for title, names in groupby(COMMANDS, key=lambda name: COMMANDS[name][0]):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][2]) for name in names])


def _today(args: list[str]) -> str | None:
    """Return which command an older one is today; None for a command of today."""
    if args[0] == "masks" and "--served" in args:
        return "`bridgepack masks --served` is now `bridgepack prove served`."
    former = " ".join(args[:2]) if args[0] == "recipes" else args[0]
    return f"`bridgepack {former}` is now `bridgepack {FORMER[former]}`." if former in FORMER else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bridgepack")
def bridgepack() -> None:
    """Build, check and inspect packed SFT datasets for NVIDIA Megatron-Bridge.

    Exit codes: 0 clean, 1 findings, 2 could not run.

    \b
    Tab completion in bash (also zsh, fish), in ~/.bashrc:
    eval "$(_BRIDGEPACK_COMPLETE=bash_source bridgepack)"
    """  # noqa: D301 (click reads the character)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code; user mistakes print one message, never a traceback."""
    stop = StopSignals()
    try:
        stop.listen(ends_process=arguments is None)
        code = _run(arguments, stop)
    except KeyboardInterrupt:  # while an error was printed, which may be one that the same signal made
        code = stop.code
    if arguments is None:  # otherwise the caller's process continues
        stop.ignore()
        forget_interrupt()
    sys.exit(code)


def _run(arguments: list[str] | None, stop: StopSignals) -> int:
    """Run the command and return its exit code, after printing why it could not run or was interrupted."""
    api.collect_rarely()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with shown_notes():
            code: int = bridgepack.main(
                args=arguments, prog_name="bridgepack", standalone_mode=False, obj=arguments is None
            )
        if arguments is None:
            stop.ignore()
        return code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return COULD_NOT_RUN
    except (click.ClickException, BridgepackError, UnreachableError, OSError, MemoryError) as error:
        code = _report_failure(error, _message(error), arguments)
        if isinstance(error, OSError):
            silence(sys.stdout)
        return code
    except (KeyboardInterrupt, click.Abort) as error:
        if arguments is None:
            stop.ignore()
        what_is_kept = str(error.__cause__ or error) or "nothing was written"
        interrupt = KeyboardInterrupt(what_is_kept)  # click raises another kind for it
        return _report_failure(interrupt, f"interrupted; {what_is_kept}", arguments, code=stop.code, prefix="")


def _message(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        context, text = getattr(error, "ctx", None), error.format_message()
        stop = "" if text.endswith((".", "?", "?)")) else "."
        return text + stop + (f" `{context.command_path} --help` lists what is allowed." if context else "")
    if isinstance(error, BridgepackError) and error.problems:
        from bridgepack.reporting.formats import text_with_lines  # reports are slow to import

        return text_with_lines(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory. Free some, or look for a file that is far larger than it should be."
    return unusable(error) if isinstance(error, OSError) else str(error)


def _report_failure(
    error: BaseException,
    message: str,
    arguments: list[str] | None,
    *,
    code: int = COULD_NOT_RUN,
    prefix: str = "error: ",
) -> int:
    """Print why a command could not run or was interrupted; with --json also as JSON on standard output."""
    argv = sys.argv[1:] if arguments is None else arguments
    if "--json" in argv:
        from bridgepack.reporting.formats import failure_to_dict  # reports are slow to import

        with suppress(ConfigError):  # standard output cannot be written
            print_json(failure_to_dict(error, message, code))
    click.echo(f"{prefix}{printable(message)}", err=True)
    return code
