"""The file of a release: its contents, made from the host that is imported, and their text."""

import json
from collections.abc import Mapping
from typing import Any

from scripts.facts.bases import host_bases
from scripts.facts.defaults import read_defaults
from scripts.facts.fields import host_fields

from bridgepack.bridge.shipped import installed_release
from bridgepack.config.installed import installed_root
from bridgepack.host.roots import CANONICAL
from tests.support.format_cases import compact


def content_of(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file of the imported host's release holds.

    Args:
        configs: module and name of a shipped recipe -> its ConfigContainer.
    """
    bases = _canonical(host_bases(configs))
    return {**bases, "fields": _canonical(host_fields(bases)), "defaults": read_defaults(installed_release())}


def _canonical(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content as JSON has it, whose classes have canonical names, whatever package the host is installed in."""
    values: dict[str, Any] = json.loads(json.dumps(content).replace(f'"{installed_root()}.', f'"{CANONICAL}.'))
    return values


def text_of(content: Mapping[str, Any]) -> str:
    """Return the text of the file."""
    return compact(content) + "\n"
