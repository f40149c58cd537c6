"""No command runs Python files of the current folder, whatever they are called: a folder of planted modules."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launches import write_launch_recipe
from tests.support.small_builds import environment, run_command, small_recipe, write_conversations, write_recipe

pytestmark = pytest.mark.full

#: Modules of others that some command imports.
_OTHERS = (
    *("bridgepack", "datasets", "fastokens", "fsspec", "huggingface_hub", "jinja2", "megatron", "nemo_run", "numpy"),
    *(
        "packaging",
        "pyarrow",
        "pydantic",
        "pydantic_core",
        "ray",
        "regex",
        "rich",
        "ruamel",
        "sitecustomize",
        "tiktoken",
    ),
    *(
        "tokenizers",
        "torch",
        "tqdm",
        "transformers",
        "transformer_engine",
        "typer",
        "usercustomize",
        "yaml",
        "zstandard",
    ),
)
#: Commands that start processes, each as a user starts it.
_COMMANDS = (
    "build recipe.yaml --output packed --num-workers 2",
    "prove sources packed --all --num-workers 2",
    "launch run.yaml --cluster local --skip train",
)
#: The others, one after the other in one process, which starts as the command does.
_OTHERS_IN_ONE = (
    *("recipes list", "recipes show recipe.yaml --resolved", "explain", "preview recipe.yaml"),
    *(
        "plan run.yaml --num-gpus 8",
        "new other --data training.jsonl --model Qwen/Qwen3-8B --num-gpus 8 --seq-length 512 --tokenizer tokenizer",
    ),
    *("build recipe.yaml --output new --dry-run", "check recipe.yaml --artifact packed", "check packed"),
    *("inspect packed", "report packed", "prove sources packed", "prove masks packed", "prove served packed"),
    *("trace packed --pack 0", "diff packed packed", "launch run.yaml --cluster local --dry-run"),
    *("repack packed --set packing.packed_sequence_size=1024 --output wide --num-workers 1",),
    *("store list --store store", "store verify --store store", "store prune --unused --store store"),
)
_IN_ONE = """
import json, sys
from bridgepack.cli import main
for line in json.loads(sys.argv.pop()):
    try:
        main(line.split())
    except SystemExit as ended:
        print(json.dumps([line, ended.code]), file=sys.stderr)
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a folder with a recipe, and with modules that say so when they are run."""
    write_conversations(tmp_path, limit=60)
    recipe = small_recipe("training.jsonl", "tokenizer", packing={"packed_sequence_size": 512})
    write_recipe(tmp_path / "recipe.yaml", recipe)
    (tmp_path / "run").mkdir()
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "commands.py").write_text(_IN_ONE)
    write_launch_recipe(tmp_path / "run", tmp_path / "tokenizer").rename(tmp_path / "run.yaml")
    marker = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\n"
    for name in {*sys.stdlib_module_names, *_OTHERS}:
        (tmp_path / f"{name}.py").write_text(marker)
    return tmp_path


def test_no_command_runs_modules_of_the_current_folder(planted: Path) -> None:
    for command in _COMMANDS:
        ran = _run(planted, Path(sys.prefix) / "bin" / "bridgepack", *command.split())
        assert ran.returncode in (0, 1), (command, ran.stderr)  # 1: there are findings

    ran = _run(planted, sys.executable, planted / "tool" / "commands.py", json.dumps(_OTHERS_IN_ONE))
    codes = dict(json.loads(line) for line in ran.stderr.splitlines() if line.startswith('["'))
    assert {line for line, code in codes.items() if code not in (0, 1)} == set(), ran.stderr
    assert set(codes) == set(_OTHERS_IN_ONE)

    assert not (planted / "ran").exists(), (planted / "ran").read_text()


def test_a_planted_module_is_noticed(planted: Path) -> None:
    run_command(planted, sys.executable, "-c", "import random")

    assert "random" in (planted / "ran").read_text()


def _run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Run the command as it is installed, with no path of this process."""
    variables = {
        **environment(folder),
        "BRIDGEPACK_STORE": str(folder / "store"),
        "NEMORUN_HOME": str(folder / "nemo"),
    }
    variables.pop("PYTHONPATH")
    return subprocess.run(
        [*map(str, command)], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=600
    )
