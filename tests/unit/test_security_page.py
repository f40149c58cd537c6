"""SECURITY.md: what each command does with each source, shown by what is planted there. Measures with inotify."""

import json
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.sequences.loading import forget_stage
from tests.support import small_builds as small
from tests.support.docs_blocks import PROJECT
from tests.support.golden import renewed_by
from tests.support.launches import launch_recipe
from tests.support.small_builds import Command, file_bytes
from tests.support.touched_files import touched_files
from tests.support.trust_table import TABLE, Row, table_text

_VARIABLE = re.compile(r"\bBRIDGEPACK_[A-Z]\w+")
WORD = "--trust-remote-code"
HUB_ID = "someone/tokenizer"
_COMMIT = "0123456789" * 4
#: Texts that would make a file where a shell or a template runs them.
SHELL = "$(touch marker-data)`touch marker-data`"
TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch marker-data') }}"
CODE = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast

class OwnTokenizer(PreTrainedTokenizerFast):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        Path("marker-{name}").touch()
"""
#: File or folder of the world -> its source.
FILES = {"mine.yaml": "recipe", "hub.yaml": "recipe", "mine.py": "python", "packed": "artifact", "saved.yaml": "saved",
         "tokenizer": "tokenizer", "rows.jsonl": "data", "cluster.yaml": "cluster"}  # fmt: skip
#: What is gone at the end, or is a cache of the hub's libraries.
PASSING = ("marker-", ".new.", ".wide.", ".page", ".bridgepack-", "hub", "home")
SAVED = """
_target_: megatron.bridge.training.config.ConfigContainer
model: {_target_: planted.Model}
dataset: {_target_: megatron.bridge.data.builders.GPTSFTDatasetConfig}
train: {_target_: megatron.bridge.training.config.TrainingConfig, train_iters: 9}
"""


class Hub:
    """Answers nobody, and counts who asks: a tokenizer's id is looked up here. Nothing else may be connected to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.num_asked, self.others, self.is_watched = self._socket.getsockname()[1], 0, list[Any](), False
        threading.Thread(target=self._count, daemon=True).start()
        sys.addaudithook(self._audit)

    def _count(self) -> None:
        while True:
            self._socket.accept()[0].close()
            self.num_asked += 1

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Stop what this process connects to elsewhere; an audit hook stays for ever, so it is asked to look."""
        if not self.is_watched or event != "socket.connect" or arguments[0].family == socket.AF_UNIX:
            return
        if arguments[1][:2] != ("127.0.0.1", self.port):
            self.others.append(arguments[1])
            raise OSError("the test connects to nobody else")


@pytest.fixture(scope="module")
def hub() -> Hub:
    return Hub()


def _with_code(folder: Path, name: str) -> None:
    """Make the tokenizer in a folder one with code, which says that it ran."""
    config = folder / "tokenizer_config.json"
    named = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}}
    config.write_text(json.dumps({**json.loads(config.read_text()), **named}))
    (folder / "own.py").write_text(CODE.format(name=name))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[str, bytes]:
    """Return the files of a folder that has something planted in each source."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copytree(chatml_tokenizer, "tokenizer")
        _with_code(Path("tokenizer"), "tokenizer")
        changes = {"tokenizer.trust_remote_code": True, "preprocessing.kind": "chat"}
        recipe = launch_recipe(Path(), Path("tokenizer")).override({**changes, "packing.packed_sequence_size": 256})
        rows = [small.chat_row(f"Is it {n}? {SHELL}", f"Yes, {n}. {TEMPLATE}") for n in range(20)]
        small.write_json_lines(Path("rows.jsonl"), rows)
        small.write_recipe(Path("mine.yaml"), recipe)
        small.write_recipe(Path("hub.yaml"), recipe.override({"tokenizer.name_or_path": HUB_ID}))
        Path("mine.py").write_text(
            "from pathlib import Path\nimport bridgepack\n\ndef mine_recipe():\n    Path('marker-python').touch()\n"
            "    return bridgepack.load_recipe('mine.yaml')\n"
        )
        Path("saved.yaml").write_text(SAVED)
        Path("planted.py").write_text("from pathlib import Path\nPath('marker-saved').touch()\nModel = dict\n")
        Path("cluster.yaml").write_text(f"executor: {{kind: local, env_vars: {{A: {json.dumps(SHELL)}}}}}\n")
        snapshot = Path("hub", f"models--{HUB_ID.replace('/', '--')}", "snapshots", _COMMIT)
        shutil.copytree("tokenizer", snapshot)
        _with_code(snapshot, "hub")
        (snapshot / "config.json").write_text('{"model_type": "llama"}')
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text(_COMMIT)
        forget_stage()
        small.build(recipe, Path("packed"), store=Path(".bridgepack/tokens"))
        assert Path("marker-tokenizer").exists()  # the recipe's word counts in a build
        Path("marker-tokenizer").unlink()
    return file_bytes(folder)


@pytest.fixture
def folder(made: dict[str, bytes], hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a call, with homes and caches in it, where the hub may be asked."""
    folder = tmp_path / "call"
    for name, content in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    monkeypatch.chdir(folder)
    for name in ("EDITOR", "PAGER", "PYTHONSTARTUP", "BROWSER"):
        monkeypatch.setenv(name, "touch marker-environment")
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder / "home"))
    get_temp_dir()  # of the process; it outlasts the test
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    address = f"http://127.0.0.1:{hub.port}"
    for name, value in (("HF_ENDPOINT", address), ("HF_HUB_CACHE", str(folder / "hub"))):
        monkeypatch.setenv(name, value)
        monkeypatch.setattr(f"huggingface_hub.constants.{name.replace('HF_ENDPOINT', 'ENDPOINT')}", value)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return folder


@pytest.mark.parametrize("row", [row for row in TABLE if row.lines], ids=lambda row: row.name)
def test_each_cell_is_what_happens(folder: Path, hub: Hub, command: Command, row: Row) -> None:
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # one that runs has the variables of another test
    cells, written = _measure(folder, hub, command, row)
    assert cells == {
        source: letters for source, letters in row.cells.items() if letters and source not in ("environment", "folder")
    }
    assert written == set(row.writes)


def _measure(folder: Path, hub: Hub, command: Command, row: Row) -> tuple[dict[str, str], set[str]]:
    """Return source -> letters, and what the command lines of a row wrote in the folder."""
    letters: dict[str, set[str]] = {}
    written: set[str] = set()
    takes_word = any(letter in letters_of for letters_of in row.cells.values() for letter in "WX")
    for line in row.lines:
        for source, words in _variants(line):
            notes, names = _ran(folder, hub, command, source, words)
            if takes_word:
                told, more = _ran(folder, hub, command, source, f"{words} {WORD}")
                notes |= {(name, letter.replace("X", "W")) for name, letter in told if (name, "X") not in notes}
                names |= more
            written |= names
            for name, letter in notes:
                letters.setdefault(name, set()).add(letter)
    cells = {name: "".join(letter for letter in "RCXW" if letter in seen) for name, seen in letters.items()}
    return cells, written


def _ran(folder: Path, hub: Hub, command: Command, source: str, words: str) -> tuple[set[tuple[str, str]], set[str]]:
    """Run a command line; return (source, letter) of what it did, and what it wrote, which is removed."""
    forget_stage()
    before = hub.num_asked
    with touched_files(folder) as touched, _watched(hub):
        ended = command(*words.split())
    if "No such option" in ended.errors:
        return set(), set()
    assert ended.code in (0, 1) or WORD in ended.output + ended.errors or source == "hub", (words, ended)
    assert hub.others == [], words
    notes = {(FILES[name], "R") for path in touched.read if (name := path.split("/")[0]) in FILES}
    if hub.num_asked > before:
        notes.add(("hub" if source == "hub" else "nobody", "C"))
    for marker in folder.glob("marker-*"):
        notes.add((marker.name.removeprefix("marker-"), "X"))
        marker.unlink()
    names = {path.split("/")[0] for path in touched.written if "#" not in path}  # unnamed files have no other
    names = {name for name in names if not name.startswith(PASSING)}
    for path in (folder / name for name in names - set(FILES) - {".bridgepack"}):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return notes, names


@contextmanager
def _watched(hub: Hub) -> Iterator[None]:
    hub.is_watched = True
    try:
        yield
    finally:
        hub.is_watched = False


def _variants(line: str) -> Iterator[tuple[str, str]]:
    yield "recipe", line
    if "mine.yaml" in line:
        yield "python", line.replace("mine.yaml", "mine.py")
        yield "hub", line.replace("mine.yaml", "hub.yaml")
    elif "--tokenizer" in line:
        yield "hub", line.replace("--tokenizer tokenizer", f"--tokenizer {HUB_ID}")


def test_the_page_has_the_table() -> None:
    page = PROJECT / "SECURITY.md"
    begin, _, rest = page.read_text().partition("<!-- table: tests/support/trust_table.py -->\n")
    _, _, end = rest.partition("<!-- end -->")
    mark = "<!-- table: tests/support/trust_table.py -->"
    renewed = f"{begin}{mark}\n\n{table_text()}\n\n<!-- end -->{end}"
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        page.write_text(renewed)
    assert page.read_text() == renewed, renewed_by(__file__)
    assert "SECURITY.md" in (PROJECT / "README.md").read_text()


def test_what_no_line_shows_another_test_does() -> None:
    rows = [row for row in TABLE if not row.lines]
    assert len(rows) == 4
    assert [row.name for row in rows if not (PROJECT / row.proof).is_file()] == []


def test_the_page_names_our_variables() -> None:
    """All but those that our own processes hand on, and that of click's completion."""
    names = {name for path in (PROJECT / "src").rglob("*.py") for name in _VARIABLE.findall(path.read_text())}
    internal = {"BRIDGEPACK_RUN", "BRIDGEPACK_FORK_SERVER_RECIPE", "BRIDGEPACK_COMPLETE"}
    assert names - internal == set(_VARIABLE.findall((PROJECT / "SECURITY.md").read_text()))


@pytest.mark.parametrize(
    "words", ["check evil.yaml", "preview evil.yaml", "launch mine.yaml --cluster evil.yaml --dry-run"]
)
def test_yaml_makes_no_objects(folder: Path, command: Command, words: str) -> None:
    text = "!!python/object/apply:os.system ['touch marker-yaml']"
    (folder / "evil.yaml").write_text(f"name: {text}\n_target_: megatron.bridge.training.config.ConfigContainer\n")
    assert command(*words.split()).code == 2
    assert not (folder / "marker-yaml").exists()


def test_a_recipe_found_by_its_module_replaces_nothing_that_is_installed(folder: Path, command: Command) -> None:
    (folder / "mine_by_module.py").write_text("import colorsys\nfrom mine import mine_recipe\n")
    (folder / "colorsys.py").write_text("from pathlib import Path\nPath('marker-folder').touch()\n")
    sys.modules.pop("colorsys", None)
    assert command("recipes", "show", "mine_by_module:mine_recipe").code == 0
    assert (folder / "marker-python").exists()
    assert not (folder / "marker-folder").exists()
