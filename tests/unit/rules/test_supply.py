"""Findings on the batch name the field that the recipe has and the value that cures, counted in packs."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import Finding
from tests.support.messages import mentions
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines

CODES = ("BP601", "BP608", "BP638")
WHOLE_PACK = [tokenized_row(*range(10, 27))] * 121  # 16 runtime tokens

SIZES = {"packing__packed_sequence_size": 16, "parallelism__num_gpus": 1}


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    return tokenized_recipe(write_json_lines(tmp_path / "rows.jsonl", WHOLE_PACK), chatml_tokenizer)


def _found(recipe: SFTRecipe, folder: Path, **changes: Any) -> dict[str, Finding]:
    changed = recipe.override({name.replace("__", "."): value for name, value in changes.items()})
    packs = build(changed, folder).output
    report = check_target(changed, CheckOptions(artifact=packs, select=CODES, looks_at_files=False))
    assert not report.rules_skipped
    return {finding.code: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("changes", "where", "fix"),
    [
        ({"batch__tokens_per_step": 2048}, "tokens_per_step", "Set batch.tokens_per_step to at most 1936 (121 packs)."),
        ({}, "global_batch_size", "Set batch.global_batch_size to at most 121 packs."),
        (
            {"batch__tokens_per_step": 2048, "parallelism__num_gpus": 8},
            "tokens_per_step",
            "Set batch.tokens_per_step to at most 1920 (120 packs).",
        ),
        (
            {"parallelism__num_gpus": 128},
            "global_batch_size",
            "128 packs, for the data-parallel ranks. Use fewer GPUs",
        ),
        (
            {"bridge_overrides__train__global_batch_size": 122},
            "bridge_overrides.train.global_batch_size",
            "Set bridge_overrides.train.global_batch_size to at most 121 packs.",
        ),
    ],
    ids=str,
)
def test_too_few_packs(tmp_path: Path, recipe: SFTRecipe, changes: dict[str, Any], where: str, fix: str) -> None:
    found = _found(recipe, tmp_path / "out", **SIZES | changes)

    assert [*found] == ["BP601"]
    assert found["BP601"].where.endswith(where)
    assert found["BP601"].found.endswith("only 121 training packs")
    assert mentions(found["BP601"].fix, fix)
    if "batch__tokens_per_step" in changes:
        value = int(fix.split()[-3])
        cured = _found(
            recipe,
            tmp_path / "cured",
            **SIZES | changes | {"batch__tokens_per_step": value},
        )
        assert "BP601" not in cured


def test_a_step_of_thousands_of_conversations(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(10, 11, 12)] * 6400)  # 2 runtime tokens
    recipe = tokenized_recipe(path, chatml_tokenizer, packing__packed_sequence_size=50, parallelism__num_gpus=1)
    by_tokens, few = {"batch__tokens_per_step": 128 * 50}, {"batch__global_batch_size": 40}
    on_8 = {"parallelism__num_gpus": 8}

    finding = _found(recipe, tmp_path / "out")["BP608"]

    assert (finding.severity, finding.where) == ("warning", "batch.global_batch_size")
    assert (finding.found, finding.allowed) == ("128 packs, with 25.0 conversations in each", "5 packs")
    cure = "One step trains about 3,200 conversations. For the usual 128, set batch.global_batch_size to 5 packs."
    assert finding.fix == cure
    assert _found(recipe, tmp_path / "out", **by_tokens)["BP608"].fix.endswith(
        "set batch.tokens_per_step to 250 (5 packs)."
    )
    assert _found(recipe, tmp_path / "out", **by_tokens, **on_8)["BP608"].allowed == "8 packs"
    assert "BP608" not in _found(recipe, tmp_path / "out", **few)
    few_as_can_be = {"batch__global_batch_size": 64, "parallelism__num_gpus": 64}
    assert "BP608" not in _found(recipe, tmp_path / "out", **few_as_can_be)


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"batch__global_batch_size": 64}, "Set batch.global_batch_size to at most 6 packs."),
        ({"batch__tokens_per_step": 64 * 16}, "Set batch.tokens_per_step to at most 96 (6 packs)."),
        (
            {"batch__global_batch_size": 64, "parallelism__num_gpus": 8},
            "Set batch.global_batch_size to at most 8 packs.",
        ),
        (
            {"batch__global_batch_size": 64, "schedule__train_iters": 2, "schedule__num_epochs": None},
            "Set batch.global_batch_size to at most 6 packs, and schedule.train_iters to 21.",
        ),
        ({"batch__global_batch_size": 64, "parallelism__num_gpus": 64}, None),  # no smaller batch exists
        ({"batch__global_batch_size": 6}, None),
        ({"batch__global_batch_size": 64, "schedule__num_epochs": 12.0}, None),
        (
            {"batch__global_batch_size": 32, "schedule__train_iters": 2, "schedule__num_epochs": None},
            None,
        ),  # half a pass
    ],
    ids=str,
)
def test_a_run_of_few_steps(tmp_path: Path, recipe: SFTRecipe, changes: dict[str, Any], fix: str | None) -> None:
    found = _found(recipe, tmp_path / "out", **SIZES | changes)

    assert {code: finding.fix for code, finding in found.items()} == ({"BP638": fix} if fix else {})
    if fix and "schedule__train_iters" not in changes:
        path, value = next(item for item in changes.items() if item[0].startswith("batch"))
        most = int(fix.partition("at most ")[2].split()[0].rstrip("."))
        assert most < value
        again = _found(recipe, tmp_path / "again", **SIZES | changes | {path: most})
        assert again == {}


@pytest.mark.parametrize(
    ("num_validation", "changes", "is_found"),
    [(1, {}, True), (2, {}, False), (1, {"schedule__eval_iters": 0}, False), (1, {"parallelism__num_gpus": 1}, False)],
    ids=str,
)
def test_validation_packs_that_no_step_evaluates(
    tmp_path: Path, recipe: SFTRecipe, num_validation: int, changes: dict[str, Any], is_found: bool
) -> None:
    rows = write_json_lines(tmp_path / "validation.jsonl", [tokenized_row(*range(30, 47))] * num_validation)
    changed = recipe.override(
        {name.replace("__", "."): value for name, value in (SIZES | {"parallelism__num_gpus": 2} | changes).items()}
        | {"data.validation": str(rows)}
    )
    packs = build(changed, tmp_path / "out").output

    report = check_target(changed, CheckOptions(artifact=packs, select=("BP625",), looks_at_files=False))

    assert [finding.where for finding in report.findings] == (["schedule.eval_iters"] if is_found else [])
    if is_found:
        (finding,) = report.findings
        assert finding.severity == "warning"
        assert finding.found.startswith("0, because 1 validation pack ")
        assert finding.allowed.startswith("at least 2 validation packs")
