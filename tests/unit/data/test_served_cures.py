"""What is proposed against answers that are not trained as they are served, whatever a recipe has set already."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from scripts.quirks.served_rows import SETS

import bridgepack
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.records import CURING_SETTINGS, ServedKind
from bridgepack.records.served import served_cure
from tests.support.messages import mentions
from tests.support.small_builds import build, small_recipe, write_json_lines
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

KINDS = (ServedKind.CONTEXT, ServedKind.ANSWER, ServedKind.BOUNDARY)
_PROPOSAL = re.compile(r"preprocessing\.(\w+) to (\w+)")


def _valid_settings() -> list[ChatPreprocessing]:
    """Return all settings that a recipe may have, of those that cures propose."""
    defaults = ChatPreprocessing()
    values = {name: (getattr(defaults, name), *others) for name, others in CURING_SETTINGS.items()}
    found = []
    for combination in product(*values.values()):
        try:
            found.append(ChatPreprocessing.model_validate(dict(zip(values, combination, strict=True))))
        except ValidationError:
            continue
    return found


def _taken(settings: ChatPreprocessing) -> dict[str, object]:
    return {name: value for name, on in CURING_SETTINGS.items() if (value := getattr(settings, name)) in on}


def _typed(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_proposed_is_new_and_allowed(kind: ServedKind) -> None:
    """Clauses with `; ` and `, or ` between them are alternatives; those of one clause go together."""
    num_checked = 0
    for settings in _valid_settings():
        for clause in re.split(r"; |, or ", served_cure(kind, _taken(settings))):
            changes = {name: _typed(value) for name, value in _PROPOSAL.findall(clause)}
            for name, value in changes.items():
                assert getattr(settings, name) != value, (settings, clause)
                num_checked += 1
            ChatPreprocessing.model_validate({**settings.model_dump(), **changes})
    assert num_checked > 10


@pytest.mark.parametrize(
    ("kind", "settings", "cure"),
    [
        (
            ServedKind.ANSWER,
            {"split_conversations": "when_context_differs"},
            "preprocessing.split_conversations is when_context_differs already",
        ),
        (
            ServedKind.BOUNDARY,
            {"mask_generation_prompt": True, "masks_control_tokens": False},
            "preprocessing.mask_generation_prompt is true already; set tokenizer.chat_template_kwargs",
        ),
    ],
)
def test_what_is_left_is_said(kind: ServedKind, settings: dict[str, object], cure: str) -> None:
    assert mentions(served_cure(kind, settings), cure)


def test_an_artifact_knows_what_is_set(tmp_path: Path) -> None:
    """Without its thoughts, Qwen3.5's prompt begins an empty one; splitting does not change that."""
    family = next(family for family in SERVED_FAMILIES if family.name == "DeepSeek-R1")
    tokenizer = write_tokenizer(tmp_path / "tokenizer", family)
    train = write_json_lines(tmp_path / "rows.jsonl", [SETS["plain"]] * 3)
    chat = {"kind": "chat", **family.preprocessing, "split_conversations": "when_context_differs"}
    recipe = small_recipe(train, tokenizer, preprocessing=chat, packing={"packed_sequence_size": 512})
    manifest = build(recipe, tmp_path / "packed").manifest

    assert manifest.served is not None
    assert manifest.served.settings == {"split_conversations": "when_context_differs"}
    assert read_manifest(tmp_path / "packed").served == manifest.served
    assert bridgepack.preview(recipe).served == manifest.served
    (found,) = bridgepack.check(tmp_path / "packed", select=["BP555"]).findings
    assert found.allowed == "none"
    assert "split_conversations is when_context_differs already" in found.fix


@pytest.mark.parametrize(("rows", "num_dropped"), [("plain", 3), ("thoughts", 0)])
def test_cure_of_boundaries_says_how_many_rows_it_would_drop(tmp_path: Path, rows: str, num_dropped: int) -> None:
    """Step-3.5's prompt begins a thought, which plain rows do not have, and no variable changes that."""
    family = next(family for family in SERVED_FAMILIES if family.name == "Step-3.5")
    tokenizer = write_tokenizer(tmp_path / "tokenizer", family)
    train = write_json_lines(tmp_path / "rows.jsonl", [*[SETS[rows]] * 3, SETS["thoughts"]])
    chat = {"kind": "chat", **family.preprocessing}
    recipe = small_recipe(train, tokenizer, preprocessing=chat, packing={"packed_sequence_size": 512})

    served = build(recipe, tmp_path / "packed").manifest.served
    masked = recipe.override({"preprocessing.mask_generation_prompt": True})
    cured = build(masked, tmp_path / "cured").manifest

    assert served is not None
    assert cured.served is not None
    assert (served.num_rows_tried, served.num_rows_dropped) == (4, num_dropped)
    assert sum(cured.splits[0].drops.values()) == num_dropped
    assert "preprocessing.mask_generation_prompt to true" in served.cure(ServedKind.BOUNDARY)
    (found,) = bridgepack.check(tmp_path / "packed", select=["BP557"]).findings
    assert found.allowed == "none"
    assert "preprocessing.mask_generation_prompt to true" in found.fix
    assert bridgepack.prove.served(recipe, num_rows=None).record == replace(served, choices=())
    assert read_manifest(tmp_path / "packed").served == served
    assert cured.served.num_rows_tried == 0
    written = json.loads((tmp_path / "cured" / "manifest.json").read_text())["served"]
    assert "num_rows_tried" not in written


@pytest.mark.parametrize(
    ("family", "helps"),
    [("Laguna XS.2", False), ("DeepSeek-R1", False), ("Step-3.5", True)],
)
def test_splitting_is_proposed_only_where_it_helps(tmp_path: Path, family: str, helps: bool) -> None:
    """A Laguna's prompt says that there is no thought; the thought stands there even if the answer is the last."""
    found = next(one for one in SERVED_FAMILIES if one.name == family)
    tokenizer = write_tokenizer(tmp_path / "tokenizer", found)
    train = write_json_lines(tmp_path / "rows.jsonl", [SETS["thoughts"]] * 2)
    chat = {"kind": "chat", **found.preprocessing}
    recipe = small_recipe(train, tokenizer, preprocessing=chat, packing={"packed_sequence_size": 512})

    served = bridgepack.prove.served(recipe, num_rows=None).record
    cure = served.cure(ServedKind.CONTEXT)
    assert served.share(ServedKind.CONTEXT) > 0
    assert served.is_never_shown is not helps
    assert ("set preprocessing.split_conversations to when_context_differs" in cure) is helps
    assert ("change the thoughts" in cure) is not helps


@pytest.mark.reference_data
def test_answers_that_no_split_shows_are_counted(reference_data: Path, tmp_path: Path) -> None:
    """LFM2.5 takes a thought out of the answer before as soon as another follows: no sequence shows both as served."""
    cases = reference_data / "cases" / "answers4"
    if not cases.is_dir():
        pytest.skip("the reference data has no answers4")
    given = json.loads((cases / "lfm25.recipe.yaml").read_text())
    chat = {"kind": "chat", "split_conversations": "when_context_differs"}
    recipe = small_recipe(
        cases / given["data"]["train"], cases / given["tokenizer"]["name_or_path"], preprocessing=chat
    ).override({"packing.packed_sequence_size": 65536, "tokenizer.template_date": "2026-01-02"})
    whole = recipe.override({"preprocessing.split_conversations": "never"})

    counts = [
        {count.kind: count.num_answers for count in bridgepack.prove.served(item, num_rows=None).record.counts}
        for item in (whole, recipe)
    ]
    build(recipe, tmp_path / "packed")
    (found,) = bridgepack.check(tmp_path / "packed", select=["BP555"]).findings

    assert counts[0] == {"equal": 158, "context-differs": 7, "answer-differs": 7, "refused": 1}
    assert counts[1] == {"equal": 163, "context-differs": 7, "answer-differs": 2, "refused": 1}
    assert mentions(found.found, "4.0% of 173 sampled answers", "turn 5", "splitting does not help")
    cure = {"tokenizer.chat_template_kwargs": {"keep_past_thinking": True}}
    assert "tokenizer.chat_template_kwargs.keep_past_thinking to true" in found.fix
    cured = bridgepack.prove.served(recipe.override(cure), num_rows=None).record.counts
    assert "context-differs" not in {count.kind for count in cured}
