"""Flags of EOS and BOS that Megatron-Core's wrapper takes away, as it fills in special tokens: named, with a cure."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.reporting.results.builds import build_blocks
from bridgepack.reporting.results.previews import preview_blocks
from bridgepack.reporting.results.served import served_blocks
from bridgepack.reporting.screen import screen
from tests.support.lost_flags import cured, with_flags
from tests.support.messages import mentions
from tests.support.small_builds import build, chat_row, small_recipe, write_json_lines
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

FAMILY = replace(
    next(family for family in SERVED_FAMILIES if family.name == "Qwen2.5"),
    tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
)
TEXT = "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"


def _tokenizer(folder: Path, **flags: tuple[str, ...]) -> Path:
    return with_flags(
        write_tokenizer(folder / "tokenizer", FAMILY), {f"<|{name}|>": names for name, names in flags.items()}
    )


def _config(folder: Path) -> Any:
    from bridgepack.config.recipe.data import TokenizerConfig

    return TokenizerConfig(name_or_path=str(folder))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"im_end": ("rstrip",)}, [("<|im_end|>", ("rstrip",), ("sep_token",))]),
        ({"im_end": ("lstrip", "rstrip")}, [("<|im_end|>", ("lstrip", "rstrip"), ("sep_token",))]),
        ({"endoftext": ("single_word",)}, [("<|endoftext|>", ("single_word",), ("cls_token",))]),
        ({"im_end": ("normalized",)}, []),  # nothing is normalised here, so no token changes
        ({"im_start": ("rstrip",)}, []),  # nothing is set to it
        ({}, []),
    ],
)
def test_lost_flags_and_their_cure(tmp_path: Path, flags: dict[str, Any], expected: list[Any]) -> None:
    from transformers import AutoTokenizer

    folder = _tokenizer(tmp_path, **flags)
    tokenizer = load_tokenizer(_config(folder))

    assert [(item.token, item.flags, item.names) for item in tokenizer.lost_flags] == expected
    assert ("lost_flags" in tokenizer.identity()) == bool(expected)
    served = AutoTokenizer.from_pretrained(folder).encode(TEXT, add_special_tokens=False)
    assert (tokenizer.encode(TEXT) == served) == (not expected or "single_word" in expected[0][1])

    after = load_tokenizer(_config(cured(folder, tokenizer.lost_flags)))
    assert after.lost_flags == ()
    assert after.encode(TEXT) == served == AutoTokenizer.from_pretrained(folder).encode(TEXT, add_special_tokens=False)


def test_one_finding_names_the_flag(tmp_path: Path) -> None:
    """In a preview, a build, a check of the packs, and beside answers as they are served; nothing else is said."""
    folder = _tokenizer(tmp_path, im_end=("rstrip",))
    rows = write_json_lines(tmp_path / "rows.jsonl", [chat_row("Hi", "Yes."), chat_row("Go", "No.")] * 2)
    recipe = small_recipe(rows, folder, preprocessing={"kind": "chat"}, packing={"packed_sequence_size": 512})

    preview, result = bridgepack.preview(recipe), build(recipe, tmp_path / "packs")
    served = bridgepack.prove.served(recipe, num_rows=None)
    checked = bridgepack.check(tmp_path / "packs")

    fields = '"sep_token": "<|im_end|>"'
    for text in (screen(preview_blocks(preview)), screen(build_blocks(result)), screen(served_blocks(served))):
        assert mentions(text, "warning: ", "'<|im_end|>'", "rstrip", fields, "tokenizer_config.json")
        assert "boundary-differs" not in text
    assert [count.kind for count in preview.served.counts] == ["equal"]
    assert (served.outcome, served.findings) == ("differs", ())
    findings = {finding.code: finding for finding in checked.findings}
    assert findings["BP527"].severity == "warning"
    assert mentions(findings["BP527"].fix, fields)
    assert not {"BP555", "BP556", "BP557", "BP558"} & findings.keys()
    assert bridgepack.prove.masks(recipe, num_rows=None).outcome == "agree"

    copy = cured(shutil.copytree(folder, tmp_path / "copy"), preview.lost_flags)
    after = bridgepack.prove.served(recipe.override({"tokenizer.name_or_path": str(copy)}), num_rows=None)
    assert (after.outcome, after.record.counts[0].num_answers) == ("equal", 4)


@pytest.mark.reference_data
def test_eos_with_rstrip(reference_data: Path, tmp_path: Path) -> None:
    cases = reference_data / "cases" / "answers4"
    if not cases.is_dir():
        pytest.skip("the reference data has no answers4")
    given = json.loads((cases / "eos_with_rstrip.recipe.yaml").read_text())
    recipe = small_recipe(
        cases / given["data"]["train"], cases / given["tokenizer"]["name_or_path"], preprocessing={"kind": "chat"}
    ).override({"packing.packed_sequence_size": 4096})

    report = bridgepack.prove.served(recipe, num_rows=None)

    (lost,) = report.lost_flags
    assert (lost.token, lost.flags, lost.names) == ("<|im_end|>", ("rstrip",), ("sep_token", "cls_token"))
    assert {count.kind: count.num_answers for count in report.record.counts} == {"equal": 76}
