"""A Hugging Face hub cache that holds the config files of every model the shipped recipes ask for, and nothing else.

The numbers in `hub_configs.json` are typed from what is public about each architecture. Three model families need a
configuration class that neither transformers nor megatron-bridge ships (Kimi-K2.5, Nemotron Nano v2 VL, Nemotron-3
Omni); their repositories get a file with a plain class in place of the remote code.

Not checked against a published file: the expert and Mamba sizes of Nemotron-3 Ultra, the text model of EXAONE-4.5,
GLM-5.2 (the numbers of GLM-5, a longer context), K-EXAONE-2.0 (K-EXAONE with 78 layers and 256 experts), the positions
of Kimi-K2.5 and Step-3.7, vision and audio towers.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).with_name("hub_configs.json")
REMOTE_MODULE = "configuration_remote"
REMOTE_CODE = '''"""Stands in for a configuration class that the model's own repository ships."""

from transformers import PretrainedConfig


class RemoteConfig(PretrainedConfig):
    """Holds every key of config.json; nested objects become configurations too."""

    def __init__(self, **values):
        for name, value in values.items():
            if name.endswith("_config") and isinstance(value, dict):
                values[name] = RemoteConfig(**value)
            setattr(self, name, values[name])
        super().__init__(**values)
'''


def model_configs() -> dict[str, dict[str, Any]]:
    """Return the config of each model id: that of its family, with the model's own values laid over it."""
    data = json.loads(DATA.read_text())
    return {
        model: _overlaid(data["families"][entry["family"]], entry.get("config", {}))
        for model, entry in data["models"].items()
    }


def write_hub_cache(directory: Path) -> None:
    """Write `models--ORG--NAME/{refs/main,snapshots/REVISION/...}` for every model, pinned revisions included."""
    entries = json.loads(DATA.read_text())["models"]
    for model, config in model_configs().items():
        repository = directory / f"models--{model.replace('/', '--')}"
        revision = entries[model].get("revision") or hashlib.sha1(model.encode(), usedforsecurity=False).hexdigest()
        _write(repository / "refs" / "main", revision)
        snapshot = repository / "snapshots" / revision
        _write(snapshot / entries[model].get("file", "config.json"), json.dumps(config))
        if "auto_map" in config:
            _write(snapshot / f"{REMOTE_MODULE}.py", REMOTE_CODE)


@contextmanager
def offline_hub(directory: Path) -> Iterator[None]:
    """Answer every look-up on the hub from configs written under `directory`; afterwards all is as it was."""
    from huggingface_hub import constants
    from transformers import dynamic_module_utils

    write_hub_cache(directory / "hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(directory / "hub"))
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(directory / "modules"))
        patch.setattr(sys, "path", list(sys.path))
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
                del sys.modules[name]


def _overlaid(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in values.items():
        inner = base.get(name)
        merged[name] = _overlaid(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
