"""What a rule on artifacts and a rule on runs both see is reported once."""

from __future__ import annotations

from pathlib import Path

from bridgepack.checking.check import CheckOptions, check_target
from tests.support.artifact_mutations_rows import stored_lengths_aligned
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


def test_packs_of_an_earlier_host_are_reported_once(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [tokenized_row(*range(10 + index, 17 + index)) for index in range(16)]
    train = write_json_lines(tmp_path / "train.jsonl", rows)
    recipe = tokenized_recipe(train, chatml_tokenizer, packing__pad_seq_to_mult=4)
    packs = build(recipe, tmp_path / "packs").output
    stored_lengths_aligned.apply(packs)

    def codes(target: object, **options: object) -> set[str]:
        report = check_target(target, CheckOptions(looks_at_files=False, **options))  # type: ignore[arg-type]
        return {finding.code for finding in report.findings}

    assert codes(packs) & {"BP308", "BP967"} == {"BP308"}
    assert codes(recipe, artifact=packs) & {"BP308", "BP967"} == {"BP967"}
