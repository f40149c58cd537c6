"""The package and the command line load without the heavy libraries, and fast."""

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bridgepack import api
from bridgepack.cli import bridgepack

HEAVY_LIBRARIES = ("datasets", "megatron", "nemo_run", "pyarrow", "ray", "tokenizers", "torch", "transformers")
BLOCK_HEAVY_LIBRARIES = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY_LIBRARIES!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
"""
PRINT_HELP = "from bridgepack.cli import main; main(['--help'])"
LAUNCH_HELP = "from bridgepack.cli import main; main(['launch', '--help'])"
HELP_LIMIT_S = 0.5
RECIPE = """
name: mine
data: {train: rows.jsonl}
tokenizer: {name_or_path: tokenizer}
packing: {packed_sequence_size: 4096}
batch: {micro_batch_size: 2, global_batch_size: 8}
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library", HEAVY_LIBRARIES)
def test_blocker_blocks(library: str) -> None:
    finished = _run(f"{BLOCK_HEAVY_LIBRARIES}\nimport {library}")

    assert f"{library} is blocked" in finished.stderr


@pytest.mark.parametrize("code", ["import bridgepack", "import bridgepack.cli", PRINT_HELP, LAUNCH_HELP])
def test_loads_without_heavy_libraries(code: str) -> None:
    finished = _run(f"{BLOCK_HEAVY_LIBRARIES}\n{code}")

    assert finished.returncode == 0, finished.stderr


def test_a_recipe_is_checked_without_heavy_libraries(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    finished = _run(f"{BLOCK_HEAVY_LIBRARIES}\nfrom bridgepack.cli import main; main(['check', {str(recipe)!r}])")

    assert finished.returncode == 1, finished.stderr
    assert "error[BP004]" in finished.stdout


def test_list_of_commands_imports_none_of_them() -> None:
    finished = _run(f"import atexit, sys\natexit.register(lambda: print(sorted(sys.modules)))\n{PRINT_HELP}")
    modules = ast.literal_eval(finished.stdout.splitlines()[-1])

    assert [name for name in modules if name.startswith("bridgepack.cli.")] == [
        "bridgepack.cli.main",
        "bridgepack.cli.output",
    ]
    assert not {"numpy", "pydantic"}.intersection(modules)


def test_help_answers_fast() -> None:
    """Counts what it computes, not how long it takes, which depends on what else this machine does."""
    times_s = []
    for _ in range(3):
        before = _cpu_seconds_of_children()
        finished = _run(PRINT_HELP)
        times_s.append(_cpu_seconds_of_children() - before)
        assert finished.returncode == 0, finished.stderr

    assert 0 < min(times_s) < HELP_LIMIT_S


def _cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "words",
    [
        *("inspect packed --pack 0", "report packed", "trace packed --pack 0", "trace packed --source a.jsonl:1"),
        *("prove packed", "prove sources packed", "prove masks packed", "prove served packed"),
        *("prove a.yaml", "prove masks a.yaml", "prove served s3://bucket/packed"),
        *("plan a.yaml --num-gpus 8", "preview a.yaml"),
    ],
)
def test_a_command_that_reads_a_tokenizer_imports_no_frameworks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """A plain import of transformers takes torch with it, three seconds."""

    class ImportedError(Exception):
        pass

    def import_transformers() -> None:
        raise ImportedError

    monkeypatch.setattr(api, "import_transformers", import_transformers)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packed").mkdir()
    (tmp_path / "a.yaml").write_text("name: a")
    with pytest.raises(ImportedError):
        bridgepack.main(words.split(), standalone_mode=False, obj=True)


def test_transformers_reads_its_models_once_and_what_is_replaced_meanwhile_is_put_back() -> None:
    finished = _run("""
import functools, importlib.metadata, sys

before = functools.lru_cache, importlib.metadata.packages_distributions
from bridgepack.data.tokenizers.frameworks import import_transformers
import_transformers()
assert before == (functools.lru_cache, importlib.metadata.packages_distributions)
assert "torch" not in sys.modules
from transformers.utils.import_utils import create_import_structure_from_path
assert create_import_structure_from_path.cache_info().hits > 100, "each model is looked up a second time, and found"
""")

    assert finished.returncode == 0, finished.stderr
