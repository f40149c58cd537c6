"""Served answers: family x set of conversations x setting, with the share that is trained as served, by encoding."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bridgepack.config.layouts.shapes import shapes_of
from bridgepack.config.recipe.data import DataConfig
from bridgepack.config.recipe.readings import detected_reading
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.reader import RowReader
from bridgepack.data.sequences.encoding import encode_rows
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.served.rows import ServedRows
from bridgepack.data.served.switches import NO_SWITCH, Switch, Switches, SwitchRows, find_switches
from bridgepack.errors import RowError
from tests.zoo.families import Family, write_tokenizer

from .served_rows import SETS

#: Numbers of the conversations of a set: one in seven has one digit.
NUMBERS = (5, *range(20, 26))
_MASKED = {"preprocessing.mask_generation_prompt": True, "preprocessing.masks_control_tokens": False}
_SPLIT = {**_MASKED, "preprocessing.split_conversations": "when_context_differs"}


class Measured(NamedTuple):
    """What a setting gives for a set."""

    num_equal: int
    num_answers: int
    num_tokens: int
    num_dropped: int


def rows_of(name: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return conversations of a set; their numbers differ."""
    return [_numbered(SETS[name], number) for number in numbers]


def _numbered(value: Any, number: int) -> Any:
    """Return a value with another number in each of its texts that end with a stop or a question mark."""
    if isinstance(value, str):
        return value.replace(".", f" {number}.") if value.endswith(".") else value.replace("?", f" {number}?")
    if isinstance(value, dict):
        return {key: item if key in ("tools", "type") else _numbered(item, number) for key, item in value.items()}
    return [_numbered(item, number) for item in value] if isinstance(value, list) else value


def measured(recipe: SFTRecipe, rows: list[dict[str, Any]]) -> Measured:
    """Return the counts of a recipe's answers."""
    stage = load_stage(recipe.model_dump_json())
    columns = _columns(recipe, rows)
    found = ServedRows.of(stage).answers(columns)
    made = [one for one in encode_rows(stage.encoder, columns) if not isinstance(one, RowError)]
    answers = [answer for one in found if not isinstance(one, RowError) for answer in one]
    return Measured(
        num_equal=sum(answer.kind == "equal" for answer in answers),
        num_answers=len(answers),
        num_tokens=sum(len(piece.ids) for pieces in made for piece in pieces),
        num_dropped=sum(isinstance(one, RowError) for one in found),
    )


def switches_of(recipe: SFTRecipe, rows: list[dict[str, Any]]) -> Switches:
    """Return the template's switches that cure the first conversation."""
    served, kept = ServedRows.of(load_stage(recipe.model_dump_json())), SwitchRows()
    (columns,) = _columns(recipe, rows[:1])
    (answers,) = served.answers([columns])
    if not isinstance(answers, RowError):
        kept.add(columns, answers)
    return find_switches(served, kept)


def _columns(recipe: SFTRecipe, rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    shapes = shapes_of(rows, kind=recipe.preprocessing.kind)
    names, layouts = [shape.name for shape in shapes], [shape.layout for shape in shapes]
    reader = RowReader(detected_reading(recipe.preprocessing, layouts, names))
    return [reader.read(row) for row in rows]


def served_cells(family: Family, folder: Path) -> dict[str, dict[str, str]]:
    """Return `family: set` -> setting -> cell as Markdown."""
    tokenizer = write_tokenizer(folder, family)
    values = {
        "name": "served",
        "data": DataConfig(train="rows.jsonl").model_dump(),
        "tokenizer": {"name_or_path": str(tokenizer), "template_date": "2025-06-30"},
        "packing": {"packed_sequence_size": 8192},
        "preprocessing": {"kind": "chat", **family.preprocessing},
    }
    recipe = SFTRecipe.model_validate(values)
    return {f"{family.name}: {name}": _cells_of(recipe, rows_of(name, NUMBERS)) for name in SETS}


def _cells_of(recipe: SFTRecipe, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return setting -> cell of some conversations."""
    default, switches = measured(recipe, rows), switches_of(recipe, rows)
    boundary, split = (
        measured(recipe.override(settings), rows) for settings in (_MASKED, {**_SPLIT, **_set(switches.prompt)})
    )
    cells = {"default": _cell(default, default), "boundary": _cell(boundary, default), "switch": ""}
    if switches != Switches():
        switch = measured(recipe.override({**_MASKED, **_set(*switches)}), rows)
        cells["switch"] = _cell(switch, default) + _named(*switches)
    return {**cells, "split": _cell(split, default) + _named(switches.prompt)}


def _set(*switches: Switch) -> dict[str, Any]:
    """Return what sets switches in a recipe."""
    return {f"tokenizer.chat_template_kwargs.{one.name}": one.value for one in switches if one != NO_SWITCH}


def _named(*switches: Switch) -> str:
    return "".join(f", `{switch.name}: {str(switch.value).lower()}`" for switch in switches if switch != NO_SWITCH)


def _cell(counts: Measured, default: Measured) -> str:
    dropped = f" ({counts.num_dropped} dropped)" if counts.num_dropped else ""
    if not counts.num_answers:
        return f"none{dropped}"
    tokens = f", {counts.num_tokens / default.num_tokens:.2f} x" if default.num_tokens and counts is not default else ""
    return f"{counts.num_equal / counts.num_answers:.0%}{tokens}{dropped}"
