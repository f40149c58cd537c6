"""Layouts that the tiny model can be spread over, and what is said of ranks that fail."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridgepack.canaries.canary import _kernel
from bridgepack.canaries.processes import HostProcess, _reason
from bridgepack.canaries.records import CanaryOptions, topology_of
from bridgepack.canaries.tiny_model import default_topologies, fit_topology, require_fit
from bridgepack.errors import ConfigError
from tests.support.canaries import FACTS
from tests.support.messages import mentions


def test_default_covers_packing_and_every_kind_of_parallelism() -> None:
    topologies, notes = default_topologies(FACTS, num_packs=4, num_devices=None)

    names = ["one rank", "DP 2", "TP 2", "PP 2", "PP 3", "CP 2", "CP 4", "CP 2 + TP 2 + PP 2"]
    assert [topology.title for topology in topologies] == names
    assert notes == []
    assert [topology.sequence_parallel for topology in topologies] == [False] * 7 + [True]


def test_what_cannot_be_shared_is_left_out_and_said() -> None:
    topologies, notes = default_topologies(FACTS, num_packs=3, num_devices=2)

    assert [topology.title for topology in topologies] == ["one rank", "TP 2", "PP 2", "CP 2"]
    assert mentions(notes, "DP 2 is left out: 3 packs ")
    assert mentions(notes, "PP 3 is left out: ", "3 GPUs; --device cpu")


def test_experts_ask_for_sequence_parallelism() -> None:
    experts = replace(FACTS, is_moe=True)

    assert fit_topology(topology_of(tensor=2), experts).sequence_parallel
    assert not fit_topology(topology_of(tensor=2), FACTS).sequence_parallel
    assert not fit_topology(topology_of(context=2), experts).sequence_parallel


def test_heads_and_gpus_have_to_suffice() -> None:
    with pytest.raises(ConfigError, match=r"--tensor is 3; .* allowed: 1, 2, 4\."):
        require_fit(topology_of(tensor=3), FACTS, None)
    with pytest.raises(ConfigError, match="CP 2 needs 2 GPUs, and 1 are here"):
        require_fit(topology_of(context=2), FACTS, 1)
    require_fit(topology_of(context=2), FACTS, None)


def test_gpus_are_used_only_where_they_and_the_kernels_are_there() -> None:
    both = replace(FACTS, num_gpus=1, has_transformer_engine=True)

    assert _kernel(both, CanaryOptions()) == "transformer_engine"
    assert _kernel(both, CanaryOptions(device="cpu")) == "reference"
    assert _kernel(FACTS, CanaryOptions()) == "reference"
    with pytest.raises(ConfigError, match="no TransformerEngine here"):
        _kernel(replace(FACTS, num_gpus=1), CanaryOptions(device="gpu"))


def test_the_last_error_is_the_reason() -> None:
    tail = ["Traceback (most recent call last):", '  File "step.py", line 1', "RuntimeError: sizes differ", "  ^^^"]

    assert _reason(tail, 2, [None, 0, 1]) == "rank 2: RuntimeError: sizes differ"
    assert _reason(tail, None, [0]) == ""
    assert mentions(_reason([], 1, [None, -9]), "rank 1 was killed by SIGKILL, ", "memory ran out")
    assert _reason([], 1, [None, -11]) == "rank 1 was killed by SIGSEGV"


def test_a_host_process_that_ends_is_told_with_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no memory left >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    with (
        HostProcess(tmp_path, is_on_cpu=True) as host,
        pytest.raises(ConfigError, match=r"(?s)ended with code 3\. Its last lines:\n  no memory left"),
    ):
        host.open({}, None, tmp_path)
