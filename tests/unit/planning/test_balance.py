"""A recipe's balance, from the build to what is said of it: record, bytes, ratios, refusals."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.packing.balance import slots_of, straggler_ratios
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.errors import ConfigError
from bridgepack.planning.balance import balance_for, balance_of_repack, waiting_in
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records import TRAIN, Finding
from bridgepack.rules.judging.report import CheckReport
from tests.support.messages import mentions
from tests.support.small_builds import (
    Command,
    build,
    file_bytes,
    tokenized_recipe,
    tokenized_row,
    with_changes,
    write_json_lines,
)

BASE = Path(__file__).parents[2] / "rules" / "base_run.json"
RUN = {"parallelism__num_gpus": 4, "batch__global_batch_size": 16, "packing__balance__token_cost": 20}
LENGTHS = np.random.default_rng(3).integers(2, 33, 400)


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    rows = [tokenized_row(*([10 + index % 200] * int(length))) for index, length in enumerate(LENGTHS)]
    train = write_json_lines(tmp_path / "rows.jsonl", rows)
    return tokenized_recipe(train, chatml_tokenizer, packing__packed_sequence_size=32, **RUN)


def built(recipe: SFTRecipe, output: Path, kind: str, **changes: Any) -> Artifact:
    return Artifact(build(with_changes(recipe, {"packing__balance__kind": kind, **changes}), output).output)


@pytest.fixture
def plain(tmp_path: Path, recipe: SFTRecipe) -> Artifact:
    return built(recipe, tmp_path / "plain", "none")


@pytest.fixture
def even(tmp_path: Path, recipe: SFTRecipe) -> Artifact:
    return built(recipe, tmp_path / "even", "within_batch")


def packs_of(artifact: Artifact) -> list[tuple[tuple[int, int], ...]]:
    """Return the rows of each pack."""
    found: dict[int, list[tuple[int, int]]] = {}
    for columns in iter_plan_columns(artifact, TRAIN, ("pack", "file_index", "row")):
        for pack, file, row in np.stack(columns, axis=1).tolist():
            found.setdefault(pack, []).append((file, row))
    return [tuple(found[pack]) for pack in range(len(found))]


@pytest.mark.parametrize(("kind", "loader"), [("within_batch", "batch"), ("across_batches", "single")])
def test_a_build_lays_equal_packs_in_an_even_order(tmp_path: Path, recipe: SFTRecipe, kind: str, loader: str) -> None:
    recipe = recipe.override({"bridge_overrides": {"dataset": {"dataloader_type": loader}}})
    plain, even = built(recipe, tmp_path / "plain", "none"), built(recipe, tmp_path / "even", kind)

    assert plain.manifest.fingerprint != even.manifest.fingerprint
    assert plain.manifest.balance is None
    assert even.manifest.balance == balance_for(with_changes(recipe, {"packing__balance__kind": kind}))
    assert Counter(packs_of(plain)) == Counter(packs_of(even))
    slots = slots_of(even.manifest.balance, len(packs_of(even)))
    window = 1 if kind == "within_batch" else 16
    for first in range(0, len(slots), window):
        steps = slots[first : first + window].ravel().tolist()
        assert Counter(packs_of(plain)[row] for row in steps) == Counter(packs_of(even)[row] for row in steps)
    before, after = waiting_in(plain, recipe), waiting_in(even, recipe)
    assert after.as_built.mean == pytest.approx(getattr(before, kind).mean, abs=0.002)
    assert after.as_built.mean < 1 + (before.as_built.mean - 1) / 3
    assert before.num_steps == plain.manifest.splits[0].statistics.num_packs // 16


def test_a_repack_balances_for_its_own_run_and_verify_derives_the_order(
    tmp_path: Path, even: Artifact, recipe: SFTRecipe
) -> None:
    changes = {"parallelism.num_gpus": 2, "batch.global_batch_size": 8}
    built(recipe.override(changes), tmp_path / "new", "within_batch")

    balance, options = balance_of_repack(even.folder, changes), BuildOptions(num_workers=0)
    repack_artifact(even.folder, changes, output=tmp_path / "repacked", options=options, balance=balance)

    assert file_bytes(tmp_path / "repacked") == file_bytes(tmp_path / "new")
    report = verify_artifact(even.folder, VerifyOptions(num_packs=None, num_workers=0))
    assert not report.differences
    assert report.num_packs_compared == even.manifest.splits[0].statistics.num_packs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parallelism__num_gpus": 1}, r"one data-parallel rank; allowed with packing.balance: at least 2"),
        ({"parallelism__num_gpus": None}, "parallelism.num_gpus is not set"),
        ({"batch__micro_batch_size": 2}, r"batch.micro_batch_size is 2; allowed with packing.balance: 1"),
        ({"batch__global_batch_size": 6}, r"batch.global_batch_size is 6; allowed: multiples of micro_batch_size x"),
        ({"batch__global_batch_size": 4}, "each of the 4 packs of a step"),
        ({"bridge_overrides": {"dataset": {"max_train_samples": 8}}}, r"overrides.dataset.max_train_samples is 8"),
        ({"packing__balance__token_cost": None}, r"Or set packing.balance.token_cost"),
        ({"packing__balance__token_cost": 10**8 + 1}, r"packing.balance.token_cost is 100000001; allowed: at most"),
        ({"packing__mode": "in_batch"}, r"packing.mode is in_batch"),
    ],
)
def test_runs_that_cannot_be_balanced_are_refused(recipe: SFTRecipe, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        balance_for(with_changes(recipe, {"packing__balance__kind": "within_batch", **changes}))


def test_stages_gather_packs_of_like_cost(recipe: SFTRecipe) -> None:
    changes = {"packing__balance__kind": "within_batch", "parallelism__pipeline_model_parallel_size": 2}
    record = balance_for(with_changes(recipe, changes))

    assert record is not None
    assert (record.matches_micro_batches, record.data_parallel_size) == (True, 2)


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, {}),
        ({"parallelism__expert_model_parallel_size": 4}, {"has_experts": True}),
        ({"parallelism__num_gpus": 12, "parallelism__pipeline_model_parallel_size": 3}, {"num_stages": 3}),
    ],
)
def test_ratios_are_those_of_the_run_s_schedule(
    plain: Artifact, recipe: SFTRecipe, changes: dict[str, Any], known: dict[str, Any]
) -> None:
    held = [[int(LENGTHS[row - 1]) - 1 for _, row in pack] for pack in packs_of(plain)]
    costs = np.array([20 * 32 + sum(one**2 for one in pack) + (32 - sum(pack)) ** 2 for pack in held])
    run = with_changes(recipe, changes)

    found = waiting_in(plain, run)

    expected = straggler_ratios(costs, slots_of(found.run, len(costs)), **known)
    assert found.run.data_parallel_size == 4
    assert found.as_built.mean == expected.mean()
    assert waiting_in(plain, config_of_recipe(run)).as_built == found.as_built


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train": {"global_batch_size": 0}}, "train.global_batch_size is 0"),
        ({"model": {"expert_model_parallel_size": "x"}, "dataset": {"seed": "x"}}, "dataset.seed is 'x'"),
        ({"train": {"num_epochs": float("inf"), "train_iters": None}}, "train.num_epochs is inf; allowed: finite"),
        ({"train": {"global_batch_size": 4096}}, "the number of packs"),
        ({"dataset": {"max_train_samples": 4}}, "dataset.max_train_samples is 4"),
    ],
)
def test_runs_without_order_are_skipped(
    even: Artifact, recipe: SFTRecipe, changes: dict[str, Any], reason: str
) -> None:
    report = check_target(
        recipe.override({"bridge_overrides": changes}), CheckOptions(artifact=even.folder, select=("BP634", "BP636"))
    )

    assert [rule.code for rule in report.rules_skipped] == ["BP634", "BP636"]
    assert all(reason in rule.reason for rule in report.rules_skipped)


def test_check_compares_the_run_with_what_packs_were_balanced_for(
    plain: Artifact, even: Artifact, recipe: SFTRecipe
) -> None:

    def codes(artifact: Artifact, **changes: Any) -> list[str]:
        run = with_changes(recipe, changes)
        report = check_target(run, CheckOptions(artifact=artifact.folder, select=("BP634", "BP636")))
        assert not report.rules_skipped
        return [finding.code for finding in report.findings]

    assert codes(plain) == ["BP636"]
    assert codes(even) == []
    assert codes(even, batch__global_batch_size=32) == ["BP634"]
    assert codes(even, bridge_overrides={"dataset": {"seed": 7}}) == ["BP634"]
    assert codes(even, schedule__num_epochs=3.0) == ["BP636"]


def test_a_saved_config_is_judged_by_the_sizes_of_its_model(tmp_path: Path, recipe: SFTRecipe) -> None:
    artifact = built(with_changes(recipe, {"packing__balance__token_cost": None}), tmp_path / "out", "none")
    saved, options = tmp_path / "saved.json", CheckOptions(artifact=artifact.folder, select=("BP634", "BP636"))

    def report_of(**model: Any) -> CheckReport:
        values = json.loads(BASE.read_text())
        values["model"] |= {"context_parallel_size": 1, "tensor_model_parallel_size": 1, **model}
        values["train"] |= {"micro_batch_size": 1, "global_batch_size": 16}
        saved.write_text(json.dumps(values))
        return check_target(saved.rename(saved.with_suffix(".yaml")), replace(options, world_size=4))

    known, lacking = report_of(), report_of(hidden_size=None)

    assert known.rules_run[:2] == ("BP634", "BP636")
    assert [rule.code for rule in lacking.rules_skipped] == ["BP634", "BP636"]
    reasons = {rule.reason for rule in lacking.rules_skipped}
    assert all("saved.yaml lacks sizes: 'hidden_size'. Allowed: " in reason for reason in reasons)


def test_a_container_s_cost_of_a_token_is_its_recipe_s(tmp_path: Path, recipe: SFTRecipe) -> None:
    unknown = with_changes(recipe, {"packing__balance__token_cost": None})
    artifact = built(unknown, tmp_path / "out", "none")
    run = unknown.override({"model": {"name": "Qwen/Qwen3-8B"}})
    stated = built(recipe, tmp_path / "stated", "none")

    found, of_recipe = waiting_in(artifact, config_of_recipe(run)), waiting_in(artifact, run)

    assert (found.run, found.as_built) == (of_recipe.run, of_recipe.as_built)
    assert found.run.token_cost > 20_000
    assert waiting_in(stated, config_of_recipe(run)).run.token_cost == 20  # as the packs' recipe says


def test_findings_name_the_run_s_length_and_the_balance_that_was_asked(tmp_path: Path, recipe: SFTRecipe) -> None:
    across = built(recipe, tmp_path / "across", "across_batches")

    def finding_of(code: str, **changes: Any) -> Finding:
        run = with_changes(recipe, changes)
        report = check_target(run, CheckOptions(artifact=across.folder, select=(code,)))
        (finding,) = report.findings
        return finding

    waiting = waiting_in(across, with_changes(recipe, {"batch__global_batch_size": 8}))
    balanced_otherwise = finding_of("BP634", batch__global_batch_size=8)
    assert balanced_otherwise.allowed.startswith(f"{waiting.across_batches.mean:.3f} times")
    assert f"{waiting.across_batches.mean:.3f}" != f"{waiting.within_batch.mean:.3f}"
    assert finding_of("BP636", schedule__num_epochs=3.0).where == "schedule.num_epochs"
    assert finding_of("BP636", schedule={"train_iters": 60}).where == "schedule.train_iters"


def test_inspect_and_trace_tell_of_it(plain: Artifact, even: Artifact, recipe: SFTRecipe, command: Command) -> None:
    ratio = waiting_in(even, recipe).as_built.mean

    assert "balance " not in command("inspect", plain.folder).output
    shown = command("inspect", even.folder).output
    assert mentions(
        shown, "within_batch, ", "for 4 data-parallel ranks, ", "16 packs a step, ", "loader batch, ", "seed 1234"
    )
    assert f"slowest rank          {ratio:.3f} times " in shown
    assert json.loads(command("inspect", even.folder, "--json").output)["waiting"]["as_built"]["mean"] == ratio
    assert "packs are balanced within_batch" in command("trace", even.folder, "--step", 2).output
    assert "Not here: data_parallel_size is 2" in command("trace", even.folder, "--step", 2, "--world-size", 2).output
    later = command("trace", even.folder, "--step", 15, "--set", "schedule.num_epochs=3").output
    assert mentions(later, "Not here: ", "epoch 2")
    assert "balanced" not in command("trace", plain.folder, "--step", 2).output
