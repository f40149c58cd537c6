"""Each command prints what its function of the API returns: the same work, not only the same name."""

import json
import re
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import click
import pytest

import bridgepack
import bridgepack.api.recipes
from bridgepack.canaries.processes import HostProcess
from bridgepack.canaries.records import CanaryOptions
from bridgepack.checking.options import CheckOptions
from bridgepack.cli import bridgepack as bridgepack_command
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.packs import RunOptions
from bridgepack.proof.parts import ProofOptions
from bridgepack.proof.verify.verify import VerifyOptions
from tests.support import small_builds as small
from tests.support.launches import launch_recipe
from tests.support.small_builds import Command, file_bytes

PROJECT = Path(__file__).parents[2]
SIZE = {"packing.packed_sequence_size": 32}
ONE = {"batch.global_batch_size": 1}
NEW = {"model": "Qwen/Qwen3-8B", "num_gpus": 8, "seq_length": 4096}
#: What a command line prints as JSON -> the function of the API and its arguments. In `{}`, each side has a folder of
#: its own, so that neither finds the other's work.
DOORS: dict[str, Callable[[str], Any]] = {
    "build mine.yaml --output {}/new --store {}/store --num-workers 1": lambda own: bridgepack.build(
        "mine.yaml", output=f"{own}/new", store=f"{own}/store"
    ),
    "build mine.yaml --dry-run --output {}/new": lambda own: bridgepack.plan_build("mine.yaml", output=f"{own}/new"),
    "repack packed --set packing.packed_sequence_size=32 --output {}/wide": lambda own: bridgepack.repack(
        "packed", SIZE, output=f"{own}/wide"
    ),
    "repack packed --set packing.packed_sequence_size=32 --output {}/wide --dry-run": lambda own: (
        bridgepack.plan_repack("packed", SIZE, output=f"{own}/wide")
    ),
    "preview mine.yaml -n 2": lambda _: bridgepack.preview("mine.yaml", num_rows=2),
    "plan mine.yaml --num-gpus 8": lambda _: bridgepack.plan("mine.yaml", num_gpus=8),
    "check mine.yaml --artifact packed --set batch.global_batch_size=1": lambda _: bridgepack.check(
        "mine.yaml", artifact="packed", overrides=ONE
    ),
    "check packed --select BP3": lambda _: bridgepack.check("packed", select=["BP3"]),
    "check {}/wrong.yaml --diff": lambda own: bridgepack.fix(f"{own}/wrong.yaml").diff,
    "check {}/wrong.yaml --fix": lambda own: bridgepack.fix(f"{own}/wrong.yaml").report,
    "explain": lambda _: bridgepack.explain(),
    "explain over long": lambda _: bridgepack.explain("over long"),
    "explain BP101": lambda _: bridgepack.explain("BP101"),
    "explain BP1": lambda _: bridgepack.explain("BP1"),
    "explain BP": lambda _: bridgepack.explain(),
    "inspect packed": lambda _: bridgepack.inspect("packed"),
    "inspect packed --pack 1": lambda _: bridgepack.inspect("packed", pack=1),
    "report packed --output {}/page.html": lambda own: bridgepack.report("packed", output=f"{own}/page.html"),
    "prove sources packed": lambda _: bridgepack.prove.sources("packed"),
    "prove sources packed --all": lambda _: bridgepack.prove.sources("packed", num_packs=None),
    "prove masks packed --num-rows 3 --seed 1": lambda _: bridgepack.prove.masks("packed", num_rows=3, seed=1),
    "prove masks mine.yaml --all": lambda _: bridgepack.prove.masks("mine.yaml", num_rows=None),
    "trace packed --step 2 --world-size 1": lambda _: bridgepack.trace("packed", step=2, world_size=1),
    "trace packed --pack 0 --set batch.global_batch_size=1": lambda _: bridgepack.trace(
        "packed", pack=0, overrides=ONE
    ),
    "trace packed --source rows.jsonl:3 --limit 2": lambda _: bridgepack.trace(
        "packed", source="rows.jsonl:3", limit=2
    ),
    "diff packed other --limit 1": lambda _: bridgepack.diff("packed", "other", limit=1),
    "recipes list --family qwen3": lambda _: bridgepack.list_recipes(family="qwen3"),
    "recipes show mine.yaml --set packing.seed=7": lambda _: bridgepack.show_recipe(
        "mine.yaml", overrides={"packing.seed": 7}
    ),
    "recipes show mine.yaml --artifact packed": lambda _: bridgepack.resolve_recipe("mine.yaml", artifact="packed"),
    "recipes layouts": lambda _: bridgepack.list_layouts(),
    "recipes schema": lambda _: bridgepack.recipe_schema(),
    "recipes schema --cluster": lambda _: bridgepack.recipe_schema(cluster=True),
    "new mine --model Qwen/Qwen3-8B --num-gpus 8 --seq-length 4096 --dry-run": lambda _: (
        bridgepack.new_recipe("mine", **NEW).text  # type: ignore[arg-type]
    ),
    "store list": lambda _: bridgepack.list_store(),
    "store list --store .bridgepack/tokens": lambda _: bridgepack.list_store(".bridgepack/tokens"),
    "store prune --store .bridgepack/tokens --unused --dry-run": lambda _: bridgepack.prune_store(
        ".bridgepack/tokens", unused=True, dry_run=True
    ),
    "store verify --store .bridgepack/tokens": lambda _: bridgepack.verify_store(".bridgepack/tokens"),
}
#: Commands whose output is text, not JSON.
TEXTS = ("--diff", "recipes schema", "new mine")
#: Commands that a test of their own compares: they need Megatron-Bridge, nemo-run, conversations or a run.
ELSEWHERE = {"prove TARGET", "prove training", "prove served", "launch", "losses"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[str, bytes]:
    """Return the files of the folder in which commands run: a recipe, two artifacts, the default store."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        recipe = launch_recipe(Path(), chatml_tokenizer)
        small.write_recipe(Path("mine.yaml"), recipe)
        small.build(recipe, Path("packed"))
        small.build(recipe.override({"packing.seed": 5}), Path("other"))
        small.build(recipe, Path("artifacts/mine"))
    return file_bytes(folder)


@pytest.fixture
def folder(made: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    wrong = small.with_changes(bridgepack.load_recipe(tmp_path / "mine.yaml"), {"batch.micro_batch_size": 2})
    for own in ("one", "two"):
        (tmp_path / own).mkdir()
        small.write_recipe(tmp_path / own / "wrong.yaml", wrong)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _as_printed(result: Any) -> Any:
    plain = result.to_dict() if hasattr(result, "to_dict") else result
    return json.loads(json.dumps(plain, default=str))


@pytest.mark.parametrize("words", DOORS)
@pytest.mark.usefixtures("folder")
def test_a_command_prints_what_its_function_returns(command: Command, words: str) -> None:
    line = words.replace("{}", "one").split()
    is_text = any(text in words for text in TEXTS)
    ran = command(*line) if is_text else command(*line, "--json")
    expected = DOORS[words]("two")

    assert ran.code in (0, 1), ran.errors
    if is_text:
        assert ran.output.replace("one/", "two/").rstrip("\n") == expected.rstrip("\n")
        return
    printed = json.loads(re.sub(r"\bone/", "two/", ran.output))
    moments = {"created_at", "seconds", "last_used_s"}
    assert _without(printed, moments) == _without(_as_printed(expected), moments)


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, names) for name, item in value.items() if name not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def test_what_functions_write_is_what_commands_write(folder: Path, command: Command) -> None:
    command("build", "mine.yaml", "--output", "one/new", "--num-workers", "1", "--report")
    command("check", "one/wrong.yaml", "--fix")
    command("diff", "packed", "other", "--html", "one/diff.html")
    command(
        "new",
        "mine",
        "--model",
        NEW["model"],
        "--num-gpus",
        8,
        "--seq-length",
        4096,
        "--output",
        "one/mine.yaml",
    )
    command("plan", "mine.yaml", "--num-gpus", 8, "--output", "one/best.yaml")
    built = bridgepack.build("mine.yaml", output="two/new")
    bridgepack.report(built.output, recipe="mine.yaml")
    bridgepack.fix("two/wrong.yaml").write()
    bridgepack.diff("packed", "other", html="two/diff.html")
    bridgepack.new_recipe("mine", **NEW).write("two/mine.yaml")  # type: ignore[arg-type]
    bridgepack.plan("mine.yaml", num_gpus=8, output="two/best.yaml")

    one, two = (
        {
            name: content.replace(b"one/", b"two/")
            for name, content in file_bytes(folder / own).items()
            if not name.startswith(".bridgepack/")  # records in the store are named by their place
        }
        for own in ("one", "two")
    )
    assert one.keys() == two.keys() >= {"new/report.html", "wrong.yaml", "diff.html", "mine.yaml", "best.yaml"}
    different = {name for name in one if one[name] != two[name]}
    assert different <= {"new/manifest.json", "new/report.html"}  # they have the time of the build
    assert b"micro_batch_size: 2" not in one["wrong.yaml"]


@pytest.mark.bridge
@pytest.mark.usefixtures("folder", "nemo_home")
def test_a_dry_launch_prints_what_its_function_returns(command: Command) -> None:
    ran = command("launch", "mine.yaml", "--cluster", "local", "--dry-run", "--json")
    printed, expected = (
        json.loads(re.sub(r"_\d{8}-\d{6}-[0-9a-f]{4}", "_NAME", text))
        for text in (
            ran.output,
            json.dumps(bridgepack.preview_launch(bridgepack.plan_launch("mine.yaml", "local")).to_dict(), default=str),
        )
    )

    unlike = {"launched_at", "text"}  # a script has the assignment with the time in it
    assert _without(printed, unlike) == _without(expected, unlike)
    assert printed["scripts"]


@pytest.mark.bridge
@pytest.mark.full
@pytest.mark.usefixtures("folder")
@pytest.mark.usefixtures("asks_in_forks")
def test_the_canary_prints_what_its_function_returns(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[bool] = []

    def shared(_: Path, *, is_on_cpu: bool) -> Any:
        places.append(is_on_cpu)
        return nullcontext(host)

    with HostProcess(tmp_path, is_on_cpu=True) as host:  # importing the host takes most of the time
        monkeypatch.setattr("bridgepack.canaries.canary.HostProcess", shared)
        # one rank: of several that fail alike, the first to end is named, which is another one in another run
        ran = command("prove", "training", "packed", "--num-packs", 2, "--context", 1, "--device", "cpu", "--json")
        expected = bridgepack.prove.training("packed", num_packs=2, context=1, device="cpu")

    assert places == [True, True]
    assert _without(json.loads(ran.output), {"seconds"}) == _without(_as_printed(expected), {"seconds"})


def test_every_command_is_compared() -> None:
    def named(one: click.Command, words: str = "") -> set[str]:
        if not isinstance(one, click.Group):
            return {words}
        context = click.Context(one)
        commands = {name: one.get_command(context, name) for name in one.list_commands(context)}
        return set().union(*(named(below, f"{words} {name}".strip()) for name, below in commands.items() if below))

    compared = {name for name in named(bridgepack_command) for words in DOORS if words.startswith(name)}
    assert compared | ELSEWHERE == named(bridgepack_command)


#: Options that stand for an argument of another form.
OTHER_FORMS = {
    "--set": "PATH=VALUE for the mapping `overrides`",
    "--cluster-set": "PATH=VALUE for the mapping `cluster_overrides`",
    "--all": "None for the number of a sample",
    "--no-files": "the opposite of `looks_at_files`",
    "--older-than": "a time span for `older_than_s`",
    "--artifact": "of `report`, where TARGET is a recipe then",
}
#: Options that choose another function, or say how a result is shown.
OF_THE_SCREEN = {"--json", "--quiet", "--format", "--verbose", "--advice", "--skipped", "--strict", "--fix", "--diff"}
OF_THE_SCREEN |= {"--dry-run", "--check", "--report", "--resolved", "--detach", "--follow"}
FUNCTIONS: dict[str, tuple[Callable[..., Any] | type, ...]] = {
    "new": (bridgepack.new_recipe, bridgepack.api.recipes.NewRecipe.write),
    "plan": (bridgepack.plan,),
    "preview": (bridgepack.preview,),
    "build": (bridgepack.build, bridgepack.plan_build),
    "repack": (bridgepack.repack,),
    "check": (CheckOptions,),
    "inspect": (bridgepack.inspect,),
    "report": (bridgepack.report,),
    "prove TARGET": (ProofOptions,),
    "prove sources": (VerifyOptions,),
    "prove masks": (MaskOptions,),
    "prove served": (MaskOptions,),
    "prove training": (CanaryOptions,),
    "trace": (bridgepack.trace, RunOptions),
    "diff": (bridgepack.diff,),
    "launch": (bridgepack.plan_launch,),
    "losses": (bridgepack.losses,),
    "recipes list": (bridgepack.list_recipes,),
    "recipes show": (bridgepack.resolve_recipe,),
    "recipes schema": (bridgepack.recipe_schema,),
    "store list": (bridgepack.list_store,),
    "store prune": (bridgepack.prune_store,),
    "store verify": (bridgepack.verify_store,),
}


@pytest.mark.parametrize("words", FUNCTIONS)
def test_an_option_has_one_name_on_the_command_line_and_in_python(words: str) -> None:
    command: Any = bridgepack_command
    for word in words.split():
        command = command.get_command(click.Context(command), word)
    options = {max(item.opts, key=len) for item in command.params if isinstance(item, click.Option)}
    arguments = {name for function in FUNCTIONS[words] for name in signature(function).parameters}

    told = {name for name in options - OF_THE_SCREEN - OTHER_FORMS.keys() if name[2:].replace("-", "_") in arguments}
    unlike = options - OF_THE_SCREEN - OTHER_FORMS.keys() - told
    assert unlike <= {
        "inspect": {"--limit"},
        "check": {"--output"},
        "prove training": {"--output"},
        "recipes schema": {"--output"},
    }.get(words, set())


def test_the_command_line_may_import_only_the_api_and_what_prints() -> None:
    """The contract names what is forbidden; a new room must be among it."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(one for one in settings if one.get("source_modules") == ["bridgepack.cli"])
    rooms = {path.stem for path in (PROJECT / "src/bridgepack").iterdir() if not path.name.startswith("_")}
    allowed = {"api", "cli", "nemo_cli", "reporting", "records", "errors", "user_files", "py"}

    assert {name.removeprefix("bridgepack.") for name in contract["forbidden_modules"]} == rooms - allowed
    assert "ignore_imports" not in contract
