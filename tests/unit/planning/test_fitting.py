"""The batch of a new recipe trains its data: near 128 conversations a step, at most a twentieth of the packs."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import bridgepack
from bridgepack.bridge.wiring import Packs, run_length
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.load import CatalogueEntry, load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import Wish
from bridgepack.planning import fitting, sample
from bridgepack.planning.fitting import fitted_batch
from bridgepack.planning.plan import new_recipe
from tests.support import thoughtful
from tests.support.small_builds import (
    CLI,
    Command,
    build,
    chat_row,
    tokenized_recipe,
    tokenized_row,
    write_json_lines,
)
from tests.support.thoughtful import TWO_THOUGHTS
from tests.zoo import exchanges
from tests.zoo.endless import GLM
from tests.zoo.families import write_tokenizer
from tests.zoo.tokenizers import write_tokenizer as write_family

TWO_TOKENS, WHOLE_PACK = tokenized_row(10, 11, 12), tokenized_row(*range(10, 51))
NEW = ("new", "mine", "--model", "Qwen/Qwen3-8B", "--num-gpus", 8, "--seq-length", 4096)  # 2 data-parallel ranks


def _recipe(folder: Path, tokenizer: Path, rows: list[Any], **changes: Any) -> SFTRecipe:
    sizes = {"packing__packed_sequence_size": 40, "parallelism__num_gpus": 1, "batch__tokens_per_step": 1 << 19}
    return tokenized_recipe(write_json_lines(folder / "rows.jsonl", rows), tokenizer, **sizes | changes)


@pytest.mark.parametrize(
    ("rows", "num_gpus", "packs", "line"),
    [
        ([TWO_TOKENS] * 2400, 1, 6, "2,400 rows, 120 packs, 6 packs a step, 20 steps an epoch"),
        ([TWO_TOKENS] * 2400, 8, 8, "2,400 rows, 120 packs, 8 packs a step, 15 steps an epoch"),
        ([TWO_TOKENS] * 9000, 4, 8, "9,000 rows, 450 packs, 8 packs a step, 57 steps an epoch"),
        ([WHOLE_PACK] * 300, 2, 14, "300 rows, 300 packs, 14 packs a step, 22 steps an epoch"),
        ([WHOLE_PACK] * 4000, 1, 128, "4,000 rows, 4,000 packs, 128 packs a step, 32 steps an epoch"),
        ([WHOLE_PACK] * 4000, 48, 144, "4,000 rows, 4,000 packs, 144 packs a step, 28 steps an epoch"),
        ([TWO_TOKENS], 1, 1, "1 row, 1 pack, 1 pack a step, 1 step an epoch"),
        (
            [WHOLE_PACK] * 9,
            10,
            10,
            "9 rows, 9 packs: training cannot start",
        ),
    ],
)
def test_batch(tmp_path: Path, chatml_tokenizer: Path, rows: list[Any], num_gpus: int, packs: int, line: str) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer, rows, parallelism__num_gpus=num_gpus)

    fit = fitted_batch(recipe)

    assert fit.line.startswith(line)
    assert fit.values == {"batch": {"tokens_per_step": 40 * packs}}
    assert fit.comments["batch.tokens_per_step"].startswith(f"{packs} pack")
    assert fit.comments["batch.tokens_per_step"].endswith("data-parallel ranks") == (packs == num_gpus == 8)
    fitted = recipe.override({"batch.tokens_per_step": 40 * packs})
    assert run_length(fitted, Packs(folder="", num_packs={"training": 100})).global_batch_size == packs
    options = CheckOptions(artifact=build(fitted, tmp_path / "out").output, looks_at_files=False)
    found = {finding.code for finding in check_target(fitted, options).findings}
    assert found & {"BP601", "BP602", "BP608", "BP638"} == ({"BP601"} if "cannot start" in line else set())


def test_a_sample_leaves_a_margin_and_says_about(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_BUDGET_BYTES", 50_000)
    recipe = _recipe(tmp_path, chatml_tokenizer, [WHOLE_PACK] * 2500)

    fit = fitted_batch(recipe)

    assert fit.line == "about 2,500 rows, about 2,500 packs, 118 packs a step, about 22 steps an epoch"


def test_drops_are_counted(tmp_path: Path, chatml_tokenizer: Path) -> None:
    line = fitted_batch(_recipe(tmp_path, chatml_tokenizer, [TWO_TOKENS] * 400 + [{}] * 3)).line

    assert line.endswith("20 steps an epoch; 3 of 403 rows read are dropped, `bridgepack preview` says why")


def test_a_balance_that_one_pack_for_each_rank_cannot_have_is_left_out(tmp_path: Path, chatml_tokenizer: Path) -> None:
    changes = {
        "parallelism__num_gpus": 8,
        "packing__balance__kind": "within_batch",
        "packing__balance__token_cost": 100,
    }
    few = fitted_batch(_recipe(tmp_path, chatml_tokenizer, [TWO_TOKENS] * 2400, **changes))
    many = fitted_batch(_recipe(tmp_path, chatml_tokenizer, [WHOLE_PACK] * 2400, **changes))

    assert few.values["packing"] == {"balance": {"kind": "none"}}
    assert [*many.values] == ["batch"]


OF_CHATS = {
    "preprocessing": {"kind": "chat"},
    "data__layout": {"kind": "chat", "messages": [{"from_column": "messages"}]},
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data__train": "none.jsonl"}, "none.jsonl is not here yet"),
        ({"data__train": "none*.jsonl"}, "data.train is 'none*.jsonl'"),
        ({"data__train": "s3://bucket/rows.jsonl"}, "data.train is not on this"),
        ({"data__train": {"dataset": "org/rows"}}, "data.train is not on this"),
        ({"tokenizer__name_or_path": "org/tokenizer"}, "the tokenizer org/tokenizer is not on this"),
        ({"tokenizer__name_or_path": "/nowhere/at/all"}, "the tokenizer /nowhere/at/all is not on this"),
        ({"tokenizer__chat_template": "none.jinja", **OF_CHATS}, "tokenizer.chat_template is"),
        (OF_CHATS, "no row becomes a"),
    ],
    ids=str,
)
def test_what_cannot_be_fitted_keeps_its_batch_and_says_why(
    tmp_path: Path, chatml_tokenizer: Path, changes: dict[str, Any], reason: str
) -> None:
    fit = fitted_batch(_recipe(tmp_path, chatml_tokenizer, [TWO_TOKENS], **changes))

    assert fit.values == {}
    assert f" to the data: {reason}" in fit.line
    (comment,) = fit.comments.values()
    assert comment.startswith("about 13,107 packs; ")
    assert f" to the data: {reason}" in comment
    assert "\n" not in fit.line + comment


def test_a_template_of_no_known_family_is_told_with_its_cure(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", GLM)
    fit = fitted_batch(_recipe(tmp_path, tokenizer, [chat_row("How deep?", "200 m")], preprocessing={"kind": "chat"}))

    assert " fitted to the data: tokenizer.name_or_path is '" in fit.line
    assert ". Set preprocessing.assistant_markers to {" in fit.line
    (comment,) = fit.comments.values()
    assert "Set preprocessing" not in comment


def test_an_error_of_a_library_is_a_reason(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no\nroom\x1b[31m")

    monkeypatch.setattr(fitting, "preview_recipe", broken)
    fit = fitted_batch(_recipe(tmp_path, chatml_tokenizer, [TWO_TOKENS]))

    assert fit.line.endswith(" data: RuntimeError: no room [31m")


def test_a_batch_of_packs_in_the_catalogue_is_replaced(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = write_json_lines(
        tmp_path / "rows.jsonl", [chat_row(f"{number} {'long ' * 300}", "x") for number in range(99)]
    )
    batch = {"batch.tokens_per_step": None, "batch.global_batch_size": 256}
    own = load_recipe("qwen3_8b_sft_4gpu_h100_bf16_recipe").override(batch)
    entry = CatalogueEntry(name=own.name, family="qwen3", target="own.yaml", recipe=own)
    wish = Wish(
        name="mine", model=own.name, num_gpus=4, seq_length=4096, data=str(rows), tokenizer=str(chatml_tokenizer)
    )

    new = SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(new_recipe(wish, [entry])))
    unfitted = YAML(typ="safe", pure=True).load(new_recipe(replace(wish, data="none.jsonl"), [entry]))

    assert new.batch.model_fields_set == {"tokens_per_step"}
    assert unfitted["batch"] == {"global_batch_size": 256}


@pytest.mark.parametrize(
    ("num_rows", "gpus", "fraction", "words"),
    [
        (400, 2, 0.02, "1 evaluation step"),
        (20, 1, 0.06, "1 evaluation step"),
        (10, 1, 0.11, "1 evaluation step"),
        (3, 1, 0.0, "takes 1 pack, more than 20% of these rows fill"),
        (1, 1, 0.0, "takes 1 pack, more than 20% of these rows fill"),
        (
            30,
            8,
            0.0,
            "takes 8 packs, more than 20% of these rows fill",
        ),
    ],
)
def test_rows_are_set_aside_for_a_step_of_evaluation_or_it_says_why_not(
    tmp_path: Path, chatml_tokenizer: Path, num_rows: int, gpus: int, fraction: float, words: str
) -> None:
    recipe = _recipe(
        tmp_path,
        chatml_tokenizer,
        [WHOLE_PACK] * num_rows,
        data__validation_fraction=0.02,
        parallelism__num_gpus=gpus,
    )

    fit = fitted_batch(recipe)

    assert fit.validation_fraction == fraction
    assert words in fit.line
    assert words in fit.comments["data.validation_fraction"]
    fitted = recipe.override({"data.validation_fraction": fraction, "batch": fit.values["batch"]})
    packs = build(fitted, tmp_path / "out").output
    report = check_target(fitted, CheckOptions(artifact=packs, looks_at_files=False, select=("BP60", "BP625")))
    assert not [one.code for one in report.findings if one.severity == "warning"]
    assert (packs / "validation").is_dir() == (fraction > 0)


def test_validation_data_that_fill_no_step_are_said(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = write_json_lines(tmp_path / "validation.jsonl", [WHOLE_PACK])
    changes = {"data__validation": str(rows), "parallelism__num_gpus": 2}
    recipe = _recipe(tmp_path, chatml_tokenizer, [WHOLE_PACK] * 99, **changes)

    fit = fitted_batch(recipe)

    assert "; no evaluation: 1 validation pack, " in fit.line
    assert fit.comments["schedule.eval_iters"] in fit.line
    assert fit.values["schedule"] == {"eval_iters": 0}


@pytest.mark.parametrize(("family", "is_split"), [("exchanges", True), ("keeping", False)])
def test_answers_are_trained_as_they_are_served_at_the_least_cost(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, family: str, is_split: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_family(tmp_path / "tokenizer", exchanges.FAMILIES[family])
    turns = [[{**turn, "content": f"{number} {turn['content']}"} for turn in TWO_THOUGHTS] for number in range(60)]
    thoughtful.write_rows(tmp_path / "rows.jsonl", turns)

    ran = command(*NEW, "--data", "rows.jsonl", "--tokenizer", folder)
    text = Path("mine.yaml").read_text()

    assert ran.code == 0
    assert ("split_conversations: when_context_differs # " in text) == is_split
    assert ("Trained answers as " in ran.output) == is_split  # what "keeping" writes behind the chat is no answer's
    recipe = load_recipe("mine.yaml")
    served = bridgepack.preview(recipe).served
    assert served is not None
    assert served.share("equal") == 1
    if is_split:
        before, after = (
            bridgepack.preview(recipe.override({"preprocessing.split_conversations": setting})).sources[0].tokens
            for setting in ("never", "when_context_differs")
        )
        assert before is not None
        assert after is not None
        ratio = 1 + after.added_fraction
        assert f"# {ratio:.1f} times the tokens, 100% " in text


@pytest.mark.parametrize(
    ("num_rows", "said"),
    [(2400, "4 packs a step"), (40_000, "about"), (9, "step takes at least 2")],
)
def test_the_command_says_the_fit_and_its_recipe_checks_clean(
    tmp_path: Path,
    chatml_tokenizer: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    num_rows: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "What is packing, and what is it good for? " * 3
    write_json_lines(tmp_path / "rows.jsonl", [chat_row(f"{number} {text}", text) for number in range(num_rows)])
    data = ("--data", "rows.jsonl", "--tokenizer", chatml_tokenizer)

    ran, dry = command(*NEW, *data), command(*NEW, *data, "--dry-run")
    *layout, line = ran.output.splitlines()[:-3]
    others = ran.output.splitlines()[-3:-1]

    assert (ran.code, ran.errors, others) == (0, "", ["wrote mine.yaml", "next: bridgepack check mine.yaml"])
    assert said in line
    assert (dry.code, dry.errors, dry.output) == (
        0,
        "".join(f"{one}\n" for one in (*layout, line)),
        (tmp_path / "mine.yaml").read_text(),
    )
    assert command("check", "mine.yaml").code == 0
    recipe = load_recipe("mine.yaml")
    preview = bridgepack.preview(recipe)
    assert preview.run is not None
    assert (recipe.batch.tokens_per_step or 0) == preview.run.global_batch_size * 4096


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_tokenizer_in_the_cache_is_used_without_the_hub(
    tmp_path: Path, chatml_tokenizer: Path, is_whole: bool
) -> None:
    write_json_lines(tmp_path / "rows.jsonl", [chat_row("What?", f"Answer {number}") for number in range(500)])
    cached = tmp_path / "cache" / "models--org--tokenizer"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    snapshot = shutil.copytree(chatml_tokenizer, cached / "snapshots" / "abc")
    if is_whole:
        (snapshot / "config.json").write_text('{"model_type": "qwen2"}')
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0", "NO_COLOR": "1"}

    ran = subprocess.run(
        [*CLI, *map(str, NEW), "--data", "rows.jsonl", "--tokenizer", "org/tokenizer"],
        cwd=tmp_path,
        env={**environment, "HF_ENDPOINT": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    unfitted = (
        "the batch is not fitted to the data: tokenizer.name_or_path is 'org/tokenizer'; it cannot be loaded: the"
    )
    assert ran.stdout.splitlines()[-4].startswith("500 rows, " if is_whole else unfitted)
    assert load_recipe(tmp_path / "mine.yaml").tokenizer.name_or_path == "org/tokenizer"
