"""The table of SECURITY.md as data: for each command and source, whether it is read, runs as code, or makes it connect.

`tests/unit/test_security_page.py` runs the command lines with something planted in each source, compares what happens,
and holds the page to this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: Sources -> how the page calls them.
SOURCES = {
    "recipe": "recipe: YAML, TOML",
    "python": "recipe: Python",
    "artifact": "artifact",
    "saved": "saved config",
    "tokenizer": "tokenizer folder",
    "hub": "hub id",
    "data": "data file",
    "cluster": "cluster file",
    "folder": "current folder",
    "environment": "environment",
}
#: What a cell says: it is read, runs as code, runs only if the call says so, makes the command connect.
READS, RUNS, RUNS_IF_TOLD, CONNECTS = "R", "X", "W", "C"
#: Words of a call without which a W is not run.
TRUST_REMOTE_CODE, TRUST_CONFIG = "--trust-remote-code", "--trust-config"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A command of the table."""

    name: str
    cells: Mapping[str, str]  #: source -> letters; sources that are not there are not touched
    lines: tuple[str, ...] = ()  #: command lines that are run with something planted in each source
    starts_jobs: bool = False  #: whether they start processes with Megatron-Bridge or nemo-run, so are run as written
    elsewhere: Mapping[str, str] = MappingProxyType({})  #: source -> the test that shows its cell
    writes: tuple[str, ...] = ()  #: what is written in the folder of the call
    place: str = "nothing"  #: how the page says where it writes


def _of_recipe(more: str = "", **changes: str) -> dict[str, str]:
    cells = {"recipe": "R", "python": "RX", "tokenizer": "RW", "hub": "CW", "data": "R"}
    return {**cells, **changes}


def _of_artifact(**changes: str) -> dict[str, str]:
    return {"artifact": "R", **changes}


_STORE, _STORE_OPTION = ".bridgepack", "--store .bridgepack/tokens"
_SIZES = "--num-gpus 8 --seq-length 512"
_NEW = f"new other --data rows.jsonl --tokenizer tokenizer --model Qwen/Qwen3-8B {_SIZES} --output new.yaml"
_REPACK = "repack packed --set packing.packed_sequence_size=128 --output wide --num-workers 1"
_CHECKED = {"recipe": "R", "python": "RX", "tokenizer": "R"}
TABLE = (
    Row(
        name="new",
        lines=(_NEW,),
        cells={"tokenizer": "R", "data": "R"},
        writes=("new.yaml",),
        place="`--output`",
    ),
    Row(name="preview", lines=("preview mine.yaml",), cells=_of_recipe()),
    Row(
        name="plan",
        lines=("plan mine.yaml --num-gpus 8", "plan mine.yaml --num-gpus 8 --artifact packed"),
        cells={**_of_recipe(), "artifact": "R"},
    ),
    Row(name="recipes list, layouts, schema", lines=("recipes list", "recipes layouts", "recipes schema"), cells={}),
    Row(name="recipes show", lines=("recipes show mine.yaml",), cells={"recipe": "R", "python": "RX"}),
    Row(name="recipes show --resolved", lines=("recipes show mine.yaml --resolved",), cells=_of_recipe(hub="")),
    Row(name="build --dry-run", lines=("build mine.yaml --output new --dry-run",), cells=_of_recipe()),
    Row(
        name="build",
        lines=("build mine.yaml --output new --num-workers 1",),
        cells=_of_recipe(tokenizer="RX", hub="CX"),
        writes=("new", _STORE),
        place="`--output`, `--store`",
    ),
    Row(name="repack", lines=(_REPACK,), cells=_of_artifact(), writes=("wide", _STORE), place="`--output`, `--store`"),
    Row(
        name="check",
        lines=("check mine.yaml --artifact packed", "check packed", "check saved.yaml"),
        cells={**_CHECKED, "artifact": "R", "saved": "R"},
    ),
    Row(
        name="check --real-validate",
        lines=("check saved.yaml --real-validate", f"check saved.yaml --real-validate {TRUST_CONFIG} planted"),
        starts_jobs=True,
        elsewhere=dict.fromkeys((*_CHECKED, "artifact"), "tests/unit/test_security_page.py"),  # as without the option
        cells={**_CHECKED, "artifact": "R", "saved": "RW"},
        place="a cache of the installed host's fields",
    ),
    Row(name="explain", lines=("explain", "explain BP101"), cells={}),
    Row(name="inspect", lines=("inspect packed", "inspect packed --pack 0"), cells=_of_artifact(tokenizer="R")),
    Row(
        name="report",
        lines=("report packed --output page.html",),
        cells=_of_artifact(tokenizer="R"),
        writes=("page.html",),
        place="`--output`",
    ),
    Row(
        name="report --sign-off",
        lines=("report packed --sign-off page.html",),
        cells=_of_artifact(tokenizer="RW", data="R"),
        writes=("packed", "page.html"),
        place="`--sign-off`, `report.html` in the artifact",
    ),
    Row(
        name="prove ARTIFACT",
        lines=(
            "prove packed",
            "prove sources packed --all --num-workers 1",
            "prove masks packed",
            "prove served packed",
        ),
        cells=_of_artifact(tokenizer="RW", data="R"),
    ),
    Row(
        name="prove masks, served RECIPE", lines=("prove masks mine.yaml", "prove served mine.yaml"), cells=_of_recipe()
    ),
    Row(
        name="prove training",
        lines=(
            "prove training mine.py --artifact packed --num-packs 1 --tensor 1",
            "prove training packed --num-packs 1 --tensor 1",
            "prove training saved.yaml",
        ),
        starts_jobs=True,
        elsewhere={"hub": "tests/unit/test_trust.py"},
        cells={"recipe": "R", "python": "RX", "artifact": "R", "saved": "R", "hub": "CW"},
    ),
    Row(name="trace", lines=("trace packed --pack 0",), cells=_of_artifact(tokenizer="R")),
    Row(name="diff", lines=("diff packed packed",), cells=_of_artifact()),
    Row(
        name="launch --dry-run",
        lines=("launch mine.yaml --cluster cluster.yaml --dry-run",),
        cells={**_CHECKED, "data": "R", "cluster": "R"},
    ),
    Row(
        name="launch",
        lines=(
            "launch mine.py --cluster cluster.yaml --skip check --skip train",
            "launch hub.yaml --cluster cluster.yaml --skip check --skip train",
            "launch mine.yaml --cluster cluster.yaml --artifact packed --skip train",
        ),
        starts_jobs=True,
        elsewhere={"cluster": "tests/e2e/test_slurm_examples.py"},
        cells={**_of_recipe(tokenizer="RX", hub="CX"), "artifact": "R", "cluster": "RXC"},
        writes=("bridgepack-runs",),
        place="the run's folder, nemo-run's, what the recipe names",
    ),
    Row(
        name="losses",
        lines=("losses run --step 1", "losses run --output rows.parquet"),
        cells=_of_artifact(tokenizer="R"),
        writes=("rows.parquet",),
        place="`--output`",
    ),
    Row(name="store list, verify", lines=(f"store list {_STORE_OPTION}", f"store verify {_STORE_OPTION}"), cells={}),
    Row(
        name="store prune",
        lines=(f"store prune --unused {_STORE_OPTION}",),
        cells={},
        writes=(_STORE,),
        place="`--store`",
    ),
)


def table_text() -> str:
    """Return the table as the page has it; every command reads variables, such as NO_COLOR."""
    heads = ["command", *SOURCES.values(), "writes"]
    lines = [heads, ["---"] * len(heads)]
    for row in TABLE:
        cells = {**row.cells, "environment": "R"}
        lines.append([f"`{row.name}`", *(cells.get(source, "") for source in SOURCES), row.place])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
