"""`bridgepack report` and `build --report`: where files go, and what is refused."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

import bridgepack
from bridgepack.errors import ConfigError
from tests.support.small_builds import Command, tokenized_recipe, tokenized_row, write_json_lines, write_recipe


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    train = write_json_lines(tmp_path / "a|`b` <i>.jsonl", [tokenized_row(9, 5, 6, 7, 2) for _ in range(9)])
    held_out = write_json_lines(tmp_path / "held-out.jsonl", [tokenized_row(9, 5, 8, 2)])
    changes = {"data__validation": str(held_out), "batch__global_batch_size": 1}
    return write_recipe(tmp_path / "small.yaml", tokenized_recipe(train, chatml_tokenizer, **changes))


@pytest.fixture
def artifact(recipe: Path, command: Command) -> Path:
    assert command("build", recipe, "--output", "packed", "--num-workers", "1").code == 0
    return Path("packed")


def test_page_lies_in_a_valid_artifact_and_python_writes_the_same(artifact: Path, command: Command) -> None:
    ran = command("report", artifact)

    assert (ran.code, ran.errors) == (0, "")
    *wrote, found = ran.output.splitlines()
    assert wrote == ["wrote packed/report.html"]
    assert re.match(r"errors: 0, warnings: 1 \(BP\d{3} [a-z-]+\)", found)
    assert (artifact / "report.html").read_text().startswith("<!doctype html>")
    (artifact / "README.md").write_text("# Chats\n")
    assert command("check", artifact).code == command("inspect", artifact).code == 0
    assert command("report", artifact, "--output", "first.html").code == 0
    written = bridgepack.report("packed", output="second.html")
    assert not written.report.has_errors
    assert written.files == {"output": Path("second.html"), "sign_off": None}
    assert Path("second.html").read_text() == Path("first.html").read_text()


def test_build_writes_the_page_with_what_the_recipe_breaks(recipe: Path, command: Command) -> None:
    ran = command("build", recipe, "--output", "packed", "--num-workers", "1", "--report", "--check", "--json")
    found = json.loads(ran.output)

    assert (ran.code, found["report"], found["check"]["summary"]["num_errors"]) == (0, "packed/report.html", 0)
    assert Path("packed/report.html").is_file()
    again = command("build", recipe, "--output", "packed", "--report")
    assert (again.code, again.output.splitlines()[-1]) == (0, "report: packed/report.html")
    refused = command("build", recipe, "--dry-run", "--report")
    assert (refused.code, "--report needs the packs that --dry-run does not build" in refused.errors) == (2, True)
    broken = command("build", recipe, "--output", "packed", "--report", "--json", "--set", "batch.global_batch_size=64")
    assert (broken.code, broken.errors) == (1, "")
    assert "check" not in json.loads(broken.output)
    told = command("build", recipe, "--output", "packed", "--report", "--set", "batch.global_batch_size=64")
    *_, found, report = told.output.splitlines()
    assert (told.code, report) == (1, "report: packed/report.html")
    assert found.startswith("errors: 1 (BP601 fewer-packs-than-a-batch), warnings: ")
    page = Path("packed/report.html").read_text()
    assert "fewer-packs-than-a-batch" in page
    assert "environment of the run" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("packed", "--output", "packed/manifest.json"), "name that ends with .html"),
        (("packed", "--output", "packed/other.html"), "allowed there: report.html"),
        (("packed", "--output", "packed/training/report.html"), "allowed there: report.html"),
        (("packed", "--output", "small.yaml/x.html"), "--output is 'small.yaml/x.html'; it cannot be written"),
        (("foreign",), "--output is not given"),
        (("small.yaml",), "is a file. Give the folder of"),
        (("missing",), "does not exist. Give the folder of"),
        (("packed", "--given", "packed_sequence_size"), "allowed: name=value"),
    ],
)
def test_places_that_are_refused(artifact: Path, command: Command, arguments: tuple[str, ...], message: str) -> None:
    Path("foreign").mkdir()
    shutil.copy(next(artifact.glob("training/*.parquet")), "foreign/training_16.idx.parquet")
    before = sorted(map(str, Path().rglob("*")))
    ran = command("report", *arguments)

    assert (ran.code, ran.output) == (2, "")
    assert message in ran.errors
    assert sorted(map(str, Path().rglob("*"))) == before


def test_diff_writes_a_page(recipe: Path, artifact: Path, command: Command) -> None:
    changes = ("--set", "packing.packed_sequence_size=8", "--set", "preprocessing.over_long=drop")
    assert command("build", recipe, *changes, "--output", "other <b>").code == 0
    ran = command("diff", artifact, "other <b>", "--html", "diff.html")
    page = Path("diff.html").read_text()

    assert ran.code == 1
    assert "<strong>Different packs</strong>" in page
    assert "other &lt;b&gt;" in page
    assert re.search(r"packed_sequence_size</th>\s*<td>16</td>\s*<td>8</td>", page)
    assert page.count('role="img"') == 4
    same = command("diff", artifact, artifact, "--html", "same.html", "--json")
    assert (same.code, json.loads(same.output)["is_same"]) == (0, True)
    assert "<strong>The same packs</strong>" in Path("same.html").read_text()
    for place in ("packed/report.html", "diff.txt", "other <b>/training/x.html"):
        refused = command("diff", artifact, "other <b>", "--html", place)
        assert (refused.code, "--html is" in refused.errors, Path(place).exists()) == (2, True, False)


def test_report_needs_no_manifest_field_of_another_version(
    artifact: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=ConfigError("of another version"))
    monkeypatch.setattr("bridgepack.config.recipe.recipe.SFTRecipe.from_mapping", refuse)

    assert command("report", artifact).code == 0
    assert "&#34;packed_sequence_size&#34;: 16" in (artifact / "report.html").read_text()
