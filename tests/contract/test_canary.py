"""The canary on the real megatron-bridge: layouts agree with the unpacked step, and every fault is found and named.

Steps are forked off one process, as importing the host takes longer than they do.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.canaries import faults
from bridgepack.canaries.processes import HostProcess
from bridgepack.canaries.records import CanaryReport, RunRequest, topology_of
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import ConfigError
from bridgepack.replay.settings import Topology
from tests.support.canaries import build_artifact, canary_recipe, compare, comparison, write_inputs
from tests.support.hub_configs import model_configs
from tests.support.messages import mentions
from tests.support.planted_world import done_and_expected
from tests.support.small_builds import Command
from tests.support.traced_artifacts import restate

pytestmark = [pytest.mark.bridge, pytest.mark.full]

COMBINED = topology_of(context=2, tensor=2, pipeline=2, sequence_parallel=True)
ALONE = [
    topology_of(),
    topology_of(data=2),
    topology_of(tensor=2),
    topology_of(pipeline=3),
    topology_of(context=2),
    topology_of(context=4),
]
TOPOLOGIES = [*ALONE, COMBINED]
#: In float32 sums of fewer digits are what differs: of ranks that share a batch, a weight or a sequence.
TOPOLOGIES_IN_FLOAT32 = [topology_of(), topology_of(data=2), topology_of(tensor=2), topology_of(context=2)]
#: A planted fault that numbers show is further away than this many bounds.
CLEARLY = 10


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canary")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def artifact(work: Path) -> Path:
    """Return an artifact for one context-parallel rank."""
    return build_artifact(work, "artifact", canary_recipe(work))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    folder = tmp_path_factory.mktemp("host")
    with HostProcess(folder, is_on_cpu=True) as process:
        yield process


@pytest.fixture(scope="module")
def reports(host: HostProcess, work: Path, artifact: Path) -> dict[str, CanaryReport]:
    """Return what a dense model computes in float64: all layouts, and that of each planted fault, by its name."""
    dense = comparison(host, work / "dense-runs", artifact, num_packs=4)
    reports = {"": dense.report(TOPOLOGIES, fault=None, keeps_boundaries=False, notes=[])}
    faulty = comparison(host, work / "faulty-runs", artifact)
    for fault, (_, topology) in faults.FAULTS.items():
        reports[fault] = faulty.report([topology], fault=fault, keeps_boundaries=False, notes=[])
    return reports


@pytest.fixture
def report(reports: dict[str, CanaryReport]) -> CanaryReport:
    """Return what all layouts compute."""
    return reports[""]


def _failures(report: CanaryReport) -> str:
    return "\n".join(
        [finding.message for finding in report.findings]
        + [f"{layout.name}: {one.reason}" for layout in report.layouts for one in layout.measured if one.reason]
    )


def test_every_layout_agrees_with_the_unpacked_step(report: CanaryReport) -> None:
    assert report.outcome == "same", _failures(report)
    assert [layout.name for layout in report.layouts] == [topology.title for topology in TOPOLOGIES]
    measured = [one for layout in report.layouts for one in layout.measured]
    assert len(measured) == len(TOPOLOGIES)
    for one in measured:
        assert one.loss is not None
        assert one.gradient is not None
        assert max(one.loss, one.gradient) < one.bound
        assert len(one.gradients) > 6 * 6


def test_float64_agrees_to_the_last_digits_and_float32_does_not(
    host: HostProcess, work: Path, artifact: Path, report: CanaryReport
) -> None:
    in_float32 = compare(host, work / "narrow-runs", artifact, TOPOLOGIES_IN_FLOAT32, precisions=("float32",))

    for layout in report.layouts:
        (wide,) = layout.measured
        assert wide.gradient is not None
        assert wide.gradient < 1e-13
    assert in_float32.outcome == "same", _failures(in_float32)
    assert [layout.name for layout in in_float32.layouts] == [topology.title for topology in TOPOLOGIES_IN_FLOAT32]
    for layout in in_float32.layouts:
        (narrow,) = layout.measured
        assert narrow.gradient is not None
        assert 1e-9 < narrow.gradient < narrow.bound


def test_packs_are_laid_out_anew_only_where_they_have_to(report: CanaryReport) -> None:
    anew = {layout.name: layout.pad_seq_to_mult for layout in report.layouts if layout.is_laid_out_anew}

    assert anew == {"CP 2": 4, "CP 4": 8, COMBINED.title: 4}


def test_a_balanced_artifact_trains_the_same_global_batch(host: HostProcess, work: Path) -> None:
    num_rows, seen = 8, {}
    for kind in ("none", "within_batch"):
        balance = {"kind": kind, "token_cost": 10}
        packing = {"packed_sequence_size": 512, "max_sequence_length": 256, "balance": balance}
        sections = {"parallelism": {"num_gpus": 2}, "batch": {"global_batch_size": num_rows}}
        recipe = canary_recipe(work, packing=packing, **sections)
        packs = build_artifact(work, f"balance-{kind}", recipe)
        host.open(recipe.model_dump(mode="json", exclude_unset=True), packs, packs)
        tokenizer = Artifact(packs).manifest.tokenizer
        outcome = host.run(
            RunRequest(
                topology=topology_of(data=2),
                precision="float64",
                kernel="reference",
                is_packed=True,
                folder=str(packs),
                num_rows=num_rows,
                packed_sequence_size=512,
                pad_seq_to_mult=1,
                pad_to_max_length=True,
                pad_cu_seqlens=False,
                eos_token_id=tokenizer["eos_token_id"],
                vocab_size=tokenizer["vocab_size"],
                seed=1,
            )
        )
        assert outcome.is_complete, outcome.reason
        seen[kind] = outcome.ranks

    plain, even = seen["none"], seen["within_batch"]
    assert sum(rank.loss for rank in even) == pytest.approx(sum(rank.loss for rank in plain), rel=1e-12)
    assert sum(rank.num_trained for rank in even) == sum(rank.num_trained for rank in plain) > 0
    assert [rank.loss for rank in even] != pytest.approx([rank.loss for rank in plain], rel=1e-6)
    for name, gradient in plain[0].gradients.items():
        largest = abs(gradient).max()
        np.testing.assert_allclose(even[0].gradients[name], gradient, rtol=0, atol=1e-11 * largest, err_msg=name)
    assert plain[0].gradients


def test_experts_agree(host: HostProcess, work: Path, artifact: Path) -> None:
    report = compare(host, work / "moe-runs", artifact, [topology_of(), COMBINED], model__name=str(work / "moe"))

    assert report.outcome == "same", _failures(report)
    assert report.model["num_moe_experts"] == 4
    assert any("experts are chosen by " in note and "at least" in note for note in report.notes)


LORA = {"kind": "lora", "target_modules": ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]}


@pytest.mark.parametrize(
    ("model", "method", "layouts"),
    [
        ("dense", LORA, [topology_of(), topology_of(tensor=2), topology_of(pipeline=3), topology_of(context=2)]),
        ("dense", {**LORA, "kind": "dora"}, [topology_of(), topology_of(context=2)]),
        ("moe", LORA, [topology_of(), COMBINED]),
    ],
    ids=["lora", "dora", "lora-with-experts"],
)
def test_adapters_agree(
    host: HostProcess, work: Path, artifact: Path, model: str, method: dict[str, Any], layouts: list[Topology]
) -> None:
    """Nothing but adapters has a gradient, and both matrices of each have one."""
    folder = work / f"{model}-{method['kind']}-runs"
    report = compare(host, folder, artifact, layouts, model__name=str(work / model), method=method)

    assert report.outcome == "same", _failures(report)
    assert any("adapters have rank 8" in note for note in report.notes)
    for layout in report.layouts:
        names = list(layout.measured[0].gradients)
        assert all(".adapter." in name for name in names)
        matrices = 3 if method["kind"] == "dora" else 2
        if model == "dense":
            assert len(names) == 6 * 4 * matrices


@pytest.mark.parametrize(("modules", "differs"), [(["linear_proj"], True), (["linear_qkv", "linear_fc1"], False)])
def test_dora_over_tensor_ranks_differs_where_they_split_the_inputs(
    host: HostProcess, work: Path, artifact: Path, modules: list[str], differs: bool
) -> None:
    """Megatron-Bridge 0.6.2 takes the norm over a rank's own inputs (peft/dora_layers.py, _get_weight_norm)."""
    method = {"kind": "dora", "target_modules": modules}
    report = compare(host, work / f"dora-{differs}", artifact, [topology_of(tensor=2)], method=method)

    assert report.outcome == ("differs" if differs else "same"), _failures(report)


@pytest.mark.parametrize(
    ("modules", "found"),
    [(["linear_fc1", "linear_fc2"], ["adapters-without-gradient"]), (["linear_qkv", "linear_fc1"], [])],
    ids=["nothing-trained-before", "attention-too"],
)
def test_adapters_that_autograd_skips_are_found(
    host: HostProcess, work: Path, artifact: Path, modules: list[str], found: list[str]
) -> None:
    recomputed = {"model": {"recompute_granularity": "selective", "recompute_modules": ["mlp"]}}
    method = {"kind": "lora", "target_modules": modules}
    report = compare(
        host, work / f"skipped-{len(found)}", artifact, [topology_of()], method=method, bridge_overrides=recomputed
    )

    assert [finding.name for finding in report.findings] == found, _failures(report)
    if found:
        assert report.findings[0].layout == "the unpacked step"
        assert "the gradient is 0 in 12 of 12 adapters: " in report.findings[0].message


@pytest.mark.parametrize("fault", faults.FAULTS)
def test_planted_faults_are_found_and_named(reports: dict[str, CanaryReport], fault: str) -> None:
    report = reports[fault]

    assert report.outcome == "differs"
    assert {finding.name for finding in report.findings} == {fault}
    (measured,) = report.layouts[0].measured
    if fault in (faults.WRONG_MULTIPLE, faults.MAX_SEQLEN_TOO_SMALL):
        assert "RuntimeError" in measured.reason  # the rotary embedding of megatron-core stops on the CPU
    elif fault != faults.POSITIONS_NOT_RESET:  # rotary positions follow from boundaries, so no number changes
        assert measured.gradient is not None
        assert measured.gradient > CLEARLY * 1.3e-4  # the bound of float32 here


def test_an_artifact_for_fewer_context_ranks_is_refused_as_it_is(host: HostProcess, work: Path, artifact: Path) -> None:
    report = compare(host, work / "misfit", artifact, [topology_of(context=2)], keeps_boundaries=True)

    (finding,) = report.findings
    assert finding.name == faults.WRONG_MULTIPLE
    assert "multiple of 2 x CP = 4" in finding.message
    assert mentions(finding.advice, "Build or repack ", "multiple of 4.")


def test_an_artifact_for_its_own_context_ranks_is_taken_as_it_is(host: HostProcess, work: Path) -> None:
    recipe = canary_recipe(work, parallelism={"num_gpus": 2, "context_parallel_size": 2})
    artifact = build_artifact(work, "artifact-cp2", recipe)

    report = compare(host, work / "own-context", artifact, [topology_of(context=2)])

    assert report.outcome == "same", _failures(report)
    assert not report.layouts[0].is_laid_out_anew


def test_a_recipe_that_averages_per_rank_is_found(host: HostProcess, work: Path, artifact: Path) -> None:
    off = {"model": {"calculate_per_token_loss": False}}

    report = compare(host, work / "per-rank", artifact, [topology_of()], bridge_overrides=off)

    assert [finding.name for finding in report.findings] == [faults.LOSS_PER_RANK]


@pytest.mark.parametrize(
    ("name", "layouts", "dataset"),
    [
        ("own-width", [topology_of(data=2)], {"dataset_kwargs": {"pad_to_max_length": False}}),
        ("fixed-offsets", [topology_of(), topology_of(context=2)], {"offline_packing_specs": {"pad_cu_seqlens": True}}),
    ],
)
def test_rows_of_other_shapes_agree(
    host: HostProcess, work: Path, artifact: Path, name: str, layouts: list[Topology], dataset: dict[str, Any]
) -> None:
    report = compare(host, work / name, artifact, layouts, bridge_overrides={"dataset": dataset})

    assert report.outcome == "same", _failures(report)


def test_stale_metadata_is_found(host: HostProcess, work: Path) -> None:
    """The metadata is that of other packs, whose longest sequence has 3 tokens and whose emptiest pack is full."""
    artifact = build_artifact(work, "artifact-stale", canary_recipe(work))
    path = artifact / "bridge_metadata.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps([{**entry, "dataset_max_seqlen": 3, "min_packed_seqlen": 10**6} for entry in entries]))
    restate(artifact)
    fixed = {"dataset": {"offline_packing_specs": {"pad_cu_seqlens": True}}}

    report = compare(host, work / "stale", artifact, [topology_of()], bridge_overrides=fixed)

    assert faults.MAX_SEQLEN_TOO_SMALL in {finding.name for finding in report.findings}


def test_a_recipe_without_a_model_gets_a_small_one(host: HostProcess, work: Path) -> None:
    artifact = build_artifact(work, "artifact-no-model", canary_recipe(work, None))

    report = compare(host, work / "no-model", artifact, [topology_of()])

    assert report.outcome == "same", _failures(report)
    assert any("family llama: " in note and "names no model" in note for note in report.notes)


def test_runs_have_the_same_fingerprint(host: HostProcess, work: Path, artifact: Path, report: CanaryReport) -> None:
    again = [compare(host, work / f"again-{index}", artifact, [topology_of()]) for index in range(2)]

    assert again[0].fingerprint == again[1].fingerprint != report.fingerprint
    assert again[0].layouts == again[1].layouts


def test_the_command_prints_one_page_and_exits_with_1_for_a_fault(
    host: HostProcess, artifact: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process with the host is that of the other tests; what it does is the command's."""
    monkeypatch.setattr("bridgepack.canaries.canary.HostProcess", lambda *_, **__: nullcontext(host))
    finished = command("prove", "training", artifact, "--context", 2, "--num-packs", 2)  # built for one rank

    assert finished.code == 1, finished.errors
    lines = finished.output.splitlines()
    assert lines[0].startswith("canary of ")
    assert "wrong-multiple (BP331) in CP 2" in lines
    assert lines[-1] == "differs: 1 of 1 layout (CP 2)"
    assert len(lines) < 40


def test_it_reads_and_runs_what_the_table_of_trust_says(
    host: HostProcess, chatml_tokenizer: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridgepack.canaries.canary.HostProcess", lambda *_, **__: nullcontext(host))
    done, expected = done_and_expected("prove training", tmp_path, chatml_tokenizer, monkeypatch, command)
    assert done == expected


def test_a_model_that_is_not_covered_is_refused(host: HostProcess, work: Path, artifact: Path) -> None:
    """gpt-oss has attention sinks and sliding windows."""
    folder = work / "gpt-oss"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model_configs()["openai/gpt-oss-20b"]))

    with pytest.raises(ConfigError, match=r"not cover: .*sliding windows, attention sinks"):
        compare(host, work / "not-covered", artifact, [topology_of()], model__name=str(folder))
