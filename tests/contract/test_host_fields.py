"""The types of the host's classes on file are those of the installed host.

`BRIDGEPACK_REGENERATE=1 pytest tests/contract/test_host_fields.py` writes `host/fields.json` anew.
"""

import json
import os

import pytest

from tests.support import host_bases
from tests.support.host_fields import FILE, host_fields, text_of, written

pytestmark = pytest.mark.bridge


def test_fields_on_file_are_current(host: None) -> None:
    text = text_of(host_fields(json.loads(host_bases.FILE.read_text(encoding="utf-8"))))
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        FILE.write_text(text, encoding="utf-8")

    assert written() == json.loads(text)
    assert len(written()["types"]) > 70
