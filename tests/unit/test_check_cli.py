"""`bridgepack check` on the command line: mistakes, forms, fixes, and nothing lost or half written."""

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bridgepack.api.files import staged_report
from bridgepack.cli.main import COMMANDS
from bridgepack.cli.recipes import recipes
from bridgepack.cli.store import store
from bridgepack.errors import ConfigError
from tests.support.canaries import packed_row
from tests.support.messages import mentions
from tests.support.packed_rows import write_shard
from tests.support.small_builds import Command, build, tokenized_recipe, tokenized_row, write_json_lines

GROUPS = {"recipes": recipes.commands, "store": store.commands}
RECIPE = """\
name: mine
data: {train: /dev/null}
tokenizer: {name_or_path: tokenizer}
packing:
  packed_sequence_size: 4096
  pad_seq_to_mult: 2  # agreed on
parallelism:
  context_parallel_size: 4
"""
#: The fix of BP101 cannot be written: another place has the same value.
SHARED_VALUE = RECIPE.replace("pad_seq_to_mult: 2", "pad_seq_to_mult: &two 2") + "  eval_context_parallel_size: *two\n"
RECIPE_FUNCTION = """\
from bridgepack import load_recipe


def mine_recipe():
    print("printed by the recipe")
    return load_recipe("mine.yaml")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE)

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def packs(folder: Path, chatml_tokenizer: Path) -> Path:
    """Return packs of another tool: two files, no manifest."""
    write_json_lines(Path("rows.jsonl"), [tokenized_row(10 + index, 5, 6, 7) for index in range(20)])
    build(tokenized_recipe("rows.jsonl", chatml_tokenizer), Path("artifact"))
    Path("packs").mkdir()
    for split in ("training", "validation"):
        shard = next(Path("artifact/training").iterdir())
        (Path("packs") / f"{split}_16.idx.parquet").write_bytes(shard.read_bytes())
    return Path("packs")


@pytest.mark.parametrize(("version", "codes"), [("0.6", {"BP528"}), ("0.7", set())])
def test_packs_are_judged_as_the_runs_release_reads_them(
    folder: Path, packs: Path, command: Command, version: str, codes: set[str]
) -> None:
    """The rows of another tool train a label after an EOS, 2, inside a text."""
    row = packed_row([11, 12, 2, 13, 14, 2], [0, 1, 1, 1, 1, 0], [0])
    for path in packs.iterdir():
        write_shard(path, [row], row_group_size=1)
    facts = ("--given", "eos_token_id=2", "--given", "packed_sequence_size=16")
    words = ("mine.yaml", "--artifact", packs, *facts, "--select", "BP528", "--bridge-version", version, "--json")
    report = json.loads(command("check", *words).output)

    assert {finding["code"] for finding in report["findings"]} == codes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s3://bucket/mine.yaml"], "only artifacts can be"),
        (["ftp://bucket/packs"], "or a URL with s3"),
        (["bridge:"], "the colon is missing"),
        (["mine.yaml:my_recipe"], "a .yaml file has no functions. Remove :my_recipe."),
        (["mine.yaml", "--world-size", "0"], "'0' is not a whole"),
        (["mine.yaml", "--wrold-size", "8"], "`bridgepack check --help` lists what is allowed."),
        (["mine.yaml", "--artifact", ""], "'--artifact': it is empty"),
        (["mine.yaml", "--environment", ""], "--environment is ''; allowed: here"),
        (["mine.yaml", "--select", "BP1", "--ignore", "BP1"], "--ignore BP1 leaves no selected rule"),
        (["mine.yaml", "--given", "vocab_size=3"], "--given vocab_size describes packs"),
        (["mine.yaml", "--json", "--format", "sarif"], "--json and --format sarif contradict each other"),
        (["mine.yaml", "--fix", "--diff"], "--fix and --diff contradict each other"),
        (["mine.yaml", "--diff", "--json"], "--diff prints a diff"),
        (["mine.yaml", "--diff", "--advice"], "remove --advice."),
        (["mine.yaml", "--json", "--output", "-"], "'-' is no file; without --output a report goes to"),
        (["folder", "--world-size", "8"], "--world-size describes a run, and 'folder' is only an artifact."),
        (["folder", "--environment", "here"], "--environment describes a run, and 'folder' is only an artifact"),
        (["folder", "--bridge-version", "0.5.1"], "--bridge-version describes a run"),
        (["folder", "--fix"], "--fix and --diff change settings, and 'folder' is an artifact"),
        (["mine.yaml", "--output", "mine.yaml"], "--output is 'mine.yaml', which this command reads. Choose another."),
        (["mine.yaml", "--output", "folder"], "--output is 'folder'; it cannot be written"),
        (["mine.yaml", "--fix", "--output", "folder"], "--output is 'folder'; it cannot be written"),
    ],
)
def test_mistake_is_one_message_and_no_file(folder: Path, command: Command, arguments: list[str], message: str) -> None:
    (folder / "folder").mkdir()
    ran = command("check", *arguments)
    assert (ran.code, bool(ran.output)) == (2, "--json" in arguments)
    assert message in ran.errors
    assert ran.errors.startswith("error: ")
    assert ran.errors.count("\n") == 1
    assert sorted(path.name for path in folder.rglob("*")) == ["folder", "mine.yaml"]
    assert (folder / "mine.yaml").read_text() == RECIPE


LACKED = "could not run: no settings were given; check a recipe or a config with --artifact."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--given", "x"), "--given 'x'; allowed: name=value, e.g. --given packed_sequence_size=4096."),
        (("--given", "packed_sequence_size=0"), "packed_sequence_size is 0"),
        (("--given", "pad_seq_to_mult=two"), "pad_seq_to_mult is 'two'"),
        (("--given", "eos_token_id=-1"), "--given eos_token_id is -1; allowed: a token id"),
        (("--given", "loss_mode=all"), "loss_mode is 'all'; allowed: assistant, last_turn, completion, full."),
        (("--given", "end_of_turn_ids=7"), "--given end_of_turn_ids is 7"),
        (("--given", "never_trained=7"), "--given never_trained is 7"),
        (("--given", "expects_bos=1"), "--given expects_bos is 1; allowed: true or false."),
        (("--select", "BP101"), f"--select BP101: sequences-not-divisible-by-context-parallelism {LACKED}"),
        (("--artifact", "none"), "--artifact is 'none', and the target 'packs' is an artifact itself."),
    ],
)
def test_mistakes_with_packs(packs: Path, command: Command, arguments: tuple[str, ...], message: str) -> None:
    ran = command("check", "packs", *arguments)
    assert (ran.code, bool(ran.output)) == (2, "--select" in arguments)
    assert message in ran.errors


def test_facts_about_packs_of_every_kind(packs: Path, command: Command) -> None:
    facts = ("end_of_turn_ids=[7]", "never_trained={a: 3}", "expects_bos=true", "loss_mode=full", "vocab_size=2000")
    file = str(packs / "training_16.idx.parquet")
    ran = command("check", file, *(part for fact in facts for part in ("--given", fact)))
    assert (ran.code, ran.errors) == (0, "")


@pytest.mark.parametrize("artifact", ["packs", "packs/training_16.idx.parquet", "packs/train*.parquet"])
def test_packs_of_another_tool_are_found_where_they_lie(packs: Path, command: Command, artifact: str) -> None:
    ran = command("check", "mine.yaml", "--artifact", artifact, "--select", "BP20")
    assert (ran.code, ran.errors) == (0, "")
    assert "is not set in" not in ran.output


def test_packs_whose_name_is_not_utf_8_are_one_message(packs: Path, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"bad-\xff")
    (folder / "training").mkdir(parents=True)
    shard = next(path for path in packs.rglob("*.parquet"))
    (folder / "training" / "a.parquet").write_bytes(shard.read_bytes())
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / os.fsdecode(b"training-\xff.parquet")).write_bytes(shard.read_bytes())
    for target in (folder, folder / "training" / "a.parquet", tmp_path / "named"):
        for words in (("check", target), ("check", target, "--json"), ("report", target, "--output", "page.html")):
            ran = command(*words)
            assert (ran.code, ran.errors.count("\n")) == (2, 1)
            assert ran.errors.startswith("error: target is '")
            assert mentions(ran.errors, "name is not UTF-8. ", "Rename it.")
    assert not Path("page.html").exists()


def test_a_recipe_that_prints_leaves_json_alone(folder: Path, command: Command) -> None:
    (folder / "mine.py").write_text(RECIPE_FUNCTION)
    ran = command("check", "mine.py", "--format", "json")
    assert json.loads(ran.output)["target"] == "mine.py"
    assert ran.errors == "printed by the recipe\n"


@pytest.mark.parametrize(
    ("target", "text", "told"),
    [
        ("mine.yaml", SHARED_VALUE, ""),
        (
            "mine.py:mine_recipe",
            RECIPE_FUNCTION.replace('yaml")', 'yaml").override({"packing.pad_seq_to_mult": 4})'),
            "Write 8 in line 6, which has 4.",
        ),
    ],
    ids=["yaml", "python"],
)
def test_what_cannot_be_written_stays_a_finding(
    folder: Path, command: Command, target: str, text: str, told: str
) -> None:
    file = target.partition(":")[0]
    (folder / file).write_text(text)
    shown, fixed = command("check", target, "--diff"), command("check", target, "--fix")
    assert (shown.code, shown.output, fixed.code) == (1, "", 1)
    assert mentions(shown.errors, f"in the diff: {file}: ", "packing.pad_seq_to_mult cannot be set to 8", told)
    assert mentions(fixed.output, f"not fixed: {file}: packing.pad_seq_to_mult cannot be set to 8", told)
    assert "error[BP101]" in fixed.output
    assert "no finding has" not in fixed.output
    assert (folder / file).read_text() == text


def test_a_misspelt_override_is_found_and_mended(folder: Path, command: Command) -> None:
    overrides = "bridge_overrides:\n  ddp:\n    overlap_grad_reduc: false\n    bucket_size: 1000  # small\n"
    (folder / "mine.yaml").write_text(RECIPE + overrides)

    [found] = json.loads(command("check", "mine.yaml", "--select", "BP044", "--json").output)["findings"]
    assert (found["where"], found["line"]) == ("bridge_overrides.ddp.overlap_grad_reduc", RECIPE.count("\n") + 3)
    (folder / "mine.yaml").write_text(RECIPE)
    wrong = "bridge_overrides.ddp.overlap_grad_reduc=true"
    of_command = command("check", "mine.yaml", "--select", "BP044", "--set", wrong, "--fix")
    assert (of_command.code, (folder / "mine.yaml").read_text()) == (1, RECIPE)
    (folder / "mine.yaml").write_text(RECIPE + overrides)
    by_hand = command("check", "mine.yaml", "--select", "BP044", "--fix")
    assert "not fixed: mine.yaml: bridge_overrides.ddp cannot be set to {'overlap_grad_reduce': False" in by_hand.output
    (folder / "mine.yaml").write_text(RECIPE + overrides.replace("  # small", ""))
    assert command("check", "mine.yaml", "--select", "BP044", "--fix").code == 0
    mended = "  ddp: {overlap_grad_reduce: false, bucket_size: 1000}\n"
    assert (folder / "mine.yaml").read_text() == f"{RECIPE}bridge_overrides:\n{mended}"


def test_an_override_of_a_model_that_is_not_known_is_not_judged(folder: Path, command: Command) -> None:
    (folder / "mine.yaml").write_text(RECIPE + "bridge_overrides: {model: {cp_com_type: a2a}}\n")

    ran = command("check", "mine.yaml", "--select", "BP044")

    assert ran.code == 2
    assert mentions(ran.errors, "BP044: override-leads-nowhere could not run: ", "model is missing")


def test_packs_are_judged_under_the_geometry_that_fixing_leaves(packs: Path, command: Command) -> None:
    fixed = command("check", "mine.yaml", "--artifact", "packs", "--fix", "--format", "json", "--no-files")
    after = command("check", "mine.yaml", "--artifact", "packs", "--format", "json", "--no-files")
    assert "fixed packing.pad_seq_to_mult = 8" in fixed.errors
    assert "BP331" in {finding["code"] for finding in json.loads(after.output)["findings"]}
    assert json.loads(fixed.output) == json.loads(after.output)


@pytest.mark.parametrize(("version", "is_newer"), [("9.9", True), ("0.6.3rc1", False), ("0.6.2+mine", False)])
def test_a_version_that_nobody_knows_yet_is_said(folder: Path, command: Command, version: str, is_newer: bool) -> None:
    told = f"megatron-bridge {version} is newer than all that is known, and treated like the newest: bridgepack knows"
    report = command("check", "mine.yaml", "--bridge-version", version, "--json")
    assert report.errors == ""
    assert json.loads(report.output)["note"].startswith(told) == is_newer
    annotations = command("check", "mine.yaml", "--bridge-version", version, "--format", "github")
    assert annotations.errors.startswith(told) == is_newer


def test_a_diff_becomes_a_file_and_the_command_that_packs_again_can_be_pasted(folder: Path, command: Command) -> None:
    assert command("check", "mine.yaml", "--diff", "--output", "mine.patch") == (1, "", "")
    assert "-  pad_seq_to_mult: 2  # agreed on\n+  pad_seq_to_mult: 8  # agreed on\n" in Path("mine.patch").read_text()
    assert (folder / "mine.yaml").read_text() == RECIPE
    (folder / "mine.yaml").rename("my recipe.yaml")
    ran = command("check", "my recipe.yaml", "--fix")
    assert ran.code == 0
    assert "fixed packing.pad_seq_to_mult = 8" in ran.output
    assert ": bridgepack build 'my recipe.yaml'\n" in ran.output
    assert "  pad_seq_to_mult: 8  # agreed on\n" in Path("my recipe.yaml").read_text()
    again = command("check", "my recipe.yaml", "--diff")
    assert "nothing to fix" in again.output + again.errors


def test_a_fix_takes_along_the_fields_that_a_recipe_needs_with_it(folder: Path, command: Command) -> None:
    in_batch = "{mode: in_batch, packed_sequence_size: 4098, max_sequence_length: 4097}"
    graphs = "{implementation: transformer_engine, modules: [mlp]}"
    (folder / "mine.yaml").write_text(
        f"name: mine\ndata: {{train: /dev/null}}\ntokenizer: {{name_or_path: tokenizer}}\npacking: {in_batch}\n"
        f"parallelism: {{context_parallel_size: 2}}\ncuda_graphs: {graphs}\n"
    )
    ran = command("check", "mine.yaml", "--select", "BP926,BP932", "--fix")
    assert ran.code == 0
    fixed = (folder / "mine.yaml").read_text()
    assert "packed_sequence_size: 4096, max_sequence_length: 4096}" in fixed
    assert "{implementation: none, modules: []}" in fixed


def test_a_read_only_file_is_not_replaced(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "mine.yaml")
    ran = command("check", "mine.yaml", "--fix", "--output", "report.txt")
    assert (ran.code, ran.output) == (2, "")
    assert "'mine.yaml' is read-only and was not changed." in ran.errors
    assert [path.name for path in folder.iterdir()] == ["mine.yaml"]


def test_a_report_goes_into_a_pipe_or_a_new_folder(folder: Path, command: Command) -> None:
    assert command("check", "mine.yaml", "--output", "new/folder/report.txt").output == ""
    text = (folder / "new/folder/report.txt").read_text()
    assert text.startswith("error[BP101]")
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    command("check", "mine.yaml", "--output", "pipe")
    assert os.read(reader, 1 << 16).decode() == text
    os.close(reader)
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
    refused = command("check", "mine.yaml", "--output", "pipe")
    assert (refused.code, refused.output) == (2, "")
    assert mentions(refused.errors, "--output is 'pipe'", "nothing reads from")


@pytest.mark.on_disk
def test_a_report_that_does_not_fit_on_the_disk_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(ConfigError, match="File too large"), staged_report(tmp_path / "report.txt", "x" * 9_999):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_sarif_of_awkward_paths(folder: Path, command: Command) -> None:
    (folder / "a b#c%d").mkdir()
    (folder / "mine.yaml").rename("a b#c%d/é:x.yaml")
    for target, uri in (
        ("a b#c%d/é:x.yaml", "a%20b%23c%25d/%C3%A9%3Ax.yaml"),
        (str(folder / "a b#c%d/é:x.yaml"), (folder / "a b#c%d/é:x.yaml").as_uri()),
    ):
        log = json.loads(command("check", target, "--format", "sarif").output)
        places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
        assert {place["artifactLocation"]["uri"] for place in places} == {uri}


def test_text_of_settings_cannot_steer_the_terminal(folder: Path, command: Command) -> None:
    (folder / "mine.yaml").write_text(f'{RECIPE}ignore: {{BP101: "\\e[31mred"}}\n')
    ran = command("check", "mine.yaml")
    assert "\x1b" not in ran.output
    assert "ignored BP101: \N{REPLACEMENT CHARACTER}[31mred" in ran.output


def test_selectors_in_either_case(folder: Path, command: Command) -> None:
    ran = command("check", "mine.yaml", "--select", "bp101 Micro-Batch-Size-Not-One,")
    assert "2 rules run" in ran.output


def test_colours_in_a_pipe(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for forced, refused, has_colour in (("", "", False), ("1", "", True), ("0", "", False), ("1", "1", False)):
        for name, value in (("FORCE_COLOR", forced), ("NO_COLOR", refused)):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        assert ("\x1b[1;31merror[BP101]" in command("check", "mine.yaml").output) == has_colour, (forced, refused)


@pytest.mark.parametrize(
    ("redirection", "code"), [(">/dev/full", 2), ("| head -c 1", 1), (">&-", 1), (">&- 2>&-", 1), ("| true", 1)]
)
def test_output_that_goes_nowhere(folder: Path, redirection: str, code: int) -> None:
    command = f"{sys.executable} -m bridgepack check mine.yaml {redirection}; exit ${{PIPESTATUS[0]}}"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert finished.returncode == code
    assert "Traceback" not in finished.stderr
    assert (code == 2) == ("error: the output " in finished.stderr and "written: No space left" in finished.stderr)


BAD_FILES = {
    "typo.yaml": (RECIPE.replace("pad_seq_to_mult", "pad_sequence_to_mult"), 6),
    "typo.toml": ('name = "mine"\n[data]\ntrain = "/dev/null"\n[tokenizer]\nname = "a"\n', 5),
    "broken.yaml": ("name: mine\ndata: {train: [a\npacking:\n", 3),
    "broken.toml": ('name = "mine"\ndata = {\n', 2),
    "list.yaml": ("- a\n", 1),
}


def test_several_wrong_fields_have_their_lines(folder: Path, command: Command) -> None:
    (folder / "bad.yaml").write_text(f"{RECIPE.replace('name: mine', 'name: 5')}seed: 1\n")
    ran = command("check", "bad.yaml")

    assert ran.code == 2
    assert "error: 2 fields are wrong:\n  bad.yaml:1: name is 5; " in ran.errors
    assert mentions(ran.errors, f"\n  bad.yaml:{len(RECIPE.splitlines()) + 1}: seed is ", "packing.seed")


def test_a_file_of_another_name_is_not_suggested(folder: Path, command: Command) -> None:
    (folder / "l_tools.yaml").touch()

    assert mentions(command("check", "nosuch.yaml").errors, "nosuch.yaml", "no such file. ", "Check the path.")
    assert "Did you mean 'mine.yaml'?" in command("check", "mien.yaml").errors


def test_short_options(folder: Path, command: Command) -> None:
    whole = command("check", "mine.yaml", "--advice", "--skipped")

    assert command("check", "mine.yaml", "-v", "-q").output == whole.output
    assert command("check", "mine.yaml", "-v", "-o", "report.txt").output == ""
    assert Path("report.txt").read_text() == whole.output


def test_rules_are_found_by_words(command: Command) -> None:
    found = command("explain", "validation", "packs").output

    assert "BP604" in found
    assert "BP601 " not in found
    assert command("explain", "validation packs").output == found
    refused = command("explain", "nosuchword")
    assert refused.code == 2
    assert mentions(refused.errors, "'nosuchword'; no rule has ", "`bridgepack explain` lists")
    assert command("explain", "recipe-derives early").output.endswith(
        "\n1 rule; `bridgepack explain CODE` explains one\n"
    )


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_prose_fits_the_terminal(command: Command, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    arguments = (("explain", "BP606"), ("recipes", "layouts"))
    lines = [line for words in arguments for line in command(*words).output.splitlines()[1:]]
    longest = max((line for line in lines if len(line.split()) > 2 and "https://" not in line), key=len)
    assert min(columns, 80) - 12 < len(longest) <= min(columns, 80)


@pytest.mark.parametrize("columns", [60, 80])
def test_help_fits_the_terminal(command: Command, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    nested = [f"{group} {name}" for group, found in GROUPS.items() for name in found]
    for words in ("", *COMMANDS, *nested):
        text = command(*words.split(), "--help").output
        assert {line for line in text.splitlines() if len(line) > columns} == set(), words


def test_links_of_a_rule_are_whole(command: Command) -> None:
    lines = [line.split()[-1] for line in command("explain", "BP606").output.splitlines() if "https://" in line]

    place = "NVIDIA-NeMo/Megatron-Bridge/blob/v0.6.2/src/megatron/bridge/data/samplers.py#L291"
    assert lines == [f"https://github.com/{place}", "https://bridgepack.readthedocs.io/rules/BP606/"]


def test_help_names_completion(command: Command) -> None:
    assert "_BRIDGEPACK_COMPLETE=bash_source bridgepack" in command("--help").output


def test_a_target_that_does_not_exist_is_the_place_of_its_result(folder: Path, command: Command) -> None:
    log = json.loads(_failed(command, "check", "nosuch.yaml", "--format", "sarif"))["runs"][0]

    (place,) = log["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "nosuch.yaml"


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_cannot_be_read_is_reported_in_every_form(folder: Path, command: Command, name: str) -> None:
    text, line = BAD_FILES[name]
    (folder / name).write_text(text)

    assert _failed(command, "check", name, "--format", "sarif", "--output", "log.sarif") == ""
    log = json.loads(Path("log.sarif").read_text())["runs"][0]
    places = [result["locations"][0]["physicalLocation"] for result in log["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} == {name}
    assert line in [place["region"]["startLine"] for place in places]
    assert log["invocations"] == [{"executionSuccessful": False, "exitCode": 2}]
    annotated = _failed(command, "check", name, "--format", "github")
    assert f"::error file={name},line={line},title=cannot-be-read::" in annotated
    quality = json.loads(_failed(command, "check", name, "--format", "gitlab"))
    assert {"path": name, "lines": {"begin": line}} in [entry["location"] for entry in quality]
    for arguments in (["check", "--json"], ["build", "--json"], ["preview", "--json"], ["prove masks", "--json"]):
        error = json.loads(_failed(command, *arguments[0].split(), name, *arguments[1:]))["error"]
        assert (error["kind"], error["exit_code"]) == ("ConfigError", 2)
        assert (name, line) in [(problem["file"], problem["line"]) for problem in error["problems"]]


@pytest.mark.parametrize(
    "words",
    [
        "inspect gone",
        "prove sources gone",
        "diff gone gone",
        "explain BP000",
        "trace gone",
        "recipes show gone",
        "build --no",
    ],
)
def test_json_errors_of_every_command(folder: Path, command: Command, words: str) -> None:
    error = json.loads(_failed(command, *words.split(), "--json"))["error"]
    assert error["message"]
    assert error["problems"][0]["message"]


def _failed(command: Command, *arguments: str) -> str:
    """Return standard output of a command that could not run."""
    code, output, errors = command(*arguments)
    assert (code, "error: " in errors) == (2, True)
    return output
