"""`bridgepack masks`: what it prints, its exit codes, and mistakes."""

import json
from pathlib import Path

import pytest

from tests.support.small_builds import Command, chat_row, tokenized_recipe, with_changes, write_json_lines, write_recipe

#: The user's turns are in generation blocks, too.
WRONG = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.role != 'system' -%}
    {%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}
  {%- endif -%}
  {{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    train = write_json_lines(
        tmp_path / "chats.jsonl", [chat_row("Who\x1b asks?", f"User {index}.") for index in range(4)]
    )
    chat = with_changes(tokenized_recipe(train, chatml_tokenizer), {"preprocessing": {"kind": "chat"}})
    return write_recipe(tmp_path / "chats.yaml", chat)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    (tmp_path / "wrong.jinja").write_text(WRONG)
    return f"tokenizer.chat_template={tmp_path / 'wrong.jinja'}"


def test_masks_that_agree(recipe: Path, command: Command) -> None:
    ran = command("masks", recipe)
    assert ran.code == 0

    assert ran.output.splitlines() == [
        f"{recipe}: a sample of rows, seed 0, 4 of 4",
        "  4 sequences: 4 judged by 2 derivations",
        "  incremental rendering  judged 4",
        "  boundary markers       judged 4",
        "",
        "masks agree: 4 of 4 sequences",
    ]


def test_masks_that_disagree(recipe: Path, wrong: str, command: Command) -> None:
    ran = command("masks", recipe, "--all", "--limit", 2, "--set", wrong)
    assert ran.code == 1
    lines = ran.output.splitlines()
    assert lines[0].endswith(": every row, 4 of 4")
    heading = lines.index(f"other-turn-trained: {recipe.parent / 'chats.jsonl'} row 1, message 1 (training)")
    assert "disagreeing: incremental rendering, boundary markers" in lines[heading + 1]
    assert "⟦Who\N{REPLACEMENT CHARACTER} asks?<|im_end|>⟧" in lines[heading + 2]
    assert "⟦" not in lines[heading + 3].partition("assistant\\n")[0]
    assert "... and 2 more findings (--limit shows more)" in lines
    assert lines[-2].split() == ["other-turn-trained", "4", "sequences"]
    assert lines[-1] == "masks disagree: 4 of 4 sequences with findings"


def test_masks_as_json(recipe: Path, wrong: str, command: Command) -> None:
    ran = command("masks", recipe, "--sample", 1, "--json", "--set", wrong)
    assert ran.code == 1

    report = json.loads(ran.output)
    assert report["outcome"] == "disagree"
    assert report["num_rows_read"] == 1
    assert report["findings"][0]["finding"]["derivations"] == ["incremental rendering", "boundary markers"]
    assert report["derivations"][0]["name"] == "generation blocks"


def test_nothing_to_judge(recipe: Path, command: Command) -> None:
    write_json_lines(recipe.parent / "chats.jsonl", [{"messages": []}])
    ran = command("masks", recipe)
    assert ran.code == 2
    output = ran.output
    assert "rows dropped: empty_conversation 1" in output
    assert output.endswith("not compared: none of 0 sequences could be judged\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.yaml",), "recipe is 'nowhere.yaml'; there is no such file"),
        (("",), "recipe is ''; allowed: FILE.yaml"),
        ((".",), "has no manifest.json, so it is not an artifact"),
        (("RECIPE", "--all", "--sample", "3"), "--all and --sample contradict each other"),
        (("RECIPE", "--all", "--seed", "3"), "--all and --seed contradict each other"),
        (("RECIPE", "--sample", "0"), "'0' is not a whole number of at least 1."),
        (("RECIPE", "--split", "validation"), "data.validation has no files: it is not set"),
        (("RECIPE", "--set", "data.train=gone.jsonl"), "data.train is 'gone.jsonl'; there is no such file"),
        (("RECIPE", "--set", "packing.size=3"), "packing.size"),
    ],
)
def test_mistakes(
    arguments: tuple[str, ...], message: str, recipe: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)
    ran = command("masks", *(recipe if argument == "RECIPE" else argument for argument in arguments))
    assert ran.code == 2

    assert ran.output == ""
    assert ran.errors.startswith("error: ")
    assert message in ran.errors
