"""Workers: the same results in the same order, bounded memory, and an end in every case."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.files import replaced_when_whole
from bridgepack.data.results import BuildOptions
from bridgepack.data.sequences.loading import load_tokenizer_of
from bridgepack.data.store.store import opened_store
from bridgepack.data.tasks import Beat, InThisProcess, TaskFailure
from bridgepack.data.workers import pool as module
from bridgepack.data.workers.pool import WorkerPool, plain_runner
from bridgepack.data.workplace import tasks_runner
from bridgepack.errors import DataError
from tests.support.messages import mentions
from tests.support.processes import is_running, wait_until
from tests.support.small_builds import tokenized_recipe

#: Starts two workers that have something to do for minutes, and says their numbers.
KILLED = """
import os, time
from functools import partial
from bridgepack.data.workers.pool import plain_runner

with plain_runner(2) as one, plain_runner(2) as other:
    print(one.runner.begin(os.getpid)(), other.runner.begin(os.getpid)(), flush=True)
    one.runner.begin(partial(time.sleep, 600))()
"""
#: Goes somewhere else before it starts workers.
UNGUARDED = """
import os
from bridgepack.data.workers.pool import plain_runner

print("begin", flush=True)
os.chdir("here")
with plain_runner(2) as runner:
    print(*runner.run(os.path.abspath, [".", "."]))
"""
#: Says which signals are blocked in a process's first fork server.
LOADING = """
from multiprocessing import forkserver
from pathlib import Path
from bridgepack.data.workers.process import preload

preload(())
status = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")))
"""
#: A fork server that dies of what it loads for a recipe, as one without memory does.
DEADLY = """
import os, sys
from functools import partial
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.process import RECIPE_VARIABLE, preload

if RECIPE_VARIABLE in os.environ:
    os.abort()
if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    preload(["deadly"], "recipe.yaml", [])
    with WorkerPool() as pool:
        print(pool.begin(partial(sum, [1, 2]))())
"""


def _square(number: int, _: Beat) -> int:
    time.sleep(0.001 * (number % 3))
    return number * number


def _fail(number: int, beat: Beat) -> int:
    beat(10 * number)
    if number == 3:
        raise ValueError("three")
    if number == 4:
        calls = b"".join(b"  %d: core::fn\n             at /rustc/core.rs:1:2\n" % number for number in range(99))
        os.write(2, b"memory allocation of 12 bytes failed\nstack backtrace:\n" + calls + b"  99: _start\n")
    ends = {1: partial(_suicide, 1), 2: os.abort, 4: partial(os._exit, 3), 5: partial(ctypes.string_at, 0)}
    ends.get(number, int)()
    return number


def _refuse_seven(number: int, _: Beat) -> int:
    if number == 7:
        raise DataError("it is seven. Take another.")
    return number


def _fill(num_megabytes: int, _: Beat) -> int:
    return len(b"1" * (num_megabytes << 20)) >> 20


def _sleep(number: int, beat: Beat) -> int:
    if number == 2:
        beat(0)
        time.sleep(600)
    return number


def _surroundings(_: int) -> tuple[bool, str, int]:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    is_deaf = signal.SIGINT in blocked or signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    return is_deaf, os.environ["TOKENIZERS_PARALLELISM"], os.getppid()


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """Return two workers with 400 MiB between them, beyond what this module and its imports take."""
    with WorkerPool() as found:
        found.widen(2, 400 << 20, partial(_load, "warm"))
        yield found


def _shown(outcome: Any) -> Any:
    if isinstance(outcome, TaskFailure):
        return outcome.task, outcome.kind, outcome.is_memory, outcome.last_beat
    return outcome


def test_results_come_in_the_order_of_the_tasks(pool: WorkerPool) -> None:
    num_taken = 0

    def tasks() -> Iterator[int]:
        nonlocal num_taken
        for number in range(40):
            num_taken += 1
            yield number

    results = pool.run(_square, tasks())
    assert next(results) == 0
    assert num_taken <= 8
    assert [0, *results] == [number * number for number in range(40)]
    assert list(pool.run(_square, [])) == []


def test_error_of_a_task_is_raised_in_its_turn_and_the_pool_goes_on(pool: WorkerPool) -> None:
    results = pool.run(_refuse_seven, range(100))
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(DataError, match=r"it is seven. Take another."):
        next(results)
    assert list(pool.run(_square, [3])) == [9]


def test_worker_that_dies_costs_its_own_task_only(pool: WorkerPool) -> None:
    found = list(pool.run(_fail, range(8)))

    assert [_shown(outcome) for outcome in found] == [
        0,
        (1, "died", True, 10),
        (2, "died", False, 20),
        (3, "raised", False, 30),
        (4, "died", True, 40),
        (5, "died", False, 50),
        6,
        7,
    ]
    details = [outcome.detail for outcome in found if isinstance(outcome, TaskFailure)]
    assert mentions(details[0], "ended with SIGKILL")
    assert mentions(details[1], "ended with SIGABRT")
    assert mentions(details[3], "memory allocation of 12 bytes", "ended with exit code 3")
    assert "ValueError: three" in found[3].trace  # type: ignore[union-attr]


def test_workers_share_the_memory_and_one_alone_has_it_all(pool: WorkerPool) -> None:
    together = list(pool.run(_fill, [20, 90, 300, 20]))
    alone = [pool.run_alone(_fill, size) for size in (300, 500)]

    assert [_shown(outcome) for outcome in together] == [20, 90, (300, "raised", True, -1), 20]
    assert [_shown(outcome) for outcome in alone] == [300, (500, "raised", True, -1)]


def test_task_alone_comes_between_the_others(pool: WorkerPool) -> None:
    results = pool.run(_square, range(30))
    begin = [next(results) for _ in range(5)]

    assert pool.run_alone(_square, 99) == 9801
    assert [*begin, *results] == [number * number for number in range(30)]


def test_worker_that_shows_no_sign_of_life_is_ended(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.5)

    found = [_shown(outcome) for outcome in pool.run(_sleep, range(4))]

    assert found == [0, 1, (2, "stalled", False, 0), 3]


def test_what_was_begun_is_there_in_the_first_worker_and_a_warm_up_in_the_others(tmp_path: Path) -> None:
    with WorkerPool() as pool:
        assert pool.begin(partial(sum, [1, 2]))() == 3
        refusing, failing = pool.begin(partial(_refuse_seven, 7, print)), pool.begin(partial(divmod, 1, 0))
        with pytest.raises(DataError, match="it is seven"):
            refusing()
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            failing()
        with pytest.raises(DataError, match=r"loading the tokenizer: .* SIGKILL; .*memory"):
            pool.begin(partial(_suicide, 1))()
        pool.begin(partial(_load, "begun"))
        pool.widen(2, 400 << 20, partial(_load, "warmed up"))
        assert set(pool.run(_loaded_beside_another, [tmp_path, tmp_path])) == {"begun", "warmed up"}


def _load(name: str) -> None:
    os.environ["LOADED"] = name


def _loaded_beside_another(meeting: Path, _: Beat) -> str | None:
    (meeting / str(os.getpid())).touch()
    wait_until(lambda: len(list(meeting.iterdir())) == 2, "another worker has the other task", limit_s=60)
    return os.environ.get("LOADED")


def test_plain_functions_and_their_surroundings() -> None:
    with plain_runner(2) as runner:
        ((is_deaf, parallelism, parent),) = set(runner.run(_surroundings, [1, 2]))
        assert list(runner.run(partial(divmod, 7), [5])) == [(1, 2)]
    assert (is_deaf, parallelism) == (True, "false")
    assert parent != os.getpid()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with plain_runner(1) as runner:
        assert list(runner.run(str, [1, 2])) == ["1", "2"]


def test_worker_that_dies_is_a_message_where_nobody_asks_for_more() -> None:
    with (
        pytest.raises(DataError, match=r"a worker process died .*SIGKILL.*Try fewer --num-workers."),
        plain_runner(2) as runner,
    ):
        list(runner.run(_suicide, [1]))


def _suicide(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _write_again_and_again(path: Path, _: Beat) -> None:
    for _number in range(3000):
        with replaced_when_whole(path, is_shared=True) as temporary:
            temporary.write_text("half")
            time.sleep(0.01)


def test_workers_of_a_build_that_is_ended_leave_nothing_half_written_in_the_store(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), WorkerPool() as pool:
        _be_ended_while_a_worker_writes(pool, tmp_path / "store")

    assert not list(tmp_path.rglob("*.tmp"))


def _be_ended_while_a_worker_writes(pool: WorkerPool, folder: Path) -> None:
    place: Any = None  # only other machines need it
    with opened_store(folder) as store, tasks_runner(pool, BuildOptions(num_workers=1), 1, place):
        path = store.folder / "tokenizations" / "mine" / "a.tokens"
        store.write_identity("mine", {})
        pool.begin(partial(_write_again_and_again, path, print))
        wait_until(lambda: any(path.parent.glob(".*.tmp")), "the worker writes", limit_s=60)
        raise KeyboardInterrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_a_caller_that_is_ended(number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    numbers = [int(number) for number in process.stdout.readline().split()]
    assert len(numbers) == 2
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    wait_until(lambda: not any(map(is_running, numbers)), limit_s=60)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_script_needs_no_guard_and_workers_run_where_it_is(tmp_path: Path, is_read: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    (tmp_path / "here").mkdir()
    command = [sys.executable, *([] if is_read else [str(script)])]
    ran = subprocess.run(command, cwd=tmp_path, input=UNGUARDED, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"begin\n{tmp_path / 'here'} {tmp_path / 'here'}\n"


def test_ctrl_c_does_not_end_a_fork_server_that_loads() -> None:
    blocked = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=True).stdout

    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1


def test_a_fork_server_that_dies_of_a_tokenizer_is_replaced_by_one_without(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(
        [sys.executable, "deadly.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "3\n")


def test_a_tokenizer_is_loaded_again_once_its_files_change(tmp_path: Path, chatml_tokenizer: Path) -> None:
    shutil.copytree(chatml_tokenizer, tmp_path / "tokenizer")
    recipe = tokenized_recipe("train.jsonl", tmp_path / "tokenizer").model_dump_json()
    loaded = load_tokenizer_of(recipe)
    assert load_tokenizer_of(recipe) is loaded
    os.utime(tmp_path / "tokenizer" / "tokenizer.json")
    assert load_tokenizer_of(recipe) is not loaded


@pytest.mark.parametrize(
    ("error", "shown"),
    [(MemoryError(), (7, "raised", True, 10)), (ValueError("x"), (7, "raised", False, 10)), (OSError("full"), None)],
)
def test_errors_in_this_process_fail_their_task_but_for_those_of_the_system(error: Exception, shown: Any) -> None:
    def work(_: int, beat: Beat) -> None:
        beat(10)
        raise error

    outcomes = InThisProcess().run(work, [7])
    if shown is not None:
        assert _shown(next(outcomes)) == shown
    else:
        with pytest.raises(OSError, match="full"):
            next(outcomes)
