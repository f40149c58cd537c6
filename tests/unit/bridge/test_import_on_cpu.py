"""The import hook: where TransformerEngine cannot be imported, found or not, its users see a stand-in."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridgepack.bridge.import_on_cpu import install_import_hook


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of modules with a host that needs TransformerEngine; no hook is installed yet."""
    folder = tmp_path / "megatron" / "bridge" / "peft"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (folder / "lora_layers.py").write_text("import transformer_engine.pytorch as te\nLINEAR = te.Linear\n")
    known = {name: module for name, module in sys.modules.items() if _is_host(name)}
    for name in known:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if type(one).__name__ != "_Finder"])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if _is_host(name)]:
        del sys.modules[name]
    sys.modules.update(known)


def _is_host(name: str) -> bool:
    return name.partition(".")[0] in {"megatron", "transformer_engine"}


@pytest.mark.parametrize(
    "failure", ["raise ImportError('no torch')", "raise OSError('libnvrtc.so')", "assert False", "raise RuntimeError"]
)
def test_one_that_is_found_and_cannot_be_imported_is_none(host: Path, failure: str) -> None:
    (host / "transformer_engine").mkdir()
    (host / "transformer_engine" / "__init__.py").write_text(f"{failure}\n")
    install_import_hook()

    assert isinstance(importlib.import_module("megatron.bridge.peft.lora_layers").LINEAR, type)
    assert not any(name.startswith("transformer_engine") for name in sys.modules)


def test_a_real_one_is_left_alone(host: Path) -> None:
    (host / "transformer_engine").mkdir()
    (host / "transformer_engine" / "pytorch.py").write_text("Linear = 'real'\n")
    install_import_hook()

    assert importlib.import_module("megatron.bridge.peft.lora_layers").LINEAR == "real"
