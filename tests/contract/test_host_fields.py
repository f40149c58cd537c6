"""The types of the host's classes, and their defaults that rules read, are on file as the installed host has them.

`scripts/host_facts src/bridgepack/host/bases_v06.json` writes the file of a release anew.
"""

import json
from typing import Any

import pytest
from scripts.facts.defaults import read_defaults
from scripts.facts.fields import host_fields

from bridgepack.bridge.shipped import installed_release

pytestmark = pytest.mark.bridge


@pytest.fixture
def on_file(host: None) -> Any:
    """Return what the file of the installed release holds."""
    return json.loads(installed_release().bases.read_text(encoding="utf-8"))


def test_fields_on_file_are_current(on_file: Any) -> None:
    assert on_file["fields"] == json.loads(json.dumps(host_fields(on_file)))
    assert len(on_file["fields"]["types"]) > 70


def test_defaults_on_file_are_current(on_file: Any) -> None:
    assert on_file["defaults"] == read_defaults(installed_release())
    assert on_file["defaults"]["PackedSequenceSpecs"]["pad_seq_to_mult"] == 1
