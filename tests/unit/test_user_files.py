"""Every file that a user names is opened by one function: what is no regular UTF-8 file of some size is refused."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bridgepack.data.sequences.loading import forget_stage
from bridgepack.data.store.store import opened_store
from bridgepack.user_files import real_path
from tests.support.launches import launch_recipe
from tests.support.messages import mentions
from tests.support.small_builds import Command, write_recipe

#: Longest wait for a command, which would wait for a pipe for ever.
_LIMIT_S = 60
_SAVED = """
_target_: megatron.bridge.training.config.ConfigContainer
model: {_target_: megatron.bridge.models.gpt_provider.GPTModelProvider, seq_length: 4096}
dataset: {_target_: megatron.bridge.data.builders.GPTSFTDatasetConfig}
train: {_target_: megatron.bridge.training.config.TrainingConfig, train_iters: 9}
"""

_MODEL = "--num-gpus 8 --seq-length 512 --dry-run"

#: Fault -> how to put it where a file was.
FAULTS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "5 GB": lambda path: (path.touch(), os.truncate(path, 5 << 30)),
    "not UTF-8": lambda path: path.write_bytes(b"a: \xff\n"),
    "link to nothing": lambda path: path.symlink_to("not-there"),
    "link to itself": lambda path: path.symlink_to(path.name),
}
#: File -> the commands that read it.
FILES = {
    "mine.yaml": (
        "check mine.yaml",
        "build mine.yaml --output new",
        "preview mine.yaml",
        "launch mine.yaml --cluster local --dry-run",
    ),
    "mine.toml": ("check mine.toml",),
    "mine.py": ("check mine.py", "preview mine.py"),
    "saved.yaml": ("check saved.yaml",),
    "cluster.yaml": ("launch mine.yaml --cluster cluster.yaml --dry-run",),
    "template.jinja": (
        *("check mine.yaml --no-files", "preview mine.yaml", "build mine.yaml --output new"),
        "launch mine.yaml --cluster local --dry-run",
    ),
    "packages.txt": ("check mine.yaml --environment packages.txt",),
    **{
        f"tokenizer/{name}": (
            *("check mine.yaml", "preview mine.yaml", "build mine.yaml --output new"),
            *(
                "launch mine.yaml --cluster local --dry-run",
                f"new other --data rows.jsonl --tokenizer tokenizer {_MODEL} --model Qwen/Qwen3-8B",
            ),
        )
        for name in ("tokenizer.json", "tokenizer_config.json")
    },
    **{
        f"weights/{name}": ("check mine.yaml", f"new other --data rows.jsonl --model weights {_MODEL}")
        for name in ("config.json", "generation_config.json")
    },
}
_EVERYTHING = bool(os.environ.get("BRIDGEPACK_COMPARE_ALL_ROWS"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copytree(chatml_tokenizer, "tokenizer")
        Path("template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        recipe = launch_recipe(Path(), Path("tokenizer")).override({"tokenizer.chat_template": "template.jinja"})
        for name in ("config.json", "generation_config.json"):
            Path("weights", name).write_text("{}")
        write_recipe(Path("mine.yaml"), recipe)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    forget_stage()

    def give_up(*_: object) -> None:
        raise TimeoutError("the command waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_LIMIT_S)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


#: Files that a user names by their folder: file -> the command that reads it, and its exit code where it is none.
IN_FOLDERS = {
    "run/run.json": ("losses run", 2),
    "tokenizer/vocab.json": ("check mine.yaml", 2),
    "tokenizer/additional_chat_templates/more.jinja": ("preview mine.yaml", 2),
    "tokenizer/notes.json": ("preview mine.yaml", 2),
    "saved/state.json": ("preview mine.yaml --set data.train=saved", 2),
    "saved/dataset_dict.json": ("preview mine.yaml --set data.train=saved", 2),
    "recipes/mine.py": ("recipes list", 1),
    "store/tokenizations/a/identity.json": ("store list --store store", 0),
    "store/tokenizations/b": ("store prune --unused --store store", 0),
}


#: Those that are looked for among files: what is none is not theirs; and the exit code then.
_ONLY_FILES = {
    "tokenizer/notes.json": 0,
    "recipes/mine.py": 0,
    "saved/state.json": 2,
    "saved/dataset_dict.json": 2,
}


@pytest.mark.parametrize("fault", ["pipe", "device", "5 GB"])
@pytest.mark.parametrize("file", IN_FOLDERS)
def test_what_is_no_regular_text_in_a_folder_is_not_waited_for(
    folder: Path, command: Command, file: str, fault: str
) -> None:
    words, code = IN_FOLDERS[file]
    with opened_store(folder / "store"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
    FAULTS[fault](folder / file)
    ran = command(*words.split())
    if fault != "5 GB" and file in _ONLY_FILES:
        assert ran.code == _ONLY_FILES[file], ran
    else:
        assert ran.code == code, ran
        assert not code or mentions(ran.output + ran.errors, Path(file).name)
        assert "crashed" not in ran.errors


def test_a_pipe_among_the_files_of_a_folder_is_refused(folder: Path, command: Command) -> None:
    (folder / "data").mkdir()
    shutil.copy("rows.jsonl", "data/rows.jsonl")
    os.mkfifo("data/more.jsonl")
    refused = command("build", "mine.yaml", "--set", "data.train=data", "--output", "new")
    assert refused.code == 2
    assert mentions(refused.errors, "data.train", "more.jsonl", "neither a file")


@pytest.mark.parametrize("is_newer", [False, True], ids=["as here", "as Python 3.13"])
def test_a_link_to_itself_has_no_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_newer: bool) -> None:
    """Python raises RuntimeError up to 3.12, and returns the link from 3.13 on."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("not-there")
    assert real_path(tmp_path / "link") == tmp_path / "not-there"
    if is_newer:
        monkeypatch.setattr(Path, "resolve", Path.absolute)
    with pytest.raises(OSError, match="link to itself"):
        real_path(tmp_path / "loop")


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("bridgepack.api.explain", fail)
    ran = command("explain", "BP101")
    assert (ran.code, ran.output) == (2, "")
    assert mentions(ran.errors, "error: ", "memory")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("file", FILES)
def test_what_is_no_regular_text_is_refused(folder: Path, command: Command, file: str, fault: str) -> None:
    """Each command with pipes, `check` with the rest; before a release all of them with everything."""
    (folder / file).unlink(missing_ok=True)
    FAULTS[fault](folder / file)
    for words in FILES[file] if fault == "pipe" or _EVERYTHING else FILES[file][:1]:
        refused = command(*words.split())
        assert refused.code == 2, (words, refused)
        assert mentions(refused.output + refused.errors, Path(file).name), words
        assert not (folder / "new").exists()
    if fault == "folder":
        (folder / file).rmdir()


def test_the_files_are_read_where_nothing_is_wrong(folder: Path, command: Command) -> None:
    (folder / "mine.py").write_text(
        "import bridgepack\n\ndef mine_recipe():\n    return bridgepack.load_recipe('mine.yaml')\n"
    )
    (folder / "saved.yaml").write_text(_SAVED)
    YAML().dump({"executor": {"kind": "local"}}, folder / "cluster.yaml")
    (folder / "packages.txt").write_text("megatron-bridge==0.6.2\n")
    for words in ("check mine.py", "check saved.yaml", "check mine.yaml --environment packages.txt"):
        assert command(*words.split()).code in (0, 1), words
