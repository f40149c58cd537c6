"""Option types shared by several commands, and the options of commands that write artifacts."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bridgepack.cli.completion import complete_field
from bridgepack.records.words import is_whole_number
from bridgepack.reporting.progress import TerminalProgress

_QUIET = "bridgepack.quiet"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_MAX_DIGITS = 18  # of 64 bits
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE | re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class PathOption(click.Path):
    """A non-empty path (an unset shell variable gives an empty one); help shows its `name`."""

    def __init__(self, name: str = "ARTIFACT") -> None:
        super().__init__(path_type=Path)
        self.name = name

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path."""
        if value == "":
            self.fail("it is empty; give a path.", parameter, context)
        if value == "-":
            self.fail("'-' is no file; without --output a report goes to standard output.", parameter, context)
        if _URL.match(str(value)):
            self.fail(f"{value!r} is a URL; give a local path.", parameter, context)
        return super().convert(value, parameter, context)


class PlaceOption(PathOption):
    """A path, or an object-store URL, which stays text."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path or the URL."""
        return value if _URL.match(str(value)) else super().convert(value, parameter, context)


class Count(click.IntRange):
    """A whole number with a lower bound; digits only."""

    name = "N"

    def __init__(self, *, minimum: int = 1) -> None:
        super().__init__(min=minimum)
        self._minimum = minimum

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        """Return the number."""
        text = str(value)
        is_number = is_whole_number(text) and len(text) <= _MAX_DIGITS
        if not is_number or int(text) < self._minimum:
            self.fail(f"{value!r} is not a whole number of at least {self._minimum}.", parameter, context)
        return int(text)


class Age(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time span."""

    name = "AGE"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """Return the time span in seconds."""
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(
                f"{value!r} is not a time span; allowed: a number with s, m, h, d or w, e.g. 30d.", parameter, context
            )
        return float(match[1]) * _SECONDS[match[2].lower()]


def real_validate_option(default: str) -> Callable[[Any], Any]:
    """Return the option that lets the installed megatron-bridge judge a run, too; `default` is said in its help."""
    return click.option(
        "--real-validate/--no-real-validate",
        default=None,
        help=f"Let the installed megatron-bridge validate the run, too: 20 s, in a process of its own ({default}).",
    )


def _note_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001 (click's)
    context.meta[_QUIET] = value


#: Option of every command that shows progress.
quiet_option = click.option(
    "--quiet", "-q", is_flag=True, expose_value=False, callback=_note_quiet, help="Show no progress."
)


def shown_progress() -> TerminalProgress:
    """Return what shows the progress of the current command; nothing with --quiet."""
    context = click.get_current_context(silent=True)
    is_quiet = context is not None and context.meta.get(_QUIET, False)
    return TerminalProgress(is_enabled=False if is_quiet else None)


def num_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def overrides_option(meaning: str) -> Callable[[Any], Any]:
    """Return a decorator that adds `--set`, with its help text for the command."""
    return click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", shell_complete=complete_field, help=meaning
    )


trust_option = click.option(
    "--trust-remote-code",
    is_flag=True,
    help="Run Python code that comes with the tokenizer or model, where the recipe says that there is some.",
)
set_option = overrides_option("Override a recipe field; repeatable.")
_STORE_HELP = "Token store (default: $BRIDGEPACK_STORE, else .bridgepack/tokens beside the artifact)."
_BUILD_OPTIONS = (
    click.option("--num-workers", type=Count(), help="Maximum worker processes (default: CPU count)."),
    click.option("--memory", metavar="SIZE", help="Memory limit, e.g. 8G (default: 75% of free memory)."),
    click.option("--store", type=PathOption("FOLDER"), help=_STORE_HELP),
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where tasks run (default: local)."
    ),
    click.option("--ray-address", metavar="HOST:PORT", help="Ray head (default: $RAY_ADDRESS, else a local Ray)."),
    click.option("--replace", is_flag=True, help="Overwrite an artifact with another fingerprint at the output."),
)


def build_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the options of a build added; `chosen_options` reads their values."""
    for option in reversed(_BUILD_OPTIONS):
        command = option(command)
    return command
