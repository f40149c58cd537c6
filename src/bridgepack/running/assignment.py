"""The assignment of a launched task, encoded as one argument that every executor passes on unchanged."""

import argparse
import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bridgepack.config.errors import shown
from bridgepack.config.load import load_recipe, parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import written_values
from bridgepack.errors import ConfigError
from bridgepack.running.folder import ARTIFACT_FILE, LAUNCH_FILE, RunFolder

#: Increased when older assignments could be misread.
FORMAT_VERSION = 1
#: Maximum length of one process argument on Linux.
#: Source: MAX_ARG_STRLEN in linux/binfmts.h, 32 pages.
MAX_ARGUMENT_BYTES = 131_071
#: Command-line option of a task for its assignment.
OPTION = "--assignment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """What a task of a launch works on."""

    recipe: SFTRecipe  #: with every override applied
    run_folder: RunFolder  #: folder of the run, as every task sees it
    artifacts: str | None = None  #: parent folder of a new artifact; None for `artifacts` in the working folder
    artifact: str | None = None  #: existing packs; None if the build task builds or finds them
    world_size: int | None = None  #: GPUs of the training; None for the recipe's
    judges_environment: bool = True  #: the check runs in the same environment as the training
    launch: Mapping[str, Any] = field(default_factory=dict)  #: facts of the launch, plain values for `launch.json`


def encode(assignment: Assignment) -> str:
    """Return an assignment as one word of letters, digits, `-`, `_` and `=`.

    nemo-run puts arguments into shell scripts, YAML, JSON and argument lists, and quotes them only in some, so spaces,
    quotes, `$` and line ends can get lost; these characters do not.

    Raises:
        ConfigError: the recipe holds values that are not plain, or is too long for an argument.
    """
    content = {
        **{field.name: getattr(assignment, field.name) for field in fields(assignment)},
        "format_version": FORMAT_VERSION,
        "recipe": written_values(assignment.recipe),
        "run_folder": str(assignment.run_folder.path),
        "launch": dict(assignment.launch),
    }
    text = json.dumps(content, separators=(",", ":"))
    word = base64.urlsafe_b64encode(zlib.compress(text.encode("ascii"), level=9)).decode("ascii")
    if len(word) > MAX_ARGUMENT_BYTES:
        raise ConfigError(
            f"recipe {assignment.recipe.name!r} takes {len(word):,} bytes as an argument of a task; allowed: "
            f"{MAX_ARGUMENT_BYTES:,}. Move long values, such as a chat template, into a file that the nodes see."
        )
    return word


def decode(word: str) -> Assignment:
    """Return the assignment encoded in a word.

    Raises:
        ConfigError: it is not an assignment, or one of another version of bridgepack.
    """
    try:
        content = json.loads(zlib.decompress(base64.b64decode(word, altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError, RecursionError, zlib.error):
        raise ConfigError(
            f"{OPTION} is {shown(word)}; allowed: the value that `bridgepack launch` writes. Launch the run again."
        ) from None
    found = content.pop("format_version", None) if isinstance(content, dict) else None
    if found != FORMAT_VERSION:
        raise ConfigError(
            f"{OPTION} has format version {found}; this bridgepack reads {FORMAT_VERSION}. Install the same version of "
            "bridgepack on the nodes and on the launching machine."
        )
    recipe, run_folder = SFTRecipe.from_mapping(content["recipe"]), RunFolder(content["run_folder"])
    return Assignment(**{**content, "recipe": recipe, "run_folder": run_folder})


def assignment_of(arguments: Sequence[str] | None, *, program: str, description: str) -> Assignment:
    """Return the assignment from a task's command line: one word, or a recipe and folders.

    Raises:
        ConfigError: the recipe or the word is invalid.
        SystemExit: 2 for unknown arguments, 0 for --help.
    """
    parser = argparse.ArgumentParser(prog=program, description=description, allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(OPTION, metavar="WORD", help="assignment written by `bridgepack launch`")
    source.add_argument("--recipe", help="FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION, or a name")
    parser.add_argument("--run-folder", metavar="FOLDER", help="folder of the run; required with --recipe")
    parser.add_argument("--artifacts-in", metavar="FOLDER", help="parent folder of a new artifact")
    parser.add_argument("--artifact", metavar="FOLDER", help="existing packs to use")
    parser.add_argument("--world-size", type=int, metavar="N", help="GPUs of the training")
    parser.add_argument(
        "overrides", nargs="*", metavar="PATH=VALUE", help="settings of Megatron-Bridge, as added by plugins"
    )
    found = parser.parse_args(arguments)
    if found.assignment is not None:
        if found.run_folder or found.artifacts_in or found.artifact or found.world_size:
            parser.error(f"{OPTION} must be the only argument; remove the others")
        told = decode(found.assignment)
    else:
        if not found.run_folder:
            parser.error("--recipe needs --run-folder FOLDER")
        told = Assignment(
            recipe=load_recipe(found.recipe),
            run_folder=RunFolder(found.run_folder),
            artifacts=found.artifacts_in,
            artifact=found.artifact,
            world_size=found.world_size,
        )
    # The plugins of megatron.bridge.recipes.run_plugins add these to a script.
    changes = parse_overrides(tuple(item.lstrip("+") for item in found.overrides), option="the argument")
    if not changes:
        return told
    recipe = told.recipe.override({f"bridge_overrides.{path}": value for path, value in changes.items()})
    return replace(told, recipe=recipe)


def record(assignment: Assignment) -> None:
    """Write the recipe and the facts of the launch into the run folder. Not safe for concurrent calls.

    Raises:
        ConfigError: the folder cannot be written.
    """
    assignment.run_folder.write_recipe(assignment.recipe)
    if assignment.launch:
        assignment.run_folder.write(LAUNCH_FILE, assignment.launch)


def artifact_of(assignment: Assignment) -> Path:
    """Return the folder of the packs that a run reads: the assigned one, the one built for it, or the recipe's.

    Raises:
        ConfigError: none of these exists.
    """
    built = assignment.run_folder.read_artifact()
    found = assignment.artifact or (built.path if built else None) or assignment.recipe.artifact
    if found is None:
        raise ConfigError(
            f"the run folder is {str(assignment.run_folder.path)!r}; no build has written {ARTIFACT_FILE} there, and "
            "neither --artifact nor the recipe's artifact is set. Read the log of the build task."
        )
    return Path(found)
