"""Environments: of this interpreter, and from listings of installed distributions."""

import json
from itertools import batched
from pathlib import Path

import pytest

from bridgepack.bridge.environment import environment_from_file
from bridgepack.errors import ConfigError


def _listing(folder: Path, text: str) -> Path:
    path = folder / "environment.txt"
    path.write_text(text, encoding="utf-8")
    return path


FROZEN = """\
# frozen on the training image
Megatron_Bridge==0.6.2
megatron-core[dev,mlm] == 0.19.2  # pinned
transformers==5.8.0 ; python_version >= "3.12"
torch===2.13.0+cu130
--extra-index-url https://example.org/simple
numpy>=1.26
einops==0.8.*

"""
PLACES = """\
mamba-ssm @ file:///wheels/mamba_ssm-2.2.6.post3-cp312-cp312-linux_x86_64.whl#sha256=00
transformer-engine @ file:///wheels/transformer_engine-2.17.1%2Bcu13-py3-none-any.whl
causal_conv1d @ https://example.org/causal_conv1d-1.5.3.tar.gz
-e /opt/Megatron-LM
einops @ git+https://example.org/einops.git@1234
-e git+https://example.org/bridge.git@1234#egg=megatron_bridge
# Editable install with no version control (nemo_run==0.11.1)
-e /opt/NeMo-Run
-e file:///opt/Energon
"""
OF_PIP = [{"name": "Megatron-Core", "version": "0.19.2"}, {"name": "torch", "version": "2.13.0"}, {"name": "x"}, 3]
OF_CONDA = [
    {"name": "python", "version": "3.12.4", "channel": "conda-forge"},
    {"name": "pytorch", "version": "2.11.0", "channel": "conda-forge"},
]


@pytest.mark.parametrize(
    ("text", "versions", "python"),
    [
        (FROZEN, "megatron-bridge 0.6.2 megatron-core 0.19.2 transformers 5.8.0 torch 2.13.0+cu130", None),
        (
            PLACES,
            "mamba-ssm 2.2.6.post3 transformer-engine 2.17.1+cu13 causal-conv1d 1.5.3 megatron-core unknown "
            "einops unknown megatron-bridge unknown nemo-run 0.11.1 energon unknown",
            None,
        ),
        (json.dumps(OF_PIP), "megatron-core 0.19.2 torch 2.13.0", None),
        (json.dumps(OF_CONDA), "torch 2.11.0", "3.12.4"),
    ],
    ids=["pip freeze", "places", "pip and uv as JSON", "conda as JSON"],
)
def test_listings(tmp_path: Path, text: str, versions: str, python: str | None) -> None:
    found = environment_from_file(_listing(tmp_path, text))
    assert (dict(batched(versions.split(), 2)), python) == (found.versions, found.python)


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "numpy>=1.26\n", "[]", "{}", "[1, 2", "-e git+x#egg=mine\n"])
def test_a_file_that_lists_nothing_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="pip freeze"):
        environment_from_file(_listing(tmp_path, text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00numpy")
    with pytest.raises(ConfigError, match="cannot be read"):
        environment_from_file(tmp_path / "bytes")
