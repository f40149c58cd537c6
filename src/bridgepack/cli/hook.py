"""The command behind the pre-commit hooks of `.pre-commit-hooks.yaml`: runs `check` on each file."""

import re
from pathlib import Path
from typing import Any

import click

from bridgepack.cli.check import check
from bridgepack.cli.output import CLEAN, COULD_NOT_RUN, echo
from bridgepack.errors import BridgepackError
from bridgepack.report.text import printable

#: Recipe sections at the start of a line; a file with two of them counts as a recipe, even a broken one.
_SECTION = re.compile(r"^\[*[\"']?(data|tokenizer|packing|preprocessing)\b", re.MULTILINE)
#: The line that identifies a saved config of Megatron-Bridge.
_SAVED = re.compile(r"^_target_: *['\"]?megatron\.bridge\.\S*ConfigContainer", re.MULTILINE)


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
        text = file.read_text(encoding="utf-8-sig")
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
