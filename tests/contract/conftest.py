"""The real megatron-bridge, imported once for all contract tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

from bridgepack.bridge.import_on_cpu import install_import_hook

install_import_hook()


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Yield `megatron.bridge`; the first test that asks waits some 20 seconds for the import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGATRON_CONFIG_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        yield importlib.import_module("megatron.bridge")
