"""The sample of answers in every build, and the template's own switches that are found with it."""

import re
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

import bridgepack
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.served import sample
from bridgepack.records import ServedRecord
from bridgepack.reporting.results.builds import build_blocks
from bridgepack.reporting.screen import screen
from tests.support.messages import mentions
from tests.support.small_builds import build, data_bytes, small_recipe, write_json_lines
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

BY_NAME = {family.name: family for family in SERVED_FAMILIES}


def _recipe(folder: Path, name: str = "Qwen3.5", rows: Any = (SETS["thoughts"],) * 30, **sections: Any) -> Any:
    family: Family = BY_NAME[name]
    tokenizer = folder / "tokenizer"
    if not tokenizer.exists():
        write_tokenizer(tokenizer, family)
    train = write_json_lines(folder / "rows.jsonl", rows)
    packing = {"packed_sequence_size": 512}
    preprocessing = {"kind": "chat", **family.preprocessing}
    return small_recipe(train, tokenizer, **{"packing": packing, "preprocessing": preprocessing, **sections})


def _shares(record: ServedRecord | None) -> dict[str, int]:
    assert record is not None
    return {count.kind: count.num_answers for count in record.counts}


def test_a_build_says_how_its_answers_are_served(tmp_path: Path) -> None:
    manifest = build(_recipe(tmp_path), tmp_path / "packed").manifest

    assert _shares(manifest.served) == {"context-differs": 30, "boundary-differs": 30}
    assert manifest.served is not None
    assert (manifest.served.num_rows, manifest.served.num_answers) == (30, 60)
    first = manifest.served.counts[0]
    assert (first.file_index, first.row, first.turn, first.is_row_exact) == (0, 1, 2, True)
    assert (manifest.served.switch, manifest.served.switch_value) == ("preserve_thinking", True)
    assert read_manifest(tmp_path / "packed") == manifest


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_and_little_memory_do_not_change_it(tmp_path: Path, num_workers: int) -> None:
    recipe = _recipe(tmp_path)
    alone = build(recipe, tmp_path / "alone")
    options = {"num_workers": num_workers, "memory_bytes": 512 << 20}
    together = build(recipe, tmp_path / "together", store=tmp_path / "store", **options)
    assert alone.manifest.served == together.manifest.served
    assert alone.manifest.fingerprint == together.manifest.fingerprint


@pytest.mark.parametrize("num_failures", [1, 2])
def test_a_sample_that_fails_is_tried_once_more_and_then_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_failures: int
) -> None:
    compare, failures = sample.sample_answers, [MemoryError("too small")] * num_failures

    def failing(*arguments: Any) -> ServedRecord:
        if failures:
            raise failures.pop()
        return compare(*arguments)

    monkeypatch.setattr(sample, "sample_answers", failing)
    result = build(_recipe(tmp_path), tmp_path / "packed")

    if num_failures == 1:
        assert (bool(_shares(result.manifest.served)), result.kept.served_message) == (True, None)
    else:
        assert result.manifest.served is None
        assert "MemoryError: too small" in screen(build_blocks(result))


def test_it_ends_after_some_hundred_answers(tmp_path: Path) -> None:
    record = build(_recipe(tmp_path, rows=[SETS["plain"]] * 4000), tmp_path / "packed").manifest.served
    assert record is not None
    assert 500 <= record.num_answers < 600


def test_another_server_needs_another_comparison_but_no_other_packs(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, "Qwen2.5", [SETS["plain"]])
    first = build(recipe, tmp_path / "packed")
    before = data_bytes(tmp_path / "packed")
    assert _shares(first.manifest.served) == {"equal": 2}
    assert bridgepack.build(recipe, output=tmp_path / "packed").was_built_before

    other = recipe.override({"serving.system": "Be kind."})
    second = bridgepack.build(other, output=tmp_path / "packed")

    assert not second.was_built_before
    assert _shares(second.manifest.served) == {"context-differs": 2}
    assert second.manifest.fingerprint == first.manifest.fingerprint
    assert data_bytes(tmp_path / "packed") == before


@pytest.mark.parametrize(
    "changes",
    [
        {"packing.seed": 3},
        {"packing.packed_sequence_size": 1024},
        {"packing.packed_sequence_size": 128, "preprocessing.over_long": "split"},
    ],
)
def test_a_repack_that_cuts_no_sequence_otherwise_keeps_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe = _recipe(tmp_path, "Qwen2.5", [SETS["plain"]])
    first = build(recipe, tmp_path / "packed").manifest.served

    again = bridgepack.repack(tmp_path / "packed", changes, output=tmp_path / "again")

    fresh = build(recipe.override(changes), tmp_path / "fresh").manifest.served
    assert again.manifest.served == fresh == first
    assert first is not None
    assert again.kept.served_message is None


def test_a_repack_that_cuts_otherwise_says_that_it_leaves_it_out(tmp_path: Path) -> None:
    plain = SETS["plain"]["messages"]
    recipe = _recipe(tmp_path, "Qwen2.5", [{"messages": plain}, {"messages": plain[:2]}])
    longest = build(recipe, tmp_path / "packed").manifest.splits[0].statistics.max_runtime_length
    changes = {"packing.max_sequence_length": longest - 1}

    shorter = bridgepack.repack(tmp_path / "packed", changes, output=tmp_path / "shorter")

    assert shorter.manifest.served is None
    note = f"the sample of answers as served is left out, because sequences of more than {longest - 1} runtime tokens"
    assert re.search(f"note: {note} are .*; `bridgepack prove served`", screen(build_blocks(shorter)))
    assert build(recipe.override(changes), tmp_path / "fresh").manifest.served is not None
    other = bridgepack.repack(tmp_path / "packed", {"serving.system": "Be kind."}, output=tmp_path / "kind")
    assert other.manifest.served is None
    assert "preprocessing or serving has" in screen(build_blocks(other))


def test_other_rows_have_none(tmp_path: Path, chatml_tokenizer: Path) -> None:
    train = write_json_lines(tmp_path / "rows.jsonl", [{"prompt": "Who?", "completion": "Me."}])
    recipe = small_recipe(train, chatml_tokenizer, preprocessing={"kind": "prompt_completion"})
    assert build(recipe, tmp_path / "packed").manifest.served is None
    assert bridgepack.preview(recipe).served is None


def test_preview_and_check_say_it(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, rows=[SETS["thoughts"]] * 3)
    build(recipe, tmp_path / "packed")
    assert _shares(bridgepack.preview(recipe).served) == {"context-differs": 3, "boundary-differs": 3}
    findings = {item.code: item for item in bridgepack.check(tmp_path / "packed", select=["BP55"]).findings}
    found = findings["BP555"]
    assert "50.0% of 6 sampled answers: context-differs, e.g. " in found.found
    assert mentions(found.found, "rows.jsonl row 1: turn 2: ", "tokens before the answer", "the server sends")
    assert found.allowed == "none"
    assert found.fix.startswith("Set tokenizer.chat_template_kwargs.preserve_thinking to true ")
    assert "--default-chat-template-kwargs '{\"preserve_thinking\": true}'" in found.fix
    assert "; and set preprocessing.mask_generation_prompt to true (1.3 times " in found.fix
    assert "preprocessing.mask_generation_prompt to true" in findings["BP557"].fix
