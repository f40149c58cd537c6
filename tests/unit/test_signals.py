"""Tests pass whatever signals are ignored where they are started: by `nohup`, in the background of a script."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
#: Ignores what `nohup ... &` ignores, then becomes the command that follows.
_IGNORING = (
    "import os, signal, sys; [signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGHUP)]; "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_IGNORED = (
    "import signal; both = (signal.SIGINT, signal.SIGHUP); "
    "print([one.name for one in both if signal.getsignal(one) is signal.SIG_IGN])"
)


def test_what_tests_start_ignores_no_signal() -> None:
    child = subprocess.run([sys.executable, "-c", _IGNORED], capture_output=True, text=True, check=True)

    assert child.stdout == "[]\n"


def test_neither_does_it_under_nohup() -> None:
    this_file, inner = "tests/unit/test_signals.py", test_what_tests_start_ignores_no_signal.__name__
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{this_file}::{inner}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    command = [sys.executable, "-c", _IGNORING, *pytest]
    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)

    assert (ended.returncode, "1 passed" in ended.stdout) == (0, True), ended.stdout


def test_a_command_that_is_done_is_not_ended_by_a_late_signal() -> None:
    late = (
        "import os, signal, sys\nfrom bridgepack.cli import main\nsys.argv = ['bridgepack', 'explain']\n"
        "try:\n    main()\nfinally:\n    for one in ('INT', 'TERM', 'HUP'):\n"
        "        os.kill(os.getpid(), getattr(signal, 'SIG' + one))\n"
    )
    ended = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "BP101" in ended.stdout


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, ["explain"]),
        (signal.SIGTERM, ["explain", "--nonsense"]),
        (signal.SIGTERM, ["inspect", "none"]),
        (signal.SIGHUP, ["inspect", "none", "--json"]),
    ],
)
def test_a_signal_while_an_error_is_printed_ends_the_command_with_its_code(
    number: signal.Signals, words: list[str]
) -> None:
    """The command gets the signal when it prints; a KeyboardInterrupt that nobody catches would end it by SIGINT."""
    printing = (
        "import os, sys, click\nfrom bridgepack.cli import main\nnumber, say = int(sys.argv.pop()), click.echo\n"
        "click.echo = lambda *parts, **named: (os.kill(os.getpid(), number), say(*parts, **named))\nmain()\n"
    )
    command = [sys.executable, "-c", printing, *words, str(int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (ended.returncode, "Traceback" in ended.stderr) == (128 + number, False), ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_code_of_a_text_ends_the_command_with_its_code(tmp_path: Path, number: signal.Signals) -> None:
    """As in the text of a dataclass that is made: `python -m` notes the KeyboardInterrupt and would end by SIGINT."""
    (tmp_path / "killed.py").write_text(
        "import os, sys, click\nfrom bridgepack.cli import main\n"
        "number, said, say, kill = int(sys.argv.pop()), [], click.echo, 'os.kill(os.getpid(), number)'\n"
        "click.echo = lambda *parts, **named: (said or said.append(1) or exec(kill), say(*parts, **named))\nmain()\n"
    )
    command = [sys.executable, "-m", "killed", "explain", str(int(number))]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert (ended.returncode, ended.stderr.strip()) == (128 + number, "interrupted; nothing was written")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("from bridgepack.running.assignment import exit_code_of\nsys.exit(exit_code_of(lambda: exec(kill)))\n", ""),
        ("from bridgepack.running import train\ntrain._in_job = lambda *_: exec(kill)\nsys.exit(train.main())\n", ""),
        (
            "from bridgepack.examples import __main__ as examples\n"
            "examples.write_examples = lambda *_, **__: exec(kill)\nsys.exit(examples.main(['.']))\n",
            "interrupted",
        ),
    ],
    ids=["build and check", "train", "examples"],
)
def test_a_signal_in_code_of_a_text_ends_a_task_with_its_code(tmp_path: Path, task: str, said: str) -> None:
    (tmp_path / "killed.py").write_text(f"import os, signal, sys\nkill = 'os.kill(os.getpid(), signal.SIGINT)'\n{task}")
    command = [sys.executable, "-m", "killed"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert ended.returncode == 130
    assert ended.stderr.startswith(said)
    assert bool(ended.stderr) == bool(said)


def test_a_second_signal_while_the_first_is_answered_does_not_end_the_command() -> None:
    """The command gets SIGINT when it prints, and again when it says so; of JSON it prints the error."""
    twice = (
        "import os, signal, sys, click\nfrom bridgepack.cli import main\n"
        "interrupt, say = lambda: os.kill(os.getpid(), signal.SIGINT), click.echo\n"
        "click.echo = lambda *parts, **named: (interrupt(), say(*parts, **named))\nmain()\n"
    )
    run = {"capture_output": True, "text": True, "check": False}
    plain, ended = (subprocess.run([sys.executable, "-c", twice, "explain", *more], **run) for more in ([], ["--json"]))

    assert (plain.returncode, plain.stderr.strip(), plain.stdout) == (130, "interrupted; nothing was written", "")
    assert (ended.returncode, ended.stderr) == (130, plain.stderr)
    error = json.loads(ended.stdout)["error"]
    assert (error["kind"], error["message"], error["exit_code"]) == ("KeyboardInterrupt", ended.stderr.strip(), 130)


@pytest.mark.parametrize(("is_sent_again", "end"), [(True, "at once"), (False, "after 5 seconds")])
def test_a_command_in_a_library_that_lets_no_signal_through_is_ended(is_sent_again: bool, end: str) -> None:
    """The main thread waits for a lock of its own, in the system's library; real time, as it is about seconds."""
    waiting = (
        "import ctypes, click, threading\nfrom bridgepack.cli import main\n"
        "lock, system = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n"
        "say = lambda: print('waits', flush=True)\n"
        "def wait(*_, **__):\n    threading.Timer(0.5, say).start()\n"
        "    [system.pthread_mutex_lock(lock) for _ in range(2)]\n"
        "click.echo = wait\nmain()\n"
    )
    command = [sys.executable, "-c", waiting, "explain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        start_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert "once more" in process.stderr.readline()
        if is_sent_again:
            process.send_signal(signal.SIGTERM)
        code, errors = process.wait(timeout=60), process.stderr.read()
    assert (code, end in errors, time.monotonic() - start_s < 15) == (130, True, True)
