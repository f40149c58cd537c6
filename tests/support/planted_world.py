"""A folder with something planted in each source of SECURITY.md's table, and what a command did with each of them.

Measures with inotify, with files that planted code makes, and with a hub that counts who asks it.
"""

import json
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.sequences.loading import forget_stage
from bridgepack.records.losses import SourceLoss
from tests.support import small_builds as small
from tests.support.launches import launch_recipe
from tests.support.loss_runs import write_loss_run
from tests.support.small_builds import Command, file_bytes
from tests.support.touched_files import touched_files
from tests.support.trust_table import SOURCES, TABLE, TRUST_CONFIG, TRUST_REMOTE_CODE, Row

HUB_ID = "someone/tokenizer"
WORDS = (TRUST_REMOTE_CODE, TRUST_CONFIG)
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
FILES = {"mine.yaml": "recipe", "hub.yaml": "recipe", "mine.py": "python", "packed": "artifact", "run": "artifact",
         "saved.yaml": "saved", "tokenizer": "tokenizer", "rows.jsonl": "data", "cluster.yaml": "cluster"}  # fmt: skip
#: What is gone at the end, or is a cache of the hub's libraries.
PASSING = ("marker-", ".new.", ".wide.", ".page", ".rows", ".bridgepack-", "hub", "home")
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


def add_code(folder: Path, name: str) -> None:
    """Make the tokenizer in a folder one with code, which says that it ran."""
    config = folder / "tokenizer_config.json"
    named = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}}
    config.write_text(json.dumps({**json.loads(config.read_text()), **named}))
    (folder / "own.py").write_text(CODE.format(name=name))


def planted_files(folder: Path, chatml_tokenizer: Path) -> dict[str, bytes]:
    """Return the files of a folder that has something planted in each source."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copytree(chatml_tokenizer, "tokenizer")
        add_code(Path("tokenizer"), "tokenizer")
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
        Path("planted.py").write_text(
            "from pathlib import Path\nPath(__file__).with_name('code').read_text()\nclass Model: pass\n"
        )
        Path("code").write_text("a process that may write nothing reads it")
        Path("cluster.yaml").write_text(f"executor: {{kind: local, env_vars: {{A: {json.dumps(SHELL)}}}}}\n")
        snapshot = Path("hub", f"models--{HUB_ID.replace('/', '--')}", "snapshots", _COMMIT)
        shutil.copytree("tokenizer", snapshot)
        add_code(snapshot, "hub")
        (snapshot / "config.json").write_text('{"model_type": "llama"}')
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text(_COMMIT)
        forget_stage()
        small.build(recipe, Path("packed"), store=Path(".bridgepack/tokens"))
        line = SourceLoss(step=1, first_step=1, split="training", source="rows", loss_sum=9.0, num_trained_tokens=9)
        write_loss_run(Path("run"), Path("packed"), [line], loss_of=lambda _file, row, _step: float(row), num_tokens=9)
        assert Path("marker-tokenizer").exists()  # the recipe's word counts in a build
        Path("marker-tokenizer").unlink()
    return file_bytes(folder)


def enter(folder: Path, files: dict[str, bytes], hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `folder` the folder of a call, with homes and caches in it, where the hub may be asked."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    monkeypatch.chdir(folder)
    for name in ("EDITOR", "PAGER", "PYTHONSTARTUP", "BROWSER"):
        monkeypatch.setenv(name, "touch marker-environment")
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder / "home"))
    get_temp_dir()  # of the process; it outlasts the test
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent))
    address = f"http://127.0.0.1:{hub.port}"
    for name, value in (("HF_ENDPOINT", address), ("HF_HUB_CACHE", str(folder / "hub"))):
        monkeypatch.setenv(name, value)
        monkeypatch.setattr(f"huggingface_hub.constants.{name.replace('HF_ENDPOINT', 'ENDPOINT')}", value)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def done_and_expected(
    name: str, folder: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> tuple[tuple[dict[str, str], set[str]], tuple[dict[str, str], set[str]]]:
    """Return what the lines of a row did, and what its cells say, but for those that another test shows."""
    [row] = [row for row in TABLE if row.name == name]
    files, hub = planted_files(folder, chatml_tokenizer), Hub()
    enter(folder / "call", files, hub, monkeypatch)
    cells, written = measure(folder / "call", hub, command, row)
    asked = [source for source in SOURCES if source not in ("environment", "folder", *row.elsewhere)]
    done, expected = ({source: letters.get(source, "") for source in asked} for letters in (cells, row.cells))
    return (done, written), (expected, set(row.writes))


def measure(folder: Path, hub: Hub, command: Command, row: Row) -> tuple[dict[str, str], set[str]]:
    """Return source -> letters, and what the command lines of a row wrote in the folder."""
    letters: dict[str, set[str]] = {}
    written: set[str] = set()
    for words in row.lines if row.starts_jobs else _variants(row):
        notes, names = _ran(folder, hub, command, words)
        written |= names
        for name, letter in notes:
            letters.setdefault(name, set()).add(letter)
    for seen in letters.values():
        seen -= {"W"} if "X" in seen else set()
    cells = {name: "".join(letter for letter in "RCXW" if letter in seen) for name, seen in letters.items()}
    return cells, written


def _variants(row: Row) -> Iterator[str]:
    """Yield the lines with a recipe in Python and a tokenizer of the hub, too, each with the word where it counts."""
    has_word = any(letter in letters for letters in row.cells.values() for letter in "WX")
    for line in row.lines:
        lines = [line]
        if "mine.yaml" in line:
            lines += [line.replace("mine.yaml", "mine.py"), line.replace("mine.yaml", "hub.yaml")]
        elif "--tokenizer" in line:
            lines.append(line.replace("--tokenizer tokenizer", f"--tokenizer {HUB_ID}"))
        yield from (f"{words} {word}".rstrip() for words in lines for word in ("", TRUST_REMOTE_CODE)[: 1 + has_word])


def _ran(folder: Path, hub: Hub, command: Command, words: str) -> tuple[set[tuple[str, str]], set[str]]:
    """Run a command line; return (source, letter) of what it did, and what it wrote, which is removed."""
    forget_stage()
    before = hub.num_asked
    with touched_files(folder) as touched, _watched(hub):
        ended = command(*words.split())
    said = ended.output + ended.errors
    if "No such option" in said:
        return set(), set()
    is_hub = "hub.yaml" in words or HUB_ID in words
    is_refused = is_hub or "prove training saved" in words or any(word in said for word in WORDS)
    assert ended.code in (0, 1) or is_refused, (words, ended)
    assert hub.others == [], words
    notes = {(FILES[name], "R") for path in touched.read if (name := path.split("/")[0]) in FILES}
    if hub.num_asked > before:
        notes.add(("hub" if is_hub else "nobody", "C"))
    runs = "W" if any(word in words for word in WORDS) else "X"
    if "code" in touched.read:
        notes.add(("saved", runs))
    for marker in folder.glob("marker-*"):
        notes.add((marker.name.removeprefix("marker-"), runs))
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
