"""No command runs Python files of the current folder, whatever they are called: a folder of planted modules."""

import subprocess
import sys
from pathlib import Path

import pytest

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
_COMMANDS = (
    ("preview", "recipe.yaml"),
    ("build", "recipe.yaml", "--output", "packed", "--dry-run"),
    ("build", "recipe.yaml", "--output", "packed", "--num-workers", "2"),
    ("check", "recipe.yaml", "--artifact", "packed"),
    ("inspect", "packed"),
    ("prove", "sources", "packed"),
    ("prove", "masks", "packed"),
    ("store", "verify"),
)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a folder with a recipe, and with modules that say so when they are run."""
    write_conversations(tmp_path, limit=60)
    recipe = small_recipe("training.jsonl", "tokenizer", packing={"packed_sequence_size": 512})
    write_recipe(tmp_path / "recipe.yaml", recipe)
    marker = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\n"
    for name in {*sys.stdlib_module_names, *_OTHERS}:
        (tmp_path / f"{name}.py").write_text(marker)
    return tmp_path


def test_no_command_runs_modules_of_the_current_folder(planted: Path) -> None:
    for command in _COMMANDS:
        ran = _run(planted, *command)
        assert ran.returncode in (0, 1), (command, ran.stderr)  # 1: there are findings

    assert not (planted / "ran").exists(), (planted / "ran").read_text()


def test_a_planted_module_is_noticed(planted: Path) -> None:
    run_command(planted, sys.executable, "-c", "import random")

    assert "random" in (planted / "ran").read_text()


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as it is installed, with no path of this process."""
    variables = {**environment(folder), "BRIDGEPACK_STORE": str(folder / "store")}
    variables.pop("PYTHONPATH")
    command = [str(Path(sys.prefix) / "bin" / "bridgepack"), *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
