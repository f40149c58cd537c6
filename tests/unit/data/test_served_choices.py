"""What settings train of answers as they are served, and at which cost, measured on rows of a sample."""

from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.served.choices import ChoiceRows
from bridgepack.data.served.rows import ServedRows
from bridgepack.data.served.shares import AnswerSample
from bridgepack.data.served.switches import SwitchRows, find_switches
from bridgepack.planning.fitting import serving_of
from bridgepack.records import ServedRecord, Shares
from tests.support.messages import mentions
from tests.support.read_rows import read_row
from tests.support.small_builds import small_recipe, write_json_lines
from tests.zoo.families import FAMILIES, Family, write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

BY_NAME: dict[str, Family] = {family.name: family for family in (*FAMILIES, *SERVED_FAMILIES)}
SPLIT = {"preprocessing.split_conversations": "when_context_differs"}
LAST = {"preprocessing.loss_mode": "last_turn"}
FROM_PROMPT = {"preprocessing.mask_generation_prompt": True}


def _variables(**values: Any) -> dict[str, Any]:
    return {"tokenizer.chat_template_kwargs": values}


def _recipe(folder: Path, family: str, name: str) -> SFTRecipe:
    tokenizer = write_tokenizer(folder / "tokenizer", BY_NAME[family])
    rows = write_json_lines(folder / "rows.jsonl", [SETS[name]])
    preprocessing = {"kind": "chat", **BY_NAME[family].preprocessing}
    return small_recipe(rows, tokenizer, packing={"packed_sequence_size": 4096}, preprocessing=preprocessing)


def _choices(recipe: SFTRecipe, name: str) -> tuple[Shares, ...]:
    stage, kept, choices = load_stage(recipe.model_dump_json()), SwitchRows(), ChoiceRows()
    rows = ServedRows.of(stage)
    row = read_row(SETS[name])
    (answers,) = rows.answers([row])
    assert isinstance(answers, list)
    kept.add(row, answers)
    choices.add(row, len(answers))
    return choices.measure(stage, find_switches(rows, kept))


@pytest.mark.parametrize(
    ("setting", "kinds", "price"),
    [
        ({}, {"equal": 1, "answer-differs": 1}, "50% of the trained answers"),
        (SPLIT, {"equal": 2}, "1.6 times the tokens, 100% of the trained answers"),
        (LAST, {"equal": 1}, "50% of the answers trained, 100% of the trained answers"),
    ],
    ids=str,
)
def test_shares_of_a_setting(tmp_path: Path, setting: dict[str, Any], kinds: dict[str, int], price: str) -> None:
    stage = load_stage(_recipe(tmp_path, "Qwen3", "plain").model_dump_json())
    sample = AnswerSample(stage, [read_row(SETS["plain"])])

    shares, as_it_is = sample.shares(setting), sample.shares({})

    assert shares is not None
    assert as_it_is is not None
    assert dict(shares.kinds) == kinds
    assert mentions(shares.price(as_it_is), price)


def test_a_setting_that_the_recipe_cannot_have_has_no_shares(tmp_path: Path) -> None:
    stage = load_stage(_recipe(tmp_path, "Qwen3", "plain").model_dump_json())

    assert AnswerSample(stage, [read_row(SETS["plain"])]).shares(SPLIT | LAST) is None


@pytest.mark.parametrize(
    ("family", "name", "setting"),
    [
        ("Qwen2.5", "plain", None),
        ("Qwen3", "plain", SPLIT),
        ("Qwen3", "agents", SPLIT),
        ("Qwen3.5", "thoughts", _variables(preserve_thinking=True) | FROM_PROMPT),
        ("Qwen3.5", "plain", SPLIT | _variables(enable_thinking=False) | FROM_PROMPT),
        ("Nemotron", "agents", _variables(truncate_history_thinking=False) | FROM_PROMPT),
        ("MiniMax-M2", "thoughts", SPLIT | FROM_PROMPT),
        ("EXAONE-4", "plain", FROM_PROMPT),
        ("DeepSeek-R1", "plain", {}),
    ],
)
def test_what_is_chosen_trains_answers_as_they_are_served(
    tmp_path: Path, family: str, name: str, setting: dict[str, Any] | None
) -> None:
    recipe = _recipe(tmp_path, family, name)
    choices = _choices(recipe, name)

    serving = serving_of(recipe, ServedRecord(num_rows=1, counts=(), choices=choices))

    if setting is None:
        assert choices == ()
        return
    assert serving.choice is not None
    assert serving.choice.setting == setting
    assert serving.choice.served_fraction == (1 if setting else 0)
    again = _choices(serving.recipe, name)
    assert (again == ()) == bool(setting)


def _shares(setting: dict[str, Any], num_tokens: int, **kinds: int) -> Shares:
    return Shares(
        setting=setting, kinds={name.replace("_", "-"): num for name, num in kinds.items()}, num_tokens=num_tokens
    )


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([_shares(SPLIT, 160, equal=2), _shares(_variables(keep=True), 120, equal=2)], _variables(keep=True)),
        ([_shares(SPLIT, 500, equal=2), _shares(LAST, 100, equal=1)], SPLIT),
        ([_shares(SPLIT, 160, equal=1, answer_differs=1), _shares(LAST, 100, equal=1)], LAST),
        ([_shares(SPLIT, 160, answer_differs=2), _shares(LAST, 100, answer_differs=1)], {}),
    ],
    ids=str,
)
def test_the_least_cost(others: list[Shares], chosen: dict[str, Any], tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, "Qwen3.5", "plain")
    as_it_is = _shares({}, 100, equal=1, answer_differs=1)

    serving = serving_of(recipe, ServedRecord(num_rows=1, counts=(), choices=(as_it_is, *others)))

    assert serving.choice is not None
    assert serving.choice.setting == chosen
