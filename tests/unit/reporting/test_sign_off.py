"""The page that signs a run off: its figures are those of the manifest, and what was not checked is named."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.bridge.targets import load_target
from bridgepack.errors import ArtifactError, ConfigError
from tests.support.messages import mentions
from tests.support.small_builds import Command, chat_row, write_json_lines
from tests.zoo.tokenizers import TRAINS_USER_TURNS

ROWS = [chat_row(f"Question {number}?", f"Answer {number}.") for number in range(30)]


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    rows = [*ROWS, {"messages": [{"role": "user", "content": "<b>nobody</b>"}], "note": "some text that is not read"}]
    return {
        "name": "mine",
        "data": {"train": str(write_json_lines(tmp_path / "rows.jsonl", rows))},
        "tokenizer": {"name_or_path": str(chatml_tokenizer)},
        "packing": {"packed_sequence_size": 64},
        "parallelism": {"num_gpus": 2, "context_parallel_size": 2},
        "batch": {"global_batch_size": 2},
        "model": {"name": "qwen3_8b_sft_4gpu_h100_bf16_config"},
    }


def _text(path: Path) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", path.read_text(encoding="utf-8").split("</style>")[1]).split())


def test_page_says_what_will_run_on_what_and_what_nobody_checked(recipe: dict[str, Any]) -> None:
    built = bridgepack.build(recipe, output="packed")
    written = bridgepack.report("packed", recipe=recipe, sign_off="mine.html")
    text = _text(Path("mine.html"))
    numbers = built.manifest.splits[0].statistics

    assert written.files["sign_off"] == Path("mine.html")
    assert "tensor 1, pipeline 1, context 2, expert 1" in text
    assert "rows read 31, from 1 file" in text
    assert f"packed 30 rows as 30 sequences in {numbers.num_packs} packs" in text
    assert "dropped 1 (3.2%); no_assistant_mask 1" in text
    assert mentions(text, "are not used note (text, 3.2% of rows)")
    assert mentions(text, "30 of 30 sequences confirmed", "0 with findings")
    assert "equal 100.0%, of 30 answers compared" in text
    assert built.manifest.fingerprint in text
    assert all(finding.code in text for finding in written.report.findings if finding.severity != "advice")
    assert "not validated the run" in text
    assert "give it with" not in text


def test_a_recipe_with_other_settings_than_its_packs_is_named(recipe: dict[str, Any]) -> None:
    bridgepack.build(recipe, output="packed")
    bridgepack.report("packed", recipe=recipe, sign_off="same.html")
    other = {**recipe, "data": {"train": "others.jsonl"}, "packing": {"packed_sequence_size": 64, "seed": 9}}
    other["packing"] |= {"pad_cu_seqlens": True}  # of the host's loader, not of the packs
    bridgepack.report("packed", recipe=other, sign_off="other.html")
    same, text = _text(Path("same.html")), _text(Path("other.html"))

    assert "as in the packs" in same
    assert "than the packs'" not in same.replace("&#39;", "'")
    assert " 2 settings other " in text.replace("&#39;", "'")
    assert "data.train others.jsonl (packs: " in text
    assert re.search(r"; packing\.seed 9 \(packs: 1234\) ", text)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"packing.seed": 9}, "packing.seed 9 (packs: 1234)"),
        ({"packing.algorithm": "sequential"}, "packing.algorithm 'sequential' (packs: 'best_fit_decreasing')"),
        ({"data.train": "v2/rows.jsonl"}, "data.train 'v2/rows.jsonl' (packs: "),
        ({"data.validation_fraction": 0.5}, "data.validation_fraction 0.5 (packs: 0.0)"),
        ({"data.train": "rows.jsonl"}, ""),  # the same file, named from this folder
        ({"packing.packed_sequence_size": 128, "packing.max_sequence_length": None}, ""),  # BP108
        ({"preprocessing": {"kind": "tokenized"}}, ""),  # BP533
        ({"packing.pad_cu_seqlens": True, "batch.global_batch_size": 4, "tokenizer.engine": "tokenizers"}, ""),
    ],
)
def test_check_names_settings_of_rows_other_than_the_packs(
    recipe: dict[str, Any], changes: dict[str, Any], found: str
) -> None:
    bridgepack.build(recipe, output="packed")

    report = bridgepack.check(recipe, artifact="packed", overrides=changes, select=["BP117"])

    assert "BP117" in report.rules_run
    texts = [finding.found for finding in report.findings if finding.code == "BP117"]
    assert len(texts) == (found != "")
    assert all(text.startswith(found) for text in texts)


def test_page_of_packs_alone_says_that_their_run_was_not_judged(recipe: dict[str, Any]) -> None:
    write_json_lines(Path("rows.jsonl"), ROWS)
    bridgepack.build(recipe, output="packed")
    Path("rows.jsonl").unlink()
    bridgepack.report("packed", sign_off="alone.html")
    text = _text(Path("alone.html"))

    assert "on the packs alone" in text
    assert "The packs are ready" in text
    assert "run was not judged" in text
    assert "recipe of the run: " in text
    assert "Loss masks: not compared: " in text


def test_nothing_is_written_where_it_cannot_be_signed(recipe: dict[str, Any]) -> None:
    built = bridgepack.build(recipe, output="packed")
    shard = next(built.output.glob("training/*.parquet"))
    Path("other.parquet").write_bytes(shard.read_bytes())
    with pytest.raises(ArtifactError, match="has no manifest, "):
        bridgepack.report("other.parquet", output="page.html", sign_off="mine.html")
    with pytest.raises(ConfigError, match=r"--sign-off is 'packed/mine\.html', inside the folder"):
        bridgepack.report("packed", sign_off="packed/mine.html")
    assert not Path("mine.html").exists()
    assert not Path("page.html").exists()


def test_masks_in_doubt_are_part_of_the_verdict_and_of_the_exit_code(recipe: dict[str, Any], command: Command) -> None:
    write_json_lines(Path("rows.jsonl"), ROWS)
    Path("wrong.jinja").write_text(TRAINS_USER_TURNS)
    Path("mine.yaml").write_text(
        json.dumps({**recipe, "tokenizer": {**recipe["tokenizer"], "chat_template": "wrong.jinja"}})
    )
    bridgepack.build("mine.yaml", output="packed")
    checked = command("check", "packed")
    assert checked.code == 0
    ran = command("report", "packed", "--sign-off", "--json")
    assert ran.code == 1
    assert json.loads(ran.output)["num_doubted"] == 30
    text = _text(Path("sign-off.html"))
    assert "Not ready: 30 loss masks in doubt" in text


def test_a_run_that_plan_would_lay_out_differently_is_not_said_to_fit(recipe: dict[str, Any]) -> None:
    bridgepack.build(recipe, output="packed")
    bridgepack.report("packed", recipe=recipe, sign_off="mine.html")
    text = _text(Path("mine.html"))
    assert "run fits into memory" in text
    assert re.search(r"memory not estimated: .", text)


def test_pages_of_fewer_packs_than_a_step_needs_name_no_steps(recipe: dict[str, Any]) -> None:
    num_packs = bridgepack.build(recipe, output="packed").manifest.splits[0].statistics.num_packs
    for batch, steps in (
        (num_packs, f"1 of {num_packs} packs"),
        (128, f"fewer packs ({num_packs}) than one step needs (128)"),
    ):
        run = {**recipe, "batch": {"global_batch_size": batch}, "parallelism": {}}
        bridgepack.report("packed", recipe=run, output="page.html", sign_off="mine.html")
        page, signed = _text(Path("page.html")), _text(Path("mine.html"))
        is_short = batch > num_packs
        assert (f"Steps none {steps}" if is_short else f"Steps {steps}") in page
        assert (f"steps none: {steps}" if is_short else f"steps {steps}, ") in signed
        assert is_short or f"{steps}, over {num_packs} packs: 1.0 epochs" in signed


@pytest.mark.parametrize(("place", "kind"), [("packed", "an artifact"), ("saved.yaml", "a saved ConfigContainer")])
def test_a_report_refuses_a_target_without_a_recipe(tmp_path: Path, place: str, kind: str) -> None:
    (tmp_path / "packed").mkdir()
    sections = {name: {"_target_": f"megatron.bridge.{name}"} for name in ("model", "train", "dataset")}
    saved = {"_target_": "megatron.bridge.training.config.ConfigContainer", **sections}
    (tmp_path / "saved.yaml").write_text(json.dumps(saved))
    target = load_target(tmp_path / place)
    with pytest.raises(ConfigError, match=rf"^recipe is '\S+{place}', {kind}; allowed: FILE\.yaml.* Give a recipe\.$"):
        bridgepack.report("packed", recipe=target, output=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_long_sequences_are_shortened_and_long_lists_counted(recipe: dict[str, Any]) -> None:
    messages = [{"role": role, "content": f"<script>{role}" + "x " * 400} for role in ("user", "assistant") * 20]
    rows = [{"messages": messages, **{f"field{n}": "unread" for n in range(23)}} for _ in range(2)]
    write_json_lines(Path("rows.jsonl"), rows)
    bridgepack.build({**recipe, "packing": {"packed_sequence_size": 65536}}, output="packed")
    bridgepack.report("packed", sign_off="long.html")
    html = Path("long.html").read_text()
    assert "; and 3 more" in html
    assert re.search(r"\[\.\.\. \d+ more stretches \.\.\.\]", html)
    assert len(html) < 30_000
    assert "<script" not in html


def test_two_pages_do_not_share_a_file(recipe: dict[str, Any]) -> None:
    bridgepack.build(recipe, output="packed")
    with pytest.raises(ConfigError, match=r"--sign-off is 'one\.html', as --output is\. Choose another name"):
        bridgepack.report("packed", output="one.html", sign_off="one.html")
    assert not Path("one.html").exists()
