"""The command that BP861 prints: a shell takes it as it is, and Megatron-Bridge's function takes its arguments."""

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.catalogue import SMALL


@pytest.mark.parametrize(
    ("model", "identity"),
    [({"name": "qwen3_8b_sft_4gpu_h100_bf16_config"}, "Qwen/Qwen3-8B"), ({"name": "org/mine"}, "org/mine")],
)
def test_the_command_imports_the_model_into_the_folder(
    model: dict[str, Any], identity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {**SMALL, "model": model, "checkpoint": {"pretrained": "checkpoints/it's mine"}}

    report = check_target(SFTRecipe.from_mapping(values), CheckOptions())
    (finding,) = [finding for finding in report.findings if finding.code == "BP861"]
    command = finding.fix[finding.fix.index("python -c") :].partition(" . Or")[0]
    program, option, script = shlex.split(command)
    call = ast.parse(script).body[1].value  # type: ignore[attr-defined]

    assert (program, option) == ("python", "-c")
    assert "https://bridgepack.readthedocs.io/from-weights/" in finding.fix
    assert ast.unparse(call.func) == "AutoBridge.import_ckpt"
    assert [argument.value for argument in call.args] == [identity, "checkpoints/it's mine"]


@pytest.mark.parametrize(
    ("tokenizer", "folder", "identity"),
    [
        (
            "moonshotai/Moonlight-16B-A3B-Instruct",
            "Moonlight-16B-A3B-Instruct",
            "moonshotai/Moonlight-16B-A3B-Instruct",
        ),
        ("moonshotai/Moonlight-16B-A3B", "Moonlight-16B-A3B-Instruct", "MODEL"),
        ("moonshotai/Moonlight-16B-A3B-Instruct", "weights", "moonshotai/Moonlight-16B-A3B"),
    ],
)
def test_the_command_imports_no_base_into_the_folder_of_its_instruct_model(
    tokenizer: str, folder: str, identity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        **SMALL,
        "model": {"name": "moonlight_16b_sft_8gpu_h100_bf16_config"},
        "tokenizer": {"name_or_path": tokenizer},
        "checkpoint": {"pretrained": f"checkpoints/{folder}"},
    }

    report = check_target(SFTRecipe.from_mapping(values), CheckOptions())
    (finding,) = [finding for finding in report.findings if finding.code == "BP861"]

    assert f'import_ckpt("{identity}", "checkpoints/{folder}")' in finding.fix
