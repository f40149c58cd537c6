"""What is kept of the installed host's classes: read for the installed version alone, and from a whole file."""

import json
from pathlib import Path

import pytest
from packaging.version import Version

from bridgepack.bridge.validating import fields
from bridgepack.rules.judging.facts import InstalledFields
from tests.support.installed_host import host_version

pytestmark = pytest.mark.bridge

KIND = "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the kept file; nobody may ask the host anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fields, "_ask", lambda version, path: "asked")
    return fields.path_of_fields()


def test_another_version_than_the_installed_is_not_asked(kept: Path) -> None:
    reason = fields.installed_fields(Version("0.99"))

    assert isinstance(reason, str)
    assert host_version() in reason
    assert not kept.exists()


def test_a_kept_file_is_read_and_without_one_the_host_is_asked(kept: Path) -> None:
    version = Version(host_version())
    assert fields.installed_fields(version) == "asked"

    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({KIND: {"a_new_field": {"type": "int", "default": 1}}}))
    known = fields.installed_fields(version)
    assert isinstance(known, InstalledFields)
    assert (known.has(KIND, "a_new_field"), known.has(KIND, "other"), known.has("a.Class", "other")) == (
        True,
        False,
        None,
    )

    kept.write_text("{")
    assert str(kept) in str(fields.installed_fields(version))


def test_the_digest_follows_every_file(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "host" / "config.py"
    file.parent.mkdir()
    file.write_text("a = 1")
    monkeypatch.setattr(fields, "_places_of", lambda package: [str(file.parent)])
    before = fields.digest_of_host()
    assert fields.digest_of_host() == before

    file.write_text("a = 10")
    assert fields.digest_of_host() != before
    assert fields.path_of_fields() != kept
