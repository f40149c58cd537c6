"""Every file that a user names is opened by one function: what is no regular UTF-8 file of some size is refused."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bridgepack.data.sequences.loading import forget_stage
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
