"""bridgepack from Python: every command's function, dicts and datasets as recipes, results as values and tables."""

import json
import shutil
import sys
from collections import UserDict
from importlib import import_module
from inspect import signature
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import datasets
import numpy as np
import pandas
import pytest

import bridgepack
import bridgepack.api
from bridgepack.cli.main import COMMANDS
from bridgepack.data.store.upkeep import list_store, prune_store
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records.results import Result
from tests.support.small_builds import chat_row, write_json_lines

ROWS = [chat_row(f"Question {number}?", f"Answer {number}.") for number in range(30)]


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return {
        "name": "mine",
        "data": {"train": str(write_json_lines(tmp_path / "rows.jsonl", ROWS))},
        "tokenizer": {"name_or_path": str(chatml_tokenizer)},
        "packing": {"packed_sequence_size": 64},
        "batch": {"global_batch_size": 2},
    }


def test_every_command_has_its_function() -> None:
    groups = {
        "new": {"new_recipe"},
        "recipes": {"list_recipes", "show_recipe", "resolve_recipe", "list_layouts", "recipe_schema"},
        "store": {"list_store", "prune_store", "verify_store"},
    }
    named = set().union({*COMMANDS} - groups.keys(), *groups.values())
    assert named <= {*bridgepack.__all__} == {*dir(bridgepack)}
    assert all(callable(getattr(bridgepack, name)) for name in {*bridgepack.__all__} - {"__version__"})
    parameters = [*signature(bridgepack.report).parameters]
    assert parameters == [
        "artifact",
        "output",
        "sign_off",
        "given",
        "recipe",
        "bridge_version",
        "num_workers",
        "trust_remote_code",
        "progress",
    ]


def test_no_room_hides_a_function_of_its_name() -> None:
    """Importing a room sets an attribute of the package, which would win over the function of the same name."""
    for package, hides in ((bridgepack, {*bridgepack.__all__}), (bridgepack.api, {*dir(bridgepack.api)})):
        rooms = {path.stem for path in Path(package.__file__).parent.iterdir()}
        assert rooms & hides == set()
        assert rooms & {"launching", "launches"}


def test_the_plugin_is_public_but_a_star_import_needs_no_nemo_run() -> None:
    from bridgepack import PreflightPlugin

    assert PreflightPlugin.__module__ == "bridgepack.launching.preflight"
    assert "PreflightPlugin" not in bridgepack.__all__


def test_results_are_values_and_tables(recipe: dict[str, Any]) -> None:
    built = bridgepack.build(recipe, output="packed")
    other = bridgepack.repack("packed", {"packing.packed_sequence_size": 128}, output="wide")
    tables = {
        "build": (built, 1),
        "repack": (other, 1),
        "preview": (bridgepack.preview(recipe), 1),
        "check": (bridgepack.check(recipe, artifact="packed", select=["BP004"]), 0),
        "inspect": (bridgepack.inspect("packed", pack=0), len(bridgepack.inspect("packed", pack=0).sequences)),
        "statistics": (bridgepack.inspect("packed"), 1),
        "sources": (bridgepack.prove.sources("packed", num_packs=2), 0),
        "masks": (bridgepack.prove.masks("packed"), 0),
        "diff": (bridgepack.diff("packed", "packed"), 0),
        "trace": (bridgepack.trace("packed", source="rows.jsonl:3", world_size=1), 1),
        "report": (bridgepack.report("packed"), 0),
    }
    for name, (result, num_rows) in tables.items():
        assert json.loads(json.dumps(result.to_dict())), name
        assert len(result.to_pandas()) == num_rows, name
        assert repr(result).startswith(f"<{type(result).__name__}: "), name
        assert len(repr(result)) < 200, name
        assert _tags(result._repr_html_()) >= {"div", "style", "p"}, name
    assert built.to_pandas().loc[0, "num_sequences"] == len(ROWS)
    assert "spans" in bridgepack.inspect("packed", pack=0).to_pandas().columns
    assert bridgepack.trace("packed", source="rows.jsonl:3").to_pandas().loc[0, "sequence.row"] == 3
    assert bridgepack.prove.sources("packed").to_dict()["outcome"] == "same"
    assert bridgepack.diff("packed", "wide").to_dict()["is_same"] is False


def _tags(html: str) -> set[str]:
    """Return the tags of a text that is well-formed, all opened ones closed."""
    return {one.tag for one in ElementTree.fromstring(html.replace("<!doctype html>", "")).iter()}


def _final_kinds(kind: type[Result]) -> list[type[Result]]:
    """Return the classes of results that have no subclass, without those that `slots=True` replaced."""
    kinds = [one for one in kind.__subclasses__() if getattr(sys.modules[one.__module__], one.__name__) is one]
    return [final for one in kinds for final in _final_kinds(one)] or [kind]


def test_every_result_has_a_line_of_its_own(recipe: dict[str, Any]) -> None:
    package = Path(bridgepack.__file__).parent
    for path in package.rglob("*.py"):
        if "(Result):" in path.read_text(encoding="utf-8"):
            import_module(".".join(("bridgepack", *path.relative_to(package).with_suffix("").parts)))
    kinds = _final_kinds(Result)
    assert len(kinds) > 15
    assert [kind.__name__ for kind in kinds if kind.headline is Result.headline] == []
    assert [kind.__name__ for kind in kinds if kind.__repr__ is not Result.__repr__] == []


def test_a_notebook_shows_data_as_text_never_as_markup(recipe: dict[str, Any]) -> None:
    hostile = "<script>alert(1)</script>"
    rows = [*ROWS, {"messages": [{"role": "user", "content": hostile}, {"role": "assistant", "content": hostile}]}]
    Path("rows.jsonl").write_text("".join(json.dumps({**row, hostile: "unread words"}) + "\n" for row in rows))
    built = bridgepack.build(recipe, output="packed")
    shown = {
        "build": built,
        "preview": bridgepack.preview(recipe, num_rows=len(rows)),
        "check": bridgepack.check("packed"),
        "pack": bridgepack.inspect("packed", pack=0),
        "diff": bridgepack.diff("packed", "packed"),
        "layouts": bridgepack.list_layouts(),
    }
    for name, result in shown.items():
        html = result._repr_html_()
        assert "script" not in _tags(html), name
        assert len(html) < 60_000, name
    assert "&lt;script&gt;" in shown["preview"]._repr_html_()
    assert "&lt;script&gt;" in built._repr_html_()


def test_paths_stand_for_texts(recipe: dict[str, Any]) -> None:
    places = {"data": {"train": Path("rows.jsonl")}, "tokenizer": {"name_or_path": Path("chatml")}}
    loaded = bridgepack.load_recipe({**recipe, **places}, {"artifact": Path("packed")})
    assert (loaded.data.train, loaded.tokenizer.name_or_path, loaded.artifact) == ("rows.jsonl", "chatml", "packed")


def test_a_dataset_is_built_as_its_file_is(recipe: dict[str, Any], tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_list(ROWS)
    built = bridgepack.build({**recipe, "data": {"train": dataset}}, output="packed")
    again = bridgepack.build(recipe, overrides={"data.train": datasets.Dataset.from_list(ROWS)}, output="packed")
    some = bridgepack.build(recipe, overrides={"data.train": dataset.select([2, 4])}, output="some")

    assert again.was_built_before
    (kept,) = {record.path for split in built.manifest.splits for record in split.inputs}
    assert Path(kept).resolve().parent == tmp_path / ".bridgepack" / "tokens" / "rows"
    assert some.manifest.splits[0].statistics.num_sequences == 2
    assert bridgepack.diff("packed", bridgepack.build(recipe, output="file").output).splits[0].num_retokenized == 0
    assert bridgepack.prove.sources("packed").outcome == "same"


def test_kept_rows_go_when_no_artifact_is_made_of_them(recipe: dict[str, Any], tmp_path: Path) -> None:
    rows = datasets.Dataset.from_list(ROWS)
    built = {
        name: bridgepack.build({**recipe, "artifact": f"made/{name}", "data": {"train": rows.select(chosen)}})
        for name, chosen in {"first": [0, 1], "second": [2]}.items()
    }
    store = tmp_path / "made" / ".bridgepack" / "tokens"
    assert list_store(store).num_row_files == 2
    shutil.rmtree(built["first"].output)
    assert prune_store(store, older_than_s=3600).removed == ()
    removed = {Path(path).suffix for path, _, why in prune_store(store, is_unused=True).removed}
    assert removed == {".parquet", ".tokens"}
    assert list_store(store).num_row_files == 1
    assert bridgepack.prove.sources(built["second"].output).outcome == "same"


def test_datasets_are_sources_of_a_mixture(recipe: dict[str, Any]) -> None:
    rows, other = datasets.Dataset.from_list(ROWS), datasets.Dataset.from_list(ROWS[:3])
    built = bridgepack.build({**recipe, "data": {"train": [rows, {"path": other, "epochs": 2}]}}, output="packed")
    assert built.manifest.splits[0].statistics.num_sequences == len(ROWS) + 6
    nested = {"sources": [{"path": rows, "weight": 1}, {"path": other, "weight": 1}]}
    deeper = bridgepack.build({**recipe, "data": {"train": nested}}, output="nested")
    assert deeper.manifest.splits[0].statistics.num_sequences == 6
    with pytest.raises(ConfigError, match=r"data\.train\.1 is .*Dataset without rows"):
        bridgepack.build({**recipe, "data": {"train": [rows, rows.select([])]}}, output="none")


@pytest.mark.parametrize("at", ["data.train", "tokenizer.name_or_path"])
def test_what_is_no_dataset_of_rows_is_refused(recipe: dict[str, Any], at: str) -> None:
    several = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
    with pytest.raises(ConfigError, match=rf"{at} is a DatasetDict.*save it with to_parquet"):
        bridgepack.build(recipe, overrides={at: several}, output="packed")
    assert not Path("packed").exists()


@pytest.mark.parametrize("rows", [ROWS, [{"question": "2 + 2?"}] * 30])
def test_a_recipe_holds_no_rows_and_says_so_in_one_line(recipe: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match=r"^data\.train is a list .*30 of them; .*take the rows") as found:
        bridgepack.load_recipe({**recipe, "data": {"train": rows}})
    assert "\n" not in str(found.value)
    with pytest.raises(ConfigError, match=r"data\.train\.0\.paht is not a field.*Did you mean path\?"):
        bridgepack.preview({**recipe, "data": {"train": [{"paht": "rows.jsonl"}]}})


#: What holds rows in memory.
FORMS: dict[str, Any] = {
    "Dataset": datasets.Dataset.from_list,
    "DataFrame": pandas.DataFrame,
    "list": list,
    "tuple": tuple,
    "mappings": lambda rows: [UserDict(row) for row in rows],
}


@pytest.mark.parametrize("form", FORMS)
def test_functions_on_recipes_take_the_same_rows(recipe: dict[str, Any], form: str) -> None:
    given = {**recipe, "data": {"train": FORMS[form](ROWS)}}
    overrides = {"data.train": FORMS[form](ROWS)}
    built, from_file = bridgepack.build(given, output="packed"), bridgepack.build(recipe, output="file")

    assert bridgepack.diff("packed", "file").splits[0].num_retokenized == 0
    assert bridgepack.build(recipe, overrides=overrides, output="packed").was_built_before
    (kept,) = {record.path for split in built.manifest.splits for record in split.inputs}
    assert Path(kept).is_file()
    preview = bridgepack.preview(given)
    assert preview.sources[0].num_sequences == from_file.manifest.splits[0].statistics.num_sequences == len(ROWS)
    assert bridgepack.preview(recipe, overrides=overrides).num_packs == preview.num_packs
    assert bridgepack.prove.masks(given).num_agreed == len(ROWS)
    assert bridgepack.prove.masks(recipe, overrides=overrides).num_agreed == len(ROWS)
    assert bridgepack.check(given, artifact="packed", select=["BP601"]).findings == ()
    assert bridgepack.check(recipe, artifact="packed", select=["BP601"], overrides=overrides).findings == ()
    model = {"model": {"name": "Qwen/Qwen3-8B"}, "preprocessing": {"kind": "chat"}}
    plan = bridgepack.plan({**given, **model}, num_gpus=8)
    assert plan.lengths.origin.startswith(f"all {len(ROWS)} sequences")
    assert bridgepack.preview(plan.recipe).sources[0].num_sequences == len(ROWS)  # it names files, which stay


def test_rows_without_a_place_stay_what_they_are(recipe: dict[str, Any]) -> None:
    rows = [
        {"question": "2 + 2?", "answer": "4", "dataset": "sums", "messages": ROWS[0]["messages"]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": None},
    ]
    bridgepack.build({**recipe, "data": {"train": rows}}, output="packed")
    (path,) = Path(".bridgepack/tokens/rows").iterdir()

    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


def test_a_frame_has_what_its_columns_mean(recipe: dict[str, Any]) -> None:
    turns = [{"role": "user", "content": "a", "name": None}, {"role": "assistant", "content": "b", "name": "B"}]
    frame = pandas.DataFrame(
        {
            "messages": [turns, np.array(turns, dtype=object)],
            "score": [1.5, float("nan")],
            "note": ["text", None],
            "when": pandas.to_datetime(["2026-01-01", None]),
        },
        index=pandas.Index([7, 8], name="id"),
    )
    bridgepack.build({**recipe, "data": {"train": frame}}, output="packed")
    (path,) = Path(".bridgepack/tokens/rows").iterdir()

    first, second = map(json.loads, path.read_text().splitlines())
    kept = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "name": "B"}]
    assert first == {"id": 7, "messages": kept, "score": 1.5, "note": "text", "when": "2026-01-01T00:00:00"}
    assert second == {"id": 8, "messages": kept}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pandas.DataFrame({"messages": []}), r"^data\.train is a DataFrame without"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), r"^data\.train is a DataFrame with"),
        ([{"messages": {1, 2}}], "that is not JSON, .*it has a set"),
        ([{"messages": "\ud800"}], "that is not JSON, .*surrogates"),
        ([{"messages": b"x"}], "that is not JSON, .*it has a bytes"),
        (
            pandas.Series([1]),
            "or for sources .*a pandas.DataFrame or a list",
        ),
        ([{"path": "rows.jsonl", "shuffle": 1}], r"data\.train\.0\.shuffle is not a field"),
        ([], "list of at least 1 entry"),
    ],
)
@pytest.mark.parametrize("function", ["build", "preview", "prove.masks", "check", "plan"])
def test_data_that_are_no_rows_are_refused_alike(
    recipe: dict[str, Any], function: str, data: Any, message: str
) -> None:
    more = {"num_gpus": 8} if function == "plan" else {}
    with pytest.raises(ConfigError, match=message):
        attrgetter(function)(bridgepack)({**recipe, "data": {"train": data}}, **more)
    assert not [*Path().rglob("rows/*")]


def test_rows_of_memory_are_files_of_the_store(recipe: dict[str, Any], tmp_path: Path) -> None:
    bridgepack.preview({**recipe, "data": {"train": ROWS}})
    store = tmp_path / "artifacts" / ".bridgepack" / "tokens"

    assert list_store(store).num_row_files == 1
    assert [Path(path).suffix for path, _, _ in prune_store(store, is_unused=True).removed] == [".jsonl"]


class Named:
    output = "packed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bridgepack.prove.sources("packed", packs=3),
            "prove.sources has no option 'packs'; allowed: num_packs, seed",
        ),
        (lambda: bridgepack.prove.masks("packed", rows=3), "prove.masks has no option 'rows'"),
        (lambda: bridgepack.prove.training("packed", gpu=True), "prove.training has no option 'gpu'"),
        (lambda: bridgepack.trace("packed"), "trace needs step, pack"),
        (lambda: bridgepack.trace("packed", pack=1, rank=0), "rank is 0"),
        (lambda: bridgepack.explain("BP999"), "rule is 'BP999'"),
        (lambda: bridgepack.explain(101), "rule is 101; allowed: str"),
        (lambda: bridgepack.inspect(Named()), r"^artifact is .*allowed: path. Give its `output`"),
        (lambda: bridgepack.check(Named()), "allowed: a path, .*Give its `output`"),
        (lambda: bridgepack.inspect("packed", pack="0"), "pack is '0'"),
        (lambda: bridgepack.build("mine.yaml", num_workers=True), "num_workers is True; allowed: .* or None"),
        (lambda: bridgepack.build("mine.yaml", overrides=["packing.seed=7"]), "overrides is .*dict"),
        (lambda: bridgepack.prove.sources("packed", num_packs=-1), "num_packs is -1"),
        (lambda: bridgepack.prove.masks("packed", num_rows=0), "num_rows is 0; allowed: 1 or more"),
        (lambda: bridgepack.prove.training(Named()), "target is .*; allowed: path"),
        (lambda: bridgepack.preview({"name": "x", "data": {"train": iter(())}}), "file and name it"),
        (lambda: bridgepack.launch({"name": "x"}, "local"), "data is missing"),
        (lambda: bridgepack.launch("mine.yaml", "local", skip="build"), "skip is 'build'; allowed: list"),
        (lambda: bridgepack.forward_step_for(None), "path, SFTRecipe or dict"),
        (lambda: bridgepack.build("mine.yaml", out="x"), "build: .* argument 'out'; allowed: recipe, output"),
        (lambda: bridgepack.launch("mine.yaml"), "launch: missing .* 'cluster'; allowed: recipe, cluster"),
        (lambda: bridgepack.repack("packed", {}, output="s3://b/x"), "output is 's3://b/x', a URL"),
        (
            lambda: bridgepack.prove.sources("packed", scratch="s3://b/x"),
            "scratch is 's3://b/x', a URL",
        ),
        (lambda: bridgepack.report("x" * 300), "File name too long. Check the path"),
        (lambda: bridgepack.repack("packed", {}, output="a\0b"), r"output is 'a\\x00b'; allowed: a path"),
        (lambda: bridgepack.preview("mine.yaml", num_rows=2**70), "num_rows is 1180591620717411303424; allowed"),
    ],
)
def test_mistakes_say_what_to_do(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_a_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="current folder was deleted"):
        bridgepack.check(tmp_path)


def test_a_home_folder_is_not_made_under_its_sign(recipe: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match=r"output is '~/packed'; .*Give the full path"):
        bridgepack.build(recipe, output="~/packed")
    assert not Path("~").exists()
