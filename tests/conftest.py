"""Environment and fixtures of every test."""

import gc
import importlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import host_forks, installed_host
from tests.support.leftover_processes import LeftoverProcess, leftover_processes, mark_run
from tests.support.run_folder import folder_in_memory

#: Nothing is fetched, no GPU is used, nothing is compiled (torch 2.13 compiled by dynamo trains to other losses), and
#: `launch` does not import megatron-bridge for each check.
_ENVIRONMENT = {
    "BRIDGEPACK_REAL_VALIDATE": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",
}
os.environ.update(_ENVIRONMENT)
installed_host.put_first()
#: What `nohup` or a shell has made ignored is inherited, a handler is not: what tests start begins as anywhere.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
#: How long an example takes says nothing on a machine that does other things, too. A change is judged by the same
#: examples everywhere; `--hypothesis-profile=explore` looks for others.
settings.register_profile("untimed", settings.default, deadline=None, derandomize=True)
settings.register_profile("explore", settings.default, deadline=None)
#: What scripts/test takes, for tests that name no number of examples.
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=25)
settings.load_profile("untimed")

PROJECT = Path(__file__).parents[1]
#: Files that take a minute or half of one, the longest first, so that workers end together; those that wait for other
#: processes stand between those that compute.
_LONG_FILES = (
    "e2e/test_content_digests.py",
    "e2e/test_slurm.py",
    "contract/test_canary.py",
    "e2e/test_ray_build.py",
    "e2e/test_slurm_examples.py",
    "contract/test_guard.py",
    "e2e/test_launch.py",
    "e2e/test_interruption.py",
    "contract/test_chat_tokenization.py",
    "contract/test_tiny_recipes.py",
    "e2e/test_artifact_mutations.py",
    "contract/test_prompt_completion.py",
    "contract/test_validate_agrees.py",
    "contract/test_real_validate_agrees.py",
    "contract/test_adopt.py",
    "e2e/test_quickstart.py",
    "property/test_masks.py",
    "unit/test_bench.py",
    "unit/proof/test_masks.py",
    "unit/test_quirks.py",
    "unit/planning/test_golden_plans.py",
    "unit/planning/test_new.py",
    "unit/test_cli_attacks.py",
    "unit/data/test_rescue.py",
)


#: Of a run: its folder in memory, its mark, and the processes that are left of it.
_FOLDER, _MARK = pytest.StashKey[Path](), pytest.StashKey[str]()
_LEFTOVERS = pytest.StashKey[list[LeftoverProcess]]()
#: Some processes notice within seconds that the one that started them has ended; a busy machine takes longer.
_GRACE_S = 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Work in memory where there is room and `--basetemp` names no folder; workers take what their controller takes."""
    if hasattr(config, "workerinput"):
        return
    config.stash[_MARK] = mark_run()
    if config.option.basetemp is None and (folder := folder_in_memory()) is not None:
        config.stash[_FOLDER] = folder
        config.option.basetemp = str(folder / "tests")


def pytest_unconfigure(config: pytest.Config) -> None:
    if (folder := config.stash.get(_FOLDER, None)) is not None:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fail if a test left a process."""
    yield
    host_forks.release()
    if (mark := session.config.stash.get(_MARK, None)) is not None:
        leftovers = session.config.stash[_LEFTOVERS] = leftover_processes(mark, limit_s=_GRACE_S)
        if leftovers and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if leftovers := config.stash.get(_LEFTOVERS, []):
        terminalreporter.section("processes that tests left")
        for leftover in leftovers:
            terminalreporter.line(str(leftover))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the files of a whole run in another order in each worker, so that each file is compiled by one of them."""
    config = session.config
    if not hasattr(config, "workerinput") or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    paths = sorted((PROJECT / "tests").rglob("test_*.py"))
    first = len(paths) * int(config.workerinput["workerid"].removeprefix("gw")) // config.workerinput["workercount"]
    for path in [*paths[first:], *paths[:first]]:
        for name in ("conftest", path.stem):
            place = path.with_name(f"{name}.py").relative_to(PROJECT)
            with suppress(Exception, pytest.skip.Exception):  # collecting the file tells it
                importlib.import_module(".".join(place.with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that takes the reference data, and put long files first."""
    places = {PROJECT / "tests" / name: place for place, name in enumerate(_LONG_FILES)}
    assert all(path.is_file() for path in places), "a file of _LONG_FILES is gone"
    items.sort(key=lambda item: places.get(item.path, len(places)))
    gc.freeze()  # thousands of tests and what they import are not looked through again
    for item in items:
        if "reference_data" in getattr(item, "fixturenames", ()):
            item.add_marker("reference_data")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of the test; of one that is marked `on_disk`, a folder where the machine has its others."""
    if request.node.get_closest_marker("on_disk") is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="bridgepack-on-disk-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Return the folder of reference data, or skip where there is none."""
    folder = Path(os.environ.get("BRIDGEPACK_REFERENCE_DATA", PROJECT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("no reference data: set BRIDGEPACK_REFERENCE_DATA, or put it in ../shared")
    return folder


@pytest.fixture(scope="session")
def chatml_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a byte-level tokenizer of 400 ids with a ChatML template; its EOS is 2, `<|im_end|>`."""
    from tests.zoo.tokenizers import CHATML, write_tokenizer

    return write_tokenizer(tmp_path_factory.mktemp("chatml") / "tokenizer", CHATML)


@pytest.fixture
def nemo_home(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of the test in which nemo-run keeps its records."""
    from nemo_run.config import get_nemorun_home, set_nemorun_home

    before = get_nemorun_home()
    set_nemorun_home(str(tmp_path / "nemo-run"))
    yield tmp_path / "nemo-run"
    set_nemorun_home(before)


@pytest.fixture
def asks_in_forks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processes that bridgepack starts to ask the host become forks of one that has it imported."""
    host_forks.hold()
    folder = tmp_path_factory.mktemp("site")
    host_forks.write_site(folder)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what runs the command in this process: arguments -> exit code, output and errors, never a traceback."""
    from bridgepack.cli import main
    from tests.support.small_builds import Ran

    def run(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as exited:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Ran(int(exited.value.code or 0), captured.out, captured.err)

    return run
