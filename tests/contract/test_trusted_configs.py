"""What a saved config may name: all that Megatron-Bridge itself saves, and nothing else by whatever name."""

import pickle
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import yaml

from bridgepack.bridge.validating.trusted import UntrustedConfigError, refuse_untrusted
from bridgepack.bridge.validating.verdict import CannotAskError, Question, verdict_of
from tests.support.bridge_recipes import DENSE
from tests.support.messages import mentions
from tests.support.upstream_recipes import load_recipe_config

#: What code would be run, or a file be read, by names that the host's list of forbidden ones does not have.
REFUSED = {
    "another name of torch.load": {"_target_": "torch.serialization.load", "f": "x", "weights_only": False},
    "a module's module": {"_target_": "torch.serialization.os.system", "command": "true"},
    "not even named": {"_target_": "torch.load", "_call_": False},
    "in arguments": {"_target_": "torch.nn.init.normal_", "_partial_": True, "_args_": [{"_target_": "eval"}]},
    "in a list": [{"inner": [{"_target_": "subprocess.run", "args": "true"}]}],
    "an initialiser that is called": {"_target_": "torch.nn.init.zeros_", "tensor": 1},
    "a function that imports": {"_target_": "megatron.core.transformer.spec_utils.import_module", "_partial_": True},
    "no config of transformers": {"_target_": "transformers.AutoConfig.from_pretrained", "_args_": ["x"]},
    "another class with from_dict": {"_target_": "transformers.BatchFeature.from_dict", "config_dict": {}},
    "a class that is no config": {"_target_": "torch.nn.Linear", "_args_": [1, 1]},
    "no text": {"_target_": ["torch.float32"]},
    "an interpolation": {"_target_": "torch.float32", "_call_": "${oc.env:HOME}"},
    "an interpolated key": {"${oc.env:HOME}": 1},
    "a file of the current folder": {"_target_": "mine.Model"},
}


class _Marks:
    """Makes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.file,)


@pytest.fixture
def saved(host: None, upstream_recipes: dict[str, Any], tmp_path: Path) -> Path:
    """Return a file that the host has saved."""
    [name] = [name for name in upstream_recipes if name.endswith(f".{DENSE}")]
    load_recipe_config(upstream_recipes[name]).to_yaml(str(tmp_path / "saved.yaml"))
    return tmp_path / "saved.yaml"


def _changed(file: Path, **sections: Any) -> str:
    values = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(values | sections))
    return str(file)


def test_a_pickle_is_not_loaded_by_another_name_of_torch_load(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(_Marks(tmp_path / "marker")))
    target = "torch.serialization.load"
    node = {"_target_": target, "f": str(tmp_path / "evil.pt"), "weights_only": False}
    with pytest.raises(CannotAskError) as caught:
        verdict_of(Question(saved=_changed(saved, model=node), world_size=1))
    assert not (tmp_path / "marker").exists()
    assert mentions(str(caught.value), "saved.yaml", "model._target_", target, "--trust-config torch.serialization")


@pytest.mark.parametrize("kind", REFUSED)
def test_nothing_else_is_named(host: None, kind: str) -> None:
    with pytest.raises(UntrustedConfigError, match=r"^model\.|^the config"):
        refuse_untrusted({"model": REFUSED[kind]} if "key" not in kind else REFUSED[kind])


def test_classes_of_a_trusted_module_are_loaded(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_trusted.py").write_text(
        "from dataclasses import dataclass\nimport os\n"
        "from megatron.bridge.training.config import LoggerConfig\n"
        "@dataclass\nclass Logger(LoggerConfig):\n    colour: str = 'red'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    values = yaml.safe_load(saved.read_text())
    logger = values["logger"] | {"_target_": "mine_trusted.Logger", "colour": "blue"}
    place = _changed(saved, logger=logger)
    with pytest.raises(CannotAskError, match=r"--trust-config mine_trusted$"):
        verdict_of(Question(saved=place, world_size=1))
    assert verdict_of(Question(saved=place, world_size=1, trusted=("mine_trusted",))).state == "accepted"
    with pytest.raises(UntrustedConfigError, match=r"mine_trustd.Logger.*PYTHONPATH"):
        refuse_untrusted({"logger": logger | {"_target_": "mine_trustd.Logger"}}, modules=("mine_trustd",))
    with pytest.raises(UntrustedConfigError, match=r"--trust-config posix$"):
        refuse_untrusted({"a": {"_target_": "mine_trusted.os.system"}}, modules=("mine_trusted",))


def test_all_that_the_host_saves_is_loaded(upstream_configs: dict[str, Any]) -> None:
    named: dict[str, Any] = {}
    for config in upstream_configs.values():
        _collect(config.to_dict(), named)
    with import_module("megatron.training.config.yaml_utils").safe_yaml_representers():
        saved = yaml.safe_load(yaml.safe_dump(named))
    refused = set()
    for node in saved.values():
        try:
            refuse_untrusted(node)
        except UntrustedConfigError as error:
            refused.add(str(error).partition(",")[0])
    [remote] = refused  # a class of remote code, which the host itself does not load
    assert "transformers_modules.moonshotai.Kimi" in remote
    targets = {node["_target_"] for node in saved.values() if isinstance(node, dict)}
    assert {"torch.bfloat16", "signal.Signals"} < targets
    assert len(saved) > 80


def _collect(node: Any, named: dict[str, Any]) -> None:
    """Add each class, function and object of a config once, as the host represents it."""
    if isinstance(node, (dict, list)):
        if isinstance(node, dict) and "_target_" in node:
            named[node["_target_"]] = {"_target_": node["_target_"]}
        for part in node.values() if isinstance(node, dict) else node:
            _collect(part, named)
    elif type(node) not in {bool, int, float, str, NoneType}:  # a signal is an int, too, and is saved as an enum
        named[repr(node)] = node
