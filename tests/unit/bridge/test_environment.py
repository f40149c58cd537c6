"""Environments: of this interpreter, and from listings of installed distributions."""

import json
from pathlib import Path

import pytest

from bridgepack.bridge.environment import environment_from_file
from bridgepack.errors import ConfigError


def _listing(folder: Path, text: str) -> Path:
    path = folder / "environment.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_pip_freeze(tmp_path: Path) -> None:
    environment = environment_from_file(
        _listing(
            tmp_path,
            "# frozen on the training image\n"
            "Megatron_Bridge==0.6.2\n"
            "megatron-core[dev,mlm] == 0.19.2  # pinned\n"
            'transformers==5.8.0 ; python_version >= "3.12"\n'
            "torch===2.13.0+cu130\n"
            "--extra-index-url https://example.org/simple\n"
            "numpy>=1.26\n"
            "einops==0.8.*\n"
            "\n",
        )
    )
    assert environment.versions == {
        "megatron-bridge": "0.6.2",
        "megatron-core": "0.19.2",
        "transformers": "5.8.0",
        "torch": "2.13.0+cu130",
    }
    assert environment.python is None


def test_distributions_from_places(tmp_path: Path) -> None:
    environment = environment_from_file(
        _listing(
            tmp_path,
            "mamba-ssm @ file:///wheels/mamba_ssm-2.2.6.post3-cp312-cp312-linux_x86_64.whl#sha256=00\n"
            "transformer-engine @ file:///wheels/transformer_engine-2.17.1%2Bcu13-py3-none-any.whl\n"
            "causal_conv1d @ https://example.org/causal_conv1d-1.5.3.tar.gz\n"
            "-e /opt/Megatron-LM\n"
            "einops @ git+https://example.org/einops.git@1234\n"
            "-e git+https://example.org/bridge.git@1234#egg=megatron_bridge\n"
            "# Editable install with no version control (nemo_run==0.11.1)\n"
            "-e /opt/NeMo-Run\n"
            "-e file:///opt/Energon\n",
        )
    )
    assert environment.versions == {
        "mamba-ssm": "2.2.6.post3",
        "transformer-engine": "2.17.1+cu13",
        "causal-conv1d": "1.5.3",
        "megatron-core": "unknown",
        "einops": "unknown",
        "megatron-bridge": "unknown",
        "nemo-run": "0.11.1",
        "energon": "unknown",
    }


def test_json_of_pip_and_uv(tmp_path: Path) -> None:
    rows = [{"name": "Megatron-Core", "version": "0.19.2"}, {"name": "torch", "version": "2.13.0"}, {"name": "x"}, 3]
    environment = environment_from_file(_listing(tmp_path, json.dumps(rows)))
    assert environment.versions == {"megatron-core": "0.19.2", "torch": "2.13.0"}


def test_json_of_conda(tmp_path: Path) -> None:
    rows = [
        {"name": "python", "version": "3.12.4", "channel": "conda-forge"},
        {"name": "pytorch", "version": "2.11.0", "channel": "conda-forge"},
    ]
    environment = environment_from_file(_listing(tmp_path, json.dumps(rows)))
    assert (environment.python, environment.versions) == ("3.12.4", {"torch": "2.11.0"})


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "numpy>=1.26\n", "[]", "{}", "[1, 2", "-e git+x#egg=mine\n"])
def test_a_file_that_lists_nothing_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="pip freeze"):
        environment_from_file(_listing(tmp_path, text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.txt', which cannot be read"):
        environment_from_file(tmp_path / "absent.txt")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00numpy")
    with pytest.raises(ConfigError, match="cannot be read"):
        environment_from_file(tmp_path / "bytes")
