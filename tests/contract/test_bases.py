"""`bridge/bases.json` is what the installed megatron-bridge has; `BRIDGEPACK_REGENERATE=1` writes it anew."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpu_host import pretend_gpu_host
from tests.support.host_bases import FILE, host_bases, text_of
from tests.support.upstream_recipes import recipes_offline

pytestmark = pytest.mark.bridge


def test_the_file_is_current(upstream_configs: dict[str, Any], tmp_path: Path) -> None:
    with recipes_offline(tmp_path), pretend_gpu_host("h100"):
        text = text_of(host_bases(upstream_configs))
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        FILE.write_text(text, encoding="utf-8")
    found = json.loads(FILE.read_text(encoding="utf-8"))
    assert found == json.loads(text)
    assert len(found["recipes"]) == len(upstream_configs)
