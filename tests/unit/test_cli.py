"""The command: exit codes, standard output and standard error, never a traceback, and what a shell offers."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bridgepack import __version__
from bridgepack.cli import bridgepack as bridgepack_command
from bridgepack.cli.main import COMMANDS as COMMANDS_OF_MODULES
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.small_builds import CLI, Command, file_bytes
from tests.support.traced_artifacts import change_manifest

#: A batch for which the few packs of these tests are enough.
ONE_PACK = ("--set", "batch.global_batch_size=1")


@pytest.fixture(autouse=True)
def is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep lines of progress, which a slow machine prints, out of what is compared."""
    monkeypatch.setattr("bridgepack.reporting.progress._LINE_S", 600)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[str, bytes]:
    """Return the files of the folder that every test starts with."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows = [*[small.tokenized_row(10 + index, 5, 6, 7) for index in range(20)], {"\x1b[31mred": 1}, {}]
        small.write_json_lines(Path("a.jsonl"), rows)
        recipe = small.tokenized_recipe("a.jsonl", chatml_tokenizer)
        small.write_recipe(Path("recipe.yaml"), recipe)
        small.build(recipe, Path("artifact"))
    return file_bytes(folder)


@pytest.fixture(autouse=True)
def folder(template: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in template.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands_below(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands_below(command.get_command(context, name), (*words, name))


def test_help_has_one_vocabulary_and_summaries_that_fit_their_line(command: Command) -> None:
    allowed = {"AGE", "ARTIFACT", "CLUSTER", "CODE", "FILE", "FILE:ROW", "FOLDER", "FOLDER|URL", "GPU", "HOST:PORT"}
    allowed |= {
        "MODEL",
        "MODULE",
        "N",
        "NAME",
        "NAME=FILE",
        "NAME=VALUE",
        "PATH=VALUE",
        "RECIPE",
        "SECONDS",
        "SIZE",
        "TASK",
        "VERSION",
    }
    shown = set()
    for words, one in commands_below(bridgepack_command):
        assert command(*words, "--help").output.startswith("Usage: "), words
        options = [item for item in one.params if isinstance(item, click.Option) and not item.is_flag]
        shown |= {item.make_metavar(click.Context(one)) for item in options if not isinstance(item.type, click.Choice)}
        if isinstance(one, click.Group):
            assert "..." not in command(*words, "--help").output.partition("Options:")[2]
    assert shown == allowed | {"here|FILE"}
    assert command("--version") == (0, f"bridgepack, version {__version__}\n", "")


def test_build_says_what_it_did_and_the_second_time_that_it_is_done(command: Command) -> None:
    first = command("build", "recipe.yaml", "--output", "out")
    second = command("build", "recipe.yaml", "--output", "out")

    assert (first.code, first.errors, second.code, second.errors) == (0, "", 0, "")
    assert first.output.startswith("Built out\n")
    assert "rows in             22" in first.output
    assert "missing_field                      2   e.g. a.jsonl row 21: " in first.output
    assert "every dropped row: out/plan/dropped.jsonl" in first.output
    of_use = "\n1 of 1 input ranges were tokenised before; 0 of 1 shards were written before\n"
    assert of_use in first.output
    assert first.output.endswith(
        "\nwarning: training cannot start: 4 packs < global batch 128. "
        "Set batch.global_batch_size to at most 4 packs.\n"
    )
    told = first.output.replace(of_use, "").replace("Built out", "Already built, nothing to do: out")
    assert second.output == told


def _files_but_tokens(folder: Path) -> dict[str, bytes]:
    """Return path -> bytes of every file but those of token stores, which keep what was tokenised."""
    return {name: content for name, content in file_bytes(folder).items() if ".bridgepack/" not in name}


def test_build_says_what_it_replaced(command: Command) -> None:
    fingerprint = json.loads(Path("artifact/manifest.json").read_text())["fingerprint"]
    before = file_bytes(Path())
    refused = command("build", "recipe.yaml", "--output", "artifact", "--set", "packing.seed=7")
    assert refused.code == 2
    assert f"its fingerprint is {fingerprint[:12]}" in refused.errors
    assert "what differs: packing.seed 1234 -> 7" in refused.errors
    assert "--replace" in refused.errors
    assert file_bytes(Path()) == before

    ran = command("build", "recipe.yaml", "--output", "artifact", "--set", "packing.seed=7", "--replace")

    assert ran.output.startswith(f"Built artifact (replaced the artifact {fingerprint[:12]})\n")
    Path("artifact/bridge_metadata.json").unlink()
    ran = command("build", "recipe.yaml", "--output", "artifact", "--set", "packing.seed=7")
    why = "because the old one was changed: bridge_metadata.json: it is missing"
    assert ran.output.startswith(f"Built artifact again, {why}\n")


@pytest.mark.parametrize("more", [[], ["--replace"]])
def test_build_over_a_flipped_bit_says_so_and_builds_again(command: Command, more: list[str]) -> None:
    before = file_bytes(Path("artifact"))
    shard = next(Path("artifact/training").glob("*.parquet"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    line = ["build", "recipe.yaml", "--output", "artifact", *more]

    planned, ran = command(*line, "--dry-run"), command(*line, "--json")

    why = rf"because the old one was changed: training/{shard.name}: its sha256 is \w+; the manifest says \w+"
    assert re.match(rf"would do: build, .*replace the artifact \w+, {why}\n", planned.output), planned
    built = json.loads(ran.output)
    assert (ran.code, built["was_built_before"], list(built["damage"])) == (0, False, [f"training/{shard.name}"])
    assert file_bytes(Path("artifact")) == before
    assert re.match(r"Already built, .*: artifact\n", command(*line).output)


def test_names_of_inputs_cannot_steer_the_terminal(command: Command) -> None:
    Path("in").mkdir()
    Path("a.jsonl").rename("in/\x1b[2Ja.jsonl")
    build_in = ("build", "recipe.yaml", "--output", "out", "--set", "data.train=in")
    told = [command(*build_in, "--dry-run"), command(*build_in), command("inspect", "out")]
    told.append(command("inspect", "out", "--pack", "0"))

    for ran in told:
        assert "\N{REPLACEMENT CHARACTER}[2Ja.jsonl" in ran.output
        assert "\x1b" not in ran.output


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["build", "recipe.yaml", "--output", "out", "--json"], "splits"),
        (["build", "recipe.yaml", "--output", "artifact", "--json"], "was_built_before"),
        (["build", "recipe.yaml", "--output", "artifact", "--json", "--check", *ONE_PACK], "check"),
        (["build", "recipe.yaml", "--output", "out", "--json", "--dry-run"], "is_built"),
        (["check", "artifact", "--json"], "findings"),
        (["inspect", "artifact", "--json"], "fingerprint"),
        (["inspect", "artifact", "--pack", "0", "--json"], "sequences"),
    ],
)
def test_json_is_all_there_is_on_standard_output(command: Command, arguments: list[str], key: str) -> None:
    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    ran = command(*arguments)

    assert (ran.code, ran.errors) == (0, "")
    assert key in json.loads(ran.output, parse_constant=refuse)


def test_dry_run_says_what_would_be_done_and_writes_nothing(command: Command) -> None:
    before = file_bytes(Path())
    fresh = command("build", "recipe.yaml", "--dry-run")
    built = command("build", "recipe.yaml", "--output", "artifact", "--dry-run")
    other = command("build", "recipe.yaml", "--output", "artifact", "--dry-run", "--set", "packing.seed=7")

    assert fresh.output.startswith("would do: build\noutput: artifacts/small-")
    assert built.output.startswith("would do: nothing: ")
    assert re.match("would do: build, .*replace the artifact ", other.output)
    assert "pad_seq_to_mult = 1 (lcm over " in fresh.output
    assert '"seed": 7' in other.output
    assert file_bytes(Path()) == before


def test_build_writes_where_the_recipe_says(command: Command) -> None:
    ran = command("build", "recipe.yaml", "--set", "artifact=packed", "--json")
    planned = command("build", "recipe.yaml", "--set", "artifact=packed", "--dry-run")
    elsewhere = command("build", "recipe.yaml", "--set", "artifact=packed", "--output", "out", "--json")

    assert [json.loads(one.output)["output"] for one in (ran, elsewhere)] == ["packed", "out"]
    assert re.match(r"would do: nothing: .*\noutput: packed", planned.output)
    assert sorted(path.name for path in Path().glob("*/manifest.json")) == ["manifest.json"] * 3


def test_build_with_check_judges_recipe_and_artifact(command: Command) -> None:
    build = ("build", "recipe.yaml", "--output", "out", "--check")
    sound, again = command(*build, *ONE_PACK), command(*build, *ONE_PACK, "--json")
    broken, supply = command(*build, "--set", "batch.micro_batch_size=2"), command(*build)

    assert (sound.code, sound.errors, broken.code, supply.code) == (0, "", 1, 1)
    assert sound.output.startswith("Built out")
    assert "rules" in sound.output
    assert "error[BP601]: fewer-packs-than-a-batch" in supply.output
    assert "BP607" not in supply.output  # the recipe counts epochs; the steps follow from them
    assert (again.code, json.loads(again.output)["check"]["summary"]["num_errors"]) == (0, 0)
    assert "micro_batch_size" in broken.output
    assert Path("out/manifest.json").exists()


def test_build_with_check_judges_the_recipe_that_it_took_beside_a_folder_of_its_name(command: Command) -> None:
    Path("recipes").mkdir()
    Path("recipe.yaml").rename("recipes/small.yaml")
    Path("small").mkdir()
    ran = command("build", "small", "--output", "out", "--check", "--json", *ONE_PACK)

    assert (ran.code, ran.errors) == (0, "")
    assert json.loads(ran.output)["check"]["summary"]["num_errors"] == 0
    broken = command("build", "small", "--output", "small", "--check", "--set", "batch.micro_batch_size=2")
    assert (broken.code, "batch.micro_batch_size" in broken.output) == (1, True)


@pytest.mark.parametrize("name", COMMANDS_OF_MODULES)
def test_list_of_commands_says_what_each_says_itself(name: str) -> None:
    *_, summary = COMMANDS_OF_MODULES[name]

    command: Any = bridgepack_command.get_command(click.Context(bridgepack_command), name)

    assert " ".join(command.help.split()).startswith(summary)
    assert summary.endswith(".")


def test_inspect(command: Command) -> None:
    summary = command("inspect", "artifact")
    pack = command("inspect", "artifact", "--pack", "0")
    first = command("inspect", "artifact", "--pack", "0", "--limit", "1")

    assert "in runtime tokens, training" in summary.output
    assert pack.output.startswith("training pack 0: 5 sequences, 15 of 16 runtime tokens, 1 empty\n")
    assert pack.output.count("--- sequence ") == 5
    assert "a.jsonl row " in pack.output
    assert "⟦" in pack.output
    assert first.output.count("--- sequence ") == 1


def test_inspect_without_the_tokenizer_or_the_plan(command: Command) -> None:
    change_manifest(Path("artifact"), tokenizer__name_or_path="./gone", files=[])
    Path("artifact/plan/training.parquet").unlink()

    ran = command("inspect", "artifact", "--pack", "0")

    assert ran.code == 0
    assert "shown as token ids: " in ran.output
    assert "[5] [6] [7]" in ran.output
    assert "source unknown" in ran.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: "),
        (
            ["recipes", "layouts", "extra"],
            "`bridgepack recipes layouts --help` lists",
        ),
        (["biuld"], "No such command 'biuld'. Did you mean 'build'? `bridgepack --help` lists"),
        (["xyz"], "No such command 'xyz'. `bridgepack --help` lists"),
        (["build"], "Missing argument 'RECIPE'."),
        (["new", "mine", "--model", "Qwen/Qwen3-8B"], "Missing option '--num-gpus'"),
        (["new", "mine"], "Missing option '--model'"),
        (["build", "recipe.yaml", "--nope"], "No such option"),
        (["build", "recipe.yaml", "--num-workers", "0"], "Invalid value for '--num-workers'"),
        (["build", "none.yaml"], "error: recipe is 'none.yaml'"),
        (["build", "."], "error: recipe is '.'; allowed: FILE.yaml, "),
        (["build", "recipe.yaml", "--set", "data.train=none.jsonl"], "error: data.train is 'none.jsonl'; there is no"),
        (["build", "recipe.yaml", "--set", "tokenizer.chat_template=none"], "error: tokenizer.chat_template is 'none'"),
        (["build", "recipe.yaml", "--set", "data.on_bad_row=error"], "error: a.jsonl row 21: missing_field: "),
        (["build", "recipe.yaml", "--output", "a.jsonl/out"], "error: output is 'a.jsonl/out'; "),
        (["build", "recipe.yaml", "--output", "foreign"], "error: output is 'foreign', a folder with files"),
        (["check", "a.jsonl"], "error: target is 'a.jsonl'"),
        (["check", "foreign"], "error: 'foreign' has no manifest.json"),
        (["inspect", "none"], "error: 'none' does not exist."),
        (["inspect", "artifact", "--limit", "1"], "--limit needs --pack"),
        (["inspect", "artifact", "--split", "validation"], "--split needs --pack"),
        (["recipes", "show", "recipe.yaml", "--format", "toml", "--json"], "--format and --json contradict each other"),
        (["recipes", "show", "recipe.yaml", "--format", "yaml", "--resolved"], "--format and --resolved contradict"),
        (["inspect", "a.jsonl", "--pack", "0"], "error: 'a.jsonl' is a file."),
        (["inspect", "artifact", "--pack", "4"], "error: pack is 4; allowed: 0 to 3."),
        (["inspect", "artifact", "--pack", "-1"], "'--pack': '-1' is not a whole"),
        (["inspect", "artifact", "--pack", "٣"], "'٣' is not a whole"),
        (["inspect", "artifact", "--pack", "x"], "Invalid value for '--pack'"),
        (["inspect", "artifact", "--pack", "0", "--split", "validation"], "there is no split 'validation'"),
        (["inspect", "broken", "--pack", "0"], "training/shard-00000-of-00001.idx.parquet: it has 0 bytes"),
    ],
)
def test_mistake_is_one_message_and_exit_code_2(command: Command, arguments: list[str], message: str) -> None:
    Path("foreign").mkdir()
    Path("foreign/notes.txt").touch()
    shutil.copytree("artifact", "broken")
    next(Path("broken/training").iterdir()).write_bytes(b"")
    before = _files_but_tokens(Path())

    ran = command(*arguments)

    assert (ran.code, bool(ran.output)) == (2, "--json" in arguments)
    assert message in ran.errors
    assert _files_but_tokens(Path()) == before


#: More digits than Python reads as a number.
_DIGITS = "9" * 4301


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (f"build recipe.yaml --output new --memory {_DIGITS}G", "--memory"),
        (f"store prune --store .bridgepack/tokens --max-size {_DIGITS}", "--max-size"),
        (f"trace artifact --source a.jsonl:{_DIGITS}", "--source"),
        (f"check recipe.yaml --bridge-version {_DIGITS}", "--bridge-version"),
        (f"check recipe.yaml --bridge-version 0.{_DIGITS}", "--bridge-version"),
        (f"inspect artifact --pack {_DIGITS}", "--pack"),
    ],
    ids=lambda value: value[:40],
)
def test_a_number_of_thousands_of_digits_is_one_short_message(command: Command, words: str, option: str) -> None:
    refused = command(*words.split())
    assert (refused.code, refused.output) == (2, "")
    assert mentions(refused.errors, "error: ", option)
    assert len(refused.errors) < 6000 if option == "--pack" else len(refused.errors) < 300


def test_a_package_of_thousands_of_digits_has_no_version(command: Command) -> None:
    Path("packages.txt").write_text(f"megatron-core=={_DIGITS}\nmegatron-bridge==0.6.2\n")
    assert command("check", "recipe.yaml", "--environment", "packages.txt").code in (0, 1)


def test_a_folder_with_the_name_of_a_recipe_is_said_to_be_taken(command: Command) -> None:
    Path("quickstart").mkdir()
    for name in ("check", "prove masks", "prove training"):
        result = command(*name.split(), "quickstart")
        assert result.code == 2
        assert mentions(result.errors, "the folder of that ", "for the recipe, give ")
        assert "quickstart.yaml." in result.errors


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ("recipes new mine --num-gpus 8", "`bridgepack recipes new` is now `bridgepack new`."),
        ("rules padding", "`bridgepack rules` is now `bridgepack explain`."),
        ("verify packed --all", "`bridgepack verify` is now `bridgepack prove sources`."),
        ("masks mine.yaml", "`bridgepack masks` is now `bridgepack prove masks`."),
        ("masks mine.yaml --served --json", "`bridgepack masks --served` is now `bridgepack prove served`."),
        ("canary packed", "`bridgepack canary` is now `bridgepack prove training`."),
    ],
)
def test_a_former_name_says_the_name_of_today(command: Command, former: str, today: str) -> None:
    ran = command(*former.split())

    assert (ran.code, ran.errors) == (2, f"error: {today}\n")


@pytest.mark.parametrize("content", ["", "\n \n", "[]"])
def test_a_dry_run_refuses_a_validation_file_without_rows_as_the_build_does(command: Command, content: str) -> None:
    Path("none.json").write_text(content)
    for more in ((), ("--dry-run",)):
        ran = command("build", "recipe.yaml", "--set", "data.validation=none.json", *more)

        assert ran.code == 2
        assert "split has no rows (none.json)" in ran.errors


def test_the_beginning_of_a_code_lists_its_rules(command: Command) -> None:
    ran = command("explain", "bp1")

    assert (ran.code, "BP101" in ran.output, "BP201" in ran.output) == (0, True, False)
    assert {rule["code"][:3] for rule in json.loads(command("explain", "BP1", "--json").output)} == {"BP1"}


def test_a_store_beside_an_output_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRIDGEPACK_STORE", raising=False)
    assert command("build", "recipe.yaml", "--output", "packed/mine").code == 0

    ran = command("store", "list")

    assert ran.code == 2
    assert "packed/.bridgepack/tokens" in ran.errors
    assert command("store", "list", "--store", "packed/.bridgepack/tokens").code == 0


def test_a_silent_hub_is_one_line_on_working_offline(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    ran = command("preview", "recipe.yaml", "--set", "tokenizer.name_or_path=org/none")

    assert (ran.code, len(ran.errors.splitlines())) == (2, 1)
    assert "http://127.0.0.1:9 does not answer" in ran.errors
    assert "work offline" in ran.errors
    assert not constants.HF_HUB_OFFLINE


OFFERED = {
    "bridgepack ex": "plain,explain",
    "bridgepack prove ser": "plain,served",
    "bridgepack explain BP10": "plain,BP101",
    "bridgepack explain micro-batch": "plain,micro-batch-size-not-one",
    "bridgepack check mine.yaml --select BP101,BP2": "plain,BP101,BP201",
    "bridgepack build --set packing.pack": "plain,packing.packed_sequence_size=",
    "bridgepack preview mine.yaml --set preprocessing.loss": "plain,preprocessing.loss_mode=",
    "bridgepack build qwen3_8b_sft_8gpu": "plain,qwen3_8b_sft_8gpu_h100_bf16_32k_recipe",
    "bridgepack recipes show min": "file,min",
    "bridgepack check m": "file,m",
}


@pytest.mark.parametrize("typed", OFFERED)
def test_shell_offers(tmp_path: Path, typed: str) -> None:
    variables = {"_BRIDGEPACK_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    environment = {**os.environ, **variables}
    done = subprocess.run(CLI, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert OFFERED[typed] in done.stdout.splitlines(), done.stdout + done.stderr
