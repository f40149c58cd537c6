"""What the tasks of a launch share: the assignment, the folder of the run, and how they end.

```
RUN_FOLDER/
  recipe.yaml          the recipe, with every override applied
  launch.json          facts of the launch: git commit, cluster, overrides
  artifact.json        the artifact that the build task built or found: path, fingerprint
  run.json             facts of the last start of the training: packs, versions, settings
  records/NAME-001.json, ...   reports of checks and of the guard; numbered, never overwritten
```
"""

import argparse
import base64
import binascii
import json
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bridgepack.config.errors import quote
from bridgepack.config.load import load_recipe, parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml, written_values
from bridgepack.data.files import write_text
from bridgepack.errors import BridgepackError, ConfigError, forget_interrupt
from bridgepack.reporting.text import printable
from bridgepack.user_files import MAX_LARGE_BYTES, read_text

SUCCEEDED, FINDINGS, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130


def exit_code_of(step: Callable[[], int]) -> int:
    """Return the exit code of a task's step, or of the error, Ctrl-C or SIGTERM that ended it.

    Schedulers end a job with SIGTERM; it interrupts the step, so that no half-written files remain.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return step()
    except (BridgepackError, OSError) as error:
        say(f"error: {message_of(error)}")
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    finally:
        forget_interrupt()


def message_of(error: BridgepackError | OSError) -> str:
    """Return the message of a bridgepack or system error."""
    if isinstance(error, BridgepackError):
        return printable(str(error))
    place = f"{str(error.filename)!r}: " if error.filename else ""
    return printable(f"{place}{error.strerror or error}. Check the path and its permissions.")


def say(text: str) -> None:
    """Write lines into the log of the task."""
    sys.stdout.write(f"{text.rstrip()}\n")
    sys.stdout.flush()


def num_cores() -> int:
    """Return the number of CPU cores that the task may use."""
    return len(os.sched_getaffinity(0))


RECIPE_FILE = "recipe.yaml"
LAUNCH_FILE = "launch.json"
ARTIFACT_FILE = "artifact.json"
RUN_FILE = "run.json"
RECORDS_FOLDER = "records"


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactPlace:
    """Path and fingerprint of an artifact."""

    path: str  #: its folder, as every task sees it
    fingerprint: str  #: the manifest's fingerprint


class RunFolder:
    """A run's folder; it need not exist yet. Files are written atomically.

    Every method raises a ConfigError if the folder cannot be written or a file in it has the wrong content.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write_artifact(self, place: ArtifactPlace) -> Path:
        """Write the artifact's path and fingerprint; return the file."""
        return self.write(ARTIFACT_FILE, asdict(place))

    def read_artifact(self) -> ArtifactPlace | None:
        """Return the artifact's path and fingerprint; None if no task has written them."""
        content = self.read(ARTIFACT_FILE)
        if content is None:
            return None
        path, fingerprint = content.get("path"), content.get("fingerprint")
        if not isinstance(path, str) or not isinstance(fingerprint, str):
            raise ConfigError(
                f"{self.path / ARTIFACT_FILE} has no path and fingerprint. Run the build task again, or give "
                "--artifact."
            )
        return ArtifactPlace(path=path, fingerprint=fingerprint)

    def add_record(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a record under the next free number and return its file. Not safe for concurrent calls."""
        number = max((int(path.stem.rpartition("-")[2]) for path in self.records(name)), default=0) + 1
        return self.write(f"{RECORDS_FOLDER}/{name}-{number:03d}.json", content)

    def records(self, name: str) -> list[Path]:
        """Return the files of the records of one name, oldest first."""
        return sorted(
            path
            for path in (self.path / RECORDS_FOLDER).glob(f"{name}-*.json")
            if path.stem.removeprefix(f"{name}-").isdecimal()
        )

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write plain values to a file and return its path."""
        return self.write_text(name, json.dumps(dict(content), indent=2, ensure_ascii=False, default=str) + "\n")

    def write_text(self, name: str, text: str) -> Path:
        """Write a text to a file and return its path."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        except OSError as error:
            raise ConfigError(
                f"the run folder is {str(self.path)!r}; {name} cannot be written there: {error}. Set a writable folder."
            ) from None
        return path

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the plain values of a file; None if it does not exist."""
        path = self.path / name
        try:
            content = json.loads(read_text(path, max_bytes=MAX_LARGE_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}. Remove it, or launch the run again.") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{path} is not a JSON object. Remove it, or launch the run again.")
        return content


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
            f"{OPTION} is {quote(word)}; allowed: the value that `bridgepack launch` writes. Launch the run again."
        ) from None
    version = content.pop("format_version", None) if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{OPTION} has format version {version}; this bridgepack reads {FORMAT_VERSION}. Install the same version "
            "of bridgepack on the nodes and on the launching machine."
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
    options = parser.parse_args(arguments)
    if options.assignment is not None:
        if options.run_folder or options.artifacts_in or options.artifact or options.world_size:
            parser.error(f"{OPTION} must be the only argument; remove the others")
        assignment = decode(options.assignment)
    else:
        if not options.run_folder:
            parser.error("--recipe needs --run-folder FOLDER")
        assignment = Assignment(
            recipe=load_recipe(options.recipe),
            run_folder=RunFolder(options.run_folder),
            artifacts=options.artifacts_in,
            artifact=options.artifact,
            world_size=options.world_size,
        )
    # The plugins of megatron.bridge.recipes.run_plugins add these to a script.
    changes = parse_overrides(tuple(item.lstrip("+") for item in options.overrides), option="the argument")
    if not changes:
        return assignment
    recipe = assignment.recipe.override({f"bridge_overrides.{path}": value for path, value in changes.items()})
    return replace(assignment, recipe=recipe)


def record(assignment: Assignment) -> None:
    """Write the recipe and the facts of the launch into the run folder. Not safe for concurrent calls.

    Raises:
        ConfigError: the folder cannot be written.
    """
    assignment.run_folder.write_text(RECIPE_FILE, recipe_to_yaml(assignment.recipe))
    if assignment.launch:
        assignment.run_folder.write(LAUNCH_FILE, assignment.launch)


def artifact_of(assignment: Assignment) -> Path:
    """Return the folder of the packs that a run reads: the assigned one, the one built for it, or the recipe's.

    Raises:
        ConfigError: none of these exists.
    """
    artifact_record = assignment.run_folder.read_artifact()
    folder = assignment.artifact or (artifact_record.path if artifact_record else None) or assignment.recipe.artifact
    if folder is None:
        raise ConfigError(
            f"the run folder is {str(assignment.run_folder.path)!r}; no build has written {ARTIFACT_FILE} there, and "
            "neither --artifact nor the recipe's artifact is set. Read the log of the build task."
        )
    return Path(folder)
