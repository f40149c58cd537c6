"""The documentation says what the code does: snippets run, recipes load, commands parse, pages are current."""

import dataclasses
import json
import os
import re
import shlex
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from ruamel.yaml import YAML
from scripts.docs_pages.manifest import manifest_page
from scripts.docs_pages.pictures import PICTURES
from scripts.docs_pages.reference import commands_page, recipe_page
from scripts.docs_pages.screens import PAGES, SCHEMES, built, screens
from scripts.docs_pages.site_files import README_PICTURES, site_files

import bridgepack
from bridgepack.cli import bridgepack as command_line
from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.recipe.host_paths import FIELDS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.section import Section, meanings_of
from bridgepack.data.artifact.bridge_metadata import BridgeMetadataEntry
from bridgepack.data.packing.plan import ALGORITHMS
from bridgepack.examples.__main__ import write_examples
from bridgepack.records import DropReason, Manifest, SplitRecord, SplitStatistics
from bridgepack.records.messages import with_user_paths
from bridgepack.reporting.rules import named_rule
from tests.support.docs_blocks import PROJECT, RUN_PAGES, Block, blocks, pages, run_snippets
from tests.unit.test_cli import commands_below

BASE: dict[str, Any] = {
    "name": "docs",
    "data": {"train": "rows.jsonl"},
    "tokenizer": {"name_or_path": "quickstart/tokenizer"},
    "packing": {"packed_sequence_size": 1024},
}


def _name(block: Block) -> str:
    return f"{block.page}: {block.heading.lstrip('# ')}"


def _values(block: Block) -> dict[str, Any]:
    """Return a recipe: the block itself, or the block's sections in place of those of a small one."""
    values = YAML(typ="safe", pure=True).load(block.text)
    return values if "name" in values else {**BASE, **values}


def _page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def _readme() -> str:
    return (PROJECT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the pages' snippets run: quickstart/ and mine.yaml, the recipe of data.md."""
    folder = tmp_path_factory.mktemp("docs")
    write_examples(folder / "quickstart", limit=150, vocab_size=600)
    values = _values(blocks("yaml", page="data.md")[0])
    values["data"] = {"train": "quickstart/training.jsonl", "validation": "quickstart/validation.jsonl"}
    values["tokenizer"] = BASE["tokenizer"]
    (folder / "mine.yaml").write_text(json.dumps(values))
    return folder


def test_pictures_of_the_readme_are_current() -> None:
    shown = {f"images/{name}" for name in re.findall(r"\]\(docs/images/([^)]+)", _readme())}
    assert shown == README_PICTURES
    for name in README_PICTURES:
        assert _page(name) == PICTURES[name](), "run scripts/generate_docs"


def test_generator_writes_what_is_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT / "scripts")
    loader = SourceFileLoader("generate_docs", str(PROJECT / "scripts/generate_docs"))
    generator = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(generator)
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    (tmp_path / "images").mkdir()

    assert generator.main(["--check", *README_PICTURES]) == 1
    assert generator.main([*README_PICTURES]) == 0
    assert generator.main(["--check", *README_PICTURES]) == 0
    assert generator.main(["--chekc"]) == 2
    assert os.access(PROJECT / "scripts/generate_docs", os.X_OK)
    assert generator.FILES.keys() == {*README_PICTURES, "formats.md"}


def test_recipe_page_has_every_field() -> None:
    page = recipe_page()
    pending: list[type[Section]] = [SFTRecipe]
    seen: set[type[Section]] = set()
    while pending:
        model = pending.pop()
        seen.add(model)
        for name, field in model.model_fields.items():
            if len(getattr(field.annotation, "__args__", ())) == 1 and isinstance(field.annotation.__args__[0], str):
                assert f" of kind `{field.annotation.__args__[0]}`" in page
                continue
            assert re.search(rf"- \*\*`{name}`\*\*( \(|\. )", page)
            assert " ".join(meanings_of(model)[name].split()) in page
            pending += [found for found in _sections_in(field.annotation) if found not in seen]

    assert len(seen) == 33


def _sections_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _sections_in(argument)]


def test_commands_page_has_every_option() -> None:
    page = commands_page(command_line)
    commands = {" ".join(words): command for words, command in commands_below(command_line) if words}
    options = {
        name: [item.opts[0] for item in command.params if isinstance(item, click.Option)]
        for name, command in commands.items()
    }
    assert [name for name in commands if f"## bridgepack {name}\n" not in page] == []
    assert [option for found in options.values() for option in found if option not in page] == []
    assert re.findall(r"`-[^`]*,`", page) == []
    groups = {name for name, command in commands.items() if isinstance(command, click.Group)}
    without = [name for name in commands if name not in groups and "--json" not in options[name]]
    assert without == ["new", "recipes schema"]
    assert "all but `new` and `recipes schema` have" in page


def test_snippets_are_found() -> None:
    assert len(blocks("yaml")) >= 10
    assert len(blocks("python")) >= 10
    assert len(blocks("bash")) >= 6
    assert len(FORMATS) == 8


@pytest.mark.parametrize("block", blocks("yaml"), ids=_name)
def test_recipe_or_cluster_loads(block: Block) -> None:
    if "executor:" in block.text:
        ClusterConfig.from_mapping(YAML(typ="safe", pure=True).load(block.text))
    else:
        SFTRecipe.from_mapping(_values(block)).resolve()


@pytest.mark.parametrize("block", blocks("python"), ids=_name)
def test_snippet_compiles(block: Block) -> None:
    compile(block.text, block.page, "exec")


@pytest.mark.parametrize("block", [block for block in blocks("bash") if block.page not in RUN_PAGES], ids=_name)
def test_commands_parse(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)  # groups go on to their commands, which do nothing
    num_checked = 0
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        program, *arguments = words
        if Path(program).name == "bridgepack":
            command_line.main(arguments, prog_name="bridgepack", standalone_mode=False)
        elif "-m" not in words and "/" in program and not program.startswith(".venv"):  # made by scripts/test
            assert os.access(PROJECT / program, os.X_OK), line
        num_checked += 1

    assert num_checked > 0


@pytest.mark.parametrize(
    ("page", "section"),
    [
        ("packing.md", None),
        ("packing-from-zero.md", None),
        ("python-api.md", None),
        ("trace.md", "What a rank sees"),
        ("trace.md", "How Megatron-Bridge orders packs"),
    ],
)
def test_snippets_run_and_print_what_the_page_says(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, page: str, section: str | None
) -> None:
    monkeypatch.chdir(workplace)
    assert run_snippets(page, section) > 0


FORMATS = {block.heading: block for block in blocks("json", page="data.md") if '"reason"' not in block.text}


@pytest.mark.parametrize("heading", FORMATS, ids=lambda heading: heading.lstrip("# "))
def test_format_is_read(workplace: Path, tmp_path: Path, heading: str) -> None:
    values: dict[str, Any] = BASE
    for block in blocks("yaml", page="data.md"):
        if block.heading == heading:
            values = _values(block)
    (tmp_path / "rows.jsonl").write_text(FORMATS[heading].text)
    data = {**values["data"], "train": str(tmp_path / "rows.jsonl")}
    tokenizer = {"name_or_path": str(workplace / "quickstart/tokenizer")}

    recipe = SFTRecipe.from_mapping({**values, "data": data, "tokenizer": tokenizer})
    result = bridgepack.build(recipe, output=tmp_path / "artifact")

    assert result.manifest.splits[0].drops == {}
    assert result.manifest.splits[0].statistics.num_sequences == FORMATS[heading].text.count("\n") == 1
    assert not bridgepack.check(result.output).has_errors


def test_ledger_example_has_the_ledger_s_fields(workplace: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(f"[]\n{next(iter(FORMATS.values())).text}")
    tokenizer = {"name_or_path": str(workplace / "quickstart/tokenizer")}
    values = {**BASE, "data": {"train": str(tmp_path / "rows.jsonl")}, "tokenizer": tokenizer}
    result = bridgepack.build(SFTRecipe.from_mapping(values), output=tmp_path / "artifact")
    written = json.loads((result.output / "plan" / "dropped.jsonl").read_text())
    shown = next(json.loads(block.text) for block in blocks("json", page="data.md") if '"reason"' in block.text)

    assert list(shown) == list(written)
    assert shown["reason"] in list(DropReason)


def test_every_drop_reason_is_explained() -> None:
    table = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", _page("data.md"), re.MULTILINE)

    assert table == [str(reason) for reason in DropReason]


@pytest.mark.parametrize("record", [Manifest, SplitRecord, SplitStatistics])
def test_manifest_page_has_every_field(record: type) -> None:
    names, page = [field.name for field in dataclasses.fields(record)], manifest_page()
    assert [name for name in names if f"- **`{name}`**" not in page] == []
    assert names


@pytest.mark.parametrize(
    ("page", "names"),
    [("artifact.md", list(BridgeMetadataEntry.__annotations__)), ("packing.md", list(ALGORITHMS))],
    ids=["bridge-metadata", "algorithms"],
)
def test_names_are_explained(page: str, names: list[str]) -> None:
    assert [name for name in names if f"`{name}`" not in _page(page)] == []
    assert names


def test_example_finding_is_the_rule_s() -> None:
    rule = named_rule("BP101")
    example = next(block.text for block in blocks("text", page="check.md"))

    assert f"{rule.severity}[{rule.code}]: {rule.name}\n" in example
    assert f"why     {rule.why}\n" in example
    assert f"fix     {with_user_paths(rule.fix, FIELDS.__getitem__)}\n" in example


def test_links_of_the_readme_lead_to_what_is_in_git() -> None:
    num_checked, pages_of_the_site = 0, {f"docs/{name}" for name in site_files(command_line)}
    for path in (PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (PROJECT / target).is_file(), f"{path.name}: {target}"
                assert target not in pages_of_the_site, f"{path.name}: {target}"
                num_checked += 1

    assert num_checked > 0


def test_pages_have_no_long_dashes() -> None:
    assert [path.name for path in pages() if "\N{EM DASH}" in path.read_text(encoding="utf-8")] == []


def test_host_of_the_site_builds_it_as_the_tests_do() -> None:
    settings = YAML(typ="safe", pure=True).load((PROJECT / ".readthedocs.yaml").read_text())
    groups = tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"]
    assert settings["mkdocs"] == {"configuration": "mkdocs.yml", "fail_on_warning": True}
    assert "python -m pip install --group docs ." in settings["build"]["jobs"]["install"]
    assert [re.match(r"[\w-]+", line)[0] for line in groups["docs"]] == [
        "mkdocs",
        "mkdocs-material",
        "mkdocstrings-python",
    ]


def test_what_comes_from_the_code_is_not_in_git() -> None:
    names = site_files(command_line)
    assert {"recipe-reference.md", "recipe.schema.json", "cli.md", "rules/index.md", "rules/BP004.md"} <= names.keys()
    assert [name for name in names if (PROJECT / "docs" / name).exists()] == []


def test_pictures_have_a_title_and_are_shown() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in pages())
    for name, draw in PICTURES.items():
        root = ElementTree.fromstring(draw())
        space = "{http://www.w3.org/2000/svg}"
        assert all(root.findtext(f"{space}{tag}") for tag in ("title", "desc"))
        assert f"]({name})" in shown
    assert len(PICTURES) > 0


@pytest.mark.full
def test_screens_are_of_commands_that_print_so_today(tmp_path: Path) -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in pages())
    drawn = screens(built(tmp_path))
    for name, text in drawn.items():
        assert _page(name) == text, "run scripts/generate_screens"
        assert str(tmp_path) not in text
        assert ElementTree.fromstring(text).findtext("{http://www.w3.org/2000/svg}title")
    photographs = {f"{name}{ending}.png": scheme for name in PAGES for scheme, ending in SCHEMES.items()}
    for name in photographs:
        assert (PROJECT / "docs" / name).stat().st_size < 150_000
    assert [name for name in drawn if f"]({name})" not in shown] == []
    assert [name for name, scheme in photographs.items() if f"]({name}#only-{scheme})" not in shown] == []
