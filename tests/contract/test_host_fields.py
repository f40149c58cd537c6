"""The types of the host's classes on file are those of the installed host.

`BRIDGEPACK_REGENERATE=1 pytest tests/contract/test_host_fields.py` writes `fields of host/bases_v06.json` anew.
"""

import json
import os

import pytest

from tests.support.host_fields import FILE, host_fields, text_of, written

pytestmark = pytest.mark.bridge


def test_fields_on_file_are_current(host: None) -> None:
    file = json.loads(FILE.read_text(encoding="utf-8"))
    fields = json.loads(json.dumps(host_fields(file)))
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        FILE.write_text(text_of({**file, "fields": fields}), encoding="utf-8")

    assert written() == fields
    assert len(written()["types"]) > 70
